/*
 * quant_argmax.c — ArgMax. In QDQ it has the default rule.
 */
#include "quantize/qop.h"

const oq_qrule oq_qrule_argmax = {.qdq = NULL};
