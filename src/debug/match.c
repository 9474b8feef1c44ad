/*
 * match.c — which activation of the quantized model is which tensor of the float model.
 *
 * Pairs of QuantizeLinear and DequantizeLinear are named as the reference's
 * create_activation_matching names them: X and X_DequantizeLinear_Output (or ..._Output_1),
 * X_QuantizeLinear_Input and X; other pairs by the tensor that goes in. Integer operators have no
 * pairs: there the integer tensor itself is dequantized with the scale its operator gives it.
 */
#include "debug/debug.h"

#include "onnx/attr.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"

void oq_debug_init(oq_debug *d, onq_env *env, oq_model *flt, oq_model *quantized) {
    assert(flt != NULL && quantized != NULL);
    *d = (oq_debug){.env = env,
                    .flt = flt,
                    .quantized = quantized,
                    .cpu_saturates = oq_debug_sums_saturate_here()};
    oq_arena_init(&d->arena, &env->alloc);
}

void oq_debug_release(oq_debug *d) {
    oq_arena_release(&d->arena);
    *d = (oq_debug){0};
}

bool oq_debug_limits(oq_dtype t, double *lo, double *hi) {
    const oq_dtype_info *info = oq_dtype_find(t);
    if (info == NULL || info->bits == 0 || info->bits > 32)
        return false;
    if (info->cls == OQ_CLASS_UINT) {
        *lo = 0;
        *hi = ldexp(1, (int)info->bits) - 1;
    } else if (info->cls == OQ_CLASS_INT) {
        *lo = -ldexp(1, (int)info->bits - 1);
        *hi = ldexp(1, (int)info->bits - 1) - 1;
    } else if (t == OQ_FLOAT8E4M3FN) {
        *lo = -448;
        *hi = 448;
    } else if (t == OQ_FLOAT8E5M2) {
        *lo = -57344;
        *hi = 57344;
    } else {
        return false;
    }
    return true;
}

onq_code oq_debug_leave(oq_debug *d, oq_str name, bool weight, const char *why, onq_error *err) {
    assert(why != NULL);
    const size_t n = d->unmatched.n; /* what several rows of one node say is said once */
    for (size_t i = n > 8 ? n - 8 : 0; i < n; i++)
        if (d->unmatched.v[i].why == why && oq_str_eq(d->unmatched.v[i].name, name))
            return ONQ_OK;
    return OQ_PUSH(&d->arena, &d->unmatched, (oq_debug_unmatched){name, weight, why})
               ? ONQ_OK
               : oq_fail_nomem(err);
}

/* ---- parameters ---- */

/* Reads scale and zero point of an activation; false when they are not constants or do not fit. */
static onq_code read_params(oq_debug *d, oq_debug_act *a, const oq_node *n, size_t scale_at,
                            size_t zero_at, bool *known, onq_error *err) {
    *known = false;
    oq_tensor *scale = oq_index_init(&d->quantized_index, oq_node_input(n, scale_at));
    oq_tensor *zero = oq_index_init(&d->quantized_index, oq_node_input(n, zero_at));
    if (scale == NULL || !oq_dtype_is_float(scale->data_type.v))
        return ONQ_OK;
    size_t n_scale = 0;
    OQ_TRY(oq_tensor_floats(d->quantized, scale, &d->arena, &a->scale, &n_scale, err));
    a->n_params = n_scale;
    a->zero = OQ_NEW_ARRAY(&d->arena, int32_t, n_scale + 1);
    OQ_TRY_ALLOC(a->zero != NULL, err);
    a->type = (oq_dtype)oq_attr_int(n, "output_dtype", OQ_UINT8);
    if (zero != NULL)
        a->type = (oq_dtype)zero->data_type.v;
    double lo = 0, hi = 0;
    if (n_scale == 0 || !oq_debug_limits(a->type, &lo, &hi))
        return ONQ_OK;
    const oq_dtype_info *info = oq_dtype_find(a->type);
    if (zero != NULL && info->cls != OQ_CLASS_REAL) {
        int64_t *z = NULL;
        size_t n_zero = 0;
        OQ_TRY(oq_tensor_i64s(d->quantized, zero, &d->arena, &z, &n_zero, err));
        for (size_t i = 0; i < n_scale && n_zero > 0; i++)
            a->zero[i] = (int32_t)z[i < n_zero ? i : 0];
    }
    a->axis = oq_attr_int(n, "axis", 1);
    a->q_lo = INFINITY;
    a->q_hi = -INFINITY;
    for (size_t i = 0; i < n_scale; i++) {
        const double s = (double)a->scale[i];
        a->q_lo = fmin(a->q_lo, (lo - a->zero[i]) * s);
        a->q_hi = fmax(a->q_hi, (hi - a->zero[i]) * s);
    }
    *known = n_scale == 1;
    return ONQ_OK;
}

