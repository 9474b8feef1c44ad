/*
 * solve.c — see solve.h.
 */
#include "quantize/rounding/solve.h"

#include "base/keyed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SLAB       64 /* columns that one task solves */
#define BLOCK      128
#define LEAST_DAMP 1e-6 /* what is tried next where none was asked for and none is too little */
#define DAMP_TRIES 6

typedef struct solver {
    oq_round_job *job;
    size_t block;
    double mean;    /* of the diagonal */
    double damp;    /* as it is added */
    size_t *order;  /* of the rows */
    double *u;      /* of the inverse of the damped Hessian, rows in that order; NULL: no GPTQ */
    double *errors; /* 2 for each slab */
    size_t n_slabs;
    double *scratch;  /* for each worker */
    size_t n_scratch; /* of one of them */
} solver;

/* A worker's part of the matrix. */
typedef struct slab {
    size_t first, n; /* columns */
    double *w;       /* k x SLAB: weights, brought up to date; rows in the solver's order */
    double *d;       /* k x SLAB: rounded less weight, then scratch */
    double *g;       /* k x SLAB: Hessian x d */
} slab;

/* ---- the grid ---- */

static size_t block_of(const oq_round_job *job, size_t row) {
    return job->grid->rows >= job->k ? 0 : row / job->grid->rows;
}

static int32_t nearest(const oq_round_grid *g, double x, float scale, int32_t zero) {
    const double q = rint(x / (double)scale) + (double)zero;
    return !(q > (double)g->lo) ? g->lo : q > (double)g->hi ? g->hi : (int32_t)q;
}

static double value_of(float scale, int32_t zero, int32_t q) {
    return (double)scale * (double)(q - zero);
}

static bool is_first(const oq_round_job *job, size_t row) {
    return job->grid->rows >= job->k ? row == 0 : row % job->grid->rows == 0;
}

/* The scales of the block that begins at that row, for the columns of the slab. */
static void fit_block(const solver *v, const slab *s, size_t row) {
    const oq_round_job *job = v->job;
    const size_t left = job->k - row, rows = job->grid->rows < left ? job->grid->rows : left;
    const size_t at = block_of(job, row) * job->n + s->first;
    for (size_t c = 0; c < s->n; c++)
        job->fit(job->fit_ctx, s->w + row * SLAB + c, rows, SLAB, &job->grid->scale[at + c],
                 &job->grid->zero[at + c]);
}

/* ---- rounding in order ---- */

/* One row to integers; e gets the error over the diagonal. */
static void round_row(const solver *v, const slab *s, size_t i, double over, double *e) {
    const oq_round_job *job = v->job;
    const size_t row = v->order[i], at = block_of(job, row) * job->n + s->first;
    double *w = s->w + i * SLAB;
    int32_t *out = job->out + row * job->n + s->first;
    if (job->fit != NULL && !job->act_order && is_first(job, row))
        fit_block(v, s, row);
    for (size_t c = 0; c < s->n; c++) {
        const float scale = job->grid->scale[at + c];
        const int32_t zero = job->grid->zero[at + c];
        out[c] = nearest(job->grid, w[c], scale, zero);
        e[c] = (w[c] - value_of(scale, zero, out[c])) * over;
    }
}

static void take_from(double *w, const double *e, double f) {
#pragma omp simd
    for (size_t c = 0; c < SLAB; c++)
        w[c] -= f * e[c];
}

static void round_in_order(const solver *v, const slab *s) {
    const size_t k = v->job->k;
    double *errors = s->d; /* not needed yet */
    for (size_t from = 0; from < k; from += v->block) {
        const size_t to = from + v->block < k ? from + v->block : k;
        for (size_t i = from; i < to; i++) {
            double *e = errors + (i - from) * SLAB;
            const double *u = v->u != NULL ? v->u + i * k : NULL;
            round_row(v, s, i, u != NULL ? 1 / u[i] : 1.0, e);
            for (size_t j = i + 1; u != NULL && j < to; j++)
                take_from(s->w + j * SLAB, e, u[j]);
        }
        if (v->u != NULL)
            oq_linear_subtract(v->job->linear, k - to, SLAB, to - from, v->u + from * k + to, k,
                               errors, SLAB, s->w + to * SLAB, SLAB);
    }
}

/* ---- coordinate descent ---- */

static void load_row(const solver *v, const slab *s, size_t i, size_t row) {
    const oq_round_job *job = v->job;
    for (size_t c = 0; c < s->n; c++)
        s->w[i * SLAB + c] = (double)job->w[row * job->n + s->first + c];
}

/* Rows that are visited in another order get their scales beforehand, from the weights as they
 * are. */
