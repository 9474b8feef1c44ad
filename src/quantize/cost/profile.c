/*
 * profile.c — see profile.h.
 */
#include "quantize/cost/profile.h"

#include "onnx/attr.h"
#include "onnx/codec/schema.h"
#include "onnx/graph.h"
#include "onnx/tensor.h"
#include "shape/macs.h"

#define NONE OQ_PROFILE_NONE

/* The names of one graph, and where to look further. */
typedef struct scope {
    oq_map names; /* -> index in values */
    const struct scope *parent;
    const oq_graph *shown, *counted; /* the graph in the model, and its copy with fixed inputs */
    uint32_t graph, owner;
} scope;

typedef struct profiling {
    oq_profile *p;
    oq_arena *arena;
    oq_model *model;
    const oq_shapes *shown, *counted;
    uint32_t n_graphs;
} profiling;

const char *oq_compute_name(oq_compute c) {
    static const char *const names[] = {"float",       "integer (QDQ)", "integer",
                                        "weight-only", "conversion",    "no floats"};
    assert((size_t)c < OQ_COUNT(names));
    return names[c];
}

/* ---- values ---- */

static uint32_t find_value(const scope *s, oq_str name) {
    uint32_t at = NONE;
    for (; name.n > 0 && s != NULL && at == NONE; s = s->parent)
        at = oq_map_find(&s->names, name);
    return at;
}

static double bytes_of(const profiling *g, const scope *s, oq_str name, int32_t dtype) {
    const double n = oq_tensor_extent(g->counted, s->counted, name);
    uint64_t bytes = 0;
    return n > 0 && n < 1e18 && oq_dtype_bytes(dtype, (uint64_t)n, &bytes) ? (double)bytes : 0;
}

/* "FLOAT[2, n]" and "2, n", from what was inferred for the model as it is. */
static bool describe(profiling *g, const oq_vtype *t, oq_profile_value *v) {
    OQ_SCRATCH_BUF(b, g->arena->alloc);
    if (t == NULL || t->kind != OQ_V_TENSOR) {
        oq_buf_adds(&b, t == NULL || t->kind == OQ_V_NONE ? "?" : "not a tensor");
    } else {
        v->dtype = t->elem_type;
        oq_buf_adds(&b, t->elem_type != 0 ? oq_dtype_name(t->elem_type) : "?");
        const size_t from = b.n + 1;
        oq_buf_adds(&b, t->has_shape ? "[" : "");
        for (uint32_t i = 0; t->has_shape && i < t->rank; i++) {
            oq_buf_adds(&b, i > 0 ? ", " : "");
            oq_sdim_print(&b, t->dims[i]);
        }
        if (t->has_shape && !b.failed)
            v->shape = oq_str_copy(g->arena, (oq_str){b.p + from, b.n - from});
        oq_buf_adds(&b, t->has_shape ? "]" : "");
        b.failed |= t->has_shape && v->shape.p == NULL;
    }
    v->type = b.failed ? (oq_str){0} : oq_str_copy(g->arena, (oq_str){b.p, b.n});
    return v->type.p != NULL;
}

/* The value of a name that the graph itself has; a new one if the name is new. */
static bool touch(profiling *g, scope *s, oq_str name, uint32_t *out) {
    uint32_t unused;
    out = out != NULL ? out : &unused;
    *out = name.n > 0 ? oq_map_find(&s->names, name) : NONE;
    if (name.n == 0 || *out != NONE)
        return true;
    oq_profile_value v = {.name = name, .graph = s->graph, .producer = NONE};
    if (!describe(g, oq_shapes_find(g->shown, s->shown, name), &v))
        return false;
    *out = (uint32_t)g->p->values.n;
    v.bytes = bytes_of(g, s, name, v.dtype);
    return oq_map_put(&s->names, name, *out) && OQ_PUSH(g->arena, &g->p->values, v);
}

/* ---- quantization of values ---- */

