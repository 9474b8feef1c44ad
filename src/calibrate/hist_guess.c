/*
 * hist_guess.c — the vector part of histograms: one body, compiled for what a machine may have.
 *
 * The many values that lie exactly on an edge are zeros and those a Clip has cut off; the bins of
 * zero and of the end of the range are known beforehand, so these are not marked.
 */
#include "calibrate/hist_guess.h"

typedef float v8f __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));
typedef uint32_t v8u __attribute__((vector_size(32)));
typedef float v16f __attribute__((vector_size(64)));
typedef int32_t v16i __attribute__((vector_size(64)));
typedef uint32_t v16u __attribute__((vector_size(64)));
/* The same anywhere in memory. */
typedef float v8f_at __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t v8i_at __attribute__((vector_size(32), aligned(4), may_alias));
typedef float v16f_at __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t v16i_at __attribute__((vector_size(64), aligned(4), may_alias));

#define GUESS_KERNEL(name, attribute, LANES, vf, vi, vu)                                           \
    attribute static size_t name(const oq_hist *h, const float *v, size_t n, int32_t *bin) {       \
        const float first = h->first, last = h->last, scale = h->scale;                            \
        const float near_lo = h->unsure, near_hi = 1.0f - h->unsure;                               \
        const uint32_t top = (uint32_t)h->n_bins - 1;                                              \
        const int32_t zero_bin = h->zero_bin, top_bin = (int32_t)top;                              \
        const int32_t keep = h->abs ? INT32_MAX : -1;                                              \
        vi marks = {0};                                                                            \
        float rest[LANES];                                                                         \
        for (size_t i = 0; i < n; i += LANES) {                                                    \
            vf a;                                                                                  \
            if (n - i >= LANES) {                                                                  \
                a = *(const vf##_at *)(v + i);                                                     \
            } else { /* the last value again and again; its extra bins are not used */             \
                for (size_t k = 0; k < LANES; k++)                                                 \
                    rest[k] = v[i + k < n ? i + k : n - 1];                                        \
                a = *(const vf##_at *)rest;                                                        \
            }                                                                                      \
            a = (vf)((vi)a & keep);                                                                \
            const vf t = (a - first) * scale;                                                      \
            vi b = __builtin_convertvector(t, vi); /* of NaN: depends on the machine */            \
            const vf r = t - __builtin_convertvector(b, vf);                                       \
            const vi zero = a == 0, end = a == last;                                               \
            const vi outside = (vi)((vu)b > top);                                                  \
            const vi between = (r >= near_lo) & (r <= near_hi); /* false for NaN */                \
            const vi unsure = ~(zero | end) & (outside | ~between);                                \
            b = (zero & zero_bin) | (~zero & b);                                                   \
            b = (end & top_bin) | (~end & (b | (unsure & OQ_HIST_UNSURE)));                        \
            marks -= unsure;                                                                       \
            *(vi##_at *)(bin + i) = b;                                                             \
        }                                                                                          \
        int32_t counts[LANES];                                                                     \
        size_t total = 0;                                                                          \
        *(vi##_at *)counts = marks;                                                                \
        for (int k = 0; k < LANES; k++)                                                            \
            total += (size_t)counts[k];                                                            \
        return total;                                                                              \
    }

GUESS_KERNEL(guess_plain, , 8, v8f, v8i, v8u)

#if defined(__x86_64__)
GUESS_KERNEL(guess_avx2, OQ_AVX2, 8, v8f, v8i, v8u)
GUESS_KERNEL(guess_avx512, OQ_AVX512, 16, v16f, v16i, v16u)
#endif

oq_hist_guess_fn oq_hist_guess_at(size_t i) {
    oq_hist_guess_fn have[3];
    size_t n = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        have[n++] = guess_avx512;
    if (__builtin_cpu_supports("avx2"))
        have[n++] = guess_avx2;
#endif
    have[n++] = guess_plain;
    return i < n ? have[i] : NULL;
}
