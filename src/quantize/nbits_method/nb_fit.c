/*
 * nb_fit.c — see nb_fit.h. Ranges are tried for all columns of a block at once, so that the inner
 * loops run along rows of memory.
 */
#include "quantize/nbits_method/nb_fit.h"

#include "base/system/cpu.h"
#include "quantize/number/qparam.h"

#define MAGIC 6755399441055744.0 /* 1.5 * 2^52: what is added to it is rounded to an integer */

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
    for (unsigned i = 0; i <= g->steps; i++) {
        const double part = i == 0 ? 1 : 1 - (1 - g->shrink) * i / g->steps;
        float s[OQ_NB_TILE], z[OQ_NB_TILE];
        for (size_t c = 0; c < cols; c++) {
            /* A range that need not hold 0 shrinks towards its middle. */
            const double off = g->real_zero ? (1 - part) * (lo[c] + hi[c]) / 2 : 0;
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