/* ---- pairs ---- */

/* The name the reference gives the pair; by_rule says whether it would. */
static oq_str pair_name(oq_str pre, oq_str post, bool *by_rule) {
    oq_str before = pre, after = post;
    *by_rule = true;
    if (oq_str_cut_end(&before, "_QuantizeLinear_Input") && oq_str_eq(before, post))
        return post;
    if ((oq_str_cut_end(&after, "_DequantizeLinear_Output") ||
         oq_str_cut_end(&after, "_DequantizeLinear_Output_1")) &&
        oq_str_eq(after, pre))
        return pre;
    *by_rule = false;
    return pre;
}

static bool is_real_value(const oq_index *ix, oq_str name) {
    const oq_value *v = oq_index_find(ix, name);
    return v != NULL && (v->producer != OQ_NO_NODE || (v->is_input && v->init == NULL));
}

/* The tensor of the float model: of that name, else at that place. */
static void find_float(const oq_debug *d, const oq_debug_places *p, oq_debug_act *a) {
    oq_str at = a->name;
    if (!is_real_value(&d->float_index, at)) {
        at = p != NULL ? oq_debug_place_of(p, a->pre.p != NULL ? a->pre : a->post)
                       : (oq_str){NULL, 0};
        a->by_place = true;
    }
    if (at.p != NULL && is_real_value(&d->float_index, at))
        a->flt = at;
}

/* True if a node of that operator makes the tensor. */
static bool maker_is(const oq_index *ix, oq_str name, oq_str op) {
    const oq_node *n = oq_index_producer(ix, name);
    return n != NULL && oq_str_eq(n->op_type, op);
}

/* An integer operator takes in the Relu or Clip after it, whose output then has no counterpart of
 * its own: what it makes is to be compared with that. */
static onq_code step_over_clips(oq_debug *d, oq_debug_act *a, onq_error *err) {
    /* So does a pair whose range begins at 0; but in the main graph the reference compares what
     * goes in, and its figure is kept. */
    const bool cuts = a->n_params == 1 && a->q_lo >= 0 && d->quantized_index.parent != NULL;
    const bool absorbs = a->integer && a->pre.p == NULL;
    for (unsigned steps = 0; steps < 4 && (absorbs || cuts); steps++) {
        const oq_value *v = a->flt.p != NULL ? oq_index_find(&d->float_index, a->flt) : NULL;
        if (v == NULL || v->uses.n != 1 || v->is_output || v->uses.v[0].slot != 0)
            break;
        const oq_node *clip = d->float_index.graph->node.v[v->uses.v[0].node];
        if (!oq_op_traits_of(clip->op_type)->clips || clip->output.n == 0)
            break;
        const oq_str out = clip->output.v[0];
        const oq_str quantized = oq_str_cat(&d->arena, out, OQ_S("_quantized"));
        OQ_TRY_ALLOC(quantized.p != NULL, err);
        if (!cuts && (maker_is(&d->quantized_index, out, clip->op_type) ||
                      is_real_value(&d->quantized_index, quantized)))
            break;
        a->flt = out;
        a->by_place = true;
    }
    return ONQ_OK;
}

