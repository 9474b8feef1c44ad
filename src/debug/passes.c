/*
 * passes.c — see passes.h: one body for each loop, compiled for what a machine may have.
 *
 * A quantizer rounds x / scale half to even, as the runtime does: adding and taking off 1.5 x 2^23
 * rounds below 2^22, and types of up to 16 bits stay far below. NaN becomes the least number.
 */
#include "debug/passes.h"

#include <math.h>

#define LANES     16
#define ROUND     12582912.0f
#define PART      32768 /* values that one task takes */
#define MAX_PARTS 64

typedef float vf __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t vi __attribute__((vector_size(LANES * sizeof(int32_t))));
/* The same anywhere in memory. */
typedef float vf_at __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef int32_t vi_at __attribute__((vector_size(LANES * sizeof(int32_t)), aligned(4), may_alias));

/* Where the mask is set a, else b. */
#define PICK(mask, a, b) ((vf)(((mask) & (vi)(a)) | (~(mask) & (vi)(b))))
#define LOAD(to, from)   ((to) = *(const vf_at *)(from))
#define STORE(to, v)     (*(vf_at *)(to) = (v))

float oq_steps_apply(const oq_steps *s, float x) {
    const float q = x / s->scale, a = q > s->lo ? q : s->lo, c = a < s->hi ? a : s->hi;
    return ((c + ROUND) - ROUND) * s->scale;
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

#define ADD_TOTAL(to, lanes)                                                                       \
    do {                                                                                           \
        STORE(sums, lanes);                                                                        \
        (to) += total(sums);                                                                       \
    } while (0)

/* ---- what is left after the last whole vector ---- */

static void truth_rest(const float *x, float *copy, size_t n, const oq_steps *s,
                       oq_pass_truth *out) {
    for (size_t i = 0; i < n; i++) {
        const float v = x[i];
        if (copy != NULL)
            copy[i] = v;
        out->lo = v < out->lo ? v : out->lo;
        out->hi = v > out->hi ? v : out->hi;
        if (s == NULL)
            continue;
        const float d = v - oq_steps_apply(s, v);
        out->local.xx += (double)(v * v);
        out->local.ee += (double)(d * d);
        out->clipped += (uint64_t)(v < s->least) + (uint64_t)(v > s->most);
    }
}

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

static void pair_rest(const float *x, const float *p, size_t n, const oq_steps *s,
                      oq_pass_pair *out) {
    for (size_t i = 0; i < n; i++) {
        const float y = oq_steps_apply(s, p[i]), d = p[i] - y;
        out->qdq.xx += (double)(p[i] * p[i]);
        out->qdq.ee += (double)(d * d);
        sums_rest(&x[i], &y, 1, &out->cross);
    }
}

/* ---- the loops ---- */

#define QUANTIZE(y, x)                                                                             \
    do {                                                                                           \
        const vf q_ = (x) / scale;                                                                 \
        const vf a_ = PICK(q_ > lo, q_, low);                                                      \
        const vf c_ = PICK(a_ < hi, a_, high);                                                     \
        (y) = ((c_ + ROUND) - ROUND) * scale;                                                      \
    } while (0)

#define PASSES(suffix, attribute)                                                                  \
    attribute static void truth_##suffix(const float *x, float *copy, size_t n, const oq_steps *s, \
                                         oq_pass_truth *out) {                                     \
        const oq_steps none = {1, 0, 0, 0, 0}, *t = s != NULL ? s : &none;                         \
        const float scale = t->scale, lo = t->lo, hi = t->hi, least = t->least, most = t->most;    \
        const vf low = lo - (vf){0}, high = hi - (vf){0};                                          \
        vf down = out->lo - (vf){0}, up = out->hi - (vf){0};                                       \
        float sums[LANES];                                                                         \
        int32_t counts[LANES];                                                                     \
        const size_t whole = n / LANES * LANES;                                                    \
        for (size_t i = 0; i < whole;) {                                                           \
            const size_t to = whole - i < OQ_PASS_PIECE ? whole : i + OQ_PASS_PIECE;               \
            vf xx = {0}, ee = {0};                                                                 \
            vi out_of = {0};                                                                       \
            for (; i < to; i += LANES) {                                                           \
                vf v, y;                                                                           \
                LOAD(v, x + i);                                                                    \
                if (copy != NULL)                                                                  \
                    STORE(copy + i, v);                                                            \
                down = PICK(v < down, v, down);                                                    \
                up = PICK(v > up, v, up);                                                          \
                if (s == NULL)                                                                     \
                    continue;                                                                      \
                QUANTIZE(y, v);                                                                    \
                const vf d = v - y;                                                                \
                xx += v * v;                                                                       \
                ee += d * d;                                                                       \
                out_of += (v < least) + (v > most);                                                \
            }                                                                                      \
            ADD_TOTAL(out->local.xx, xx);                                                          \
            ADD_TOTAL(out->local.ee, ee);                                                          \
            *(vi_at *)counts = out_of;                                                             \
            for (int k = 0; k < LANES; k++)                                                        \
                out->clipped += (uint64_t)(-counts[k]);                                            \
        }                                                                                          \
        STORE(sums, down);                                                                         \
        for (int k = 0; k < LANES; k++)                                                            \
            out->lo = sums[k] < out->lo ? sums[k] : out->lo;                                       \
        STORE(sums, up);                                                                           \
        for (int k = 0; k < LANES; k++)                                                            \
            out->hi = sums[k] > out->hi ? sums[k] : out->hi;                                       \
        truth_rest(x + whole, copy != NULL ? copy + whole : NULL, n - whole, s, out);              \
        out->local.n += n;                                                                         \
    }                                                                                              \
                                                                                                   \
    attribute static void pair_##suffix(const float *x, const float *p, size_t n,                  \
                                        const oq_steps *s, oq_pass_pair *out) {                    \
        const float scale = s->scale, lo = s->lo, hi = s->hi;                                      \
        const vf low = lo - (vf){0}, high = hi - (vf){0};                                          \
        const vi magnitude = INT32_MAX - (vi){0};                                                  \
        float sums[LANES];                                                                         \
        const size_t whole = n / LANES * LANES;                                                    \
        for (size_t i = 0; i < whole;) {                                                           \
            const size_t to = whole - i < OQ_PASS_PIECE ? whole : i + OQ_PASS_PIECE;               \
            vf pp = {0}, pe = {0}, xx = {0}, yy = {0}, ee = {0}, ab = {0}, top = {0};              \
            for (; i < to; i += LANES) {                                                           \
                vf v, b, y;                                                                        \
                LOAD(v, x + i);                                                                    \
                LOAD(b, p + i);                                                                    \
                QUANTIZE(y, b);                                                                    \
                const vf e = b - y, d = v - y, m = (vf)((vi)d & magnitude);                        \
                pp += b * b;                                                                       \
                pe += e * e;                                                                       \
                xx += v * v;                                                                       \
                yy += y * y;                                                                       \
                ee += d * d;                                                                       \
                ab += m;                                                                           \
                top = PICK(m > top, m, top);                                                       \
            }                                                                                      \
            ADD_TOTAL(out->qdq.xx, pp);                                                            \
            ADD_TOTAL(out->qdq.ee, pe);                                                            \
            ADD_TOTAL(out->cross.xx, xx);                                                          \
            ADD_TOTAL(out->cross.yy, yy);                                                          \
            ADD_TOTAL(out->cross.ee, ee);                                                          \
            ADD_TOTAL(out->cross.abs_sum, ab);                                                     \
            STORE(sums, top);                                                                      \
            out->cross.abs_max = fmax(out->cross.abs_max, (double)largest(sums));                  \
        }                                                                                          \
        pair_rest(x + whole, p + whole, n - whole, s, out);                                        \
        out->qdq.n += n;                                                                           \
        out->cross.n += n;                                                                         \
    }                                                                                              \
                                                                                                   \
    attribute static void sums_##suffix(const float *x, const float *y, size_t n, oq_sums *out) {  \
        const vi magnitude = INT32_MAX - (vi){0};                                                  \
        float sums[LANES];                                                                         \
        const size_t whole = n / LANES * LANES;                                                    \
        for (size_t i = 0; i < whole;) {                                                           \
            const size_t to = whole - i < OQ_PASS_PIECE ? whole : i + OQ_PASS_PIECE;               \
            vf xx = {0}, yy = {0}, ee = {0}, ab = {0}, top = {0};                                  \
            for (; i < to; i += LANES) {                                                           \
                vf v, b;                                                                           \
                LOAD(v, x + i);                                                                    \
                LOAD(b, y + i);                                                                    \
                const vf d = v - b, m = (vf)((vi)d & magnitude);                                   \
                xx += v * v;                                                                       \
                yy += b * b;                                                                       \
                ee += d * d;                                                                       \
                ab += m;                                                                           \
                top = PICK(m > top, m, top);                                                       \
            }                                                                                      \
            ADD_TOTAL(out->xx, xx);                                                                \
            ADD_TOTAL(out->yy, yy);                                                                \
            ADD_TOTAL(out->ee, ee);                                                                \
            ADD_TOTAL(out->abs_sum, ab);                                                           \
            STORE(sums, top);                                                                      \
            out->abs_max = fmax(out->abs_max, (double)largest(sums));                              \
        }                                                                                          \
        sums_rest(x + whole, y + whole, n - whole, out);                                           \
        out->n += n;                                                                               \
    }                                                                                              \
                                                                                                   \
    static const oq_passes passes_##suffix = {truth_##suffix, pair_##suffix, sums_##suffix};

