/*
 * means.h — the mean of each channel of a layer's output, sample by sample.
 */
#pragma once

#include "quantize/refine/layers.h"
#include "samples/datum.h"

typedef struct oq_means {
    uint64_t channels;
    float *mean;     /* [sample * channels + c] */
    uint64_t *count; /* [sample]: values of a channel; 0: not seen, or of other channels */
} oq_means;

onq_code oq_means_init(oq_means *m, oq_arena *a, uint64_t channels, size_t n_samples,
                       onq_error *err);
/* Puts in what a layer made of one sample. A tensor of another type or shape counts as not seen. */
onq_code oq_means_add(oq_means *m, const oq_layer *l, size_t sample, const oq_datum *d,
                      oq_arena *scratch, onq_error *err);
/* delta[c]: float less quantized, over the first n samples that both have seen; false: there is
 * none. */
bool oq_means_differ(const oq_means *flt, const oq_means *quantized, size_t n, double *delta);