static void load(const solver *v, const slab *s) {
    const size_t k = v->job->k;
    memset(s->w, 0, k * SLAB * sizeof *s->w);
    if (v->job->fit != NULL && v->job->act_order) {
        for (size_t i = 0; i < k; i++)
            load_row(v, s, i, i);
        for (size_t i = 0; i < k; i++)
            if (is_first(v->job, i))
                fit_block(v, s, i);
    }
    for (size_t i = 0; i < k; i++)
        load_row(v, s, i, v->order[i]);
}

/* d = rounded less weight, g = H d; rows in their own order from here on. */
static double find_errors(const solver *v, const slab *s) {
    const oq_round_job *job = v->job;
    const size_t k = job->k, n = job->n;
    double sum = 0;
    memset(s->d, 0, k * SLAB * sizeof *s->d);
    memset(s->g, 0, k * SLAB * sizeof *s->g);
    for (size_t i = 0; i < k; i++)
        for (size_t c = 0; c < s->n; c++) {
            const size_t at = block_of(job, i) * n + s->first + c;
            s->d[i * SLAB + c] =
                (double)job->w[i * n + s->first + c] -
                value_of(job->grid->scale[at], job->grid->zero[at], job->out[i * n + s->first + c]);
        }
    oq_linear_subtract(job->linear, k, SLAB, k, job->hessian->sum, k, s->d, SLAB, s->g, SLAB);
    for (size_t i = 0; i < k * SLAB; i++) {
        s->d[i] = -s->d[i];
        sum += s->d[i] * s->g[i];
    }
    return sum;
}

/* The integers of one row that lower the error; `step` gets what the values move by. False when
 * there is none. */
static bool improve_row(const solver *v, const slab *s, size_t i, double *step) {
    const oq_round_job *job = v->job;
    const double h = job->hessian->sum[i * job->k + i] + v->damp;
    const size_t at = block_of(job, i) * job->n + s->first;
    int32_t *out = job->out + i * job->n + s->first;
    bool any = false;
    if (!(h > 0))
        return false; /* an input that was always zero */
    for (size_t c = 0; c < s->n; c++) {
        const float scale = job->grid->scale[at + c];
        const int32_t zero = job->grid->zero[at + c];
        const double d = s->d[i * SLAB + c], now = value_of(scale, zero, out[c]);
        const int32_t q =
            nearest(job->grid, now - (s->g[i * SLAB + c] + v->damp * d) / h, scale, zero);
        step[c] = value_of(scale, zero, q) - now;
        any = any || q != out[c];
        out[c] = q;
        s->d[i * SLAB + c] = d + step[c];
    }
    return any;
}

static void descend(const solver *v, const slab *s) {
    const size_t k = v->job->k;
    double step[SLAB] = {0};
    bool any = true;
    for (unsigned sweep = 0; sweep < v->job->sweeps && any; sweep++) {
        any = false;
        for (size_t i = 0; i < k; i++) {
            const double *h = v->job->hessian->sum + i * k;
            if (!improve_row(v, s, i, step))
                continue;
            any = true;
            for (size_t j = 0; j < k; j++)
                take_from(s->g + j * SLAB, step, -h[j]);
        }
    }
}

/* ---- a slab ---- */

/* The error of the nearest integers, for comparison. */
static double nearest_error(const solver *v, const slab *s) {
    const solver plain = {.job = v->job, .block = v->block, .order = v->order};
    load(v, s);
    round_in_order(&plain, s);
    return find_errors(v, s);
}

static onq_code solve_slab(void *ctx, size_t i, unsigned worker, onq_error *err) {
    solver *v = ctx;
    oq_round_job *job = v->job;
    double *mine = v->scratch + worker * v->n_scratch;
    slab s = {
        .first = i * SLAB, .w = mine, .d = mine + job->k * SLAB, .g = mine + 2 * job->k * SLAB};
    if (worker == 0)
        OQ_TRY(oq_progress(job->env, "rounding, columns", s.first, job->n, err));
    s.n = job->n - s.first < SLAB ? job->n - s.first : SLAB;
    if (job->hessian == NULL) {
        load(v, &s);
        round_in_order(v, &s);
        return ONQ_OK;
    }
    if (job->want_error)
        v->errors[2 * i] = nearest_error(v, &s);
    load(v, &s);
    memset(s.d, 0, job->k * SLAB * sizeof *s.d);
    round_in_order(v, &s);
    if (job->sweeps > 0) {
        find_errors(v, &s);
        descend(v, &s);
    }
    if (job->want_error)
        v->errors[2 * i + 1] = find_errors(v, &s);
    return ONQ_OK;
}

/* ---- the inverse ---- */

static onq_code find_order(solver *v, onq_error *err) {
    const oq_round_job *job = v->job;
    const size_t k = job->k;
    for (size_t i = 0; i < k; i++)
        v->order[i] = i;
    if (!job->act_order || job->hessian == NULL)
        return ONQ_OK;
    oq_keyed *w = oq_calloc(job->alloc, k, sizeof *w);
    if (w == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < k; i++)
        w[i] = (oq_keyed){-job->hessian->sum[i * k + i], (uint32_t)i};
    oq_keyed_sort(w, k); /* the largest diagonal first */
    for (size_t i = 0; i < k; i++)
        v->order[i] = w[i].at;
    oq_free(job->alloc, w, k * sizeof *w);
    return ONQ_OK;
}

