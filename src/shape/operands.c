/*
 * operands.c — the checks of operands.h, by the rows of operators.def.
 */
#include "shape/operands.h"

#include "onnx/attr.h"
#include "onnx/check/check.h"
#include "onnx/graph.h"
#include "onnx/operators.h"
#include "onnx/tidy.h"

typedef struct look {
    const oq_shapes *shapes; /* NULL: constants only */
    oq_arena *arena;
    const oq_graph *graph;
    const oq_index *ix;
    const oq_node *node;
    const oq_op_traits *traits;
    onq_error *err;
} look;

/* What is known of an input. */
typedef struct operand {
    oq_str name;
    bool known; /* its rank, that is; rank is 0 otherwise */
    size_t rank;
    const int64_t *dims; /* -1: unknown */
} operand;

/* ---- looking ---- */

static onq_code find(const look *l, size_t slot, operand *out) {
    *out = (operand){.name = oq_node_input(l->node, slot)};
    if (out->name.n == 0)
        return ONQ_OK;
    const oq_tensor *t = oq_index_init(l->ix, out->name);
    if (t != NULL) {
        *out = (operand){out->name, true, t->dims.n, t->dims.v};
        return ONQ_OK;
    }
    oq_tensor_info info;
    if (l->shapes == NULL || !oq_shapes_tensor(l->shapes, l->graph, out->name, &info) ||
        !info.has_shape)
        return ONQ_OK;
    int64_t *dims = OQ_NEW_ARRAY(l->arena, int64_t, info.rank + 1);
    OQ_TRY_ALLOC(dims != NULL, l->err);
    for (size_t i = 0; i < info.rank; i++)
        dims[i] = info.dims[i].e == NULL ? info.dims[i].n : -1;
    *out = (operand){out->name, true, info.rank, dims};
    return ONQ_OK;
}

static onq_code find_slot(const look *l, uint8_t in, operand *out) {
    *out = (operand){.name = OQ_S("")};
    return in != 0 ? find(l, (size_t)oq_op_slot(in), out) : ONQ_OK;
}

/* Dimension i, from the end when it is negative; -1 when it is not known. */
static int64_t dim(const operand *o, int i) {
    const int64_t at = i < 0 ? (int64_t)o->rank + i : i;
    return at >= 0 && at < (int64_t)o->rank ? o->dims[at] : -1;
}

static bool differ(int64_t a, int64_t b) {
    return a >= 0 && b >= 0 && a != b;
}

static const char *text(const look *l, const operand *o) {
    oq_str s = OQ_S("[");
    for (size_t i = 0; i < o->rank && i < 12 && s.p != NULL; i++) {
        const oq_str d =
            o->dims[i] < 0 ? OQ_S("?") : oq_str_format(l->arena, "%lld", (long long)o->dims[i]);
        s = oq_str_format(l->arena, "%.*s%s%.*s", OQ_STR(s), i > 0 ? ", " : "", OQ_STR(d));
    }
    s = s.p != NULL ? oq_str_format(l->arena, "%.*s%s", OQ_STR(s), o->rank > 12 ? ", ...]" : "]")
                    : s;
    return s.p != NULL ? s.p : "[...]";
}

static onq_code refuse(const look *l, const operand *o, const char *wanted) {
    return oq_fail(l->err, ONQ_E_INVALID, "input '%.*s' has shape %s, and %s", OQ_STR(o->name),
                   text(l, o), wanted);
}

static onq_code refuse_pair(const look *l, const operand *a, const operand *b, const char *why) {
    return oq_fail(l->err, ONQ_E_INVALID, "inputs '%.*s' of shape %s and '%.*s' of shape %s: %s",
                   OQ_STR(a->name), text(l, a), OQ_STR(b->name), text(l, b), why);
}

/* ---- how many ---- */

