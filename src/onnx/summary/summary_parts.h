/*
 * summary_parts.h — between summary.c and summary_quant.c.
 */
#pragma once

#include "onnx/graph.h"
#include "onnx/operators.h"
#include "onnx/summary/summary.h"

/* What the walk over the graphs carries. */
typedef struct oq_summary_walk {
    oq_summary *s;
    const oq_modes *modes; /* or NULL */
    oq_arena *arena;
    oq_map ops; /* "domain\nop" -> index in s->ops */
    oq_map files;
    oq_map read;                   /* name of a weight -> index in s->quant.read */
    oq_map counted[OQ_MODE_COUNT]; /* names of weights counted for a mode */
} oq_summary_walk;

/* What one node says about quantization. */
onq_code oq_summary_quant_node(oq_summary_walk *w, const oq_index *ix, const oq_node *n,
                               onq_error *err);
