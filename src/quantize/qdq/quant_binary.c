/*
 * quant_binary.c — Add and Mul. In QDQ it has the default rule.
 */
#include "quantize/operators.h"
#include "quantize/qoperator/oper_rules.h"

const oq_qrule oq_qrule_binary = {.qlinear = oq_ql_binary};