static onq_code check_count(const look *l) {
    const oq_node *n = l->node;
    size_t count = n->input.n;
    while (count > 0 && n->input.v[count - 1].n == 0)
        count--;
    if (l->traits->most != 0 && count > l->traits->most)
        return oq_fail(l->err, ONQ_E_INVALID,
                       "it has %zu inputs, and the operator takes at most %u", count,
                       l->traits->most);
    for (size_t i = 0; i < l->traits->least; i++)
        if (i >= count || n->input.v[i].n == 0)
            return oq_fail(l->err, ONQ_E_INVALID, "input %zu is missing (the operator needs %u)", i,
                           l->traits->least);
    const unsigned outputs = l->traits->outputs != 0 ? l->traits->outputs : 1;
    if (l->traits->least != 0 && !l->traits->all_outputs && n->output.n > outputs)
        return oq_fail(l->err, ONQ_E_INVALID,
                       "it has %zu outputs, and the operator makes at most %u", n->output.n,
                       outputs);
    return ONQ_OK;
}

/* ---- products ---- */

typedef struct product {
    operand x, w, bias;
    int64_t channels; /* of the output; -1: unknown */
} product;

static onq_code check_kernel(const look *l, const operand *w) {
    const oq_attribute *k = oq_attr_find(l->node, "kernel_shape");
    for (size_t i = 0; k != NULL && i < k->ints.n; i++)
        if (k->ints.n != w->rank - 2 || differ(k->ints.v[i], w->dims[i + 2]))
            return refuse(l, w, "the attribute kernel_shape says otherwise");
    return ONQ_OK;
}

static onq_code check_conv(const look *l, product *p) {
    const bool back = l->traits->product == OQ_CONV_TRANSPOSE;
    const int64_t group = oq_attr_int(l->node, "group", 1);
    if (group < 1)
        return oq_fail(l->err, ONQ_E_INVALID, "its group is %lld", (long long)group);
    if (p->w.known && p->w.rank < 3)
        return refuse(l, &p->w, "a kernel has at least 3 dimensions");
    if (p->w.known && p->x.known && p->w.rank != p->x.rank)
        return refuse_pair(l, &p->x, &p->w, "they must have the same rank");
    if (!p->w.known)
        return ONQ_OK;
    const int64_t per_group = dim(&p->w, 1), first = dim(&p->w, 0);
    const bool fits = per_group < 0 || per_group <= INT64_MAX / group;
    const int64_t all = per_group >= 0 && fits ? per_group * group : -1;
    if (!fits || differ(dim(&p->x, 1), back ? first : all))
        return refuse_pair(l, &p->x, &p->w,
                           "the channels of the input are not those of the kernel");
    if (first >= 0 && first % group != 0)
        return refuse(l, &p->w, "its channels cannot be divided among the groups");
    p->channels = back ? all : first;
    return check_kernel(l, &p->w);
}

static onq_code check_conv_bias(const look *l, const product *p) {
    if (p->bias.known && (p->bias.rank != 1 || differ(dim(&p->bias, 0), p->channels)))
        return refuse(l, &p->bias, "a bias has one value for each channel of the output");
    return ONQ_OK;
}

static onq_code check_gemm(const look *l, product *p) {
    const bool turn_x = oq_gemm_turns_a(l->node);
    const bool turn_w = oq_gemm_turns_b(l->node);
    const operand *both[2] = {&p->x, &p->w};
    for (size_t i = 0; i < 2; i++)
        if (both[i]->known && both[i]->rank != 2)
            return refuse(l, both[i], "Gemm multiplies matrices");
    if (differ(dim(&p->x, turn_x ? 0 : 1), dim(&p->w, turn_w ? 1 : 0)))
        return refuse_pair(l, &p->x, &p->w, "their inner dimensions are not equal");
    p->channels = dim(&p->w, turn_w ? 0 : 1);
    const int64_t size[2] = {p->channels, dim(&p->x, turn_x ? 1 : 0)};
    for (int i = 0; p->bias.known && i < 2; i++)
        if (p->bias.rank > 2 ||
            (dim(&p->bias, -1 - i) != 1 && differ(dim(&p->bias, -1 - i), size[i])))
            return refuse(l, &p->bias, "it cannot be broadcast to the result");
    return ONQ_OK;
}

