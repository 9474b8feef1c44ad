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

/* Means of the float model's layers, for later runs over the same model and samples. Several runs
 * may see some of the samples each. */
typedef struct oq_mean_memory oq_mean_memory;
struct oq_mean_memory {
    oq_arena arena;
    oq_mean_memory *other;     /* of runs that saw other tensors; NULL: there is none */
    OQ_VEC(oq_str) names;      /* of tensors; empty: nothing was seen */
    OQ_VEC(uint64_t) channels; /* by name */
    OQ_VEC(oq_means *) seen;   /* by number of a sample: its row, or NULL */
};
void oq_mean_memory_init(oq_mean_memory *m, const onq_allocator *alloc);
void oq_mean_memory_release(oq_mean_memory *m);
/* Fills all[k] (of names[k]) from memory, for the samples of these numbers, n of them. False: no
 * run saw all of these names and one of the samples. */
bool oq_mean_memory_recall(const oq_mean_memory *m, const oq_str *names, oq_means *all,
                           size_t n_names, const uint64_t *numbers, size_t n);
/* What a run over them saw, as far as `most` bytes hold it. */
onq_code oq_mean_memory_keep(oq_mean_memory *m, const oq_str *names, const oq_means *all,
                             size_t n_names, const uint64_t *numbers, size_t n, uint64_t most,
                             onq_error *err);

onq_code oq_means_init(oq_means *m, oq_arena *a, uint64_t channels, size_t n_samples,
                       onq_error *err);
/* Puts in what a layer made of one sample. A tensor of another type or shape counts as not seen. */
onq_code oq_means_add(oq_means *m, bool last_axis, size_t sample, const oq_datum *d,
                      oq_arena *scratch, onq_error *err);
/* delta[c]: float less quantized, over the first n samples that both have seen; false: there is
 * none. */
bool oq_means_differ(const oq_means *flt, const oq_means *quantized, size_t n, double *delta);
