/*
 * gguf_blocks.c — the numbers of GGUF tensors. A row for each type says how long a block is and
 * reads one.
 */
#include "base/text/real.h"
#include "onnx/gguf/gguf.h"
#include "onnx/gguf/gguf_types.h"

#include <string.h>

#define MAX_BLOCK 256 /* numbers of a block */

static float half_at(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, 2);
    return oq_f16_to_f32(h);
}

static void read_f32(const uint8_t *b, float *out) {
    memcpy(out, b, 4);
}

static void read_f16(const uint8_t *b, float *out) {
    *out = half_at(b);
}

static void read_bf16(const uint8_t *b, float *out) {
    uint16_t h;
    memcpy(&h, b, 2);
    *out = oq_bf16_to_f32(h);
}

/* The first 16 numbers are in the low halves of 16 bytes, the others in the high ones. */
static void read_q4_0(const uint8_t *b, float *out) {
    const float d = half_at(b);
    for (size_t i = 0; i < 16; i++) {
        out[i] = d * (float)((int)(b[2 + i] & 15) - 8);
        out[16 + i] = d * (float)((int)(b[2 + i] >> 4) - 8);
    }
}

static void read_q4_1(const uint8_t *b, float *out) {
    const float d = half_at(b), m = half_at(b + 2);
    for (size_t i = 0; i < 16; i++) {
        out[i] = d * (float)(b[4 + i] & 15) + m;
        out[16 + i] = d * (float)(b[4 + i] >> 4) + m;
    }
}

/* One of 32 numbers whose fifth bits lie apart. */
static unsigned five_bits(const uint8_t *high, const uint8_t *low, size_t i) {
    const unsigned q = i < 16 ? low[i] & 15u : low[i - 16] >> 4;
    return q | (high[i / 8] >> i % 8 & 1u) << 4;
}

static void read_q5_0(const uint8_t *b, float *out) {
    const float d = half_at(b);
    for (size_t i = 0; i < 32; i++)
        out[i] = d * (float)((int)five_bits(b + 2, b + 6, i) - 16);
}

static void read_q5_1(const uint8_t *b, float *out) {
    const float d = half_at(b), m = half_at(b + 2);
    for (size_t i = 0; i < 32; i++)
        out[i] = d * (float)five_bits(b + 4, b + 8, i) + m;
}

static void read_q8_0(const uint8_t *b, float *out) {
    const float d = half_at(b);
    for (size_t i = 0; i < 32; i++)
        out[i] = d * (float)(int8_t)b[2 + i];
}

/* Scale and minimum of the i-th of eight blocks, 6 bits each, in 12 bytes. */
static void scale_of(const uint8_t *s, size_t i, float *scale, float *minimum) {
    const unsigned low = i < 4 ? s[i] & 63u : (s[i + 4] & 15u) | (unsigned)(s[i - 4] >> 6) << 4;
    const unsigned high =
        i < 4 ? s[i + 4] & 63u : (unsigned)(s[i + 4] >> 4) | (unsigned)(s[i] >> 6) << 4;
    *scale = (float)low;
    *minimum = (float)high;
}

static void read_q4_k(const uint8_t *b, float *out) {
    const float d = half_at(b), m = half_at(b + 2);
    for (size_t i = 0; i < 8; i++) {
        const uint8_t *q = b + 16 + i / 2 * 32;
        float scale, minimum;
        scale_of(b + 4, i, &scale, &minimum);
        const float by = d * scale, less = m * minimum;
        for (size_t k = 0; k < 32; k++)
            out[i * 32 + k] = by * (float)(i % 2 == 0 ? q[k] & 15 : q[k] >> 4) - less;
    }
}

/* As Q4_K; 32 bytes before the others have the fifth bits, one for each of the eight blocks. */
static void read_q5_k(const uint8_t *b, float *out) {
    const float d = half_at(b), m = half_at(b + 2);
    for (size_t i = 0; i < 8; i++) {
        const uint8_t *q = b + 48 + i / 2 * 32;
        float scale, minimum;
        scale_of(b + 4, i, &scale, &minimum);
        const float by = d * scale, less = m * minimum;
        for (size_t k = 0; k < 32; k++) {
            const unsigned low = i % 2 == 0 ? q[k] & 15u : q[k] >> 4;
            out[i * 32 + k] = by * (float)(low | (b[16 + k] >> i & 1u) << 4) - less;
        }
    }
}

