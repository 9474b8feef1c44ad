/*
 * quant_methods.h — methods for single products: --channel_ranges, --equalize, --outlier_channels,
 * --double_activations, and --node_methods, which says it node by node.
 */
#pragma once

#include "api/quantizing/quantization.h"

/* The choices of --channel_ranges. */
#define OQ_CHANNEL_RANGES(ROW)                                                                     \
    ROW("none", OQ_METHOD_GENERAL)                                                                 \
    ROW("in", OQ_METHOD_IN) ROW("out", OQ_METHOD_OUT) ROW("both", OQ_METHOD_BOTH)

/* Checks the options against each other. `pairs`: the result has QuantizeLinear and
 * DequantizeLinear; `arithmetic`: elementwise operators are quantized too. */
onq_code oq_quant_methods_check(const oq_quant *q, bool pairs, bool arithmetic, onq_error *err);
/* Applies them to the nodes that are to be quantized: changes the float model, or notes what the
 * quantizer is to do. */
onq_code oq_quant_methods_apply(oq_quant *q, onq_error *err);
