/*
 * qkernel.h — the inner loops over weights: least and greatest number, and rounding to integers.
 *
 * Plain C in shapes that the compiler vectorises; no loop here allocates or branches on a type.
 */
#pragma once

#include "base/port.h"

/* Lowest and highest of n values folded into *lo, *hi. False when one is NaN. */
bool oq_kernel_minmax(const float *x, size_t n, float *lo, float *hi);
/* The same, element by element: lo[i] and hi[i] take x[i]. */
bool oq_kernel_minmax_each(const float *x, size_t n, float *lo, float *hi);

/* out[i] = clip(round_half_even(x[i] / scale) + zero, min, max), in float32 as numpy has it.
 * `min` and `max` are those of the type; results are int8 or int16 bit patterns. */
typedef struct oq_kernel_round {
    float scale;
    int32_t zero, min, max;
} oq_kernel_round;
void oq_kernel_round8(const float *x, size_t n, oq_kernel_round k, uint8_t *out);
void oq_kernel_round16(const float *x, size_t n, oq_kernel_round k, uint16_t *out);
/* The same with a scale and a zero point for each element. */
void oq_kernel_round8_each(const float *x, size_t n, const float *scale, const int32_t *zero,
                           int32_t min, int32_t max, uint8_t *out);
void oq_kernel_round16_each(const float *x, size_t n, const float *scale, const int32_t *zero,
                            int32_t min, int32_t max, uint16_t *out);

/* Sum of n float32 values exactly as numpy adds them (pairwise, blocks of 128, eight lanes). */
float oq_kernel_pairwise_sum(const float *x, size_t n);
