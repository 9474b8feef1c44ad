/*
 * solve.c — see solve.h.
 */
#include "quantize/rounding/solve.h"

#include "base/keyed.h"
#include "quantize/number/qparam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SLAB       OQ_ROUND_COLUMNS /* that one task solves */
#define BLOCK      128
#define MIN_DAMP   1e-6 /* what is tried next where none was asked for and none is too little */
#define DAMP_TRIES 6
#define MAX_REFIT  256 /* rows of a block whose scale is moved */

typedef struct solver {
    oq_round_job *job;
    size_t block;
    double damp;
    const size_t *order;
    const double *u; /* NULL: no GPTQ */
    double *errors;  /* 2 for each slab */
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
    double *step;    /* rows of a chunk x SLAB: what the sweep adds to d there */
} slab;

/* ---- the grid ---- */

static size_t block_of(const oq_round_job *job, size_t row) {
    return job->grid->rows >= job->k ? 0 : row / job->grid->rows;
}

static int32_t nearest(const oq_round_grid *g, double x, float scale, float zero) {
    const double q = rint(x / (double)scale + (double)zero);
    return !(q > (double)g->lo) ? g->lo : q > (double)g->hi ? g->hi : (int32_t)q;
}

static double value_of(float scale, float zero, int32_t q) {
    return (double)scale * ((double)q - (double)zero);
}

static bool is_first(const oq_round_job *job, size_t row) {
    return job->grid->rows >= job->k ? row == 0 : row % job->grid->rows == 0;
}

/* The scales of the block that begins at that row, for the columns of the slab. */
static void fit_block(const solver *v, const slab *s, size_t row) {
    const oq_round_job *job = v->job;
    const size_t left = job->k - row, rows = job->grid->rows < left ? job->grid->rows : left;
    const size_t at = block_of(job, row) * job->n + s->first;
    job->fit(job->fit_ctx, s->w + row * SLAB, row, rows, s->n, SLAB, &job->grid->scale[at],
             &job->grid->zero[at]);
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
        const float zero = job->grid->zero[at + c];
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

/* What the values of row i moved by, to what is known of the chunk [from, to): the rest of g waits
 * until the chunk is done. */
static void move_row(const solver *v, const slab *s, size_t from, size_t to, size_t i,
                     const double *step) {
    const double *h = v->job->hessian->sum + i * v->job->k;
    take_from(s->d + i * SLAB, step, -1);
    take_from(s->step + (i - from) * SLAB, step, -1);
    for (size_t j = from; j < to; j++)
        take_from(s->g + j * SLAB, step, -h[j]);
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
        const float scale = job->grid->scale[at + c], zero = job->grid->zero[at + c];
        const double d = s->d[i * SLAB + c], now = value_of(scale, zero, out[c]);
        const int32_t q =
            nearest(job->grid, now - (s->g[i * SLAB + c] + v->damp * d) / h, scale, zero);
        step[c] = value_of(scale, zero, q) - now;
        any = any || q != out[c];
        out[c] = q;
    }
    return any;
}

/* What a column's block has for the choice of its scale: u are its integers less the zero point,
 * 1 stands for a zero point that moves. */
typedef struct normal {
    double uu[SLAB], u1[SLAB], ug[SLAB]; /* u^T H u, u^T H 1, u^T H d */
    double one, g[SLAB];                 /* 1^T H 1, 1^T H d */
} normal;

static void find_normal(const solver *v, const slab *s, size_t from, size_t to, normal *m) {
    assert(from < to && to - from <= MAX_REFIT);
    const oq_round_job *job = v->job;
    const size_t at = block_of(job, from) * job->n + s->first;
    double u[MAX_REFIT][SLAB] = {{0}};
    *m = (normal){0};
    for (size_t i = from; i < to; i++)
        for (size_t c = 0; c < s->n; c++)
            u[i - from][c] =
                (double)job->out[i * job->n + s->first + c] - (double)job->grid->zero[at + c];
    for (size_t i = from; i < to; i++) {
        const double *h = job->hessian->sum + i * job->k;
        double hu[SLAB] = {0}, h1 = v->damp;
        take_from(hu, u[i - from], -v->damp);
        for (size_t j = from; j < to; j++) {
            take_from(hu, u[j - from], -h[j]);
            h1 += h[j];
        }
        m->one += h1;
        for (size_t c = 0; c < SLAB; c++) {
            const double g = s->g[i * SLAB + c] + v->damp * s->d[i * SLAB + c];
            m->uu[c] += u[i - from][c] * hu[c];
            m->u1[c] += u[i - from][c] * h1;
            m->ug[c] += u[i - from][c] * g;
            m->g[c] += g;
        }
    }
}

