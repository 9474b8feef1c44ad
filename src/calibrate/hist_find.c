/*
 * hist_find.c — bins by vector arithmetic: one body, compiled for what a machine may have, and one
 * for AVX-512, whose masks and compression save half of the work.
 *
 * A bin is guessed by multiplication; where the value lies so near an edge that rounding could have
 * put it on the wrong side, or outside the range, or is NaN, the guess is marked and looked at
 * again one by one (settle). The many values that lie exactly on an edge are zeros and those a Clip
 * has cut off; the bins of zero and of the end of the range are known beforehand.
 */
#include "calibrate/hist_find.h"

#include <string.h>

typedef float v8f __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));
typedef uint32_t v8u __attribute__((vector_size(32)));
/* The same anywhere in memory. */
typedef float v8f_at __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t v8i_at __attribute__((vector_size(32), aligned(4), may_alias));

/* Set in a bin that has to be looked at again. The bin is then right or one off, or means
 * nothing. */
#define UNSURE INT32_MIN

/* The bin of a value whose guess is marked; n_bins for one that is not counted. */
static inline __attribute__((always_inline)) size_t settle(const oq_hist *h, float x,
                                                           int32_t guessed) {
    if (h->abs)
        x = __builtin_fabsf(x);
    if (!(x >= h->first && x <= h->last))
        return h->n_bins;
    size_t i = (size_t)(guessed & INT32_MAX);
    if (i >= h->n_bins)
        i = h->n_bins - 1;
    i -= x < h->edges[i];
    i += (i + 1 < h->n_bins) & (x >= h->edges[i + 1]);
    return i;
}

/* The same, as it goes into the list. */
static inline __attribute__((always_inline)) int32_t settle_in(const oq_hist *h, float x,
                                                               int32_t guessed, oq_hist_found *f) {
    const size_t bin = settle(h, x, guessed);
    if (bin < h->n_bins)
        return (int32_t)bin;
    f->outside++;
    return 0;
}

/* Zero, if it lies in the range; else what nothing equals. */
static float zero_of(const oq_hist *h) {
    return h->first <= 0 && h->last >= 0 ? 0 : __builtin_nanf("");
}

/* Half a bin, if zero is an edge inside the range; else nothing is nearer. */
static float near_zero_of(const oq_hist *h) {
    const size_t k = (size_t)h->zero_bin;
    return k > 0 && h->edges[k] == 0 ? 0.5f / h->scale : 0;
}

/* ---- any machine ---- */

#define LANES 8

#define FIND_KERNEL(name, attribute)                                                               \
    attribute static void name(const oq_hist *h, const float *v, size_t n, bool sparse,            \
                               oq_hist_found *f) {                                                 \
        const float first = h->first, last = h->last, scale = h->scale;                            \
        const float near_lo = h->unsure, near_hi = 1.0f - h->unsure;                               \
        const uint32_t top = (uint32_t)h->n_bins - 1;                                              \
        const float nought = zero_of(h);                                                           \
        const int32_t zero_bin = h->zero_bin, top_bin = (int32_t)top;                              \
        const int32_t keep = h->abs ? INT32_MAX : -1;                                              \
        v8i marks = {0}, least = (v8i){0} + INT32_MAX, most = (v8i){0} + INT32_MIN, mag = least;   \
        float rest[LANES];                                                                         \
        (void)sparse;                                                                              \
        f->n = n;                                                                                  \
        f->zeros = f->ends = f->outside = 0;                                                       \
        for (size_t i = 0; i < n; i += LANES) {                                                    \
            v8f x;                                                                                 \
            if (n - i >= LANES) {                                                                  \
                x = *(const v8f_at *)(v + i);                                                      \
            } else { /* the last value again and again; its extra bins are not used */             \
                for (size_t k = 0; k < LANES; k++)                                                 \
                    rest[k] = v[i + k < n ? i + k : n - 1];                                        \
                x = *(const v8f_at *)rest;                                                         \
            }                                                                                      \
            const v8i bits = (v8i)x, key = bits ^ ((bits >> 31) & INT32_MAX);                      \
            const v8i less = key<least, more = key> most;                                          \
            const v8i m = bits & INT32_MAX, nearer = m < mag;                                      \
            least = (less & key) | (~less & least);                                                \
            most = (more & key) | (~more & most);                                                  \
            mag = (nearer & m) | (~nearer & mag);                                                  \
            const v8f a = (v8f)(bits & keep);                                                      \
            const v8f t = (a - first) * scale;                                                     \
            v8i b = __builtin_convertvector(t, v8i); /* of NaN: depends on the machine */          \
            const v8f r = t - __builtin_convertvector(b, v8f);                                     \
            const v8i zero = a == nought, end = a == last;                                         \
            const v8i outside = (v8i)((v8u)b > top);                                               \
            const v8i between = (r >= near_lo) & (r <= near_hi); /* false for NaN */               \
            const v8i unsure = ~(zero | end) & (outside | ~between);                               \
            b = (zero & zero_bin) | (~zero & b);                                                   \
            b = (end & top_bin) | (~end & (b | (unsure & UNSURE)));                                \
            marks |= unsure;                                                                       \
            *(v8i_at *)(f->bin + i) = b;                                                           \
        }                                                                                          \
        int32_t any = 0;                                                                           \
        f->least = f->least_magnitude = INT32_MAX;                                                 \
        f->most = INT32_MIN;                                                                       \
        for (int k = 0; k < LANES; k++) {                                                          \
            any |= marks[k];                                                                       \
            f->least = least[k] < f->least ? least[k] : f->least;                                  \
            f->most = most[k] > f->most ? most[k] : f->most;                                       \
            f->least_magnitude = mag[k] < f->least_magnitude ? mag[k] : f->least_magnitude;        \
        }                                                                                          \
        for (size_t i = 0; any != 0 && i < n; i++)                                                 \
            if (f->bin[i] < 0)                                                                     \
                f->bin[i] = settle_in(h, v[i], f->bin[i], f);                                      \
    }

