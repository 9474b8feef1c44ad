/*
 * quant_pool.c — AveragePool.
 */
#include "quantize/ops/oper_rules.h"
#include "quantize/qdq.h"
#include "quantize/qop.h"

const oq_qrule oq_qrule_pool = {.qdq = oq_qdq_rule_direct, .qlinear = oq_ql_pool};
