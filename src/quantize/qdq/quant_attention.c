/*
 * quant_attention.c — com.microsoft Attention. In QDQ it has the default rule.
 */
#include "quantize/operators.h"
#include "quantize/qoperator/oper_rules.h"

const oq_qrule oq_qrule_attention = {.integer = oq_ql_attention};
