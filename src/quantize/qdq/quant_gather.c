/*
 * quant_gather.c — Gather and GatherElements: the output has the parameters of the table it reads.
 */
#include "quantize/qdq/qdq.h"
#include "quantize/rules.h"

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
