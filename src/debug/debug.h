/*
 * debug.h — where a quantized model loses its accuracy.
 *
 * A float model and its quantized model are matched tensor by tensor (match.c), weights are
 * dequantized and compared (weights.c), both models run over the same samples and their tensors are
 * compared as they pass (activations.c), and what was found is put in order with a reason in words
 * (rank.c). report.c writes the page, debug_text.c the text and the
 * JSON.
 *
 *     oq_debug d;
 *     oq_debug_init(&d, env, float_model, quantized_model);
 *     OQ_GO(oq_debug_match(&d, err));
 *     OQ_GO(oq_debug_weights(&d, err));
 *     OQ_GO(oq_debug_activations(&d, &run, err));   (with samples only)
 *     OQ_GO(oq_debug_rank(&d, err));
 *     oq_debug_json(&d, &writer);
 *     oq_debug_release(&d);
 *
 * Matching follows the reference's create_weight_matching and create_activation_matching by name,
 * and goes on where that ends: integer operators, weight-only blocks, and the place in the graph
 * where names differ. Memory: the quantized tensors of the samples that run at once, whatever
 * the number of samples.
 */
#pragma once

#include "base/text/json.h"
#include "base/vec.h"
#include "debug/measure/sums.h"
#include "engine/engine.h"
#include "onnx/graph.h"
#include "samples/columns.h"
#include "samples/grade.h"
#include "samples/sequence/tally.h"
#include "samples/source.h"

#define OQ_DEBUG_BINS 64   /* of the histograms */
#define OQ_DEBUG_HUGE 1e30 /* values beyond are those of a mask: their squares pass a float */

/* How the values of a quantized weight are laid out. */
typedef enum oq_debug_layout {
    OQ_DEBUG_AFFINE =
        0,           /* as DequantizeLinear: per tensor, per channel or in blocks along an axis */
    OQ_DEBUG_PAIR,   /* a float initializer in front of QuantizeLinear and DequantizeLinear */
    OQ_DEBUG_NBITS,  /* MatMulNBits: [N][blocks][bytes] */
    OQ_DEBUG_BNB4,   /* MatMulBnb4: FP4 or NF4, flat blocks */
    OQ_DEBUG_PACKED, /* GatherBlockQuantized over uint8: 4 or 8 bits packed along the last axis */
} oq_debug_layout;

/* Two histograms over one range; what lies outside counts in the first and last bin. */
typedef struct oq_debug_hist {
    float lo, hi;
    uint32_t *flt, *quantized; /* OQ_DEBUG_BINS each; NULL: not wanted */
} oq_debug_hist;

/* Why something is where it is in the ranking. */
typedef enum oq_debug_reason {
    OQ_DEBUG_FINE = 0,
    OQ_DEBUG_SCALE_WRONG, /* loses far more than its type must, and nothing is clipped */
    OQ_DEBUG_CLIPPED,     /* values lie outside of the range */
    OQ_DEBUG_WIDE,        /* the range is far wider than what is used */
    OQ_DEBUG_OUTLIERS,    /* few large values stretch the range */
    OQ_DEBUG_CHANNEL,     /* one channel stretches the range of all */
    OQ_DEBUG_SKEWED,    /* half of the range is never used: symmetric around zero, values are not */
    OQ_DEBUG_SMALL,     /* the values are smaller than the least range a quantizer gives */
    OQ_DEBUG_BIAS,      /* a bias that passed the range of int32 */
    OQ_DEBUG_FEW_BITS,  /* the type has too few steps for these values */
    OQ_DEBUG_INHERITED, /* the loss came in from before */
    OQ_DEBUG_BELOW_STEP, /* a bias whose error is half a step of its sums: harmless */
    OQ_DEBUG_MASK,       /* values of a mask stretch the range; the others are lost */
    OQ_DEBUG_NOT_FINITE, /* NaN or infinity came out where float has numbers */
    OQ_DEBUG_REASONS
} oq_debug_reason;

