/*
 * noise.h — signal to noise of tensors as numpy computes it: the reference's
 * compute_signal_to_quantization_noice_ratio over arrays of any float type.
 *
 * sums.h streams float32 values; here whole tensors are there, and their type decides how numpy
 * rounds: float16 norms are rounded to float16 (and overflow there), double ones are not rounded.
 */
#pragma once

#include "base/err.h"

/* 20 log10(|x| / |x - y|) over all tensors together, norms at least 2^-52. ONQ_E_INVALID when the
 * sides differ in the number of tensors or elements, or a tensor's size is not that of its dims;
 * ONQ_E_UNSUPPORTED for types other than float, float16 and double. -INFINITY where the reference
 * raises: the noise is infinite and the signal is not. */
onq_code oq_noise_sqnr(const onq_tensor *x, size_t n_x, const onq_tensor *y, size_t n_y,
                       double *out, onq_error *err);

/* The number of elements of a numeric tensor: the product of its dims, checked against `size`. */
onq_code oq_noise_count(const onq_tensor *t, uint64_t *out, onq_error *err);
