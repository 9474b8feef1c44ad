/*
 * target.c — what the weights are rounded towards: see solve.h.
 */
#include "quantize/rounding/solve.h"

/* Columns of the target are independent right-hand sides: one task solves some of them. */
#define COLUMNS 32

typedef struct target {
    const oq_hessian *h;
    const double *outputs; /* n x k, or NULL: the second side has inputs */
    const float *w;
    size_t n;
    double ridge;
    const double *u;
    float *out;
    double *b; /* for each worker: COLUMNS x k twice */
} target;

/* b = W^T cross + ridge W^T, of some columns, or cross + ridge W^T; `turned` is scratch of the same
 * size. */
static void fill_right_side(const target *t, size_t first, size_t m, double *b, double *turned) {
    const size_t k = t->h->k;
    for (size_t i = 0; i < k; i++)
        for (size_t c = 0; c < m; c++) {
            const double w = (double)t->w[i * t->n + first + c];
            turned[i * m + c] = w;
            b[c * k + i] = -t->ridge * w;
        }
    if (t->outputs == NULL)
        oq_linear_subtract(t->h->linear, m, k, k, turned, m, t->h->cross, k, b, k);
    for (size_t i = 0; i < m * k; i++)
        b[i] = (t->outputs != NULL ? t->outputs[first * k + i] : 0) - b[i];
}

static onq_code solve_columns(void *ctx, size_t task, unsigned worker, onq_error *err) {
    const target *t = ctx;
    const size_t k = t->h->k, first = task * COLUMNS;
    const size_t m = t->n - first < COLUMNS ? t->n - first : COLUMNS;
    double *b = t->b + worker * 2 * COLUMNS * k;
    (void)err;
    fill_right_side(t, first, m, b, b + COLUMNS * k);
    oq_linear_solve(t->h->linear, t->u, k, b, m);
    for (size_t c = 0; c < m; c++)
        for (size_t i = 0; i < k; i++)
            t->out[i * t->n + first + c] = (float)b[c * k + i];
    return ONQ_OK;
}

static onq_code find_target(const oq_hessian *h, const double *outputs, const float *w, size_t n,
                            double ridge, float *out, onq_error *err) {
    assert(h->cross != NULL);
    const size_t k = h->k, n_b = oq_pool_workers(h->pool) * 2 * COLUMNS * k;
    double *b = oq_calloc(h->alloc, n_b, sizeof *b), sum = 0;
    oq_matrix room = {0};
    onq_code rc = b != NULL ? oq_hessian_matrix(h, k * k, &room, err) : oq_fail_nomem(err);
    double *u = room.v;
    for (size_t i = 0; i < k; i++)
        sum += h->sum[i * k + i];
    target t = {.h = h,
                .outputs = outputs,
                .w = w,
                .n = n,
                .ridge = ridge * sum / (double)k,
                .u = u,
                .out = out,
                .b = b};
    if (rc == ONQ_OK && !(sum > 0 && isfinite(sum))) {
        memmove(out, w, k * n * sizeof *out); /* nothing was ever seen */
        goto done;
    }
    if (rc == ONQ_OK) {
        memcpy(u, h->sum, k * k * sizeof *u);
        for (size_t i = 0; i < k; i++)
            u[i * k + i] += t.ridge;
        if (!oq_linear_cholesky(h->linear, u, k))
            rc = oq_fail(err, ONQ_E_INVALID, "the products of a layer's inputs cannot be inverted");
    }
    if (rc == ONQ_OK)
        rc = oq_pool_run(h->pool, (n + COLUMNS - 1) / COLUMNS, solve_columns, &t, err);
done:
    oq_hessian_matrix_release(h, &room);
    oq_free(h->alloc, b, n_b * sizeof *b);
    return rc;
}

onq_code oq_round_target(const oq_hessian *h, const float *w, size_t n, double ridge, float *out,
                         onq_error *err) {
    assert(h->m == h->k);
    return find_target(h, NULL, w, n, ridge, out, err);
}

onq_code oq_round_target_outputs(const oq_hessian *h, const float *w, size_t first, size_t n,
                                 double ridge, float *out, onq_error *err) {
    assert(first + n <= h->m);
    return find_target(h, h->cross + first * h->k, w, n, ridge, out, err);
}
