/*
 * passes.c — see passes.h: one body for each loop (passes_loops.h), compiled for what a machine may
 * have.
 *
 * A quantizer rounds x / scale half to even, as the runtime does: adding and taking off 1.5 x 2^23
 * rounds below 2^22, and types of up to 16 bits stay far below. NaN becomes the least number.
 */
#include "debug/measure/passes.h"

#include "base/system/cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define LANES      16
#define ROUND      12582912.0f
#define ROUND_BITS 0x4b400000 /* of that number; the integer that was added counts from there */
#define PART       32768      /* values that one task takes */
#define MAX_PARTS  64

/* Vectors of w lanes, in registers and anywhere in memory. */
#define VECTORS(w)                                                                                 \
    typedef float vf##w __attribute__((vector_size((w)*4)));                                       \
    typedef int32_t vi##w __attribute__((vector_size((w)*4)));                                     \
    typedef float vf##w##_at __attribute__((vector_size((w)*4), aligned(4), may_alias))

VECTORS(4);

/* The integer that x becomes, with the zero point subtracted. */
static float steps_integer(const oq_steps *s, float x) {
    const float q = x / s->scale, a = q > s->lo ? q : s->lo, c = a < s->hi ? a : s->hi;
    return (c + ROUND) - ROUND;
}

float oq_steps_apply(const oq_steps *s, float x) {
    return steps_integer(s, x) * s->scale;
}

/* How far from an integer the product of x and 1 / scale may be for certain; below 0: nowhere. The
 * quotient and the product differ by at most three roundings of 2^-24 each. */
static float doubt_of(const oq_steps *s) {
    const float most = fmaxf(fabsf(s->lo), fabsf(s->hi));
    return isnormal(s->scale) && isnormal(1 / s->scale) ? 0.5f - most * 0x1p-22f : -1;
}

static double total(const float *v) {
    double t = 0;
    for (int k = 0; k < LANES; k++)
        t += (double)v[k];
    return t;
}

static float largest(const float *v) {
    float m = 0;
    for (int k = 0; k < LANES; k++)
        m = v[k] > m ? v[k] : m;
    return m;
}

/* Sums of a piece: xx, yy, ee, abs_sum, abs_max. */
static void add_lanes(float lanes[][LANES], oq_sums *out) {
    out->xx += total(lanes[0]);
    out->yy += total(lanes[1]);
    out->ee += total(lanes[2]);
    out->abs_sum += total(lanes[3]);
    out->abs_max = fmax(out->abs_max, (double)largest(lanes[4]));
}

/* ---- the least and the greatest ---- */

static void begin_ends(float ends[2][LANES], const oq_pass_float *out) {
    for (int k = 0; k < LANES; k++) {
        ends[0][k] = out->lo;
        ends[1][k] = out->hi;
    }
}

static void end_ends(float ends[2][LANES], oq_pass_float *out) {
    for (int k = 0; k < LANES; k++) {
        out->lo = ends[0][k] < out->lo ? ends[0][k] : out->lo;
        out->hi = ends[1][k] > out->hi ? ends[1][k] : out->hi;
    }
}

/* True if some value so far is clipped. */
static bool is_out(float ends[2][LANES], const oq_steps *s) {
    bool out = false;
    for (int k = 0; k < LANES; k++)
        out |= ends[0][k] < s->least || ends[1][k] > s->most;
    return out;
}

/* ---- what is left after the last whole vector ---- */

static void sums_rest(const float *x, const float *y, size_t n, oq_sums *out) {
    for (size_t i = 0; i < n; i++) {
        const float d = x[i] - y[i], m = fabsf(d);
        out->xx += (double)(x[i] * x[i]);
        out->yy += (double)(y[i] * y[i]);
        out->ee += (double)(d * d);
        out->abs_sum += (double)m;
        out->abs_max = (double)m > out->abs_max ? (double)m : out->abs_max;
    }
}

static void float_rest(const float *x, const void *kept, size_t from, size_t n, const oq_steps *s,
                       oq_pass_float *out) {
    for (size_t i = from; i < n; i++) {
        const float v = x[i];
        out->lo = v < out->lo ? v : out->lo;
        out->hi = v > out->hi ? v : out->hi;
        if (s == NULL)
            continue;
        const float d = v - oq_steps_apply(s, v);
        out->local.xx += (double)(v * v);
        out->local.ee += (double)(d * d);
        out->clipped += (uint64_t)(v < s->least) + (uint64_t)(v > s->most);
        if (kept != NULL) {
            const float y = oq_steps_kept(s, kept, i);
            sums_rest(&v, &y, 1, &out->cross);
        }
    }
}

