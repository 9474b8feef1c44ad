/*
 * qo_rules_recurrent.c — GRU and RNN: no runtime has integer kernels for them, so only their
 * weights are stored as integers, with a DequantizeLinear in front of the node. The reference
 * leaves them alone; here they are quantized when the user lists them.
 */
#include "quantize/qoperator/qo_rule.h"

onq_code oq_qo_rule_recurrent(oq_qo *q, oq_node *n, onq_error *err) {
    const bool channels = oq_qo_config(q)->per_channel && oq_qo_opset(q) >= 13;
    const oq_qo_how how = {.is_weight = true, .reduce = true, .per_channel = channels, .axis = 1};
    size_t n_weights = 0;
    for (size_t slot = 1; slot <= 2 && slot < n->input.n; slot++) {
        const oq_tensor *t = oq_qo_init(q, n->input.v[slot]);
        oq_qo_value *v = NULL;
        if (t == NULL || !oq_qo_is_real(q, t->data_type.v) || t->dims.n != 3)
            continue;
        OQ_TRY(oq_qo_input(q, n, slot, &how, &v, err));
        n_weights++;
    }
    if (n_weights == 0)
        return oq_qo_leave(q, n, "its weights are not constant float", err);
    OQ_TRY(oq_qo_leave(q, n, NULL, err));
    oq_qo_say(q, NULL);
    return ONQ_OK;
}
