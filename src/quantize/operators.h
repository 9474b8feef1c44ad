/*
 * operators.h — the table of operators: one row each, one rule with three slots.
 *
 * The three slots are the reference's three registries. A rule of QDQ decides about tensors (qdq.h
 * says which verbs it has); a rule of the other two replaces the node (qoperator.h). An empty slot, or
 * a mode that the row does not have, means "not in this mode".
 */
#ifndef OQ_QUANTIZE_OPERATORS_H
#define OQ_QUANTIZE_OPERATORS_H

#include "base/err.h"
#include "onnx/message.h"

struct oq_qdq;
struct oq_qoper;

/* QDQ: marks tensors of the node with this number. */
typedef onq_code (*oq_qdq_rule)(struct oq_qdq *q, uint32_t node, onq_error *err);
/* QLinear and integer operators: emits what stands for the node. */
typedef onq_code (*oq_qoper_rule)(struct oq_qoper *q, oq_node *node, onq_error *err);

typedef struct oq_qrule {
    oq_qdq_rule qdq;
    oq_qoper_rule qlinear;
    oq_qoper_rule integer;
} oq_qrule;

typedef enum oq_qmode {
    OQ_QMODE_QDQ = 1,
    OQ_QMODE_QLINEAR = 2,
    OQ_QMODE_INTEGER = 4,
    OQ_QMODE_ASKED = 8 /* dynamic, but only where the user lists the operator */
} oq_qmode;

typedef struct oq_qop_row {
    const char *domain, *type;
    unsigned modes; /* of oq_qmode */
    const oq_qrule *rule;
} oq_qop_row;

size_t oq_qop_count(void);
const oq_qop_row *oq_qop_at(size_t i);
/* By operator type, whatever the domain; NULL when there is none. */
const oq_qop_row *oq_qop_find(oq_str type);
/* The same, only if the row has one of `modes`. */
const oq_qop_row *oq_qop_find_in(oq_str type, unsigned modes);

/* Every rule file sees its own declaration, so types are checked. */
#define OQ_QOP(domain, type, modes, rule) extern const oq_qrule oq_qrule_##rule;
#include "quantize/operators.def"
#undef OQ_QOP

#endif
