/*
 * qdq_rules_product.c — the rules of operators with weights: products and normalizations.
 */
#include "quantize/qdq/qdq_rule.h"

/* Input, output and weight of a product, whose channels lie along the operator's axis; *left says
 * that the node stays float, because its bias would not fit. */
static onq_code mark_product(oq_qdq *q, uint32_t node, bool *left, onq_error *err) {
    int64_t axis = 0;
    OQ_TRY(oq_qdq_bias_exceeds(q, node, left, err));
    if (*left) {
        oq_qdq_leave(q, OQ_WHY_BIAS);
        return ONQ_OK;
    }
    OQ_TRY(oq_qdq_activation(q, oq_qdq_input(q, node, 0), err));
    if (!oq_qdq_output_is_off(q, node))
        OQ_TRY(oq_qdq_activation(q, oq_qdq_output(q, node, 0), err));
    (void)oq_op_channel_axis(oq_qdq_node_at(q, node), &axis);
    return oq_qdq_weight_auto(q, oq_qdq_input(q, node, 1), axis, NULL, err);
}

static onq_code mark_bias(oq_qdq *q, uint32_t node, onq_error *err) {
    return oq_qdq_bias_tensor(q, node, 2, oq_qdq_input(q, node, 0), oq_qdq_input(q, node, 1), err);
}

/* Conv and ConvTranspose. Weights go per channel when asked; the bias becomes int32 with scale =
 * input scale x weight scale. */
onq_code oq_qdq_rule_conv(oq_qdq *q, uint32_t node, onq_error *err) {
    bool left = false;
    OQ_TRY(mark_product(q, node, &left, err));
    return left || oq_qdq_node_at(q, node)->input.n != 3 ? ONQ_OK : mark_bias(q, node, err);
}

/* A constant bias becomes int32; beta stays with the node. */
onq_code oq_qdq_rule_gemm(oq_qdq *q, uint32_t node, onq_error *err) {
    const oq_node *n = oq_qdq_node_at(q, node);
    bool left = false;
    OQ_TRY(mark_product(q, node, &left, err));
    if (left || n->input.n != 3)
        return ONQ_OK;
    if (oq_qdq_is_init(q, oq_qdq_input(q, node, 2)))
        return mark_bias(q, node, err);
    oq_warn(oq_qdq_env(q),
            "the bias of Gemm node '%.*s' is not constant; excluding the node may be faster",
            OQ_STR(n->name));
    return ONQ_OK;
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
