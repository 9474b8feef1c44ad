/*
 * recast.h — the values of a constant in another float type, computed when they are written, in
 * slices: neither the constant nor its twin is ever in memory as a whole.
 */
#pragma once

#include "onnx/dtype.h"
#include "onnx/model.h"

/* Sets the payload of `to`, which has the shape of `from` and its own float type (float32, float16
 * or bfloat16, as that of `from`), to the values of `from`, rounded to even. */
onq_code oq_recast_payload(oq_model *m, oq_tensor *from, oq_tensor *to, onq_error *err);
/* The tensor itself gets another float type. */
onq_code oq_recast_in_place(oq_model *m, oq_tensor *t, oq_dtype type, onq_error *err);

/* Calls fn for stretches of the values of a float32 tensor, in order, until it returns false. */
typedef bool (*oq_floats_fn)(void *ctx, const float *x, size_t n);
onq_code oq_floats_scan(oq_model *m, oq_tensor *t, oq_floats_fn fn, void *ctx, onq_error *err);

/* Whether a Cast can be written into the model: it names its type by a number from opset 6 on. */
onq_code oq_recast_may_cast(const oq_model *m, onq_error *err);
