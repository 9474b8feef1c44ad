/*
 * macs.h — how much work a node is, in multiply-accumulates.
 *
 * Shapes that depend on the samples are known best when the inputs have the sizes of one: fix them,
 * then infer.
 *
 *     OQ_TRY(oq_input_fix(copy, name, dims, rank, err));      (for each input)
 *     OQ_TRY(oq_shapes_infer(copy, &(oq_shape_options){.symbolic = true}, &shapes, err));
 *     macs = oq_node_macs(shapes, graph, node);
 */
#pragma once

#include "shape/shape.h"

/* Of a float Conv, ConvTranspose, MatMul, Gemm, recurrent operator or Attention; 0 for all others
 * and where a rank is not known. A dimension that is not known counts as 1, which leaves the shares
 * of nodes right where it is the batch. */
double oq_node_macs(const oq_shapes *s, const oq_graph *g, const oq_node *n);

/* The same of any operator, quantized ones too. */
double oq_node_work(const oq_shapes *s, const oq_graph *g, const oq_node *n);

/* Elements of a tensor, unknown dimensions counting as 1; 0 when its rank is not known. */
double oq_tensor_extent(const oq_shapes *s, const oq_graph *g, oq_str name);

/* Gives an input of the main graph this shape, and drops the shapes in between, which rest on the
 * one it had. An input of another name or rank is left alone. */
onq_code oq_input_fix(oq_model *m, oq_str name, const int64_t *dims, size_t rank, onq_error *err);
