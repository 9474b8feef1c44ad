/*
 * finish.h — what all quantizers do to a model at the beginning and at the end.
 */
#ifndef OQ_QUANTIZE_FINISH_H
#define OQ_QUANTIZE_FINISH_H

#include "onnx/model.h"

/* producer_name and producer_version as the reference writes them; an IR version that allows
 * initializers which are no inputs. */
onq_code oq_quant_set_producer(oq_model *m, onq_error *err);
/* metadata_props "onnx.infer": "onnxruntime.quant" in front of the others, as the reference
 * leaves it on every model it loads. */
onq_code oq_quant_set_inferred(oq_model *m, onq_error *err);
/* Has the model been preprocessed (by us or by the reference)? */
bool oq_quant_is_preprocessed(const oq_model *m);

/* ONNXModel.clean_initializers: initializers that nothing uses go, subgraphs counted; nodes that
 * hold graphs get their attributes in the order of their names, which is a side effect there. */
onq_code oq_quant_clean_inits(oq_model *m, onq_error *err);

/* The order of ONNXModel.topological_sort, which does not see what subgraphs read; where that
 * puts a node in front of what its subgraphs need, a stable topological order of it. */
onq_code oq_quant_sort(oq_model *m, onq_error *err);
/* A stable topological order of an inner graph. */
onq_code oq_quant_sort_inner(oq_model *m, oq_graph *g, onq_error *err);

/* The last look before a result is kept: a valid model, scales that are finite and positive,
 * zero points of the quantized type. */
onq_code oq_quant_check(oq_model *m, onq_error *err);

/* Constant nodes of the main graph and of all subgraphs become initializers; *n says how many. */
onq_code oq_quant_lift_constants(oq_model *m, size_t *n, onq_error *err);

#endif
