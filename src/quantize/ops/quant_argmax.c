/*
 * quant_argmax.c — ArgMax. In QDQ it has the default rule.
 */
#include "quantize/ops/oper_rules.h"
#include "quantize/qop.h"

const oq_qrule oq_qrule_argmax = {.qlinear = oq_ql_argmax};