/* The node that makes a tensor of the float model, or of the quantized one; the first that reads an
 * input. */
static oq_str node_of(const oq_index *ix, oq_str name) {
    const oq_value *v = name.p != NULL ? oq_index_find(ix, name) : NULL;
    if (v == NULL)
        return OQ_S("");
    if (v->producer != OQ_NO_NODE)
        return oq_node_label(ix->graph->node.v[v->producer]);
    return v->uses.n > 0 ? oq_node_label(ix->graph->node.v[v->uses.v[0].node]) : OQ_S("");
}

/* From where on values are a mask's: one that is far below all others is where the range begins.
 * Values beyond 1e30 are one whatever the range. */
static void set_mask(oq_debug_act *a) {
    a->mask_likely = a->n_params == 1 && a->q_lo <= -1e3 && a->q_lo < -100 * fmax(a->q_hi, 1);
    a->mask_below = (float)fmax(-OQ_DEBUG_HUGE, a->mask_likely ? 0.9 * a->q_lo : -INFINITY);
}

static onq_code add_act(oq_debug *d, oq_map *names, const oq_debug_places *p, oq_debug_act *a,
                        onq_error *err) {
    a->lo = INFINITY;
    a->hi = -INFINITY;
    set_mask(a);
    a->always = d->quantized_index.parent == NULL;
    find_float(d, p, a);
    OQ_TRY(step_over_clips(d, a, err));
    a->node = a->flt.p != NULL ? node_of(&d->float_index, a->flt)
                               : node_of(&d->quantized_index, a->pre.p != NULL ? a->pre : a->post);
    if (a->flt.p == NULL) {
        OQ_TRY(oq_debug_leave(d, a->name, false,
                              "the float model has no tensor of that name or at that place", err));
        if (a->pre.p == NULL)
            return ONQ_OK;
    }
    if (!oq_map_put(names, a->name, (uint32_t)d->acts.n) || !OQ_PUSH(&d->arena, &d->acts, *a))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static oq_str maker_op(const oq_index *ix, oq_str name) {
    const oq_node *n = oq_index_producer(ix, name);
    return n != NULL ? n->op_type : OQ_S("input");
}

static onq_code match_pair(oq_debug *d, oq_map *names, const oq_debug_places *p, uint32_t i,
                           bool ruled, onq_error *err) {
    const oq_index *ix = &d->quantized_index;
    const oq_node *dq = ix->graph->node.v[i];
    if (!oq_node_is_dequantize(dq) || dq->input.n < 2 || dq->output.n < 1)
        return ONQ_OK;
    const oq_node *q = oq_index_producer(ix, dq->input.v[0]);
    if (!oq_node_is_quantize(q) || q->input.n < 2)
        return ONQ_OK;
    oq_debug_act a = {.pre = q->input.v[0], .post = dq->output.v[0], .position = i};
    bool by_rule = false, known = false;
    a.name = pair_name(a.pre, a.post, &by_rule);
    if (by_rule != ruled || !is_real_value(ix, a.pre) || oq_map_has(names, a.name))
        return ONQ_OK;
    a.op = maker_op(ix, a.pre);
    OQ_TRY(read_params(d, &a, q, 1, 2, &known, err));
    if (!known)
        a.n_params = 0;
    const oq_tensor *scale = oq_index_init(ix, q->input.v[1]);
    a.plain_pair = known && oq_dtype_find(a.type)->cls != OQ_CLASS_REAL && scale != NULL &&
                   scale->data_type.v == OQ_FLOAT && q->input.n == dq->input.n &&
                   oq_str_eq(q->input.v[1], dq->input.v[1]) &&
                   (q->input.n < 3 || oq_str_eq(q->input.v[2], dq->input.v[2]));
    return add_act(d, names, p, &a, err);
}

/* ---- integer tensors ---- */

/* Where an operator keeps the scale and zero point of its output; -1: those of input 0. */
typedef struct out_row {
    const char *op;
    int scale, zero;
} out_row;

static const out_row of_quantize = {NULL, 1, 2};

static const out_row out_rows[] = {
    {"QLinearConv", 6, 7},
    {"QLinearMatMul", 6, 7},
    {"QLinearAdd", 6, 7},
    {"QLinearMul", 6, 7},
    {"QGemm", 7, 8},
    {"QLinearSigmoid", 3, 4},
    {"QLinearLeakyRelu", 3, 4},
    {"QLinearSoftmax", 3, 4},
    {"QLinearAveragePool", 3, 4},
    {"QLinearGlobalAveragePool", 3, 4},
    {"QLinearReduceMean", 3, 4},
    {"QLinearConcat", 0, 1},
    {"QLinearWhere", 7, 8},
    {"MaxPool", -1, -1},
    {"Reshape", -1, -1},
    {"Transpose", -1, -1},
    {"Squeeze", -1, -1},
    {"Unsqueeze", -1, -1},
    {"Resize", -1, -1},
    {"Pad", -1, -1},
    {"Split", -1, -1},
    {"Flatten", -1, -1},
};

static const out_row *out_row_of(const oq_node *n) {
    for (size_t i = 0; i < OQ_COUNT(out_rows); i++)
        if (oq_str_is(n->op_type, out_rows[i].op))
            return &out_rows[i];
    return oq_node_is_quantize(n) ? &of_quantize : NULL;
}

/* The node whose parameters hold for `name`, going back through operators that only move
 * values. */
static const oq_node *params_node(const oq_index *ix, oq_str name, const out_row **row) {
    for (unsigned steps = 0; steps < 64; steps++) {
        const oq_node *n = oq_index_producer(ix, name);
        *row = n != NULL ? out_row_of(n) : NULL;
        if (*row == NULL || (*row)->scale >= 0 || n->input.n == 0)
            return *row != NULL && (*row)->scale >= 0 ? n : NULL;
        name = n->input.v[0];
    }
    return NULL;
}

static bool has_pair(const oq_index *ix, const oq_node *q) {
    const oq_value *v = oq_index_find(ix, q->output.v[0]);
    for (size_t i = 0; v != NULL && i < v->uses.n; i++)
        if (oq_node_is_dequantize(ix->graph->node.v[v->uses.v[i].node]))
            return true;
    return false;
}

static onq_code match_integer(oq_debug *d, oq_map *names, const oq_debug_places *p, uint32_t i,
                              onq_error *err) {
    const oq_index *ix = &d->quantized_index;
    const oq_node *n = ix->graph->node.v[i];
    const out_row *row = out_row_of(n);
    if (row == NULL || n->output.n < 1 || n->output.v[0].n == 0)
        return ONQ_OK;
    const bool is_q = oq_node_is_quantize(n);
    if (is_q && (n->input.n < 2 || has_pair(ix, n) || !is_real_value(ix, n->input.v[0])))
        return ONQ_OK;
    const oq_node *from = params_node(ix, n->output.v[0], &row);
    if (from == NULL)
        return ONQ_OK;
    oq_debug_act a = {.post = n->output.v[0], .integer = true, .position = i, .op = n->op_type};
    a.name = a.post;
    (void)oq_str_cut_end(&a.name, "_quantized");
    if (is_q) {
        a.pre = a.name = n->input.v[0];
        a.op = maker_op(ix, a.pre);
    }
    bool known = false;
    if (oq_map_has(names, a.name))
        return ONQ_OK;
    OQ_TRY(read_params(d, &a, from, (size_t)row->scale, (size_t)row->zero, &known, err));
    if (!known)
        return ONQ_OK;
    return add_act(d, names, p, &a, err);
}

/* ---- all ---- */

/* Everything of the two graphs that the indices are about. */
static onq_code match_graph(oq_debug *d, void *ctx, uint32_t holder, onq_error *err) {
    oq_debug_places *p = NULL;
    oq_map *names = ctx;
    (void)holder;
    OQ_TRY(oq_debug_places_build(d, &p, err));
    OQ_TRY(oq_debug_match_weights(d, p, err));
    const size_t n = d->quantized_index.graph->node.n;
    for (uint32_t i = 0; i < n; i++)
        OQ_TRY(match_pair(d, names, p, i, true, err));
    for (uint32_t i = 0; i < n; i++)
        OQ_TRY(match_pair(d, names, p, i, false, err));
    for (uint32_t i = 0; i < n; i++)
        OQ_TRY(match_integer(d, names, p, i, err));
    return ONQ_OK;
}

typedef struct visiting {
    oq_debug_graph_fn fn;
    void *ctx;
    uint32_t holder;
    size_t depth;
} visiting;

static onq_code visit_inner(oq_debug *d, const visiting *v, onq_error *err);

/* The bodies of an If, Loop or Scan, each with the one of the same attribute in the float model. */
static onq_code visit_bodies(oq_debug *d, const visiting *v, const oq_node *quantized,
                             const oq_node *flt, onq_error *err) {
    oq_index *around = OQ_NEW_ARRAY(&d->arena, oq_index, 2);
    onq_code rc = ONQ_OK;
    OQ_TRY_ALLOC(around != NULL, err);
    around[0] = d->quantized_index;
    around[1] = d->float_index;
    for (size_t k = 0; rc == ONQ_OK && k < quantized->attribute.n; k++) {
        const oq_attribute *a = quantized->attribute.v[k];
        const char *name = oq_str_cstr(&d->arena, a->name);
        const oq_attribute *b = name != NULL ? oq_attr_find(flt, name) : NULL;
        if (a->g == NULL || b == NULL || b->g == NULL)
            continue;
        rc = oq_index_build(&d->quantized_index, &d->arena, a->g, &around[0], err);
        if (rc == ONQ_OK)
            rc = oq_index_build(&d->float_index, &d->arena, b->g, &around[1], err);
        if (rc == ONQ_OK)
            rc = v->fn(d, v->ctx, v->holder, err);
        if (rc == ONQ_OK)
            rc = visit_inner(d, v, err);
        d->quantized_index = around[0];
        d->float_index = around[1];
    }
    return rc;
}

static onq_code visit_inner(oq_debug *d, const visiting *v, onq_error *err) {
    const oq_graph *g = d->quantized_index.graph;
    if (v->depth >= OQ_MAX_GRAPH_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "graphs are nested too deeply");
    for (uint32_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        const visiting in = {v->fn, v->ctx, v->depth == 0 ? i : v->holder, v->depth + 1};
        oq_graph_cursor at = {0};
        const oq_node *flt =
            n->output.n > 0 ? oq_index_producer(&d->float_index, n->output.v[0]) : NULL;
        if (flt != NULL && oq_node_next_graph(n, &at) != NULL)
            OQ_TRY(visit_bodies(d, &in, n, flt, err));
    }
    return ONQ_OK;
}

onq_code oq_debug_each_graph(oq_debug *d, oq_debug_graph_fn fn, void *ctx, onq_error *err) {
    const visiting v = {fn, ctx, OQ_NO_NODE, 0};
    OQ_TRY(fn(d, ctx, OQ_NO_NODE, err));
    return visit_inner(d, &v, err);
}

onq_code oq_debug_match(oq_debug *d, onq_error *err) {
    assert(d->weights.n == 0 && d->acts.n == 0 && "matched once");
    oq_map names;
    oq_map_init(&names, &d->arena);
    OQ_TRY(oq_index_build(&d->float_index, &d->arena, d->flt->proto->graph, NULL, err));
    OQ_TRY(oq_index_build(&d->quantized_index, &d->arena, d->quantized->proto->graph, NULL, err));
    return oq_debug_each_graph(d, match_graph, &names, err);
}
