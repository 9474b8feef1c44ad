/*
 * trial.h — the samples that candidates are tried on, how they run there and how long they take.
 *
 * A set keeps its samples and float's outputs for them in memory, as many as fit, so that a
 * candidate costs its own runs and nothing else. A sample of a model with states is a whole
 * sequence. A candidate goes through its steps as people run it: with the states that it gave
 * itself, along the text that float reads or wrote.
 */
#pragma once

#include "engine/engine.h"
#include "samples/sequence/seq_walk.h"
#include "tune/judge/divide.h"
#include "tune/judge/score.h"

typedef struct oq_trial_step {
    oq_sample sample;      /* complete, with float's states */
    oq_datum *outputs;     /* of the float model; states are of kind NONE */
    const int64_t *labels; /* of the rows of its first output, or NULL */
} oq_trial_step;

/* A sample: a sequence, mostly of one step. */
typedef struct oq_trial {
    size_t first, n; /* of the steps */
} oq_trial;

#define OQ_DECODE_TEXT 128 /* tokens */

/* A decoder with a cache has two speeds: of a text at once, and of each token after it. */
typedef struct oq_decoding {
    uint64_t length; /* tokens of the text; 0: it is no such decoder, and its samples are timed */
    oq_sample text, token; /* complete, with float's states */
} oq_decoding;

typedef struct oq_trials {
    oq_arena arena;
    OQ_VEC(oq_trial) all;
    OQ_VEC(oq_trial_step) steps; /* of all of them, one after the other */
    const oq_walker *walker;     /* the float model's, if it has states; borrowed. NULL: none */
    size_t n_outputs;
    double until;      /* when filling ends (oq_seconds); 0: it takes all samples */
    double latest;     /* when it ends with less than OQ_TRIALS_MIN as well */
    uint64_t left_out; /* samples that did not fit, or for which there was no time */
    const oq_meaning *meaning;
    oq_margins margins;      /* of the output that holds classes */
    oq_margins text_margins; /* of the events of its texts, if it is read as texts (text.h) */
    uint64_t n_texts;
    double signal;  /* mean square of that output, or of the first, before its link; NaN: it is
                         * not float */
    double seconds; /* that float took for all */
    double cpu;     /* seconds of the processor that reading and running them took */
    oq_decoding decoding;
} oq_trials;

void oq_trials_init(oq_trials *t, const onq_allocator *alloc, const oq_meaning *meaning);
void oq_trials_release(oq_trials *t);
/* Runs the float model over the source and keeps samples and outputs of at most `memory` bytes, but
 * of one sample at least; after `until`, of OQ_TRIALS_MIN at least. */
#define OQ_TRIALS_MIN 4
onq_code oq_trials_fill(oq_trials *t, oq_source *source, oq_session *flt, uint64_t memory,
                        onq_error *err);
/* Finds margins and signal, once it is known what the outputs mean. */
onq_code oq_trials_look(oq_trials *t, onq_error *err);
/* For a decoder with states: makes the text and the token that are timed, of the tokens of the first
 * sample. A text that the model does not take is made shorter. */
onq_code oq_trials_decode(oq_trials *t, oq_session *flt, onq_error *err);
/* Whether float's classes are read as texts: sets `blank` of the meaning, and the margins of texts.
 * ONQ_E_NOMEM. */
onq_code oq_trials_find_texts(oq_trials *t, oq_meaning *m, onq_error *err);
/* Divides them into folds (divide.h). In the arena of the trials. */
onq_code oq_trials_divide(oq_trials *t, size_t n_parts, uint64_t salt, oq_division *out,
                          onq_error *err);
/* Runs a session of the model on the samples at these n places, several at once, and adds what it
 * made of them to `into`. NULL: float itself, which needs no run. */
onq_code oq_trials_score(const oq_trials *t, oq_session *s, const oq_model *m, const size_t *places,
                         size_t n, oq_scoring *into, onq_error *err);
/* Along the first axis of a step's first input; 0: it has none. */
int64_t oq_trial_batch(const oq_trial_step *x);
/* "sequences" where some have several steps, else "samples". */
const char *oq_trials_word(const oq_trials *t);

/* Times sessions side by side: rounds in which each runs the same few samples, one after the other,
 * so that a busy moment of the machine hits all of them. Of each sample the least time counts. Where
 * there is a decoding, its text and its token are run in place of samples. With
 * `own_time` it is the time of this thread alone, which others on the machine do not lengthen; for
 * sessions of one thread. */
typedef struct oq_clocking {
    oq_session **sessions;
    double until;        /* no round is begun after it (oq_seconds), but the first; 0: none */
    double *ms;          /* of one sample, or of one token; filled */
    double *prefill_ms;  /* of the text; 0: there is none. Filled, or NULL */
    double (*halves)[2]; /* the same by every other round alone: how far they differ is the noise.
                          * Filled; 0 where there was no such round. Or NULL */
    size_t n;
    bool own_time;
    double seconds; /* about how long to take for each session, of the clock that is used */
    double each;    /* seconds that float takes for a sample; 0: as in the samples' first run */
    double *slow;   /* times the least that the first session's runs take, by their median: how busy
                     * the machine is. Filled, or NULL */
} oq_clocking;
#define OQ_CLOCK_ROUNDS 3 /* at least, unless there is no time left */
/* Seconds that timing a session takes at least, whatever was allowed, if a run takes so long. */
double oq_clock_least(double ms, double prefill_ms);
onq_code oq_trials_clock(const oq_trials *t, const oq_clocking *c, onq_error *err);
/* Runs n of the steps, spread over all of them, on the caller's thread: seconds[] by its own time. */
onq_code oq_trials_run_steps(const oq_trials *t, oq_session *s, size_t n, double *seconds,
                             onq_error *err);
