/*
 * quant_softmax.c — Softmax. In QDQ it has the default rule.
 */
#include "quantize/qop.h"

const oq_qrule oq_qrule_softmax = {.qdq = NULL};
