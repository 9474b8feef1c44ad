/*
 * reach.h — what of a model a quantization reaches: the main graph, or the graphs inside If, Loop
 * and Scan too, and what their tensors are.
 */
#pragma once

#include "base/text/nearest.h"
#include "onnx/graph.h"
#include "quantize/choose/qrun.h"
#include "shape/shape.h"

/* What is known of a tensor by its name. */
typedef struct oq_reach_entry {
    oq_tensor *init;    /* the initializer, or NULL */
    bool is_known;      /* an input, a node's output, or a tensor of known type */
    bool is_weight;     /* some node reads it as a weight */
    bool has_axis;      /* and has its channels along `axis` */
    int64_t axis;       /* of the first such node */
    bool is_left_alone; /* in a graph that is not quantized, and in no other */
} oq_reach_entry;

typedef struct oq_reach {
    oq_map map; /* name -> index in all */
    OQ_VEC(oq_reach_entry) all;
    oq_strs names; /* in the order of `all` */
} oq_reach;

/* Runs fn over the graphs that are quantized. */
onq_code oq_reach_graphs(oq_model *m, const oq_qconfig *c, oq_graph_fn fn, void *ctx,
                         onq_error *err);
/* Looks at all tensors of the model, in one walk. */
onq_code oq_reach_init(oq_reach *s, oq_arena *a, oq_model *m, const oq_shapes *shapes,
                       const oq_qconfig *c, onq_error *err);
/* Never NULL: a tensor that is nowhere has an entry without anything. */
const oq_reach_entry *oq_reach_tensor(const oq_reach *s, oq_str name);
/* Offers the names of all tensors that are quantized, for a suggestion. */
void oq_reach_offer(const oq_reach *s, oq_nearest *near);

/* The operator types of the model that the run chooses, for calibration. */
onq_code oq_reach_types(oq_model *m, oq_qrun *r, unsigned modes, oq_arena *a, oq_strs *out,
                        onq_error *err);
/* True if a node that is to be quantized has a float tensor that is not an initializer. */
onq_code oq_reach_has_work(oq_model *m, oq_qrun *r, const oq_shapes *shapes, unsigned modes,
                           bool *out, onq_error *err);
/* Nodes inside If, Loop and Scan that would be quantized if those were. */
onq_code oq_reach_count_inner(oq_model *m, oq_qrun *r, const oq_shapes *shapes, unsigned modes,
                              size_t *out, onq_error *err);
