/*
 * graph.h — who produces and who consumes each tensor of a graph.
 *
 * An index is a snapshot: names become tensor indices, producers and consumers are arrays, and both
 * are valid until the graph is edited; then build it again (it is linear in the graph). Subgraphs
 * (If, Loop, Scan) have an index of their own with `parent` set: a name not found there is looked
 * up outwards. Names used inside a subgraph count as uses of the node that holds the subgraph (slot
 * OQ_SLOT_INNER, once for each node and name).
 */
#pragma once

#include "base/limits.h"
#include "base/map.h"
#include "onnx/codec/message.h"
#include "onnx/model.h"

#define OQ_NO_NODE    UINT32_MAX
#define OQ_SLOT_INNER UINT32_MAX

typedef struct oq_use {
    uint32_t node; /* index in graph->node */
    uint32_t slot; /* index in node->input, or OQ_SLOT_INNER */
} oq_use;

typedef struct oq_value {
    oq_str name;
    uint32_t producer;      /* node index, or OQ_NO_NODE */
    uint32_t producer_slot; /* index in node->output */
    oq_tensor *init;        /* initializer of that name, or NULL */
    oq_sparse *sparse_init; /* sparse initializer, or NULL */
    oq_value_info *info;    /* from input, output or value_info, or NULL */
    bool is_input, is_output;
    OQ_VEC(oq_use) uses;
} oq_value;

/* Made in this graph (node output, initializer, input), not only mentioned in it. */
static inline bool oq_value_is_defined(const oq_value *v) {
    return v->producer != OQ_NO_NODE || v->init != NULL || v->sparse_init != NULL || v->is_input;
}

typedef struct oq_index {
    oq_graph *graph;
    const struct oq_index *parent; /* of the graph around, or NULL */
    oq_arena *arena;               /* scratch */
    oq_map map;                    /* name -> index in values */
    OQ_VEC(oq_value) values;
} oq_index;

/* Builds the index in `scratch`. Does not check validity (check.h does): of two producers the
 * first wins. */
onq_code oq_index_build(oq_index *ix, oq_arena *scratch, oq_graph *g, const oq_index *parent,
                        onq_error *err);
/* Adds an initializer that the graph got after it was indexed; nothing else of an edit is seen. */
bool oq_index_add_init(oq_index *ix, oq_tensor *t);
/* In this graph, or NULL. Also finds a name that is only used here (oq_value_is_defined is
 * false): its `uses` are those of this graph. */
oq_value *oq_index_find(const oq_index *ix, oq_str name);
/* Where it is defined, in this graph or outwards, or NULL. */
oq_value *oq_index_lookup(const oq_index *ix, oq_str name);
/* The same, and *ix becomes the index of the graph that defines it. */
oq_value *oq_index_resolve(const oq_index **ix, oq_str name);
/* The node of this graph that makes a value; NULL when none does, and for NULL. */
static inline oq_node *oq_value_node(const oq_index *ix, const oq_value *v) {
    return v != NULL && v->producer != OQ_NO_NODE ? ix->graph->node.v[v->producer] : NULL;
}
/* The node that makes `name` in this graph, or NULL. */
oq_node *oq_index_producer(const oq_index *ix, oq_str name);
/* The initializer `name` in this graph or outwards (stops at whatever shadows it), or NULL. */
oq_tensor *oq_index_init(const oq_index *ix, oq_str name);
/* The constant `name`: the same, or what a Constant node has as its `value`. */
oq_tensor *oq_index_constant(const oq_index *ix, oq_str name);

/* A topological order of the graph's nodes (indices), stable: of the nodes that are ready the
 * one that is first in the file goes first. ONQ_E_INVALID names a node on a cycle. */
onq_code oq_topo_order(const oq_index *ix, oq_arena *scratch, uint32_t **order, onq_error *err);
/* Puts the nodes in the order of ONNX Runtime's quantizer ONNXModel.topological_sort. */
onq_code oq_topo_sort_reference(oq_model *m, oq_graph *g, onq_error *err);

/* Calls fn for the graph and all graphs inside it (attributes of its nodes), outermost first,
 * depth at most OQ_MAX_GRAPH_DEPTH (then ONQ_E_LIMIT). */
typedef onq_code (*oq_graph_fn)(void *ctx, oq_graph *g, onq_error *err);
onq_code oq_walk_graphs(oq_graph *g, oq_graph_fn fn, void *ctx, onq_error *err);
/* Calls fn for every TensorProto of the model: initializers, sparse parts, attribute tensors,
 * subgraphs, functions, training graphs. */
typedef onq_code (*oq_tensor_fn)(void *ctx, oq_tensor *t, bool in_attribute, onq_error *err);
onq_code oq_walk_tensors(oq_model *m, oq_tensor_fn fn, void *ctx, onq_error *err);
/* Bytes of the model as it was opened, with its external data, of which no file is opened. */
onq_code oq_model_size(oq_model *m, uint64_t *bytes, onq_error *err);

/* Calls fn for every mention of a name that the graphs inside `n` take from outside of it:
 * inputs of their nodes and their outputs. fn may change the name in place. */
typedef onq_code (*oq_name_fn)(void *ctx, oq_str *name, onq_error *err);
onq_code oq_walk_outer_names(const onq_allocator *alloc, oq_node *n, oq_name_fn fn, void *ctx,
                             onq_error *err);
/* The graphs in the attributes of a node, one after the other: begin with a zeroed cursor; NULL
 * at the end. */
typedef struct oq_graph_cursor {
    size_t attribute, graph;
} oq_graph_cursor;
oq_graph *oq_node_next_graph(const oq_node *n, oq_graph_cursor *at);
/* The node for messages: name, or first output when it has none. */
oq_str oq_node_label(const oq_node *n);
/* Puts "node 'conv1' (Conv)" in front of what failed; returns `rc`, which may be ONQ_OK. */
onq_code oq_node_blame(const oq_node *n, onq_code rc, onq_error *err);
