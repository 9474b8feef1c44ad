/*
 * ort_forms.h — what ONNX Runtime's optimisers make of a QDQ graph that is only partly quantized,
 * and forms that they leave alone.
 *
 * WeightBiasQuantization (1.31) takes a float Conv, ConvTranspose or Gemm whose input is a
 * DequantizeLinear and whose output goes, through one Relu or Clip at most, to one QuantizeLinear,
 * and quantizes its float weight to int8 per tensor: the node that was left float computes with 8
 * bits all the same. A Max with the lowest number before the QuantizeLinear ends that, for one pass
 * over the output; Relu and Clip stay fused with the node.
 *
 * MatMulAddFusion turns a MatMul and the Add of its bias into a float Gemm before it is seen that
 * the MatMul's factors are quantized: with two axes always, with more where all sizes are known. A
 * Sub of the negated bias has no such rule, and the MatMul becomes MatMulIntegerToFloat.
 *
 * QLinearAveragePool, which an AveragePool between pairs becomes, divides by the whole window where
 * count_include_pad is set, although a window that ceil_mode adds hangs over the end: what is past
 * the padding does not count. Without padding the attribute says nothing and can go; with it the
 * pool has to stay float. QLinearSoftmax makes 0 of the 1 that a single value comes to. A Max as
 * above keeps both from being made.
 */
#pragma once

#include "onnx/model.h"
#include "onnx/names.h"
#include "quantize/plan.h"
#include "shape/shape.h"

/* What a node needs because the runtime's quantized kernel for it computes something else. */
typedef enum oq_kernel_need {
    OQ_KERNEL_NOTHING,
    OQ_KERNEL_UNPADDED, /* count_include_pad has to go */
    OQ_KERNEL_FLOAT
} oq_kernel_need;

/* Shapes of a float model at an opset, and the graph that names are looked up in. */
typedef struct oq_forms_shapes {
    const oq_shapes *shapes;
    const oq_graph *graph; /* NULL: the main one */
    int64_t opset;
} oq_forms_shapes;

/* Of a node that reads `input`. */
oq_kernel_need oq_forms_kernel_need(const oq_node *n, const oq_forms_shapes *s, oq_str input);
/* How many values of a Softmax with this input or output sum up to 1; 0: not known. */
double oq_forms_summed(const oq_node *softmax, const oq_forms_shapes *s, oq_str name);
/* Gives nodes between pairs what they need. The nodes that it adds are at the end of the graph:
 * sort it then. */
onq_code oq_forms_kernels(oq_model *m, const oq_forms_shapes *s, oq_fresh *names, onq_error *err);

/* A node whose float weight the runtime quantizes again. */
typedef struct oq_forms_hit {
    const oq_node *node;
    double sqnr; /* of the weight in int8 per tensor, in dB; INFINITY: it loses nothing */
} oq_forms_hit;
typedef OQ_VEC(oq_forms_hit) oq_forms_hits;

/* Finds them in all graphs of the model, those that lose most first. */
onq_code oq_forms_find(oq_model *m, oq_arena *a, oq_forms_hits *out, onq_error *err);
/* Protects all of them; *n is how many. Nodes that it adds to the main graph are at its end: sort it
 * then. */
onq_code oq_forms_protect(oq_model *m, oq_fresh *names, size_t *n, onq_error *err);
/* Protects them, and counts them in the plan, if `keep`; otherwise gives each a row there, for a
 * warning. */
onq_code oq_forms_keep(oq_model *m, oq_fresh *names, bool keep, oq_plan *plan, onq_error *err);
/* Writes biases of integer products with float outputs as said above; *n is how many. `shapes` are
 * those of the float model. */
onq_code oq_forms_products(oq_model *m, const oq_shapes *shapes, oq_fresh *names, size_t *n,
                           onq_error *err);
