/*
 * choose.h — targets, and which of the candidates is taken.
 */
#ifndef OQ_TUNE_CHOOSE_H
#define OQ_TUNE_CHOOSE_H

#include "tune/recipe.h"
#include "tune/score.h"

/* Of the fastest or smallest: as good as it. */
#define OQ_EQUAL_PART 1.05
/* The most of a time that its noise may count for. */
#define OQ_NOISE_PART 0.05

typedef enum oq_metric {
    OQ_METRIC_AGREEMENT,
    OQ_METRIC_SQNR,
    OQ_METRIC_COSINE,
    OQ_METRIC_ACCURACY_DROP,
    OQ_METRIC_METRIC, /* of the user's program */
    OQ_METRICS
} oq_metric;

const char *oq_metric_name(oq_metric m);
/* false if there is no such metric. */
bool oq_metric_find(oq_str name, oq_metric *out);

typedef struct oq_target {
    oq_metric metric;
    double value;
} oq_target;

typedef struct oq_targets {
    OQ_VEC(oq_target) all;
    double float_accuracy; /* percent, of the float model with the labels; NaN: no labels */
} oq_targets;

typedef enum oq_prefer { OQ_PREFER_SPEED, OQ_PREFER_SIZE, OQ_PREFER_ACCURACY } oq_prefer;

/* "METRIC=VALUE"; ONQ_E_OPTION, in terms of --target, for another text or a value that the metric
 * cannot have. */
onq_code oq_target_read(oq_str text, oq_target *out, onq_error *err);

/* One that was tried. */
typedef struct oq_candidate {
    const char *label;   /* a few words for a table */
    oq_recipe recipe;    /* command NULL: the prepared float model */
    bool ok;             /* it can be made, and was measured */
    const char *path;    /* the model; NULL: it is not there now (oq_tune_ensure) */
    const char *why_not; /* it was not made, or NULL */
    uint64_t size;       /* bytes, external data counted */
    size_t n_units;      /* in integers */
    oq_score score;      /* on the samples that choose */
    oq_score report;     /* on the others; samples 0: not measured there */
    double ms;           /* of one sample; 0: not timed */
    double ms_noise;     /* what two halves of that measurement differ by */
    double predicted;    /* dB, from the noise of its units; NaN: not predicted */
    bool reached;
    bool on_curve; /* none is both faster and more accurate */
} oq_candidate;

typedef OQ_VEC(oq_candidate *) oq_candidates;

/* True if all targets hold. To choose by an agreement of few rows, the one that the noise predicts
 * counts; rows that are few agree, or do not, by luck. */
bool oq_targets_hold(const oq_targets *t, const oq_score *s, bool choosing);

/* The one to take, or NULL when there is none at all; *reached says whether the targets hold. Float
 * is taken only for speed, where integers that reach the targets are no faster. Of those that are
 * equally fast, as far as the noise of their times lets one say, the most accurate is taken, then
 * the one with the fewest options, then the one that was tried first. */
oq_candidate *oq_choose(const oq_candidates *all, const oq_targets *t, oq_prefer prefer,
                        bool *reached);
/* Sets on_curve, and sorts the indices of those into order[n] by time, fastest first. Gives their
 * number. */
size_t oq_curve(const oq_candidates *all, size_t *order);

/* The lowest agreement (percent) that n rows with this one leave likely: Wilson's bound, 95 %. */
double oq_agreement_bound(double agreement, uint64_t rows);

#endif
