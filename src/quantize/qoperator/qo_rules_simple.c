/*
 * qo_rules_simple.c — operators with a QLinear twin that takes quantized tensors in and gives one
 * out.
 */
#include "quantize/qoperator/qo_rule.h"

static onq_code not_float(oq_qo *q, oq_node *n, onq_error *err) {
    return oq_qo_leave(q, n, "its input is not float", err);
}

onq_code oq_qo_rule_argmax(oq_qo *q, oq_node *n, onq_error *err) {
    if (!oq_qo_is_float(q, n->input.v[0]))
        return not_float(q, n, err);
    const oq_qo_value *in = oq_qo_value_in_path(q, n->input.v[0]);
    if (in != NULL)
        return oq_qo_emit_moved(q, n, in, NULL, err);
    oq_qo_say(q, "its input is not quantized");
    return oq_qo_emit(q, n, err);
}

onq_code oq_qo_rule_binary(oq_qo *q, oq_node *n, onq_error *err) {
    if (!oq_qo_is_float(q, n->input.v[0]))
        return not_float(q, n, err);
    return oq_qo_qlinear(q, n, 2, err);
}

static const char other_kernel[] = "ONNX Runtime's kernel for it computes something else";

onq_code oq_qo_rule_pool(oq_qo *q, oq_node *n, onq_error *err) {
    if (!oq_qo_is_float(q, n->input.v[0]))
        return not_float(q, n, err);
    const oq_kernel_need need = oq_qo_kernel_need(q, n);
    if (need == OQ_KERNEL_FLOAT)
        return oq_qo_leave(q, n, other_kernel, err);
    if (need != OQ_KERNEL_UNPADDED)
        return oq_qo_qlinear(q, n, 1, err);
    oq_node *unpadded = oq_qo_copy(q, n);
    if (unpadded == NULL ||
        !oq_attr_set_int(oq_qo_arena(q), unpadded, OQ_S("count_include_pad"), 0))
        return oq_fail_nomem(err);
    return oq_qo_qlinear(q, unpadded, 1, err);
}

/* QLinearSoftmax has the meaning of the opset that it names, but the axis that it takes where none
 * is given is that of opset 13: the last one. Before it was the second. */
static onq_code say_opset(oq_qo *q, const oq_node *n, oq_node *made, onq_error *err) {
    oq_arena *a = oq_qo_arena(q);
    const bool second_is_last = oq_qo_rank(q, n->input.v[0]) == 2;
    if (oq_qo_opset(q) < 13 && oq_attr_find(n, "axis") == NULL && !second_is_last &&
        !oq_attr_set_int(a, made, OQ_S("axis"), 1))
        return oq_fail_nomem(err);
    return oq_attr_set_int(a, made, OQ_S("opset"), oq_qo_opset(q)) ? ONQ_OK : oq_fail_nomem(err);
}

/* A QLinear operator of one input whose output has fixed parameters. */
static onq_code fixed_output(oq_qo *q, oq_node *n, const char *op, float scale, int32_t zero,
                             onq_error *err) {
    oq_qo_value *in = NULL, *out = NULL;
    if (!oq_qo_can(q, n, 0, &oq_qo_as_activation))
        return oq_qo_leave(q, n, NULL, err);
    if (!oq_qo_has_params(q, n->output.v[0]))
        return oq_qo_leave(q, n, oq_qo_why_no_params(q, n), err);
    oq_node *made = oq_qo_node_new(q, n, op, true);
    OQ_TRY_ALLOC(made != NULL, err);
    if (oq_str_is(n->op_type, "Softmax"))
        OQ_TRY(say_opset(q, n, made, err));
    const oq_qo_value fixed = {.param = {scale, zero}, .type = oq_qo_config(q)->activation_type};
    if (oq_qo_trained_otherwise(q, n->output.v[0], &fixed))
        return oq_qo_leave(q, n, "its output was trained with other parameters", err);
    OQ_TRY(oq_qo_output_fixed(q, n, scale, zero, &out, err));
    OQ_TRY(oq_qo_input(q, n, 0, &oq_qo_as_activation, &in, err));
    if (!oq_qo_add_inputs(q, made, in) || !oq_qo_add_params(q, made, out) ||
        !oq_node_add_output(oq_qo_arena(q), made, out->q))
        return oq_fail_nomem(err);
    return oq_qo_emit(q, made, err);
}

