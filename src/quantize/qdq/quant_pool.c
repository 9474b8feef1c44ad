/*
 * quant_pool.c — AveragePool.
 */
#include "quantize/operators.h"
#include "quantize/qdq/qdq.h"
#include "quantize/qoperator/oper_rules.h"

const oq_qrule oq_qrule_pool = {.qdq = oq_qdq_rule_direct, .qlinear = oq_ql_pool};
