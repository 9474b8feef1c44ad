/*
 * edit.h — changing a graph: add, remove, replace; unique names; what nothing uses.
 *
 * Edits are made on graph->node and its sister lists directly or through these helpers; an oq_index
 * is stale afterwards. Everything new lives in the model's arena. All return false/NULL when out of
 * memory.
 */
#pragma once

#include "onnx/attr.h"
#include "onnx/graph.h"
#include "onnx/names.h"
#include "onnx/tensor.h"

/* A new node, not yet in a graph. Texts are borrowed (model's arena, mapping or literals). */
oq_node *oq_node_new(oq_arena *a, const char *op_type, oq_str name);
/* What is said of a node and is no part of what it computes (doc_string, metadata, fields of a
 * later format) goes to the one that stands in its place. */
void oq_node_carry(oq_node *to, const oq_node *from);
/* The node gets the attributes of another one, beside those that it has. */
bool oq_node_share_attributes(oq_arena *a, oq_node *to, const oq_node *from);
bool oq_node_add_input(oq_arena *a, oq_node *n, oq_str name);
bool oq_node_add_output(oq_arena *a, oq_node *n, oq_str name);
/* op_type, name, inputs and outputs at once: NULL-free arrays of n names. */
oq_node *oq_node_make(oq_arena *a, const char *op_type, oq_str name, const oq_str *in, size_t n_in,
                      const oq_str *out, size_t n_out);

bool oq_graph_add_node(oq_arena *a, oq_graph *g, oq_node *n);
/* The graph's nodes become these n. */
bool oq_graph_set_nodes(oq_arena *a, oq_graph *g, oq_node *const *v, size_t n);
bool oq_graph_insert_node(oq_arena *a, oq_graph *g, size_t at, oq_node *n);
bool oq_graph_add_init(oq_arena *a, oq_graph *g, oq_tensor *t);
/* The same for n of them. */
bool oq_graph_add_inits(oq_arena *a, oq_graph *g, oq_tensor *const *v, size_t n);
oq_tensor *oq_graph_find_init(const oq_graph *g, oq_str name);
bool oq_graph_remove_init(oq_graph *g, oq_str name);
oq_value_info *oq_graph_find_info(const oq_graph *g, oq_str name); /* input, output, value_info */
/* Removes all nodes i with drop[i]. */
void oq_graph_remove_nodes(oq_graph *g, const bool *drop);
/* Every use of a name in the map as a node input (in subgraphs too, unless shadowed) becomes the
 * name of that index in `to`, which no subgraph may define itself. Outputs of `g` stay; outputs of
 * subgraphs that name one follow. */
onq_code oq_graph_replace_many(oq_model *m, oq_graph *g, const oq_map *map, const oq_str *to,
                               onq_error *err);
/* A value_info of a plain tensor: dims < 0 are unknown. */
oq_value_info *oq_value_info_new(oq_arena *a, oq_str name, int32_t elem_type, const int64_t *dims,
                                 size_t rank, bool has_shape);

/* Removes nodes whose outputs nothing uses (repeatedly), then initializers and value_infos of
 * names that are gone. Graph inputs stay, and initializers that give one its default. Inner
 * graphs keep their nodes. */
onq_code oq_graph_prune(oq_model *m, oq_graph *g, onq_error *err);
/* What is of no use in a graph and all graphs inside it: names that dead nodes make, and
 * value_infos of names that are not there. They are added to `names`. */
onq_code oq_graph_find_dead(oq_model *m, oq_graph *g, oq_map *names, onq_error *err);
/* The same as oq_graph_prune, but what `names` has stays, with all that it reads. */
onq_code oq_graph_prune_new(oq_model *m, oq_graph *g, const oq_map *names, onq_error *err);
/* The model says nothing more of the shapes and types of tensors between inputs and outputs. */
onq_code oq_model_drop_shapes(oq_model *m, onq_error *err);
/* Only initializers that nothing uses, subgraphs counted; in subgraphs too. A graph input of the
 * same name goes with its initializer, as in ONNXModel.clean_initializers. */
onq_code oq_graph_prune_inits(oq_model *m, oq_graph *g, onq_error *err);
