/*
 * sums.c — see sums.h. Eight lanes keep the compiler free to vectorise without changing the order of sums
 * from machine to machine.
 */
#include "debug/sums.h"

#include <float.h>
#include <math.h>

#define LANES 8

void oq_sums_add(oq_sums *s, const float *x, const float *y, size_t n) {
    double xx[LANES] = {0}, yy[LANES] = {0}, xy[LANES] = {0}, ee[LANES] = {0}, ab[LANES] = {0};
    float most[LANES] = {0};
    const size_t whole = n - n % LANES;
    for (size_t i = 0; i < whole; i += LANES) {
#pragma omp simd
        for (size_t k = 0; k < LANES; k++) {
            const float d = x[i + k] - y[i + k];
            const double a = (double)x[i + k], b = (double)y[i + k], e = (double)d;
            const float m = d < 0 ? -d : d;
            xx[k] += a * a;
            yy[k] += b * b;
            xy[k] += a * b;
            ee[k] += e * e;
            ab[k] += (double)m;
            most[k] = m > most[k] ? m : most[k];
        }
    }
    for (size_t i = whole; i < n; i++) {
        const float d = x[i] - y[i];
        const float m = d < 0 ? -d : d;
        xx[0] += (double)x[i] * (double)x[i];
        yy[0] += (double)y[i] * (double)y[i];
        xy[0] += (double)x[i] * (double)y[i];
        ee[0] += (double)d * (double)d;
        ab[0] += (double)m;
        most[0] = m > most[0] ? m : most[0];
    }
    for (size_t k = 0; k < LANES; k++) {
        s->xx += xx[k];
        s->yy += yy[k];
        s->xy += xy[k];
        s->ee += ee[k];
        s->abs_sum += ab[k];
        s->abs_max = (double)most[k] > s->abs_max ? (double)most[k] : s->abs_max;
    }
    s->n += n;
}

void oq_sums_add_real(oq_sums *s, const float *x, const double *y, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const double a = (double)x[i], d = a - y[i];
        s->xx += a * a;
        s->yy += y[i] * y[i];
        s->xy += a * y[i];
        s->ee += d * d;
        s->abs_sum += fabs(d);
        s->abs_max = fabs(d) > s->abs_max ? fabs(d) : s->abs_max;
    }
    s->n += n;
}

void oq_sums_join(oq_sums *into, const oq_sums *more) {
    into->xx += more->xx;
    into->yy += more->yy;
    into->xy += more->xy;
    into->ee += more->ee;
    into->abs_sum += more->abs_sum;
    into->abs_max = more->abs_max > into->abs_max ? more->abs_max : into->abs_max;
    into->n += more->n;
}

/* Python's max(norm, epsilon): a NaN stays. */
static double norm(double squares) {
    const double v = sqrt(squares);
    return v < DBL_EPSILON ? DBL_EPSILON : v;
}

double oq_sums_sqnr(const oq_sums *s) {
    return 20 * log10(norm(s->xx) / norm(s->ee));
}

double oq_sums_cosine(const oq_sums *s) {
    if (s->xx == 0 && s->yy == 0)
        return 1;
    if (s->xx == 0 || s->yy == 0)
        return 0;
    const double c = s->xy / (sqrt(s->xx) * sqrt(s->yy));
    return c > 1 ? 1 : c;
}

double oq_sums_mean_error(const oq_sums *s) {
    return s->n > 0 ? s->abs_sum / (double)s->n : 0;
}

void oq_span_add(float *lo, float *hi, const float *x, size_t n) {
    float low[LANES], high[LANES];
    for (size_t k = 0; k < LANES; k++) {
        low[k] = *lo;
        high[k] = *hi;
    }
    const size_t whole = n - n % LANES;
    for (size_t i = 0; i < whole; i += LANES) {
#pragma omp simd
        for (size_t k = 0; k < LANES; k++) {
            low[k] = x[i + k] < low[k] ? x[i + k] : low[k];
            high[k] = x[i + k] > high[k] ? x[i + k] : high[k];
        }
    }
    for (size_t i = whole; i < n; i++) {
        low[0] = x[i] < low[0] ? x[i] : low[0];
        high[0] = x[i] > high[0] ? x[i] : high[0];
    }
    for (size_t k = 0; k < LANES; k++) {
        *lo = low[k] < *lo ? low[k] : *lo;
        *hi = high[k] > *hi ? high[k] : *hi;
    }
}
