/*
 * qoperator_trained.c — what differs when parameters come from training (trained.h).
 *
 * Integer operators follow quantize_qat of ONNX Runtime 1.8.1: the bias of a Conv is made an
 * integer in the graph (by scale and Floor) and added to the sums. Weights per channel, which that
 * tool did not have there, are multiplied by one scale for each channel after ConvInteger.
 */
#include "quantize/qoperator/qo_state.h"
#include "quantize/rules.h"

/* ---- questions ---- */

/* A weight that was turned for MatMul is known by the name that it had. */
static const oq_tensor *before_turn(const oq_qo_shared *sh, oq_str name) {
    for (size_t i = 0; i < sh->turned.n; i++)
        if (oq_str_eq(sh->turned.v[i].tensor->name, name))
            return sh->turned.v[i].origin;
    return NULL;
}

/* The parameters that a weight was trained with, or NULL. */
static const oq_tensor_override *trained_weight(const oq_qo *q, oq_str name) {
    const oq_tensor *origin = before_turn(q->sh, name);
    if (!oq_qo_config(q)->trained || oq_qo_init_in_path(q, name) == NULL)
        return NULL;
    return oq_overrides_find(q->sh->job.overrides, origin != NULL ? origin->name : name);
}

bool oq_qo_trained_axis(const oq_qo *q, oq_str name, int64_t *axis) {
    const oq_tensor_override *t = trained_weight(q, name);
    if (t == NULL || !oq_override_is_channel(t))
        return false;
    *axis = t->channels.v[0].axis;
    if (before_turn(q->sh, name) != NULL)
        *axis = 1 - *axis;
    return true;
}

bool oq_qo_trained_fits(const oq_qo *q, oq_str name, int64_t axis) {
    int64_t own = 0;
    return !oq_qo_trained_axis(q, name, &own) || own == axis;
}

bool oq_qo_trained_otherwise(const oq_qo *q, oq_str name, const oq_qo_value *v) {
    if (!oq_qo_config(q)->trained)
        return false;
    const oq_override *o = oq_overrides_tensor(q->sh->job.overrides, name);
    const oq_qo_weight *w = v->weight;
    const float scale = w != NULL ? w->params.scale[0] : v->param.scale;
    const int64_t zero = w != NULL ? w->params.zero[0] : v->param.zero_point;
    return o != NULL && (o->scale != scale || o->zero != zero || o->type != v->type);
}

bool oq_qo_trained_gemm(const oq_qo_shared *sh, const oq_node *n) {
    const oq_qo_job *job = &sh->job;
    if (oq_overrides_find(job->overrides, n->input.v[1]) == NULL ||
        oq_overrides_find(job->overrides, n->input.v[0]) == NULL ||
        !(oq_pick_is_empty(&job->run->config->op_types) ||
          oq_pick_has(&job->run->config->op_types, OQ_S("MatMul")) ||
          oq_pick_has(&job->run->config->op_types, OQ_S("Gemm"))))
        return false;
    if (!oq_pick_is_empty(&job->run->config->nodes_to_quantize) &&
        !oq_pick_has(&job->run->config->nodes_to_quantize, n->name))
        return false;
    return sh->mode == OQ_QMODE_INTEGER || oq_ranges_find(job->ranges, n->output.v[0]) == NULL;
}

/* ---- nodes that stay float ---- */

static bool left_by_name(const oq_qo *q, const oq_node *n) {
    oq_qconfig *c = q->sh->job.run->config;
    return oq_pick_has(&c->nodes_to_exclude, n->name) ||
           (!oq_pick_is_empty(&c->nodes_to_quantize) &&
            !oq_pick_has(&c->nodes_to_quantize, n->name));
}

