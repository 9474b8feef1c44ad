/*
 * smooth_parts.h — the state that smooth.c (scales) and smooth_edit.c (edits) share.
 */
#ifndef OQ_PREPARE_SMOOTH_PARTS_H
#define OQ_PREPARE_SMOOTH_PARTS_H

#include "onnx/graph.h"
#include "onnx/names.h"
#include "onnx/tensor.h"
#include "prepare/channel_stats.h"
#include "prepare/smooth.h"

/* A node that reads the tensor, its weight, and the weight's axis that meets the tensor's
 * channels. */
typedef struct oq_smooth_reader {
    oq_node *node;
    oq_tensor *weight;
    size_t w_axis;
} oq_smooth_reader;

typedef struct oq_smooth_tensor {
    oq_str name;
    bool is_image; /* channels are axis 1, not the last */
    uint64_t n;    /* channels */
    oq_channel_stats *stats;
    float *scale; /* s */
    OQ_VEC(oq_smooth_reader) readers;
} oq_smooth_tensor;

typedef struct oq_smoothing {
    oq_smooth_job *job;
    oq_arena *arena;
    oq_index ix;
    oq_map map; /* tensor name -> index in all */
    OQ_VEC(oq_smooth_tensor *) all;
    oq_fresh names;
    OQ_VEC(oq_node *) new_nodes;
} oq_smoothing;

/* Multiplies the weights with s and divides the tensor by it, in a node of its own or folded. */
onq_code oq_smooth_apply(oq_smoothing *s, oq_smooth_tensor *t, onq_error *err);
/* Adds the new nodes, drops what nothing uses, sorts. */
onq_code oq_smooth_finish(oq_smoothing *s, onq_error *err);

#endif
