/*
 * quant_gavgpool.c — GlobalAveragePool. In QDQ it has the default rule.
 */
#include "quantize/qop.h"

const oq_qrule oq_qrule_gavgpool = {.qdq = NULL};