/* Input `slot`, which exists as float, is read as training had it: rounded. `n` is a copy. */
static onq_code round_input(oq_qo *q, oq_node *n, size_t slot, onq_error *err) {
    oq_arena *a = oq_qo_arena(q);
    oq_qo_value *v = NULL;
    OQ_TRY(oq_qo_input(q, n, slot, &oq_qo_as_activation, &v, err));
    const oq_str name = oq_fresh_tensor(&q->sh->names, n->input.v[slot], "_dequantized");
    const oq_str node = oq_fresh_node(&q->sh->names, n->input.v[slot], "_DequantizeLinear");
    const oq_str in[3] = {v->q, v->scale, v->zero};
    OQ_TRY_ALLOC(name.p != NULL && node.p != NULL, err);
    OQ_TRY(oq_qo_emit(q, oq_node_make(a, OQ_DEQUANTIZE_LINEAR, node, in, 3, &name, 1), err));
    n->input.v[slot] = name;
    return ONQ_OK;
}

/* An operator of weights that cannot become an integer one keeps the rounding of its activations.
 */
static onq_code round_inputs(oq_qo *q, oq_node **left, onq_error *err) {
    oq_node *const n = *left;
    const bool of_weights = oq_op_traits_of(n->op_type)->product != OQ_NO_PRODUCT;
    bool trained = false;
    for (size_t i = 0; i < n->input.n && i < 2; i++)
        trained |= trained_weight(q, n->input.v[i]) != NULL;
    for (size_t i = 0; of_weights && trained && i < n->input.n && i < 2; i++)
        if (oq_qo_has_params(q, n->input.v[i]) && oq_map_has(&q->made, n->input.v[i])) {
            if (*left == n && (*left = oq_qo_copy(q, n)) == NULL)
                return oq_fail_nomem(err);
            OQ_TRY(round_input(q, *left, i, err));
        }
    return ONQ_OK;
}

onq_code oq_qo_leave_trained(oq_qo *q, oq_node **left, onq_error *err) {
    const oq_qo_how how = {.is_weight = true, .axis = -1};
    if (left_by_name(q, *left))
        return ONQ_OK;
    OQ_TRY(round_inputs(q, left, err));
    const oq_node *n = *left;
    for (size_t i = 0; i < n->input.n; i++) {
        oq_qo_value *v = NULL;
        int64_t axis = 0;
        if (trained_weight(q, n->input.v[i]) == NULL || !oq_qo_is_float_weight(q, n->input.v[i]) ||
            (q->sh->opset < 13 && oq_qo_trained_axis(q, n->input.v[i], &axis)))
            continue;
        OQ_TRY(oq_qo_input(q, n, i, &how, &v, err));
    }
    return ONQ_OK;
}

/* ---- operators without an integer form ---- */

oq_qo_rule oq_qo_trained_rule(const oq_qo *q, const oq_node *n) {
    const oq_op_traits *traits = oq_op_traits_of(n->op_type);
    const oq_qconfig *c = oq_qo_config(q);
    if (!c->trained_all || oq_qo_is_static(q) || !traits->trained_twin ||
        !oq_pick_is_empty(&c->op_types) || left_by_name(q, n) || n->output.n != 1)
        return NULL;
    for (size_t i = 0; i < (traits->clips ? 1 : n->input.n); i++)
        if (!oq_qo_has_params(q, n->input.v[i]) && trained_weight(q, n->input.v[i]) == NULL)
            return NULL;
    return oq_qo_has_params(q, n->output.v[0]) ? oq_rules_of(n->op_type)->qlinear : NULL;
}

/* ---- Conv ---- */

typedef struct conv {
    oq_qo *q;
    oq_node *n;
    oq_qo_value *in, *weight;
    size_t rank;
    oq_str zero, scale; /* of the weight, as ConvInteger and the last Mul take them */
} conv;

static onq_code emit(const conv *c, const char *op, oq_str name, const oq_str *in, size_t n_in,
                     oq_str out, onq_error *err) {
    return oq_qo_emit(c->q, oq_node_make(oq_qo_arena(c->q), op, name, in, n_in, &out, 1), err);
}

static onq_code emit_cast(const conv *c, oq_str name, oq_str in, oq_str out, oq_dtype type,
                          onq_error *err) {
    oq_node *n = oq_node_make(oq_qo_arena(c->q), "Cast", name, &in, 1, &out, 1);
    OQ_TRY_ALLOC(n != NULL && oq_attr_set_int(oq_qo_arena(c->q), n, OQ_S("to"), type), err);
    return oq_qo_emit(c->q, n, err);
}

