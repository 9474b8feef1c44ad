/*
 * convert.h — a quantized model in another form, or float again.
 *
 * Two steps. *Lifting* puts every quantized operator between DequantizeLinear and QuantizeLinear
 * (cv_lift.c; a row of lift.def for each operator), so that one form is left: pairs. Then the pairs
 * are removed (to float, cv_float.c) or kept (to QDQ). The other way, float operators between pairs
 * become integer operators (to QOperator, cv_lower.c; MatMulNBits, cv_lower_nbits.c); what has no such
 * operator is refused, or keeps its pairs. All graphs of the model follow: those inside If, Loop and Scan, and
 * functions.
 *
 * Constants are converted when the model is written (values.h).
 */
#pragma once

#include "onnx/graph.h"
#include "onnx/model.h"
#include "quantize/plan.h"

typedef enum oq_convert_to {
    OQ_TO_FLOAT,
    OQ_TO_QDQ,
    OQ_TO_QOPERATOR,
    OQ_TO_NBITS,
    OQ_TO_BLOCKS, /* DequantizeLinear in blocks in place of packed weights; all else stays */
    OQ_TO_UINT8,  /* weights of uint8 in place of int8 in ConvInteger; all else stays */
} oq_convert_to;

/* What becomes of the bounds of a quantized tensor, when it is float again. */
typedef enum oq_convert_clips {
    OQ_CLIPS_AUTO, /* a range from 0 on, of values that may be negative, is a Relu that quantization
                    * took away; one between round numbers a Clip */
    OQ_CLIPS_ALL,  /* every range is a Clip */
    OQ_CLIPS_NONE
} oq_convert_clips;

typedef struct oq_convert_job {
    oq_model *model; /* changed in place; its nodes come after what they read */
    oq_convert_to to;
    oq_convert_clips clips;
    bool lossy;       /* convert also what has no exact counterpart */
    bool partial;     /* what has no operator in the new form keeps its pairs */
    bool with_blocks; /* the plan has rows of weights in blocks, with all their scales */
    /* To blocks: which nodes; NULL: all that can. */
    bool (*takes)(const void *ctx, const oq_index *ix, const oq_node *n);
    const void *takes_ctx;
    /* Not NULL: of the nodes that can be converted, those which it removes; the others stay. */
    const oq_plan *asked;
    oq_plan *plan; /* filled: a row for each node that was converted, and for each tensor that has
                    * parameters */

    /* results */
    size_t n_operators; /* quantized operators that were replaced */
    size_t n_pairs;     /* QuantizeLinear and DequantizeLinear that were removed */
    size_t n_weights;   /* quantized constants that are float now */
    size_t n_clips;     /* Relu and Clip that were restored */
    size_t n_kept;      /* at inputs and outputs of the model, whose types stay */
    size_t n_left;      /* nodes that `asked` leaves as they are */
    size_t n_stay;     /* operators that keep their pairs, because the new form has none for them */
    size_t n_lossy;    /* operators whose counterpart is not exact */
    oq_str lossy_node; /* the first of them, and why */
    const char *lossy_why;
} oq_convert_job;

/* Converts. An operator that has no exact counterpart is ONQ_E_UNSUPPORTED with its name, unless the
 * job allows it; one whose parameters contradict each other is ONQ_E_INVALID. */
onq_code oq_convert_run(oq_convert_job *job, onq_error *err);