static void quantized_rest(const float *p, void *keep, size_t from, size_t n, const oq_steps *s,
                           oq_sums *out) {
    for (size_t i = from; i < n; i++) {
        const float r = steps_integer(s, p[i]), y = r * s->scale;
        if (keep != NULL && oq_steps_bytes(s) == 1)
            ((uint8_t *)keep)[i] = (uint8_t)(r - s->lo);
        else if (keep != NULL)
            ((uint16_t *)keep)[i] = (uint16_t)(r - s->lo);
        sums_rest(&p[i], &y, 1, out);
    }
}

/* ---- the loops, for each kind of machine ---- */

#define INLINE static inline __attribute__((always_inline))

/* Four lanes are a register on every machine. */
#define PICK(mask, a, b) ((vf4)(((mask) & (vi4)(a)) | (~(mask) & (vi4)(b))))

INLINE vf4 least_plain(vf4 a, vf4 b) {
    return PICK(a < b, a, b);
}
INLINE vf4 most_plain(vf4 a, vf4 b) {
    return PICK(a > b, a, b);
}
INLINE bool reaches_plain(vf4 a, vf4 b) {
    const vi4 mask = a >= b;
    uint64_t half[2];
    memcpy(half, &mask, sizeof half);
    return (half[0] | half[1]) != 0;
}
INLINE vi4 widen_bytes_plain(const uint8_t *p) {
    uint32_t all;
    memcpy(&all, p, sizeof all);
    const vi4 v = (int32_t)all - (vi4){0};
    return (v >> (vi4){0, 8, 16, 24}) & 255;
}
INLINE vi4 widen_words_plain(const uint16_t *p) {
    return (vi4){p[0], p[1], p[2], p[3]};
}
INLINE void narrow_bytes_plain(uint8_t *p, vi4 v) {
    const vi4 at = v << (vi4){0, 8, 16, 24};
    const int32_t all = at[0] | at[1] | at[2] | at[3];
    memcpy(p, &all, sizeof all);
}
INLINE void narrow_words_plain(uint16_t *p, vi4 v) {
    for (int k = 0; k < 4; k++)
        p[k] = (uint16_t)v[k];
}

#define WIDTH   4
#define FOR     /* any machine */
#define NAME(x) x##_plain
#include "debug/measure/passes_loops.h"

#if defined(__x86_64__)
VECTORS(8);
VECTORS(16);

OQ_AVX2 INLINE vf8 least_avx2(vf8 a, vf8 b) {
    return _mm256_min_ps(a, b);
}
OQ_AVX2 INLINE vf8 most_avx2(vf8 a, vf8 b) {
    return _mm256_max_ps(a, b);
}
OQ_AVX2 INLINE bool reaches_avx2(vf8 a, vf8 b) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ)) != 0;
}
OQ_AVX2 INLINE vi8 widen_bytes_avx2(const uint8_t *p) {
    return (vi8)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
OQ_AVX2 INLINE vi8 widen_words_avx2(const uint16_t *p) {
    return (vi8)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
OQ_AVX2 INLINE __m128i words_avx2(vi8 v) {
    return _mm_packus_epi32(_mm256_castsi256_si128((__m256i)v),
                            _mm256_extracti128_si256((__m256i)v, 1));
}
OQ_AVX2 INLINE void narrow_bytes_avx2(uint8_t *p, vi8 v) {
    const __m128i words = words_avx2(v);
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packus_epi16(words, words));
}
OQ_AVX2 INLINE void narrow_words_avx2(uint16_t *p, vi8 v) {
    _mm_storeu_si128((__m128i *)(void *)p, words_avx2(v));
}

#define WIDTH   8
#define FOR     OQ_AVX2
#define NAME(x) x##_avx2
#include "debug/measure/passes_loops.h"

OQ_AVX512 INLINE vf16 least_avx512(vf16 a, vf16 b) {
    return _mm512_min_ps(a, b);
}
OQ_AVX512 INLINE vf16 most_avx512(vf16 a, vf16 b) {
    return _mm512_max_ps(a, b);
}
OQ_AVX512 INLINE bool reaches_avx512(vf16 a, vf16 b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ) != 0;
}
OQ_AVX512 INLINE vi16 widen_bytes_avx512(const uint8_t *p) {
    return (vi16)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
OQ_AVX512 INLINE vi16 widen_words_avx512(const uint16_t *p) {
    return (vi16)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
OQ_AVX512 INLINE void narrow_bytes_avx512(uint8_t *p, vi16 v) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8((__m512i)v));
}
OQ_AVX512 INLINE void narrow_words_avx512(uint16_t *p, vi16 v) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16((__m512i)v));
}

#define WIDTH   16
#define FOR     OQ_AVX512
#define NAME(x) x##_avx512
#include "debug/measure/passes_loops.h"
#endif

