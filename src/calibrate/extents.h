/*
 * extents.h — what MinMax saw of each tensor, sample by sample: a memory for later jobs over the
 * same model and samples.
 *
 * The least and the largest value of a tensor over some samples follow from those in each of them.
 * So a job that has seen all samples in parts serves any other choice of them, to the bit. Tensors
 * with NaN are not remembered: a job that meets them has something to say.
 */
#pragma once

#include "base/env.h"
#include "base/map.h"
#include "base/vec.h"
#include "onnx/dtype.h"

typedef struct oq_seen_extent {
    float lo, hi; /* NaN: not seen */
} oq_seen_extent;

typedef struct oq_seen_tensor {
    oq_dtype type;
    OQ_VEC(oq_seen_extent) by_sample; /* by its number */
} oq_seen_tensor;

typedef struct oq_extent_memory {
    oq_arena arena;
    oq_map map; /* name -> index */
    OQ_VEC(oq_seen_tensor) all;
} oq_extent_memory;

void oq_extent_memory_init(oq_extent_memory *m, const onq_allocator *alloc);
void oq_extent_memory_release(oq_extent_memory *m);

/* What is remembered of a tensor; NULL unless all samples of these numbers are. */
const oq_seen_tensor *oq_extent_memory_find(const oq_extent_memory *m, oq_str name,
                                            const uint64_t *numbers, uint64_t n);
/* True if some tensor is remembered of the samples 0 to n - 1. */
bool oq_extent_memory_is_full(const oq_extent_memory *m, uint64_t n);
/* Remembers a tensor: v[i] is of the sample numbers[i]. */
onq_code oq_extent_memory_keep(oq_extent_memory *m, oq_str name, oq_dtype type,
                               const oq_seen_extent *v, const uint64_t *numbers, uint64_t n,
                               onq_error *err);
