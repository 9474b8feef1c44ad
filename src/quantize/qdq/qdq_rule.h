/*
 * qdq_rule.h — what the rule of an operator says about the tensors of its node, while tensors are
 * marked. Nodes and tensors are numbers; the state of the pass is the driver's (qdq_state.h).
 */
#pragma once

#include "onnx/graph.h"
#include "quantize/choose/config.h"
#include "quantize/rules.h"

#define OQ_NO_TENSOR UINT32_MAX

typedef struct oq_qdq oq_qdq;

/* ---- questions ---- */

const oq_qconfig *oq_qdq_config(const oq_qdq *q);
/* For warnings. */
const onq_env *oq_qdq_env(const oq_qdq *q);
/* The opset that the result will have. */
int64_t oq_qdq_opset(const oq_qdq *q);
const oq_node *oq_qdq_node_at(const oq_qdq *q, uint32_t node);
/* Input or output `slot` of a node; OQ_NO_TENSOR when absent or empty. */
uint32_t oq_qdq_input(const oq_qdq *q, uint32_t node, size_t slot);
uint32_t oq_qdq_output(const oq_qdq *q, uint32_t node, size_t slot);
/* True if the tensor is an initializer of this graph, or of one around it. */
bool oq_qdq_is_init(const oq_qdq *q, uint32_t tensor);
/* is_valid_quantize_weight: a float initializer. */
bool oq_qdq_is_float_init(const oq_qdq *q, uint32_t tensor);
/* is_tensor_quantized: marked so far, as bias too. */
bool oq_qdq_is_marked(const oq_qdq *q, uint32_t tensor);
/* OpTypesToExcludeOutputQuantization has the node's operator. */
bool oq_qdq_output_is_off(oq_qdq *q, uint32_t node);
/* The type that shape inference gave the tensor; 0: none. An initializer has none, nor has what is
 * absent. */
int32_t oq_qdq_inferred_type(const oq_qdq *q, uint32_t tensor);
/* *out is true if the tensor is a constant whose only value is 0. */
onq_code oq_qdq_is_zero(const oq_qdq *q, uint32_t tensor, bool *out, onq_error *err);
/* *out is true if the bias in input 2 of a Conv or Gemm would exceed int32 and the weight is
 * computed, so that its scale cannot be raised. The runtime itself makes a float bias int32 where
 * input and weight are quantized, so such a node must stay float. */
onq_code oq_qdq_bias_exceeds(const oq_qdq *q, uint32_t node, bool *out, onq_error *err);

/* ---- verbs ---- */

/* Says why the running rule leaves its node float. */
void oq_qdq_leave(oq_qdq *q, const char *why);

/* These ignore OQ_NO_TENSOR and tensors that are not float. */
onq_code oq_qdq_activation(oq_qdq *q, uint32_t tensor, onq_error *err);
/* `tensor` gets the parameters that `node` sees on `from`. */
onq_code oq_qdq_same_as(oq_qdq *q, uint32_t tensor, uint32_t from, uint32_t node, onq_error *err);
/* The bias in input `slot` of `node`: scale from `input` and `weight`. */
onq_code oq_qdq_bias_tensor(oq_qdq *q, uint32_t node, size_t slot, uint32_t input, uint32_t weight,
                            onq_error *err);
/* A weight per channel where that is asked for, else per tensor. op_type: NULL, or the operator
 * whose axis the user may have set. */
onq_code oq_qdq_weight_auto(oq_qdq *q, uint32_t tensor, int64_t fallback, const oq_str *op_type,
                            onq_error *err);
/* try_replacing_upstream_output: the maker of the node's input makes its output instead, and the
 * Relu or Clip goes; *gone says if it did. It goes only where the range of its output clips as it
 * does. */
onq_code oq_qdq_try_remove(oq_qdq *q, uint32_t node, bool *gone, onq_error *err);
/* QDQOperatorBase.quantize: all inputs and outputs as activations. */
onq_code oq_qdq_rule_plain(oq_qdq *q, uint32_t node, onq_error *err);
/* QDQDirect8BitOp.quantize: the output has the parameters of input 0. */
onq_code oq_qdq_rule_direct(oq_qdq *q, uint32_t node, onq_error *err);
