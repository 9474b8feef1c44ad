/*
 * hist_find.c — bins by vector arithmetic: one body, compiled for what a machine may have, and one
 * for AVX-512, whose compression leaves out the many zeros and ends that a Relu or Clip makes.
 *
 * A bin is guessed by multiplication, from a little below the value, so that the guess is right or
 * one too low. The edge above it is computed as the edges themselves were, to the bit, and says
 * which. So no value needs to be looked at twice, however near it is to an edge.
 */
#include "calibrate/collect/hist_find.h"

#include "base/system/cpu.h"
#include "base/text/real.h"

typedef float v8f __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));
typedef uint64_t v8q __attribute__((vector_size(64)));
/* The same anywhere in memory. */
typedef float v8f_at __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t v8i_at __attribute__((vector_size(32), aligned(4), may_alias));

/* Notes the extent, and whether it is right. `numbers`: no value is NaN; `signs`: one has its sign
 * bit set. Of zeros the negative is the lesser, and where nothing is below zero
 * only they have the bit. */
static void set_extent(oq_hist_found *f, const oq_hist *h, float least, float most, float magnitude,
                       bool signs, bool numbers) {
    const float greatest = __builtin_fmaxf(__builtin_fabsf(least), __builtin_fabsf(most));
    f->inside = numbers && (h->abs ? magnitude >= h->first && greatest <= h->last
                                   : least >= h->first && most <= h->last);
    f->least = least == 0 && signs ? -0.0f : least;
    f->most = most;
    f->least_magnitude = magnitude;
    f->measured = f->inside && most != 0; /* a greatest of zero may have either sign */
}

static inline __attribute__((always_inline)) void bump(uint16_t *counters, const int32_t *bin,
                                                       size_t n) {
    for (size_t i = 0; i + 4 <= n; i += 4) {
        uint64_t a, b; /* two bins each */
        memcpy(&a, bin + i, sizeof a);
        memcpy(&b, bin + i + 2, sizeof b);
        counters[OQ_HIST_COPIES * (a & UINT32_MAX)]++;
        counters[OQ_HIST_COPIES * (a >> 32) + 1]++;
        counters[OQ_HIST_COPIES * (b & UINT32_MAX) + 2]++;
        counters[OQ_HIST_COPIES * (b >> 32) + 3]++;
    }
    for (size_t i = n - n % 4; i < n; i++)
        counters[OQ_HIST_COPIES * (size_t)bin[i]]++;
}

/* ---- any machine ---- */

#define LANES 8
#define EVEN  UINT64_C(0x0000ffff0000ffff)
/* b where the mask is set, else a */
#define PICK(mask, b, a) (((mask) & (v8i)(b)) | (~(mask) & (v8i)(a)))

/* Goes over the values, with the bins of up to eight of them in b and what is done with them in
 * DO(b, i, n). */
#define FIND(DO)                                                                                   \
    do {                                                                                           \
        const float first = h->first, scale = h->scale, bias = h->bias, step = h->step;            \
        const float top = (float)(h->n_bins - 1);                                                  \
        const v8i keep = (v8i){0} + (h->abs ? INT32_MAX : -1);                                     \
        v8i odd = {0}, signs = {0}, mag = (v8i){0} + INT32_MAX;                                    \
        v8f least = (v8f){0} + __builtin_inff(), most = -least;                                    \
        for (size_t i = 0; i < n; i += LANES) {                                                    \
            const size_t m = n - i < LANES ? n - i : LANES;                                        \
            float rest[LANES];                                                                     \
            int32_t b[LANES];                                                                      \
            v8f x;                                                                                 \
            if (m == LANES) {                                                                      \
                x = *(const v8f_at *)(v + i);                                                      \
            } else { /* the last value again and again */                                          \
                for (size_t k = 0; k < LANES; k++)                                                 \
                    rest[k] = v[i + k < n ? i + k : n - 1];                                        \
                x = *(const v8f_at *)rest;                                                         \
            }                                                                                      \
            const v8i bits = (v8i)x, size = bits & INT32_MAX;                                      \
            least = (v8f)PICK(x < least, x, least);                                                \
            most = (v8f)PICK(x > most, x, most);                                                   \
            mag = PICK(size < mag, size, mag);                                                     \
            signs |= bits;                                                                         \
            odd |= x != x;                                                                         \
            const v8f a = (v8f)(bits & keep);                                                      \
            v8f t = a * scale + bias;                                                              \
            t = (v8f)((t > 0) & (v8i)t); /* of NaN: 0 */                                           \
            t = (v8f)PICK(t < top, t, (v8f){0} + top);                                             \
            const v8i guess = __builtin_convertvector(t, v8i);                                     \
            const v8f above = __builtin_convertvector(guess, v8f) + 1.0f;                          \
            const v8i higher = (above <= top) & (a >= above * step + first);                       \
            *(v8i_at *)b = guess - higher; /* true is -1 */                                        \
            DO(b, i, m);                                                                           \
        }                                                                                          \
        float lo = least[0], hi = most[0];                                                         \
        int32_t none = odd[0], sign = signs[0], small = mag[0];                                    \
        for (int k = 1; k < LANES; k++) {                                                          \
            lo = least[k] < lo ? least[k] : lo;                                                    \
            hi = most[k] > hi ? most[k] : hi;                                                      \
            small = mag[k] < small ? mag[k] : small;                                               \
            none |= odd[k];                                                                        \
            sign |= signs[k];                                                                      \
        }                                                                                          \
        set_extent(f, h, lo, hi, oq_f32_of_bits((uint32_t)small), sign < 0, none == 0);            \
    } while (0)

