/*
 * fuse.h — what a rewrite of the built-in optimiser sees: one round over one graph.
 *
 * The index is that of the beginning of the round. A rewrite may only touch nodes that are free
 * (oq_fuse_free) and says which it touched by oq_fuse_drop and oq_fuse_keep: those are left alone
 * until the next round, so no rewrite sees stale facts. Renames are gathered and applied
 * at the end of the round.
 */
#pragma once

#include "onnx/edit.h"
#include "onnx/operators.h"
#include "prepare/optimize.h"
#include "shape/shape.h"

typedef struct oq_fuse {
    oq_model *m;
    oq_graph *g;
    oq_arena *scratch; /* of the round */
    oq_index ix;
    const oq_shapes *shapes; /* of the model as it came; by name */
    oq_names *names;
    int64_t opset, ir_version;
    bool *busy, *gone; /* by node */
    oq_map renames;    /* name -> index in to */
    OQ_VEC(oq_str) to;
    oq_map seen;               /* duplicate: what was computed -> node */
    OQ_VEC(oq_tensor *) inits; /* made in this round */
    OQ_VEC(oq_node *) nodes;   /* made in this round */
    struct oq_eval *fold;      /* fold: room to compute in, used again for each node */
} oq_fuse;

/* One rewrite at node i: *done says whether it did anything. */
typedef onq_code (*oq_fuse_fn)(oq_fuse *f, uint32_t i, bool *done, onq_error *err);
#define OQ_FUSE(name, ops, what)                                                                   \
    onq_code oq_fuse_##name(oq_fuse *f, uint32_t i, bool *done, onq_error *err);
#include "prepare/fuse/fuse.def"
#undef OQ_FUSE
/* Rows of rewrite.def; some are in both tables. */
#define OQ_REWRITE(set, name, ops, what)                                                           \
    onq_code oq_fuse_##name(oq_fuse *f, uint32_t i, bool *done, onq_error *err);
#include "prepare/fuse/rewrite.def"
#undef OQ_REWRITE

/* A row of either table. */
typedef struct oq_fuse_row {
    const char *ops;
    oq_fuse_fn fn;
    const char *what;
    unsigned set;
} oq_fuse_row;

/* Rounds over all graphs until no row does anything; counts[i] is how often row i did. Constants
 * become initializers first. */
typedef struct oq_fuse_job {
    oq_model *m;
    const oq_fuse_row *rows;
    size_t n_rows;
    unsigned sets; /* bits: rows whose set is not among them are left out */
    size_t *counts;
    size_t n_constants; /* out: lifted */
    unsigned rounds;    /* out */
} oq_fuse_job;

/* Indexes the graph; m, g, scratch, shapes and names are set by the caller. */
onq_code oq_fuse_begin(oq_fuse *f, onq_error *err);

static inline oq_node *oq_fuse_node(const oq_fuse *f, uint32_t i) {
    return f->g->node.v[i];
}
/* True for a node of this graph that no rewrite of the round has touched. */
static inline bool oq_fuse_free(const oq_fuse *f, uint32_t i) {
    return i != OQ_NO_NODE && !f->busy[i];
}
/* The initializer of that name when its value cannot be changed from outside, else NULL. */
oq_tensor *oq_fuse_const(const oq_fuse *f, oq_str name);
/* The same, and where this is the body of an If, Loop or Scan the initializer may be one of the main
 * graph, which others may use: its values are read and never changed. */
oq_tensor *oq_fuse_weight(const oq_fuse *f, oq_str name);
/* The free node that makes `name`, or OQ_NO_NODE. */
uint32_t oq_fuse_maker(const oq_fuse *f, oq_str name);
/* The one free node that uses `name`, once, when no output of the graph is `name`; else OQ_NO_NODE.
 */
uint32_t oq_fuse_user(const oq_fuse *f, oq_str name);
/* True if nothing else uses it (no second use, no graph output). */
bool oq_fuse_sole(const oq_fuse *f, oq_str name);
/* Output 0 is the only one that is there or used. */
bool oq_fuse_one_output(const oq_fuse *f, const oq_node *n);

/* All values of a constant as floats, in scratch; *v is NULL when it is not float or float16. */
onq_code oq_fuse_floats(oq_fuse *f, oq_tensor *t, float **v, size_t *n, onq_error *err);
/* A constant with one element: its value. False if it is not one. */
bool oq_fuse_scalar(oq_fuse *f, oq_str name, double *v);
bool oq_fuse_scalar_is(oq_fuse *f, oq_str name, double want, double delta);
/* All integers of a constant, in scratch; *v NULL when it is not a constant of integers. */
onq_code oq_fuse_ints(oq_fuse *f, oq_str name, int64_t **v, size_t *n, onq_error *err);

/* The node goes, or stays changed. */
void oq_fuse_drop(oq_fuse *f, uint32_t i);
void oq_fuse_keep(oq_fuse *f, uint32_t i);
/* Uses of `from` become uses of `to`. */
onq_code oq_fuse_rename(oq_fuse *f, oq_str from, oq_str to, onq_error *err);
/* Removes node i whose output is its input `slot`; false if a graph output is in the way. */
onq_code oq_fuse_bypass(oq_fuse *f, uint32_t i, size_t slot, bool *done, onq_error *err);
/* A constant like `t` (its type) with other values: in place when only one node uses it and it has
 * as many dims, else a new one of a similar name; *name is what the node is to use. */
onq_code oq_fuse_put(oq_fuse *f, oq_tensor *t, const float *v, const int64_t *dims, size_t rank,
                     oq_str *name, onq_error *err);
/* A new constant of floats of type dt, called after `base`. */
onq_code oq_fuse_add_floats(oq_fuse *f, oq_str base, oq_dtype dt, const float *v,
                            const int64_t *dims, size_t rank, oq_str *name, onq_error *err);
bool oq_fuse_set_input(oq_fuse *f, oq_node *n, size_t i, oq_str name);
/* A new constant of integers, one axis, called after `base`. */
onq_code oq_fuse_add_ints(oq_fuse *f, oq_str base, const int64_t *v, size_t n, oq_str *name,
                          onq_error *err);
/* A new node after the node `like`: called after it, with one output of a new name, which *out
 * gives. NULL: out of memory. */
oq_node *oq_fuse_add_node(oq_fuse *f, const oq_node *like, const char *op, const oq_str *in,
                          size_t n_in, oq_str *out);

/* Rank of a tensor, or -1. */
int oq_fuse_rank(const oq_fuse *f, oq_str name);
/* True if it is known to be of float32. */
bool oq_fuse_is_float(const oq_fuse *f, oq_str name);
/* All dims as numbers, into out[8]; -1 as rank when not known. */
int oq_fuse_dims(const oq_fuse *f, oq_str name, int64_t out[8]);