/* What ranks: a weight or an activation. */
typedef struct oq_debug_verdict {
    double score; /* dB; the lowest is the worst */
    double own;   /* dB lost here: of the weight, or of the float tensor through this quantizer */
    double
        effect; /* dB the outputs keep when the node of this is all that is quantized, if a search
                    * measured it; else NAN */
    double excess; /* dB lost beyond what type and values make necessary */
    oq_debug_reason reason;
    uint32_t rank; /* from 1 */
} oq_debug_verdict;

typedef struct oq_debug_weight {
    oq_str name;           /* in the float model */
    oq_str quantized_name; /* of the quantized initializer */
    oq_str op, node;       /* that uses it */
    oq_debug_layout layout;
    oq_tensor *flt, *quantized, *scale, *zero; /* zero may be NULL */
    oq_tensor *offsets; /* MatMulNBits: what blocks add beside it, [blocks][N]; or NULL */
    oq_tensor *scale2;  /* of a bias of an integer operator: scale x scale2; or NULL */
    int64_t axis;       /* -1: per tensor */
    uint64_t block;     /* 0: no blocks */
    int64_t bits, k, n; /* MatMulNBits, MatMulBnb4 */
    bool nf4;
    /* A BatchNormalization of the float model that was folded into it, or NULL. */
    const oq_node *norm;
    oq_tensor *norm_bias; /* the bias that was there before, or NULL */
    bool folds_bias;      /* this is the bias that came out of it */
    bool by_dq;           /* a DequantizeLinear of its own */
    bool out_rows;   /* outputs lie along the rows of the float weight: Gemm with transB, LSTM, a
                      * table */
    bool transposed; /* the quantized one is the transpose of the float one */
    uint32_t position;

    oq_dtype type;
    oq_sums sums;
    double sqnr;
    double rescaled; /* dB, where a method scaled its channels first, of what is left when that is
                      * undone; NAN: it did not */
    double reference_sqnr; /* the reference's, where its integers wrap around; NAN: the same */
    float lo, hi;          /* of the float values */
    double q_lo, q_hi;     /* representable; of the widest channel */
    double saturated;      /* share of values clipped */
    double ideal;          /* dB of a min-max scale of the same kind */
    uint64_t n_channels;   /* of the axis that is or could be per channel */
    float *channel_lo, *channel_hi;
    double *channel_sqnr;
    uint64_t worst_channel, largest_channel; /* that loses most; with the largest values */
    double spread; /* dB that its channels lose on the average beyond what the whole loses */
    bool per_channel;
    uint64_t pairs, hot_pairs; /* of products in one 16-bit sum; those that can pass it */
    oq_debug_hist hist;
    oq_debug_verdict verdict;
} oq_debug_weight;

typedef struct oq_debug_act {
    oq_str name;      /* as the reference calls it */
    oq_str pre, post; /* in the quantized model; pre.p == NULL: it has none in float */
    oq_str flt;       /* in the float model; p == NULL: not found */
    oq_str op;        /* that makes it in the quantized model */
    oq_str node;      /* that makes it in the float model; of an input, that reads it */
    bool integer;     /* post is the integer tensor itself */
    bool by_place;    /* matched by its place in the graph */
    bool always;      /* in the main graph: every sample shows it, once */
    bool plain_pair;  /* both nodes have the same parameters, so the input determines the output */
    oq_dtype type;
    float *scale; /* n of them */
    int32_t *zero;
    uint64_t n_params;
    int64_t axis;
    double q_lo, q_hi;
    uint32_t position;

    oq_sums qdq;                                  /* before and after quantization */
    oq_sums cross;                                /* float model and after quantization */
    oq_sums local;                                /* float model's values through this quantizer */
    float lo, hi;                                 /* of the float model's values; without, of pre */
    uint64_t clipped, seen;                       /* of the float model's values, without: of pre */
    float mask_below;                             /* values from here on are a mask's, and ... */
    bool mask_likely;                             /* the range begins there */
    uint64_t masked;                              /* ... so many; without them: */
    oq_sums rest_qdq, rest_cross;                 /* (only then); `local`, lo and hi always are */
    const char *trouble;                          /* why it could not be compared; NULL */
    double qdq_err, xmodel_err, local_err, ideal; /* NAN: not known */
    oq_debug_hist hist;
    oq_debug_verdict verdict;
    bool rescaled; /* next to a weight that a method scaled: not comparable with the float model */
    bool repeated; /* a loop makes it several times a sample: not compared with the float model */
} oq_debug_act;

