/*
 * shape.h — types and shapes of all tensors of a model.
 *
 * Two modes.
 *   plain     What onnx.shape_inference.infer_shapes (onnx 1.22) finds, which is what the reference
 *             quantizer sees: an operator that onnx has no rule for (com.microsoft, ...) leaves its
 *             outputs unknown, arithmetic on names is unknown ("unk__0" ... in the file), values of
 *             tensors are followed only with data_prop, and those in external data are not read.
 *             A tensor that oq_shapes_find gives no type for is one for which the reference says
 *             "Unable to find data type". All options zero.
 *   symbolic  Everything that can be found: contrib operators, values of small integer tensors,
 *             expressions of names. At least what onnx and symbolic_shape_infer.py find together.
 *
 * Inference reads the model and changes nothing; oq_shapes_write puts the results into the model.
 * The result holds its own memory, borrows names from the model, and is valid until the model is
 * freed (edits of the graph only make it stale).
 *
 * Read dim.h for what a dimension is; infer.h is the engine's inside; sop.def has the rules.
 */
#pragma once

#include "onnx/dtype.h"
#include "onnx/model.h"
#include "shape/dim/dim.h"

typedef enum oq_vkind {
    OQ_V_NONE = 0, /* nothing is known */
    OQ_V_TENSOR,
    OQ_V_SPARSE,
    OQ_V_SEQUENCE,
    OQ_V_OPTIONAL,
    OQ_V_MAP,
    OQ_V_OPAQUE
} oq_vkind;

/* The type of a value (TypeProto). Never changed once it is made. */
typedef struct oq_vtype {
    oq_vkind kind;
    int32_t elem_type; /* tensor: element type, 0 unknown; map: type of the key */
    bool has_shape;    /* tensor: the rank is known */
    uint32_t rank;
    const oq_sdim *dims;
    const struct oq_vtype *inner; /* sequence, optional: of the element; map: of the value */
} oq_vtype;

/* The dims of an input in one run. */
typedef struct oq_given_shape {
    oq_str name;
    const int64_t *dims;
    size_t rank;
} oq_given_shape;

typedef struct oq_shape_options {
    bool symbolic;   /* else plain */
    bool data_prop;  /* plain: follow the values of small tensors (symbolic always does) */
    bool strict;     /* an inconsistency, or in symbolic mode an incomplete shape, is an error */
    bool auto_merge; /* symbolic: unequal names that must be equal are made one */
    bool guess_output_rank; /* symbolic: an unknown operator's output has the rank of input 0 */
    int64_t int_max; /* symbolic: a Slice bound from here on means "to the end"; 0: 2^31 - 1 */
    /* symbolic: inputs of the model that have these dims instead of those they are declared with,
     * if the ranks are equal. */
    const oq_given_shape *given;
    size_t n_given;
    /* Of the main graph, if the caller has one; used during the call. */
    const struct oq_index *index;
} oq_shape_options;

typedef struct oq_shapes oq_shapes;

/* Infers over the graph, its subgraphs and called functions. opts may be NULL (plain). Errors are
 * out of memory and, when strict, ONQ_E_INVALID naming the node; a model with mistakes in it is
 * otherwise inferred as far as it goes. */
onq_code oq_shapes_infer(oq_model *m, const oq_shape_options *opts, oq_shapes **out,
                         onq_error *err);
void oq_shapes_free(oq_shapes *s);

/* The type of `name` in graph `g` (NULL: the model's graph) or outwards, initializers included;
 * NULL when nothing is known about it. */
const oq_vtype *oq_shapes_find(const oq_shapes *s, const oq_graph *g, oq_str name);

/* For the quantizers: one look at a tensor. */
typedef struct oq_tensor_info {
    int32_t elem_type; /* 0: unknown */
    bool has_shape;
    bool is_fixed; /* all dimensions are numbers */
    size_t rank;
    const oq_sdim *dims;
} oq_tensor_info;

/* False if nothing is known or it is not a tensor; *out is zero then. */
bool oq_shapes_tensor(const oq_shapes *s, const oq_graph *g, oq_str name, oq_tensor_info *out);
/* The element type, 0 when unknown. */
int32_t oq_shapes_elem_type(const oq_shapes *s, const oq_graph *g, oq_str name);

/* Dimension i as a number, or -1 when it is symbolic, unknown or not there. */
int64_t oq_shapes_dim(const oq_shapes *s, const oq_graph *g, oq_str name, size_t i);

/* What was found. */
typedef struct oq_shape_report {
    size_t n_values;      /* outputs of nodes, subgraphs included */
    size_t n_full;        /* all dimensions known (numbers or expressions of the inputs' names) */
    size_t n_partial;     /* a rank, but names made up for unknown dimensions */
    size_t n_none;        /* no type or no rank */
    size_t n_merged;      /* names made one by auto_merge */
    const oq_node *first; /* the first node that could not be resolved, or NULL */
    const oq_node *first_no_rule; /* the first node whose operator has no rule, or NULL */
    oq_str first_output;          /* the output of `first` that is not known */
} oq_shape_report;

void oq_shapes_report(const oq_shapes *s, oq_shape_report *out);

/* Writes the results into the model's graphs as infer_shapes does: types of inputs and outputs are
 * completed, existing value_infos merged, new ones added in the order of the nodes. The texts live
 * in the model's arena. */
onq_code oq_shapes_write(const oq_shapes *s, oq_model *m, onq_error *err);