static onq_code check_matmul(const look *l, product *p) {
    const operand *x = &p->x, *w = &p->w;
    if (x->known && x->rank == 0)
        return refuse(l, x, "MatMul takes no scalar");
    if (w->known && w->rank == 0)
        return refuse(l, w, "MatMul takes no scalar");
    if (differ(dim(x, -1), w->rank == 1 ? dim(w, 0) : dim(w, -2)))
        return refuse_pair(l, x, w, "their inner dimensions are not equal");
    for (int i = -3; i >= -(int)x->rank && i >= -(int)w->rank; i--)
        if (dim(x, i) != 1 && dim(w, i) != 1 && differ(dim(x, i), dim(w, i)))
            return refuse_pair(l, x, w, "they cannot be broadcast to one another");
    p->channels = w->rank == 1 ? 1 : dim(w, -1);
    return ONQ_OK;
}

/* Scale and zero point of a quantized weight: one value, or one for each channel. */
static onq_code check_params(const look *l, const product *p) {
    const size_t first = (size_t)oq_op_slot(l->traits->param);
    const size_t count = l->traits->form == OQ_FORM_QLINEAR ? 2 : 1;
    for (size_t i = 0; l->traits->param != 0 && i < count; i++) {
        operand o;
        OQ_TRY(find(l, first + i, &o));
        if (o.rank == 0 || (o.rank == 1 && o.dims[0] == 1))
            continue;
        if (o.rank > 1 || differ(dim(&o, 0), p->channels))
            return refuse(l, &o, "there must be one value, or one for each channel of the output");
    }
    return ONQ_OK;
}

static onq_code check_product(const look *l) {
    product p = {.channels = -1};
    OQ_TRY(find(l, 0, &p.x));
    OQ_TRY(find_slot(l, l->traits->weight, &p.w));
    OQ_TRY(find_slot(l, l->traits->bias, &p.bias));
    switch (l->traits->product) {
    case OQ_CONV:
    case OQ_CONV_TRANSPOSE:
        OQ_TRY(check_conv(l, &p));
        OQ_TRY(check_conv_bias(l, &p));
        break;
    case OQ_GEMM:
        OQ_TRY(check_gemm(l, &p));
        break;
    case OQ_MATMUL:
        OQ_TRY(check_matmul(l, &p));
        break;
    case OQ_NO_PRODUCT:
        return ONQ_OK;
    }
    return check_params(l, &p);
}

/* ---- others ---- */

/* W, R [directions, gates x hidden, size] and B [directions, 2 x gates x hidden]. */
static onq_code check_recurrent(const look *l) {
    const int64_t gates = l->traits->gates;
    operand x, w, r, b;
    OQ_TRY(find(l, 0, &x));
    OQ_TRY(find(l, 1, &w));
    OQ_TRY(find(l, 2, &r));
    OQ_TRY(find(l, 3, &b));
    const operand *three[3] = {&x, &w, &r};
    for (size_t i = 0; i < 3; i++)
        if (three[i]->known && three[i]->rank != 3)
            return refuse(l, three[i], "it must have 3 dimensions");
    if (differ(dim(&x, 2), dim(&w, 2)))
        return refuse_pair(l, &x, &w, "the size of the input is not that of the weight");
    const int64_t hidden = dim(&r, 2);
    if (differ(dim(&w, 0), dim(&r, 0)) || differ(dim(&w, 1), dim(&r, 1)) ||
        (hidden >= 0 && dim(&r, 1) >= 0 &&
         (dim(&r, 1) % gates != 0 || dim(&r, 1) / gates != hidden)))
        return refuse_pair(l, &w, &r, "they are not of one hidden size");
    if (b.known && (b.rank != 2 || differ(dim(&b, 0), dim(&w, 0)) ||
                    (dim(&b, 1) >= 0 && dim(&w, 1) >= 0 && dim(&b, 1) / 2 != dim(&w, 1))))
        return refuse_pair(l, &w, &b, "the bias is not as long as two rows of gates");
    return ONQ_OK;
}

