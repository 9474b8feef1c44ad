/*
 * quant_concat.c — Concat. In QDQ it has the default rule.
 */
#include "quantize/operators.h"
#include "quantize/qoperator/oper_rules.h"

const oq_qrule oq_qrule_concat = {.qlinear = oq_ql_concat};
