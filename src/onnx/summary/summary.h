/*
 * summary.h — what a model holds, counted: operators, tensors and where their bytes lie, what is
 * quantized and how, and what could be.
 *
 * Reads the graph only, never a payload: a model with gigabytes of weights is counted in the time
 * its graph takes. External files are opened (so that a missing one is an error) and not read.
 */
#pragma once

#include "onnx/dtype.h"
#include "onnx/model.h"

typedef struct oq_op_count {
    oq_str domain, op_type;
    uint64_t count;
} oq_op_count;
typedef OQ_VEC(oq_op_count) oq_op_counts;

typedef struct oq_tensor_sum {
    uint64_t tensors, elements, bytes;
} oq_tensor_sum;

typedef struct oq_external_sum {
    oq_str location;
    uint64_t tensors, bytes;
} oq_external_sum;

/* How finely a tensor is quantized. */
typedef enum oq_granularity {
    OQ_PER_TENSOR,
    OQ_PER_CHANNEL,
    OQ_PER_BLOCK,
    OQ_GRANULARITY_COUNT
} oq_granularity;
const char *oq_granularity_name(oq_granularity g); /* "per tensor" */

/* Weight-only operators, by their parameters. */
typedef struct oq_weight_only {
    oq_str op_type;
    int64_t bits, block_size; /* 0: not said */
    uint64_t count;
    double weights,
        stored; /* weights, and the bits that they and their parameters take; each once */
} oq_weight_only;

/* A constant that several nodes read as their weight. */
typedef struct oq_tied {
    oq_str name;
    oq_str readers[2]; /* operator types of the first two */
    uint64_t count;    /* readers */
} oq_tied;

typedef struct oq_quantized {
    uint64_t quantize, dequantize; /* QuantizeLinear, DequantizeLinear */
    uint64_t operators;            /* QLinearConv and its like */
    uint64_t integer;              /* MatMulInteger, ConvInteger, DynamicQuantizeLinear ... */
    uint64_t weight_only;          /* MatMulNBits ... */
    uint64_t caches;               /* GroupQueryAttention with a cache of integers */
    uint64_t weights[OQ_DTYPE_COUNT][OQ_GRANULARITY_COUNT];
    uint64_t activations[OQ_DTYPE_COUNT][OQ_GRANULARITY_COUNT];
    OQ_VEC(oq_weight_only) only;
    OQ_VEC(oq_tied) read; /* weights of MatMul, Gemm and Gather, and packed ones, by name */
} oq_quantized;
bool oq_quantized_any(const oq_quantized *q); /* false for a float model */

/* What a mode would quantize: nodes of the operators it knows that are still float. */
typedef enum oq_quant_mode {
    OQ_MODE_STATIC,
    OQ_MODE_DYNAMIC,
    OQ_MODE_NBITS,
    OQ_MODE_COUNT
} oq_quant_mode;
const char *oq_quant_mode_name(oq_quant_mode m); /* "static", "dynamic", "nbits" */

typedef struct oq_quantizable {
    uint64_t nodes;
    uint64_t weight_bytes; /* of float weights that these nodes alone or together use */
    oq_op_counts ops;
} oq_quantizable;

typedef struct oq_summary {
    uint64_t nodes, graphs; /* subgraphs and functions counted */
    oq_op_counts ops;       /* most frequent first */
    oq_tensor_sum total;    /* initializers, constants and other tensors of attributes */
    oq_tensor_sum by_type[OQ_DTYPE_COUNT];
    uint64_t raw_bytes, typed_bytes, external_bytes;
    OQ_VEC(oq_external_sum) files;
    oq_quantized quant;
    oq_quantizable can[OQ_MODE_COUNT];
    /* Odd or telling things. */
    uint64_t unused_inits, input_inits, dead_nodes, values, values_typed, conv_batchnorm;
    oq_str unused_init, input_init, dead_node; /* the first of each */
} oq_summary;

/* The modes that would take a float node: bits 1 << oq_quant_mode. */
typedef struct oq_modes {
    unsigned (*of)(void *ctx, const oq_node *n);
    void *ctx;
} oq_modes;

/* Counts the model; what it holds lives in `a` or in the model. Without `modes` nothing can be
 * quantized. */
onq_code oq_summary_make(oq_summary *s, oq_arena *a, oq_model *m, const oq_modes *modes,
                         onq_error *err);
/* True if a node of the model is of that domain. */
bool oq_summary_uses(const oq_summary *s, oq_str domain);

/* "FLOAT[batch, 3, 224]", "sequence(FLOAT)", "map(INT64, FLOAT)", "?" into the buffer. */
void oq_type_text(oq_buf *b, const oq_type *t);
