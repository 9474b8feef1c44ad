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
} oq_ratio;

oq_ratio oq_ratio_of(const oq_loss *v, size_t n);
/* Not more than this with 95 % certainty. */
double oq_ratio_bound(const oq_ratio *r);
/* The value of Student's t with so many degrees of freedom that 95 % lie below. */
double oq_student(size_t freedom);

/* Answers that change. A row of scores has a margin, of float's best over its second, and the
 * candidate takes some of it away; where it takes more, the answer is another one. Each row's error
 * may hit any row's margin: all pairs say how likely that is, with the tails that errors have. */
typedef struct oq_flips {
    const float *margins, *errors; /* of n rows */
    size_t n;
} oq_flips;

/* For every row how likely it is that its answer changes, into chance[n]; with `unseen` an error
 * twice as large as any that was seen counts as one more. ONQ_E_NOMEM. */
onq_code oq_flips_chances(const oq_flips *f, oq_arena *a, bool unseen, double *chance,
                          onq_error *err);
/* How many answers change, of one row, for margins smaller than any that was seen: such a margin
 * comes with a chance of 1 in n + 1, and lies anywhere between nothing and the smallest. */
double oq_flips_unseen(const oq_flips *f);
/* For every row's error the part of all margins that it is larger than, into hit[n]. */
onq_code oq_flips_hits(const oq_flips *f, oq_arena *a, double *hit, onq_error *err);