/* The upper half of the Hessian in the rows' order, damped. An input that was always zero stands
 * alone, and is rounded to the nearest integer. */
static void fill_damped(const solver *v, double damp) {
    const size_t k = v->job->k;
    const double *h = v->job->hessian->sum;
    for (size_t i = 0; i < k; i++) {
        const double *row = h + v->order[i] * k;
        for (size_t j = i; j < k; j++)
            v->u[i * k + j] = row[v->order[j]];
        v->u[i * k + i] += damp;
        if (!(v->u[i * k + i] > 0))
            v->u[i * k + i] = 1;
    }
}

static onq_code invert(solver *v, onq_error *err) {
    const oq_round_job *job = v->job;
    const size_t k = job->k;
    double damp = v->damp;
    for (int i = 0; i<DAMP_TRIES; i++, damp = damp> 0 ? damp * 10 : LEAST_DAMP * v->mean) {
        fill_damped(v, damp);
        bool ok = oq_linear_cholesky(job->linear, v->u, k);
        OQ_TRY(oq_progress(job->env, "inverting", 1, 3, err));
        ok = ok && oq_linear_invert(job->linear, v->u, k);
        OQ_TRY(oq_progress(job->env, "inverting", 2, 3, err));
        if (ok && oq_linear_cholesky(job->linear, v->u, k))
            return ONQ_OK;
    }
    return oq_fail(err, ONQ_E_INVALID, "the products of a layer's inputs cannot be inverted");
}

static onq_code measure_damp(solver *v, onq_error *err) {
    const oq_round_job *job = v->job;
    double sum = 0;
    for (size_t i = 0; i < job->k; i++)
        sum += job->hessian->sum[i * job->k + i];
    if (!isfinite(sum))
        return oq_fail(err, ONQ_E_INVALID, "the products of a layer's inputs are not finite");
    v->mean = sum / (double)job->k;
    v->damp = job->damp * v->mean;
    return ONQ_OK;
}

/* ---- all of it ---- */

static onq_code allocate(solver *v, onq_error *err) {
    const oq_round_job *job = v->job;
    const size_t k = job->k;
    v->n_slabs = (job->n + SLAB - 1) / SLAB;
    v->n_scratch = 3 * k * SLAB + SLAB;
    if (v->block > k) /* errors of a block lie where d will be */
        v->block = k;
    v->order = oq_calloc(job->alloc, k, sizeof *v->order);
    v->errors = oq_calloc(job->alloc, 2 * v->n_slabs + 1, sizeof *v->errors);
    v->scratch = oq_calloc(job->alloc, oq_pool_workers(job->pool) * v->n_scratch, sizeof(double));
    if (job->hessian != NULL && !job->no_gptq)
        v->u = oq_calloc(job->alloc, k * k, sizeof *v->u);
    return v->order != NULL && v->errors != NULL && v->scratch != NULL &&
                   (v->u != NULL || job->hessian == NULL || job->no_gptq)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

static void release(solver *v) {
    const oq_round_job *job = v->job;
    const size_t k = job->k;
    oq_free(job->alloc, v->order, k * sizeof *v->order);
    oq_free(job->alloc, v->errors, (2 * v->n_slabs + 1) * sizeof *v->errors);
    oq_free(job->alloc, v->scratch, oq_pool_workers(job->pool) * v->n_scratch * sizeof *v->scratch);
    oq_free(job->alloc, v->u, k * k * sizeof *v->u);
}

onq_code oq_round(oq_round_job *job, onq_error *err) {
    assert(job->k > 0 && job->n > 0 && job->grid->hi > job->grid->lo);
    assert(job->hessian == NULL || job->hessian->k == job->k);
    solver v = {.job = job, .block = job->block > 0 ? job->block : BLOCK};
    onq_code rc = allocate(&v, err);
    if (rc == ONQ_OK)
        rc = find_order(&v, err);
    if (rc == ONQ_OK && job->hessian != NULL)
        rc = measure_damp(&v, err);
    if (rc == ONQ_OK && v.u != NULL)
        rc = invert(&v, err);
    if (rc == ONQ_OK)
        rc = oq_pool_run(job->pool, v.n_slabs, solve_slab, &v, err);
    job->error[0] = job->error[1] = 0;
    for (size_t i = 0; rc == ONQ_OK && i < v.n_slabs; i++) {
        job->error[0] += v.errors[2 * i];
        job->error[1] += v.errors[2 * i + 1];
    }
    release(&v);
    return rc;
}