/* Numbers of 2 bits: the k-th of 256 lies in 64 bytes like this, here and in Q3_K. */
static unsigned two_bits(const uint8_t *q, size_t k) {
    return q[k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2) & 3u;
}

static void read_q2_k(const uint8_t *b, float *out) {
    const float d = half_at(b + 80), m = half_at(b + 82);
    for (size_t k = 0; k < 256; k++) {
        const uint8_t s = b[k / 16];
        out[k] = d * (float)(s & 15) * (float)two_bits(b + 16, k) - m * (float)(s >> 4);
    }
}

/* 32 bytes with the third bits, 64 with the others, 12 with the scales: low halves, then the two
 * high bits. */
static void read_q3_k(const uint8_t *b, float *out) {
    const uint8_t *s = b + 96;
    const float d = half_at(b + 108);
    for (size_t k = 0; k < 256; k++) {
        const size_t i = k / 16;
        const unsigned low = i < 8 ? s[i] & 15u : s[i - 8] >> 4;
        const int scale = (int)(low | (s[8 + i % 4] >> (i / 4 * 2) & 3u) << 4) - 32;
        const int q = (int)(two_bits(b + 32, k) | (b[k % 32] >> (k / 32) & 1u) << 2) - 4;
        out[k] = d * (float)scale * (float)q;
    }
}

/* 128 bytes with the low 4 bits, 64 with the high 2, 16 scales. */
static void read_q6_k(const uint8_t *b, float *out) {
    const float d = half_at(b + 208);
    for (size_t i = 0; i < 256; i++) {
        const size_t half = i / 128, part = i % 128 / 32, k = i % 32;
        const uint8_t *low = b + half * 64 + part % 2 * 32, *high = b + 128 + half * 32;
        const int q = (part < 2 ? low[k] & 15 : low[k] >> 4) | (high[k] >> (2 * part) & 3) << 4;
        const int8_t scale = (int8_t)b[192 + half * 8 + part * 2 + k / 16];
        out[i] = d * (float)scale * (float)(q - 32);
    }
}

static const oq_gguf_kind kinds[] = {
    {OQ_GGUF_F32, "F32", 1, 4, read_f32},        {OQ_GGUF_F16, "F16", 1, 2, read_f16},
    {OQ_GGUF_BF16, "BF16", 1, 2, read_bf16},     {OQ_GGUF_Q4_0, "Q4_0", 32, 18, read_q4_0},
    {OQ_GGUF_Q4_1, "Q4_1", 32, 20, read_q4_1},   {OQ_GGUF_Q8_0, "Q8_0", 32, 34, read_q8_0},
    {OQ_GGUF_Q5_0, "Q5_0", 32, 22, read_q5_0},   {OQ_GGUF_Q5_1, "Q5_1", 32, 24, read_q5_1},
    {OQ_GGUF_Q2_K, "Q2_K", 256, 84, read_q2_k},  {OQ_GGUF_Q3_K, "Q3_K", 256, 110, read_q3_k},
    {OQ_GGUF_Q4_K, "Q4_K", 256, 144, read_q4_k}, {OQ_GGUF_Q5_K, "Q5_K", 256, 176, read_q5_k},
    {OQ_GGUF_Q6_K, "Q6_K", 256, 210, read_q6_k},
};

const oq_gguf_kind *oq_gguf_kind_of(uint32_t type) {
    for (size_t i = 0; i < OQ_COUNT(kinds); i++)
        if (kinds[i].type == type)
            return &kinds[i];
    return NULL;
}

