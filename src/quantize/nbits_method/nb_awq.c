/*
 * nb_awq.c — awq: channels with large inputs are scaled up before they are rounded, and each block
 * gets the range that loses least at the output.
 *
 * The factor of a channel is a power of how large its inputs are. Powers from 0 (nothing) to 0.95
 * are tried on some columns of the weights that read the tensor. The loss is that of a diagonal
 * Hessian: the square of what a weight loses times the mean square of its inputs. nb_range.c then
 * finds the ranges.
 */
#include "quantize/nbits_method/nb_fit.h"
#include "quantize/nbits_method/nb_learn.h"

#include "onnx/operators.h"
#include "prepare/channels/channels.h"

#define POWERS      20         /* that are tried, in steps of 1 / POWERS */
#define MAX_BLOCK   256        /* larger blocks count as several in the choice */
#define MAX_COLUMNS OQ_NB_TILE /* of a weight, for the choice of the power */

/* ---- the factors of a tensor's channels ---- */

typedef struct scaling {
    oq_nb_learn_job *job;
    oq_arena *arena;
    OQ_VEC(oq_node *) nodes;    /* that read a tensor that was looked at, */
    oq_strs weights;            /* what they read as a weight before it was scaled, */
    OQ_VEC(const float *) mean; /* and the mean squares of its channels as they read them */
} scaling;

/* What some columns of a reader lose with these factors. x: scratch for a block. */
static double loss_of(const oq_nb_grid *g, uint64_t block, const double *w,
                      const oq_channel_input *in, size_t cols, const double *factor, double *x) {
    double sum = 0;
    for (uint64_t b = 0; b < in->n; b += block) {
        const size_t rows = (size_t)(in->n - b < block ? in->n - b : block);
        double power[MAX_BLOCK];
        float step[MAX_COLUMNS], zero[MAX_COLUMNS];
        for (size_t r = 0; r < rows; r++) {
            const double f = factor[b + r];
            power[r] = in->power[b + r] / (f * f);
            for (size_t c = 0; c < cols; c++)
                x[r * cols + c] = w[(b + r) * cols + c] * f;
        }
        sum += oq_nb_fit(g, x, rows, cols, cols, power, step, zero);
    }
    return sum;
}

/* Some columns of a weight, k x cols. */
static onq_code take_columns(oq_arena *a, const oq_channel_reader *r, uint64_t k, double **out,
                             size_t *cols, onq_error *err) {
    const uint64_t n = r->columns;
    *cols = n < MAX_COLUMNS ? (size_t)n : MAX_COLUMNS;
    *out = OQ_NEW_ARRAY(a, double, k **cols + 1);
    OQ_TRY_ALLOC(*out != NULL, err);
    for (uint64_t i = 0; i < k; i++)
        for (size_t c = 0; c < *cols; c++) {
            const uint64_t column = c * n / *cols;
            (*out)[i * *cols + c] = (double)r->weight[r->turned ? column * k + i : i * n + column];
        }
    return ONQ_OK;
}

/* Factors for a power: around 1, as far apart as the inputs are. */
static void factors(const double *mean, uint64_t n, double power, double *out) {
    double low = INFINITY, high = 0;
    for (uint64_t c = 0; c < n; c++) {
        out[c] = fmax(pow(mean[c], power / 2), 1e-4);
        low = fmin(low, out[c]);
        high = fmax(high, out[c]);
    }
    const double middle = sqrt(low * high);
    for (uint64_t c = 0; c < n; c++)
        out[c] = middle > 0 && isfinite(middle) ? out[c] / middle : 1;
}

