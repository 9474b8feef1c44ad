/*
 * nb_range.c — each block gets the range that loses least: several are tried, and the scale of the
 * best, with a zero point that need not be an integer, then moves to where the error is least. A
 * weight counts as much as the inputs are large that it meets, where these are known.
 */
#include "quantize/nbits_method/nb_fit.h"

/* Ranges that are tried go down to this part of the whole. With 2 or 3 bits rather many small
 * weights are kept than a few large ones. */
#define SHRINK     0.6
#define SHRINK_FEW 0.3
#define STEPS      8
#define SPARE      7 /* of 15 integers */

typedef struct room {
    double *w, *power; /* a panel, and how much its rows count */
} room;

static void range_panel(const oq_nb_task *t, oq_nb_panel *p, void *ctx) {
    const room *m = ctx;
    const oq_nb_grid g = {.real = t->stored,
                          .bits = t->bits,
                          .symmetric = t->symmetric,
                          .real_zero = t->method->real_zero,
                          .centred = oq_nb_is_centred(t),
                          .shrink = t->bits < 4 ? SHRINK_FEW : SHRINK,
                          .steps = t->bits < 4 ? 2 * STEPS : STEPS,
                          .spare =
                              t->method->needs_samples || t->symmetric || t->bits != 4 ? 0 : SPARE};
    float scale[OQ_NB_TILE];
    for (size_t r = 0; r < p->rows; r++) {
        const uint64_t k = p->b * t->block + r;
        m->power[r] = t->mean == NULL ? 1 : k < t->k ? (double)t->mean[k] : 0;
        for (size_t c = 0; c < p->cols; c++)
            m->w[r * OQ_NB_TILE + c] = (double)p->x[r * p->stride + c];
    }
    oq_nb_fit(&g, m->w, p->rows, p->cols, OQ_NB_TILE, m->power, scale, p->zero);
    oq_nb_refit(&g, m->w, p->rows, p->cols, OQ_NB_TILE, m->power, scale, p->zero);
    for (size_t c = 0; c < p->cols; c++)
        p->scale[c] = (double)scale[c];
    for (size_t r = 0; r < p->rows; r++)
        for (size_t c = 0; c < p->cols; c++)
            p->q[r * OQ_NB_TILE + c] =
                (uint8_t)oq_nb_round(&g, m->w[r * OQ_NB_TILE + c], scale[c], p->zero[c]);
}

onq_code oq_nb_range(const oq_nb_task *t, const oq_nb_sink *s, onq_error *err) {
    OQ_SCRATCH(scratch, t->alloc);
    room m = {.w = OQ_NEW_ARRAY(&scratch, double, t->block *OQ_NB_TILE),
              .power = OQ_NEW_ARRAY(&scratch, double, t->block)};
    OQ_TRY_ALLOC(m.w != NULL && m.power != NULL, err);
    return oq_nb_panels(t, s, range_panel, &m, err);
}