/* The bias as integers, computed when the model runs. */
static onq_code emit_bias(const conv *c, oq_str *out, onq_error *err) {
    oq_qo *q = c->q;
    const oq_str bias = c->n->input.v[2];
    const oq_str scale = oq_fresh_tensor(&q->sh->names, bias, "_scale");
    const oq_str steps = oq_fresh_tensor(&q->sh->names, bias, "_tmp_quant:0");
    const oq_str whole = oq_fresh_tensor(&q->sh->names, bias, "_quant_rounded:0");
    *out = oq_fresh_tensor(&q->sh->names, bias, "_quantized");
    OQ_TRY_ALLOC(scale.p != NULL && steps.p != NULL && whole.p != NULL && out->p != NULL, err);
    const oq_str scales[2] = {c->in->scale, c->weight->scale}, parts[2] = {bias, scale};
    OQ_TRY(
        emit(c, "Mul", oq_fresh_node(&q->sh->names, bias, "_scale_node"), scales, 2, scale, err));
    OQ_TRY(emit(c, "Div", oq_fresh_node(&q->sh->names, bias, "_tmp_qaunt"), parts, 2, steps, err));
    OQ_TRY(emit(c, "Floor", oq_fresh_node(&q->sh->names, bias, "_quant_rounded"), &steps, 1, whole,
                err));
    return emit_cast(c, oq_fresh_node(&q->sh->names, *out, "_node"), whole, *out, OQ_INT32, err);
}

/* Adds the bias to the sums; *sums becomes the result. */
static onq_code emit_bias_add(const conv *c, oq_str bias, oq_str *sums, onq_error *err) {
    oq_qo *q = c->q;
    const oq_str shape_name = oq_fresh_tensor(&q->sh->names, bias, "_reshape_shape");
    const oq_str reshaped = oq_fresh_tensor(&q->sh->names, c->n->output.v[0], "_reshape");
    const oq_str added = oq_fresh_tensor(&q->sh->names, c->n->output.v[0], "_bias_add");
    oq_tensor *shape = NULL;
    OQ_TRY(oq_tensor_channel_shape(oq_qo_arena(q), shape_name, c->rank, &shape, err));
    OQ_TRY_ALLOC(reshaped.p != NULL && added.p != NULL, err);
    OQ_TRY(oq_qo_add_init(q, shape, err));
    const oq_str in[2] = {bias, shape_name}, sum[2] = {*sums, reshaped};
    OQ_TRY(emit(c, "Reshape", oq_fresh_node(&q->sh->names, bias, "reshape"), in, 2, reshaped, err));
    OQ_TRY(emit(c, "Add", oq_fresh_node(&q->sh->names, bias, "bias_add"), sum, 2, added, err));
    *sums = added;
    return ONQ_OK;
}

/* ConvInteger takes one zero point, and its channels are axis 1 of the result. */
static onq_code spread_channels(conv *c, onq_error *err) {
    oq_qo *q = c->q;
    oq_arena *a = oq_qo_arena(q);
    const oq_qparams *p = &c->weight->weight->params;
    int64_t *dims = OQ_NEW_ARRAY(a, int64_t, c->rank);
    c->zero = oq_fresh_tensor(&q->sh->names, c->weight->zero, "_one");
    c->scale = oq_fresh_tensor(&q->sh->names, c->weight->scale, "_channels");
    OQ_TRY_ALLOC(dims != NULL && c->zero.p != NULL && c->scale.p != NULL, err);
    for (size_t i = 0; i < c->rank; i++)
        dims[i] = i == 0 ? (int64_t)p->n : 1;
    oq_tensor *zero = oq_tensor_new(a, c->zero, c->weight->type, NULL, 0);
    oq_tensor *scale = oq_tensor_new(a, c->scale, c->weight->real, dims, c->rank - 1);
    OQ_TRY_ALLOC(zero != NULL && scale != NULL, err);
    OQ_TRY(oq_tensor_set_typed_i(a, zero, &(int64_t){p->zero[0]}, 1, err));
    OQ_TRY(oq_reals_store(a, scale, p->scale, p->n, err));
    OQ_TRY(oq_qo_add_init(q, zero, err));
    return oq_qo_add_init(q, scale, err);
}

