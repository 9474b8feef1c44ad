/*
 * unit.h — units: a product (Conv, ConvTranspose, Gemm, MatMul) with the Relu or Clip that alone
 * reads it, its size and what kind of work it is.
 *
 * A unit is what gets faster by integers, or does not, and what is to be measured as one: a Conv
 * measured without its Clip is quantized over a range that nobody uses. Sizes come from symbolic
 * shape inference over the model with its inputs fixed: to the sizes of a sample, else to --dim,
 * else axis 0 is 1 and every other axis OQ_UNIT_AXIS.
 */
#pragma once

#include "onnx/operators.h"
#include "samples/source.h"

#define OQ_UNIT_AXIS 256

typedef enum oq_unit_kind {
    OQ_UNIT_DENSE,
    OQ_UNIT_GROUPED,   /* a convolution whose groups have several channels */
    OQ_UNIT_DEPTHWISE, /* ... of one channel each */
    OQ_UNIT_POOLED,    /* a convolution of one place: squeeze-and-excite, a classifier */
    OQ_UNIT_PAIR,      /* both factors are activations: attention */
    OQ_UNIT_TRANSPOSE, /* ConvTranspose */
    OQ_UNIT_KINDS
} oq_unit_kind;

typedef struct oq_unit_shape {
    const int64_t *dims;
    size_t rank;
} oq_unit_shape;

typedef struct oq_unit {
    const oq_node *node, *act; /* act: its Relu or Clip, or NULL */
    oq_graph *graph;           /* that holds them */
    oq_product product;
    oq_unit_kind kind;
    oq_unit_shape in, weight, out; /* weight: of input 1, whatever it is */
    double depth;                  /* products in one sum */
    double macs;                   /* multiply-accumulates (shape/macs.h) */
    bool guessed;                  /* a dimension was not known and is taken as 1 */
} oq_unit;

/* In the order of the nodes, inner graphs after the one around. Nodes and graphs are those of a
 * copy of the model in the arena, so edits of the model do not change them: compare names and
 * outputs, not addresses. */
typedef struct oq_units {
    OQ_VEC(oq_unit) all;
    double macs; /* of all */
} oq_units;

/* What the sizes of the model's inputs are; all may be absent. */
typedef struct oq_unit_sizes {
    const oq_sample *sample;
    const oq_dim_fix *dims;
    size_t n_dims;
} oq_unit_sizes;

/* Fixes the inputs of a model (a clone: what it declares of shapes is replaced) to these sizes, as
 * above; `sizes` may be NULL. *fixed (or NULL) gets the symbols with the sizes they have now. */
typedef OQ_VEC(oq_dim_fix) oq_dim_fixes;
onq_code oq_inputs_settle(oq_model *m, oq_arena *a, const oq_unit_sizes *sizes, oq_dim_fixes *fixed,
                          onq_error *err);

/* `sizes` may be NULL. A model whose shapes are not consistent is measured as far as it goes. */
onq_code oq_units_find(oq_units *out, oq_arena *a, oq_model *m, const oq_unit_sizes *sizes,
                       onq_error *err);
