/*
 * quant_where.c — Where: quantized when both branches are, or always with
 * ForceQuantizeNoInputCheck.
 */
#include "quantize/qdq/qdq.h"
#include "quantize/rules.h"

onq_code oq_qdq_rule_where(oq_qdq *q, uint32_t node, onq_error *err) {
    const oq_node *n = oq_qdq_node_at(q, node);
    const uint32_t yes = oq_qdq_input(q, node, 1), no = oq_qdq_input(q, node, 2);
    const bool off = oq_qdq_output_is_off(q, node);
    if (q->config->force_quantize_no_input_check) {
        if (!oq_qdq_is_marked(q, yes))
            OQ_TRY(oq_qdq_activation(q, yes, err));
        if (!oq_qdq_is_marked(q, no))
            OQ_TRY(oq_qdq_activation(q, no, err));
    } else if (off || !oq_qdq_is_marked(q, yes) || !oq_qdq_is_marked(q, no)) {
        oq_qdq_leave(q, off ? "output excluded by operator type" : "input is not quantized");
        return ONQ_OK;
    }
    for (size_t i = 0; !off && i < n->output.n; i++)
        OQ_TRY(oq_qdq_activation(q, oq_qdq_output(q, node, i), err));
    return ONQ_OK;
}
