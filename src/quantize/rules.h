/*
 * rules.h — how the quantizers treat each operator: the three rule columns of operators.def.
 *
 * The columns are the reference's three registries. A rule of QDQ decides about tensors
 * (qdq_rule.h has its verbs); a rule of the other two replaces the node (qo_rule.h). A column that
 * is NULL means that the mode does not know the operator.
 */
#pragma once

#include "base/err.h"
#include "onnx/operators.h"

struct oq_qdq;
struct oq_qo;

/* QDQ: marks tensors of the node with this number. */
typedef onq_code (*oq_qdq_rule)(struct oq_qdq *q, uint32_t node, onq_error *err);
/* QLinear and integer operators: emits the replacement of the node. */
typedef onq_code (*oq_qo_rule)(struct oq_qo *q, oq_node *node, onq_error *err);

/* Modes, as bits: which of an operator's columns are asked about. */
typedef enum oq_qmode {
    OQ_QMODE_QDQ = 1,
    OQ_QMODE_QLINEAR = 2,
    OQ_QMODE_INTEGER = 4,
    OQ_QMODE_ASKED = 8 /* integer, but only where the user lists the operator */
} oq_qmode;

typedef struct oq_rules {
    oq_qdq_rule qdq;
    oq_qo_rule qlinear, integer;
} oq_rules;

/* By operator type, whatever the domain; an operator without a row has no rules. */
const oq_rules *oq_rules_of(oq_str type);
/* The modes that know it; 0 for an unknown operator. */
unsigned oq_rules_modes(oq_str type);
/* The modes that quantize it unless the user lists operators. This is more: QDQ has a common rule
 * for the operators of the QLinear column, as the reference has, and dynamic quantization makes a
 * MatMul of Gemm first. */
unsigned oq_rules_quantized_in(oq_str type);

#define OQ_OPERATOR(domain, type, qdq, qlinear, integer, ...)                                      \
    onq_code oq_qdq_rule_##qdq(struct oq_qdq *q, uint32_t node, onq_error *err);                   \
    onq_code oq_qo_rule_##qlinear(struct oq_qo *q, oq_node *node, onq_error *err);                 \
    onq_code oq_qo_rule_##integer(struct oq_qo *q, oq_node *node, onq_error *err);
#include "onnx/operators.def"
#undef OQ_OPERATOR
