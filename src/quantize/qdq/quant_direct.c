/*
 * quant_direct.c — operators that move numbers and change none: Reshape, Transpose, Slice, ...
 *
 * The output has the parameters of the input, so nothing is lost. They are quantized where their
 * input is already, or always with ForceQuantizeNoInputCheck.
 */
#include "quantize/qdq/qdq.h"
#include "quantize/rules.h"

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
