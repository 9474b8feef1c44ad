/*
 * upgrade_parts.h — what the upgrader's driver (upgrade.c) offers to its adapters
 * (upgrade_adapt.c).
 *
 * The converter works on a graph of its own, in which every value has a number. Its new tensors are
 * called after theirs: _v_ and the next free number. oq_up_graph keeps that count exactly as the
 * converter would have it.
 */
#pragma once

#include "onnx/edit.h"
#include "onnx/upgrade/upgrade.h"

/* What is known of a value: element type (0: nothing) and shape. */
typedef struct oq_up_type {
    int32_t elem;
    bool has_sizes;
    size_t rank;           /* 0 also when the shape is not known, as in the converter */
    const oq_shape *shape; /* NULL for initializers and unknown shapes */
    oq_value_info *info;   /* says just this, or NULL */
} oq_up_type;

typedef struct oq_up_graph {
    oq_graph *g;
    struct oq_up_graph *parent;
    OQ_VEC(struct oq_up_graph *) inner; /* by node, in order */
    OQ_VEC(oq_node *) owners;           /* of `inner`, the same order */
    uint64_t count;                     /* values made so far */
    oq_map numbered;                    /* names of the form _v_N here */
    uint64_t numbered_most;             /* no N of them, here or inside, is larger */
    oq_map types;                       /* name -> index in type_list */
    OQ_VEC(oq_up_type) type_list;
    oq_map outputs; /* names of the graph's outputs */
    oq_map used;    /* names that nodes take, made when asked for */
    bool used_made;
    oq_map renamed; /* name -> index in rename_to */
    OQ_VEC(oq_str) rename_from, rename_to;
    OQ_VEC(oq_node *) out; /* the nodes of the step, in their final order */
} oq_up_graph;

typedef struct oq_upgrade {
    oq_model *m;
    oq_arena *arena;  /* the model's: what stays */
    oq_arena scratch; /* what goes */
    int64_t to;       /* the opset of this step */
} oq_upgrade;

/* An adapter changes *node for opset u->to, or puts another node in its place. New nodes before
 * it go through oq_up_before; nodes after it are returned in *after (NULL: none). */
typedef onq_code (*oq_up_adapter)(oq_upgrade *u, oq_up_graph *g, oq_node **node, oq_node **after,
                                  onq_error *err);

/* ---- for adapters; false/NULL: out of memory ---- */

/* A new value and its name. */
oq_str oq_up_value(oq_upgrade *u, oq_up_graph *g);
/* A new value whose name does not matter. */
void oq_up_skip_value(oq_up_graph *g);
/* A new value that takes the name of another, which has got a new one already. */
bool oq_up_take_over(oq_up_graph *g, oq_str name);
bool oq_up_before(oq_upgrade *u, oq_up_graph *g, oq_node *n);
/* A nameless node with one output of a new name. */
oq_node *oq_up_node(oq_upgrade *u, oq_up_graph *g, const char *op);
/* A Constant in front of the node; returns the name of its output. */
oq_str oq_up_ints(oq_upgrade *u, oq_up_graph *g, const int64_t *v, size_t n, bool scalar);
oq_str oq_up_floats(oq_upgrade *u, oq_up_graph *g, const double *v, size_t n, bool scalar,
                    oq_dtype type);
/* What is known of `name`; never NULL. */
const oq_up_type *oq_up_type_of(const oq_up_graph *g, oq_str name);
bool oq_up_set_type(oq_upgrade *u, oq_up_graph *g, oq_str name, oq_up_type type);
/* From now on the value `from` is called `to`. */
bool oq_up_rename(oq_upgrade *u, oq_up_graph *g, oq_str from, oq_str to);
bool oq_up_is_output(const oq_up_graph *g, oq_str name);
/* There is a value of that name. */
bool oq_up_is_known(const oq_up_graph *g, oq_str name);
/* A node, a graph inside or the graph's outputs take `name`. */
onq_code oq_up_is_used(oq_upgrade *u, oq_up_graph *g, oq_str name, bool *out, onq_error *err);

/* ---- the adapters ---- */

#define OQ_UP_SAME(to, op)
#define OQ_UP(to, op, adapter)                                                                     \
    onq_code oq_up_##adapter(oq_upgrade *u, oq_up_graph *g, oq_node **node, oq_node **after,       \
                             onq_error *err);
#include "onnx/upgrade/upgrade.def"
#undef OQ_UP
#undef OQ_UP_SAME
