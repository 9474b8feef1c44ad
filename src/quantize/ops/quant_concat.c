/*
 * quant_concat.c — Concat. In QDQ it has the default rule.
 */
#include "quantize/qop.h"

const oq_qrule oq_qrule_concat = {.qdq = NULL};
