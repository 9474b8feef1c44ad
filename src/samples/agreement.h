/*
 * agreement.h — how well one model's outputs agree with another's, summed up over samples.
 *
 * For one output: cosine of the angle between both seen as long vectors, signal to noise in dB (10
 * log10 of the sum of a^2 over the sum of (a-b)^2), the largest difference, and how often the
 * largest value along the last axis is at the same place (top-1). Where the first has no finite
 * number there is nothing to agree with, and the second is not looked at.
 */
#pragma once

#include "samples/datum.h"

/* Decibels of a ratio of powers; twice that is of a ratio of amplitudes. */
double oq_decibels(double ratio);
/* Signal to noise in decibels, of the sum of squares of each; INFINITY when there is no noise. */
double oq_signal_to_noise(double signal, double noise);
/* Where the first of the largest of n values is, counted from `from`; of a tensor of reals. */
uint64_t oq_datum_top(const oq_datum *d, uint64_t from, uint64_t n);

/* The mean, over rows along the last axis, of the probability of the largest score: the score
 * itself where a row is a distribution, else after a Softmax. Adds to *sum and *rows; of a tensor
 * of reals. */
void oq_confidence_add(const oq_datum *d, double *sum, uint64_t *rows);

typedef struct oq_agree {
    double dot, aa, bb, noise; /* sums of a b, a^2, b^2, (a-b)^2 */
    double largest;            /* difference */
    uint64_t n;                /* values compared */
    uint64_t rows, same;       /* along the last axis: compared, with the same largest place */
    bool differs;              /* kinds, types or shapes did not match: nothing more was compared */
    bool wrecked;              /* b has NaN or infinity where a has a number */
} oq_agree;

/* Folds one output in: `a` the first model's, `b` the other's. */
void oq_agree_add(oq_agree *s, const oq_datum *a, const oq_datum *b);
/* What a run added to a state: where `past`, which went in, is shorter than `a` along one axis that
 * is not the last, in each *size values the first *skip are old. Else *skip is 0 and *size all. */
void oq_state_added(const oq_datum *a, const oq_datum *past, uint64_t *size, uint64_t *skip);
/* The same for a state that a run makes longer: where `past`, which went in, is shorter than `a`
 * along one axis, only what was added is compared. `past` may be NULL. */
void oq_agree_add_state(oq_agree *s, const oq_datum *a, const oq_datum *b, const oq_datum *past);

/* Adds sums. */
void oq_agree_join(oq_agree *s, const oq_agree *other);

/* 1 when both are all zeros. */
double oq_agree_cosine(const oq_agree *s);
/* INFINITY when there is no difference. */
double oq_agree_sqnr(const oq_agree *s);
/* Fraction; NAN when there are no rows. */
double oq_agree_top1(const oq_agree *s);
