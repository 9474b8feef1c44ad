/*
 * extreme.h — quantized tensors whose greatest values leave no steps for the others.
 *
 * An attention mask of -3.4e38 or -1e4 is added to scores of about 10: eight bits over that range
 * have one step for all scores. The file is as asked for, and it computes something else. Such
 * tensors are looked for before the graph is changed, and reported when it is known which nodes
 * were quantized.
 */
#pragma once

#include "calibrate/ranges.h"
#include "onnx/graph.h"
#include "quantize/choose/config.h"
#include "quantize/override/override.h"
#include "quantize/plan.h"

/* No operator computes such values; scales of them overflow when they are multiplied out. */
#define OQ_EXTREME_VAST 1e30f
/* Masks in use begin at -1e4, and scores are added to them. */
#define OQ_EXTREME_MASK (-9000.0f)

typedef struct oq_extreme {
    oq_str name;
    float lowest, highest, step; /* of the range */
    float seen;                  /* the lowest value that there was, where the method says so */
    bool feeds_softmax;
    bool pure;            /* nothing but a mask, 0 and values far below: harmless itself */
    OQ_VEC(oq_str) nodes; /* its maker and readers */
} oq_extreme;

typedef struct oq_extremes {
    oq_arena *arena;
    OQ_VEC(oq_extreme) all;
    size_t n_clamped, n_left; /* that masks.h has dealt with */
} oq_extremes;

/* Adds the tensors of one graph. */
onq_code oq_extremes_find(oq_extremes *e, oq_graph *g, const oq_ranges *ranges,
                          const oq_qconfig *config, const oq_overrides *overrides, onq_error *err);
/* Warns of those that a quantized node makes or reads, and names the nodes to exclude. */
onq_code oq_extremes_warn(const oq_extremes *e, const oq_plan *plan, const onq_env *env,
                          onq_error *err);
