/*
 * sums.h — how two streams of values compare, as sums that can be added up over samples.
 *
 * `x` are the float values, `y` the quantized ones. Signal to noise is the reference's
 * compute_signal_to_quantization_noice_ratio over everything that was added: 20 log10(|x| / |x -
 * y|), both norms at least the machine epsilon of a double. The difference is taken in float32, as
 * numpy takes it for float32 arrays.
 */
#pragma once

#include "base/port.h"

typedef struct oq_sums {
    double xx, yy;  /* sums of x^2, y^2 */
    double ee;      /* of (x - y)^2 */
    double abs_sum; /* of |x - y| */
    double abs_max; /* largest |x - y| */
    uint64_t n;
} oq_sums;

void oq_sums_add(oq_sums *s, const float *x, const float *y, size_t n);
/* Only what signal to noise needs: half the work. */
void oq_sums_add_noise(oq_sums *s, const float *x, const float *y, size_t n);
/* The same as oq_sums_add when y is a double (int32 weights: numpy computes these in double). */
void oq_sums_add_real(oq_sums *s, const float *x, const double *y, size_t n);
/* Rows of `row` values among n, and those whose largest value is at the same place in both. */
void oq_rows_add(uint64_t *rows, uint64_t *same, const float *x, const float *y, uint64_t n,
                 uint64_t row);
void oq_sums_join(oq_sums *into, const oq_sums *more);

double oq_sums_sqnr(const oq_sums *s);
/* 1 when both are all zeros, 0 when one is. */
double oq_sums_cosine(const oq_sums *s);
double oq_sums_mean_error(const oq_sums *s);

/* Least and greatest of n floats, NaN left out; *lo and *hi are widened. */
void oq_span_add(float *lo, float *hi, const float *x, size_t n);
