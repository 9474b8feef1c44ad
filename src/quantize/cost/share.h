/*
 * share.h — what part of a model computes in integers: of its weights, and of its
 * multiply-accumulates. Nodes counted by type say little of either.
 */
#pragma once

#include "onnx/graph.h"
#include "quantize/plan.h"
#include "shape/shape.h"

typedef struct oq_share {
    double weights, macs; /* 0 to 1; NAN: there are none, or it is not known */
    double elements;      /* of the weights of the source */
} oq_share;

/* `source` is the graph before it was quantized, `shapes` are of it, `result` is what became of it
 * (NULL: nothing was written, and the share of the weights is not known). Weights are constants of
 * float, counted by their elements; one that only a QuantizeLinear reads counts as integer, and so
 * do those that integer operators of the source read. Bodies of If, Loop and Scan count once. */
onq_code oq_share_find(oq_share *s, oq_arena *scratch, oq_graph *source, const oq_shapes *shapes,
                       const oq_plan *plan, oq_graph *result, onq_error *err);
