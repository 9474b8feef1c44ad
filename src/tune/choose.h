/*
 * choose.h — targets, and which of the candidates is taken.
 */
#pragma once

#include "tune/judge/score.h"
#include "tune/spend.h"

/* The most of a time that its noise may count for. */
#define OQ_NOISE_PART 0.02
/* Of float's time: two sessions of one and the same model differ by as much, so integers that save
 * less may save nothing where the model is opened next. */
#define OQ_SESSIONS_PART 0.04
/* Times float's for the text of a decoder, that a model may take which is faster with tokens. */
#define OQ_MAX_PREFILL 1.25
/* dB from which a float model with rewrites counts as the same as the one that was given. */
#define OQ_EXACT_DB 60
/* A set of operators is worth more noise where it is so much faster. */
#define OQ_SET_FASTER 1.05

typedef struct oq_target {
    oq_metric metric;
    double value;
} oq_target;

typedef OQ_VEC(oq_target) oq_targets;

typedef enum oq_prefer { OQ_PREFER_SPEED, OQ_PREFER_SIZE, OQ_PREFER_ACCURACY } oq_prefer;

/* "METRIC=VALUE"; ONQ_E_OPTION, in terms of --target, for another text or a value that the metric
 * cannot have. */
onq_code oq_target_read(oq_str text, oq_target *out, onq_error *err);

/* A unit that a candidate leaves float, and what it would be in integers. */
typedef struct oq_float_unit {
    const char *node;
    double sqnr;  /* dB of the outputs with this unit alone in integers, or NAN */
    double gain;  /* ms that integers would save; 0 and less: they save none */
    bool guessed; /* sqnr is that of other units, by the work */
} oq_float_unit;

/* One that was tried. */
typedef struct oq_candidate {
    const char *label;   /* a few words for a table */
    oq_recipe recipe;    /* command NULL: the float model as it was given */
    bool exact;          /* float, and nothing but float */
    bool ok;             /* it can be made, and was measured */
    const char *path;    /* a model of it, for its time; NULL: there is none now */
    const char *why_not; /* it was not made, or NULL */
    oq_noted noted;      /* what it cost */
    uint64_t size;       /* bytes, external data counted */
    oq_score score;      /* on samples that did not calibrate */
    oq_score report;     /* of the one that is taken; samples 0: not measured */
    double ms;           /* of one sample, of a decoder of one token; 0: not timed */
    double prefill_ms;   /* of a decoder's text at once; 0: it is none */
    double ms_noise;     /* what two halves of that measurement differ by */
    double predicted;    /* dB, from the noise of its units; NaN: not predicted */
    bool partly;         /* judged by some samples, for they lost its targets */
    bool doubted;        /* measured again, it does not reach the targets */
    bool reached;
    OQ_VEC(oq_float_unit) floats; /* of a point of the curve: the noisiest first */
    bool on_curve;                /* none is both faster and more accurate */
} oq_candidate;

typedef OQ_VEC(oq_candidate *) oq_candidates;

/* True if all targets hold: the figures reach them, and so do the bounds, but for the slack that a
 * metric has. */
bool oq_targets_hold(const oq_targets *t, const oq_score *s);
/* True if some samples lost more than the targets allow all of them to lose: no other sample can
 * make up for it. `whole` is float beside itself on all samples. */
bool oq_targets_are_lost(const oq_targets *t, const oq_scoring *some, const oq_scoring *whole);
/* True if the figures miss a target by more than their bounds leave open: more samples like these
 * would not reach it. */
bool oq_targets_are_missed(const oq_targets *t, const oq_score *s);
/* How many dB of noise must go, at least, before the targets hold, as far as the candidate's own
 * figures and bounds say; 0 where they hold, or say nothing. Of a score of fewer samples than `of`
 * only what is lost already counts. */
double oq_targets_lack(const oq_targets *t, const oq_score *s, uint64_t of);
/* How many samples like these would let the bounds reach the targets; 0: the figures do not reach
 * them, and no number would. */
uint64_t oq_samples_needed(const oq_targets *t, const oq_score *s);

/* The one to take, or NULL when there is none at all; *reached says whether one in integers reaches
 * the targets. For speed the fastest of these and of the exact ones is taken; of those that are
 * equally fast, as far as the noise of their times lets one say, the most accurate, then the one
 * with the fewest options, then the one that was tried first. One in integers has to save more than
 * OQ_SESSIONS_PART of the time of every exact one. Where nothing in integers reaches the
 * targets, the fastest exact one is taken. all->v[0] is float as it was given: nothing that is
 * slower is taken, except for size or accuracy if all in integers are. */
oq_candidate *oq_choose(const oq_candidates *all, const oq_targets *t, oq_prefer prefer,
                        bool *reached);
/* The most accurate in integers that is neither wrong nor slower than float; NULL: there is none.
 */
oq_candidate *oq_choose_nearest(const oq_candidates *all, const oq_targets *t);
/* One that takes at most three quarters of the time of the one that is taken, and misses the target
 * by a little: *value is a target, a whole number at most OQ_LITTLE_LESS below, that it reaches
 * without a doubt. Of several the most accurate by that, then the fastest. NULL: there is none, or
 * there is more than one target, or one of another kind than per cent and dB. */
#define OQ_LITTLE_LESS 3
const oq_candidate *oq_choose_cheaper(const oq_candidates *all, const oq_targets *t,
                                      const oq_candidate *taken, double *value);
/* True if a is the more accurate one, by what the targets ask for. */
bool oq_is_more_accurate(const oq_targets *t, const oq_candidate *a, const oq_candidate *b);
/* Takes no longer than b, as far as the noise lets one say. */
bool oq_is_as_fast(const oq_candidate *a, const oq_candidate *b);
/* Faster by more than this part and than the noise; of a decoder, whose tokens these times are, the
 * text takes no longer, but for that part. */
bool oq_is_clearly_faster(const oq_candidate *c, const oq_candidate *than, double part);
/* No slower than the float model that was given: a decoder with tokens, and no more than
 * OQ_MAX_PREFILL slower with a text. */
bool oq_is_no_slower(const oq_candidate *c, const oq_candidate *given);
/* Sets on_curve, and sorts the indices of those into order[n] by time, fastest first. Gives their
 * number. */
size_t oq_curve(const oq_candidates *all, const oq_targets *t, size_t *order);
