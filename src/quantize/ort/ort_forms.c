/*
 * ort_forms.c — see ort_forms.h.
 */
#include "quantize/ort/ort_forms.h"

#include "onnx/edit.h"
#include "onnx/operators.h"
#include "onnx/tidy.h"
#include "samples/agreement.h"

/* The node that alone reads a tensor, or NULL. */
static oq_node *only_reader(const oq_index *ix, oq_str name) {
    const oq_value *v = oq_index_find(ix, name);
    if (v == NULL || v->is_output || v->uses.n != 1 || v->uses.v[0].slot == OQ_SLOT_INNER)
        return NULL;
    return ix->graph->node.v[v->uses.v[0].node];
}

/* ---- weights that would be quantized again ---- */

/* The QuantizeLinear after a node that WeightBiasQuantization takes, or NULL. */
static oq_node *taken_at(const oq_index *ix, const oq_node *n) {
    if (!oq_node_is(n, "Conv") && !oq_node_is(n, "ConvTranspose") && !oq_node_is(n, "Gemm"))
        return NULL;
    if (n->input.n < 2 || n->output.n == 0 ||
        !oq_node_is_dequantize(oq_index_producer(ix, n->input.v[0])))
        return NULL;
    const oq_tensor *w = oq_index_init(ix, n->input.v[1]);
    if (w == NULL || (w->data_type.v != OQ_FLOAT && w->data_type.v != OQ_FLOAT16))
        return NULL;
    oq_node *reader = only_reader(ix, n->output.v[0]);
    if (reader != NULL && oq_op_traits_of(reader->op_type)->clips && reader->output.n > 0)
        reader = only_reader(ix, reader->output.v[0]);
    return oq_node_is_quantize(reader) ? reader : NULL;
}

/* What int8 per tensor leaves of a weight. */
static onq_code weight_sqnr(oq_model *m, oq_tensor *w, double *out, onq_error *err) {
    oq_arena scratch;
    float *v = NULL;
    size_t n = 0;
    oq_arena_init(&scratch, &m->env->alloc);
    const onq_code rc = oq_tensor_floats(m, w, &scratch, &v, &n, err);
    double largest = 0, signal = 0, noise = 0;
    for (size_t i = 0; rc == ONQ_OK && i < n; i++)
        largest = fmax(largest, fabs((double)v[i]));
    const double step = largest / 127;
    for (size_t i = 0; rc == ONQ_OK && step > 0 && i < n; i++) {
        const double lost = (double)v[i] - step * nearbyint((double)v[i] / step);
        signal += (double)v[i] * (double)v[i];
        noise += lost * lost;
    }
    oq_arena_release(&scratch);
    *out = noise > 0 ? oq_signal_to_noise(signal, noise) : INFINITY;
    return rc;
}

/* A node that is taken, with the QuantizeLinear after it, its weight and its graph. */
typedef struct taken {
    oq_graph *graph;
    oq_node *node, *quantize;
    oq_tensor *weight;
} taken;
typedef onq_code (*taken_fn)(void *ctx, const taken *t, onq_error *err);

/* Calls `fn` for each of a graph and of the bodies in it. */
static onq_code each_taken(oq_arena *a, oq_graph *g, const oq_index *parent, taken_fn fn, void *ctx,
                           onq_error *err) {
    oq_index *ix = OQ_NEW(a, oq_index);
    const size_t n_nodes = g->node.n; /* `fn` may add some */
    OQ_TRY_ALLOC(ix != NULL, err);
    OQ_TRY(oq_index_build(ix, a, g, parent, err));
    for (size_t i = 0; i < n_nodes; i++) {
        oq_graph_cursor at = {0};
        taken t = {.graph = g, .node = g->node.v[i], .quantize = taken_at(ix, g->node.v[i])};
        for (oq_graph *body; (body = oq_node_next_graph(t.node, &at)) != NULL;)
            OQ_TRY(each_taken(a, body, ix, fn, ctx, err));
        if (t.quantize == NULL)
            continue;
        t.weight = oq_index_init(ix, t.node->input.v[1]);
        OQ_TRY(fn(ctx, &t, err));
    }
    return ONQ_OK;
}

typedef struct listing {
    oq_model *m;
    oq_arena *a;
    oq_forms_hits *out;
} listing;

static onq_code list_taken(void *ctx, const taken *t, onq_error *err) {
    const listing *l = ctx;
    oq_forms_hits *out = l->out;
    oq_forms_hit hit = {.node = t->node};
    OQ_TRY(weight_sqnr(l->m, t->weight, &hit.sqnr, err));
    OQ_TRY_ALLOC(OQ_PUSH(l->a, out, hit), err);
    size_t at = out->n - 1;
    for (; at > 0 && out->v[at - 1].sqnr > hit.sqnr; at--)
        out->v[at] = out->v[at - 1];
    out->v[at] = hit;
    return ONQ_OK;
}