typedef struct oq_debug_unmatched {
    oq_str name;
    bool weight;
    const char *why;
} oq_debug_unmatched;

/* A graph output of both models. */
typedef struct oq_debug_output {
    oq_str name;
    oq_sums plain;     /* float against the quantized model without optimisation */
    oq_sums optimised; /* and as the runtime optimises it, over the same samples; or nothing */
    uint64_t rows, same_plain; /* top-1 along the last axis */
    uint64_t rows_optimised, same_optimised;
    oq_columns columns; /* of float's: where they hold numbers, there is no top-1 */
    bool state;         /* it goes back into the model and is no answer */
} oq_debug_output;

/* The sums of an output that are judged. */
static inline const oq_sums *oq_debug_output_judged(const oq_debug_output *o) {
    return o->optimised.n > 0 ? &o->optimised : &o->plain;
}

/* How much of float's outputs one sample keeps. */
typedef struct oq_debug_sample {
    const char *name;
    uint64_t number;     /* its place among the samples, from 0 */
    double sqnr;         /* of the output that loses most; NAN: it has NaN or infinity */
    uint64_t rows, same; /* top-1 of the first output that has one */
} oq_debug_sample;

/* Of any number of samples the worst, first of all the worst of them, and how all are spread: so
 * many keep -20 dB or less, -19, ... 60 or more (worst.c). */
#define OQ_DEBUG_WORST      64
#define OQ_DEBUG_SPREAD     81
#define OQ_DEBUG_MIN_SPREAD (-20)
typedef struct oq_debug_worst {
    oq_debug_sample v[OQ_DEBUG_WORST];
    size_t n;
    uint64_t spread[OQ_DEBUG_SPREAD], measured;
} oq_debug_worst;

typedef struct oq_debug {
    onq_env *env;
    oq_model *flt, *quantized;
    oq_arena arena;
    oq_index float_index, quantized_index;
    OQ_VEC(oq_debug_weight) weights;
    OQ_VEC(oq_debug_act) acts;
    OQ_VEC(oq_debug_unmatched) unmatched;
    OQ_VEC(oq_debug_output) outputs;
    oq_debug_worst worst;
    oq_lm_score text; /* of a language model, without optimisation; else without rows */
    bool histograms;  /* wanted */
    uint64_t n_samples;
    bool has_kernel;                      /* the optimised run was done */
    uint64_t n_kernel;                    /* samples it had */
    bool cpu_saturates;                   /* this machine adds two products in 16 bits */
    const struct oq_debug_search *search; /* or NULL; ranking follows what it measured */
    const struct oq_debug_about *about;   /* what the report says of the run; or NULL */
    struct {
        const oq_tally *tally; /* along sequences of a model with states; or NULL */
        size_t output;         /* the answer that is shown, of the float model ... */
        oq_str name;
    } along;
    uint32_t *ranking; /* weights first: index, or weights.n + index of an activation */
    size_t n_ranking;
} oq_debug;

/* How activations are measured. */
typedef struct oq_debug_run {
    oq_engine *engine;
    oq_source *float_source, *quantized_source; /* the same samples for either model */
    oq_session_options session; /* threads, provider and custom operators are taken */
    const oq_roles *roles;      /* of the float model's inputs and outputs; NULL: by their names */
    bool kernel;                /* also run the quantized model as the runtime optimises it */
    unsigned jobs;              /* samples at once; 0: as many as there are cores and memory for */
    uint64_t memory;            /* bytes that samples that run at once may add to those of one */
    double began;               /* CPU seconds of the process when the command began */
} oq_debug_run;

