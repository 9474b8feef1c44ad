/*
 * bench_compare.h — the models of `onq bench`, and how near their outputs are to the first one's.
 */
#pragma once

#include "api/bench/bench_decode.h"
#include "api/bench/bench_flight.h"
#include "api/bench/bench_why.h"
#include "api/bench/labels.h"
#include "api/gate.h"
#include "engine/sweep.h"
#include "samples/sequence/tally.h"

typedef struct oq_bench_contender {
    const char *path;
    oq_model *model;
    oq_session *session;
    oq_session *forced; /* of the same model, for steps with the first model's states; or NULL */
    oq_source *source, *complete; /* raw steps where it has states; NULL: not opened */
    const oq_walker *walker;      /* of a model with states; they are its own */
    uint64_t size_bytes;          /* of the file and its external data */
    double load_seconds;
    OQ_VEC(double) times; /* seconds, one a run */
    double total;
    oq_tally tally;       /* against the first model */
    size_t *counterparts; /* by output of the first model; SIZE_MAX: it has none */
    size_t *order;        /* of the outputs, worst first */
    uint64_t rows, right; /* with labels: seen, and as they say */
    oq_bench_why why;     /* it may be slower than float */
    oq_bench_flight flight;
    oq_bench_decode decode;
} oq_bench_contender;

typedef struct oq_bench {
    oq_job *job;
    oq_engine *engine;
    oq_bench_contender *v;
    size_t n;
    uint64_t n_samples;
    oq_roles roles;     /* of the first model's inputs and outputs */
    oq_labels labels;   /* v NULL: none */
    oq_targets targets; /* --target */
} oq_bench;

/* The model with its samples and states. */
oq_sweep_model oq_bench_model(const oq_bench_contender *c);
/* Runs all models over all samples, side by side, and fills their tallies. Models with states go
 * through sequences with their own, and once more with those of the first. */
onq_code oq_bench_compare(oq_bench *b, onq_error *err);
void oq_bench_compare_close(oq_bench_contender *c);
