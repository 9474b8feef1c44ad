/*
 * rotate_turn.c — the orthogonal matrix of rotate.h, and weights multiplied with it.
 */
#include "onnx/spill.h"
#include "prepare/rotate_parts.h"

#include <math.h>

#define LANES 64 /* vectors that are turned at once */

typedef struct matrix {
    size_t n, power, rest; /* n = power x rest; power is one of 2 */
    double *cosines;       /* rest x rest */
    double *sign;          /* n, over the root of `power` */
    double *x;             /* n x LANES: the vectors */
    double *y;             /* rest x LANES */
} matrix;

static onq_code prepare(matrix *m, oq_arena *a, size_t n, onq_error *err) {
    *m = (matrix){.n = n, .power = n & -n};
    m->rest = n / m->power;
    m->cosines = OQ_NEW_ARRAY(a, double, m->rest * m->rest);
    m->sign = OQ_NEW_ARRAY(a, double, n);
    m->x = OQ_NEW_ARRAY(a, double, n *LANES);
    m->y = OQ_NEW_ARRAY(a, double, m->rest *LANES);
    OQ_TRY_ALLOC(m->cosines != NULL && m->sign != NULL && m->x != NULL && m->y != NULL, err);
    const double rest = (double)m->rest;
    for (size_t i = 0; i < m->rest; i++)
        for (size_t j = 0; j < m->rest; j++)
            m->cosines[i * m->rest + j] =
                sqrt((i == 0 ? 1 : 2) / rest) * cos(M_PI * ((double)j + 0.5) * (double)i / rest);
    uint64_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        m->sign[i] = (state >> 63 != 0 ? -1 : 1) / sqrt((double)m->power);
    }
    return ONQ_OK;
}

static void hadamard(const matrix *m) {
    for (size_t step = m->rest; step < m->n; step *= 2)
        for (size_t i = 0; i < m->n; i += 2 * step)
            for (size_t j = i; j < i + step; j++) {
                double *a = m->x + j * LANES, *b = m->x + (j + step) * LANES;
#pragma omp simd
                for (size_t c = 0; c < LANES; c++) {
                    const double sum = a[c] + b[c], difference = a[c] - b[c];
                    a[c] = sum;
                    b[c] = difference;
                }
            }
}

static void cosines(const matrix *m) {
    for (size_t at = 0; at < m->n; at += m->rest) {
        double *x = m->x + at * LANES;
        memset(m->y, 0, m->rest * LANES * sizeof *m->y);
        for (size_t i = 0; i < m->rest; i++)
            for (size_t j = 0; j < m->rest; j++) {
                const double f = m->cosines[i * m->rest + j];
#pragma omp simd
                for (size_t c = 0; c < LANES; c++)
                    m->y[i * LANES + c] += f * x[j * LANES + c];
            }
        memcpy(x, m->y, m->rest * LANES * sizeof *x);
    }
}

/* Turns `lanes` vectors: number i of vector c is in[i * along + c * across]. */
static void turn_some(const matrix *m, const float *in, float *out, const float *gain,
                      uint64_t along, uint64_t across, size_t lanes) {
    for (size_t i = 0; i < m->n; i++) {
        const double f = m->sign[i] * (gain != NULL ? (double)gain[i] : 1);
        for (size_t c = 0; c < lanes; c++)
            m->x[i * LANES + c] = f * (double)in[i * along + c * across];
    }
    hadamard(m);
    if (m->rest > 1)
        cosines(m);
    for (size_t i = 0; i < m->n; i++)
        for (size_t c = 0; c < lanes; c++)
            out[i * along + c * across] = (float)m->x[i * LANES + c];
}

static onq_code turn_one(oq_model *model, const matrix *m, const oq_turned *t, oq_spill *spill,
                         onq_error *err) {
    oq_span data;
    OQ_TRY(oq_model_data(model, t->tensor, &data, err));
    const uint64_t count = data.n / sizeof(float), vectors = count / m->n;
    const uint64_t along = t->columns ? vectors : 1, across = t->columns ? 1 : m->n;
    OQ_SCRATCH(scratch, &model->env->alloc);
    float *out = OQ_NEW_ARRAY(&scratch, float, count), *copy = NULL;
    OQ_TRY_ALLOC(out != NULL, err);
    const float *in = (const float *)(const void *)data.p;
    if ((uintptr_t)data.p % sizeof(float) != 0) {
        copy = OQ_NEW_ARRAY(&scratch, float, count);
        OQ_TRY_ALLOC(copy != NULL, err);
        memcpy(copy, data.p, data.n);
        in = copy;
    }
    for (uint64_t c = 0; c < vectors; c += LANES)
        turn_some(m, in + c * across, out + c * across, t->gain, along, across,
                  vectors - c < LANES ? (size_t)(vectors - c) : LANES);
    OQ_TRY(oq_spill_put(spill, t->to, out, data.n, err));
    const oq_file *file = oq_model_file_of(model, data.p);
    if (file != NULL)
        oq_file_drop(file, (uint64_t)(data.p - file->p), data.n);
    return ONQ_OK;
}

onq_code oq_turn(oq_model *m, const oq_turned *all, size_t n, uint64_t width, onq_error *err) {
    OQ_SCRATCH(scratch, &m->env->alloc);
    matrix turns;
    oq_spill spill;
    OQ_TRY(prepare(&turns, &scratch, (size_t)width, err));
    OQ_TRY(oq_spill_begin(&spill, m, err));
    onq_code rc = ONQ_OK;
    for (size_t i = 0; i < n && rc == ONQ_OK; i++) {
        rc = oq_progress(m->env, "rotating weights", i, n, err);
        if (rc == ONQ_OK)
            rc = turn_one(m, &turns, &all[i], &spill, err);
    }
    return oq_spill_end(&spill, rc, err);
}
