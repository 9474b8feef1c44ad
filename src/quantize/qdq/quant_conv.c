/*
 * quant_conv.c — how Conv and ConvTranspose are quantized.
 *
 * Weights go per channel when asked (axis 0, or 1 for ConvTranspose); the bias becomes int32 with
 * scale = input scale x weight scale.
 */
#include "quantize/qdq/qdq.h"
#include "quantize/rules.h"

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
