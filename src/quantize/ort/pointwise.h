/*
 * pointwise.h — a Conv with a kernel of one element written as MatMul in a QDQ model, where its
 * result is to stay float.
 *
 *     x -> DQ -> Conv(DQ(w), DQ(b)) -> y
 *     x -> Transpose -> DQ -> MatMul(DQ(w')) -> Sub(-b) -> Transpose -> y
 *
 * ONNX Runtime has an integer product with float outputs for MatMul and none for Conv, whose result
 * it must round to 8 bits: what reads floats there sees that rounding. The Transpose before the
 * product moves bytes, and the runtime drops both where its own convolutions have the channels last.
 * It is a Sub because the runtime makes a float Gemm of some MatMul and Add.
 *
 * It is the last step: learned rounding and bias correction still see the Conv of the float model.
 */
#pragma once

#include "onnx/graph.h"

/* A Conv of one group that moves nothing: each element of its result is a product of one column of
 * channels. */
bool oq_is_pointwise(const oq_node *n, const oq_tensor *weight);

/* Writes the Conv nodes of the main graph that `chosen` has by their first outputs as MatMul; *n
 * says how many. One whose input or weight is not quantized to 8 bits, with one scale for the
 * input and one or one for each channel for the weight, stays as it is. */
onq_code oq_pointwise_apply(oq_model *m, const oq_map *chosen, size_t *n, onq_error *err);
