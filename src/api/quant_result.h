/*
 * quant_result.h — what all quantizing commands do alike once the model is quantized: check,
 * verify, write, tell.
 */
#ifndef OQ_API_QUANT_RESULT_H
#define OQ_API_QUANT_RESULT_H

#include "api/command.h"
#include "engine/engine.h"
#include "quantize/plan.h"

typedef struct oq_quant_result {
    oq_job *job;
    oq_model *model;
    const oq_plan *plan;
    const char *format; /* "qdq", "qoperator", "dynamic" */
    oq_engine **engine; /* opened for --verify when it is NULL in there */
    bool external;      /* weights go to a file of their own */
    uint64_t size_before, size_after;
    bool has_external; /* the input keeps weights outside */
} oq_quant_result;

/* Size of the model as it was opened, external data counted. */
onq_code oq_quant_measure(oq_quant_result *r, onq_error *err);
/* The end of every quantization: checks the result, loads it in the runtime (--verify), writes it
 * unless it is a --dry_run, writes the --plan, and tells, as text and JSON. `begin` is when the job
 * began, `calibration` the seconds spent on that (negative: none). */
onq_code oq_quant_end(oq_quant_result *r, double begin, double calibration, onq_error *err);
/* The code `rc` of a job. The input is named in its error unless that is about another file. */
onq_code oq_quant_blame(const oq_quant_result *r, onq_code rc, onq_error *err);
/* Warns of nodes that stayed float for the type of their numbers, and says what to do. */
void oq_quant_warn_types(const oq_quant_result *r);
/* Seconds on a clock that only goes forward. */
double oq_quant_now(void);

#endif
