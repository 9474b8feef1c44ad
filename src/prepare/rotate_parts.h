/*
 * rotate_parts.h — between rotate.c, which finds what is turned, and rotate_turn.c, which does it.
 */
#pragma once

#include "onnx/tensor.h"

/* A constant that is turned: each of its rows, or each of its columns after its rows are multiplied
 * with the gain. */
typedef struct oq_turned {
    oq_tensor *tensor;
    const float *gain; /* `width` numbers; NULL: 1 */
    bool columns;
    oq_tensor *to; /* gets the values; the tensor itself, or a copy of its size */
} oq_turned;

/* Writes the turned values of all of them. */
onq_code oq_turn(oq_model *m, const oq_turned *all, size_t n, uint64_t width, onq_error *err);
