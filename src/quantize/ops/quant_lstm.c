/*
 * quant_lstm.c — LSTM. In QDQ it has the default rule.
 */
#include "quantize/ops/oper_rules.h"
#include "quantize/qop.h"

const oq_qrule oq_qrule_lstm = {.integer = oq_ql_lstm};
