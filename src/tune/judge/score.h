/*
 * score.h — how close the outputs of a candidate are to float's, over a set of samples, and what
 * that says of samples that nobody has seen.
 *
 * Every metric has a figure, of the samples that judged, and a bound that other samples keep with
 * 95 % certainty (bound.h). Besides there is one figure to compare candidates by: `objective` is
 * signal to noise before a final Softmax or Sigmoid, whose saturated values hide most of the noise
 * and let a few undecided samples decide the rest. Of texts it is the noise of what may change them.
 */
#pragma once

#include "base/vec.h"
#include "samples/agreement.h"
#include "samples/datum.h"
#include "tune/judge/bound.h"
#include "tune/judge/detect.h"
#include "tune/judge/meaning.h"
#include "tune/judge/neighbours.h"
#include "tune/judge/text.h"

typedef struct oq_figure {
    double value; /* NaN: there is none */
    double bound; /* NaN likewise; of one sample nothing is certain, and it is infinite */
    double clear; /* the value without answers that float itself hardly decides */
} oq_figure;

#define OQ_WORST 3

typedef struct oq_score {
    oq_figure figures[OQ_METRICS];
    double expected;    /* agreement that errors and margins predict, percent; NaN: no classes */
    double objective;   /* dB before the link, of the worst output */
    double worst_tenth; /* dB, of a tenth of the samples */
    double accuracy;    /* percent, with labels; else NaN */
    uint64_t samples;
    uint64_t rows;            /* compared for the agreement */
    uint64_t close_calls;     /* rows that float itself hardly decides: with a margin below a
                               * twentieth of the median one */
    uint64_t close_flips;     /* of these, with another class than float's */
    uint64_t worst[OQ_WORST]; /* numbers of the samples with the fewest dB, the worst first */
    double worst_db[OQ_WORST];
    size_t n_worst;
} oq_score;

/* The figure of a metric, or NaN. */
static inline double oq_score_of(const oq_score *s, oq_metric m) {
    return s->figures[m].value;
}
/* What is promised of other samples: the bound, but nothing better than these samples showed. The
 * bound of classes comes from all errors and margins, and may be better than a few rows were. */
double oq_score_promise(const oq_score *s, oq_metric m);
/* Without any figure. */
oq_score oq_score_none(void);
/* A figure of which no more is known than these samples show. */
void oq_score_set(oq_score *s, oq_metric m, double value);
/* Outputs of another shape, or without a number where float has one. */
bool oq_score_is_wrong(const oq_score *s);

/* Sums of one output. */
typedef struct oq_score_sum {
    oq_agree raw;
    double signal, noise; /* before the link */
} oq_score_sum;

/* What one sample showed, all steps of it where it is a sequence. */
typedef struct oq_sample_score {
    uint64_t number;
    unsigned fold;
    double *signal, *noise, *angle; /* of each output; the angle is 1 - cosine */
    uint64_t rows, flips;
    uint64_t sequences, broken; /* a sequence is broken when one of its rows has another class; the
                                 * steps of a model with states are one */
    uint64_t first_row;         /* in margins */
    uint64_t texts, changed, first_text; /* first in the counts of text */
    uint64_t events, first_event;        /* first in its margins */
    uint64_t embeddings, first_embedding;
    double mask_any, mask_apart;
    oq_detected detected;
    oq_lm_score text; /* of a language model, or of logits whose divergence is asked for */
    int64_t labelled, right, float_right;
} oq_sample_score;

typedef struct oq_scoring {
    const oq_meaning *meaning;
    oq_arena *arena;
    oq_score_sum *sums; /* one for each output */
    oq_agree *own;      /* of the sample that was added last */
    size_t n_outputs;
    unsigned fold; /* of the samples that are added next */
    OQ_VEC(oq_sample_score) all;
    OQ_VEC(float) margins; /* of float's classes, before the link */
    OQ_VEC(float) errors;  /* of the same rows: what the candidate takes away from them */
    oq_text_events text;   /* where texts are asked for */
    oq_neighbours neighbours;
    /* Margins below this are close calls, of rows and of texts, once oq_scoring_find_close found it. */
    double close, text_close;
} oq_scoring;

onq_code oq_scoring_init(oq_scoring *s, oq_arena *a, const oq_meaning *meaning, size_t n_outputs,
                         onq_error *err);

/* A sample, or a step of one. */
typedef struct oq_pair {
    uint64_t number;           /* of the sample */
    bool follows;              /* the step that was added before it */
    const oq_datum *flt;       /* float's outputs */
    const oq_datum *quantized; /* the candidate's */
    size_t n_quantized;
    const oq_datum *inputs; /* of the sample; NULL: not known */
    const oq_datum *next;   /* those of the step that follows; NULL: none does */
    int64_t batch;          /* along the first axis of its first input; 0: not known */
    const int64_t *labels;  /* the classes of the rows, or NULL */
} oq_pair;
/* ONQ_E_NOMEM. */
onq_code oq_scoring_add(oq_scoring *s, const oq_pair *x, onq_error *err);
/* From the margins of all that was added; ONQ_E_NOMEM. */
onq_code oq_scoring_find_close(oq_scoring *s, onq_error *err);
/* Rows, sequences or texts that are not float's, as the metric counts them, but for close calls of all
 * samples. 0 where they have no margins. */
uint64_t oq_scoring_clear_changes(const oq_scoring *s, oq_metric m, const oq_scoring *whole);
/* The figures of all that was added; ONQ_E_NOMEM. */
onq_code oq_scoring_end(const oq_scoring *s, oq_score *out, onq_error *err);

typedef OQ_VEC(float) oq_margins;
/* Appends the margins of the rows of a float model's output: of best and second, before the link.
 * None for integers. */
onq_code oq_margins_add(oq_margins *m, oq_arena *a, const oq_meaning *meaning, const oq_datum *d,
                        oq_link link, onq_error *err);
/* Percent of rows that keep their class when noise of this deviation is added to every value: a
 * first guess of how much noise a target allows. Whether it is reached, real errors say. */
double oq_margins_expect(const float *margins, size_t n, double deviation);
/* The deviation of noise at which so many percent keep their class; 0 when even less noise is too
 * much. */
double oq_margins_allow(const float *margins, size_t n, double percent);
/* Adds squares and number of the values of a float output, before the link. */
void oq_link_power(const oq_datum *d, oq_link link, double *sum, uint64_t *n);
/* Rows along the last axis, 0 when it has no classes. */
uint64_t oq_rows_of(const oq_datum *d);
