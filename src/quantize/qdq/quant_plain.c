/*
 * quant_plain.c — the rule of operators that need none: every float input and output is an
 * activation.
 *
 * QDQ gives it to CumSum and to every operator of the user's list that operators.def has no QDQ rule for.
 */
#include "quantize/qdq/qdq.h"
#include "quantize/rules.h"

onq_code oq_qdq_rule_plain(oq_qdq *q, uint32_t node, onq_error *err) {
    const oq_node *n = oq_qdq_node_at(q, node);
    for (size_t i = 0; i < n->input.n; i++)
        OQ_TRY(oq_qdq_activation(q, oq_qdq_input(q, node, i), err));
    if (oq_qdq_output_is_off(q, node))
        return ONQ_OK;
    for (size_t i = 0; i < n->output.n; i++)
        OQ_TRY(oq_qdq_activation(q, oq_qdq_output(q, node, i), err));
    return ONQ_OK;
}