/* The one element of a scale or zero point as text; empty when there are more. */
static onq_code element_text(profiling *g, const oq_tensor *t, oq_str *out, onq_error *err) {
    uint64_t count = 0;
    double v = 0;
    size_t n = 0;
    *out = (oq_str){0};
    if (t == NULL || oq_tensor_count(t, &count, NULL) != ONQ_OK || count != 1)
        return ONQ_OK;
    oq_tensor copy = *t; /* reading may keep converted bytes in the tensor */
    if (oq_dtype_is_float(t->data_type.v)) {
        float *f = NULL;
        if (oq_tensor_floats(g->model, &copy, g->arena, &f, &n, NULL) != ONQ_OK || n != 1)
            return ONQ_OK;
        v = (double)f[0];
    } else {
        int64_t *i = NULL;
        if (oq_tensor_i64s(g->model, &copy, g->arena, &i, &n, NULL) != ONQ_OK || n != 1)
            return ONQ_OK;
        v = (double)i[0];
    }
    *out = oq_str_format(g->arena, "%.6g", v);
    return out->p != NULL ? ONQ_OK : oq_fail_nomem(err);
}

static const oq_tensor *constant_at(const profiling *g, const scope *s, const oq_node *n,
                                    size_t slot) {
    const uint32_t at = slot < n->input.n ? find_value(s, n->input.v[slot]) : NONE;
    return at != NONE ? g->p->values.v[at].constant : NULL;
}

/* Parameters of a QuantizeLinear or DequantizeLinear, for the tensor that it reads. */
static onq_code note_pair(profiling *g, const scope *s, const oq_node *n, onq_error *err) {
    const bool quantize = oq_node_is_quantize(n);
    const uint32_t at = n->input.n > 1 ? find_value(s, n->input.v[0]) : NONE;
    if (!oq_node_is_pair(n) || at == NONE || g->p->values.v[at].quantized != 0)
        return ONQ_OK;
    const oq_tensor *scale = constant_at(g, s, n, 1), *zero = constant_at(g, s, n, 2);
    oq_profile_value *v = &g->p->values.v[at];
    uint64_t count = 1;
    v->quantized = !quantize      ? v->dtype
                   : zero != NULL ? zero->data_type.v
                                  : (int32_t)oq_attr_int(n, "output_dtype", OQ_UINT8);
    v->axis = oq_attr_int(n, "axis", 1);
    v->block_size = oq_attr_int(n, "block_size", 0);
    if (scale != NULL && oq_tensor_count(scale, &count, NULL) != ONQ_OK)
        count = 1;
    v->granularity = v->block_size > 0 ? OQ_PER_BLOCK : count > 1 ? OQ_PER_CHANNEL : OQ_PER_TENSOR;
    OQ_TRY(element_text(g, scale, &v->scale, err));
    return element_text(g, zero, &v->zero, err);
}

/* ---- what a node computes with ---- */

/* The node that makes an input, or NULL. */
static const oq_profile_node *maker(const oq_profile *p, const oq_profile_node *n, size_t slot) {
    const uint32_t at = slot < n->node->input.n ? n->inputs[slot] : NONE;
    const uint32_t by = at != NONE ? p->values.v[at].producer : NONE;
    return by != NONE ? &p->nodes.v[by] : NULL;
}

static bool comes_quantized(const oq_profile *p, const oq_profile_node *n, size_t slot) {
    const oq_profile_node *m = maker(p, n, slot);
    return m != NULL && oq_node_is_dequantize(m->node);
}

static bool is_float_value(const oq_profile *p, uint32_t at) {
    return at != NONE && oq_dtype_is_float(p->values.v[at].dtype);
}

/* A product or recurrent operator: by its activation and its weight. */
static oq_compute compute_of_product(const oq_profile *p, const oq_profile_node *n, size_t weight) {
    if (!comes_quantized(p, n, weight))
        return OQ_COMPUTE_FLOAT;
    return comes_quantized(p, n, 0) ? OQ_COMPUTE_QDQ : OQ_COMPUTE_WEIGHT_ONLY;
}

/* Any other: all floats that vary come from integers. */
static oq_compute compute_of_rest(const oq_profile *p, const oq_profile_node *n) {
    size_t floats = 0, quantized = 0, others = 0;
    for (size_t i = 0; i < n->node->input.n; i++) {
        if (!is_float_value(p, n->inputs[i]) || p->values.v[n->inputs[i]].constant != NULL)
            continue;
        floats++;
        quantized += comes_quantized(p, n, i);
    }
    for (size_t i = 0; i < n->node->output.n; i++)
        others += is_float_value(p, n->outputs[i]);
    if (floats == 0)
        return others > 0 && !oq_node_is_constant(n->node) ? OQ_COMPUTE_FLOAT : OQ_COMPUTE_OTHER;
    return floats == quantized ? OQ_COMPUTE_QDQ : OQ_COMPUTE_FLOAT;
}

