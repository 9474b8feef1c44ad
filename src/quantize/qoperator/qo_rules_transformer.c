/*
 * qo_rules_transformer.c — operators whose quantized form computes in float outside: Attention,
 * EmbedLayerNormalization, LSTM; and Gather on a quantized table.
 */
#include "quantize/qoperator/qo_rule.h"

/* True if an input that is handed on as it is, from slot `from` on, has become integers. */
static bool hands_on_integers(oq_qo *q, const oq_node *n, size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        if (oq_node_input(n, i).n != 0 && oq_qo_value_of(q, n->input.v[i]) != NULL)
            return true;
    return false;
}

onq_code oq_qo_rule_attention(oq_qo *q, oq_node *n, onq_error *err) {
    oq_arena *a = oq_qo_arena(q);
    const oq_qo_how how = {.is_weight = true, .reduce = true, .per_channel = true, .axis = -1};
    oq_qo_value *in = NULL, *weight = NULL;
    if (oq_attr_find(n, "qkv_hidden_sizes") != NULL)
        return oq_qo_leave(q, n, "QAttention has no qkv_hidden_sizes", err);
    for (size_t i = 5; i < n->input.n; i++)
        if (n->input.v[i].n != 0)
            return oq_qo_leave(q, n, "QAttention has no input for its attention bias", err);
    for (size_t i = 0; i < 3; i++)
        if (oq_node_input(n, i).n == 0)
            return oq_qo_leave(q, n, "QAttention needs a weight and a bias", err);
    if (hands_on_integers(q, n, 2, n->input.n))
        return oq_qo_leave(q, n, "an input that stays as it is was quantized", err);
    if (!oq_qo_can(q, n, 0, &oq_qo_as_activation) || !oq_qo_can(q, n, 1, &how))
        return oq_qo_leave(q, n, NULL, err);
    oq_node *made = oq_qo_node_new(q, n, "QAttention", true);
    OQ_TRY_ALLOC(made != NULL, err);
    OQ_TRY(oq_qo_input(q, n, 0, &oq_qo_as_activation, &in, err));
    OQ_TRY(oq_qo_input(q, n, 1, &how, &weight, err));
    /* quantized, its weight, and what stays float: bias, mask, past */
    const oq_str pairs[3][2] = {
        {in->q, weight->q}, {in->scale, weight->scale}, {in->zero, weight->zero}};
    for (size_t i = 0; i < 3; i++) {
        if (!oq_node_add_input(a, made, pairs[i][0]) || !oq_node_add_input(a, made, pairs[i][1]))
            return oq_fail_nomem(err);
        OQ_TRY(oq_qo_add_real(q, made, n, i + 2, err));
    }
    OQ_TRY(oq_qo_add_results(q, made, n, weight->elem, err));
    return oq_qo_emit(q, made, err);
}

onq_code oq_qo_rule_embed_layernorm(oq_qo *q, oq_node *n, onq_error *err) {
    oq_arena *a = oq_qo_arena(q);
    oq_qo_value *v[5] = {0};
    if (n->output.n > 2)
        return oq_qo_leave(q, n, "it has three outputs", err);
    if (hands_on_integers(q, n, 0, 2) || hands_on_integers(q, n, 7, n->input.n))
        return oq_qo_leave(q, n, "an input that stays as it is was quantized", err);
    for (size_t i = 0; i < 5; i++) {
        const oq_tensor *t = oq_qo_init_in_path(q, oq_node_input(n, i + 2));
        if (t != NULL && t->data_type.v == OQ_FLOAT16 && !oq_qo_casts(q))
            return oq_qo_leave(q, n, "QEmbedLayerNormalization takes float32 scales only", err);
        if (!oq_qo_can(q, n, i + 2, &oq_qo_as_activation))
            return oq_qo_leave(q, n, NULL, err);
    }
    oq_node *made = oq_qo_node_new(q, n, "QEmbedLayerNormalization", true);
    OQ_TRY_ALLOC(made != NULL, err);
    for (size_t i = 0; i < 5; i++)
        OQ_TRY(oq_qo_input(q, n, i + 2, &oq_qo_as_activation, &v[i], err));
    bool ok = oq_node_add_input(a, made, oq_node_input(n, 0)) &&
              oq_node_add_input(a, made, oq_node_input(n, 1));
    for (size_t i = 0; i < 5; i++)
        ok = ok && oq_node_add_input(a, made, v[i]->q);
    ok = ok && oq_node_add_input(a, made, oq_node_input(n, 7));
    for (size_t i = 0; i < 5; i++)
        ok = ok && oq_node_add_input(a, made, v[i]->scale);
    for (size_t i = 0; i < 5; i++)
        ok = ok && oq_node_add_input(a, made, v[i]->zero);
    OQ_TRY_ALLOC(ok, err);
    oq_str out = {0};
    OQ_TRY(oq_qo_result(q, n->output.v[0], v[0]->elem, &out, err));
    for (size_t i = 0; i < n->output.n; i++)
        OQ_TRY_ALLOC(oq_node_add_output(a, made, i == 0 ? out : n->output.v[i]), err);
    return oq_qo_emit(q, made, err);
}

