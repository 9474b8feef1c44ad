/*
 * qdq.h — QuantizeLinear/DequantizeLinear pairs around tensors.
 *
 * The pass runs in three steps, as the reference's QDQQuantizer does:
 *
 *   mark     every chosen node's rule marks tensors: as activation, as weight (per tensor or per
 *            channel), as "same parameters as that input", or as bias; Relu and Clip may go away
 *            (qdq_rule.h)
 *   decide   ranges and weights become scales and zero points; weight scales are raised for biases.
 *            The result is a list of steps, and the rows of the plan
 *   emit     each step becomes nodes and initializers
 *
 * Marking and deciding change the state of the pass only (qdq_state.h), never the model. A dry run
 * ends there.
 *
 * With enable_subgraph the graphs inside If, Loop and Scan follow, each with a state of its own
 * that looks outwards (qdq_inner.c): pairs are put where they are needed, weights are quantized in
 * the graph that holds them.
 */
#pragma once

#include "calibrate/ranges.h"
#include "quantize/choose/qrun.h"
#include "quantize/override/override.h"
#include "quantize/plan.h"
#include "shape/shape.h"

/* What the result will need, found by marking alone. */
typedef struct oq_qdq_outlook {
    bool half;            /* a float16 tensor gets a pair */
    bool channels;        /* a constant is quantized per channel */
    const char *needs_11; /* why opset 10 does not do, or NULL */
} oq_qdq_outlook;

/* What the driver is given. `ranges` is changed (inputs of Relu and Clip take the range of the
 * output). */
typedef struct oq_qdq_job {
    oq_model *model;
    oq_qrun *run;
    const oq_overrides *overrides; /* or NULL */
    oq_ranges *ranges;
    const oq_shapes *shapes; /* plain inference over the model as it is */
    oq_plan *plan;
    bool decide_only; /* --dry_run: fills the plan and leaves the model as it is */
} oq_qdq_job;

/* Quantizes the model. The opset must be what the types need (see result_opset.h). */
onq_code oq_qdq_run(const oq_qdq_job *job, onq_error *err);

/* Marks as oq_qdq_run would at that opset, with ranges for all tensors, and says what came of it.
 * The model stays as it is; `shapes` are those of the job. */
onq_code oq_qdq_foresee(oq_model *m, const oq_shapes *shapes, oq_qrun *r, const oq_overrides *o,
                        int64_t opset, oq_qdq_outlook *out, onq_error *err);
/* True if all pairs are of com.microsoft, which take 4-bit and 16-bit types at any opset. Overrides
 * on later tensors ask for them where they are met. */
bool oq_qdq_wants_contrib(const oq_qconfig *c, const oq_overrides *o, int64_t opset);
