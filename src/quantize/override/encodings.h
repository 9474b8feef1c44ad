/*
 * encodings.h — quantization parameters as files of other tools.
 *
 *   AIMET 0.6.1   {"activation_encodings": {tensor: [{...}]}, "param_encodings": {...}}, one object
 *                 for each channel: bitwidth, dtype, is_symmetric, min, max, offset, scale
 *   AIMET 1.0.0   lists of {"name", "enc_type", "dtype", "bw", "is_sym", "scale": [], "offset": []}
 *   AIMET 2.0.0   one list, with the words of QuantizeLinear: {"name", "y_scale", "y_zero_point",
 *                 "output_dtype", "axis"}
 *   TensorRT      a calibration cache: a line for each tensor with its scale as hexadecimal float
 *   overrides     TensorQuantOverrides of onnxruntime.quantization
 *
 * Offsets of AIMET up to 1.0.0 are the negative zero point of unsigned integers, whatever the type.
 */
#pragma once

#include "onnx/model.h"
#include "quantize/override/override.h"
#include "quantize/plan.h"

typedef enum oq_encodings_format {
    OQ_ENCODINGS_0_6_1,
    OQ_ENCODINGS_1_0_0,
    OQ_ENCODINGS_2_0_0,
    OQ_ENCODINGS_TENSORRT,
    OQ_ENCODINGS_OVERRIDES
} oq_encodings_format;

/* What became of the entries of a file. */
typedef struct oq_encodings_read {
    size_t n;        /* tensors that have overrides now */
    size_t n_gone;   /* tensors that the model does not have */
    oq_str gone;     /* the first of them */
    size_t n_other;  /* floats and biases, which are left to the quantizer */
    size_t n_blocks; /* of these: weights in blocks */
} oq_encodings_read;

/* Reads such a file (of any of these formats) as overrides for the tensors of the model. A tensor
 * that has an override already keeps it. ONQ_E_CONFIG names the tensor and the key. */
onq_code oq_encodings_load(oq_overrides *o, oq_model *m, const char *path, oq_encodings_read *out,
                           onq_error *err);

/* Writes the parameters of a plan; *skipped counts tensors that the format cannot hold. */
onq_code oq_encodings_write(const oq_plan *p, oq_encodings_format format, oq_buf *out,
                            size_t *skipped, onq_error *err);
