/*
 * quant_softmax.c — Softmax. In QDQ it has the default rule.
 */
#include "quantize/ops/oper_rules.h"
#include "quantize/qop.h"

const oq_qrule oq_qrule_softmax = {.qlinear = oq_ql_softmax};
