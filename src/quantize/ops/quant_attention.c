/*
 * quant_attention.c — com.microsoft Attention. In QDQ it has the default rule.
 */
#include "quantize/ops/oper_rules.h"
#include "quantize/qop.h"

const oq_qrule oq_qrule_attention = {.integer = oq_ql_attention};