static onq_code emit_conv(conv *c, onq_error *err) {
    oq_qo *q = c->q;
    oq_arena *a = oq_qo_arena(q);
    const oq_str out = c->n->output.v[0];
    const bool has_bias = c->n->input.n > 2 && c->n->input.v[2].n != 0;
    oq_node *made = oq_qo_node_new(q, c->n, "ConvInteger", false);
    oq_str sums = oq_fresh_tensor(&q->sh->names, out, "_output_quantized"), bias = {0};
    OQ_TRY_ALLOC(made != NULL && sums.p != NULL, err);
    if (has_bias)
        OQ_TRY(emit_bias(c, &bias, err));
    c->zero = c->weight->zero;
    c->scale = c->weight->scale;
    if (c->weight->has_axis)
        OQ_TRY(spread_channels(c, err));
    if (!oq_node_add_input(a, made, c->in->q) || !oq_node_add_input(a, made, c->weight->q) ||
        !oq_node_add_input(a, made, c->in->zero) || !oq_node_add_input(a, made, c->zero) ||
        !oq_node_add_output(a, made, sums))
        return oq_fail_nomem(err);
    OQ_TRY(oq_qo_emit(q, made, err));
    if (has_bias)
        OQ_TRY(emit_bias_add(c, bias, &sums, err));
    const oq_str real = oq_fresh_tensor(&q->sh->names, sums, "_cast_output");
    OQ_TRY(emit_cast(c, oq_fresh_node(&q->sh->names, sums, "_cast"), sums, real, OQ_FLOAT, err));
    const oq_str scales[2] = {c->in->scale, c->scale};
    oq_str product = {0};
    OQ_TRY(oq_qo_scales_product(q, made, scales, &product, err));
    const oq_str factors[2] = {real, product};
    const oq_str name = oq_fresh_node_of(&q->sh->names, made, "_output_scale_mul");
    return emit(c, "Mul", name, factors, 2, out, err);
}

/* True if there is one zero point for all channels of the trained weight. */
static bool one_zero(const oq_qo *q, oq_str name) {
    const oq_tensor_override *t = trained_weight(q, name);
    for (size_t i = 1; t != NULL && i < t->channels.n; i++)
        if (t->channels.v[i].zero != t->channels.v[0].zero)
            return false;
    return true;
}

onq_code oq_qo_rule_conv_trained(oq_qo *q, oq_node *n, onq_error *err) {
    /* Conv's weights are not reduced, nor per channel unless trained so, as in quantize_qat. */
    const oq_qo_how how = {.is_weight = true, .axis = -1};
    const oq_tensor *w = oq_qo_init_in_path(q, n->input.v[1]);
    const oq_override *o = oq_overrides_tensor(q->sh->job.overrides, n->input.v[0]);
    oq_tensor_info info = {.rank = w != NULL ? w->dims.n : 0};
    conv c = {.q = q, .n = n};
    int32_t type = 0;
    OQ_TRY(oq_qo_type(q, n->input.v[0], &type, err));
    if (type != OQ_FLOAT)
        return oq_qo_leave(q, n, "its input is not float32", err);
    if (w == NULL)
        oq_shapes_tensor(q->sh->plain, q->graph, n->input.v[1], &info);
    if (info.rank < 3)
        return oq_qo_leave(q, n, "the rank of its weight is not known", err);
    if (!oq_qo_trained_fits(q, n->input.v[1], 0) || !one_zero(q, n->input.v[1]))
        return oq_qo_leave(q, n, "ConvInteger takes one zero point for its weight", err);
    if (oq_qo_is_static(q) && o != NULL && o->type != OQ_UINT8)
        return oq_qo_leave(q, n, "ConvInteger takes uint8 activations only", err);
    if (!oq_qo_can(q, n, 0, &oq_qo_as_activation) || !oq_qo_can(q, n, 1, &how))
        return oq_qo_leave(q, n, NULL, err);
    c.rank = info.rank;
    OQ_TRY(oq_qo_input(q, n, 0, &oq_qo_as_activation, &c.in, err));
    OQ_TRY(oq_qo_input(q, n, 1, &how, &c.weight, err));
    return emit_conv(&c, err);
}
