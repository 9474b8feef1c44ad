/*
 * infer.h — the inside of shape inference: the engine, a scope of values, and what a rule sees.
 *
 * The driver (infer.c) goes through the nodes of a graph. For each node it makes an oq_rctx, calls
 * the rule that sop.def names for the operator, then its fold (which follows the values of small
 * tensors), and stores what they set. A rule reads inputs and attributes with the oq_r_ functions
 * and sets outputs with oq_r_set_*; when something does not fit it calls oq_r_fail and returns: the
 * node's outputs then stay unknown (or, in symbolic mode, keep their element type). Rules know the
 * mode by c->plain.
 *
 * Memory: everything is in the engine's arena until oq_shapes_free. Out of memory is a sticky flag
 * that the driver looks at after each node, so rules check allocations only before they write.
 */
#pragma once

#include "onnx/attr.h"
#include "onnx/graph.h"
#include "onnx/tensor.h"
#include "shape/shape.h"

#define OQ_MAX_FOLD  1024 /* elements of a tensor whose values are followed */
#define OQ_FOLD_RANK 8
#define OQ_MAX_RANK  256 /* a rank above it is taken for unknown */

/* One element of a followed tensor: the integer d; or d/den; or, when den is 0, the real number
 * r. */
typedef struct oq_cell {
    oq_sdim d;
    int64_t den;
    double r;
} oq_cell;

/* The values of a small tensor; single elements may be unknown. */
typedef struct oq_data {
    int32_t elem_type;
    size_t rank;
    int64_t dims[OQ_FOLD_RANK];
    size_t n;
    oq_cell *v;
} oq_data;

typedef struct oq_val {
    oq_str name;
    const oq_vtype *type;   /* NULL: nothing known */
    const oq_vtype *hint;   /* declared by value_info or as output; symbolic mode only */
    const oq_data *data;    /* NULL: not known or not followed */
    oq_tensor *constant;    /* initializer or Constant whose values were not read yet */
    oq_value_info *info;    /* where it is declared, or NULL */
    oq_value_info *untyped; /* graph output without a type */
    const oq_node *maker;
    bool is_input;
    bool only_output; /* declared as an output of the graph, by no value_info */
    bool made_up;     /* a dimension had to be given a name */
} oq_val;

/* Attributes of the calling node, for references in a function's body. */
typedef struct oq_binding {
    const oq_node *caller;
    const oq_function *function;
    const struct oq_binding *outer; /* of the scope the caller is in */
} oq_binding;

typedef struct oq_scope {
    oq_graph *graph; /* NULL for a function's body */
    struct oq_scope *parent;
    const oq_binding *binding;
    const oq_map *opsets; /* domain -> version */
    oq_map map;           /* name -> index in vals */
    OQ_VEC(oq_val *) vals;
    OQ_VEC(oq_val *) added; /* values that need a value_info, in the order they were made */
    const uint32_t *order;  /* symbolic mode: topological */
    oq_str prefix;          /* of made-up names, "_0_1" */
    uint32_t n_subgraphs;
} oq_scope;

typedef struct oq_merge {
    oq_sdim from, to;
} oq_merge;

typedef struct oq_infer {
    oq_model *model;
    oq_arena *arena;
    oq_sdims dims;
    oq_shape_options opt;
    bool plain, nomem;
    oq_map opsets;    /* of the model */
    oq_map functions; /* "domain:name:overload" -> index */
    oq_map symbols;   /* plain: names in use, for unk__N */
    oq_map graphs;    /* address of a graph -> index in scopes */
    OQ_VEC(oq_scope *) scopes;
    OQ_VEC(oq_merge) merges; /* auto_merge */
    bool merged;             /* a merge was added in this pass */
    bool unreadable;         /* plain: a rule wanted values that are in external data */
    uint64_t next_symbol;
    uint64_t budget; /* node visits left: nested loops and calls cannot multiply without end */
    unsigned depth;
    oq_shape_report report;
    char why[256]; /* the first failure, for strict */
} oq_infer;

/* What a rule sees of one node. */
typedef struct oq_rctx {
    oq_infer *in;
    oq_scope *scope;
    const oq_node *node;
    size_t index; /* of the node in its graph */
    int64_t opset;
    bool plain;
    oq_sdims *ds;
    size_t n_in, n_out;
    oq_vtype *out;        /* n_out, kind OQ_V_NONE until set */
    const oq_data **data; /* n_out, values of the outputs */
    bool failed;
    char why[160];
} oq_rctx;

typedef void (*oq_rule_fn)(oq_rctx *c);

/* ---- rule.c: inputs ---- */

