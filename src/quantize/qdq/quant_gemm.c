/*
 * quant_gemm.c — Gemm: a constant bias becomes int32; beta stays with the node.
 */
#include "onnx/attr.h"
#include "quantize/qdq/qdq.h"
#include "quantize/rules.h"

onq_code oq_qdq_rule_gemm(oq_qdq *q, uint32_t node, onq_error *err) {
    const oq_node *n = oq_qdq_node_at(q, node);
    const uint32_t in = oq_qdq_input(q, node, 0), weight = oq_qdq_input(q, node, 1);
    bool exceeds;
    OQ_TRY(oq_qdq_bias_exceeds(q, node, &exceeds, err));
    if (exceeds) {
        oq_qdq_leave(q, OQ_WHY_BIAS);
        return ONQ_OK;
    }
    OQ_TRY(oq_qdq_activation(q, in, err));
    if (!oq_qdq_output_is_off(q, node))
        OQ_TRY(oq_qdq_activation(q, oq_qdq_output(q, node, 0), err));
    OQ_TRY(oq_qdq_weight_auto(q, weight, oq_attr_int(n, "transB", 0) > 0 ? 0 : 1, NULL, err));
    if (n->input.n != 3)
        return ONQ_OK;
    if (!oq_qdq_is_init(q, oq_qdq_input(q, node, 2))) {
        oq_warn(q->model->env,
                "the bias of Gemm node '%.*s' is not constant; excluding the node may be faster",
                OQ_STR(n->name));
        return ONQ_OK;
    }
    return oq_qdq_bias_tensor(q, node, 2, in, weight, err);
}