FIND_KERNEL(find_plain, )

static void pair_plain(const int32_t *bin, size_t n_pairs, uint16_t *pair) {
    for (size_t i = 0; i < n_pairs; i++)
        pair[i] = (uint16_t)(bin[2 * i] | bin[2 * i + 1] << OQ_HIST_PAIR_BITS);
}

#if defined(__x86_64__)
#include <immintrin.h>

FIND_KERNEL(find_avx2, OQ_AVX2)

/* What the loop needs to know of the histogram, and its extents so far. */
typedef struct state512 {
    __m512 first, scale, near_lo, near_hi, zero, near_zero, last;
    __m512i top, zero_bin, keep, magnitude, least, most, mag;
    size_t n;
    unsigned zeros, ends;
} state512;

/* The bins of the values in `unsure`. Many are next to zero; where that is an edge, their sign says
 * on which side. */
OQ_AVX512 static inline __attribute__((always_inline)) __m512i
settle512(const oq_hist *h, const float *v, __m512 a, __m512i b, unsigned unsure, const state512 *s,
          oq_hist_found *f) {
    const __mmask16 small =
        _mm512_mask_cmp_ps_mask((__mmask16)unsure, _mm512_abs_ps(a), s->near_zero, _CMP_LT_OQ);
    const __mmask16 below = _mm512_mask_cmp_ps_mask(small, a, _mm512_setzero_ps(), _CMP_LT_OQ);
    b = _mm512_mask_mov_epi32(b, small, s->zero_bin);
    b = _mm512_mask_sub_epi32(b, below, b, _mm512_set1_epi32(1));
    unsure &= ~(unsigned)small;
    if (unsure == 0)
        return b;
    int32_t bin[16];
    _mm512_storeu_si512(bin, b);
    for (; unsure != 0; unsure &= unsure - 1) {
        const int i = __builtin_ctz(unsure);
        bin[i] = settle_in(h, v[i], bin[i], f);
    }
    return _mm512_loadu_si512(bin);
}