onq_code oq_qo_rule_softmax(oq_qo *q, oq_node *n, onq_error *err) {
    if (!oq_qo_is_float(q, n->input.v[0]))
        return not_float(q, n, err);
    /* The output is between 0 and 1 whatever the data. */
    const bool is_unsigned = oq_qo_config(q)->activation_type == OQ_UINT8;
    if (is_unsigned && oq_qo_kernel_need(q, n) == OQ_KERNEL_FLOAT)
        return oq_qo_leave(q, n, other_kernel, err);
    return fixed_output(q, n, "QLinearSoftmax", 1.0f / 256.0f, is_unsigned ? 0 : -128, err);
}

/* True if the quantized input holds nothing that the Relu or Clip would clip. This is so where the
 * range of its input was taken from its output (adjust_tensor_ranges), and not where the input has
 * other readers, or shares the parameters of a tensor before it. */
static bool clips_by_itself(oq_qo *q, const oq_node *n, const oq_qo_value *in) {
    oq_bounds bounds;
    return in->has_param && oq_clip_bounds(oq_qo_model(q), oq_qo_index(q), n, &bounds) &&
           oq_bounds_hold(bounds, in->type, in->param, OQ_STEPS_CALIBRATED);
}

onq_code oq_qo_rule_activation(oq_qo *q, oq_node *n, onq_error *err) {
    if (!oq_qo_is_float(q, n->input.v[0]))
        return not_float(q, n, err);
    if (oq_op_traits_of(n->op_type)->clips) {
        oq_qo_value *in = oq_qo_value_of(q, n->input.v[0]);
        const oq_given *given = oq_qo_given(q);
        const oq_plan_node *row = given != NULL ? oq_given_node(given, n) : NULL;
        if (row != NULL && row->fate == OQ_FATE_QUANTIZED)
            return oq_qo_leave(q, n, "the plan keeps it", err);
        if (in == NULL || oq_qo_config(q)->activation_symmetric)
            return oq_qo_leave(
                q, n, in == NULL ? "its input is not quantized" : "activations are symmetric", err);
        const oq_tensor_override *o = oq_qo_override(q, n->output.v[0]);
        if (oq_qo_config(q)->trained && (o == NULL || o->channels.v[0].keep_clip))
            return oq_qo_leave(q, n, "the trained range does not clip as it does", err);
        if (!oq_qo_config(q)->trained && !clips_by_itself(q, n, in))
            return oq_qo_leave(q, n, "the range of its input does not clip as it does", err);
        /* The range of the node before it was taken from this output: it clips by itself. */
        oq_qo_say_removed(q);
        return oq_qo_alias(q, n->output.v[0], in, err);
    }
    if (oq_str_is(n->op_type, "Sigmoid") && oq_qo_config(q)->sigmoid_nnapi)
        return fixed_output(q, n, "QLinearSigmoid", 1.0f / 256.0f, 0, err);
    return oq_qo_qlinear(q, n, 1, err);
}

