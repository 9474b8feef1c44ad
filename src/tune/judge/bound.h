/*
 * bound.h — what can be said of samples that nobody has seen, from those that were.
 *
 * A loss is a ratio of two sums over samples: noise and signal, other answers and answers. The
 * spread over samples, and over the folds that calibrated, says how far the ratio of all samples
 * that will ever come may lie above it.
 */
#pragma once

#include "base/arena.h"
#include "base/env.h"

/* One sample's part of a loss. */
typedef struct oq_loss {
    double lost, of;
    unsigned fold;
} oq_loss;

typedef struct oq_ratio {
    double value; /* sum of lost / sum of `of`; NaN when there is nothing */
    double error; /* its standard error; infinite of one sample */
    size_t n;     /* samples */
    double of;    /* mean `of` of a sample */
    double most;  /* the largest `lost` of one */
    size_t alike; /* as many that differ as usual would say as much: fewer than n where few have
                     most of the spread */
} oq_ratio;

oq_ratio oq_ratio_of(const oq_loss *v, size_t n);
/* Not more than this with 95 % certainty. Who loses less than nothing, as a candidate does by chance,
 * is promised no gain. */
double oq_ratio_bound(const oq_ratio *r);
/* The same of sums in which few samples may have most of what is lost, and the next one too: one more
 * sample loses as much as the worst that was seen, or `undecided`, if that is more. */
double oq_ratio_bound_of_sums(const oq_ratio *r, double undecided);
/* The value of Student's t with so many degrees of freedom that 95 % lie below. */
double oq_student(size_t freedom);

/* Answers that change. A row of scores has a margin, of float's best over its second, and the
 * candidate takes some of it away; where it takes more, the answer is another one. Each row's error
 * may hit any row's margin: that says how likely it is, with the tails that errors have. */
typedef struct oq_flips {
    const float *margins, *errors; /* of n rows */
    size_t n;
} oq_flips;

/* The rows of one sample. */
typedef struct oq_flip_rows {
    uint64_t first, n;
    unsigned fold;
    uint64_t answers; /* that they are; of oq_flips_expect_any alone */
} oq_flip_rows;

/* The part of all rows that will have another answer, and how far it may be wrong.
 *
 * Samples show few small margins, so the density near zero is taken to be even: the least sqrt(1.5
 * n) margins, 4 at least, are spread from zero to the next one; if the least third of them thins out
 * toward zero by more than chance, by that power. A row that float hardly decides is then one draw of
 * many. Only errors of the half of the rows with the smaller margins count, for
 * errors of other rows may be of another size. A gain counts as a loss of that size, up to the
 * largest loss. One more error is twice as large as any. The error of the result comes from the
 * spread of what the samples' errors reach, from the number of small margins, and allows for half
 * of the value: small margins may have larger errors. ONQ_E_NOMEM. */
onq_code oq_flips_expect(const oq_flips *f, const oq_flip_rows *samples, size_t n_samples,
                         oq_arena *a, oq_ratio *out, onq_error *err);

/* The same where an answer is many rows, and changes when any of them does: a line of text. The ratio
 * is of rows that change to answers, as many as all rows together are expected to have; an answer
 * changes with the chance oq_flips_any of it.
 *
 * There are many rows: a quarter of their root, 4 at least, have margins that are spread. Errors grow
 * with margins, so only those of the twentieth of the rows with the least margins count, or of twice
 * as many as are spread. A gain counts as a loss of that size if
 * that makes the result larger. A sample has no more changes than answers. Samples, not rows, are the draws: rows of one sample have small
 * margins and large errors together. A quarter of the value is allowed for. */
onq_code oq_flips_expect_any(const oq_flips *f, const oq_flip_rows *samples, size_t n_samples,
                             oq_arena *a, oq_ratio *out, onq_error *err);
/* The mean square of the errors that count there. ONQ_E_NOMEM. */
onq_code oq_flips_power(const oq_flips *f, oq_arena *a, double *out, onq_error *err);
/* The part of all answers of which any row changes, if so many rows change for each answer. */
double oq_flips_any(double rows);