/* True if input i is given (its name is not empty). */
bool oq_r_has(const oq_rctx *c, size_t i);
/* Its type, or NULL when nothing is known. */
const oq_vtype *oq_r_type(const oq_rctx *c, size_t i);
/* Its type when it is a tensor (or sparse tensor) of known rank, else NULL. */
const oq_vtype *oq_r_shape(const oq_rctx *c, size_t i);
/* Element type, 0 when unknown. */
int32_t oq_r_elem(const oq_rctx *c, size_t i);
/* A dimension of a type that may be NULL or have fewer. */
oq_sdim oq_r_dim(const oq_vtype *t, size_t i);
/* Its values, or NULL. */
const oq_data *oq_r_data(const oq_rctx *c, size_t i);
/* True if its values can be read (does not read them). */
bool oq_r_has_data(const oq_rctx *c, size_t i);
/* Values that are all known integers, into the arena; false when not. A scalar has n == 1. */
bool oq_r_ints_in(const oq_rctx *c, size_t i, const int64_t **v, size_t *n);
bool oq_r_int_in(const oq_rctx *c, size_t i, int64_t *v);

/* ---- rule.c: attributes (references to a function's attributes are followed) ---- */

const oq_attribute *oq_r_attr(const oq_rctx *c, const char *name);
int64_t oq_r_int(const oq_rctx *c, const char *name, int64_t fallback);
double oq_r_float(const oq_rctx *c, const char *name, double fallback);
oq_str oq_r_str(const oq_rctx *c, const char *name, const char *fallback);
bool oq_r_str_is(const oq_rctx *c, const char *name, const char *fallback, const char *value);
/* False when absent. */
bool oq_r_ints(const oq_rctx *c, const char *name, const int64_t **v, size_t *n);

/* ---- rule.c: outputs ---- */

/* True if output o is used (present and named). */
bool oq_r_wants(const oq_rctx *c, size_t o);
void oq_r_set_elem(oq_rctx *c, size_t o, int32_t elem_type);
/* Copies the dims. */
void oq_r_set_shape(oq_rctx *c, size_t o, const oq_sdim *dims, size_t rank);
/* Element type and shape at once. */
void oq_r_set(oq_rctx *c, size_t o, int32_t elem_type, const oq_sdim *dims, size_t rank);
/* The first `keep` dims of x and `last` after them. */
void oq_r_set_last(oq_rctx *c, size_t o, const oq_vtype *x, size_t keep, oq_sdim last);
/* The whole type of another value. */
void oq_r_set_type(oq_rctx *c, size_t o, const oq_vtype *t);
/* A shape of `rank` unknown dimensions. */
void oq_r_set_rank(oq_rctx *c, size_t o, size_t rank);
void oq_r_set_data(oq_rctx *c, size_t o, const oq_data *d);
/* Output 0 has int32 sums over inputs 0 and 1; fails unless both are tensors. */
bool oq_r_pass_sums(oq_rctx *c);
/* Output 0 has the type of input 7, as in QLinearConv and QLinearMatMul; fails when zero points
 * are of another type than what they belong to. */
bool oq_r_pass_qlinear(oq_rctx *c);
/* Element type of input i; fails when it is not known, as onnx does. */
bool oq_r_pass_elem(oq_rctx *c, size_t i, size_t o);
/* Shape of input i, if known. */
void oq_r_pass_shape(oq_rctx *c, size_t i, size_t o);
/* The same and one dimension of unknown size after it; false when the shape is not known. */
bool oq_r_append_dim(oq_rctx *c, size_t i, size_t o);
/* Both, of whatever kind the value is (sequence, optional, map too). */
void oq_r_pass(oq_rctx *c, size_t i, size_t o);
/* Element type from an integer attribute; 0 fallback: it must be there. */
bool oq_r_elem_attr(oq_rctx *c, const char *name, size_t o, int32_t fallback);

/* Marks the node as inconsistent. Always returns false. */
bool oq_r_fail(oq_rctx *c, const char *fmt, ...) OQ_PRINTF(2, 3);
/* Does that and leaves the rule where `wrong` holds. */
#define OQ_R_FAIL_IF(wrong, c, ...)                                                                \
    do {                                                                                           \
        if (wrong) {                                                                               \
            oq_r_fail(c, __VA_ARGS__);                                                             \
            return;                                                                                \
        }                                                                                          \
    } while (0)
/* Leaves the rule unless all that it needs is there. */
#define OQ_R_NEED(what)                                                                            \
    do {                                                                                           \
        if (!(what))                                                                               \
            return;                                                                                \
    } while (0)
/* n dims in the arena, all the number 0; NULL (and failed) when out of memory. */
oq_sdim *oq_r_dims(oq_rctx *c, size_t n);
/* A copy of those of x, to be changed. */
oq_sdim *oq_r_dims_of(oq_rctx *c, const oq_vtype *x);
oq_vtype *oq_r_new_type(oq_rctx *c, oq_vkind kind);
/* Output 0 is windows of x: of `size` along an axis, `step` (above 0) apart; the last axis is
 * inside a window. */
void oq_r_unfold(oq_rctx *c, const oq_vtype *x, size_t axis, int64_t size, int64_t step);
/* Axis into 0..rank-1; fails when out of range. */
bool oq_r_axis(oq_rctx *c, int64_t axis, size_t rank, size_t *out);
/* A name for a size that is only known when the model runs, made from node, output and axis. */
oq_sdim oq_r_fresh(oq_rctx *c, size_t o, size_t axis);

