/*
 * quant_lstm.c — LSTM. In QDQ it has the default rule.
 */
#include "quantize/qop.h"

const oq_qrule oq_qrule_lstm = {.qdq = NULL};
