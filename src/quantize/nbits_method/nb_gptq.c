/*
 * nb_gptq.c — gptq: integers by the Hessian of the inputs (quantize/rounding/solve.h).
 *
 * The options are the reference's (neural_compressor's gptq). It rounds its result once more with
 * ranges of its own; here the integers that were found are what is stored.
 */
#include "quantize/nbits_method/nb_fit.h"
#include "quantize/nbits_method/nb_learn.h"
#include "quantize/number/qweight.h"

#define RIDGE          1.0
#define ROWS_FOR_INPUT 4   /* that a ridge of RIDGE is for */
#define SHRINK         0.4 /* --mse: ranges of blocks that are tried: down to this part */
#define SHRINK_STEPS   40
#define PART           (32u << 20) /* bytes of weights solved at a time; more with many inputs */

/* Some columns of a weight as the solver takes them. */
typedef struct solving {
    const oq_nb_task *t;
    oq_nb_grid fit;
    uint64_t first, n;
    float *w;            /* k x n */
    int32_t *q;          /* k x n */
    float *scale, *zero; /* blocks x n */
    double *power;       /* the diagonal of the Hessian, or NULL */
} solving;

static void fit_columns(void *ctx, const double *w, size_t row, size_t n, size_t cols,
                        size_t stride, float *scale, float *zero) {
    const solving *s = ctx;
    oq_nb_fit(&s->fit, w, n, cols, stride, s->power != NULL ? s->power + row : NULL, scale, zero);
    for (size_t c = 0; c < cols; c++)
        if (scale[c] == 0.0f) { /* one value everywhere: any scale keeps it */
            scale[c] = 1.0f;
            zero[c] = s->fit.real_zero ? (float)-w[c] : zero[c];
        }
}

static onq_code load(const solving *s, oq_nb_panel *p, onq_error *err) {
    const oq_nb_task *t = s->t;
    for (uint64_t b = 0; b < t->blocks; b++)
        for (uint64_t n = 0; n < s->n; n += OQ_NB_TILE) {
            OQ_TRY(oq_nb_load(t, p, 0, b, s->first + n, err));
            const size_t cols = s->n - n < p->cols ? (size_t)(s->n - n) : p->cols;
            const size_t rows =
                t->k - b * t->block < p->rows ? (size_t)(t->k - b * t->block) : p->rows;
            for (size_t r = 0; r < rows; r++)
                memcpy(s->w + (b * t->block + r) * s->n + n, p->x + r * p->stride,
                       cols * sizeof(float));
        }
    if (t->from == NULL)
        oq_weight_drop(t->file, t->data, 0, t->data.n);
    return ONQ_OK;
}

/* One scale for all columns of a block, from the weights as they came. */
static void fit_together(const solving *s, double *block) {
    const oq_nb_task *t = s->t;
    for (uint64_t b = 0; b < t->blocks; b++) {
        const uint64_t first = b * t->block * s->n;
        const uint64_t rows = t->k - b * t->block < t->block ? t->k - b * t->block : t->block;
        for (uint64_t i = 0; i < rows * s->n; i++)
            block[i] = (double)s->w[first + i];
        solving all = *s;
        all.power = NULL;
        float scale, zero;
        fit_columns(&all, block, 0, (size_t)(rows * s->n), 1, 1, &scale, &zero);
        for (uint64_t n = 0; n < s->n; n++) {
            s->scale[b * s->n + n] = scale;
            s->zero[b * s->n + n] = zero;
        }
    }
}

/* Few rows say little of how weights should differ: the fewer there are for each input, the nearer
 * the weights stay to what they were. */
static double ridge_of(const oq_hessian *h) {
    const double wanted = ROWS_FOR_INPUT * (double)h->k / (double)h->rows;
    return RIDGE * (wanted > 1 ? wanted : 1);
}

static onq_code solve(solving *s, onq_error *err) {
    const oq_nb_task *t = s->t;
    const oq_nb_learned *l = t->learned;
    /* The weights that make of the quantized inputs what these make of the float ones. */
    if (l->outputs)
        OQ_TRY(oq_round_target_outputs(l->hessian, s->w, (size_t)s->first, (size_t)s->n,
                                       ridge_of(l->hessian), s->w, err));
    else if (l->hessian->cross != NULL)
        OQ_TRY(oq_round_target(l->hessian, s->w, (size_t)s->n, ridge_of(l->hessian), s->w, err));
    oq_round_grid grid = {.lo = 0,
                          .hi = (int32_t)((1u << t->bits) - 1),
                          .rows = (size_t)t->block,
                          .scale = s->scale,
                          .zero = s->zero,
                          .real = t->stored,
                          .real_zero = s->fit.real_zero};
    oq_round_job job = {.k = (size_t)t->k,
                        .n = (size_t)s->n,
                        .w = s->w,
                        .hessian = l->hessian,
                        .factor = l->factor,
                        .linear = l->linear,
                        .pool = l->pool,
                        .alloc = t->alloc,
                        .env = l->job->model->env,
                        .grid = &grid,
                        .damp = l->job->damp,
                        .act_order = l->job->act_order,
                        .sweeps = l->job->sweeps,
                        .refit = true,
                        .out = s->q};
    if (l->job->one_scale) {
        OQ_SCRATCH(scratch, t->alloc);
        double *block = OQ_NEW_ARRAY(&scratch, double, t->block * s->n);
        OQ_TRY_ALLOC(block != NULL, err);
        fit_together(s, block);
    } else {
        job.fit = fit_columns;
        job.fit_ctx = s;
    }
    /* After the target, which needs a matrix of that size for itself. */
    if (l->factor->u == NULL)
        OQ_TRY(oq_round_factor_init(l->factor, l->hessian, l->job->model->env, l->job->damp,
                                    l->job->act_order, err));
    return oq_round(&job, err);
}

