/*
 * quant_gavgpool.c — GlobalAveragePool. In QDQ it has the default rule.
 */
#include "quantize/operators.h"
#include "quantize/qoperator/oper_rules.h"

const oq_qrule oq_qrule_gavgpool = {.qlinear = oq_ql_gavgpool};
