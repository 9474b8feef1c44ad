/*
 * qo_rules_matmul.c — MatMul as QLinearMatMul and MatMulInteger, Gemm as QGemm.
 *
 * MatMul's weights go per channel along the last axis. A weight that is not a matrix goes per
 * tensor: the runtime takes one column scale for a matrix only, and the reference's result fails
 * there when it is run.
 */
#include "quantize/qoperator/qo_rule.h"

static const char other_axis[] = "the channels of its weight lie along another axis";

/* QOpMatMul.should_quantize. */
static const char *unwanted(oq_qo *q, const oq_node *n) {
    const oq_tri only = oq_qo_config(q)->matmul_const_b_only;
    if (n->input.n < 2)
        return "it has no second input";
    if (!oq_qo_is_float(q, n->input.v[1]) && !oq_qo_is_float(q, n->input.v[0]))
        return "its inputs are not float";
    if ((only == OQ_YES || (only == OQ_UNSET && !oq_qo_is_static(q))) &&
        oq_qo_init_in_path(q, n->input.v[1]) == NULL)
        return "its second input is not constant";
    return NULL;
}

static oq_qo_how weight_how(const oq_qo *q, const oq_node *n) {
    const oq_tensor *w = oq_qo_init_in_path(q, n->input.v[1]);
    const size_t rank = w != NULL ? w->dims.n : 2;
    return (oq_qo_how){.is_weight = true,
                       .reduce = true,
                       .per_channel = rank == 2 || (rank > 0 && w->dims.v[rank - 1] == 1),
                       .axis = -1};
}

/* What both forms of MatMul ask first. False: the reason is in *why, or said by oq_qo_can. */
static bool can_matmul(oq_qo *q, const oq_node *n, oq_qo_how *how, const char **why) {
    *why = unwanted(q, n);
    if (*why != NULL)
        return false;
    *how = weight_how(q, n);
    if (!oq_qo_can(q, n, 0, &oq_qo_as_activation) || !oq_qo_can(q, n, 1, how))
        return false;
    *why = oq_qo_trained_fits(q, n->input.v[1], 1) ? NULL : other_axis;
    return *why == NULL;
}

onq_code oq_qo_rule_matmul(oq_qo *q, oq_node *n, onq_error *err) {
    oq_qo_value *in = NULL, *weight = NULL, *out = NULL;
    oq_qo_how how;
    const char *why;
    if (!can_matmul(q, n, &how, &why))
        return oq_qo_leave(q, n, why, err);
    if (!oq_qo_has_params(q, n->output.v[0]))
        return oq_qo_config(q)->trained ? oq_qo_rule_matmul_integer(q, n, err)
                                        : oq_qo_leave(q, n, oq_qo_why_no_params(q, n), err);
    const bool ms = oq_qo_config(q)->weight_type == OQ_FLOAT8E4M3FN;
    oq_node *made = oq_qo_node_new(q, n, "QLinearMatMul", ms);
    OQ_TRY_ALLOC(made != NULL, err);
    made->attribute.n = 0;
    if (!ms)
        made->domain = OQ_S(""); /* written out, as in the reference */
    OQ_TRY(oq_qo_input(q, n, 0, &oq_qo_as_activation, &in, err));
    OQ_TRY(oq_qo_input(q, n, 1, &how, &weight, err));
    OQ_TRY(oq_qo_output(q, n, &out, err));
    if (!oq_qo_add_inputs(q, made, in) || !oq_qo_add_inputs(q, made, weight) ||
        !oq_qo_add_params(q, made, out) || !oq_node_add_output(oq_qo_arena(q), made, out->q))
        return oq_fail_nomem(err);
    return oq_qo_emit(q, made, err);
}

