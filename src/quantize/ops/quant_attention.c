/*
 * quant_attention.c — com.microsoft Attention. In QDQ it has the default rule.
 */
#include "quantize/qop.h"

const oq_qrule oq_qrule_attention = {.qdq = NULL};