/* ---- rule.c: dimensions that must agree ---- */

/* The dimension both are: numbers win; fails when two numbers differ. Symbolic: unequal names are
 * merged with auto_merge, else the first is taken. */
oq_sdim oq_r_same(oq_rctx *c, oq_sdim a, oq_sdim b);
/* Numpy broadcasting of one dimension. */
oq_sdim oq_r_broadcast_dim(oq_rctx *c, oq_sdim a, oq_sdim b);
/* Of whole shapes: n shapes, all of known rank. The result's dims are in the arena. */
bool oq_r_broadcast(oq_rctx *c, const oq_vtype *const *shapes, size_t n, const oq_sdim **dims,
                    size_t *rank);
/* The product of dims[from..to). */
oq_sdim oq_r_product(oq_rctx *c, const oq_sdim *dims, size_t from, size_t to);

/* ---- type.c: types ---- */

/* From the model's message; plain keeps negative numbers, symbolic makes them unknown. */
const oq_vtype *oq_vtype_of(oq_infer *in, const oq_type *t, int64_t least);
const oq_vtype *oq_vtype_of_tensor(oq_infer *in, const oq_tensor *t);
/* As mergeShapesAndTypes: what `have` lacks is taken from `more`. NULL with *why set when they
 * contradict. */
const oq_vtype *oq_vtype_merge(oq_infer *in, const oq_vtype *have, const oq_vtype *more,
                               const char **why);
/* As UnionTypeInfo: what both say. NULL when they are of different kinds or element types. */
const oq_vtype *oq_vtype_union(oq_infer *in, const oq_vtype *a, const oq_vtype *b);
/* The type without any shape. */
const oq_vtype *oq_vtype_shapeless(oq_infer *in, const oq_vtype *t);
/* True if they say the same. Two unknown dimensions do. */
bool oq_vtype_eq(const oq_vtype *a, const oq_vtype *b);
/* Calls fn on each dimension that is unknown, also inside sequences; returns the type with the dims
 * it gave. */
typedef oq_sdim (*oq_dim_fn)(void *ctx, size_t axis, oq_sdim d);
const oq_vtype *oq_vtype_map(oq_infer *in, const oq_vtype *t, oq_dim_fn fn, void *ctx);
oq_type *oq_vtype_to_message(oq_arena *a, const oq_vtype *t);
/* Into an existing message, whose denotations stay. False when out of memory. */
bool oq_vtype_update(oq_arena *a, oq_type *m, const oq_vtype *t);

/* ---- data.c: values ---- */

static inline oq_cell oq_cell_int(oq_sdim d) {
    return (oq_cell){d, 1, 0};
}
static inline bool oq_cell_known(oq_cell c) {
    return c.den == 0 || !oq_sdim_is_unknown(c.d);
}
/* A number and nothing symbolic. */
bool oq_cell_real(oq_cell c, double *out);
bool oq_cell_integer(oq_cell c, int64_t *out);
oq_cell oq_cell_of_real(double r);
/* n zero cells of the given dims; NULL when past the limits or out of memory. */
oq_data *oq_data_new(oq_infer *in, int32_t elem_type, const int64_t *dims, size_t rank);
/* Values of a constant; NULL when it is too large, of another type, or cannot be read. */
const oq_data *oq_data_of_tensor(oq_infer *in, oq_tensor *t);
/* The same values with other dims (same count). */
const oq_data *oq_data_reshape(oq_infer *in, const oq_data *d, const int64_t *dims, size_t rank);

/* ---- shape.c, scope.c, infer.c: the engine ---- */

/* The engine of a result, for the writer. */
const oq_infer *oq_shapes_engine(const oq_shapes *s);

oq_val *oq_scope_find(const oq_scope *s, oq_str name);   /* here */
oq_val *oq_scope_lookup(const oq_scope *s, oq_str name); /* here or outwards */
oq_val *oq_scope_add(oq_infer *in, oq_scope *s, oq_str name);
/* Declares the graph's inputs, outputs, value_infos and initializers. */
bool oq_scope_fill(oq_infer *in, oq_scope *s);

/* Infers a subgraph of the node: types (NULL: unknown) and data of its inputs are given; data may
 * be NULL. On success types[i] of the outputs (NULL: unknown) are set; `outs` has room for n_out.
 * False after oq_r_fail. */
typedef struct oq_sub {
    oq_graph *graph;
    const oq_vtype *const *types;
    const oq_data *const *data;
    size_t n_in;
    const oq_vtype **outs;
    const oq_data **out_data;
    size_t n_out;
} oq_sub;
bool oq_infer_sub(oq_rctx *c, oq_sub *sub);
oq_graph *oq_r_graph(oq_rctx *c, const char *name);
/* Infers the nodes of the scope in order. */
bool oq_infer_nodes(oq_infer *in, oq_scope *s, oq_node *const *nodes, size_t n);
bool oq_infer_function(oq_rctx *c, const oq_function *f);
/* The dimension with what auto_merge found applied. */
oq_sdim oq_infer_merged(oq_infer *in, oq_sdim d);
