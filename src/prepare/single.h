/*
 * single.h — a model in float32: what it keeps and computes in float16 or bfloat16 becomes float32,
 * in all of its graphs and functions. The types of its inputs and outputs stay; a Cast stands
 * beside those that are small floats. Casts between floats inside of it go.
 */
#pragma once

#include "onnx/model.h"

typedef struct oq_single_report {
    size_t n_weights; /* constants that are float32 now */
    size_t n_casts;   /* between floats, that are gone */
    size_t n_ends;    /* inputs and outputs with a Cast beside them */
} oq_single_report;

/* Changes the model in place. `half_too` false: bfloat16 alone. Nodes come after what they read. */
onq_code oq_single_make(oq_model *m, bool half_too, oq_single_report *out, onq_error *err);
