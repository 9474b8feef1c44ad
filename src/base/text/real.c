/*
 * real.c — small floats and small integers. See real.h.
 *
 * Every narrow float is made the same way: encode_f32 rounds the magnitude to the type's
 * significand, half to even, into a code that simply counts the type's values upwards from zero
 * (subnormals, normals, and on past the largest, as if exponents had no end). What is past the
 * largest finite code is then overflow, and each type has its own answer to that, to NaN and to
 * minus zero. The answers are those of numpy (fp16) and ml_dtypes (all others), to the bit.
 */
#include "base/text/real.h"

/* The code of a float's magnitude, given as its bits (no NaN), in a type with `man` bits after the
 * point and exponent bias `bias`; without a branch. Normals: the exponent is moved and the tail
 * rounded off, a carry going where it should. Subnormals: adding the power of two whose last bit is
 * the type's smallest value lets the adder round. */
static inline uint32_t encode_f32(uint32_t magnitude, unsigned man, unsigned bias) {
    const unsigned shift = 23 - man;
    const uint32_t tail = (1u << (shift - 1)) - 1 + ((magnitude >> shift) & 1);
    const uint32_t normal = (magnitude - ((127 - bias) << 23) + tail) >> shift;
    const uint32_t power = (127 + 24 - bias - man) << 23;
    const uint32_t subnormal =
        oq_f32_bits(oq_f32_of_bits(magnitude) + oq_f32_of_bits(power)) - power;
    return magnitude < (128 - bias) << 23 ? subnormal : normal;
}

/* The value of a code: the inverse, for types with at most 10 bits after the point. */
static float decode(uint32_t code, unsigned man, int bias) {
    const uint32_t field = code >> man, low = code & ((1u << man) - 1);
    if (field != 0)
        return oq_f32_of_bits(((uint32_t)((int)field - bias + 127) << 23) | (low << (23 - man)));
    /* Whole multiples of the smallest subnormal: exact. */
    return (float)low * oq_f32_of_bits((uint32_t)(127 + 1 - bias - (int)man) << 23);
}

/* ---- 16 bits ---- */

static inline uint16_t f32_to_f16(float x) {
    const uint32_t u = oq_f32_bits(x), sign = (u >> 16) & 0x8000, magnitude = u & 0x7fffffff;
    const uint32_t code = encode_f32(magnitude, 10, 15);
    const uint32_t number = code > 0x7c00 ? 0x7c00 : code;
    /* NaN keeps the upper bits of its payload, but never becomes an infinity. */
    const uint32_t payload = (magnitude >> 13) & 0x3ff, nan = 0x7c00 | (payload + (payload == 0));
    return (uint16_t)(sign | (magnitude > 0x7f800000 ? nan : number));
}

uint16_t oq_f32_to_f16(float x) {
    return f32_to_f16(x);
}

/* The code of a double's magnitude as a half: the same with integers, where the range of floats
 * ends. */
static uint64_t encode_f64(uint64_t magnitude) {
    const int field = (int)(magnitude >> 52) - 1023 + 15;
    const uint64_t sig = (magnitude & 0xfffffffffffffu) | (uint64_t)1 << 52;
    if (field < -20)
        return 0; /* below half of the smallest; subnormal doubles too */
    const unsigned shift = 42 + (unsigned)(field < 1 ? 1 - field : 0);
    const uint64_t half = (uint64_t)1 << (shift - 1), low = sig & (half * 2 - 1);
    uint64_t q = sig >> shift;
    q += low > half || (low == half && (q & 1) != 0);
    return field < 1 ? q : q + ((uint64_t)(field - 1) << 10);
}

uint16_t oq_f64_to_f16(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    const uint64_t sign = (u >> 48) & 0x8000, magnitude = u & (UINT64_MAX >> 1);
    uint64_t code;
    if (magnitude > (uint64_t)0x7ff << 52) {
        code = 0x7c00 | ((magnitude >> 42) & 0x3ff);
        code += code == 0x7c00;
    } else {
        code = encode_f64(magnitude);
        if (code > 0x7c00)
            code = 0x7c00;
    }
    return (uint16_t)(sign | code);
}

