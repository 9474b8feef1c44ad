/*
 * nb_hqq.c — half-quadratic quantization: the scale of a block comes from its range, its zero point
 * is moved, and not rounded, until the weights come out best in a norm that forgives outliers. The
 * reference's HQQWeightOnlyQuantizer, which needs torch.
 *
 * A step rounds with the zero point so far, takes from each error what is large (shrink), and sets
 * the zero point to the mean of what is left. The reference takes steps until the mean error of the
 * whole weight no longer falls. How many that is is found first, on all panels of a small weight
 * and on some of a large one; then every block takes that many.
 */
#include "quantize/nbits/nb_panel.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#define MAGIC  12582912.0f
#define STEPS  20
#define NORM   0.7f
#define BETA   10.0 /* grows by KAPPA with every step */
#define KAPPA  1.01
#define LARGE  2e4f
#define PANELS 256 /* that the number of steps is found on */

/* The columns of a panel; factor is 1 / scale. */
typedef struct columns {
    float factor[OQ_NB_TILE], zero[OQ_NB_TILE], sum[OQ_NB_TILE], error[OQ_NB_TILE];
    float most;
} columns;

typedef struct hqq {
    unsigned steps;
    double beta, error; /* of the panels that are looked at, in the step that is taken */
    columns *kept;      /* of the panel at hand */
} hqq;

OQ_NB_INLINE void begin(const oq_nb_task *t, const oq_nb_panel *p, columns *k) {
    float lo[OQ_NB_TILE], hi[OQ_NB_TILE];
    k->most = (float)((1u << t->bits) - 1);
    for (size_t c = 0; c < p->cols; c++)
        lo[c] = hi[c] = p->x[c];
    for (size_t r = 1; r < p->rows; r++)
        for (size_t c = 0; c < p->cols; c++) {
            const float v = p->x[r * p->stride + c];
            lo[c] = v < lo[c] ? v : lo[c];
            hi[c] = v > hi[c] ? v : hi[c];
        }
    for (size_t c = 0; c < p->cols; c++) {
        const float f = hi[c] > lo[c] ? k->most / (hi[c] - lo[c]) : 1.0f;
        k->factor[c] = f < LARGE ? f : LARGE;
        k->zero[c] = nearbyintf(-lo[c] * k->factor[c]);
    }
}

OQ_NB_INLINE void round_row(const columns *k, const float *restrict x, size_t cols,
                            float *restrict q) {
    for (size_t c = 0; c < cols; c++) {
        float v = x[c] * k->factor[c] + k->zero[c];
        v = v > 0.0f ? v : 0.0f;
        v = v < k->most ? v : k->most;
        q[c] = (v + MAGIC) - MAGIC;
    }
}

/* What is left of an error when the small part is taken away. Errors below `least` leave
 * nothing. */
static float shrink(float e, double beta) {
    const float size = fabsf(e);
    const float left = size - (float)(1.0 / beta) * powf(size + 1e-8f, NORM - 1.0f);
    return left > 0.0f ? copysignf(left, e) : 0.0f;
}

static void shrink_row(const float *e, const float *factor, size_t cols, float least, double beta,
                       float *sum) {
    for (size_t c = 0; c < cols; c++)
        if (fabsf(e[c]) >= least)
            sum[c] += shrink(e[c], beta) * factor[c];
}

