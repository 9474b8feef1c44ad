/*
 * calibrate.h — ranges of a model's tensors, from samples.
 *
 * One call gives the ranges (the static quantizer, `onq calibrate`):
 *
 *     oq_cal_options o;
 *     oq_cal_defaults(&o, OQ_CAL_ENTROPY);
 *     oq_cal_job job = {.model = m, .engine = engine, .source = source, .options = &o};
 *     OQ_TRY(oq_calibrate(&job, &ranges, err));
 *
 * What is calibrated follows the reference (select_tensors_to_calibrate): inputs and outputs of the
 * main graph's nodes (of the operators named, or of all; with `inner`, of the graphs inside nodes
 * too) that onnx's shape inference knows to be float or float16 tensors and that are not
 * initializers. The ranges equal the reference's bit for bit when the runtime's values do
 * (optimisation off, its own number of threads).
 *
 * Memory does not grow with the samples: each tensor is folded into its collector while the model
 * runs. A histogram needs the range of all samples. If they fit into `memory` they are kept for
 * that; else they are counted over the range so far once that seems to have stopped growing, and
 * run a second time where it had not; the result is the same. A caller that needs only the ends of
 * the ranges (`bounds_only`) gets most of them without counting. Several samples run at once, which
 * does not change a bit either.
 */
#pragma once

#include "calibrate/extents.h"
#include "calibrate/ranges.h"
#include "engine/engine.h"
#include "samples/record.h"
#include "samples/sequence/seq_walk.h"
#include "shape/shape.h"

typedef enum oq_cal_scenario { OQ_CAL_SAME = 0, OQ_CAL_P3 = 1 } oq_cal_scenario;

typedef struct oq_cal_options {
    oq_cal_method method;
    const oq_str *op_types; /* tensors of these operators only */
    size_t n_op_types;      /* 0: of all operators */
    bool symmetric;         /* MinMax, Percentile */
    bool moving_average;    /* MinMax */
    double averaging_constant;
    bool per_channel;                      /* MinMax: one range for each index of axis 1 */
    uint64_t num_bins, num_quantized_bins; /* histograms; Entropy */
    double percentile;                     /* Percentile: 0 to 100 */
    oq_cal_scenario scenario;              /* Distribution */
    /* Fold every so many samples as one collect_data call would (CalibStridedMinMax); 0: all as
     * one. */
    uint64_t stride;
    /* Bytes of activations that may be kept, and that samples running at once may add; 0: none.
     * OQ_CAL_MEMORY_AUTO: 48 MiB. */
    uint64_t memory;
    uint64_t jobs; /* samples that run at once; 0: as many as there are threads and memory for */
    bool inner;    /* tensors inside If, Loop and Scan too; one that is never seen gets no range */
    /* Only `lowest` and `highest` are asked for, to the same bits: what a method keeps besides is
     * not computed, and samples need not be counted where the ends do not depend on that. */
    bool bounds_only;
    /* The optimised graph, and `only` or what is left of the tensors when Relu and Clip lose
     * theirs. */
    bool fast;
    const oq_str *only; /* names to observe, a subset of the selection; NULL: all of it */
    size_t n_only;
} oq_cal_options;

#define OQ_CAL_MEMORY_AUTO UINT64_MAX

/* create_calibrator's defaults for the method (Percentile is symmetric; quantize_static's
 * callers say otherwise themselves), memory AUTO. */
void oq_cal_defaults(oq_cal_options *o, oq_cal_method method);
/* ONQ_E_OPTION when a value is out of the range that the reference accepts. */
onq_code oq_cal_check(const oq_cal_options *o, onq_error *err);
/* True if the samples are read once, whatever they hold. */
bool oq_cal_reads_once(const oq_cal_options *o);

typedef struct oq_cal_job {
    oq_model *model;
    const oq_shapes *shapes; /* what onnx infers of the model; NULL: inferred here */
    oq_engine *engine;
    oq_source *source; /* opened for this model; read from its beginning, more than once */
    const oq_cal_options *options;
    /* How sessions are made: provider and custom_ops are taken; the rest is set here. The number
     * of threads inside an operator is the runtime's own: the result must not depend on
     * --threads. */
    oq_session_options session;
    /* State is saved here and taken up again; NULL: nowhere. Who has kept the result removes the
     * file. */
    const char *checkpoint;
    /* What MinMax sees of the observed tensors is remembered here, by the numbers that the source
     * gives its samples; where all of it is there already, nothing runs. Methods and options that
     * ask for more neither read nor fill it. Or NULL. */
    oq_extent_memory *extents;
    oq_record *first; /* empty; gets the runs of the first samples that it wants. Or NULL */
    /* The source gives raw steps (samples/sequence/steps.h), and the calibration walks along with
     * the model that it observes; NULL: samples are complete. */
    const oq_walker *walker;
} oq_cal_job;

/* Runs the samples and finds the ranges. `out` is initialised by the call; release it after
 * success. */
onq_code oq_calibrate(const oq_cal_job *job, oq_ranges *out, onq_error *err);

/*
 * The same in portions, each of which is what one collect_data call of the reference gets: all
 * portions of a histogram method are counted in one histogram, which grows; MinMax joins the ranges
 * of the portions (merge_range).
 */
typedef struct oq_calibration oq_calibration;

/* Copies the job, whose source is not used, and its options; what they name must live as long. */
onq_code oq_calibration_open(const oq_cal_job *job, oq_calibration **out, onq_error *err);
/* Runs all samples of the source. No sample is ONQ_E_INVALID; for MinMax only in the first portion,
 * as in the reference. After a failure a histogram method takes no more portions. */
onq_code oq_calibration_collect(oq_calibration *c, oq_source *source, onq_error *err);
/* The ranges so far. `out` is initialised by the call; release it after success. */
onq_code oq_calibration_result(oq_calibration *c, oq_ranges *out, onq_error *err);
void oq_calibration_close(oq_calibration *c);

/*
 * A share of the samples. A histogram needs the extent of all samples: a share of a histogram
 * method measures all of them (`all`) and counts its own, unless `ranges` has the parts of a range
 * pass, in which every share measured its own (`range_only`).
 */
typedef struct oq_cal_part {
    uint64_t share, n_shares; /* the job's source gives these samples only */
    uint64_t total;           /* samples of all shares */
    oq_source *all;           /* all samples; may be NULL when ranges are given, and for MinMax */
    bool range_only;
    const char *const *ranges;
    size_t n_ranges;
} oq_cal_part;

/* Runs a share and writes the part (partial.h) to `path`. */
onq_code oq_calibrate_part(const oq_cal_job *job, const oq_cal_part *part, const char *path,
                           onq_error *err);
/* Joins the parts of all shares to the result: no model, no samples. */
onq_code oq_calibrate_join(const onq_env *env, const char *const *paths, size_t n, oq_ranges *out,
                           onq_error *err);
