/*
 * quant_norm.c — InstanceNormalization, LayerNormalization, BatchNormalization: scale as a weight,
 * bias as int32.
 */
#include "quantize/qdq/qdq.h"
#include "quantize/rules.h"

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