void oq_debug_init(oq_debug *d, onq_env *env, oq_model *flt, oq_model *quantized);
void oq_debug_release(oq_debug *d);
onq_code oq_debug_match(oq_debug *d, onq_error *err);
onq_code oq_debug_weights(oq_debug *d, onq_error *err);
onq_code oq_debug_activations(oq_debug *d, const oq_debug_run *run, onq_error *err);
onq_code oq_debug_rank(oq_debug *d, onq_error *err);

/* "weights", "activations", "unmatched", ... as members of the object that is open. */
void oq_debug_json(const oq_debug *d, oq_jw *w);
/* The ranking, at most `most` rows (0: all), and what the kernels do. */
void oq_debug_text(const oq_debug *d, size_t most, oq_buf *out);
/* The page. */
onq_code oq_debug_report(const oq_debug *d, oq_buf *out, onq_error *err);

/* The fewest bits of any weight or activation, at most 32; biases have more. 8 if there is none. */
unsigned oq_debug_bits(const oq_debug *d);
/* dB below which its outputs are poor, and what they are, in a word. */
double oq_debug_floor(const oq_debug *d);
oq_grade oq_debug_grade(const oq_debug *d);
/* What is judged: the answers over all samples as the runtime optimises the model, where it was run
 * so, and otherwise without. */
oq_graded oq_debug_graded(const oq_debug *d);
/* Words for a reason, and what to try. */
const char *oq_debug_reason_text(oq_debug_reason r);
const char *oq_debug_reason_advice(oq_debug_reason r);
/* The output that loses most by the runtime's optimisation, or NULL; and the same if it is because
 * sums of two products saturate (kernels.c). */
const oq_debug_output *oq_debug_kernel_gap(const oq_debug *d);
const oq_debug_output *oq_debug_kernel_loss(const oq_debug *d);
void oq_debug_kernel_text(const oq_debug *d, oq_buf *out);
void oq_debug_kernel_json(const oq_debug *d, oq_jw *w);
bool oq_debug_sums_saturate_here(void);

/* Calls `fn` for the main graph and for every body of an If, Loop or Scan that both models have.
 * Meanwhile the indices of `d` are about that graph; those of a body look outwards. `holder` is the
 * node of the quantized model's main graph that the body is in; OQ_NO_NODE: it is the main graph. */
typedef onq_code (*oq_debug_graph_fn)(oq_debug *d, void *ctx, uint32_t holder, onq_error *err);
onq_code oq_debug_each_graph(oq_debug *d, oq_debug_graph_fn fn, void *ctx, onq_error *err);

/* ---- between the files of this folder ---- */

/* Takes a sample in, its name copied. */
onq_code oq_debug_worst_add(oq_debug *d, const oq_debug_sample *s, onq_error *err);
/* "worst_samples", and the line of the text. */
void oq_debug_worst_json(const oq_debug *d, oq_jw *w);
void oq_debug_worst_text(const oq_debug *d, oq_buf *out);
/* Adds a row to `unmatched`. */
onq_code oq_debug_leave(oq_debug *d, oq_str name, bool weight, const char *why, onq_error *err);
/* Where the tensors of one graph are in the other, when names differ (place.c). Both graphs are
 * indexed; the result gives, for a tensor of the quantized model, the tensor of the float model at
 * the same place. */
typedef struct oq_debug_places oq_debug_places;
onq_code oq_debug_places_build(oq_debug *d, oq_debug_places **out, onq_error *err);
/* p == NULL: none. */
oq_str oq_debug_place_of(const oq_debug_places *p, oq_str made_name);
/* Fills w->flt and its name from the node at the same place as `user`, which reads `used`; leaves
 * them NULL if there is no such node (folded.c). */
void oq_debug_float_by_place(const oq_debug *d, const oq_debug_places *p, const oq_node *user,
                             oq_str used, oq_debug_weight *w);
/* Matches the weights (match_weights.c) and the activations (match.c). */
onq_code oq_debug_match_weights(oq_debug *d, const oq_debug_places *p, onq_error *err);
/* Least and greatest integer of a type; false for types that are not integers. */
bool oq_debug_limits(oq_dtype t, double *lo, double *hi);
