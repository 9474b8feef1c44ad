/*
 * qdq_rules_product.c — the rules of operators with weights: products and normalizations.
 */
#include "onnx/attr.h"
#include "quantize/qdq/qdq.h"
#include "quantize/rules.h"

/* Conv and ConvTranspose. Weights go per channel when asked (axis 0, or 1 for ConvTranspose); the
 * bias becomes int32 with scale = input scale x weight scale. */
onq_code oq_qdq_rule_conv(oq_qdq *q, uint32_t node, onq_error *err) {
    const oq_node *n = oq_qdq_node_at(q, node);
    const uint32_t in = oq_qdq_input(q, node, 0), weight = oq_qdq_input(q, node, 1);
    bool exceeds;
    OQ_TRY(oq_qdq_bias_exceeds(q, node, &exceeds, err));
    if (exceeds) {
        oq_qdq_leave(q, OQ_WHY_BIAS);
        return ONQ_OK;
    }
    OQ_TRY(oq_qdq_activation(q, in, err));
    if (!oq_qdq_output_is_off(q, node))
        OQ_TRY(oq_qdq_activation(q, oq_qdq_output(q, node, 0), err));
    OQ_TRY(oq_qdq_weight_auto(q, weight, oq_str_is(n->op_type, "Conv") ? 0 : 1, NULL, err));
    if (n->input.n == 3)
        return oq_qdq_bias_tensor(q, node, 2, in, weight, err);
    return ONQ_OK;
}

/* A constant bias becomes int32; beta stays with the node. */
onq_code oq_qdq_rule_gemm(oq_qdq *q, uint32_t node, onq_error *err) {
    const oq_node *n = oq_qdq_node_at(q, node);
    const uint32_t in = oq_qdq_input(q, node, 0), weight = oq_qdq_input(q, node, 1);
    bool exceeds;
    OQ_TRY(oq_qdq_bias_exceeds(q, node, &exceeds, err));
    if (exceeds) {
        oq_qdq_leave(q, OQ_WHY_BIAS);
        return ONQ_OK;
    }
    OQ_TRY(oq_qdq_activation(q, in, err));
    if (!oq_qdq_output_is_off(q, node))
        OQ_TRY(oq_qdq_activation(q, oq_qdq_output(q, node, 0), err));
    OQ_TRY(oq_qdq_weight_auto(q, weight, oq_attr_int(n, "transB", 0) > 0 ? 0 : 1, NULL, err));
    if (n->input.n != 3)
        return ONQ_OK;
    if (!oq_qdq_is_init(q, oq_qdq_input(q, node, 2))) {
        oq_warn(q->model->env,
                "the bias of Gemm node '%.*s' is not constant; excluding the node may be faster",
                OQ_STR(n->name));
        return ONQ_OK;
    }
    return oq_qdq_bias_tensor(q, node, 2, in, weight, err);
}

/* Constants on either side are weights, the rest are activations. */
onq_code oq_qdq_rule_matmul(oq_qdq *q, uint32_t node, onq_error *err) {
    const oq_node *n = oq_qdq_node_at(q, node);
    const size_t n_out = oq_qdq_output_is_off(q, node) ? 0 : n->output.n;
    for (size_t i = 0; i < n->input.n + n_out; i++) {
        const uint32_t t =
            i < n->input.n ? oq_qdq_input(q, node, i) : oq_qdq_output(q, node, i - n->input.n);
        if (oq_qdq_is_init(q, t))
            OQ_TRY(oq_qdq_weight_auto(q, t, 1, &n->op_type, err));
        else
            OQ_TRY(oq_qdq_activation(q, t, err));
    }
    return ONQ_OK;
}

/* Normalizations: the scale is a weight, the bias int32. */
onq_code oq_qdq_rule_norm(oq_qdq *q, uint32_t node, onq_error *err) {
    const oq_node *n = oq_qdq_node_at(q, node);
    const uint32_t in = oq_qdq_input(q, node, 0), scale = oq_qdq_input(q, node, 1);
    OQ_TRY(oq_qdq_activation(q, in, err));
    if (oq_qdq_is_init(q, scale))
        OQ_TRY(oq_qdq_weight_auto(q, scale, 1, &n->op_type, err));
    else
        OQ_TRY(oq_qdq_activation(q, scale, err));
    if (oq_qdq_input(q, node, 2) != OQ_NO_TENSOR)
        OQ_TRY(oq_qdq_bias_tensor(q, node, 2, in, scale, err));
    if (oq_qdq_output_is_off(q, node))
        return ONQ_OK;
    for (size_t i = 0; i < n->output.n; i++)
        OQ_TRY(oq_qdq_activation(q, oq_qdq_output(q, node, i), err));
    return ONQ_OK;
}