/* W or R [directions, 4 x hidden, size]: int8, one scale for each direction or (per channel) each
 * row, written as [directions, size, 4 x hidden]. */
static onq_code lstm_weight(oq_qo *q, const oq_node *n, size_t slot, oq_qo_value **out,
                            onq_error *err) {
    const bool rows = oq_qo_config(q)->per_channel;
    const oq_qo_how how = {.is_weight = true,
                           .reduce = true,
                           .per_channel = true,
                           .axis = 0,
                           .type = OQ_INT8,
                           .rows = rows,
                           .channels = true,
                           .symmetric = rows}; /* the operator refuses other zero points by row */
    const bool known = oq_qo_value_in_path(q, n->input.v[slot]) != NULL;
    OQ_TRY(oq_qo_input(q, n, slot, &how, out, err));
    return known ? ONQ_OK : oq_qo_turn_weight(q, *out, rows, err);
}

onq_code oq_qo_rule_lstm(oq_qo *q, oq_node *n, onq_error *err) {
    oq_arena *a = oq_qo_arena(q);
    oq_qo_value *w = NULL, *r = NULL;
    if (!oq_qo_is_float(q, n->input.v[0]))
        return oq_qo_leave(q, n, "its input is not float", err);
    for (size_t i = 1; i <= 2; i++) {
        const oq_tensor *t = oq_qo_init_in_path(q, oq_node_input(n, i));
        if (t == NULL || !oq_qo_is_float32(q, t) || t->dims.n != 3)
            return oq_qo_leave(q, n, "its weights are not constant float32 of rank 3", err);
        const oq_qo_value *there = oq_qo_value_in_path(q, n->input.v[i]);
        if (there != NULL && !oq_qo_is_turned(there))
            return oq_qo_leave(q, n, "its weights are quantized for another operator", err);
    }
    if (oq_attr_int(n, "layout", 0) != 0)
        return oq_qo_leave(q, n, "DynamicQuantizeLSTM has no layout 1", err);
    oq_node *made = oq_qo_node_new(q, n, "DynamicQuantizeLSTM", true);
    OQ_TRY_ALLOC(made != NULL, err);
    oq_attr_remove(made, "layout");
    OQ_TRY(lstm_weight(q, n, 1, &w, err));
    OQ_TRY(lstm_weight(q, n, 2, &r, err));
    /* The reference takes the quantized weights out and adds them again after everything else. */
    oq_qo_move_last(q, w);
    oq_qo_move_last(q, r);
    OQ_TRY(oq_qo_add_real(q, made, n, 0, err));
    OQ_TRY_ALLOC(oq_node_add_input(a, made, w->q) && oq_node_add_input(a, made, r->q), err);
    for (size_t i = 3; i <= 7; i++)
        OQ_TRY(oq_qo_add_real(q, made, n, i, err));
    OQ_TRY_ALLOC(oq_qo_add_params(q, made, w) && oq_qo_add_params(q, made, r), err);
    OQ_TRY(oq_qo_add_results(q, made, n, w->elem, err));
    OQ_TRY(oq_qo_emit(q, made, err));
    /* The reference puts it after the node; the sort corrects the order. */
    for (size_t i = 0; i < n->input.n; i++)
        if (i != 1 && i != 2 && !oq_qo_is_wide(q, n->input.v[i]))
            OQ_TRY(oq_qo_dequantize(q, n->input.v[i], err));
    return ONQ_OK;
}

onq_code oq_qo_rule_gather(oq_qo *q, oq_node *n, onq_error *err) {
    oq_qo_value *in = NULL, *out = NULL;
    if (!oq_qo_is_float_weight(q, n->input.v[0]))
        return oq_qo_leave(q, n, "its table is not a float constant", err);
    if (!oq_qo_can(q, n, 0, &oq_qo_as_activation))
        return oq_qo_leave(q, n, NULL, err);
    const oq_tensor *t = oq_qo_init_in_path(q, n->input.v[0]);
    if (oq_qo_scale_type(q, t->data_type.v) == OQ_FLOAT16 && oq_qo_opset(q) < 19)
        return oq_qo_leave(q, n, "DequantizeLinear gives float16 from opset 19 on", err);
    OQ_TRY(oq_qo_input(q, n, 0, &oq_qo_as_activation, &in, err));
    OQ_TRY(oq_qo_output_like(q, n->output.v[0], "_quantized", in, &out, err));
    return oq_qo_emit_moved(q, n, in, out, err);
}
