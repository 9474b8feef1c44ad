/*
 * plan.h — what a quantizer decides and why, as a plain table.
 *
 * One row for every node of the graphs that are quantized, one for every tensor that gets
 * parameters. A driver fills the rows while it decides, before the model is changed; what it then
 * writes is what the rows say. `--plan FILE` writes the table as JSON, the summary counts it, and
 * `--from_plan FILE` takes decisions from such a file instead of options and samples (plan_read.h).
 */
#pragma once

#include "base/map.h"
#include "base/text/json.h"
#include "base/vec.h"
#include "onnx/dtype.h"

typedef enum oq_plan_fate {
    OQ_FATE_FLOAT = 0, /* left as it is */
    OQ_FATE_QUANTIZED,
    OQ_FATE_REMOVED /* folded into the node before it */
} oq_plan_fate;

/* Who left a node float. */
typedef enum oq_plan_by {
    OQ_BY_RULE = 0, /* the operator's rule, seeing the tensors around the node */
    OQ_BY_CHOICE,   /* lists of names and types, or a plan that was read */
    OQ_BY_SAMPLES   /* no sample ran it */
} oq_plan_by;

typedef struct oq_plan_node {
    oq_str name, op_type;
    oq_str output; /* its first one: distinguishes nodes without a name */
    oq_plan_fate fate;
    oq_plan_by by;   /* of what is left float */
    const char *why; /* "" when there is nothing to say */
    /* Weights of few bits (nbits.h): how its weight is quantized. */
    unsigned bits;  /* 0: another mode */
    uint64_t block; /* 0: a whole column */
    oq_str method;  /* empty: that of all */
    bool symmetric;
    int64_t accuracy_level;
} oq_plan_node;

typedef enum oq_plan_role { OQ_ROLE_ACTIVATION = 0, OQ_ROLE_WEIGHT, OQ_ROLE_BIAS } oq_plan_role;

typedef struct oq_plan_tensor {
    oq_str name;
    oq_plan_role role;
    oq_dtype type;
    int64_t axis;   /* -1: per tensor */
    uint64_t block; /* 0: no blocks */
    /* Of a conversion: blocks along the axis, indices after it, the rank of the weight. */
    uint64_t blocks, inner;
    size_t rank;
    const float *scale; /* n of them; NULL for what is left float or computed later */
    const int32_t *zero;
    uint64_t n;
    oq_str same_as;  /* shares the parameters of this tensor; empty: its own */
    bool computed;   /* its parameters are computed while the model runs */
    bool converted;  /* the second type of a mixed-precision boundary */
    bool adjusted;   /* a weight's scale that was raised for an int32 bias */
    const char *why; /* where the parameters come from, or why there are none */
} oq_plan_tensor;

/* A float node whose weight ONNX Runtime quantizes again (ort_forms.h). */
typedef struct oq_plan_requantized {
    oq_str node;
    double sqnr; /* of its weight then, in dB */
} oq_plan_requantized;

typedef struct oq_plan {
    oq_arena *arena;
    OQ_VEC(oq_plan_node) nodes;
    OQ_VEC(oq_plan_tensor) tensors;
    size_t n_bias_saturated;  /* biases that passed the range of int32 */
    size_t n_weight_adjusted; /* weights whose scale was raised for an int32 bias */
    size_t n_unknown_type;    /* tensors left alone because their type is not known */
    size_t n_not_run;         /* nodes of inner graphs that no sample ran, left float for that */
    size_t n_float_constants; /* weights in Constant nodes that stay float */
    size_t n_unclipped;       /* Relu and Clip that went although the range reaches further */
    size_t n_tiny_biases;     /* float16 biases whose scale would be too small for float16 */
    oq_str tiny_bias;         /* the first of them */
    size_t n_bfloat16;        /* nodes that read bfloat16 as before */
    oq_plan_node bfloat16;    /* the first of them */
    OQ_VEC(oq_plan_requantized) requantized;
    size_t n_kept_float;    /* float nodes that are protected from that */
    size_t n_kept_products; /* biases written so that a product stays one of integers */
} oq_plan;

/* Why an operator stays float in every model. */
#define OQ_WHY_MODE "not supported in this mode"
/* Why a GRU or RNN does: measured, see docs/guides/state.md. */
#define OQ_WHY_RECURRENT                                                                           \
    OQ_WHY_MODE ": the runtime has no integer kernel for it, and with the product of its input "   \
                "taken out in integers it takes 1.6 to 1.9 times as long"
/* Why a Relu or Clip goes. */
#define OQ_WHY_REMOVED "made redundant by the quantized range"
/* Reasons that a command has advice for. */
#define OQ_WHY_HALF  "its values are float16, this operator is quantized in float32 only"
#define OQ_WHY_EMPTY "its weight is empty"
#define OQ_WHY_OTHER "its values are bfloat16 or double, neither is quantized"
/* Of two formats. */
#define OQ_WHY_BIAS "its bias exceeds int32 at the scale of its computed weight"
/* Of a weight (saturate.h). */
#define OQ_WHY_NARROWED "scale raised: two products would pass 16 bits"
/* A look at the result found it to be at fault. */
#define OQ_WHY_UNSOUND "quantized, the model did not load or run"

void oq_plan_init(oq_plan *p, oq_arena *arena);
/* Nodes left float for that reason; *first is the first of them, or NULL. */
size_t oq_plan_count_why(const oq_plan *p, const char *why, const oq_plan_node **first);
bool oq_plan_add_node(oq_plan *p, oq_plan_node row);
bool oq_plan_add_tensor(oq_plan *p, oq_plan_tensor row);
/* The same with one scale and zero point, which the plan keeps. */
bool oq_plan_add_scalar(oq_plan *p, oq_plan_tensor row, float scale, int32_t zero);

/* "quantized", "removed", "float". */
const char *oq_fate_name(oq_plan_fate fate);
const char *oq_plan_by_name(oq_plan_by by);
const char *oq_plan_role_name(oq_plan_role role);

/* {"nodes": [...], "tensors": [...]} as members of the object that is open. */
void oq_plan_json(const oq_plan *p, oq_jw *w);

/* Counts by operator type and reason, for the summary. */
typedef struct oq_plan_count {
    oq_str op_type;
    const char *why;
    oq_plan_fate fate;
    size_t n;
} oq_plan_count;
typedef OQ_VEC(oq_plan_count) oq_plan_counts;
/* In order of operator type, then fate, then reason. */
onq_code oq_plan_summary(const oq_plan *p, oq_arena *a, oq_plan_counts *out, onq_error *err);
/* The same as lines of text: "Conv: 3 quantized; 1 left float (in nodes_to_exclude)". */
void oq_plan_text(const oq_plan_counts *counts, oq_buf *out);