#define DO_COUNT(b, i, m) bump(counters, b, m)
#define DO_LIST(b, i, m)  memcpy(f->bin + (i), b, sizeof b)

/* Takes values outside the range out of the list. */
static void leave_out(const oq_hist *h, const float *v, oq_hist_found *f) {
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++) {
        const float a = h->abs ? __builtin_fabsf(v[i]) : v[i];
        f->bin[n] = f->bin[i];
        n += a >= h->first && a <= h->last;
    }
    f->n = n;
}

/* Eight bins at a time; the four counters of each are one word of 64 bits. */
#define ADD_UP                                                                                     \
    do {                                                                                           \
        size_t i = 0;                                                                              \
        for (; i + LANES <= n_bins; i += LANES) {                                                  \
            v8q x, c;                                                                              \
            memcpy(&x, counters + OQ_HIST_COPIES * i, sizeof x);                                   \
            memcpy(&c, count + i, sizeof c);                                                       \
            x = (x & EVEN) + (x >> 16 & EVEN);                                                     \
            c += (x & UINT32_MAX) + (x >> 32);                                                     \
            memcpy(count + i, &c, sizeof c);                                                       \
        }                                                                                          \
        for (; i < n_bins; i++)                                                                    \
            for (size_t k = 0; k < OQ_HIST_COPIES; k++)                                            \
                count[i] += counters[OQ_HIST_COPIES * i + k];                                      \
    } while (0)

#define KERNELS(name, attribute)                                                                   \
    attribute static void count_##name(const oq_hist *h, const float *v, size_t n,                 \
                                       uint16_t *counters, oq_hist_found *f) {                     \
        FIND(DO_COUNT);                                                                            \
    }                                                                                              \
    attribute static void list_##name(const oq_hist *h, const float *v, size_t n,                  \
                                      oq_hist_found *f) {                                          \
        FIND(DO_LIST);                                                                             \
        f->n = n;                                                                                  \
        f->zeros = f->ends = 0;                                                                    \
        if (!f->inside)                                                                            \
            leave_out(h, v, f);                                                                    \
    }                                                                                              \
    attribute static void add_up_##name(const uint16_t *counters, size_t n_bins,                   \
                                        uint64_t *count) {                                         \
        ADD_UP;                                                                                    \
    }

KERNELS(plain, )

#if defined(__x86_64__)
#include <immintrin.h>

KERNELS(avx2, OQ_AVX2)

/* Bins are found in steps and then counted, so that counting need not wait for an address. */
#define STEP 128
/* Bytes. A large tensor lies beyond the second-level cache, and the machine looks ahead no further
 * than the end of a page. */
#define AHEAD 2048

#define INLINE512 OQ_AVX512 static inline __attribute__((always_inline))

/* What the loops need to know of the histogram, and what they found so far. */
typedef struct state512 {
    __m512 first, last, scale, bias, step, one;
    __m512i top, keep, magnitude, signs, mag;
    __m512 least, most;
    __mmask16 odd; /* lanes that had NaN */
    size_t n;      /* of a list */
    unsigned zeros, ends;
} state512;

INLINE512 state512 begin512(const oq_hist *h) {
    return (state512){.first = _mm512_set1_ps(h->first),
                      .last = _mm512_set1_ps(h->last),
                      .scale = _mm512_set1_ps(h->scale),
                      .bias = _mm512_set1_ps(h->bias),
                      .step = _mm512_set1_ps(h->step),
                      .one = _mm512_set1_ps(1),
                      .top = _mm512_set1_epi32((int32_t)h->n_bins - 1),
                      .keep = _mm512_set1_epi32(h->abs ? INT32_MAX : -1),
                      .magnitude = _mm512_set1_epi32(INT32_MAX),
                      .mag = _mm512_set1_epi32(INT32_MAX),
                      .least = _mm512_set1_ps(__builtin_inff()),
                      .most = _mm512_set1_ps(-__builtin_inff())};
}

INLINE512 void end512(const state512 *s, const oq_hist *h, oq_hist_found *f) {
    const uint32_t nearest = (uint32_t)_mm512_reduce_min_epi32(s->mag);
    set_extent(f, h, _mm512_reduce_min_ps(s->least), _mm512_reduce_max_ps(s->most),
               oq_f32_of_bits(nearest), _mm512_movepi32_mask(s->signs) != 0, s->odd == 0);
}

