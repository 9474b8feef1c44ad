/*
 * runner_parts.h — the state of a runner, between the files that make it up: runner_job.c (its
 * beginning, checkpoints, chunks), runner.c (samples that run), runner_fate.c (what becomes of
 * each).
 */
#pragma once

#include "calibrate/collect/ahead.h"
#include "calibrate/collect/keep.h"
#include "calibrate/method/method.h"
#include "calibrate/partial.h"
#include "calibrate/runner.h"
#include "engine/sweep.h"
#include "samples/sequence/past_look.h"

#include <pthread.h>

#define OQ_CAL_ALL UINT64_MAX /* samples, where their number is not known yet */

/* What became of a sample in the first pass. */
enum {
    OQ_SAMPLE_AHEAD, /* counted ahead */
    OQ_SAMPLE_KEPT,  /* kept */
    OQ_SAMPLE_NONE,  /* not to be counted: another share's */
    OQ_SAMPLE_AGAIN, /* not counted yet; also where nothing is noted */
};

typedef struct oq_fixed_tensor {
    size_t tensor; /* in the collector */
    const oq_datum *d;
} oq_fixed_tensor;

/* What one sample that runs needs for itself. */
typedef struct oq_lane {
    struct oq_runner *r;
    oq_collector *c; /* lane 0: the runner's; else `own` */
    oq_collector own;
    oq_session *session;
    /* Where the job has a walker: another of the same model. They take turns, so that the states of
     * one step stay where they are while the next runs. */
    oq_session *beside;
    bool turned; /* it is the turn of that */
    bool strays; /* a sample had another number than its source said */
    oq_observer observer;
    oq_keep keep;
    uint8_t fate;      /* of the running sample, in the first pass */
    uint64_t *adds_at; /* by number of the watched tensor: the last sample in which it was not
                        * negative, plus 1 */
    const oq_ahead_tensor *since; /* second pass: what is counted of it already; NULL: nothing */
    oq_walk walk;                 /* where the job has a walker */
} oq_lane;

struct oq_runner {
    const oq_cal_job *job;
    const oq_cal_part *part; /* or NULL */
    const onq_env *env;
    oq_arena arena;
    oq_collector c;
    oq_partial_meta meta;
    oq_str *names; /* observed */
    oq_dtype *types;
    uint64_t *bytes; /* 0: not known, or the order in which it is seen matters */
    size_t *tensors; /* their indices in the collector */
    size_t n_names;
    /* After `names` come those of the tensors that say how many zeros are around others. */
    size_t n_watched;
    size_t *watched;   /* by tensor in the collector: number of its watched tensor plus 1, or 0 */
    oq_str *all_names; /* of the collector's tensors */
    OQ_VEC(oq_fixed_tensor) fixed; /* outputs of Constant nodes: the same in every sample */
    bool recalled;                 /* the collector has all from memory: nothing runs */
    uint64_t *numbers;             /* of the samples, where what they have is remembered */
    oq_lane *lanes;
    unsigned n_lanes; /* 0: not decided yet */
    uint64_t start;   /* of the pass that runs: taken up from a checkpoint, else its first sample */
    bool notes_fates; /* else every sample of the second pass is counted */
    bool keeps, counts_ahead; /* in the first pass */
    oq_ahead ahead;
    oq_cal_locks locks;         /* for histograms, which lanes share */
    double saved_at, save_cost; /* seconds */
    pthread_mutex_t lock;       /* for what follows, which they share too */
    OQ_VEC(uint8_t) fates;      /* by number of the sample */
    uint64_t keep_left;         /* bytes that may still be kept */
    uint64_t keep_most;         /* of the samples kept so far, the most that one took */
    oq_past_look past;          /* where the job has a walker */
    uint64_t n_nan_samples;     /* whose inputs hold NaN */
    uint64_t nan_number;        /* of the first of them */
    oq_str nan_first;           /* in words */
};

/* What a histogram method needs of the samples. Parts and checkpoints hold counts. */
static inline oq_cal_need oq_runner_need(const oq_runner *r) {
    return r->part != NULL || r->job->checkpoint != NULL ? OQ_NEED_COUNTS
                                                         : oq_cal_need_of(r->job->options);
}

/* ---- runner.c ---- */

/* Lanes with nothing in them, and the session. The collector is made. */
onq_code oq_runner_open(oq_runner *r, onq_error *err);
/* Samples [from, to) of the source in the current pass; to OQ_CAL_ALL: as many as there are, which
 * r->meta.total then says. */
onq_code oq_runner_samples(oq_runner *r, oq_source *src, uint64_t from, uint64_t to,
                           onq_error *err);
/* What Constant nodes give: once a pass, or with each sample where each has a row of its own. */
onq_code oq_runner_see_fixed(const oq_runner *r, oq_collector *c, onq_error *err);
/* A pass of n samples is over: the same for all of them. */
onq_code oq_runner_fixed_in_all(oq_runner *r, uint64_t n, onq_error *err);
/* The same, counted for n samples. */
onq_code oq_runner_count_fixed(oq_runner *r, uint64_t n_samples, onq_error *err);

/* ---- runner_fate.c ---- */

/* Bytes that the job may add, and those of them that samples may be kept in: the limit is for all
 * that a job needs. */
uint64_t oq_runner_memory(const oq_runner *r);
uint64_t oq_runner_keep_limit(const oq_runner *r);
/* First pass, before the run of a sample, while it runs and turns out to be larger, and after. */
void oq_runner_decide_fate(oq_lane *l, const oq_sample *s);
void oq_runner_reserve(oq_lane *l, uint64_t bytes);
onq_code oq_runner_note_fate(oq_lane *l, const oq_sample *s, onq_error *err);
/* All samples were measured: lays out the histograms, and adds what was counted or kept. */
onq_code oq_runner_first_look_ends(oq_runner *r, onq_error *err);
/* Second pass: what became of a sample in the first, and whether it has to run again. */
uint8_t oq_runner_fate(const oq_runner *r, uint64_t number);
bool oq_runner_runs_again(const oq_runner *r, uint8_t fate, uint64_t number);
/* Samples of the source that have to be run again for the second look, from its beginning; `all`
 * is returned where nothing is known of them. */
uint64_t oq_runner_again(const oq_runner *r, uint64_t all);
/* Makes ready for the first pass of another chunk or portion. */
void oq_runner_forget(oq_runner *r);

/* ---- runner_job.c ---- */

/* Writes a checkpoint when the last one was long ago for what it costs. `next` is the next sample
 * to run. */
onq_code oq_runner_save(oq_runner *r, uint64_t next, onq_error *err);
