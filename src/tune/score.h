/*
 * score.h — how close the outputs of a candidate are to float's, over a set of samples.
 *
 * Besides what agreement.h sums up there are two figures to choose by. `objective` is signal to
 * noise before a final Softmax or Sigmoid, whose saturated values hide most of the noise and let a
 * few undecided samples decide the rest. `expected` is the agreement that this noise predicts from
 * the margins between the best and the second class: with few samples it is far steadier than the
 * count of equal classes.
 */
#ifndef OQ_TUNE_SCORE_H
#define OQ_TUNE_SCORE_H

#include "base/vec.h"
#include "samples/agreement.h"
#include "samples/datum.h"

/* What an output went through last. */
typedef enum oq_link { OQ_LINK_NONE = 0, OQ_LINK_SOFTMAX, OQ_LINK_SIGMOID } oq_link;

/* The links of the model's outputs, in their order, and whether the first one holds scores of
 * classes: it comes from a Softmax, from a linear operator, or is of an integer type. In the
 * arena. */
onq_code oq_link_find(oq_model *m, oq_arena *a, const oq_link **links, bool *classes,
                      onq_error *err);

typedef struct oq_score {
    double agreement; /* percent; NaN where the first output has no classes */
    double expected;  /* the same, from the noise; NaN likewise */
    double spread;    /* standard error of it, for the rows are few */
    double sqnr;      /* dB, of the worst output; infinite: no difference */
    double cosine;    /* of the worst output */
    double objective; /* dB before the link, of the worst output */
    double accuracy;  /* percent, with labels; else NaN */
    double metric;    /* what the user's program printed; else NaN */
    uint64_t samples;
    uint64_t rows; /* compared for the agreement */
} oq_score;

/* Sums of one output. */
typedef struct oq_score_sum {
    oq_agree raw;
    double signal, noise; /* before the link */
    double shift_free;    /* noise without what is common to a row: shifts change no class */
    uint64_t n;           /* values before the link */
    uint64_t equal;       /* of an integer output */
    bool integers;
} oq_score_sum;

typedef struct oq_scoring {
    const oq_link *links;
    oq_score_sum *sums; /* one for each output */
    size_t n_outputs;
    const float *margins; /* of the float model's first output, before the link */
    size_t n_margins;
    uint64_t samples;
    uint64_t labelled, right;
} oq_scoring;

onq_code oq_scoring_init(oq_scoring *s, oq_arena *a, const oq_link *links, size_t n_outputs,
                         onq_error *err);
/* One sample: float's outputs and the candidate's. `labels`: the classes of the rows of the first
 * output, or NULL. */
void oq_scoring_add(oq_scoring *s, const oq_datum *truth, const oq_datum *made, size_t n_made,
                    const int64_t *labels);
void oq_scoring_end(const oq_scoring *s, oq_score *out);

typedef OQ_VEC(float) oq_margins;
/* Appends the margins of the rows of a float model's first output: of best and second, before the
 * link. None for integers. */
onq_code oq_margins_add(oq_margins *m, oq_arena *a, const oq_datum *d, oq_link link,
                        onq_error *err);
/* Percent of rows that keep their class when noise of this deviation is added to every value;
 * *spread, if not NULL, is its standard error. */
double oq_margins_expect(const float *margins, size_t n, double deviation, double *spread);
/* The deviation of noise at which so many percent keep their class; 0 when even less noise is too
 * much. */
double oq_margins_allow(const float *margins, size_t n, double percent);
/* Adds squares and number of the values of a float output, before the link. */
void oq_link_power(const oq_datum *d, oq_link link, double *sum, uint64_t *n);
/* Rows along the last axis, 0 when it has no classes. */
uint64_t oq_rows_of(const oq_datum *d);

#endif
