/*
 * qdq_rules_move.c — the rules of operators that move values: their outputs have the parameters of
 * their input.
 */
#include "onnx/attr.h"
#include "onnx/tensor.h"
#include "quantize/qdq/qdq.h"
#include "quantize/rules.h"

/* Operators that move values and change none: Reshape, Transpose, Slice ... The output has the
 * parameters of the input, so nothing is lost. They are quantized where their input is already, or
 * always with ForceQuantizeNoInputCheck (QDQDirect8BitOp). */
onq_code oq_qdq_rule_direct(oq_qdq *q, uint32_t node, onq_error *err) {
    const uint32_t in = oq_qdq_input(q, node, 0), out = oq_qdq_output(q, node, 0);
    const bool off = oq_qdq_output_is_off(q, node);
    if (q->config->force_quantize_no_input_check) {
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
    if (q->opset < 12) {
        oq_qdq_leave(q, "MaxPool takes 8-bit values from opset 12 on");
        return ONQ_OK;
    }
    if (q->config->activation_type == OQ_FLOAT8E4M3FN) {
        oq_qdq_leave(q, "MaxPool has no float 8");
        return ONQ_OK;
    }
    return oq_qdq_rule_direct(q, node, err);
}

/* As Reshape, from opset 11 on. */
onq_code oq_qdq_rule_resize(oq_qdq *q, uint32_t node, onq_error *err) {
    if (q->opset < 11) {
        oq_qdq_leave(q, "Resize takes 8-bit values from opset 11 on");
        return ONQ_OK;
    }
    return oq_qdq_rule_direct(q, node, err);
}

/* Gather and GatherElements: the output has the parameters of the table it reads. */
onq_code oq_qdq_rule_gather(oq_qdq *q, uint32_t node, onq_error *err) {
    const uint32_t in = oq_qdq_input(q, node, 0), out = oq_qdq_output(q, node, 0);
    if (oq_qdq_is_float_init(q, in) || q->config->force_quantize_no_input_check) {
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

static bool is_float(int64_t dt) {
    return dt == OQ_FLOAT || dt == OQ_FLOAT16;
}

/* The `value` tensor of the Constant node that makes input `slot`, or its initializer; NULL when
 * neither. */
static oq_tensor *constant_of(const oq_qdq *q, uint32_t tensor) {
    const oq_qdq_tensor *t = oq_qdq_at(q, tensor);
    for (size_t i = 0; i < t->makers.n; i++) {
        oq_tensor *value = oq_node_constant(oq_qdq_node_at(q, t->makers.v[i].node));
        if (value != NULL)
            return value;
    }
    return t->init;
}

/* True if the padding value is known and 0. */
static onq_code pads_with_zero(oq_qdq *q, uint32_t node, bool *out, onq_error *err) {
    const oq_node *n = oq_qdq_node_at(q, node);
    const uint32_t in = oq_qdq_input(q, node, 0);
    *out = false;
    /* The reference wants a type that shape inference gave; an initializer has none. */
    if (in == OQ_NO_TENSOR || (oq_qdq_is_init(q, in) && !oq_qdq_at(q, in)->is_input) ||
        !is_float(oq_qdq_at(q, in)->elem_type))
        return ONQ_OK;
    if (q->opset < 11) {
        *out = oq_attr_float(n, "value", 0.0f) == 0.0f;
        return ONQ_OK;
    }
    const uint32_t value = oq_qdq_input(q, node, 2);
    if (value == OQ_NO_TENSOR) {
        *out = true;
        return ONQ_OK;
    }
    oq_tensor *t = constant_of(q, value);
    float *numbers;
    size_t count;
    if (t == NULL || !is_float(t->data_type.v))
        return ONQ_OK;
    OQ_TRY(oq_tensor_floats(q->model, t, q->arena, &numbers, &count, err));
    *out = count == 1 && numbers[0] == 0.0f;
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
