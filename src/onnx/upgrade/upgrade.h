/*
 * upgrade.h — raising the default-domain opset of a model.
 *
 * Made after onnx 1.22's version_converter.convert_version, which the reference's quantizer uses
 * (quant_utils.update_opset_version): node for node the same result, with the same invented names
 * (_v_7 ...), the value_infos it keeps and those it drops. Where the converter fails, loses data or
 * makes an invalid model, this does it right instead: functions, sparse initializers, metadata and
 * annotations stay, operators it does not know stay as they are, GroupNormalization gets its scales
 * by channel, constants for Clip and Pad have the type of the tensor. upgrade.def is the table: one
 * row for each change of an operator.
 *
 * Ranks that some changes need (Softmax, Resize) are taken from the model's value_infos, as the
 * converter does: run shape inference before.
 */
#pragma once

#include "onnx/model.h"

/* The newest opset there are rows for, and the oldest that can be raised. */
#define OQ_OPSET_NEWEST 28
#define OQ_OPSET_OLDEST 7

/* Raises the opset to `target`; does nothing when the model is there already or beyond. The IR
 * version stays. ONQ_E_UNSUPPORTED names a node that has no equivalent in the newer opset. */
onq_code oq_model_upgrade(oq_model *m, int64_t target, onq_error *err);

/* True if the operator of the default domain changed when the opset became `to`. */
bool oq_opset_changed(oq_str op, int64_t to);
