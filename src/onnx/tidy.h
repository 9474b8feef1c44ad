/*
 * tidy.h — a model put in order after edits, as the reference's ONNXModel does it.
 */
#pragma once

#include "onnx/graph.h"
#include "onnx/model.h"

/* ONNXModel.clean_initializers: initializers that nothing uses go, subgraphs counted; nodes that
 * hold graphs get their attributes in the order of their names and lose a name and a domain that
 * are empty, which are side effects there. */
onq_code oq_model_clean_inits(oq_model *m, onq_error *err);

/* The order of ONNXModel.topological_sort, which does not see what subgraphs read; where that
 * puts a node before what its subgraphs need, a stable topological order of it. */
onq_code oq_model_sort(oq_model *m, onq_error *err);
/* A stable topological order of an inner graph. */
onq_code oq_model_sort_inner(oq_model *m, oq_graph *g, onq_error *err);
/* The same for every graph of the model. One whose nodes come after what they read is not touched.
 * `ix` is of the main graph, or NULL; where that is sorted it holds no more. */
onq_code oq_model_sort_all(oq_model *m, const oq_index *ix, onq_error *err);

/* The tensor that a Constant node makes, with the name of its output, built where it is given as
 * plain numbers; NULL when it is sparse or texts. */
onq_code oq_constant_make(oq_arena *a, const oq_node *n, oq_tensor **out, onq_error *err);
/* Constant nodes of the main graph and of all subgraphs become initializers; *n says how many. */
onq_code oq_model_lift_constants(oq_model *m, size_t *n, onq_error *err);
