/*
 * nb_gptq.c — gptq: integers by the Hessian of the inputs (quantize/rounding/solve.h).
 *
 * The options are the reference's (neural_compressor's gptq). It rounds its result once more with
 * ranges of its own; here the integers that were found are what is stored.
 */
#include "quantize/nbits_method/nb_fit.h"
#include "quantize/nbits_method/nb_learn.h"
#include "quantize/number/qweight.h"

#define RIDGE          0.3
#define ROWS_FOR_INPUT 4 /* that a ridge of RIDGE is for */

/* A weight as the solver takes it. */
typedef struct solving {
    const oq_nb_task *t;
    oq_nb_grid fit;
    float *w;     /* k x n */
    int32_t *q;   /* k x n, in the memory of w */
    float *scale; /* blocks x n */
    int32_t *zero;
    size_t cells, params;
} solving;

static void fit_column(void *ctx, const double *w, size_t n, size_t stride, float *scale,
                       int32_t *zero) {
    const solving *s = ctx;
    float z;
    oq_nb_fit(&s->fit, w, n, stride, NULL, scale, &z);
    *zero = (int32_t)z;
    if (*scale == 0.0f) /* nothing but zeros: any scale keeps them */
        *scale = 1.0f;
}

static onq_code load(const solving *s, oq_nb_panel *p, onq_error *err) {
    const oq_nb_task *t = s->t;
    for (uint64_t b = 0; b < t->blocks; b++)
        for (uint64_t n = 0; n < t->n; n += OQ_NB_TILE) {
            OQ_TRY(oq_nb_load(t, p, 0, b, n, err));
            for (size_t r = 0; r < p->rows; r++)
                memcpy(s->w + (b * t->block + r) * t->n + n, p->x + r * p->stride,
                       p->cols * sizeof(float));
        }
    if (t->from == NULL)
        oq_weight_drop(t->file, t->data, 0, t->data.n);
    return ONQ_OK;
}

/* One scale for all columns of a block, from the weights as they came. */
static void fit_together(const solving *s, double *block) {
    const oq_nb_task *t = s->t;
    for (uint64_t b = 0; b < t->blocks; b++) {
        const uint64_t first = b * t->block * t->n;
        const uint64_t rows = t->k - b * t->block < t->block ? t->k - b * t->block : t->block;
        for (uint64_t i = 0; i < rows * t->n; i++)
            block[i] = (double)s->w[first + i];
        float scale;
        int32_t zero;
        solving all = *s;
        fit_column(&all, block, (size_t)(rows * t->n), 1, &scale, &zero);
        for (uint64_t n = 0; n < t->n; n++) {
            s->scale[b * t->n + n] = scale;
            s->zero[b * t->n + n] = zero;
        }
    }
}

/* Few rows say little of how weights should differ: the fewer there are for each input, the nearer
 * the weights stay to what they were. */
static double ridge_of(const oq_hessian *h) {
    const double wanted = ROWS_FOR_INPUT * (double)h->k / (double)h->rows;
    return RIDGE * (wanted > 1 ? wanted : 1);
}

static onq_code solve(solving *s, const oq_nb_learned *l, onq_error *err) {
    const oq_nb_task *t = s->t;
    /* The weights that make of the quantized inputs what these make of the float ones. */
    if (l->hessian->cross != NULL)
        OQ_TRY(oq_round_target(l->hessian, s->w, (size_t)t->n, ridge_of(l->hessian), s->w, err));
    oq_round_grid grid = {.lo = 0,
                          .hi = (int32_t)((1u << t->bits) - 1),
                          .rows = (size_t)t->block,
                          .scale = s->scale,
                          .zero = s->zero};
    oq_round_job job = {.k = (size_t)t->k,
                        .n = (size_t)t->n,
                        .w = s->w,
                        .hessian = l->hessian,
                        .linear = l->linear,
                        .pool = l->pool,
                        .alloc = t->alloc,
                        .env = l->job->model->env,
                        .grid = &grid,
                        .damp = l->job->damp,
                        .act_order = l->job->act_order,
                        .out = s->q};
    if (l->job->one_scale) {
        const size_t cells = (size_t)(t->block * t->n);
        double *block = oq_alloc(t->alloc, cells * sizeof *block);
        OQ_TRY_ALLOC(block != NULL, err);
        fit_together(s, block);
        oq_free(t->alloc, block, cells * sizeof *block);
    } else {
        job.fit = fit_column;
        job.fit_ctx = s;
    }
    return oq_round(&job, err);
}

/* A panel is loaded for its place and size. */
static onq_code put(const solving *s, const oq_nb_sink *sink, oq_nb_panel *p, onq_error *err) {
    const oq_nb_task *t = s->t;
    for (uint64_t b = 0; b < t->blocks; b++)
        for (uint64_t n = 0; n < t->n; n += OQ_NB_TILE) {
            OQ_TRY(oq_nb_load(t, p, 0, b, n, err));
            for (size_t c = 0; c < p->cols; c++) {
                p->scale[c] = (double)s->scale[b * t->n + n + c];
                p->zero[c] = (float)s->zero[b * t->n + n + c];
                for (size_t r = 0; r < p->rows; r++)
                    p->q[r * OQ_NB_TILE + c] = (uint8_t)s->q[(b * t->block + r) * t->n + n + c];
            }
            OQ_TRY(oq_nb_put(sink, p, err));
        }
    if (t->from == NULL)
        oq_weight_drop(t->file, t->data, 0, t->data.n);
    return ONQ_OK;
}

onq_code oq_nb_gptq(const oq_nb_task *t, const oq_nb_sink *sink, onq_error *err) {
    const oq_nb_learned *l = t->learned;
    if (l == NULL || l->hessian->rows == 0) /* a batch, or a branch that no sample took */
        return oq_nb_default(t, sink, err);
    solving s = {.t = t,
                 .fit = {.real = t->real,
                         .bits = t->bits,
                         .symmetric = t->symmetric,
                         .shrink = 0.2,
                         .steps = l->job->search_range ? 80 : 0},
                 .cells = (size_t)(t->k * t->n),
                 .params = (size_t)(t->blocks * t->n)};
    oq_nb_panel p;
    OQ_TRY(oq_nb_panel_init(&p, t, err));
    s.w = oq_calloc(t->alloc, s.cells, sizeof *s.w);
    s.q = (int32_t *)(void *)s.w;
    s.scale = oq_calloc(t->alloc, s.params, sizeof *s.scale);
    s.zero = oq_calloc(t->alloc, s.params, sizeof *s.zero);
    onq_code rc = s.w != NULL && s.scale != NULL && s.zero != NULL
                      ? load(&s, &p, err)
                      : oq_fail_nomem(err);
    if (rc == ONQ_OK)
        rc = solve(&s, l, err);
    if (rc == ONQ_OK)
        rc = put(&s, sink, &p, err);
    if (rc != ONQ_OK && rc != ONQ_E_NOMEM)
        rc = oq_error_in(err, rc, "weight '%.*s'", OQ_STR(t->name));
    oq_free(t->alloc, s.w, s.cells * sizeof *s.w);
    oq_free(t->alloc, s.scale, s.params * sizeof *s.scale);
    oq_free(t->alloc, s.zero, s.params * sizeof *s.zero);
    oq_nb_panel_release(&p, t);
    return rc;
}
