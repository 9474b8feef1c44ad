/*
 * compare.h — the differences of two models, as graphs.
 *
 * What changes the computation is a difference: opsets, inputs and outputs, nodes, attributes,
 * initializers and their values, functions, training graphs. What does not is *soft*: names of
 * nodes and of symbolic dimensions, order of nodes and initializers, value_info, doc strings,
 * producer, IR version, metadata, annotations, and how a tensor is stored. Nodes are matched by the
 * tensors they make; without names (`rename`) by what they compute.
 *
 * Payloads are compared as they stream by; a model need not fit in memory.
 */
#pragma once

#include "onnx/model.h"

typedef enum oq_diff_kind {
    /* differences */
    OQ_DIFF_OPSET,
    OQ_DIFF_INPUT,
    OQ_DIFF_OUTPUT,
    OQ_DIFF_NODE,
    OQ_DIFF_ATTRIBUTE,
    OQ_DIFF_INITIALIZER,
    OQ_DIFF_VALUE,
    OQ_DIFF_FUNCTION,
    OQ_DIFF_TRAINING,
    /* soft ones */
    OQ_DIFF_NODE_NAME,
    OQ_DIFF_DIMENSION,
    OQ_DIFF_VALUE_INFO,
    OQ_DIFF_ORDER,
    OQ_DIFF_IR_VERSION,
    OQ_DIFF_PRODUCER,
    OQ_DIFF_DOC,
    OQ_DIFF_METADATA,
    OQ_DIFF_ANNOTATION,
    OQ_DIFF_OTHER,
    OQ_DIFF_COUNT,
    OQ_DIFF_FIRST_SOFT = OQ_DIFF_NODE_NAME
} oq_diff_kind;

const char *oq_diff_name(oq_diff_kind k); /* "node_name" */

/* One difference. The texts are valid during the call. */
typedef struct oq_difference {
    oq_diff_kind kind;
    oq_str where; /* the subgraph or function, "" for the main graph */
    oq_str name;  /* of the node or tensor, or "" */
    oq_str text;  /* what differs; the first model's part first */
} oq_difference;

typedef struct oq_compare {
    double atol, rtol; /* values a, b are equal when |a - b| <= atol + rtol |b| */
    bool rename;       /* names of tensors do not count */
    /* Called for each; an error stops the comparison. */
    onq_code (*found)(void *ctx, const oq_difference *d, onq_error *err);
    void *ctx;
} oq_compare;

/* Compares; `scratch` holds what it needs meanwhile. */
onq_code oq_compare_models(const oq_compare *how, oq_arena *scratch, oq_model *a, oq_model *b,
                           onq_error *err);