OQ_NB_INLINE void step(const oq_nb_panel *p, columns *k, double beta) {
    float q[OQ_NB_TILE], e[OQ_NB_TILE];
    /* |e| = |e|^-0.3 / beta there; a little below it, for what is added to |e|. */
    const float least = (float)(0.99 * pow(1.0 / beta, 1.0 / (2.0 - (double)NORM)));
    for (size_t c = 0; c < p->cols; c++)
        k->sum[c] = k->error[c] = 0.0f;
    for (size_t r = 0; r < p->rows; r++) {
        const float *restrict x = p->x + r * p->stride;
        uint32_t large = 0;
        round_row(k, x, p->cols, q);
        for (size_t c = 0; c < p->cols; c++) {
            e[c] = x[c] - (q[c] - k->zero[c]) / k->factor[c];
            k->error[c] += fabsf(e[c]);
            k->sum[c] += q[c] - x[c] * k->factor[c];
        }
        for (size_t c = 0; c < p->cols; c++)
            large |= (uint32_t)(fabsf(e[c]) >= least);
        if (large != 0)
            shrink_row(e, k->factor, p->cols, least, beta, k->sum);
    }
    for (size_t c = 0; c < p->cols; c++)
        k->zero[c] = k->sum[c] / (float)p->rows;
}

/* One step of a panel whose columns are kept; the first begins with the range. */
OQ_NB_INLINE void measure_body(const oq_nb_task *t, oq_nb_panel *p, void *ctx) {
    hqq *h = ctx;
    if (h->steps == 0)
        begin(t, p, h->kept);
    step(p, h->kept, h->beta);
    for (size_t c = 0; c < p->cols; c++)
        h->error += (double)h->kept->error[c];
}

OQ_NB_PANEL(measure, measure_body)

/* A step of every panel that is looked at. */
static onq_code step_some(const oq_nb_task *t, hqq *h, columns *kept, oq_nb_panel *p,
                          onq_error *err) {
    const uint64_t tiles = t->n / OQ_NB_TILE + (t->n % OQ_NB_TILE != 0);
    const uint64_t all = t->batch * t->blocks * tiles, every = all / PANELS + 1;
    h->error = 0.0;
    for (uint64_t i = 0; i < all; i += every) {
        OQ_TRY(oq_nb_load(t, p, i / tiles / t->blocks, i / tiles % t->blocks,
                          i % tiles * OQ_NB_TILE, err));
        h->kept = &kept[i / every];
        OQ_NB_BEST(measure)(t, p, h);
    }
    return ONQ_OK;
}

static onq_code find_steps(const oq_nb_task *t, hqq *h, onq_error *err) {
    oq_nb_panel p;
    const size_t bytes = (PANELS + 1) * sizeof(columns);
    columns *kept = oq_alloc(t->alloc, bytes);
    double best = INFINITY;
    OQ_TRY_ALLOC(kept != NULL, err);
    onq_code rc = oq_nb_panel_init(&p, t, err);
    h->beta = BETA;
    for (bool better = true; rc == ONQ_OK && better && h->steps < STEPS; h->steps++) {
        rc = step_some(t, h, kept, &p, err);
        better = h->error < best;
        best = h->error;
        h->beta *= KAPPA;
    }
    oq_nb_panel_release(&p, t);
    oq_free(t->alloc, kept, bytes);
    return rc;
}

OQ_NB_INLINE void hqq_body(const oq_nb_task *t, oq_nb_panel *p, void *ctx) {
    const hqq *h = ctx;
    columns k;
    double beta = BETA;
    begin(t, p, &k);
    for (unsigned i = 0; i < h->steps; i++, beta *= KAPPA)
        step(p, &k, beta);
    for (size_t r = 0; r < p->rows; r++) {
        float q[OQ_NB_TILE];
        round_row(&k, p->x + r * p->stride, p->cols, q);
        for (size_t c = 0; c < p->cols; c++)
            p->q[r * OQ_NB_TILE + c] = (uint8_t)(int32_t)q[c];
    }
    for (size_t c = 0; c < p->cols; c++) {
        p->scale[c] = (double)(1.0f / k.factor[c]);
        p->zero[c] = k.zero[c];
    }
}

OQ_NB_PANEL(hqq, hqq_body)

onq_code oq_nb_hqq(const oq_nb_task *t, const oq_nb_sink *s, onq_error *err) {
    hqq h = {0};
    OQ_TRY(find_steps(t, &h, err));
    return oq_nb_panels(t, s, OQ_NB_BEST(hqq), &h, err);
}