/* Scale and zero point of a column's block where the error is least; false: as they are. */
static bool solve_normal(const oq_round_grid *grid, const normal *m, size_t c, float *scale,
                         float *zero) {
    double by_u, by_1 = 0;
    if (!(m->uu[c] > 0))
        return false;
    if (grid->real_zero) {
        const double det = m->uu[c] * m->one - m->u1[c] * m->u1[c];
        if (!(det > 1e-9 * m->uu[c] * m->one))
            return false;
        by_u = (m->u1[c] * m->g[c] - m->one * m->ug[c]) / det;
        by_1 = (m->u1[c] * m->ug[c] - m->uu[c] * m->g[c]) / det;
    } else {
        by_u = -m->ug[c] / m->uu[c];
    }
    const float s = oq_real_round(grid->real, (double)*scale + by_u);
    const double part = (double)s / (double)*scale;
    if (!(part > 0.5 && part < 2))
        return false;
    *zero = (float)((double)*zero - by_1 / (double)s);
    *scale = s;
    return true;
}

/* Moves the scales of the block [from, to), and with them the values of its integers. */
static void refit_block(const solver *v, const slab *s, size_t from, size_t to) {
    const oq_round_job *job = v->job;
    const size_t at = block_of(job, from) * job->n + s->first;
    float scale[SLAB], zero[SLAB];
    normal m;
    bool any = false;
    find_normal(v, s, from, to, &m);
    for (size_t c = 0; c < s->n; c++) {
        scale[c] = job->grid->scale[at + c];
        zero[c] = job->grid->zero[at + c];
        any |= solve_normal(job->grid, &m, c, &scale[c], &zero[c]);
    }
    for (size_t i = from; i < to && any; i++) {
        const int32_t *out = job->out + i * job->n + s->first;
        double step[SLAB] = {0};
        for (size_t c = 0; c < s->n; c++)
            step[c] = value_of(scale[c], zero[c], out[c]) -
                      value_of(job->grid->scale[at + c], job->grid->zero[at + c], out[c]);
        move_row(v, s, from, to, i, step);
    }
    memcpy(&job->grid->scale[at], scale, s->n * sizeof *scale);
    memcpy(&job->grid->zero[at], zero, s->n * sizeof *zero);
}

/* A chunk of rows, and then what its steps do to the others. */
static bool descend_chunk(const solver *v, const slab *s, size_t from, size_t to, bool refit) {
    const size_t k = v->job->k;
    const double *h = v->job->hessian->sum + from * k;
    assert(from < to && to <= k);
    bool any = refit;
    memset(s->step, 0, (to - from) * SLAB * sizeof *s->step);
    if (refit)
        refit_block(v, s, from, to);
    for (size_t i = from; i < to; i++) {
        double step[SLAB] = {0};
        if (improve_row(v, s, i, step)) {
            move_row(v, s, from, to, i, step);
            any = true;
        }
    }
    for (size_t i = 0; i < (to - from) * SLAB; i++)
        s->step[i] = -s->step[i];
    if (any) {
        oq_linear_subtract(v->job->linear, from, SLAB, to - from, h, k, s->step, SLAB, s->g, SLAB);
        oq_linear_subtract(v->job->linear, k - to, SLAB, to - from, h + to, k, s->step, SLAB,
                           s->g + to * SLAB, SLAB);
    }
    return any;
}

