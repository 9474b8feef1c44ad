/*
 * quant_softmax.c — Softmax. In QDQ it has the default rule.
 */
#include "quantize/operators.h"
#include "quantize/qoperator/oper_rules.h"

const oq_qrule oq_qrule_softmax = {.qlinear = oq_ql_softmax};
