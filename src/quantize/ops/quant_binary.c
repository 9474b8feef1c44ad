/*
 * quant_binary.c — Add and Mul. In QDQ it has the default rule.
 */
#include "quantize/qop.h"

const oq_qrule oq_qrule_binary = {.qdq = NULL};