onq_code oq_forms_find(oq_model *m, oq_arena *a, oq_forms_hits *out, onq_error *err) {
    listing l = {m, a, out};
    return each_taken(a, m->proto->graph, NULL, list_taken, &l, err);
}

/* The lowest number of a type, as a constant of the graph. */
static onq_code add_lowest(oq_model *m, oq_fresh *names, oq_dtype type, oq_str *out,
                           onq_error *err) {
    static const float lowest = -FLT_MAX;
    static const uint16_t lowest_half = 0xfbff;
    const bool half = type == OQ_FLOAT16;
    *out = oq_fresh_tensor(names, OQ_S("lowest"), half ? "_float16" : "_float");
    oq_tensor *t = out->p != NULL ? oq_tensor_new(&m->arena, *out, type, NULL, 0) : NULL;
    OQ_TRY_ALLOC(t != NULL && oq_graph_add_init(&m->arena, m->proto->graph, t), err);
    return half ? oq_tensor_set_raw(&m->arena, t, &lowest_half, sizeof lowest_half, err)
                : oq_tensor_set_raw(&m->arena, t, &lowest, sizeof lowest, err);
}

typedef struct protecting {
    oq_model *m;
    oq_fresh *names;
    oq_str lowest[2]; /* of float and of float16, in the main graph */
    size_t n;
} protecting;

/* A Max before the QuantizeLinear. */
static onq_code protect_from(protecting *p, const taken *t, oq_dtype type, onq_error *err) {
    oq_str *lowest = &p->lowest[type == OQ_FLOAT16];
    if (lowest->p == NULL)
        OQ_TRY(add_lowest(p->m, p->names, type, lowest, err));
    const oq_str in[2] = {t->quantize->input.v[0], *lowest};
    const oq_str out = oq_fresh_tensor(p->names, in[0], "_kept");
    const oq_str name = oq_fresh_node_of(p->names, t->node, "_kept");
    oq_node *max = out.p != NULL && !p->names->failed
                       ? oq_node_make(&p->m->arena, "Max", name, in, 2, &out, 1)
                       : NULL;
    OQ_TRY_ALLOC(max != NULL && oq_graph_add_node(&p->m->arena, t->graph, max), err);
    t->quantize->input.v[0] = out;
    p->n++;
    return t->graph != p->m->proto->graph ? oq_model_sort_inner(p->m, t->graph, err) : ONQ_OK;
}

static onq_code protect(void *ctx, const taken *t, onq_error *err) {
    return protect_from(ctx, t, (oq_dtype)t->weight->data_type.v, err);
}

onq_code oq_forms_protect(oq_model *m, oq_fresh *names, size_t *n, onq_error *err) {
    protecting p = {.m = m, .names = names};
    OQ_SCRATCH(scratch, &m->env->alloc);
    OQ_TRY(each_taken(&scratch, m->proto->graph, NULL, protect, &p, err));
    *n = p.n;
    return ONQ_OK;
}

onq_code oq_forms_keep(oq_model *m, oq_fresh *names, bool keep, oq_plan *plan, onq_error *err) {
    oq_forms_hits hits = {0};
    if (keep)
        return oq_forms_protect(m, names, &plan->n_kept_float, err);
    OQ_SCRATCH(scratch, &m->env->alloc);
    OQ_TRY(oq_forms_find(m, &scratch, &hits, err));
    for (size_t i = 0; i < hits.n; i++) {
        const oq_plan_requantized row = {oq_node_label(hits.v[i].node), hits.v[i].sqnr};
        OQ_TRY_ALLOC(OQ_PUSH(plan->arena, &plan->requantized, row), err);
    }
    return ONQ_OK;
}

/* ---- kernels that compute something else ---- */

/* What can be multiplied and added up. */
static bool is_size(int64_t v) {
    return v >= 0 && v <= INT32_MAX;
}

/* True if ceil_mode adds a window along spatial axis i of n, or if that is not known. */
static bool hangs_over(const oq_node *n, size_t i, size_t axes, int64_t size) {
    const oq_i64s *kernel = oq_attr_ints(n, "kernel_shape"), *pads = oq_attr_ints(n, "pads"),
                  *strides = oq_attr_ints(n, "strides"), *dilations = oq_attr_ints(n, "dilations");
    const int64_t stride = strides != NULL && i < strides->n ? strides->v[i] : 1;
    const int64_t apart = dilations != NULL && i < dilations->n ? dilations->v[i] : 1;
    const bool padded = pads != NULL && pads->n == 2 * axes;
    const int64_t begin = padded ? pads->v[i] : 0, end = padded ? pads->v[i + axes] : 0;
    if (kernel == NULL || i >= kernel->n || stride < 1 || !is_size(size) || !is_size(begin) ||
        !is_size(end) || !is_size(kernel->v[i]) || !is_size(apart))
        return true;
    return (begin + size + end - ((kernel->v[i] - 1) * apart + 1)) % stride != 0;
}

