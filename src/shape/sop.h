/*
 * sop.h — the operator table of shape inference, made from sop.def.
 */
#pragma once

#include "shape/infer.h"

/* True if onnx's own inference has a rule at this version. */
typedef enum oq_sop_onnx { OQ_SOP_ONNX_NO = 0, OQ_SOP_ONNX_YES = 1 } oq_sop_onnx;

typedef struct oq_sop {
    const char *domain, *type;
    int32_t since;
    oq_sop_onnx onnx;
    oq_rule_fn rule;
    oq_rule_fn fold; /* or NULL */
} oq_sop;

#define OQ_SOP(domain, type, since, onnx, rule) void oq_rule_##rule(oq_rctx *c);
#define OQ_SOPF(domain, type, since, onnx, rule, fold)                                             \
    void oq_rule_##rule(oq_rctx *c);                                                               \
    void oq_fold_##fold(oq_rctx *c);
#include "shape/sop.def"
#undef OQ_SOP
#undef OQ_SOPF

extern const oq_sop oq_sops[];
extern const size_t oq_sop_count;

/* The row of the operator with the highest since not above `version`, or NULL. "ai.onnx" is "". */
const oq_sop *oq_sop_find(oq_str domain, oq_str type, int64_t version);
