/*
 * half.h — a model in float16: its weights, or what it computes with too (`--float16`).
 *
 * Weights alone take half of the file, and cost no time: they go through a Cast that the runtime
 * folds when it loads the model, and everything is computed in float32. Computing in float16 pays
 * where the provider has such kernels; elsewhere the runtime puts casts around each node.
 *
 * Inputs and outputs of the model stay as they are, and so do weights whose values float16 cannot
 * hold. Nodes inside If, Loop and Scan, between DequantizeLinear and QuantizeLinear, and of
 * operators that half.def does not list compute as before. The names of float values stay theirs.
 */
#pragma once

#include "onnx/model.h"

typedef enum oq_half { OQ_HALF_NONE, OQ_HALF_WEIGHTS, OQ_HALF_ALL } oq_half;

typedef struct oq_half_report {
    size_t n_weights; /* in float16 now */
    size_t n_nodes;   /* that compute in it */
} oq_half_report;

/* Changes the model in place. Nodes come after what they read (oq_job_open_sound). */
onq_code oq_half_make(oq_model *m, oq_half how, oq_half_report *out, onq_error *err);
