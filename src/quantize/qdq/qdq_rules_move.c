/*
 * qdq_rules_move.c — the rules of operators that move values: their outputs have the parameters of
 * their input.
 */
#include "onnx/attr.h"
#include "quantize/qdq/qdq_rule.h"

/* Operators that move values and change none: Reshape, Transpose, Slice ... The output has the
 * parameters of the input, so nothing is lost. They are quantized where their input is already, or
 * always with ForceQuantizeNoInputCheck (QDQDirect8BitOp). */
onq_code oq_qdq_rule_direct(oq_qdq *q, uint32_t node, onq_error *err) {
    const uint32_t in = oq_qdq_input(q, node, 0), out = oq_qdq_output(q, node, 0);
    const bool off = oq_qdq_output_is_off(q, node);
    if (oq_qdq_config(q)->force_quantize_no_input_check) {
        OQ_TRY(oq_qdq_activation(q, in, err));
        return off ? ONQ_OK : oq_qdq_same_as(q, out, in, node, err);
    }
    if (oq_qdq_is_marked(q, in) && !off)
        return oq_qdq_same_as(q, out, in, node, err);
    oq_qdq_leave(q, off ? "output excluded by operator type" : "input is not quantized");
    return ONQ_OK;
}

/* As Reshape, but the 8-bit kernel came with opset 12 and has no float 8. */
onq_code oq_qdq_rule_maxpool(oq_qdq *q, uint32_t node, onq_error *err) {
    if (oq_qdq_opset(q) < 12) {
        oq_qdq_leave(q, "MaxPool takes 8-bit values from opset 12 on");
        return ONQ_OK;
    }
    if (oq_qdq_config(q)->activation_type == OQ_FLOAT8E4M3FN) {
        oq_qdq_leave(q, "MaxPool has no float 8");
        return ONQ_OK;
    }
    return oq_qdq_rule_direct(q, node, err);
}

/* As Reshape, from opset 11 on. */
onq_code oq_qdq_rule_resize(oq_qdq *q, uint32_t node, onq_error *err) {
    if (oq_qdq_opset(q) < 11) {
        oq_qdq_leave(q, "Resize takes 8-bit values from opset 11 on");
        return ONQ_OK;
    }
    return oq_qdq_rule_direct(q, node, err);
}

/* Gather and GatherElements: the output has the parameters of the table it reads. */
onq_code oq_qdq_rule_gather(oq_qdq *q, uint32_t node, onq_error *err) {
    const uint32_t in = oq_qdq_input(q, node, 0), out = oq_qdq_output(q, node, 0);
    if (oq_qdq_is_float_init(q, in) || oq_qdq_config(q)->force_quantize_no_input_check) {
        OQ_TRY(oq_qdq_activation(q, in, err));
        return oq_qdq_same_as(q, out, in, node, err);
    }
    if (oq_qdq_is_marked(q, in))
        return oq_qdq_same_as(q, out, in, node, err);
    oq_qdq_leave(q, "input is not quantized");
    return ONQ_OK;
}

/* All outputs have the parameters of the input. */
onq_code oq_qdq_rule_split(oq_qdq *q, uint32_t node, onq_error *err) {
    const oq_node *n = oq_qdq_node_at(q, node);
    const uint32_t in = oq_qdq_input(q, node, 0);
    if (!oq_qdq_is_marked(q, in))
        OQ_TRY(oq_qdq_activation(q, in, err));
    if (oq_qdq_output_is_off(q, node))
        return ONQ_OK;
    for (size_t i = 0; i < n->output.n; i++)
        OQ_TRY(oq_qdq_same_as(q, oq_qdq_output(q, node, i), in, node, err));
    return ONQ_OK;
}

/* True if the padding value is known and 0. */
static onq_code pads_with_zero(oq_qdq *q, uint32_t node, bool *out, onq_error *err) {
    const oq_node *n = oq_qdq_node_at(q, node);
    /* The reference wants a type that shape inference gave. */
    const int32_t type = oq_qdq_inferred_type(q, oq_qdq_input(q, node, 0));
    const uint32_t value = oq_qdq_input(q, node, 2);
    *out = type == OQ_FLOAT || type == OQ_FLOAT16;
    if (*out && oq_qdq_opset(q) < 11)
        *out = oq_attr_float(n, "value", 0.0f) == 0.0f;
    else if (*out && value != OQ_NO_TENSOR)
        return oq_qdq_is_zero(q, value, out, err);
    return ONQ_OK;
}

/* With zeros, or with values that the input has, the output keeps its parameters. */
onq_code oq_qdq_rule_pad(oq_qdq *q, uint32_t node, onq_error *err) {
    const oq_node *n = oq_qdq_node_at(q, node);
    const uint32_t in = oq_qdq_input(q, node, 0), out = oq_qdq_output(q, node, 0);
    for (size_t i = 0; i < n->input.n; i++)
        OQ_TRY(oq_qdq_activation(q, oq_qdq_input(q, node, i), err));
    if (oq_qdq_output_is_off(q, node))
        return ONQ_OK;
    const oq_str mode = oq_attr_str(n, "mode", "constant");
    bool same = oq_str_is(mode, "reflect") || oq_str_is(mode, "edge") || oq_str_is(mode, "wrap");
    if (oq_str_is(mode, "constant"))
        OQ_TRY(pads_with_zero(q, node, &same, err));
    return same ? oq_qdq_same_as(q, out, in, node, err) : oq_qdq_activation(q, out, err);
}
