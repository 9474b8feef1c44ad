/*
 * quant_binary.c — Add and Mul. In QDQ it has the default rule.
 */
#include "quantize/ops/oper_rules.h"
#include "quantize/qop.h"

const oq_qrule oq_qrule_binary = {.qlinear = oq_ql_binary};