onq_code oq_qo_rule_matmul_integer(oq_qo *q, oq_node *n, onq_error *err) {
    oq_qo_value *in = NULL, *weight = NULL;
    oq_qo_how how;
    const char *why;
    if (!can_matmul(q, n, &how, &why))
        return oq_qo_leave(q, n, why, err);
    if (oq_qtype_is_16_or_4bit(oq_qo_config(q)->weight_type))
        return oq_qo_leave(q, n, "MatMulInteger takes 8-bit weights only", err);
    oq_node *made = oq_qo_node_new(q, n, "MatMulInteger", false);
    oq_str result = {0};
    OQ_TRY_ALLOC(made != NULL, err);
    OQ_TRY(oq_qo_output_real(q, n, &result, err));
    made->attribute.n = 0;
    OQ_TRY(oq_qo_input(q, n, 0, &oq_qo_as_activation, &in, err));
    OQ_TRY(oq_qo_input(q, n, 1, &how, &weight, err));
    return oq_qo_emit_scaled(q, n, made, in, weight, result, err);
}

onq_code oq_qo_rule_gemm(oq_qo *q, oq_node *n, onq_error *err) {
    oq_arena *a = oq_qo_arena(q);
    const oq_qconfig *c = oq_qo_config(q);
    const char *why = unwanted(q, n);
    if (why != NULL)
        return oq_qo_leave(q, n, why, err);
    const bool channels = c->per_channel && oq_qo_init_in_path(q, n->input.v[1]) != NULL;
    const bool turned = oq_gemm_turns_b(n);
    const oq_qo_how how = {.is_weight = true,
                           .reduce = channels || c->reduce_range,
                           .per_channel = channels,
                           .axis = channels ? (turned ? 0 : 1) : -1};
    /* C of QGemm counts in alpha x scale of A x scale of B, and QGemm has no beta. */
    const float alpha = oq_attr_float(n, "alpha", 1.0f), beta = oq_attr_float(n, "beta", 1.0f);
    const bool has_c = n->input.n > 2 && n->input.v[2].n != 0 && beta != 0.0f;
    const float factor = beta / alpha;
    oq_qo_value *in = NULL, *weight = NULL, *out = NULL;
    if (!oq_qo_can(q, n, 0, &oq_qo_as_activation) || !oq_qo_can(q, n, 1, &how))
        return oq_qo_leave(q, n, NULL, err);
    if (!oq_qo_trained_fits(q, n->input.v[1], turned ? 0 : 1))
        return oq_qo_leave(q, n, other_axis, err);
    if (!oq_qo_has_params(q, n->output.v[0]))
        return oq_qo_leave(q, n, oq_qo_why_no_params(q, n), err);
    if (!isfinite(factor) || (has_c && factor == 0.0f))
        return oq_qo_leave(q, n, "alpha and beta leave no scale for its bias", err);
    const bool empty_c = n->input.n > 2 && n->input.v[2].n == 0;
    if (empty_c || (has_c && !oq_qo_can_bias(q, n, factor))) {
        /* Stays float; but the reference has quantized its weight by then, and reads it
         * dequantized. */
        if (empty_c)
            oq_qo_say(q, "its third input is there and empty");
        if (oq_qo_init(q, n->input.v[1]) != NULL)
            OQ_TRY(oq_qo_input(q, n, 1, &how, &weight, err));
        return oq_qo_leave(q, n, NULL, err);
    }
    oq_node *made = oq_qo_node_new(q, n, "QGemm", true);
    OQ_TRY_ALLOC(made != NULL, err);
    oq_attr_remove(made, "beta");
    OQ_TRY(oq_qo_output(q, n, &out, err));
    OQ_TRY(oq_qo_input(q, n, 0, &oq_qo_as_activation, &in, err));
    OQ_TRY(oq_qo_input(q, n, 1, &how, &weight, err));
    oq_str bias = OQ_S("");
    if (has_c)
        OQ_TRY(oq_qo_bias_tensor(q, n, n->input.v[2], in, weight, factor, &bias, err));
    if (!oq_qo_add_inputs(q, made, in) || !oq_qo_add_inputs(q, made, weight) ||
        !oq_node_add_input(a, made, bias) || !oq_qo_add_params(q, made, out) ||
        !oq_node_add_output(a, made, out->q))
        return oq_fail_nomem(err);
    return oq_qo_emit(q, made, err);
}