/* What the readers will meet, and what they are called now. */
static onq_code note_readers(scaling *s, const oq_channel_input *in, const double *scale,
                             onq_error *err) {
    float *now = OQ_NEW_ARRAY(&s->job->model->arena, float, in->n + 1);
    OQ_TRY_ALLOC(now != NULL, err);
    for (uint64_t c = 0; c < in->n; c++)
        now[c] = (float)(in->power[c] / (scale[c] * scale[c]));
    for (size_t i = 0; i < in->n_readers; i++) {
        oq_node *n = in->readers[i].node;
        if (!OQ_PUSH(s->arena, &s->nodes, n) || !OQ_PUSH(s->arena, &s->weights, n->input.v[1]) ||
            !OQ_PUSH(s->arena, &s->mean, now))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* The power with the least loss, of those that are tried. */
static onq_code choose(scaling *s, oq_arena *a, const oq_channel_input *in, double *scale,
                       int *chosen, onq_error *err) {
    const oq_nb_how *how = &s->job->config->how;
    const uint64_t block = how->block != 0 && how->block <= MAX_BLOCK ? how->block : MAX_BLOCK;
    const oq_nb_grid g = {.real = OQ_FLOAT, .bits = how->bits, .symmetric = how->symmetric};
    double *tried = OQ_NEW_ARRAY(a, double, in->n + 1), least = INFINITY;
    double **w = OQ_NEW_ARRAY(a, double *, in->n_readers + 1);
    size_t *cols = OQ_NEW_ARRAY(a, size_t, in->n_readers + 1);
    double *x = OQ_NEW_ARRAY(a, double, MAX_BLOCK *MAX_COLUMNS);
    OQ_TRY_ALLOC(tried != NULL && w != NULL && cols != NULL && x != NULL, err);
    for (size_t i = 0; i < in->n_readers; i++)
        OQ_TRY(take_columns(a, &in->readers[i], in->n, &w[i], &cols[i], err));
    for (int p = 0; p < POWERS; p++) {
        double loss = 0;
        factors(in->power, in->n, (double)p / POWERS, tried);
        for (size_t i = 0; i < in->n_readers; i++)
            loss += loss_of(&g, block, w[i], in, cols[i], tried, x);
        if (!(loss < least))
            continue;
        least = loss;
        *chosen = p;
        memcpy(scale, tried, in->n * sizeof *tried);
    }
    return ONQ_OK;
}

static onq_code find_scale(void *ctx, const oq_channel_input *in, double *scale, bool *worth,
                           onq_error *err) {
    scaling *s = ctx;
    int chosen = 0;
    s->job->n_layers += in->n_readers;
    s->job->n_few += in->rows < in->n ? in->n_readers : 0;
    OQ_SCRATCH(scratch, s->arena->alloc);
    for (uint64_t c = 0; c < in->n; c++)
        scale[c] = 1;
    onq_code rc = choose(s, &scratch, in, scale, &chosen, err);
    if (rc == ONQ_OK)
        rc = note_readers(s, in, scale, err);
    *worth = chosen > 0;
    return rc;
}

static onq_code scale(scaling *s, onq_error *err) {
    oq_nb_learn_job *job = s->job;
    const oq_graph *g = job->model->proto->graph;
    OQ_VEC(oq_channel_choice) all = {0};
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_product product = oq_op_traits_of(g->node.v[i]->op_type)->product;
        const oq_channel_choice choice = {.node = g->node.v[i], .in = true};
        if ((product == OQ_MATMUL || product == OQ_GEMM) && !OQ_PUSH(s->arena, &all, choice))
            return oq_fail_nomem(err);
    }
    oq_channels c = {.choices = all.v,
                     .n_choices = all.n,
                     .find = find_scale,
                     .find_ctx = s,
                     .see = {.model = job->model,
                             .engine = job->engine,
                             .source = job->source,
                             .session = job->session,
                             .slices = job->memory,
                             .what = "looking at the inputs of weights"}};
    OQ_TRY(oq_channels_apply(&c, err));
    job->n_scaled = c.n_tensors;
    job->n_folded = c.n_tensors_folded;
    for (size_t i = 0; i < s->nodes.n; i++) {
        const oq_str weight = s->nodes.v[i]->input.v[1];
        /* A scaled weight has a name of its own, and the bits that the old one was given. */
        const uint32_t share = oq_map_find(&job->config->share_map, s->weights.v[i]);
        if (!oq_map_put(&job->config->mean_map, weight, (uint32_t)job->config->means.n) ||
            !OQ_PUSH(&job->model->arena, &job->config->means, s->mean.v[i]) ||
            (share != OQ_MAP_NONE && !oq_map_put(&job->config->share_map, weight, share)))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

onq_code oq_nb_scale(oq_nb_learn_job *job, onq_error *err) {
    OQ_SCRATCH(scratch, &job->model->env->alloc);
    scaling s = {.job = job, .arena = &scratch};
    job->n_passes = 1;
    return scale(&s, err);
}
