/*
 * product_forms.h — integer products with float outputs, in forms that ONNX Runtime multiplies as
 * MatMulIntegerToFloat.
 *
 * Double activations: the input of a MatMul is quantized, what that loses is quantized again with a
 * step 254 times smaller, and both are multiplied with the same weight:
 *
 *     q1 = Q(x)    q2 = Q'(DQ(q1) - x)    y = MatMul(DQ(q1), DQ(w)) - MatMul(DQ'(q2), DQ(w))
 *
 * which is as good as 16 bits. Every product has DequantizeLinear nodes of its own: the runtime
 * fuses a node that alone reads them. It is a Sub because the runtime makes a float Gemm of a
 * MatMul with two axes and an Add.
 *
 * Float readers: a node that stays float reads a tensor as it was, and not what its pair leaves of
 * it, where a float node made it. The reference has all readers read the pair.
 *
 * Needless Clip: one whose bounds are those of the QuantizeLinear after it, to less than a step,
 * goes: what was clipped saturates. The Clip of outliers (prepare/channels/channels.h) is one.
 *
 * Early pairs: where the rewrite of Conv over one axis (prepare/fuse/fuse_conv1d.c) made the input,
 * x is quantized before it is padded, cut and joined, so that bytes are moved and not floats.
 */
#pragma once

#include "onnx/graph.h"
#include "onnx/names.h"

typedef struct oq_product_forms {
    oq_model *m;
    oq_fresh *names;
    const oq_map *doubled; /* first outputs of the MatMul nodes with double activations */
    const oq_map *made;    /* first outputs of nodes that stay float, or whose output does */
    const oq_map *read;    /* first outputs of nodes that stay float */
    size_t n_doubled;      /* out */
} oq_product_forms;

/* Changes the QDQ model's main graph. Nodes that it adds are at its end: sort it then. */
onq_code oq_product_forms_apply(oq_product_forms *p, onq_error *err);
