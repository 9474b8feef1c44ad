/*
 * quant_result.h — what all quantizing commands do alike once the model is quantized: check,
 * verify, write, tell.
 */
#ifndef OQ_API_QUANT_RESULT_H
#define OQ_API_QUANT_RESULT_H

#include "api/command.h"
#include "debug/mend.h"
#include "engine/engine.h"
#include "quantize/config.h"
#include "quantize/plan.h"

/* What the look at the result found. */
typedef struct oq_verified {
    const char *skipped; /* why there was none, or NULL */
    bool loaded;
    oq_verdict verdict;
    oq_mend_nodes left; /* float, for the rest to be good */
    double seconds;
} oq_verified;

typedef struct oq_quant_result {
    oq_job *job;
    oq_model *model;
    oq_plan *plan;
    const char *format; /* "qdq", "qoperator", "dynamic" */
    oq_engine **engine; /* opened for the look at the result when it is NULL in there */
    bool external;      /* weights go to a file of their own */
    uint64_t size_before, size_after;
    bool has_external; /* the input keeps weights outside */

    /* Quantizes `model`; called again, on the model as it was, when nodes are to be left float. */
    onq_code (*quantize)(void *ctx, onq_error *err);
    void *ctx;
    oq_qconfig *config; /* what `quantize` goes by; NULL: no node can be left float */
    unsigned modes;     /* of oq_qmode: operators it quantizes by default */
    bool fixed_ranges;  /* outputs on inputs that were made up say nothing of the accuracy */
    oq_record record;   /* of a calibration; else of one run before `quantize` */
    oq_verified verified;
} oq_quant_result;

/* Size of the model as it was opened, external data counted. */
onq_code oq_quant_measure(oq_quant_result *r, onq_error *err);
/* Quantizes, checks the result and looks at it in the runtime: always with --verify, never with
 * --no_verify, else where a runtime is found and the model is small enough for it to cost little. A
 * node that keeps the result from loading or running is left float, with a warning; where that does
 * not help it is an error. Outputs that are far from float's are warned of. */
onq_code oq_quant_make(oq_quant_result *r, onq_error *err);
/* The figures of that look, for the summary. */
void oq_quant_tell_verified(const oq_quant_result *r);
/* The end of every quantization: writes the result unless it is a --dry_run, writes the --plan, and
 * tells, as text and JSON. `begin` is when the job began, `calibration` the seconds spent on that
 * (negative: none). */
onq_code oq_quant_end(oq_quant_result *r, double begin, double calibration, onq_error *err);
/* The code `rc` of a job. The input is named in its error unless that is about another file. */
onq_code oq_quant_blame(const oq_quant_result *r, onq_code rc, onq_error *err);
/* Warns of nodes that stayed float for the type of their numbers, and says what to do. */
void oq_quant_warn_types(const oq_quant_result *r);

#endif
