/*
 * operands.h — checks that the inputs and outputs of nodes fit their operators.
 *
 * How many there are, and of the inputs of products (Conv, Gemm, MatMul, and their counterparts
 * when they are quantized) ranks, channels, the length of the bias, the number of scales and zero
 * points. The facts by operator are in operators.def. A runtime refuses what is refused here, when
 * it loads the model or runs it; commands that have no runtime would make something of it that
 * nobody meant.
 *
 * An unknown shape is taken to fit.
 */
#pragma once

#include "onnx/graph.h"
#include "shape/shape.h"

/* For a model that comes in: is it valid (onnx/check/check.h), do the operands of all nodes fit,
 * with the shapes that inference finds? Nodes that come before what they read are put in order. */
onq_code oq_model_make_sound(oq_model *m, onq_error *err);
/* For one that goes out: do the operands fit, with the shapes of constants alone, which costs
 * nothing? `ix` is of the main graph. */
onq_code oq_operands_check_constants(oq_model *m, const oq_index *ix, onq_error *err);
