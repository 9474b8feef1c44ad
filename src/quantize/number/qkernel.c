/*
 * qkernel.c — the inner loops of weight quantization.
 *
 * Rounding half to even is done by adding and subtracting 1.5 * 2^23, which is exact for |x| < 2^22
 * in the default rounding mode and needs no instruction beyond SSE2 or NEON. Values are clipped
 * first: the bounds are integers, so clipping before rounding gives what clipping after it gives.
 * This file is compiled with -O3 (see the pragma): -O2 leaves these loops scalar in gcc 12.
 */
#include "quantize/number/qkernel.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#define LANES 16
#define MAGIC 12582912.0f

bool oq_kernel_minmax(const float *x, size_t n, float *lo, float *hi) {
    float low[LANES], high[LANES];
    uint32_t nan[LANES];
    for (size_t j = 0; j < LANES; j++) {
        low[j] = *lo;
        high[j] = *hi;
        nan[j] = 0;
    }
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            const float v = x[i + j];
            low[j] = v < low[j] ? v : low[j];
            high[j] = v > high[j] ? v : high[j];
            nan[j] |= (uint32_t)(v != v);
        }
    }
    for (; i < n; i++) {
        const float v = x[i];
        low[0] = v < low[0] ? v : low[0];
        high[0] = v > high[0] ? v : high[0];
        nan[0] |= (uint32_t)(v != v);
    }
    uint32_t any = 0;
    for (size_t j = 0; j < LANES; j++) {
        *lo = low[j] < *lo ? low[j] : *lo;
        *hi = high[j] > *hi ? high[j] : *hi;
        any |= nan[j];
    }
    return any == 0;
}

bool oq_kernel_minmax_each(const float *x, size_t n, float *restrict lo, float *restrict hi) {
    uint32_t any = 0;
    for (size_t i = 0; i < n; i++) {
        const float v = x[i];
        lo[i] = v < lo[i] ? v : lo[i];
        hi[i] = v > hi[i] ? v : hi[i];
        any |= (uint32_t)(v != v);
    }
    return any == 0;
}

/* x / scale, clipped to [low, high] (integers), rounded half to even. */
static inline int32_t round_one(float x, float scale, float low, float high) {
    float v = x / scale;
    v = v < low ? low : v;
    v = v > high ? high : v;
    return (int32_t)((v + MAGIC) - MAGIC);
}

void oq_kernel_round8(const float *restrict x, size_t n, oq_kernel_round k, uint8_t *restrict out) {
    const float low = (float)(k.min - k.zero), high = (float)(k.max - k.zero);
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(round_one(x[i], k.scale, low, high) + k.zero);
}

void oq_kernel_round16(const float *restrict x, size_t n, oq_kernel_round k,
                       uint16_t *restrict out) {
    const float low = (float)(k.min - k.zero), high = (float)(k.max - k.zero);
    for (size_t i = 0; i < n; i++)
        out[i] = (uint16_t)(round_one(x[i], k.scale, low, high) + k.zero);
}

void oq_kernel_round8_each(const float *restrict x, size_t n, const float *restrict scale,
                           const int32_t *restrict zero, int32_t min, int32_t max,
                           uint8_t *restrict out) {
    for (size_t i = 0; i < n; i++)
        out[i] =
            (uint8_t)(round_one(x[i], scale[i], (float)(min - zero[i]), (float)(max - zero[i])) +
                      zero[i]);
}

void oq_kernel_round16_each(const float *restrict x, size_t n, const float *restrict scale,
                            const int32_t *restrict zero, int32_t min, int32_t max,
                            uint16_t *restrict out) {
    for (size_t i = 0; i < n; i++)
        out[i] =
            (uint16_t)(round_one(x[i], scale[i], (float)(min - zero[i]), (float)(max - zero[i])) +
                       zero[i]);
}

/* A block of at most 128, or any number below 8, as numpy's FLOAT_pairwise_sum. */
static float sum_block(const float *x, size_t n) {
    if (n < 8) {
        float sum = -0.0f;
        for (size_t i = 0; i < n; i++)
            sum += x[i];
        return sum;
    }
    float r[8];
    memcpy(r, x, sizeof r);
    size_t i = 8;
    for (; i < n - n % 8; i += 8)
        for (size_t j = 0; j < 8; j++)
            r[j] += x[i + j];
    float sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    for (; i < n; i++)
        sum += x[i];
    return sum;
}

float oq_kernel_pairwise_sum(const float *x, size_t n) {
    /* numpy halves recursively; a stack of pending sums does the same without recursion. Each
     * entry is a range still to be added; a negative marker means "add the two results on top". */
    struct {
        const float *x;
        size_t n;
        bool join;
    } todo[2 * 64 + 2];
    float done[64 + 2];
    size_t n_todo = 0, n_done = 0;
    todo[n_todo].x = x;
    todo[n_todo].n = n;
    todo[n_todo++].join = false;
    while (n_todo > 0) {
        n_todo--;
        if (todo[n_todo].join) {
            assert(n_done >= 2);
            done[n_done - 2] = done[n_done - 2] + done[n_done - 1];
            n_done--;
        } else if (todo[n_todo].n <= 128) {
            done[n_done++] = sum_block(todo[n_todo].x, todo[n_todo].n);
        } else {
            const float *from = todo[n_todo].x;
            const size_t all = todo[n_todo].n;
            const size_t half = all / 2 - (all / 2) % 8;
            todo[n_todo++].join = true;
            todo[n_todo].x = from + half;
            todo[n_todo].n = all - half;
            todo[n_todo++].join = false;
            todo[n_todo].x = from;
            todo[n_todo].n = half;
            todo[n_todo++].join = false;
        }
    }
    assert(n_done == 1);
    return done[0];
}
