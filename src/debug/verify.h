/*
 * verify.h — checks a quantized model as its users will run it: whether it loads with the runtime's
 * default options, whether it runs, whether its outputs are finite, and how far they are from the
 * float model's.
 */
#pragma once

#include "engine/engine.h"
#include "engine/sweep.h"
#include "samples/grade.h"
#include "samples/record.h"
#include "samples/source.h"

typedef enum oq_verify_end {
    OQ_VERIFY_GOOD = 0,
    OQ_VERIFY_NOT_LOADED,
    OQ_VERIFY_NOT_RUN,    /* loaded, and the run failed */
    OQ_VERIFY_NOT_FINITE, /* NaN or infinity where the float model gave a number */
} oq_verify_end;

typedef struct oq_verdict {
    oq_verify_end end;
    onq_error why; /* unless GOOD: the runtime's words, or the output concerned */
    bool ran;
    bool measured;       /* there were outputs to compare */
    double sqnr;         /* dB over all runs, of the output that is worst */
    double cosine;       /* the least of any output */
    oq_str output;       /* its name, a view of the model */
    size_t n_outputs;    /* compared */
    size_t n_runs;       /* of the record */
    double seconds;      /* of the fastest of them */
    uint64_t rows, same; /* of the first output that has rows of scores: how many, and how many have
                          * their largest where float has it */
    size_t n_states;     /* outputs that are states, and not judged */
    bool speaks;         /* a language model, and this is its score: */
    oq_lm_score text;
} oq_verdict;

/* Opens a session as `how` says (model, provider, custom operators, level) and runs the record, if
 * it has runs. What the runtime refuses is a verdict; an error is something else that failed
 * (memory, a cancelled job, a file that cannot be read). */
onq_code oq_verify(oq_engine *e, const oq_session_options *how, const oq_record *r, oq_verdict *v,
                   onq_error *err);

/* Fills the record with runs of a model, as `how` says, on the first samples of the source. */
onq_code oq_verify_record(oq_engine *e, const oq_session_options *how, oq_source *source,
                          oq_record *r, onq_error *err);

/* The sweep fills the record, which becomes its `ctx`. */
void oq_verify_fill(oq_sweep *s, oq_record *r);

/* "does not load", "does not run", ... */
const char *oq_verify_text(oq_verify_end end);

/* For a word (samples/grade.h). The verdict is borrowed. */
oq_graded oq_verify_graded(const oq_verdict *v, double floor);
