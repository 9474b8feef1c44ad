/*
 * encodings_blocks.h — weights in blocks as AIMET's files have them.
 *
 * Lists are in the order of channels and blocks (1.0.0), or nested as the weight is, with 1 where all
 * share a number (2.0.0). LPBQ has a float for each channel and an integer for each block, whose
 * product is the scale.
 */
#pragma once

#include "base/text/json.h"
#include "onnx/codec/message.h"
#include "quantize/override/override.h"

typedef struct oq_encoded_blocks {
    const json_t *scale, *zero; /* zero may be NULL */
    const json_t *times;        /* of LPBQ: the integers; scale is that of channels then. Or NULL */
    bool nested;                /* as the weight is; else in the order of channels and blocks */
    int64_t axis, channel;      /* of blocks and of channels */
    int64_t block;
    oq_dtype type;
    bool offsets; /* `zero` holds offsets: the negative zero points of unsigned integers */
} oq_encoded_blocks;

/* The same in the order of DequantizeLinear's parameters. ONQ_E_CONFIG says what does not fit. */
onq_code oq_encodings_blocks(oq_arena *a, const oq_tensor *weight, const oq_encoded_blocks *e,
                             const oq_override_blocks **out, onq_error *err);
