/*
 * hist_find.h — the bins of many float32 values at once, counted as they are found, and the extent
 * of the values on the way: the vector part of histograms (histogram.c).
 */
#pragma once

#include "calibrate/collect/histogram.h"

/* Values in one go; they and their bins stay in the first-level cache. */
#define OQ_HIST_PORTION 1024
/* The kernels write whole vectors. */
#define OQ_HIST_SPARE 16

/* What was seen of a portion. */
typedef struct oq_hist_found {
    bool inside;   /* all values lie in the range */
    bool measured; /* the extent is known: so they do, and not all are below zero */
    float least, most, least_magnitude;
    /* Of a list: */
    size_t n;
    uint32_t zeros, ends; /* values of 0 and of the range's end that are not in it */
    int32_t bin[OQ_HIST_PORTION + OQ_HIST_SPARE];
} oq_hist_found;

/* Each bin has so many counters of 16 bits, side by side, that are taken in turn. */
#define OQ_HIST_COPIES 4

/* For 1 to OQ_HIST_PORTION values and a histogram that has a scale. */
typedef struct oq_hist_kernels {
    /* Counts the values. What lies outside the range goes to the first bin (if it is below, or NaN)
     * or the last. */
    void (*count)(const oq_hist *h, const float *v, size_t n, uint16_t *counters, oq_hist_found *f);
    /* Only lists the bins. Zeros and ends of the range may be counted and left out, which pays
     * where they are many (after a Relu or Clip); what lies outside is left out. */
    void (*list)(const oq_hist *h, const float *v, size_t n, oq_hist_found *f);
    /* Adds the counters of each bin to its count. */
    void (*add_up)(const uint16_t *counters, size_t n_bins, uint64_t *count);
} oq_hist_kernels;

/* Number i of those the machine has, the fastest first; NULL after the last. */
const oq_hist_kernels *oq_hist_kernels_at(size_t i);
