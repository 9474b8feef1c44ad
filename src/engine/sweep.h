/*
 * sweep.h — runs the samples of a source through a model. The one place that reads samples, runs
 * them, names the sample in an error, reports progress and hears a cancel.
 *
 *     const oq_sweep sweep = {.env = env, .model = {.source = source, .session = session},
 *                             .take = take, .ctx = ctx, .what = "comparing"};
 *     rc = oq_sweep_run(&sweep, err);
 *
 * `take` gets each sample with its outputs, in the order of the samples. Several models may get the
 * same samples, each from a source of its own that fits its inputs: bench and debug compare so.
 *
 * Samples run one after another on the caller's thread, or several at once: each on a thread of its
 * own, in a *lane* whose sessions share the loaded model (oq_session_share). One sample seldom
 * keeps all cores busy; several do. A lane gets samples in the order of the source, but nobody
 * knows which lane gets which, or in which order they end. What `run` gathers by lane must be
 * joined in a way that does not depend on it; `take` goes through the samples in their order.
 *
 * Steps of a sequence (source.h) come complete, with the states of the model that the source walks
 * with, so most sweeps need not know of them. A model with a `walker` gets its own states instead,
 * and the tokens that the first model chooses where steps are generated. Then all steps of a
 * sequence run in one lane, in their order. `take` gets them there, sequences at once, and gathers
 * what they show in the *slot* of the sequence; `end` joins slots, in the order of the sequences.
 */
#pragma once

#include "base/env.h"
#include "engine/engine.h"
#include "engine/flight.h"
#include "samples/sequence/seq_walk.h"

typedef struct oq_sweep oq_sweep;

typedef struct oq_sweep_model {
    oq_source *source;
    const oq_sample *kept; /* samples in memory in place of a source, n_kept of them */
    uint64_t n_kept;
    oq_session *session; /* of the first lane; NULL: `run` has its own */
    const char *path;    /* the model's, for errors; NULL: they name the sample alone */
    /* The model goes through sequences with the states that it gives itself (seq_walk.h). NULL:
     * with those of the samples. */
    const oq_walker *walker;
    /* Its inputs are those of the first model, states included, by their names: what it would do if
     * it had made no error before. Not in the first step, where it would be no news. It takes the
     * samples of the first; no source is needed. */
    bool forced;
} oq_sweep_model;

/* Sequences that are begun and not yet joined. */
#define OQ_SWEEP_SLOTS 64

/* A sample whose turn it is. The arrays have one entry for each model. */
typedef struct oq_turn {
    const oq_sweep *sweep;
    uint64_t at;                 /* place of the sample in the pass, from 0 */
    unsigned lane;               /* 0: the caller's thread */
    unsigned slot;               /* of its sequence, where the sweep has whole ones */
    const oq_sample *samples;    /* as they were read; valid until `take` has returned */
    oq_sample *full;             /* as they ran, with states (set by oq_turn_run); valid as long */
    oq_session *const *sessions; /* of the lane */
    oq_outputs *outputs;         /* valid until the next run in this lane */
    double *seconds;             /* that the run took (set by oq_turn_run) */
    oq_walk *walks;              /* of models with a walker; NULL: there are none */
    oq_arena *arena;             /* for `full` */
} oq_turn;

struct oq_sweep {
    const onq_env *env;
    oq_sweep_model model;
    const oq_sweep_model *models; /* in place of it, n_models of them */
    size_t n_models;
    void *ctx; /* of the functions, each of which may be NULL */

    uint64_t from; /* place of the first sample in the pass */
    uint64_t n;    /* samples, and fewer are an error; 0: as many as there are */
    /* Asked before a sample is read; false ends the sweep. */
    bool (*more)(void *ctx, uint64_t at);

    /* Runs a sample, in one lane one at a time. NULL: oq_turn_run. */
    onq_code (*run)(void *ctx, const oq_turn *t, onq_error *err);
    /* After the run, for one sample after another in their order; a lane waits here for its turn.
     * Not called from the first sample on that failed. With whole sequences: for one step after
     * another of each. */
    onq_code (*take)(void *ctx, const oq_turn *t, onq_error *err);
    /* With whole sequences: the last step of the sequence in this slot was taken. For one after
     * another in their order, up to the first in which a step failed. */
    onq_code (*end)(void *ctx, unsigned slot, onq_error *err);

    /* How many may run at once is asked before each sample. 1: this one runs by itself, and the
     * question is put again. More: the rest runs in so many lanes. NULL: one after another, unless
     * `wide` says more. */
    onq_code (*lanes)(void *ctx, uint64_t at, unsigned *n, onq_error *err);
    /* The first sample runs alone, the others at once, as many as oq_flight_decide says; the sweep
     * opens and closes the sessions of the lanes. For models whose runs have no observer. */
    struct {
        const oq_model *model; /* NULL: no */
        unsigned jobs;
        uint64_t memory;
    } wide;

    /* All steps of a sequence run in one lane, in their order. Models with a walker imply it. */
    bool whole_sequences;

    const char *what; /* names the work in reports of progress; NULL: none is made */
    /* What is reported, where this is a part of longer work: `done` plus `each` for every sample
     * (0: 1), of `total` (0: the samples of this sweep). */
    uint64_t done, each, total;
};

/* Of several failures that of the first sample comes back; samples after it may have run or not.
 * Progress is reported on the caller's thread, before samples and at the end. */
onq_code oq_sweep_run(const oq_sweep *s, onq_error *err);

/* Runs the sample of a turn through the session of each model; its outputs are kept if somebody
 * takes them. */
onq_code oq_turn_run(const oq_turn *t, onq_error *err);
/* Runs one sample through a session. An error names the sample, after `path` if that is not NULL;
 * `out` may be NULL. */
onq_code oq_sample_run(oq_session *session, const char *path, const oq_sample *s, oq_outputs *out,
                       onq_error *err);
