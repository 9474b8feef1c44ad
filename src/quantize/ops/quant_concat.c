/*
 * quant_concat.c — Concat. In QDQ it has the default rule.
 */
#include "quantize/ops/oper_rules.h"
#include "quantize/qop.h"

const oq_qrule oq_qrule_concat = {.qlinear = oq_ql_concat};