static oq_kernel_need average_need(const oq_node *n, const oq_forms_shapes *s, oq_str input) {
    const oq_attribute *auto_pad = oq_attr_find(n, "auto_pad");
    const oq_i64s *pads = oq_attr_ints(n, "pads"), *kernel = oq_attr_ints(n, "kernel_shape");
    const size_t axes = kernel != NULL ? kernel->n : 0;
    bool over = axes == 0;
    if (oq_attr_int(n, "ceil_mode", 0) == 0 || oq_attr_int(n, "count_include_pad", 0) == 0 ||
        (auto_pad != NULL && oq_str_starts(auto_pad->s, OQ_S("SAME"))))
        return OQ_KERNEL_NOTHING;
    for (size_t i = 0; i < axes && !over; i++)
        over = hangs_over(n, i, axes, oq_shapes_dim(s->shapes, s->graph, input, i + 2));
    if (!over)
        return OQ_KERNEL_NOTHING;
    for (size_t i = 0; pads != NULL && i < pads->n; i++)
        if (pads->v[i] != 0)
            return OQ_KERNEL_FLOAT;
    return OQ_KERNEL_UNPADDED;
}

double oq_forms_summed(const oq_node *softmax, const oq_forms_shapes *s, oq_str name) {
    oq_tensor_info info;
    double n = 1.0;
    if (!oq_shapes_tensor(s->shapes, s->graph, name, &info) || !info.has_shape)
        return 0.0;
    /* Before opset 13, all from the axis on. */
    const int64_t rank = (int64_t)info.rank,
                  axis = oq_attr_int(softmax, "axis", s->opset < 13 ? 1 : -1);
    const int64_t first = axis < 0 ? axis + rank : axis;
    if (first < 0 || first >= rank)
        return 0.0;
    for (int64_t i = first; i < (s->opset < 13 ? rank : first + 1); i++) {
        const int64_t dim = oq_shapes_dim(s->shapes, s->graph, name, (size_t)i);
        n *= dim > 0 ? (double)dim : 0.0;
    }
    return n;
}

oq_kernel_need oq_forms_kernel_need(const oq_node *n, const oq_forms_shapes *s, oq_str input) {
    if (oq_node_is(n, "AveragePool"))
        return average_need(n, s, input);
    return oq_node_is(n, "Softmax") && oq_forms_summed(n, s, input) == 1.0 ? OQ_KERNEL_FLOAT
                                                                           : OQ_KERNEL_NOTHING;
}

static bool has_such_kernel(const oq_node *n) {
    return oq_node_is(n, "AveragePool") || oq_node_is(n, "Softmax");
}

static onq_code mend_kernel(protecting *p, const oq_index *ix, const oq_forms_shapes *s, oq_node *n,
                            onq_error *err) {
    const oq_node *before = n->input.n > 0 ? oq_index_producer(ix, n->input.v[0]) : NULL;
    oq_node *after = n->output.n > 0 ? only_reader(ix, n->output.v[0]) : NULL;
    const oq_tensor *zero = oq_node_is_dequantize(before) && before->input.n > 2
                                ? oq_index_init(ix, before->input.v[2])
                                : NULL;
    if (zero == NULL || (zero->data_type.v != OQ_INT8 && zero->data_type.v != OQ_UINT8) ||
        !oq_node_is_quantize(after))
        return ONQ_OK; /* there are no kernels of other types */
    const oq_node *first = oq_index_producer(ix, before->input.v[0]);
    const oq_kernel_need need =
        oq_forms_kernel_need(n, s, oq_node_is_quantize(first) ? first->input.v[0] : n->input.v[0]);
    if (need == OQ_KERNEL_UNPADDED)
        return oq_attr_set_int(&p->m->arena, n, OQ_S("count_include_pad"), 0) ? ONQ_OK
                                                                              : oq_fail_nomem(err);
    const oq_tensor *scale = oq_index_init(ix, before->input.v[1]);
    if (need == OQ_KERNEL_NOTHING || scale == NULL)
        return ONQ_OK;
    const taken t = {.graph = ix->graph, .node = n, .quantize = after};
    return protect_from(p, &t, (oq_dtype)scale->data_type.v, err);
}

