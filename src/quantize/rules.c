/*
 * rules.c — the table of rules, made from operators.def.
 */
#include "quantize/rules.h"

/* `none` in a column. */
#define oq_qdq_rule_none NULL
#define oq_qo_rule_none  NULL

/* In the order of oq_operators. */
static const oq_rules rows[] = {
#define OQ_OPERATOR(domain, type, qdq, qlinear, integer, ...)                                      \
    {oq_qdq_rule_##qdq, oq_qo_rule_##qlinear, oq_qo_rule_##integer},
#include "onnx/operators.def"
#undef OQ_OPERATOR
};

const oq_rules *oq_rules_of(oq_str type) {
    static const oq_rules none = {NULL, NULL, NULL};
    const oq_operator *o = oq_operator_find(type);
    return o != NULL ? &rows[o - oq_operators] : &none;
}

unsigned oq_rules_modes(oq_str type) {
    const oq_rules *r = oq_rules_of(type);
    const unsigned integer = oq_op_traits_of(type)->only_listed ? OQ_QMODE_ASKED : OQ_QMODE_INTEGER;
    return (r->qdq != NULL ? OQ_QMODE_QDQ : 0u) | (r->qlinear != NULL ? OQ_QMODE_QLINEAR : 0u) |
           (r->integer != NULL ? integer : 0u);
}

unsigned oq_rules_quantized_in(oq_str type) {
    const unsigned known = oq_rules_modes(type);
    const oq_op_traits *t = oq_op_traits_of(type);
    const bool split = t->product == OQ_GEMM && t->form == OQ_FORM_FLOAT; /* into MatMul and Add */
    return known | ((known & OQ_QMODE_QLINEAR) != 0 ? OQ_QMODE_QDQ : 0u) |
           (split ? OQ_QMODE_INTEGER : 0u);
}