static onq_code check_node(look *l, const oq_node *n) {
    const oq_operator *row = oq_operator_find(n->op_type);
    if (row == NULL || (oq_domain_is_onnx(n->domain) ? row->domain[0] != '\0'
                                                     : !oq_str_is(n->domain, row->domain)))
        return ONQ_OK;
    l->node = n;
    l->traits = &row->traits;
    OQ_TRY(check_count(l));
    OQ_TRY(check_product(l));
    return l->traits->gates != 0 ? check_recurrent(l) : ONQ_OK;
}

/* ---- the whole ---- */

typedef struct job {
    oq_model *m;
    const oq_shapes *shapes;
} job;

static onq_code check_inner(const job *j, const oq_node *n, const oq_index *outer, unsigned depth,
                            onq_error *err);

/* Initializers of the graphs around it are seen too, in which shape inference may not have got this
 * far. */
static onq_code check_graph(const job *j, const oq_index *ix, unsigned depth, onq_error *err) {
    if (depth > OQ_MAX_GRAPH_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "subgraphs are nested more than %d deep",
                       OQ_MAX_GRAPH_DEPTH);
    OQ_SCRATCH(scratch, &j->m->env->alloc);
    look l = {.shapes = j->shapes, .arena = &scratch, .graph = ix->graph, .ix = ix, .err = err};
    onq_code rc = ONQ_OK;
    for (size_t i = 0; i < ix->graph->node.n && rc == ONQ_OK; i++) {
        const oq_node *n = ix->graph->node.v[i];
        rc = check_node(&l, n);
        if (rc != ONQ_OK)
            oq_node_blame(n, rc, err);
        else
            rc = check_inner(j, n, ix, depth, err);
    }
    return rc;
}

static onq_code check_inner(const job *j, const oq_node *n, const oq_index *outer, unsigned depth,
                            onq_error *err) {
    onq_code rc = ONQ_OK;
    oq_graph_cursor at = {0};
    for (oq_graph *g; rc == ONQ_OK && (g = oq_node_next_graph(n, &at)) != NULL;) {
        oq_arena scratch;
        oq_index ix;
        oq_arena_init(&scratch, &j->m->env->alloc);
        rc = oq_index_build(&ix, &scratch, g, outer, err);
        if (rc == ONQ_OK)
            rc = check_graph(j, &ix, depth + 1, err);
        oq_arena_release(&scratch);
    }
    return rc;
}

static onq_code check_all(oq_model *m, const oq_index *ix, const oq_shapes *shapes,
                          onq_error *err) {
    assert(ix->graph == m->proto->graph);
    const job j = {m, shapes};
    const onq_code rc = check_graph(&j, ix, 1, err);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", m->path);
}

onq_code oq_operands_check_constants(oq_model *m, const oq_index *ix, onq_error *err) {
    return check_all(m, ix, NULL, err);
}

static onq_code check_inferred(oq_model *m, const oq_index *ix, onq_error *err) {
    /* Symbolic, because there a value_info that is wrong, which runtimes pass over, does not
     * count. */
    const oq_shape_options options = {.symbolic = true, .index = ix};
    oq_shapes *shapes = NULL;
    OQ_TRY(oq_shapes_infer(m, &options, &shapes, err));
    const onq_code rc = check_all(m, ix, shapes, err);
    oq_shapes_free(shapes);
    return rc;
}

onq_code oq_model_make_sound(oq_model *m, onq_error *err) {
    oq_index ix; /* one for all: nothing edits the model before the sort */
    OQ_SCRATCH(scratch, &m->env->alloc);
    OQ_TRY(oq_model_check_index(m, &scratch, &ix, err));
    OQ_TRY(check_inferred(m, &ix, err));
    return oq_model_sort_all(m, &ix, err);
}
