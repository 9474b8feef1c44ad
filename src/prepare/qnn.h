/*
 * qnn.h — what the reference's qnn_preprocess_model does to a model that shapes and
 * optimisation have been done for: inputs of fixed shape, operators put together (Gelu,
 * LpNormalization, SpaceToDepth, LayerNormalization on request), channels last at inputs and
 * outputs, a name for every node.
 */
#pragma once

#include "onnx/model.h"

/* An input that gets a fixed shape. */
typedef struct oq_qnn_shape {
    oq_str name;
    const int64_t *dims;
    size_t rank;
} oq_qnn_shape;

typedef struct oq_qnn_options {
    bool fuse_layernorm;
    bool exclude_initializer_from_input; /* initializers are not inputs (IR version 4 and later) */
    const oq_str *inputs_channel_last, *outputs_channel_last;
    size_t n_inputs_channel_last, n_outputs_channel_last;
    const oq_qnn_shape *shapes;
    size_t n_shapes;
} oq_qnn_options;

typedef struct oq_qnn_report {
    size_t n_gelu, n_lpnorm, n_spacetodepth, n_layernorm, n_named;
    bool changed; /* any of these, an input or an output */
} oq_qnn_report;

/* One of the fusions alone: Gelu, LpNormalization, SpaceToDepth or LayerNormalization; another name
 * is ONQ_E_OPTION. *count gets how often it was found. */
onq_code oq_qnn_fuse(oq_model *m, oq_str op, size_t *count, onq_error *err);

onq_code oq_qnn_prepare(oq_model *m, const oq_qnn_options *o, oq_qnn_report *report,
                        onq_error *err);
