/*
 * quant_activation.c — Relu, Clip, LeakyRelu, Sigmoid.
 *
 * Relu and Clip go away where they can: the quantized range of their output clips what they would
 * have. That needs asymmetric activations and an input that nothing else reads.
 */
#include "quantize/qdq/qdq.h"
#include "quantize/rules.h"

/* Relu and Clip (QDQRemovableActivation). */
onq_code oq_qdq_rule_removable(oq_qdq *q, uint32_t node, onq_error *err) {
    const uint32_t in = oq_qdq_input(q, node, 0);
    if (!oq_qdq_is_marked(q, in)) {
        oq_qdq_leave(q, "input is not quantized");
        return ONQ_OK;
    }
    bool gone = false;
    if (!q->config->activation_symmetric && !q->config->keep_removable_activations)
        OQ_TRY(oq_qdq_try_remove(q, node, &gone, err));
    if (!gone)
        OQ_TRY(oq_qdq_activation(q, in, err));
    if (oq_qdq_output_is_off(q, node))
        return ONQ_OK;
    return oq_qdq_activation(q, oq_qdq_output(q, node, 0), err);
}
