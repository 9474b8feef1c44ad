/*
 * qo_rules_conv.c — Conv as QLinearConv and as ConvInteger.
 *
 * QLinearConv takes weights per channel (int8 whatever weight_type says, as in the reference);
 * ConvInteger only per tensor. The bias of QLinearConv is an int32 initializer; after ConvInteger
 * it is added in float. A weight that is computed is quantized as it comes, as any activation.
 */
#include "quantize/qoperator/qo_rule.h"

static bool has_bias(const oq_node *n) {
    return n->input.n > 2 && n->input.v[2].n != 0;
}

onq_code oq_qo_rule_conv(oq_qo *q, oq_node *n, onq_error *err) {
    oq_arena *a = oq_qo_arena(q);
    const oq_qconfig *c = oq_qo_config(q);
    const bool channels = c->per_channel && oq_qo_init_in_path(q, n->input.v[1]) != NULL;
    const oq_qo_how how =
        channels ? (oq_qo_how){.is_weight = true,
                               .reduce = true,
                               .per_channel = true,
                               .axis = 0,
                               .type = OQ_INT8}
                 : (oq_qo_how){.is_weight = true, .reduce = c->reduce_range, .axis = -1};
    oq_qo_value *in = NULL, *weight = NULL, *out = NULL;
    if (!oq_qo_is_float(q, n->input.v[0]))
        return oq_qo_leave(q, n, "its input is not float", err);
    if (!oq_qo_can(q, n, 0, &oq_qo_as_activation) || !oq_qo_can(q, n, 1, &how))
        return oq_qo_leave(q, n, NULL, err);
    if (!oq_qo_trained_fits(q, n->input.v[1], 0))
        return oq_qo_leave(q, n, "the channels of its weight lie along another axis", err);
    if (!oq_qo_has_params(q, n->output.v[0]))
        return c->trained ? oq_qo_rule_conv_trained(q, n, err)
                          : oq_qo_leave(q, n, oq_qo_why_no_params(q, n), err);
    if (has_bias(n) && !oq_qo_can_bias(q, n, 1.0f))
        return oq_qo_leave(q, n, NULL, err);
    oq_node *made = oq_qo_node_new(q, n, "QLinearConv", false);
    OQ_TRY_ALLOC(made != NULL, err);
    OQ_TRY(oq_qo_output(q, n, &out, err));
    OQ_TRY(oq_qo_input(q, n, 0, &oq_qo_as_activation, &in, err));
    OQ_TRY(oq_qo_input(q, n, 1, &how, &weight, err));
    if (!oq_qo_add_inputs(q, made, in) || !oq_qo_add_inputs(q, made, weight) ||
        !oq_qo_add_params(q, made, out) || !oq_node_add_output(a, made, out->q))
        return oq_fail_nomem(err);
    if (has_bias(n)) {
        oq_str bias = {0};
        OQ_TRY(oq_qo_bias_tensor(q, n, n->input.v[2], in, weight, 1.0f, &bias, err));
        OQ_TRY_ALLOC(oq_node_add_input(a, made, bias), err);
    }
    return oq_qo_emit(q, made, err);
}

/* The bias, reshaped to [1, C, 1, ...], added to `scaled`. */
static onq_code add_bias(oq_qo *q, const oq_node *n, size_t rank, oq_str scaled, onq_error *err) {
    oq_arena *a = oq_qo_arena(q);
    const oq_str out = n->output.v[0];
    oq_str bias = {0}, result = {0};
    OQ_TRY(oq_qo_wide(q, n->input.v[2], &bias, err));
    OQ_TRY(oq_qo_output_real(q, n, &result, err));
    const oq_str shape_name = oq_fresh_tensor(oq_qo_names(q), out, "_bias_reshape_shape");
    const oq_str reshaped = oq_fresh_tensor(oq_qo_names(q), out, "_bias_reshape_output");
    oq_tensor *shape = NULL;
    OQ_TRY(oq_tensor_channel_shape(a, shape_name, rank, &shape, err));
    OQ_TRY_ALLOC(reshaped.p != NULL, err);
    OQ_TRY(oq_qo_add_init(q, shape, err));
    const oq_str in[2] = {bias, shape_name}, sum[2] = {scaled, reshaped};
    oq_node *reshape = oq_node_make(a, "Reshape", (oq_str){0}, in, 2, &reshaped, 1);
    OQ_TRY(oq_qo_emit(q, reshape, err));
    return oq_qo_emit(
        q,
        oq_node_make(a, "Add", oq_fresh_node(oq_qo_names(q), out, "_bias_add"), sum, 2, &result, 1),
        err);
}

onq_code oq_qo_rule_conv_integer(oq_qo *q, oq_node *n, onq_error *err) {
    const oq_qo_how how = {.is_weight = true, .reduce = oq_qo_config(q)->reduce_range, .axis = -1};
    oq_qo_value *in = NULL, *weight = NULL;
    if (oq_qo_config(q)->trained)
        return oq_qo_rule_conv_trained(q, n, err);
    if (!oq_qo_is_float(q, n->input.v[0]))
        return oq_qo_leave(q, n, "its input is not float", err);
    const oq_tensor *w = oq_qo_init_in_path(q, n->input.v[1]);
    const size_t rank = w != NULL ? w->dims.n : 0;
    if (has_bias(n) && rank == 0)
        return oq_qo_leave(q, n, "the rank of its weight is not known", err);
    if (!oq_qo_can(q, n, 0, &oq_qo_as_activation) || !oq_qo_can(q, n, 1, &how))
        return oq_qo_leave(q, n, NULL, err);
    if (oq_qtype_is_16_or_4bit(oq_qo_config(q)->weight_type))
        return oq_qo_leave(q, n, "ConvInteger takes 8-bit weights only", err);
    oq_node *made = oq_qo_node_new(q, n, "ConvInteger", false);
    oq_str scaled = {0};
    if (has_bias(n))
        scaled = oq_fresh_tensor(oq_qo_names(q), n->output.v[0], "quant_scaled_output");
    else
        OQ_TRY(oq_qo_output_real(q, n, &scaled, err));
    OQ_TRY_ALLOC(made != NULL && scaled.p != NULL, err);
    OQ_TRY(oq_qo_input(q, n, 0, &oq_qo_as_activation, &in, err));
    OQ_TRY(oq_qo_input(q, n, 1, &how, &weight, err));
    OQ_TRY(oq_qo_emit_scaled(q, n, made, in, weight, scaled, err));
    return has_bias(n) ? add_bias(q, n, rank, scaled, err) : ONQ_OK;
}