static oq_compute compute_of(const oq_profile *p, const oq_profile_node *n) {
    const oq_op_traits *t = oq_op_traits_of(n->node->op_type);
    if (oq_node_is_pair(n->node) || t->kind == OQ_KIND_DYNAMIC)
        return OQ_COMPUTE_CONVERT;
    if (t->form == OQ_FORM_WEIGHT_ONLY)
        return OQ_COMPUTE_WEIGHT_ONLY;
    if (t->form != OQ_FORM_FLOAT || oq_str_starts(n->node->op_type, OQ_S("QLinear")) ||
        oq_str_starts(n->node->op_type, OQ_S("QOrdered")))
        return OQ_COMPUTE_INTEGER;
    if (t->product != OQ_NO_PRODUCT)
        return compute_of_product(p, n, 1);
    return t->gates > 0 ? compute_of_product(p, n, 1) : compute_of_rest(p, n);
}

/* The constant that an input is, through a DequantizeLinear and a QuantizeLinear before it. */
static const oq_tensor *weight_behind(const oq_profile *p, const oq_profile_node *n, size_t slot) {
    for (int steps = 0; steps < 3; steps++) {
        const uint32_t at = slot < n->node->input.n ? n->inputs[slot] : NONE;
        if (at == NONE || p->values.v[at].constant != NULL)
            return at == NONE ? NULL : p->values.v[at].constant;
        n = maker(p, n, slot);
        if (n == NULL || n->compute != OQ_COMPUTE_CONVERT)
            return NULL;
        slot = 0;
    }
    return NULL;
}

static double weights_of(const oq_profile *p, const oq_profile_node *n) {
    double sum = 0;
    uint64_t bytes = 0;
    if (n->compute == OQ_COMPUTE_CONVERT)
        return 0;
    for (size_t i = 0; i < n->node->input.n; i++) {
        const oq_tensor *t = weight_behind(p, n, i);
        if (t != NULL && oq_tensor_bytes(t, &bytes, NULL) == ONQ_OK)
            sum += (double)bytes;
    }
    return sum;
}

/* ---- graphs ---- */

static bool add_node(profiling *g, scope *s, const oq_node *n, uint32_t *at) {
    uint32_t *in = OQ_NEW_ARRAY(g->arena, uint32_t, n->input.n + n->output.n + 1);
    if (in == NULL)
        return false;
    uint32_t *out = in + n->input.n;
    *at = (uint32_t)g->p->nodes.n;
    for (size_t i = 0; i < n->input.n; i++) {
        in[i] = find_value(s, n->input.v[i]);
        if (in[i] != NONE)
            g->p->values.v[in[i]].uses++;
    }
    for (size_t i = 0; i < n->output.n; i++) {
        if (!touch(g, s, n->output.v[i], &out[i]))
            return false;
        if (out[i] != NONE)
            g->p->values.v[out[i]].producer = *at;
    }
    const oq_tensor *t = oq_node_constant(n);
    if (t != NULL && n->output.n > 0 && out[0] != NONE)
        g->p->values.v[out[0]].constant = t;
    const oq_profile_node fresh = {
        .node = n, .graph = s->graph, .owner = s->owner, .inputs = in, .outputs = out};
    return OQ_PUSH(g->arena, &g->p->nodes, fresh);
}

static void measure_node(profiling *g, const scope *s, const oq_node *counted, uint32_t at) {
    oq_profile *p = g->p;
    oq_profile_node *n = &p->nodes.v[at];
    oq_tensor_info out = {0};
    n->compute = compute_of(p, n);
    n->weights = weights_of(p, n);
    n->macs = oq_node_work(g->counted, s->counted, counted);
    p->macs[n->compute] += n->macs;
    p->all_macs += n->macs;
    const bool product = oq_op_traits_of(n->node->op_type)->product != OQ_NO_PRODUCT;
    if (product && n->node->output.n > 0 &&
        (n->macs <= 0 || !oq_shapes_tensor(g->counted, s->counted, counted->output.v[0], &out) ||
         !out.is_fixed))
        p->n_unknown++;
}