/* Sixteen values, of which `valid` are there. */
OQ_AVX512 static inline __attribute__((always_inline)) void step512(const oq_hist *h,
                                                                    const float *v, __mmask16 valid,
                                                                    bool sparse, state512 *s,
                                                                    oq_hist_found *f) {
    const __m512i bits = _mm512_maskz_loadu_epi32(valid, v);
    const __m512i mag = _mm512_and_si512(bits, s->magnitude);
    /* bits ^ (sign & magnitude) */
    const __m512i key =
        _mm512_ternarylogic_epi32(bits, _mm512_srai_epi32(bits, 31), s->magnitude, 0x78);
    s->least = _mm512_mask_min_epi32(s->least, valid, s->least, key);
    s->most = _mm512_mask_max_epi32(s->most, valid, s->most, key);
    s->mag = _mm512_mask_min_epi32(s->mag, valid, s->mag, mag);
    const __m512 a = _mm512_castsi512_ps(_mm512_and_si512(bits, s->keep));
    const __m512 t = _mm512_mul_ps(_mm512_sub_ps(a, s->first), s->scale);
    __m512i b = _mm512_cvttps_epi32(t);
    const __m512 r = _mm512_sub_ps(t, _mm512_cvtepi32_ps(b));
    __mmask16 sure = _mm512_cmp_ps_mask(r, s->near_lo, _CMP_GE_OQ);
    sure = _mm512_mask_cmp_ps_mask(sure, r, s->near_hi, _CMP_LE_OQ);
    sure = _mm512_mask_cmple_epu32_mask(sure, b, s->top);
    const __mmask16 unsure = (__mmask16)(valid & ~sure);
    if (sparse) {
        const __mmask16 zero = _mm512_mask_cmp_ps_mask(unsure, a, s->zero, _CMP_EQ_OQ);
        const __mmask16 end = _mm512_mask_cmp_ps_mask(unsure, a, s->last, _CMP_EQ_OQ);
        const __mmask16 listed = (__mmask16)(valid & ~(zero | end));
        s->zeros += (unsigned)__builtin_popcount(zero);
        s->ends += (unsigned)__builtin_popcount(end & (__mmask16)~zero);
        if (__builtin_expect((unsure & listed) != 0, 0))
            b = settle512(h, v, a, b, unsure & listed, s, f);
        _mm512_storeu_si512(f->bin + s->n, _mm512_maskz_compress_epi32(listed, b));
        s->n += (size_t)__builtin_popcount(listed);
    } else {
        if (__builtin_expect(unsure != 0, 0))
            b = settle512(h, v, a, b, unsure, s, f);
        _mm512_storeu_si512(f->bin + s->n, b);
        s->n += (size_t)__builtin_popcount(valid);
    }
}

OQ_AVX512 static inline __attribute__((always_inline)) void
find512(const oq_hist *h, const float *v, size_t n, bool sparse, oq_hist_found *f) {
    state512 s = {.first = _mm512_set1_ps(h->first),
                  .scale = _mm512_set1_ps(h->scale),
                  .near_lo = _mm512_set1_ps(h->unsure),
                  .near_hi = _mm512_set1_ps(1.0f - h->unsure),
                  .zero = _mm512_set1_ps(zero_of(h)),
                  .near_zero = _mm512_set1_ps(near_zero_of(h)),
                  .last = _mm512_set1_ps(h->last),
                  .zero_bin = _mm512_set1_epi32(h->zero_bin),
                  .top = _mm512_set1_epi32((int32_t)h->n_bins - 1),
                  .keep = _mm512_set1_epi32(h->abs ? INT32_MAX : -1),
                  .magnitude = _mm512_set1_epi32(INT32_MAX),
                  .least = _mm512_set1_epi32(INT32_MAX),
                  .most = _mm512_set1_epi32(INT32_MIN),
                  .mag = _mm512_set1_epi32(INT32_MAX)};
    f->outside = 0;
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        step512(h, v + i, 0xffff, sparse, &s, f);
    if (i < n)
        step512(h, v + i, (__mmask16)((1u << (n - i)) - 1), sparse, &s, f);
    f->n = s.n;
    f->zeros = s.zeros;
    f->ends = s.ends;
    f->least = _mm512_reduce_min_epi32(s.least);
    f->most = _mm512_reduce_max_epi32(s.most);
    f->least_magnitude = _mm512_reduce_min_epi32(s.mag);
}

OQ_AVX512 static void find_avx512(const oq_hist *h, const float *v, size_t n, bool sparse,
                                  oq_hist_found *f) {
    if (sparse)
        find512(h, v, n, true, f);
    else
        find512(h, v, n, false, f);
}

OQ_AVX512 static void pair_avx512(const int32_t *bin, size_t n_pairs, uint16_t *pair) {
    for (size_t i = 0; i < n_pairs; i += 8) {
        const __m512i two = _mm512_loadu_si512(bin + 2 * i); /* in each 64 bits */
        const __m512i one = _mm512_or_si512(two, _mm512_srli_epi64(two, 32 - OQ_HIST_PAIR_BITS));
        _mm_storeu_si128((__m128i *)(pair + i), _mm512_cvtepi64_epi16(one));
    }
}
#endif

const oq_hist_kernels *oq_hist_kernels_at(size_t i) {
    static const oq_hist_kernels plain = {find_plain, pair_plain};
    const oq_hist_kernels *have[3];
    size_t n = 0;
#if defined(__x86_64__)
    static const oq_hist_kernels avx2 = {find_avx2, pair_plain},
                                 avx512 = {find_avx512, pair_avx512};
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        have[n++] = &avx512;
    if (__builtin_cpu_supports("avx2"))
        have[n++] = &avx2;
#endif
    have[n++] = &plain;
    return i < n ? have[i] : NULL;
}