/* A panel is loaded for its place and size. */
static onq_code put(const solving *s, const oq_nb_sink *sink, oq_nb_panel *p, onq_error *err) {
    const oq_nb_task *t = s->t;
    for (uint64_t b = 0; b < t->blocks; b++)
        for (uint64_t n = 0; n < s->n; n += OQ_NB_TILE) {
            OQ_TRY(oq_nb_load(t, p, 0, b, s->first + n, err));
            for (size_t c = 0; c < p->cols; c++) {
                p->scale[c] = (double)s->scale[b * s->n + n + c];
                p->zero[c] = s->zero[b * s->n + n + c];
                for (size_t r = 0; r < p->rows && b * t->block + r < t->k; r++)
                    p->q[r * OQ_NB_TILE + c] = (uint8_t)s->q[(b * t->block + r) * s->n + n + c];
            }
            OQ_TRY(oq_nb_put(sink, p, err));
        }
    if (t->from == NULL)
        oq_weight_drop(t->file, t->data, 0, t->data.n);
    return ONQ_OK;
}

/* Columns do not depend on each other: a large weight is solved in parts, unless it has one scale
 * for all columns. */
static onq_code solve_parts(solving *s, const oq_nb_sink *sink, oq_nb_panel *p, onq_error *err) {
    const oq_nb_task *t = s->t;
    const oq_nb_learned *l = t->learned;
    const uint64_t quarter = 2 * t->k * t->k; /* bytes of a quarter of the Hessian */
    const uint64_t part = quarter > PART ? quarter : PART;
    const uint64_t fit = part / sizeof(float) / t->k / OQ_NB_TILE * OQ_NB_TILE;
    const uint64_t most = l->job->one_scale ? t->n : fit > OQ_NB_TILE ? fit : OQ_NB_TILE;
    const uint64_t cols = t->n < most ? t->n : most;
    OQ_SCRATCH(scratch, t->alloc);
    s->w = OQ_NEW_ARRAY(&scratch, float, t->k *cols);
    s->q = OQ_NEW_ARRAY(&scratch, int32_t, t->k * cols);
    s->scale = OQ_NEW_ARRAY(&scratch, float, t->blocks *cols);
    s->zero = OQ_NEW_ARRAY(&scratch, float, t->blocks *cols);
    s->power = OQ_NEW_ARRAY(&scratch, double, t->k);
    OQ_TRY_ALLOC(s->w != NULL && s->q != NULL && s->scale != NULL && s->zero != NULL &&
                     s->power != NULL,
                 err);
    for (uint64_t i = 0; i < t->k; i++)
        s->power[i] = l->hessian->sum[i * t->k + i];
    for (s->first = 0; s->first < t->n; s->first += cols) {
        s->n = t->n - s->first < cols ? t->n - s->first : cols;
        OQ_TRY(load(s, p, err));
        OQ_TRY(solve(s, err));
        OQ_TRY(put(s, sink, p, err));
    }
    return ONQ_OK;
}

onq_code oq_nb_gptq(const oq_nb_task *t, const oq_nb_sink *sink, onq_error *err) {
    const oq_nb_learned *l = t->learned;
    if (l == NULL || l->hessian->rows == 0) /* a batch, or a branch that no sample took */
        return t->method->real_zero ? oq_nb_hqq(t, sink, err) : oq_nb_default(t, sink, err);
    solving s = {.t = t,
                 .fit = {.real = t->stored,
                         .bits = t->bits,
                         .symmetric = t->symmetric,
                         .real_zero = t->method->real_zero,
                         .centred = oq_nb_is_centred(t),
                         .shrink = SHRINK,
                         .steps = l->job->search_range || t->bits < 4 ? SHRINK_STEPS : 0}};
    oq_nb_panel p;
    OQ_TRY(oq_nb_panel_init(&p, t, err));
    onq_code rc = solve_parts(&s, sink, &p, err);
    if (rc != ONQ_OK && rc != ONQ_E_NOMEM)
        rc = oq_error_in(err, rc, "weight '%.*s'", OQ_STR(t->name));
    oq_nb_panel_release(&p, t);
    return rc;
}