PASSES(plain, )

#if defined(__x86_64__)
PASSES(avx2, OQ_AVX2)
PASSES(avx512, OQ_AVX512)
#endif

const oq_passes *oq_passes_at(size_t i) {
    const oq_passes *have[3];
    size_t n = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        have[n++] = &passes_avx512;
    if (__builtin_cpu_supports("avx2"))
        have[n++] = &passes_avx2;
#endif
    have[n++] = &passes_plain;
    return i < n ? have[i] : NULL;
}

/* ---- parts ---- */

typedef struct job {
    const oq_passes *v;
    const float *x, *p;
    float *copy;
    size_t n, part;
    const oq_steps *s;
    oq_pass_truth *truth; /* MAX_PARTS of what is wanted */
    oq_pass_pair *pair;
    oq_sums *sums;
} job;

/* A part is PART values, more where that would give more than MAX_PARTS; whole pieces. */
static size_t part_size(size_t n) {
    const size_t least = (n + MAX_PARTS - 1) / MAX_PARTS;
    const size_t size = least > PART ? least : PART;
    return (size + OQ_PASS_PIECE - 1) / OQ_PASS_PIECE * OQ_PASS_PIECE;
}

static size_t part_count(const job *j) {
    return (j->n + j->part - 1) / j->part;
}

