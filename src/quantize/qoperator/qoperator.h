/*
 * qoperator.h — integer operators in place of float ones: QLinear operators (static, the
 * reference's QOperator format) and dynamic quantization.
 *
 * The pass goes through the nodes once, as the reference's ONNXQuantizer does, and writes a draft:
 * the nodes and initializers that each graph will have, and the rows of the plan. A rule
 * (operators.def, slots `qlinear` and `integer`) puts the replacement of its node into the draft; a
 * node without one goes there as it is, with DequantizeLinear in front where an input exists in
 * quantized form only. What a tensor has become is its oq_qo_value.
 *
 * Rules (qo_rule.h) only name the scales, zero points and quantized bytes of weights; their values
 * are computed when all nodes are done (qoperator_weight.c), all weights in parallel, and biases
 * after them. Then the plan is complete, and a dry run ends. Only after that do the graphs become
 * what their drafts say: no rule changes a node of the model, or a graph.
 *
 * Unlike in the reference, a rule checks first: oq_qo_can_* say whether all that it needs is there
 * before anything is emitted, so a node that cannot be quantized leaves no trace.
 */
#pragma once

#include "calibrate/ranges.h"
#include "quantize/choose/qrun.h"
#include "quantize/override/override.h"
#include "quantize/plan.h"
#include "quantize/rules.h"
#include "shape/shape.h"

typedef struct oq_qo_job {
    oq_model *model;
    oq_qrun *run;
    const oq_overrides *overrides; /* or NULL */
    oq_ranges *ranges;             /* static; NULL: dynamic */
    const oq_shapes *shapes;       /* what onnx infers of the model as it is; NULL: inferred here */
    oq_plan *plan;
    bool integer;     /* integer operators although there are ranges (trained models) */
    bool decide_only; /* --dry_run: fills the plan; no node is replaced */
} oq_qo_job;

/* Quantizes the model in place. The opset must be what the types need. */
onq_code oq_qo_run(const oq_qo_job *job, onq_error *err);
