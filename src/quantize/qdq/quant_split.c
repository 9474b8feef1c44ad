/*
 * quant_split.c — Split: all outputs have the parameters of the input.
 */
#include "quantize/qdq/qdq.h"
#include "quantize/rules.h"

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
