/*
 * unpack.h — a quantized constant as the float tensor it stands for.
 *
 * A DequantizeLinear of a constant is computed each time a model runs without the runtime's
 * optimisations, and along the last axis the runtime takes longer for it than for the product that
 * needs it. Here it becomes an initializer whose values are made when a session is opened: they
 * follow what the integers are then.
 */
#pragma once

#include "onnx/graph.h"

/* The tensor that `dq` makes, of its output's name; *out is NULL where its inputs are no constants,
 * or where it is of blocks, or not of integers and float32. */
onq_code oq_unpack(oq_model *m, oq_arena *a, const oq_index *ix, const oq_node *dq, oq_tensor **out,
                   onq_error *err);