onq_code oq_forms_kernels(oq_model *m, const oq_forms_shapes *s, oq_fresh *names, onq_error *err) {
    oq_graph *g = m->proto->graph;
    protecting p = {.m = m, .names = names};
    oq_index ix;
    const size_t n_nodes = g->node.n;
    size_t i = 0;
    while (i < n_nodes && !has_such_kernel(g->node.v[i]))
        i++;
    OQ_SCRATCH(scratch, &m->env->alloc);
    if (i < n_nodes)
        OQ_TRY(oq_index_build(&ix, &scratch, g, NULL, err));
    for (; i < n_nodes; i++)
        if (has_such_kernel(g->node.v[i]))
            OQ_TRY(mend_kernel(&p, &ix, s, g->node.v[i], err));
    return ONQ_OK;
}

/* ---- products with a bias ---- */

typedef struct negating {
    oq_model *m;
    const oq_shapes *shapes;
    oq_fresh *names;
    oq_index ix;
    oq_map done; /* bias -> index in negated */
    oq_strs negated;
} negating;

/* True if MatMulAddFusion takes a MatMul with this output and a bias of that rank. */
static bool fuses(const negating *s, oq_str output, size_t bias_rank) {
    oq_tensor_info t;
    if (!oq_shapes_tensor(s->shapes, NULL, output, &t) || !t.has_shape)
        return true; /* the runtime may know more */
    return t.rank <= 2 || (t.is_fixed && bias_rank < t.rank);
}

/* A MatMul of two quantized factors whose output is float. */
static bool is_integer_product(const oq_index *ix, const oq_node *n) {
    return oq_node_is(n, "MatMul") && n->input.n == 2 && n->output.n == 1 &&
           oq_node_is_dequantize(oq_index_producer(ix, n->input.v[0])) &&
           oq_node_is_dequantize(oq_index_producer(ix, n->input.v[1]));
}

/* The sign bit of every element the other way round. */
static onq_code negated(negating *s, oq_tensor *bias, oq_arena *a, oq_str *out, onq_error *err) {
    const uint32_t at = oq_map_find(&s->done, bias->name);
    const size_t width = bias->data_type.v == OQ_FLOAT ? 4 : 2;
    oq_span data;
    if (at != OQ_MAP_NONE) {
        *out = s->negated.v[at];
        return ONQ_OK;
    }
    OQ_TRY(oq_model_data(s->m, bias, &data, err));
    *out = oq_fresh_tensor(s->names, bias->name, "_negated");
    uint8_t *bytes = oq_arena_alloc(&s->m->arena, data.n + 1);
    oq_tensor *t = out->p != NULL && bytes != NULL
                       ? oq_tensor_new(&s->m->arena, *out, (oq_dtype)bias->data_type.v,
                                       bias->dims.v, bias->dims.n)
                       : NULL;
    if (t == NULL || !oq_graph_add_init(&s->m->arena, s->m->proto->graph, t) ||
        !oq_map_put(&s->done, bias->name, (uint32_t)s->negated.n) || !OQ_PUSH(a, &s->negated, *out))
        return oq_fail_nomem(err);
    if (data.n > 0)
        memcpy(bytes, data.p, data.n);
    for (uint64_t i = width - 1; i < data.n; i += width)
        bytes[i] ^= 0x80;
    oq_tensor_set_view(t, bytes, data.n);
    return ONQ_OK;
}

static onq_code guard_product(negating *s, const oq_node *n, oq_arena *a, bool *changed,
                              onq_error *err) {
    oq_node *add = is_integer_product(&s->ix, n) ? only_reader(&s->ix, n->output.v[0]) : NULL;
    if (add == NULL || !oq_node_is(add, "Add") || add->input.n != 2)
        return ONQ_OK;
    const size_t slot = oq_str_eq(add->input.v[0], n->output.v[0]) ? 1 : 0;
    oq_tensor *bias = oq_index_init(&s->ix, add->input.v[slot]);
    if (bias == NULL || (bias->data_type.v != OQ_FLOAT && bias->data_type.v != OQ_FLOAT16) ||
        !fuses(s, n->output.v[0], bias->dims.n))
        return ONQ_OK;
    oq_str name;
    OQ_TRY(negated(s, bias, a, &name, err));
    add->op_type = OQ_S("Sub");
    add->input.v[0] = n->output.v[0];
    add->input.v[1] = name;
    *changed = true;
    return ONQ_OK;
}

onq_code oq_forms_products(oq_model *m, const oq_shapes *shapes, oq_fresh *names, size_t *n,
                           onq_error *err) {
    negating s = {.m = m, .shapes = shapes, .names = names};
    oq_graph *g = m->proto->graph;
    *n = 0;
    OQ_SCRATCH(scratch, &m->env->alloc);
    oq_map_init(&s.done, &scratch);
    OQ_TRY(oq_index_build(&s.ix, &scratch, g, NULL, err));
    for (size_t i = 0; i < g->node.n; i++) {
        bool changed = false;
        OQ_TRY(guard_product(&s, g->node.v[i], &scratch, &changed, err));
        *n += changed;
    }
    return ONQ_OK;
}
