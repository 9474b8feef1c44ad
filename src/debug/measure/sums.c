/*
 * sums.c — see sums.h. Pieces short enough for float32 are added up in vectors, and pieces in
 * doubles: squares overflow and underflow as they do in the reference's float32 norms, and nothing
 * is lost over many samples.
 */
#include "debug/measure/sums.h"

#include "samples/agreement.h"

#define PIECE 256

static void add_piece(oq_sums *s, const float *x, const float *y, size_t n) {
    float xx = 0, yy = 0, ee = 0, ab = 0, most = 0;
#pragma omp simd reduction(+ : xx, yy, ee, ab) reduction(max : most)
    for (size_t i = 0; i < n; i++) {
        const float d = x[i] - y[i], m = d < 0 ? -d : d;
        xx += x[i] * x[i];
        yy += y[i] * y[i];
        ee += d * d;
        ab += m;
        most = m > most ? m : most;
    }
    s->xx += (double)xx;
    s->yy += (double)yy;
    s->ee += (double)ee;
    s->abs_sum += (double)ab;
    s->abs_max = (double)most > s->abs_max ? (double)most : s->abs_max;
}

void oq_sums_add(oq_sums *s, const float *x, const float *y, size_t n) {
    assert(n == 0 || (x != NULL && y != NULL));
    for (size_t i = 0; i < n; i += PIECE)
        add_piece(s, x + i, y + i, n - i < PIECE ? n - i : PIECE);
    s->n += n;
}

void oq_sums_add_noise(oq_sums *s, const float *x, const float *y, size_t n) {
    for (size_t i = 0; i < n; i += PIECE) {
        const size_t to = n - i < PIECE ? n : i + PIECE;
        float xx = 0, ee = 0;
#pragma omp simd reduction(+ : xx, ee)
        for (size_t k = i; k < to; k++) {
            const float d = x[k] - y[k];
            xx += x[k] * x[k];
            ee += d * d;
        }
        s->xx += (double)xx;
        s->ee += (double)ee;
    }
    s->n += n;
}

void oq_sums_add_real(oq_sums *s, const float *x, const double *y, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const double a = (double)x[i], d = a - y[i];
        s->xx += a * a;
        s->yy += y[i] * y[i];
        s->ee += d * d;
        s->abs_sum += fabs(d);
        s->abs_max = fabs(d) > s->abs_max ? fabs(d) : s->abs_max;
    }
    s->n += n;
}

void oq_rows_add(uint64_t *rows, uint64_t *same, const float *x, const float *y, uint64_t n,
                 uint64_t row) {
    for (uint64_t i = 0; row >= 2 && i + row <= n; i += row) {
        uint64_t a = 0, b = 0;
        for (uint64_t k = 1; k < row; k++) {
            a = x[i + k] > x[i + a] ? k : a;
            b = y[i + k] > y[i + b] ? k : b;
        }
        ++*rows;
        *same += a == b;
    }
}

void oq_sums_join(oq_sums *into, const oq_sums *more) {
    assert(into != more);
    into->xx += more->xx;
    into->yy += more->yy;
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
    return 2 * oq_decibels(norm(s->xx) / norm(s->ee));
}

double oq_sums_cosine(const oq_sums *s) {
    if (s->xx == 0 && s->yy == 0)
        return 1;
    if (s->xx == 0 || s->yy == 0)
        return 0;
    /* x y = (x^2 + y^2 - (x - y)^2) / 2 */
    const double c = (s->xx + s->yy - s->ee) / 2 / (sqrt(s->xx) * sqrt(s->yy));
    return c > 1 ? 1 : c < -1 ? -1 : c;
}

double oq_sums_mean_error(const oq_sums *s) {
    return s->n > 0 ? s->abs_sum / (double)s->n : 0;
}

void oq_span_add(float *lo, float *hi, const float *x, size_t n) {
    float low = *lo, high = *hi;
#pragma omp simd reduction(min : low) reduction(max : high)
    for (size_t i = 0; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    *lo = low;
    *hi = high;
}
