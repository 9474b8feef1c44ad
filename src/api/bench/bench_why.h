/*
 * bench_why.h — why a quantized model may be slower than float: what it has that the runtime's
 * integer kernels do not take, or take slowly.
 */
#pragma once

#include "base/vec.h"
#include "onnx/model.h"

typedef struct oq_bench_why {
    bool quantized; /* the model has integers in it */
    OQ_VEC(oq_str) reasons;
} oq_bench_why;

/* Looks at the graph, not at the clock: the reasons are those of the model and of this CPU. Texts
 * live in the arena. */
onq_code oq_bench_find_why(oq_bench_why *w, oq_arena *a, oq_model *m, onq_error *err);
