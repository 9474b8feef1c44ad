/*
 * quant_argmax.c — ArgMax. In QDQ it has the default rule.
 */
#include "quantize/operators.h"
#include "quantize/qoperator/oper_rules.h"

const oq_qrule oq_qrule_argmax = {.qlinear = oq_ql_argmax};
