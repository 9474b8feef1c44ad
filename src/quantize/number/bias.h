/*
 * bias.h — the arithmetic of int32 biases.
 *
 * A bias is quantized to int32 with zero point 0 and scale = input scale x weight scale, one
 * scale or one for each channel. Where that scale is so small that the bias would leave the range
 * of int32, the reference raises the weight's scale first. Values and types as in
 * base_quantizer.quantize_bias_static_impl and qdq_quantizer._adjust_weight_scale_for_int32_bias.
 */
#pragma once

#include "onnx/model.h"
#include "quantize/number/qparam.h"

/* Values of one real type. */
typedef struct oq_reals {
    const float *v;
    uint64_t n;
    oq_dtype real; /* OQ_FLOAT or OQ_FLOAT16 */
} oq_reals;

/* True if these are the dims of a bias for n channels. One scale fits all; else the last dimension
 * holds the channels. */
bool oq_bias_fits(const int64_t *dims, size_t rank, uint64_t n_scales);

/* The scales of the bias (weight.n of them) in the type that the product has; *real says which. */
void oq_bias_scales(oq_reals input, oq_reals weight, float *out, oq_dtype *real);

/* Quantizes; the scale of element i is scales.v[i % scales.n]. Returns how many were clipped to
 * the range of int32. *nan is set when an element is NaN or infinite. */
uint64_t oq_bias_quantize(oq_reals bias, oq_reals scales, int32_t *out, bool *nan);

/* True if a bias exceeds the range of int32 at that scale. */
bool oq_bias_exceeds(oq_model *m, oq_tensor *bias, double scale);
/* Says that a bias was clipped. */
void oq_bias_warn_clipped(const onq_env *env, oq_str name);

/* Raises weight scales (in place) that are too small for the bias; returns how many. weight.n is
 * 1 for a weight quantized per tensor: `per_channel` says which rule holds, for they round
 * differently. */
uint64_t oq_bias_adjust(oq_reals bias, oq_reals input, float *weight_scale, uint64_t n_scales,
                        oq_dtype weight_real, bool per_channel);
