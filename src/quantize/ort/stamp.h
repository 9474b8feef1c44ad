/*
 * stamp.h — the stamps that quantizers leave on a model, and the last check of one.
 */
#pragma once

#include "onnx/model.h"

/* producer_name and producer_version as the reference writes them; an IR version that allows
 * initializers that are not inputs. */
onq_code oq_stamp_producer(oq_model *m, onq_error *err);
/* metadata_props "onnx.infer": "onnxruntime.quant" in front of the others, as the reference
 * leaves it on every model it loads. */
onq_code oq_stamp_inferred(oq_model *m, onq_error *err);
/* What it leaves on a model that it writes, large tensors apart, and reads again, as it does after
 * raising the opset and in dynamic quantization: large tensors say that their data is inside. */
onq_code oq_stamp_reloaded(oq_model *m, onq_error *err);
/* Bytes of a tensor from which on it is written apart for a threshold of onnx.save_model, which
 * counts what Python takes for itself too. */
#define OQ_STAMP_APART(threshold) ((threshold) > 33 ? (threshold)-33 : 0)
static inline bool oq_stamp_is_apart(uint64_t bytes) {
    return bytes >= OQ_STAMP_APART(1024);
}
/* True if the model was preprocessed (by onq or by the reference). */
bool oq_stamp_is_preprocessed(const oq_model *m);

/* The last look before a result is kept: a valid model, scales that are finite and positive,
 * zero points of the quantized type. */
onq_code oq_result_check(oq_model *m, onq_error *err);
