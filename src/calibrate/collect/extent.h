/*
 * extent.h — least and greatest value of a tensor.
 *
 * Two rules, because the reference has two.
 *
 *   runtime   What ReduceMin and ReduceMax of ONNX Runtime give (the MinMax method's nodes). Both
 *             go over an array in eight lanes and keep the first of equal values; a NaN stays where
 *             it is first in its lane and is skipped elsewhere. So with NaN in the data the
 *             result depends on their places; it is repeated here exactly, and so is the sign of a
 *             zero. An empty array gives +inf and -inf.
 *   finite    What np.nanmin and np.nanmax give (the histogram methods), with infinities counted
 *             and left out too. Of zeros, the negative is the lesser. Does not depend on order, so
 *             extents merge.
 */
#pragma once

#include "base/port.h"

/* The runtime's rule; n floats, any alignment. */
void oq_extent_runtime(const float *v, size_t n, float *lo, float *hi);

typedef struct oq_extent {
    float lo, hi;   /* of the finite values; lo > hi (+inf, -inf) when there are none */
    float lo_abs;   /* least magnitude, +inf when there are none */
    uint64_t count; /* all values */
    uint64_t n_nan;
    uint64_t n_low_inf, n_high_inf; /* -inf, +inf */
} oq_extent;

#define OQ_EXTENT_NONE                                                                             \
    ((oq_extent){__builtin_inff(), -__builtin_inff(), __builtin_inff(), 0, 0, 0, 0})

/* Adds n floats. */
void oq_extent_add(oq_extent *e, const float *v, size_t n);
void oq_extent_merge(oq_extent *e, const oq_extent *other);
