/*
 * trained.h — models that were trained with fake quantization.
 *
 * A training framework exports what it learned as pairs around float tensors: the tensor is rounded
 * to its integers and made float again. oq_trained_strip finds these, takes scale and zero point,
 * and removes them; what stays is a plain float model, the parameters as overrides (override.h) and
 * a range for every trained activation. The drivers (qoperator.h, qdq.h) then quantize it with
 * config->trained set: trained parameters are taken to the last bit, and nothing else is invented
 * for activations.
 *
 * Recognised, all with constant parameters:
 *
 *   pair        QuantizeLinear, DequantizeLinear with equal parameters; per tensor, or on weights
 *               per channel
 *   integers    DequantizeLinear on a stored integer weight, or on an int32 bias
 *   chain       Div by the scale (or Mul by 1/scale), Round, Clip, Mul by the scale; Add and Sub of
 *               the zero point where there is one; Round and Clip in either order
 *   Quant       of qonnx and Brevitas, 8 bits, rounding to nearest even
 *
 * Several pairs with equal parameters on one tensor are one. Pairs with different parameters get a
 * tensor each (an Identity, or a copy of the weight). Operators that only move values hand
 * parameters on.
 */
#pragma once

#include "calibrate/ranges.h"
#include "onnx/model.h"
#include "quantize/choose/config.h"
#include "quantize/override/override.h"

typedef enum oq_trained_format {
    OQ_TRAINED_INTEGER = 0,
    OQ_TRAINED_QDQ,
    OQ_TRAINED_QOPERATOR
} oq_trained_format;

typedef struct oq_trained_job {
    oq_model *model;
    oq_qconfig *config; /* `trained` and what follows from it is set */
    oq_trained_format format;
    bool activation_asked, weight_asked; /* the user named the type */
    oq_overrides *overrides;             /* filled: the trained parameters */
    oq_ranges *ranges;                   /* filled: trained activations */
    size_t n_activations, n_weights;     /* tensors with trained parameters */
    size_t n_removed;                    /* pairs and chains that were removed */
    size_t n_left;                       /* QuantizeLinear nodes that were not removed */
} oq_trained_job;

/* Finds and removes fake quantization in the model's graph. Constant nodes become initializers. */
onq_code oq_trained_strip(oq_trained_job *job, onq_error *err);