static inline float f16_to_f32(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = h & 0x7fff;
    const uint32_t normal = (magnitude << 13) + (112u << 23);
    const uint32_t special = (magnitude << 13) | 0x7f800000;
    const uint32_t subnormal = oq_f32_bits((float)(int32_t)magnitude * 0x1p-24f);
    const uint32_t finite = magnitude < 0x400 ? subnormal : normal;
    return oq_f32_of_bits(sign | (magnitude >= 0x7c00 ? special : finite));
}

float oq_f16_to_f32(uint16_t h) {
    return f16_to_f32(h);
}

uint16_t oq_f32_to_bf16(float x) {
    const uint32_t u = oq_f32_bits(x);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(0x7fc0 | ((u >> 16) & 0x8000));
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

float oq_bf16_to_f32(uint16_t h) {
    return oq_f32_of_bits((uint32_t)h << 16);
}

void oq_f16_to_f32_n(const uint16_t *in, float *out, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        out[i] = f16_to_f32(in[i]);
}

void oq_f32_to_f16_n(const float *in, uint16_t *out, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        out[i] = f32_to_f16(in[i]);
}

void oq_bf16_to_f32_n(const uint16_t *in, float *out, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        out[i] = oq_f32_of_bits((uint32_t)in[i] << 16);
}

/* ---- 8 bits ---- */

static const struct fp8_type {
    unsigned man;
    unsigned bias;
    uint8_t largest;  /* finite */
    uint8_t overflow; /* what is past it becomes */
    uint8_t nan;
    bool is_uz; /* no minus zero: its code is NaN */
} fp8_types[] = {
    [OQ_FP8_E4M3FN] = {3, 7, 0x7e, 0x7f, 0x7f, false},
    [OQ_FP8_E4M3FNUZ] = {3, 8, 0x7f, 0x80, 0x80, true},
    [OQ_FP8_E5M2] = {2, 15, 0x7b, 0x7c, 0x7e, false},
    [OQ_FP8_E5M2FNUZ] = {2, 16, 0x7f, 0x80, 0x80, true},
};

uint8_t oq_f32_to_fp8(float x, oq_fp8 kind, bool saturate) {
    const struct fp8_type *t = &fp8_types[kind];
    const uint32_t u = oq_f32_bits(x), sign = (u >> 24) & 0x80, magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint8_t)(t->nan | sign);
    const uint32_t code = encode_f32(magnitude, t->man, t->bias);
    if (code > t->largest)
        return (uint8_t)((saturate ? t->largest : t->overflow) | sign);
    if (code == 0 && t->is_uz)
        return 0;
    return (uint8_t)(code | sign);
}

float oq_fp8_to_f32(uint8_t b, oq_fp8 kind) {
    const struct fp8_type *t = &fp8_types[kind];
    const uint32_t sign = (uint32_t)(b & 0x80) << 24, code = b & 0x7f;
    if (t->is_uz && b == 0x80)
        return oq_f32_of_bits(0xffc00000);
    if (code > t->largest) {
        const bool is_inf = kind == OQ_FP8_E5M2 && code == t->overflow;
        return oq_f32_of_bits(sign | (is_inf ? 0x7f800000 : 0x7fc00000));
    }
    return oq_f32_of_bits(sign | oq_f32_bits(decode(code, t->man, (int)t->bias)));
}

float oq_e8m0_to_f32(uint8_t b) {
    return oq_f32_of_bits(b == 0xff ? 0x7fc00000 : b == 0 ? 0x400000 : (uint32_t)b << 23);
}

/* ---- less than 8 bits ---- */

float oq_fp4_to_f32(uint8_t nib) {
    const float magnitude = decode(nib & 7, 1, 1);
    return nib & 8 ? -magnitude : magnitude;
}

float oq_fp6_to_f32(uint8_t b, bool e3m2) {
    const float magnitude = e3m2 ? decode(b & 31, 2, 3) : decode(b & 31, 3, 1);
    return b & 32 ? -magnitude : magnitude;
}