static void descend(const solver *v, const slab *s) {
    const oq_round_job *job = v->job;
    const size_t k = job->k, rows = job->grid->rows < k ? job->grid->rows : k;
    const bool refit = job->refit && job->fit != NULL && rows <= MAX_REFIT;
    const size_t chunk = refit ? rows : v->block;
    bool any = true;
    for (unsigned sweep = 0; sweep < job->sweeps && any; sweep++) {
        any = false;
        for (size_t from = 0; from < k; from += chunk)
            any |= descend_chunk(v, s, from, k - from < chunk ? k : from + chunk, refit);
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
    slab s = {.first = i * SLAB,
              .w = mine,
              .d = mine + job->k * SLAB,
              .g = mine + 2 * job->k * SLAB,
              .step = mine}; /* w is not needed any more when the sweeps begin */
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

static onq_code find_order(oq_round_factor *f, const oq_hessian *h, bool act_order,
                           onq_error *err) {
    const size_t k = h->k;
    for (size_t i = 0; i < k; i++)
        f->order[i] = i;
    if (!act_order)
        return ONQ_OK;
    oq_keyed *w = oq_calloc(h->alloc, k, sizeof *w);
    OQ_TRY_ALLOC(w != NULL, err);
    for (size_t i = 0; i < k; i++)
        w[i] = (oq_keyed){-h->sum[i * k + i], (uint32_t)i};
    oq_keyed_sort(w, k); /* the largest diagonal first */
    for (size_t i = 0; i < k; i++)
        f->order[i] = w[i].at;
    oq_free(h->alloc, w, k * sizeof *w);
    return ONQ_OK;
}

/* The upper half of the Hessian in the rows' order, damped. An input that was always zero stands
 * alone, and is rounded to the nearest integer. */
static void fill_damped(oq_round_factor *f, const oq_hessian *h, double damp) {
    const size_t k = h->k;
    for (size_t i = 0; i < k; i++) {
        const double *row = h->sum + f->order[i] * k;
        for (size_t j = i; j < k; j++)
            f->u[i * k + j] = row[f->order[j]];
        f->u[i * k + i] += damp;
        if (!(f->u[i * k + i] > 0))
            f->u[i * k + i] = 1;
    }
}

static onq_code invert(oq_round_factor *f, const oq_hessian *h, const onq_env *env,
                       onq_error *err) {
    double damp = f->damp;
    for (int i = 0; i<DAMP_TRIES; i++, damp = damp> 0 ? damp * 10 : MIN_DAMP * f->mean) {
        fill_damped(f, h, damp);
        const bool ok = oq_linear_inverse_factor(h->linear, f->u, h->k);
        OQ_TRY(oq_progress(env, "inverting", 1, 2, err));
        if (ok)
            return ONQ_OK;
    }
    return oq_fail(err, ONQ_E_INVALID, "the products of a layer's inputs cannot be inverted");
}

static onq_code measure_damp(const oq_hessian *h, double damp, oq_round_factor *f, onq_error *err) {
    double sum = 0;
    for (size_t i = 0; i < h->k; i++)
        sum += h->sum[i * h->k + i];
    if (!isfinite(sum))
        return oq_fail(err, ONQ_E_INVALID, "the products of a layer's inputs are not finite");
    f->mean = sum / (double)h->k;
    f->damp = damp * f->mean;
    return ONQ_OK;
}

onq_code oq_round_factor_init(oq_round_factor *f, const oq_hessian *h, const onq_env *env,
                              double damp, bool act_order, onq_error *err) {
    *f = (oq_round_factor){.order = oq_calloc(h->alloc, h->k, sizeof *f->order)};
    onq_code rc =
        f->order != NULL ? oq_hessian_matrix(h, h->k * h->k, &f->room, err) : oq_fail_nomem(err);
    f->u = f->room.v;
    if (rc == ONQ_OK)
        rc = measure_damp(h, damp, f, err);
    if (rc == ONQ_OK)
        rc = find_order(f, h, act_order, err);
    if (rc == ONQ_OK)
        rc = invert(f, h, env, err);
    if (rc != ONQ_OK)
        oq_round_factor_release(f, h);
    return rc;
}

void oq_round_factor_release(oq_round_factor *f, const oq_hessian *h) {
    oq_free(h->alloc, f->order, h->k * sizeof *f->order);
    oq_hessian_matrix_release(h, &f->room);
    *f = (oq_round_factor){0};
}

/* ---- all of it ---- */

static onq_code run(solver *v, onq_error *err) {
    oq_round_job *job = v->job;
    const size_t k = job->k, n_slabs = (job->n + SLAB - 1) / SLAB;
    OQ_SCRATCH(scratch, job->alloc);
    v->n_scratch = 3 * k * SLAB + SLAB;
    if (v->block > k) /* errors of a block lie where d will be */
        v->block = k;
    v->errors = OQ_NEW_ARRAY(&scratch, double, 2 * n_slabs + 1);
    v->scratch = OQ_NEW_ARRAY(&scratch, double, oq_pool_workers(job->pool) * v->n_scratch);
    OQ_TRY_ALLOC(v->errors != NULL && v->scratch != NULL, err);
    if (v->order == NULL) {
        size_t *order = OQ_NEW_ARRAY(&scratch, size_t, k);
        OQ_TRY_ALLOC(order != NULL, err);
        for (size_t i = 0; i < k; i++)
            order[i] = i;
        v->order = order;
    }
    OQ_TRY(oq_pool_run(job->pool, n_slabs, solve_slab, v, err));
    job->error[0] = job->error[1] = 0;
    for (size_t i = 0; i < n_slabs; i++) {
        job->error[0] += v->errors[2 * i];
        job->error[1] += v->errors[2 * i + 1];
    }
    return ONQ_OK;
}

onq_code oq_round(oq_round_job *job, onq_error *err) {
    assert(job->k > 0 && job->n > 0 && job->grid->hi > job->grid->lo);
    assert(job->hessian == NULL || job->hessian->k == job->k);
    assert(job->hessian == NULL || job->hessian->x == NULL); /* finished */
    solver v = {.job = job, .block = job->block > 0 ? job->block : BLOCK};
    oq_round_factor made = {0};
    const oq_round_factor *f = job->factor;
    onq_code rc = ONQ_OK;
    if (job->hessian != NULL && job->no_gptq)
        rc = measure_damp(job->hessian, job->damp, &made, err);
    else if (job->hessian != NULL && f == NULL)
        rc = oq_round_factor_init(&made, job->hessian, job->env, job->damp, job->act_order, err);
    f = f != NULL ? f : &made;
    v.damp = f->damp;
    v.order = f->order;
    v.u = f->u;
    if (rc == ONQ_OK)
        rc = run(&v, err);
    if (made.u != NULL)
        oq_round_factor_release(&made, job->hessian);
    return rc;
}
