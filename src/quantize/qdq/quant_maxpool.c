/*
 * quant_maxpool.c — MaxPool: as Reshape, but the 8-bit kernel came with opset 12 and has no
 * float 8.
 */
#include "quantize/qdq/qdq.h"
#include "quantize/rules.h"

onq_code oq_qdq_rule_maxpool(oq_qdq *q, uint32_t node, onq_error *err) {
    if (q->opset < 12) {
        oq_qdq_leave(q, "MaxPool takes 8-bit numbers from opset 12 on");
        return ONQ_OK;
    }
    if (q->config->activation_type == OQ_FLOAT8E4M3FN) {
        oq_qdq_leave(q, "MaxPool has no float 8");
        return ONQ_OK;
    }
    return oq_qdq_rule_direct(q, node, err);
}
