/*
 * nb_fit.c — see nb_fit.h. Ranges are tried for all columns of a block at once, so that the inner
 * loops run along rows of memory.
 */
#include "quantize/nbits_method/nb_fit.h"

#include "base/system/cpu.h"
#include "quantize/number/qparam.h"

#include <math.h>

#define REFITS 4                  /* times that scales follow integers, and integers scales */
#define MAGIC  6755399441055744.0 /* 1.5 * 2^52: what is added to it is rounded to an integer */

/* A range for each column, and what it loses. */
typedef struct trial {
    double factor[OQ_NB_TILE], scale[OQ_NB_TILE], zero[OQ_NB_TILE], error[OQ_NB_TILE];
    double most;
} trial;

/* The end of a symmetric range that is farther from zero gets the integer 0, which has no opposite:
 * the scale has its sign turned where that is needed, as MLAS does it. */
static void params(const oq_nb_grid *g, double lo, double hi, float *scale, float *zero) {
    const double most = (double)((1u << g->bits) - 1), half = (double)(1u << (g->bits - 1));
    const double exact = g->centred     ? fmax(hi, -lo) / (most / 2)
                         : g->symmetric ? (hi > -lo ? -hi : -lo) / half
                                        : (hi - lo) / most;
    *scale = oq_real_round(g->real, exact);
    *zero = (float)(g->centred ? most / 2 : half);
    if (g->symmetric || g->centred || !(*scale > 0.0f))
        return;
    const double z = -lo / (double)*scale;
    *zero = (float)(g->real_zero ? z : fmin(fmax(rint(z), 0), most));
}

OQ_NB_INLINE void measure_body(trial *t, const double *w, size_t rows, size_t cols, size_t stride,
                               const double *power) {
    for (size_t c = 0; c < cols; c++)
        t->error[c] = 0;
    for (size_t r = 0; r < rows; r++) {
        const double *x = w + r * stride, p = power != NULL ? power[r] : 1;
#pragma omp simd
        for (size_t c = 0; c < cols; c++) {
            double q = (x[c] * t->factor[c] + t->zero[c] + MAGIC) - MAGIC;
            q = q > 0 ? q : 0;
            q = q < t->most ? q : t->most;
            const double lost = (q - t->zero[c]) * t->scale[c] - x[c];
            t->error[c] += p * lost * lost;
        }
    }
}

static void measure_plain(trial *t, const double *w, size_t rows, size_t cols, size_t stride,
                          const double *power) {
    measure_body(t, w, rows, cols, stride, power);
}

#if defined(__x86_64__)
OQ_AVX2 static void measure_avx2(trial *t, const double *w, size_t rows, size_t cols, size_t stride,
                                 const double *power) {
    measure_body(t, w, rows, cols, stride, power);
}
#define MEASURE (oq_cpu_has(OQ_CPU_AVX2) ? measure_avx2 : measure_plain)
#else
#define MEASURE measure_plain
#endif

static void ranges(const oq_nb_grid *g, const double *w, size_t rows, size_t cols, size_t stride,
                   double *lo, double *hi) {
    for (size_t c = 0; c < cols; c++)
        lo[c] = hi[c] = g->real_zero ? w[c] : 0;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            const double x = w[r * stride + c];
            lo[c] = x < lo[c] ? x : lo[c];
            hi[c] = x > hi[c] ? x : hi[c];
        }
}

double oq_nb_fit(const oq_nb_grid *g, const double *w, size_t rows, size_t cols, size_t stride,
                 const double *power, float *scale, float *zero) {
    trial t = {.most = (double)((1u << g->bits) - 1)};
    double lo[OQ_NB_TILE], hi[OQ_NB_TILE], least[OQ_NB_TILE], sum = 0;
    assert(cols <= OQ_NB_TILE);
    ranges(g, w, rows, cols, stride, lo, hi);
    assert((double)g->spare < t.most);
    for (unsigned i = 0; i <= g->steps + g->spare; i++) {
        const bool grows = i > g->steps;
        const double part = i == 0  ? 1
                            : grows ? t.most / (t.most - (i - g->steps))
                                    : 1 - (1 - g->shrink) * i / g->steps;
        float s[OQ_NB_TILE], z[OQ_NB_TILE];
        for (size_t c = 0; c < cols; c++) {
            /* A range that need not hold 0 shrinks towards its middle. */
            const double off = grows          ? (1 - part) * lo[c]
                               : g->real_zero ? (1 - part) * (lo[c] + hi[c]) / 2
                                              : 0;
            params(g, part * lo[c] + off, part * hi[c] + off, &s[c], &z[c]);
            t.scale[c] = (double)s[c];
            t.zero[c] = (double)z[c];
            t.factor[c] = s[c] != 0.0f ? 1 / t.scale[c] : 0;
        }
        MEASURE(&t, w, rows, cols, stride, power);
        for (size_t c = 0; c < cols; c++)
            if (i == 0 || t.error[c] < least[c]) {
                least[c] = t.error[c];
                scale[c] = s[c];
                zero[c] = z[c];
            }
    }
    for (size_t c = 0; c < cols; c++)
        sum += least[c];
    return sum;
}

