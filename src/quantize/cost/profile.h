/*
 * profile.h — what a model costs: every node with its work and whether it computes in floats or in
 * integers, every tensor with its type, shape, size and quantization, and the memory that
 * activations take at once.
 *
 * Reads no weights: only scales and zero points of one element. Shapes are found twice, as the
 * model has them (symbols stay) and with the inputs fixed (unit.h), which is what work and sizes
 * are counted for.
 *
 *     oq_profile p;
 *     OQ_TRY(oq_profile_make(&p, arena, model, &sizes, err));
 *
 * Everything lives in the arena; names are views of the model, so it must outlive the profile.
 */
#pragma once

#include "onnx/summary/summary.h"
#include "quantize/cost/unit.h"

#define OQ_PROFILE_NONE UINT32_MAX

/* What a node computes with. */
typedef enum oq_compute {
    OQ_COMPUTE_FLOAT,
    OQ_COMPUTE_QDQ,     /* a float operator between pairs: the runtime makes it an integer one */
    OQ_COMPUTE_INTEGER, /* an operator of integers */
    OQ_COMPUTE_WEIGHT_ONLY, /* float activations, quantized weights */
    OQ_COMPUTE_CONVERT,     /* from floats to integers or back */
    OQ_COMPUTE_OTHER,       /* no floats: shapes, indices, constants */
    OQ_COMPUTE_COUNT
} oq_compute;
const char *oq_compute_name(oq_compute c); /* "float", "integer (QDQ)", ... */

typedef struct oq_profile_node {
    const oq_node *node;
    uint32_t graph; /* 0: the main graph; inner graphs follow in the order of their owners */
    uint32_t owner; /* the node that holds its graph, or OQ_PROFILE_NONE */
    oq_compute compute;
    double macs;    /* see shape/macs.h */
    double weights; /* bytes of the constants it reads, QDQ pairs looked through */
    const uint32_t *inputs, *outputs; /* values; OQ_PROFILE_NONE for an absent one */
} oq_profile_node;

typedef struct oq_profile_value {
    oq_str name;
    uint32_t graph;
    uint32_t producer; /* node, or OQ_PROFILE_NONE */
    bool is_input, is_output;
    const oq_tensor *constant; /* an initializer, or the value of a Constant; or NULL */
    int32_t dtype;             /* 0: not known */
    oq_str type;               /* "FLOAT[batch, 3, 224, 224]", "?" */
    oq_str shape;              /* "batch, 3, 224, 224"; p == NULL: not known */
    double bytes;              /* with the inputs fixed; 0 when it is not known */
    /* Of a tensor that QuantizeLinear or DequantizeLinear reads: */
    int32_t quantized; /* type of the integers; 0: it is not quantized */
    oq_granularity granularity;
    int64_t axis, block_size;
    oq_str scale, zero; /* as text where they have one element, else empty */
    uint32_t uses;      /* nodes that read it */
} oq_profile_value;

typedef struct oq_profile {
    OQ_VEC(oq_profile_node) nodes;
    OQ_VEC(oq_profile_value) values;
    oq_dim_fixes dims;             /* symbols of the inputs, with the sizes that were counted for */
    double macs[OQ_COMPUTE_COUNT]; /* by what they are computed with */
    double all_macs;
    uint64_t n_unknown; /* products whose work is not known, or not wholly */
    double peak;        /* bytes of activations alive at once, inputs and outputs included */
    oq_str peak_at;     /* the node that runs then */
    uint64_t n_unsized; /* activations whose size is not known */
} oq_profile;

/* `sizes` may be NULL. */
onq_code oq_profile_make(oq_profile *p, oq_arena *a, oq_model *m, const oq_unit_sizes *sizes,
                         onq_error *err);
