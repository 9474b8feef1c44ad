/*
 * plan_read.h — a plan that was written before, and perhaps edited by hand, as the source of all
 * decisions (--from_plan).
 *
 * A driver ties the rows to the nodes when it begins (oq_given_bind_nodes): until then lists of
 * names decide, as they did when the plan was made. What counts then:
 *
 *   a node's treatment     `quantized` or `removed`: its rule runs, whatever lists of names say.
 *                          `float`: it stays as it is. A row whose `by` is `rule` was left float by
 *                          the rule itself, and the rule decides again.
 *   a tensor's parameters  type, axis, block_size, scale and zero_point are taken as they are. A
 *                          tensor without a row stays float, and so does a node without one.
 *   same_as                the tensor follows the other one, whose row counts.
 *   computed               its parameters are computed while the model runs.
 *   a bias                 follows its input and weight; its row says only that it is quantized.
 *   bits, block_size, method, symmetric, accuracy_level of a node: how its weight of few bits is quantized.
 *
 * A plan also holds the options it was made with; the command takes those that it is not given.
 */
#pragma once

#include "onnx/model.h"
#include "quantize/plan.h"

typedef struct oq_given_bind {
    const oq_node *node;
    const oq_plan_node *row;
} oq_given_bind;

typedef struct oq_given {
    const char *path;
    oq_str command; /* that made it; empty: not said */
    bool bound;     /* its rows are tied to nodes */
    oq_arena *arena;
    oq_plan plan;
    oq_map tensors;           /* name -> first row */
    OQ_VEC(uint32_t) next;    /* row -> the next of that name, or OQ_MAP_NONE */
    OQ_VEC(bool) taken;       /* row -> a weight has taken it */
    oq_strs options;          /* name, value, name, value ... */
    OQ_VEC(oq_given_bind) of; /* nodes of the model, sorted by address */
} oq_given;

/* Reads the file; ONQ_E_CONFIG says what is wrong with it and in which row. */
onq_code oq_given_read(oq_given *g, oq_arena *a, const onq_allocator *alloc, const char *path,
                       onq_error *err);
/* Ties the rows to the nodes of the model as it is now, and gives back what weights have taken.
 * Call again when nodes were replaced. A row that no such node can have is refused. NULL is no
 * plan. */
onq_code oq_given_bind_nodes(oq_given *g, oq_model *m, onq_error *err);

/* The row of a node; NULL when it has none. */
const oq_plan_node *oq_given_node(const oq_given *g, const oq_node *n);
/* Why the plan, once it is bound, leaves the node float; NULL: it is for the rule. A row that its
 * rule left float is for the rule again. */
const char *oq_given_skip(const oq_given *g, const oq_node *n);
/* Refuses to leave a node float, for a reason that lies in the node, if the plan quantizes it. */
onq_code oq_given_refuse(const oq_given *g, const oq_node *n, const char *why, onq_error *err);
/* The row of an activation, or of its second type, or NULL. */
const oq_plan_tensor *oq_given_activation(const oq_given *g, oq_str name, bool converted);
/* The next row of a weight that is not taken yet, or NULL. Weights that several graphs
 * read have one row for each, in the order of the graphs. */
const oq_plan_tensor *oq_given_weight(oq_given *g, oq_str name, oq_plan_role role);
/* The first row of that role, taken or not, or OQ_MAP_NONE. */
uint32_t oq_given_row(const oq_given *g, oq_str name, oq_plan_role role);
