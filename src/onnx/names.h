/*
 * names.h — names for what a quantizer or a rewrite adds.
 *
 * The reference calls a tensor's scale X_scale whatever else is called so, and a model that has an
 * X_scale already is silently wired to it. Here a new name is the one that is wanted if it is free,
 * else it gets a number at its end.
 */
#pragma once

#include "base/map.h"
#include "onnx/model.h"

/* A set of names. */
typedef struct oq_names {
    oq_arena *arena; /* where new names live */
    oq_map map;
} oq_names;

/* All names of tensors and nodes in the model. */
onq_code oq_names_collect(oq_names *s, oq_arena *a, oq_model *m, onq_error *err);
bool oq_names_has(const oq_names *s, oq_str name);
/* `wanted` if free, else wanted_1, wanted_2 ...; the result is taken. p == NULL: out of memory. */
oq_str oq_names_unique(oq_names *s, oq_str wanted);

/* Tensors (all graphs of the model) and nodes with a set of their own each, as in the reference. */
typedef struct oq_fresh {
    oq_names tensors, nodes; /* new names live in the model's arena */
    bool failed;             /* out of memory: some name has no p */
} oq_fresh;

/* Collects all names of the model; the sets live in `scratch`. */
onq_code oq_fresh_init(oq_fresh *s, oq_arena *scratch, oq_model *m, onq_error *err);
/* Adds the names of a graph that the model does not hold, such as the body of a function. */
onq_code oq_fresh_add(oq_fresh *s, oq_graph *g, onq_error *err);
/* base + suffix, made unique. p == NULL: out of memory. */
oq_str oq_fresh_tensor(oq_fresh *s, oq_str base, const char *suffix);
oq_str oq_fresh_node(oq_fresh *s, oq_str base, const char *suffix);
/* Gives nodes that have the name of another node in their graph, which ONNX Runtime refuses, a new
 * name; the first keeps it. Constants may share names. *n says how many; of the first of them *was
 * and *is are the names. */
onq_code oq_model_name_apart(oq_model *m, size_t *n, oq_str *was, oq_str *is, onq_error *err);
/* A node's name + suffix; none (p == NULL, not failed) where the node has no name. */
oq_str oq_fresh_node_of(oq_fresh *s, const oq_node *n, const char *suffix);
