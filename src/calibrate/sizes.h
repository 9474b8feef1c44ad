/*
 * sizes.h — how large tensors are when a model runs.
 */
#pragma once

#include "samples/source.h"
#include "shape/shape.h"

/* Bytes of a tensor of the graph, 0 when its dims are not all known, or too many. */
uint64_t oq_tensor_size(const oq_shapes *s, const oq_graph *g, oq_str name);

/* Fills in bytes[i] of the tensor names[i] of the main graph, where it is 0, by inference over a
 * run of this sample. */
onq_code oq_sizes_like(oq_model *m, const oq_sample *sample, const oq_str *names, size_t n,
                       uint64_t *bytes, onq_error *err);
