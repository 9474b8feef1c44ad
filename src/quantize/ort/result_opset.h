/*
 * result_opset.h — which opset the result needs, and raising the model to it.
 */
#pragma once

#include "onnx/model.h"
#include "quantize/choose/qrun.h"
#include "quantize/override/override.h"
#include "shape/shape.h"

/* What update_opset_version of the reference decides, and the cases in which its result does not
 * load: weights per channel below opset 13, pairs around float16 tensors below 19, and at opset 10
 * an Upsample, and what oq_opset_needs_11 says. *why says why when *target is above the model's
 * opset; a model with no opset of ONNX is refused. The types of tensors must be in the model
 * (value_info), and `shapes` is the plain inference that found them; only OQ_QMODE_QDQ reads it.
 * `mode` is one of oq_qmode. */
onq_code oq_opset_needed(oq_model *m, const oq_shapes *shapes, oq_qrun *r, const oq_overrides *o,
                         unsigned mode, int64_t *target, const char **why, onq_error *err);
/* Why a float node between quantized tensors does not load at opset 10 (ONNX Runtime rewrites it),
 * or NULL. */
const char *oq_opset_needs_11(const oq_node *n, bool float_bias);
/* The same for dynamic quantization, which the reference also does at opset 10: by plain operators
 * whose zero point wraps around where all values are above 0, or all below. *target is 11 there. */
onq_code oq_opset_needed_dynamic(oq_model *m, oq_qrun *r, const oq_overrides *o, int64_t *target,
                                 const char **why, onq_error *err);
/* Raises the model's opset, warning as the reference does; does nothing when it is there. `reload`:
 * as the functions of the reference, which write a raised model and read it again (stamp.h). */
onq_code oq_opset_raise(oq_model *m, int64_t target, const char *why, bool reload, onq_error *err);
