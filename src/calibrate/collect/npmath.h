/*
 * npmath.h — numpy's arithmetic where its bits matter.
 *
 * Ranges must equal the reference's to the last bit, and the reference computes with numpy: sums
 * are pairwise, logarithms of float32 are numpy's own polynomial (the one its AVX2 and AVX-512
 * loops share), and linspace rounds after each step. float16 is float32 arithmetic rounded after
 * every operation.
 */
#pragma once

#include "base/text/real.h"
#include "onnx/dtype.h"

/* np.sum of a contiguous array. */
float oq_np_sum_f32(const float *v, size_t n);
double oq_np_sum_f64(const double *v, size_t n);

/* np.log of float32, for x > 0 finite; other values give what numpy gives. */
float oq_np_log_f32(float x);
/* The same for an array, in place. */
void oq_np_log_f32_n(float *v, size_t n);

/* x rounded to the type (OQ_FLOAT or OQ_FLOAT16), as a float. */
float oq_np_round(oq_dtype type, double x);
/* The same for the result of one operation on two values of the type, which float32 holds to more
 * than twice the digits: so it is rounded as if it had been exact. */
static inline float oq_np_step(oq_dtype type, float x) {
    return type == OQ_FLOAT16 ? oq_f16_to_f32(oq_f32_to_f16(x)) : x;
}

/* np.linspace(first, last, n + 1) in `type`, n at least 1. Where the width of the range passes the
 * type numpy gives NaN; here the edges are then computed in double. */
void oq_np_linspace(oq_dtype type, float first, float last, size_t n, float *out);
