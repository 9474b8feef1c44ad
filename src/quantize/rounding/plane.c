/*
 * plane.c — see plane.h.
 */
#include "quantize/rounding/plane.h"

#include "base/keyed.h"

#include <math.h>
#include <string.h>

#define SLAB  128 /* columns that one task rounds */
#define BLOCK 64  /* rows after which those before them are brought up to date */
#define TRIES 6   /* each with ten times the damp of the one before */
#define LEAST 1e-6

/* ---- the factor ---- */

/* The smallest diagonal first. */
static onq_code find_order(oq_plane *p, const oq_hessian *h, onq_error *err) {
    oq_keyed *w = oq_calloc(p->alloc, p->k, sizeof *w);
    OQ_TRY_ALLOC(w != NULL, err);
    for (size_t i = 0; i < p->k; i++)
        w[i] = (oq_keyed){h->sum[i * p->k + i], (uint32_t)i};
    oq_keyed_sort(w, p->k);
    for (size_t i = 0; i < p->k; i++)
        p->order[i] = w[i].at;
    oq_free(p->alloc, w, p->k * sizeof *w);
    return ONQ_OK;
}

/* The upper half in the inputs' order, over the mean of the diagonal, so that it fits into floats.
 * An input that was always zero stands alone, and is rounded to the nearest integer. */
static void fill(oq_plane *p, const oq_hessian *h, double mean, double damp) {
    const size_t k = p->k;
    const double over = mean > 0 ? 1 / mean : 0;
    for (size_t i = 0; i < k; i++) {
        const double *row = h->sum + p->order[i] * k;
        float *to = p->r + i * k;
        for (size_t j = i; j < k; j++)
            to[j] = (float)(row[p->order[j]] * over);
        to[i] += (float)damp;
        if (!(to[i] > 0))
            to[i] = 1;
    }
}

static onq_code factorize(oq_plane *p, const oq_hessian *h, double damp, onq_error *err) {
    double sum = 0;
    for (size_t i = 0; i < p->k; i++)
        sum += h->sum[i * p->k + i];
    if (!isfinite(sum))
        return oq_fail(err, ONQ_E_INVALID, "the products of a layer's inputs are not finite");
    for (int i = 0; i < TRIES; i++, damp = fmax(LEAST, 10 * damp)) {
        fill(p, h, sum / (double)p->k, damp);
        if (oq_linear_factor(p->linear, p->r, p->k))
            return ONQ_OK;
    }
    return oq_fail(err, ONQ_E_INVALID, "the products of a layer's inputs cannot be divided");
}

onq_code oq_plane_init(oq_plane *p, const oq_hessian *h, double damp, onq_error *err) {
    const size_t k = h->k;
    assert(k > 0 && h->x == NULL); /* finished */
    *p = (oq_plane){.alloc = h->alloc,
                    .linear = h->linear,
                    .k = k,
                    .order = oq_calloc(h->alloc, k, sizeof *p->order),
                    .r = oq_calloc(h->alloc, k * k, sizeof *p->r)};
    onq_code rc = p->order != NULL && p->r != NULL ? ONQ_OK : oq_fail_nomem(err);
    if (rc == ONQ_OK)
        rc = find_order(p, h, err);
    if (rc == ONQ_OK)
        rc = factorize(p, h, damp, err);
    if (rc != ONQ_OK)
        oq_plane_release(p);
    return rc;
}

void oq_plane_release(oq_plane *p) {
    if (p->alloc == NULL)
        return;
    oq_free(p->alloc, p->order, p->k * sizeof *p->order);
    oq_free(p->alloc, p->r, p->k * p->k * sizeof *p->r);
    *p = (oq_plane){0};
}

/* ---- rounding ---- */

/* A worker's part of the columns. */
typedef struct slab {
    const oq_plane_job *job;
    size_t first, n;
    float *d; /* k x SLAB: weight less rounded, rows in the plane's order */
    float *s; /* k x SLAB: R d, of the rows that are rounded by then */
} slab;

static void round_row(const slab *v, const float *w, const float *shift, int32_t *out, float *d) {
    const oq_plane_job *job = v->job;
    for (size_t c = 0; c < v->n; c++) {
        const float scale = job->scale[v->first + c], zero = job->zero[v->first + c];
        const double q = rint((double)(w[c] + shift[c]) / (double)scale + (double)zero);
        out[c] = !(q > (double)job->lo) ? job->lo : q > (double)job->hi ? job->hi : (int32_t)q;
        d[c] = w[c] - scale * ((float)out[c] - zero);
    }
}

/* What the rows of the block after this one make of it, over the diagonal. */
static void find_shift(const slab *v, size_t i, size_t to, float *shift) {
    const oq_plane *p = v->job->plane;
    const float *r = p->r + i * p->k, over = 1 / r[i];
    memcpy(shift, v->s + i * SLAB, SLAB * sizeof *shift);
    for (size_t j = i + 1; j < to; j++) {
        const float f = r[j], *d = v->d + j * SLAB;
#pragma omp simd
        for (size_t c = 0; c < SLAB; c++)
            shift[c] += f * d[c];
    }
#pragma omp simd
    for (size_t c = 0; c < SLAB; c++)
        shift[c] *= over;
}

static void round_block(const slab *v, size_t from, size_t to) {
    const oq_plane_job *job = v->job;
    float shift[SLAB] = {0};
    for (size_t i = to; i-- > from;) {
        const size_t row = job->plane != NULL ? job->plane->order[i] : i;
        const size_t at = row * job->n + v->first;
        if (job->plane != NULL)
            find_shift(v, i, to, shift);
        round_row(v, job->w + at, shift, job->out + at, v->d + i * SLAB);
    }
}

static onq_code round_slab(void *ctx, size_t i, unsigned worker, onq_error *err) {
    const slab *all = ctx; /* with the memory of all workers */
    const oq_plane_job *job = all->job;
    const size_t k = job->k, size = k * SLAB;
    const slab v = {.job = job,
                    .first = i * SLAB,
                    .n = job->n - i * SLAB < SLAB ? job->n - i * SLAB : SLAB,
                    .d = all->d + worker * 2 * size,
                    .s = all->d + worker * 2 * size + size};
    (void)err;
    memset(v.d, 0, 2 * size * sizeof *v.d);
    for (size_t to = k, from = 0; to > 0; to = from) {
        from = to > BLOCK ? to - BLOCK : 0;
        round_block(&v, from, to);
        if (job->plane != NULL)
            oq_linear_add(job->plane->linear, from, SLAB, to - from, job->plane->r + from, k,
                          v.d + from * SLAB, SLAB, v.s, SLAB);
    }
    return ONQ_OK;
}

onq_code oq_plane_round(const oq_plane_job *job, onq_error *err) {
    assert(job->k > 0 && job->n > 0 && job->hi > job->lo);
    assert(job->plane == NULL || job->plane->k == job->k);
    const size_t n = oq_pool_workers(job->pool) * 2 * job->k * SLAB;
    slab all = {.job = job, .d = oq_calloc(job->alloc, n, sizeof *all.d)};
    OQ_TRY_ALLOC(all.d != NULL, err);
    const onq_code rc = oq_pool_run(job->pool, (job->n + SLAB - 1) / SLAB, round_slab, &all, err);
    oq_free(job->alloc, all.d, n * sizeof *all.d);
    return rc;
}
