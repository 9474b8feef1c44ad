/*
 * quantization.h — what every quantizing command has and does alike: it opens a model, makes it
 * what the quantizer will see, quantizes, looks at the result, writes it and reports.
 *
 *     oq_quant q;
 *     oq_quant_init(&q, job, "dynamic", quantize, &q);
 *     rc = ... oq_quant_open, oq_quant_infer, oq_quant_raise, oq_quant_make, oq_quant_end
 *     rc = oq_quant_blame(&q, rc, err);
 *     oq_quant_release(&q);
 */
#pragma once

#include "api/gate.h"
#include "api/options/command.h"
#include "api/quantizing/for_runtime.h"
#include "api/quantizing/quant_input.h"
#include "calibrate/ranges.h"
#include "debug/mend.h"
#include "engine/engine.h"
#include "quantize/choose/qrun.h"
#include "quantize/cost/share.h"
#include "quantize/override/override.h"
#include "quantize/plan.h"
#include "shape/shape.h"

/* What the look at the result found. */
typedef struct oq_verified {
    const char *skipped; /* why there was none, or NULL */
    bool loaded;
    oq_verdict verdict;
    oq_mend_nodes left; /* float, for the rest to be good */
    double seconds;
    double confidence; /* of float in its first class, on average; NaN: not known */
    oq_share share;    /* of the model that is in integers now */
} oq_verified;

typedef struct oq_quant {
    oq_job *job;
    const char *format; /* "qdq", "qoperator", "dynamic" ... */
    oq_model *model;
    oq_shapes *shapes; /* what onnx infers of the model as it is now; NULL: not asked for yet */
    const oq_model_proto *typed; /* what `shapes` is about */
    oq_qconfig config;
    oq_qrun run; /* its choices are `config` */
    oq_overrides overrides;
    oq_ranges ranges;
    bool has_ranges;
    oq_plan plan;
    oq_engine *engine; /* NULL until one is opened */
    oq_quant_input input;

    /* Quantizes the model; called again, on the model as it was, when nodes are to be left
     * float. */
    onq_code (*quantize)(void *ctx, onq_error *err);
    void *ctx;
    unsigned modes;    /* of oq_qmode: operators it quantizes by default; 0: it goes by no list, and
                        * no node can be left float */
    bool weights_only; /* what is computed stays float */
    bool changed;      /* the model, in a way that the plan has no rows for */
    bool fixed_ranges; /* outputs on inputs that were made up say nothing of the accuracy */
    oq_record record;  /* of a calibration; else of runs before `quantize` */
    bool keep_record;  /* it is needed after oq_quant_make */
    oq_verified verified;
    oq_runtime_fitted fitted; /* --for_runtime */
    oq_targets targets;       /* --target */

    bool external;                     /* weights go to a file of their own */
    bool has_external;                 /* the input keeps weights outside */
    double begin, seconds_calibration; /* when it began; negative: no calibration */
    uint64_t size_before, size_after;
} oq_quant;

void oq_quant_init(oq_quant *q, oq_job *job, const char *format,
                   onq_code (*quantize)(void *ctx, onq_error *err), void *ctx);
void oq_quant_release(oq_quant *q);

/* Opens the input, checks and measures it, and lifts constants where --lift_constants says so.
 * `trained`: pairs of QuantizeLinear are what is wanted. */
onq_code oq_quant_open(oq_quant *q, bool trained, onq_error *err);
/* Infers types and shapes and writes them into the model; call it when the model has changed. */
onq_code oq_quant_infer(oq_quant *q, onq_error *err);
/* The same without writing, and only if `shapes` is about another state of the model. */
onq_code oq_quant_see_types(oq_quant *q, onq_error *err);
/* Raises the opset to what the result needs in this mode (of oq_qmode), and infers again then. */
onq_code oq_quant_raise(oq_quant *q, unsigned mode, onq_error *err);

/* Keeps the float outputs of the first samples for that look now, before the float model itself is
 * changed. Nothing is kept where there are no samples or no look is wanted. */
onq_code oq_quant_keep_float(oq_quant *q, onq_error *err);
/* Quantizes, checks the result and looks at it in the runtime: always with --verify, never with
 * --no_verify, else where a runtime is found and the model is small enough for it to cost little. A
 * node that keeps the result from loading or running is left float, with a warning; where that does
 * not help it is an error. Outputs that are far from float's are warned of. Finds the share of what
 * is in integers. */
onq_code oq_quant_make(oq_quant *q, onq_error *err);
/* Whether outputs were compared that say something of the accuracy, and are poor. */
bool oq_quant_is_poor(const oq_quant *q);
/* Finds what part of the model is in integers now; `source` is the model before it was quantized,
 * and is changed. */
onq_code oq_quant_find_share(oq_quant *q, oq_model_proto *source, onq_error *err);
/* Commands that may follow. */
typedef enum oq_quant_next {
    OQ_NEXT_AUTO,
    OQ_NEXT_DEBUG,
    OQ_NEXT_BENCH,
    OQ_NEXT_END
} oq_quant_next;
/* Adds such a command, ready to be typed; false, and nothing, where it could not do its job: a
 * model is in no file, or there are no samples that auto could search with (quant_next.c). */
bool oq_quant_add_next(const oq_quant *q, oq_quant_next which, oq_buf *b);
/* The model is a decoder with states: its speed is two figures, of a text at once (prefill) and of
 * each token after it. */
bool oq_quant_decodes(const oq_quant *q);
/* Warns of poor outputs (quant_judge.c). */
void oq_quant_advise(const oq_quant *q);
/* The figures, what they mean and what to do next, for the summary. */
void oq_quant_tell_verified(const oq_quant *q);
/* Fails where a --target could not be measured, or with --strict was not reached. */
onq_code oq_quant_check_targets(const oq_quant *q, onq_error *err);
/* The end of every quantization: writes the result unless it is a --dry_run, writes the --plan, and
 * reports, as text and JSON. */
onq_code oq_quant_end(oq_quant *q, onq_error *err);
/* oq_job_blame, if the model was opened. */
onq_code oq_quant_blame(const oq_quant *q, onq_code rc, onq_error *err);
/* Warns of nodes that stayed float because of the type of their tensors, and says what to do. */
void oq_quant_warn_types(const oq_quant *q);