/* Takes sixteen values in, and gives them back as they are counted. */
INLINE512 __m512 measure512(__m512 x, state512 *s) {
    const __m512i bits = _mm512_castps_si512(x);
    s->least = _mm512_min_ps(x, s->least); /* of NaN: what was there */
    s->most = _mm512_max_ps(x, s->most);
    s->mag = _mm512_min_epi32(s->mag, _mm512_and_si512(bits, s->magnitude));
    s->signs = _mm512_or_si512(s->signs, bits);
    s->odd |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_castsi512_ps(_mm512_and_si512(bits, s->keep));
}

INLINE512 __m512i bins512(__m512 a, const state512 *s) {
    const __m512 t = _mm512_max_ps(_mm512_fmadd_ps(a, s->scale, s->bias), _mm512_setzero_ps());
    const __m512 guess = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    const __m512 above = _mm512_add_ps(guess, s->one);
    const __m512 edge = _mm512_add_ps(_mm512_mul_ps(above, s->step), s->first);
    const __mmask16 higher = _mm512_cmp_ps_mask(a, edge, _CMP_GE_OQ);
    /* What does not fit an integer becomes the greatest, without sign. */
    return _mm512_min_epu32(_mm512_cvttps_epi32(_mm512_mask_mov_ps(guess, higher, above)), s->top);
}

/* The values from i on; the last one again in the lanes that are left. */
INLINE512 __m512 rest512(const float *v, size_t i, size_t n) {
    const __mmask16 valid = (__mmask16)((1u << (n - i)) - 1);
    return _mm512_mask_loadu_ps(_mm512_set1_ps(v[n - 1]), valid, v + i);
}

OQ_AVX512 static void count_avx512(const oq_hist *h, const float *v, size_t n, uint16_t *counters,
                                   oq_hist_found *f) {
    state512 s = begin512(h);
    int32_t bin[STEP + 16];
    for (size_t at = 0; at < n; at += STEP) {
        const size_t end = n - at < STEP ? n : at + STEP;
        size_t i = at;
        for (; i + 16 <= end; i += 16) {
            _mm_prefetch((const char *)(v + i) + AHEAD, _MM_HINT_T0);
            _mm512_storeu_si512(bin + (i - at),
                                bins512(measure512(_mm512_loadu_ps(v + i), &s), &s));
        }
        if (i < end)
            _mm512_storeu_si512(bin + (i - at), bins512(measure512(rest512(v, i, n), &s), &s));
        bump(counters, bin, end - at);
    }
    end512(&s, h, f);
}

/* Sixteen values, of which `valid` are meant; zeros, ends and what lies outside are not listed. */
INLINE512 void list512(__m512 x, __mmask16 valid, state512 *s, oq_hist_found *f) {
    const __m512 a = measure512(x, s);
    __mmask16 in = _mm512_mask_cmp_ps_mask(valid, a, s->first, _CMP_GE_OQ);
    in = _mm512_mask_cmp_ps_mask(in, a, s->last, _CMP_LE_OQ);
    const __mmask16 zero = _mm512_mask_cmp_ps_mask(in, a, _mm512_setzero_ps(), _CMP_EQ_OQ);
    const __mmask16 end = _mm512_mask_cmp_ps_mask(in, a, s->last, _CMP_EQ_OQ);
    const __mmask16 listed = (__mmask16)(in & ~(zero | end));
    s->zeros += (unsigned)__builtin_popcount(zero);
    s->ends += (unsigned)__builtin_popcount(end & (__mmask16)~zero);
    _mm512_storeu_si512(f->bin + s->n, _mm512_maskz_compress_epi32(listed, bins512(a, s)));
    s->n += (size_t)__builtin_popcount(listed);
}

OQ_AVX512 static void list_avx512(const oq_hist *h, const float *v, size_t n, oq_hist_found *f) {
    state512 s = begin512(h);
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        list512(_mm512_loadu_ps(v + i), 0xffff, &s, f);
    if (i < n)
        list512(rest512(v, i, n), (__mmask16)((1u << (n - i)) - 1), &s, f);
    f->n = s.n;
    f->zeros = s.zeros;
    f->ends = s.ends;
    end512(&s, h, f);
}
#endif

const oq_hist_kernels *oq_hist_kernels_at(size_t i) {
    static const oq_hist_kernels plain = {count_plain, list_plain, add_up_plain};
    const oq_hist_kernels *have[3];
    size_t n = 0;
#if defined(__x86_64__)
    static const oq_hist_kernels avx2 = {count_avx2, list_avx2, add_up_avx2},
                                 avx512 = {count_avx512, list_avx512, add_up_avx2};
    if (oq_cpu_has(OQ_CPU_AVX512))
        have[n++] = &avx512;
    if (oq_cpu_has(OQ_CPU_AVX2))
        have[n++] = &avx2;
#endif
    have[n++] = &plain;
    return i < n ? have[i] : NULL;
}
