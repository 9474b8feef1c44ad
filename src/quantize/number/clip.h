/*
 * clip.h — what a Relu or Clip lets through, and whether a quantized range clips as it does.
 *
 * A quantized tensor holds nothing outside of its range, so that a Relu or Clip in front of it can
 * go where that range ends at its bounds or inside of them. It does not where the range is wider:
 * with a bound above 0 (every range holds 0), a symmetric range, a range with one bit less, or a
 * range that the user gave. A bound that the model computes, or that the caller gives, is not known
 * at all.
 */
#pragma once

#include "onnx/graph.h"
#include "quantize/number/qparam.h"

typedef struct oq_bounds {
    double low, high; /* infinite where there is no bound */
} oq_bounds;

/* The one real number that `name` always is: of an initializer or a Constant node, or of either
 * moved, reshaped or cast. False: it is something else, or not known. */
bool oq_constant_real(oq_model *m, const oq_index *ix, oq_str name, double *out);
/* The bounds of a Relu or Clip; false: one is not known. */
bool oq_clip_bounds(oq_model *m, const oq_index *ix, const oq_node *n, oq_bounds *out);
/* What both let through, one after the other. */
oq_bounds oq_bounds_then(oq_bounds first, oq_bounds second);
/* True if a tensor with these parameters holds nothing outside of the bounds, except by so many
 * steps of its scale. */
bool oq_bounds_hold(oq_bounds b, oq_dtype type, oq_qparam p, double steps);
/* Of calibrated ranges: rounding, and the step that a symmetric range has on one side only. */
#define OQ_STEPS_CALIBRATED 1.0
/* Of trained ranges: rounding. */
#define OQ_STEPS_TRAINED 0.5
