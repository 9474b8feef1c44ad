/*
 * qdq_rules_plain.c — the rules of the others: every tensor an activation, Relu and Clip that go
 * away, Where.
 */
#include "quantize/qdq/qdq_rule.h"

/* Every float input and output is an activation. QDQ gives this rule to CumSum and to every
 * operator of the user's list that has no rule of its own (QDQOperatorBase). */
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

/* Relu and Clip (QDQRemovableActivation) go away where the quantized range of their output clips as
 * they would. That needs asymmetric activations and an input that nothing else reads. */
onq_code oq_qdq_rule_removable(oq_qdq *q, uint32_t node, onq_error *err) {
    const uint32_t in = oq_qdq_input(q, node, 0);
    if (!oq_qdq_is_marked(q, in)) {
        oq_qdq_leave(q, "input is not quantized");
        return ONQ_OK;
    }
    bool gone = false;
    if (!oq_qdq_config(q)->activation_symmetric && !oq_qdq_config(q)->keep_removable_activations)
        OQ_TRY(oq_qdq_try_remove(q, node, &gone, err));
    if (!gone)
        OQ_TRY(oq_qdq_activation(q, in, err));
    if (oq_qdq_output_is_off(q, node))
        return ONQ_OK;
    return oq_qdq_activation(q, oq_qdq_output(q, node, 0), err);
}

/* Quantized when both branches are, or always with ForceQuantizeNoInputCheck. */
onq_code oq_qdq_rule_where(oq_qdq *q, uint32_t node, onq_error *err) {
    const oq_node *n = oq_qdq_node_at(q, node);
    const uint32_t yes = oq_qdq_input(q, node, 1), no = oq_qdq_input(q, node, 2);
    const bool off = oq_qdq_output_is_off(q, node);
    if (oq_qdq_config(q)->force_quantize_no_input_check) {
        if (!oq_qdq_is_marked(q, yes))
            OQ_TRY(oq_qdq_activation(q, yes, err));
        if (!oq_qdq_is_marked(q, no))
            OQ_TRY(oq_qdq_activation(q, no, err));
    } else if (off || !oq_qdq_is_marked(q, yes) || !oq_qdq_is_marked(q, no)) {
        oq_qdq_leave(q, off ? "output excluded by operator type" : "input is not quantized");
        return ONQ_OK;
    }
    for (size_t i = 0; !off && i < n->output.n; i++)
        OQ_TRY(oq_qdq_activation(q, oq_qdq_output(q, node, i), err));
    return ONQ_OK;
}