static onq_code run_parts(oq_pool *pool, job *j, oq_task fn, onq_error *err) {
    const size_t n = part_count(j);
    if (pool != NULL && n > 1)
        return oq_pool_run(pool, n, fn, j, err);
    for (size_t i = 0; i < n; i++)
        OQ_TRY(fn(j, i, 0, err));
    return ONQ_OK;
}

static size_t here(const job *j, size_t i) {
    return j->n - i * j->part < j->part ? j->n - i * j->part : j->part;
}

static onq_code truth_part(void *ctx, size_t i, unsigned worker, onq_error *err) {
    job *j = ctx;
    const size_t from = i * j->part;
    (void)worker;
    (void)err;
    j->truth[i] = (oq_pass_truth){.lo = INFINITY, .hi = -INFINITY};
    j->v->truth(j->x + from, j->copy != NULL ? j->copy + from : NULL, here(j, i), j->s,
                &j->truth[i]);
    return ONQ_OK;
}

onq_code oq_pass_truth_run(oq_pool *pool, const float *x, float *copy, size_t n, const oq_steps *s,
                           oq_pass_truth *out, onq_error *err) {
    oq_pass_truth made[MAX_PARTS];
    job j = {.v = oq_passes_best(),
             .x = x,
             .copy = copy,
             .n = n,
             .part = part_size(n),
             .s = s,
             .truth = made};
    OQ_TRY(run_parts(pool, &j, truth_part, err));
    for (size_t i = 0; i < part_count(&j); i++) {
        oq_sums_join(&out->local, &made[i].local);
        out->clipped += made[i].clipped;
        out->lo = made[i].lo < out->lo ? made[i].lo : out->lo;
        out->hi = made[i].hi > out->hi ? made[i].hi : out->hi;
    }
    return ONQ_OK;
}

static onq_code pair_part(void *ctx, size_t i, unsigned worker, onq_error *err) {
    job *j = ctx;
    const size_t from = i * j->part;
    (void)worker;
    (void)err;
    j->pair[i] = (oq_pass_pair){0};
    j->v->pair(j->x + from, j->p + from, here(j, i), j->s, &j->pair[i]);
    return ONQ_OK;
}

onq_code oq_pass_pair_run(oq_pool *pool, const float *x, const float *p, size_t n,
                          const oq_steps *s, oq_pass_pair *out, onq_error *err) {
    oq_pass_pair made[MAX_PARTS];
    job j = {
        .v = oq_passes_best(), .x = x, .p = p, .n = n, .part = part_size(n), .s = s, .pair = made};
    OQ_TRY(run_parts(pool, &j, pair_part, err));
    for (size_t i = 0; i < part_count(&j); i++) {
        oq_sums_join(&out->qdq, &made[i].qdq);
        oq_sums_join(&out->cross, &made[i].cross);
    }
    return ONQ_OK;
}

static onq_code sums_part(void *ctx, size_t i, unsigned worker, onq_error *err) {
    job *j = ctx;
    const size_t from = i * j->part;
    (void)worker;
    (void)err;
    j->sums[i] = (oq_sums){0};
    j->v->sums(j->x + from, j->p + from, here(j, i), &j->sums[i]);
    return ONQ_OK;
}

onq_code oq_pass_sums_run(oq_pool *pool, const float *x, const float *y, size_t n, oq_sums *out,
                          onq_error *err) {
    oq_sums made[MAX_PARTS];
    job j = {.v = oq_passes_best(), .x = x, .p = y, .n = n, .part = part_size(n), .sums = made};
    OQ_TRY(run_parts(pool, &j, sums_part, err));
    for (size_t i = 0; i < part_count(&j); i++)
        oq_sums_join(out, &made[i]);
    return ONQ_OK;
}
