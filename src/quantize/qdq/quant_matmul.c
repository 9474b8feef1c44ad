/*
 * quant_matmul.c — MatMul: constants on either side are weights, the rest activations.
 */
#include "quantize/qdq/qdq.h"
#include "quantize/rules.h"

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