const oq_passes *oq_passes_at(size_t i) {
    const oq_passes *have[3];
    size_t n = 0;
#if defined(__x86_64__)
    if (oq_cpu_has(OQ_CPU_AVX512))
        have[n++] = &passes_avx512;
    if (oq_cpu_has(OQ_CPU_AVX2))
        have[n++] = &passes_avx2;
#endif
    have[n++] = &passes_plain;
    return i < n ? have[i] : NULL;
}

/* ---- parts ---- */

typedef struct job job;
struct job {
    /* Runs a loop over `n` values from number `from` on. Loops that make sums alone add them to
     * `local`. */
    void (*loop)(const job *j, size_t from, size_t n, oq_pass_float *out);
    const oq_passes *v;
    const float *x, *y;
    const uint8_t *kept; /* or NULL, as `keep` */
    uint8_t *keep;
    size_t n, part;
    const oq_steps *s;
    oq_pass_want want;
    oq_pass_float *parts; /* MAX_PARTS */
};

/* A part is PART values, more where that would give more than MAX_PARTS; whole pieces. */
static size_t part_size(size_t n) {
    const size_t least = (n + MAX_PARTS - 1) / MAX_PARTS;
    const size_t size = least > PART ? least : PART;
    return (size + OQ_PASS_PIECE - 1) / OQ_PASS_PIECE * OQ_PASS_PIECE;
}

static onq_code run_part(void *ctx, size_t i, unsigned worker, onq_error *err) {
    const job *j = ctx;
    const size_t from = i * j->part, left = j->n - from;
    (void)worker;
    (void)err;
    j->parts[i] = (oq_pass_float){.lo = INFINITY, .hi = -INFINITY};
    j->loop(j, from, left < j->part ? left : j->part, &j->parts[i]);
    return ONQ_OK;
}

/* Runs the loop over all of x, in parts that are added up in order. */
static onq_code run(oq_pool *pool, const job *whole, oq_pass_float *out, onq_error *err) {
    oq_pass_float parts[MAX_PARTS];
    job j = *whole;
    j.v = oq_passes_best();
    j.parts = parts;
    j.part = part_size(j.n);
    const size_t n = (j.n + j.part - 1) / j.part;
    if (pool != NULL && n > 1)
        OQ_TRY(oq_pool_run(pool, n, run_part, &j, err));
    else
        for (size_t i = 0; i < n; i++)
            OQ_TRY(run_part(&j, i, 0, err));
    for (size_t i = 0; i < n; i++) {
        oq_sums_join(&out->local, &parts[i].local);
        oq_sums_join(&out->cross, &parts[i].cross);
        out->clipped += parts[i].clipped;
        out->lo = parts[i].lo < out->lo ? parts[i].lo : out->lo;
        out->hi = parts[i].hi > out->hi ? parts[i].hi : out->hi;
    }
    return ONQ_OK;
}

static onq_code run_sums(oq_pool *pool, const job *j, oq_sums *out, onq_error *err) {
    oq_pass_float all = {.local = *out};
    OQ_TRY(run(pool, j, &all, err));
    *out = all.local;
    return ONQ_OK;
}

static void float_loop(const job *j, size_t from, size_t n, oq_pass_float *out) {
    const uint8_t *kept = j->kept != NULL ? j->kept + from * oq_steps_bytes(j->s) : NULL;
    j->v->flt(j->x + from, kept, n, j->s, out);
}

static void quantized_loop(const job *j, size_t from, size_t n, oq_pass_float *out) {
    uint8_t *keep = j->keep != NULL ? j->keep + from * oq_steps_bytes(j->s) : NULL;
    j->v->quantized(j->x + from, keep, n, j->s, j->want, &out->local);
}

static void sums_loop(const job *j, size_t from, size_t n, oq_pass_float *out) {
    j->v->sums(j->x + from, j->y + from, n, &out->local);
}

onq_code oq_pass_float_run(oq_pool *pool, const float *x, const void *kept, size_t n,
                           const oq_steps *s, oq_pass_float *out, onq_error *err) {
    assert(s != NULL || kept == NULL);
    const job j = {.loop = float_loop, .x = x, .kept = kept, .n = n, .s = s};
    return run(pool, &j, out, err);
}

onq_code oq_pass_quantized_run(oq_pool *pool, const float *p, void *keep, size_t n,
                               const oq_steps *s, oq_pass_want want, oq_sums *out, onq_error *err) {
    const job j = {.loop = quantized_loop, .x = p, .keep = keep, .n = n, .s = s, .want = want};
    return run_sums(pool, &j, out, err);
}

onq_code oq_pass_sums_run(oq_pool *pool, const float *x, const float *y, size_t n, oq_sums *out,
                          onq_error *err) {
    const job j = {.loop = sums_loop, .x = x, .y = y, .n = n};
    return run_sums(pool, &j, out, err);
}
