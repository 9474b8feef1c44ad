/*
 * check.h — is it a valid model? Structure, not operators.
 *
 * Unique tensor names, one producer a tensor, inputs available (outer scopes counted), no cycle,
 * payload size = dims x type, known data types, opset imports present, IR version sane, function
 * calls that do not recurse. One error, naming the place.
 */
#ifndef OQ_ONNX_CHECK_H
#define OQ_ONNX_CHECK_H

#include "onnx/model.h"

onq_code oq_model_check(oq_model *m, onq_error *err);

#endif