static onq_code walk(profiling *g, const oq_graph *shown, const oq_graph *counted,
                     const scope *parent, uint32_t owner, int depth, onq_error *err);

static onq_code walk_inner(profiling *g, const scope *s, uint32_t owner, const oq_node *shown,
                           const oq_node *counted, int depth, onq_error *err) {
    oq_graph_cursor a = {0}, b = {0};
    for (const oq_graph *sub; (sub = oq_node_next_graph(shown, &a)) != NULL;)
        OQ_TRY(walk(g, sub, oq_node_next_graph(counted, &b), s, owner, depth + 1, err));
    return ONQ_OK;
}

static bool add_ends(profiling *g, scope *s) {
    const oq_graph *graph = s->shown;
    uint32_t at;
    for (size_t i = 0; i < graph->input.n; i++) {
        if (!touch(g, s, graph->input.v[i]->name, &at))
            return false;
        if (at != NONE)
            g->p->values.v[at].is_input = true;
    }
    for (size_t i = 0; i < graph->initializer.n; i++) {
        if (!touch(g, s, graph->initializer.v[i]->name, &at))
            return false;
        if (at != NONE)
            g->p->values.v[at].constant = graph->initializer.v[i];
    }
    return true;
}

static onq_code walk(profiling *g, const oq_graph *shown, const oq_graph *counted,
                     const scope *parent, uint32_t owner, int depth, onq_error *err) {
    if (depth > OQ_MAX_GRAPH_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "graphs are nested more than %d deep", OQ_MAX_GRAPH_DEPTH);
    assert(counted->node.n == shown->node.n);
    scope s = {.parent = parent,
               .shown = shown,
               .counted = counted,
               .graph = g->n_graphs++,
               .owner = owner};
    uint32_t at = 0;
    oq_map_init(&s.names, g->arena);
    OQ_TRY_ALLOC(add_ends(g, &s), err);
    for (size_t i = 0; i < shown->node.n; i++) {
        OQ_TRY_ALLOC(add_node(g, &s, shown->node.v[i], &at), err);
        OQ_TRY(note_pair(g, &s, shown->node.v[i], err));
        measure_node(g, &s, counted->node.v[i], at);
        OQ_TRY(walk_inner(g, &s, at, shown->node.v[i], counted->node.v[i], depth, err));
    }
    for (size_t i = 0; i < shown->output.n; i++)
        if ((at = find_value(&s, shown->output.v[i]->name)) != NONE)
            g->p->values.v[at].is_output = true;
    return ONQ_OK;
}

/* ---- memory ---- */

typedef struct memory {
    oq_profile *p;
    double *bytes;  /* of each value; 0 for what takes none of its own */
    uint32_t *left; /* uses of it to come */
    double *held;   /* of each graph: what its values take now */
    double live;
} memory;

/* Constants take none. Nor do the float sides of a pair where the runtime makes one integer
 * operator of it and its neighbour, and constants that are dequantized once, when the model is
 * loaded. */
static bool is_kept(const oq_profile *p, const oq_profile_value *v, bool read_plainly) {
    const oq_profile_node *by = v->producer != NONE ? &p->nodes.v[v->producer] : NULL;
    if (v->constant != NULL)
        return false;
    if (by != NULL && oq_node_is_dequantize(by->node))
        return read_plainly && weight_behind(p, by, 0) == NULL;
    return by == NULL || by->compute != OQ_COMPUTE_QDQ || v->quantized == 0 || v->uses != 1 ||
           v->is_output;
}

static void take_value(memory *m, uint32_t at) {
    if (at == NONE)
        return;
    m->live += m->bytes[at];
    m->held[m->p->values.v[at].graph] += m->bytes[at];
}

static void free_value(memory *m, uint32_t at) {
    m->live -= m->bytes[at];
    m->held[m->p->values.v[at].graph] -= m->bytes[at];
    m->bytes[at] = 0;
}

static void note_peak(memory *m, const oq_node *n) {
    if (m->live > m->p->peak) {
        m->p->peak = m->live;
        m->p->peak_at = oq_node_label(n);
    }
}

