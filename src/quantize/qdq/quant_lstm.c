/*
 * quant_lstm.c — LSTM. In QDQ it has the default rule.
 */
#include "quantize/operators.h"
#include "quantize/qoperator/oper_rules.h"

const oq_qrule oq_qrule_lstm = {.integer = oq_ql_lstm};
