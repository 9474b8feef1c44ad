/*
 * quant_resize.c — Resize: as Reshape, from opset 11 on.
 */
#include "quantize/operators.h"
#include "quantize/qdq/qdq.h"
#include "quantize/qoperator/oper_rules.h"

static onq_code resize_qdq(oq_qdq *q, uint32_t node, onq_error *err) {
    if (q->opset < 11) {
        oq_qdq_leave(q, "Resize takes 8-bit numbers from opset 11 on");
        return ONQ_OK;
    }
    return oq_qdq_rule_direct(q, node, err);
}

const oq_qrule oq_qrule_resize = {.qdq = resize_qdq, .qlinear = oq_ql_resize};