/* Runs the nodes of one graph in their order; those of inner graphs follow their owner. */
static void run_graph(memory *m, uint32_t *at, uint32_t graph) {
    oq_profile *p = m->p;
    while (*at < p->nodes.n && p->nodes.v[*at].graph == graph) {
        const uint32_t self = (*at)++;
        const oq_profile_node *n = &p->nodes.v[self];
        while (*at < p->nodes.n && p->nodes.v[*at].owner == self)
            run_graph(m, at, p->nodes.v[*at].graph);
        for (size_t i = 0; i < n->node->output.n; i++)
            take_value(m, n->outputs[i]);
        note_peak(m, n->node);
        for (size_t i = 0; i < n->node->input.n; i++) {
            const uint32_t v = n->inputs[i];
            assert(v == NONE || m->left[v] > 0);
            if (v != NONE && --m->left[v] == 0 && !p->values.v[v].is_output)
                free_value(m, v);
        }
        for (size_t i = 0; i < n->node->output.n; i++) {
            const uint32_t v = n->outputs[i];
            if (v != NONE && m->left[v] == 0 && !p->values.v[v].is_output)
                free_value(m, v);
        }
    }
    if (graph > 0) { /* what is left goes to the owner's outputs */
        m->live -= m->held[graph];
        m->held[graph] = 0;
    }
}

static onq_code find_peak(const profiling *g, onq_error *err) {
    oq_profile *p = g->p;
    const size_t n = p->values.n;
    memory m = {.p = p,
                .bytes = OQ_NEW_ARRAY(g->arena, double, n + 1),
                .left = OQ_NEW_ARRAY(g->arena, uint32_t, n + 1),
                .held = OQ_NEW_ARRAY(g->arena, double, g->n_graphs + 1)};
    bool *plain = OQ_NEW_ARRAY(g->arena, bool, n + 1);
    uint32_t at = 0;
    OQ_TRY_ALLOC(m.bytes != NULL && m.left != NULL && m.held != NULL && plain != NULL, err);
    for (size_t i = 0; i < p->nodes.n; i++)
        for (size_t k = 0; k < p->nodes.v[i].node->input.n; k++)
            if (p->nodes.v[i].inputs[k] != NONE && p->nodes.v[i].compute != OQ_COMPUTE_QDQ)
                plain[p->nodes.v[i].inputs[k]] = true;
    for (size_t i = 0; i < n; i++) {
        const oq_profile_value *v = &p->values.v[i];
        const bool kept = is_kept(p, v, plain[i]);
        m.bytes[i] = kept ? v->bytes : 0;
        m.left[i] = v->uses;
        p->n_unsized += kept && v->bytes <= 0 && v->shape.p == NULL;
        if (v->is_input && v->graph == 0)
            take_value(&m, (uint32_t)i);
    }
    run_graph(&m, &at, 0);
    assert(at == p->nodes.n);
    return ONQ_OK;
}

/* ---- both shapes ---- */

static onq_code make_both(profiling *g, oq_model *m, oq_model_proto *own,
                          const oq_unit_sizes *sizes, onq_error *err) {
    const oq_shape_options symbolic = {.symbolic = true};
    oq_shapes *shown = NULL, *counted = NULL;
    onq_code rc = oq_shapes_infer(m, &symbolic, &shown, err);
    m->proto = oq_message_clone(g->arena, OQ_SCHEMA_model_proto, own);
    if (rc == ONQ_OK && m->proto == NULL)
        rc = oq_fail_nomem(err);
    if (rc == ONQ_OK)
        rc = oq_inputs_settle(m, g->arena, sizes, &g->p->dims, err);
    if (rc == ONQ_OK)
        rc = oq_shapes_infer(m, &symbolic, &counted, err);
    g->shown = shown;
    g->counted = counted;
    if (rc == ONQ_OK)
        rc = walk(g, own->graph, m->proto->graph, NULL, NONE, 1, err);
    if (rc == ONQ_OK)
        rc = find_peak(g, err);
    oq_shapes_free(shown);
    oq_shapes_free(counted);
    return rc;
}

onq_code oq_profile_make(oq_profile *p, oq_arena *a, oq_model *m, const oq_unit_sizes *sizes,
                         onq_error *err) {
    oq_model_proto *const own = m->proto;
    profiling g = {.p = p, .arena = a, .model = m};
    *p = (oq_profile){0};
    const onq_code rc = make_both(&g, m, own, sizes, err);
    m->proto = own;
    return rc;
}
