/*
 * hist_find.h — the bins of many float32 values at once, and their extent on the way: the vector
 * part of histograms (histogram.c counts what is found).
 */
#ifndef OQ_CALIBRATE_HIST_FIND_H
#define OQ_CALIBRATE_HIST_FIND_H

#include "calibrate/histogram.h"

/* Values in one go; they and their bins stay in the first-level cache. */
#define OQ_HIST_PORTION 1024
/* The kernels write whole vectors. */
#define OQ_HIST_SPARE 16

typedef struct oq_hist_found {
    size_t n;             /* bins in the list */
    uint32_t zeros, ends; /* values of 0 and of the range's end that are not in it */
    uint32_t outside;     /* values that are not counted, in it as bin 0 */
    int32_t least, most, least_magnitude; /* for oq_extent_add_keys */
    int32_t bin[OQ_HIST_PORTION + OQ_HIST_SPARE];
} oq_hist_found;

/* Finds the bins of n values, 1 to OQ_HIST_PORTION. A histogram that has no scale cannot be asked.
 * With `sparse`, which pays when half of the values are zeros or at the end of the range (after
 * a Relu or Clip), these may be counted and left out of the list. */
typedef void (*oq_hist_find_fn)(const oq_hist *h, const float *v, size_t n, bool sparse,
                                oq_hist_found *f);

/* Two bins, each of up to 2^OQ_HIST_PAIR_BITS, as one number: the first in the lower bits. */
#define OQ_HIST_PAIR_BITS 7
typedef void (*oq_hist_pair_fn)(const int32_t *bin, size_t n_pairs, uint16_t *pair);

typedef struct oq_hist_kernels {
    oq_hist_find_fn find;
    oq_hist_pair_fn pair; /* of n_pairs from 1 on; writes up to OQ_HIST_SPARE more */
} oq_hist_kernels;

/* Number i of those the machine has, the fastest first; NULL after the last. */
const oq_hist_kernels *oq_hist_kernels_at(size_t i);

#endif
