/*
 * real.h — small floats and small integers.
 *
 * fp16, bf16 and the four fp8 types of ONNX to and from float32, rounding half to even, as numpy
 * and ml_dtypes do it; float4e2m1, float8e8m0, float6 and 2/4-bit integers are only read.
 * `saturate` is that of the onnx package (numpy_helper.saturate_cast): out-of-range values and
 * infinities become the largest finite value instead of NaN/Inf.
 */
#pragma once

#include "base/port.h"

/* The bits of a float, and the float of those bits. */
static inline uint32_t oq_f32_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float oq_f32_of_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

uint16_t oq_f32_to_f16(float x);
float oq_f16_to_f32(uint16_t h);
uint16_t oq_f64_to_f16(double x);
uint16_t oq_f32_to_bf16(float x);
float oq_bf16_to_f32(uint16_t h);

typedef enum oq_fp8 {
    OQ_FP8_E4M3FN,
    OQ_FP8_E4M3FNUZ,
    OQ_FP8_E5M2,
    OQ_FP8_E5M2FNUZ,
} oq_fp8;
uint8_t oq_f32_to_fp8(float x, oq_fp8 kind, bool saturate);
float oq_fp8_to_f32(uint8_t b, oq_fp8 kind);

float oq_e8m0_to_f32(uint8_t b);
float oq_fp4_to_f32(uint8_t nib);          /* e2m1, low nibble */
float oq_fp6_to_f32(uint8_t b, bool e3m2); /* low six bits */

/* Sub-byte integers: element i of a packed array, low bits first. */
static inline int oq_get_i4(const uint8_t *p, size_t i) {
    int v = (p[i >> 1] >> ((i & 1) * 4)) & 15;
    return v >= 8 ? v - 16 : v;
}
static inline int oq_get_u4(const uint8_t *p, size_t i) {
    return (p[i >> 1] >> ((i & 1) * 4)) & 15;
}
static inline int oq_get_i2(const uint8_t *p, size_t i) {
    int v = (p[i >> 2] >> ((i & 3) * 2)) & 3;
    return v >= 2 ? v - 4 : v;
}
static inline int oq_get_u2(const uint8_t *p, size_t i) {
    return (p[i >> 2] >> ((i & 3) * 2)) & 3;
}

/* Arrays, vectorised where the compiler can. */
void oq_f16_to_f32_n(const uint16_t *in, float *out, size_t n);
void oq_f32_to_f16_n(const float *in, uint16_t *out, size_t n);
void oq_bf16_to_f32_n(const uint16_t *in, float *out, size_t n);