/* ---- scales for the integers that there are ---- */

/* Of each column of a block, sums of powers, and of powers times integers less the zero point (q),
 * weights (w) and their products, with these parameters. */
typedef struct moments {
    double scale[OQ_NB_TILE], zero[OQ_NB_TILE], factor[OQ_NB_TILE];
    double one, q[OQ_NB_TILE], qq[OQ_NB_TILE], w[OQ_NB_TILE], qw[OQ_NB_TILE], error[OQ_NB_TILE];
    double most;
} moments;

OQ_NB_INLINE void sum_body(moments *m, const double *w, size_t rows, size_t cols, size_t stride,
                           const double *power) {
    m->one = 0;
    for (size_t c = 0; c < cols; c++)
        m->q[c] = m->qq[c] = m->w[c] = m->qw[c] = m->error[c] = 0;
    for (size_t r = 0; r < rows; r++) {
        const double *x = w + r * stride, p = power != NULL ? power[r] : 1;
        m->one += p;
#pragma omp simd
        for (size_t c = 0; c < cols; c++) {
            double q = (x[c] * m->factor[c] + m->zero[c] + MAGIC) - MAGIC;
            q = q > 0 ? q : 0;
            q = q < m->most ? q : m->most;
            q -= m->zero[c];
            const double lost = q * m->scale[c] - x[c];
            m->q[c] += p * q;
            m->qq[c] += p * q * q;
            m->w[c] += p * x[c];
            m->qw[c] += p * q * x[c];
            m->error[c] += p * lost * lost;
        }
    }
}

static void sum_plain(moments *m, const double *w, size_t rows, size_t cols, size_t stride,
                      const double *power) {
    sum_body(m, w, rows, cols, stride, power);
}

#if defined(__x86_64__)
OQ_AVX2 static void sum_avx2(moments *m, const double *w, size_t rows, size_t cols, size_t stride,
                             const double *power) {
    sum_body(m, w, rows, cols, stride, power);
}
#define SUM (oq_cpu_has(OQ_CPU_AVX2) ? sum_avx2 : sum_plain)
#else
#define SUM sum_plain
#endif

static void set_params(moments *m, size_t c, float scale, float zero) {
    m->scale[c] = (double)scale;
    m->zero[c] = (double)zero;
    m->factor[c] = scale != 0.0f ? 1 / m->scale[c] : 0;
}

/* The least squares of scale x (q - zero) - w; as they are where these have no sensible answer. */
static void solve(const oq_nb_grid *g, const moments *m, size_t c, float *scale, float *zero) {
    double s = m->qw[c] / m->qq[c], move = 0; /* of the zero point, in steps */
    if (g->real_zero) {
        const double det = m->qq[c] * m->one - m->q[c] * m->q[c];
        s = (m->qw[c] * m->one - m->q[c] * m->w[c]) / det;
        move = (m->qq[c] * m->w[c] - m->q[c] * m->qw[c]) / det / s;
        if (!(det > 1e-9 * m->qq[c] * m->one))
            return;
    }
    const float stored = oq_real_round(g->real, s);
    const double part = (double)stored / m->scale[c];
    if (!(part > 0.5 && part < 2) || !isfinite(move))
        return;
    *scale = stored;
    *zero = (float)(m->zero[c] - move);
}

void oq_nb_refit(const oq_nb_grid *g, const double *w, size_t rows, size_t cols, size_t stride,
                 const double *power, float *scale, float *zero) {
    moments best = {.most = (double)((1u << g->bits) - 1)}, now = {.most = best.most};
    bool any = true;
    for (size_t c = 0; c < cols; c++)
        set_params(&best, c, scale[c], zero[c]);
    SUM(&best, w, rows, cols, stride, power);
    for (unsigned i = 0; i < REFITS && any; i++) {
        float s[OQ_NB_TILE], z[OQ_NB_TILE];
        any = false;
        for (size_t c = 0; c < cols; c++) {
            s[c] = scale[c];
            z[c] = zero[c];
            solve(g, &best, c, &s[c], &z[c]);
            set_params(&now, c, s[c], z[c]);
        }
        SUM(&now, w, rows, cols, stride, power);
        for (size_t c = 0; c < cols; c++) {
            if (!(now.error[c] < best.error[c]))
                continue;
            any = true;
            scale[c] = s[c];
            zero[c] = z[c];
        }
        best = now;
        for (size_t c = 0; c < cols; c++) /* a column that became worse stays as it was */
            if (s[c] != scale[c] || z[c] != zero[c])
                best.error[c] = 0;
    }
}