onq_code oq_qo_rule_gavgpool(oq_qo *q, oq_node *n, onq_error *err) {
    oq_arena *a = oq_qo_arena(q);
    if (!oq_qo_is_float(q, n->input.v[0]))
        return not_float(q, n, err);
    const bool trained = oq_qo_config(q)->trained;
    oq_qo_value *in = oq_qo_value_of(q, n->input.v[0]), *out = NULL;
    if (trained && !oq_qo_has_params(q, n->output.v[0]))
        return oq_qo_leave(q, n, "its output has no trained parameters", err);
    if (in == NULL && trained && oq_qo_has_params(q, n->input.v[0]))
        OQ_TRY(oq_qo_input(q, n, 0, &oq_qo_as_activation, &in, err));
    if (in == NULL)
        return oq_qo_leave(q, n, "its input is not quantized", err);
    if (oq_qo_has_params(q, n->output.v[0]))
        OQ_TRY(oq_qo_output(q, n, &out, err));
    else
        OQ_TRY(oq_qo_output_like(q, n->output.v[0], "_quantized", in, &out, err));
    oq_node *made = oq_qo_node_new(q, n, "QLinearGlobalAveragePool", true);
    if (made == NULL || !oq_attr_set_int(a, made, OQ_S("channels_last"), 0) ||
        !oq_qo_add_inputs(q, made, in) || !oq_qo_add_params(q, made, out) ||
        !oq_node_add_output(a, made, out->q))
        return oq_fail_nomem(err);
    return oq_qo_emit(q, made, err);
}

onq_code oq_qo_rule_concat(oq_qo *q, oq_node *n, onq_error *err) {
    oq_qo_value *in = NULL, *out = NULL;
    if (!oq_qo_is_float(q, n->input.v[0]))
        return not_float(q, n, err);
    bool can = false;
    OQ_TRY(oq_qo_can_all(q, n, n->input.n, &can, err));
    if (!can)
        return oq_qo_leave(q, n, NULL, err);
    oq_node *made = oq_qo_node_new(q, n, "QLinearConcat", true);
    OQ_TRY_ALLOC(made != NULL, err);
    OQ_TRY(oq_qo_output(q, n, &out, err));
    if (!oq_qo_add_params(q, made, out) || !oq_node_add_output(oq_qo_arena(q), made, out->q))
        return oq_fail_nomem(err);
    for (size_t i = 0; i < n->input.n; i++) {
        OQ_TRY(oq_qo_input(q, n, i, &oq_qo_as_activation, &in, err));
        OQ_TRY_ALLOC(oq_qo_add_inputs(q, made, in), err);
    }
    return oq_qo_emit(q, made, err);
}

onq_code oq_qo_rule_where(oq_qo *q, oq_node *n, onq_error *err) {
    oq_arena *a = oq_qo_arena(q);
    oq_qo_value *x = NULL, *y = NULL, *out = NULL;
    if (!oq_qo_config(q)->force_quantize_no_input_check) {
        oq_qo_say(q, "only with ForceQuantizeNoInputCheck");
        /* The reference forgets to dequantize the inputs: where nothing else does, it cannot sort
         * the nodes. */
        return oq_qo_config(q)->as_reference ? oq_qo_emit(q, n, err) : oq_qo_leave(q, n, NULL, err);
    }
    if (n->input.n < 3 || !oq_qo_is_float(q, n->input.v[1]) || !oq_qo_is_float(q, n->input.v[2]))
        return not_float(q, n, err);
    if (!oq_qo_can(q, n, 1, &oq_qo_as_activation) || !oq_qo_can(q, n, 2, &oq_qo_as_activation))
        return oq_qo_leave(q, n, NULL, err);
    if (!oq_qo_has_params(q, n->output.v[0]))
        return oq_qo_leave(q, n, oq_qo_why_no_params(q, n), err);
    /* A condition that is no bool will be refused, and not for a name that is gone. */
    OQ_TRY(oq_qo_dequantize(q, n->input.v[0], err));
    oq_node *made = oq_qo_node_new(q, n, "QLinearWhere", true);
    OQ_TRY_ALLOC(made != NULL, err);
    OQ_TRY(oq_qo_output(q, n, &out, err));
    OQ_TRY(oq_qo_input(q, n, 1, &oq_qo_as_activation, &x, err));
    OQ_TRY(oq_qo_input(q, n, 2, &oq_qo_as_activation, &y, err));
    if (!oq_node_add_input(a, made, n->input.v[0]) || !oq_qo_add_inputs(q, made, x) ||
        !oq_qo_add_inputs(q, made, y) || !oq_qo_add_params(q, made, out) ||
        !oq_node_add_output(a, made, out->q))
        return oq_fail_nomem(err);
    return oq_qo_emit(q, made, err);
}
