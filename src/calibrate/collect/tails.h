/*
 * tails.h — the greatest and the least values of a tensor, to the last bit.
 *
 * Percentile cuts a small share off the ends of a histogram whose bins depend on the range of all
 * samples. Where they are cut depends only on the values out there, and these are few enough to be
 * kept. At the end, when the bins are known, they are counted; whether it makes a difference where
 * between the tails the others lie is asked of the method (is_settled).
 *
 * A tail has room for as many values as will be in it when all samples have run. When more come,
 * the lesser ones are thrown away and a bar is raised: what lies beyond it is all there. Tails of
 * several collectors merge.
 */
#pragma once

#include "base/alloc.h"
#include "base/err.h"
#include "calibrate/collect/extent.h"
#include "calibrate/collect/histogram.h"

/* The greatest values, of those that were added. */
typedef struct oq_tail {
    float *v; /* room for 2 * most */
    size_t n;
    float bar; /* of the values above it none is missing; -inf: none is missing at all */
} oq_tail;

typedef struct oq_tails {
    size_t most; /* values that each tail holds at least, when there are so many; 0: no tails */
    bool abs;    /* of the magnitudes, which have no lower tail */
    oq_tail upper, lower; /* lower: of the values with their signs turned */
} oq_tails;

void oq_tails_release(oq_tails *t, const onq_allocator *a);

/* Adds n values, and their extent to `e`. Infinities and NaN belong to no tail. */
onq_code oq_tails_add(oq_tails *t, const onq_allocator *a, const float *v, size_t n, oq_extent *e,
                      onq_error *err);
/* Adds what `other` has seen. */
onq_code oq_tails_merge(oq_tails *t, const onq_allocator *a, const oq_tails *other, onq_error *err);

/* Counts the tails in a histogram over the range of all values, and says how many they are. The
 * others lie in bins [*first, *last], if there are any. */
uint64_t oq_tails_count(const oq_tails *t, oq_hist *h, size_t *first, size_t *last);