onq_code oq_gguf_check_type(const oq_gguf_tensor *t, onq_error *err) {
    return oq_gguf_kind_of(t->type) != NULL
               ? ONQ_OK
               : oq_fail(err, ONQ_E_UNSUPPORTED,
                         "tensor '%.*s' has type %u (F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 "
                         "and Q2_K to Q6_K can be read)",
                         OQ_STR(t->name), t->type);
}

void oq_gguf_read(const oq_gguf_tensor *t, uint64_t from, uint64_t n, float *out) {
    const oq_gguf_kind *k = oq_gguf_kind_of(t->type);
    float block[MAX_BLOCK];
    assert(k != NULL && from <= t->count && n <= t->count - from);
    while (n > 0) {
        const uint64_t skip = from % k->block, left = k->block - skip, now = n < left ? n : left;
        k->read(t->data + from / k->block * k->bytes, block);
        memcpy(out, block + skip, (size_t)now * sizeof *out);
        out += now;
        from += now;
        n -= now;
    }
}

/* What integers of 5 bits get more, so that they lie around the middle of a byte: kernels that round
 * their input multiply it by the distance to 128, and that should be small. */
#define CENTRE 112

/* Block i of 32 of Q4_K or Q5_K, eight to a block of the file. */
static void block_of_256(const oq_gguf_tensor *t, uint64_t i, uint8_t q[32], float *scale,
                         float *minimum) {
    const bool five = t->type == OQ_GGUF_Q5_K;
    const oq_gguf_kind *kind = oq_gguf_kind_of(t->type);
    assert(kind != NULL);
    const uint8_t *b = t->data + i / 8 * kind->bytes;
    const uint8_t *from = b + (five ? 48 : 16) + i % 8 / 2 * 32;
    float by, less;
    scale_of(b + 4, i % 8, &by, &less);
    *scale = half_at(b) * by;
    *minimum = -(half_at(b + 2) * less);
    for (size_t j = 0; j < 32; j++) {
        const unsigned low = i % 2 == 0 ? from[j] & 15u : from[j] >> 4;
        q[j] = (uint8_t)(five ? CENTRE + (low | (b[16 + j] >> i % 8 & 1u) << 4) : low);
    }
    *minimum -= five ? CENTRE * *scale : 0;
}

/* Integers that have signs in the file get 8 or 128 more, which the minimum takes off. */
static void block_of_32(const oq_gguf_tensor *t, uint64_t i, uint8_t q[32], float *scale,
                        float *minimum) {
    const oq_gguf_kind *k = oq_gguf_kind_of(t->type);
    assert(k != NULL && k->block == 32);
    const uint8_t *b = t->data + i * k->bytes;
    const bool has_minimum = t->type == OQ_GGUF_Q4_1 || t->type == OQ_GGUF_Q5_1;
    const uint8_t *from = b + (has_minimum ? 4 : 2);
    *scale = half_at(b);
    *minimum = t->type == OQ_GGUF_Q4_1   ? half_at(b + 2)
               : t->type == OQ_GGUF_Q5_1 ? half_at(b + 2) - CENTRE * *scale
               : t->type == OQ_GGUF_Q4_0 ? -8 * *scale
                                         : -128 * *scale;
    for (size_t j = 0; j < 32; j++)
        switch (t->type) {
        case OQ_GGUF_Q8_0:
            q[j] = (uint8_t)(from[j] ^ 128u);
            break;
        case OQ_GGUF_Q5_0:
        case OQ_GGUF_Q5_1:
            q[j] = (uint8_t)(CENTRE + five_bits(from, from + 4, j));
            break;
        default:
            q[j] = j < 16 ? from[j] & 15 : from[j - 16] >> 4;
        }
}

void oq_gguf_block(const oq_gguf_tensor *t, uint64_t i, uint8_t q[32], float *scale,
                   float *minimum) {
    const oq_gguf_kind *kind = oq_gguf_kind_of(t->type);
    assert(kind != NULL && i < t->count / 32);
    if (kind->block == 256)
        block_of_256(t, i, q, scale, minimum);
    else
        block_of_32(t, i, q, scale, minimum);
    if (*scale == 0.0f)
        memset(q, 0, 32);
}
