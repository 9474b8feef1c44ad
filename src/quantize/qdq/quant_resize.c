/*
 * quant_resize.c — Resize: as Reshape, from opset 11 on.
 */
#include "quantize/qdq/qdq.h"
#include "quantize/rules.h"

onq_code oq_qdq_rule_resize(oq_qdq *q, uint32_t node, onq_error *err) {
    if (q->opset < 11) {
        oq_qdq_leave(q, "Resize takes 8-bit numbers from opset 11 on");
        return ONQ_OK;
    }
    return oq_qdq_rule_direct(q, node, err);
}
