/*
 * int8_movers.h — int8 tensors from opset 21 on whose last reader is an operator that moves values.
 */
#pragma once

#include "onnx/model.h"

/* ONNX Runtime puts a pair of its own after a MaxPool, Reshape, Transpose, Slice, Squeeze or
 * Unsqueeze that reads a DequantizeLinear and whose output is not quantized. From opset 21 on it
 * writes output_dtype = INT8 into that pair; on x86 a later pass turns int8 pairs into uint8,
 * forgets the attribute, and the model does not load. A pair of com.microsoft has no such
 * attribute, and the runtime's pair is of the domain of the DequantizeLinear it comes from. So this
 * puts such a DequantizeLinear into com.microsoft, where it computes the same. Does nothing below
 * opset 21. */
onq_code oq_quant_mend_int8_movers(oq_model *m, onq_error *err);
