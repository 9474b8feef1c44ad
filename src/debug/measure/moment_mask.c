/*
 * moment_mask.c — an activation with values of a mask, measured without them as well: they say
 * nothing of the others and outweigh them all.
 *
 * That takes the values of both models. When the float model shows that there is a mask, the
 * quantized model has run and its values are gone; so the sample is run again, and from then on what
 * the quantized model shows of this activation is kept as floats.
 */
#include "debug/measure/moment.h"

/* Not NaN, which no mask has. */
bool oq_mask_is(const oq_debug_act *a, float x) {
    return x <= a->mask_below || x >= (float)OQ_DEBUG_HUGE;
}

onq_code oq_mask_sift(oq_moments *w, const oq_debug_act *a, const float **x, const float **y,
                      uint64_t n, uint64_t *left, onq_error *err) {
    for (size_t k = 0; k < 2; k++)
        OQ_TRY(oq_moments_reserve(w, &w->sieve[k], (n + 1) * sizeof(float), err));
    float *to[2] = {w->sieve[0].p, w->sieve[1].p};
    uint64_t m = 0;
    for (uint64_t i = 0; i < n; i++) {
        const float p = (*x)[i], q = (*y)[i];
        to[0][m] = p;
        to[1][m] = q;
        m += !oq_mask_is(a, p) && !oq_mask_is(a, q);
    }
    *x = to[0];
    *y = to[1];
    *left = m;
    return ONQ_OK;
}

/* ---- what is kept ---- */

onq_code oq_mask_expect(const oq_moments *w, oq_moment *m, onq_error *err) {
    if (m->mask != NULL)
        return ONQ_OK;
    m->mask = oq_calloc(&w->d->env->alloc, 1, sizeof *m->mask);
    OQ_TRY_ALLOC(m->mask != NULL, err);
    m->mask->last = &m->mask->quantized;
    return ONQ_OK;
}

onq_code oq_mask_float(oq_moments *w, oq_moment *m, const float *x, uint64_t n, onq_error *err) {
    w->again |= m->mask == NULL;
    OQ_TRY(oq_mask_expect(w, m, err));
    OQ_TRY(oq_moments_reserve(w, &m->mask->flt, (n + 1) * sizeof *x, err));
    memcpy(m->mask->flt.p, x, n * sizeof *x);
    m->mask->float_n = n;
    return ONQ_OK;
}

/* A tensor is kept with its values after it, those of `pre` and `post`. */
static uint64_t kept_size(uint64_t n) {
    return sizeof(oq_moment_quantized) + 2 * n * sizeof(float);
}

onq_code oq_mask_keep(const oq_moments *w, oq_moment *m, const oq_moment_quantized *quantized,
                      onq_error *err) {
    if (m->mask == NULL)
        return ONQ_OK;
    oq_moment_quantized *copy = oq_alloc(&w->d->env->alloc, kept_size(quantized->n));
    OQ_TRY_ALLOC(copy != NULL, err);
    float *pre = (float *)(copy + 1), *post = pre + quantized->n;
    if (quantized->pre != NULL)
        memcpy(pre, quantized->pre, quantized->n * sizeof *pre);
    if (quantized->post != NULL)
        memcpy(post, quantized->post, quantized->n * sizeof *post);
    *copy = (oq_moment_quantized){quantized->pre != NULL ? pre : NULL,
                                  quantized->post != NULL ? post : NULL, quantized->n, NULL};
    *m->mask->last = copy;
    m->mask->last = &copy->next;
    return ONQ_OK;
}

void oq_mask_begin(const oq_moments *w, oq_moment *m) {
    oq_moment_mask *k = m->mask;
    if (k == NULL)
        return;
    while (k->quantized != NULL) {
        oq_moment_quantized *quantized = k->quantized;
        k->quantized = quantized->next;
        oq_free(&w->d->env->alloc, quantized, kept_size(quantized->n));
    }
    k->last = &k->quantized;
}

void oq_mask_release(const oq_moments *w, oq_moment *m) {
    if (m->mask == NULL)
        return;
    oq_mask_begin(w, m);
    oq_free(&w->d->env->alloc, m->mask->flt.p, m->mask->flt.cap);
    oq_free(&w->d->env->alloc, m->mask, sizeof *m->mask);
    m->mask = NULL;
}

/* ---- measuring ---- */

/* A plain pair: what comes out follows from what goes in. */
static onq_code measure_pair(oq_moments *w, const oq_debug_act *a, oq_moment *m, const float *x,
                             const oq_moment_quantized *quantized, onq_error *err) {
    oq_steps s;
    uint64_t n = quantized->n;
    const float *p = quantized->pre, *with = x != NULL ? x : p;
    oq_pass_float out = {0};
    if (!oq_moment_steps(a, &s))
        return ONQ_OK;
    OQ_TRY(oq_mask_sift(w, a, &with, &p, n, &n, err));
    OQ_TRY(oq_moments_reserve(w, &w->scratch, (n + 1) * oq_steps_bytes(&s), err));
    OQ_TRY(oq_pass_quantized_run(w->pool, p, w->scratch.p, n, &s, OQ_PASS_ALL, &m->rest_qdq, err));
    if (x == NULL)
        return ONQ_OK;
    OQ_TRY(oq_pass_float_run(w->pool, with, w->scratch.p, n, &s, &out, err));
    oq_sums_join(&m->rest_cross, &out.cross);
    return ONQ_OK;
}

static onq_code measure_two(oq_moments *w, const oq_debug_act *a, const float *x, const float *y,
                            uint64_t n, oq_sums *out, onq_error *err) {
    if (x == NULL)
        return ONQ_OK;
    OQ_TRY(oq_mask_sift(w, a, &x, &y, n, &n, err));
    return oq_pass_sums_run(w->pool, x, y, n, out, err);
}

onq_code oq_mask_measure(oq_moments *w, const oq_debug_act *a, oq_moment *m, const float *x,
                         const oq_moment_quantized *quantized, onq_error *err) {
    if (quantized->post == NULL)
        return measure_pair(w, a, m, x, quantized, err);
    OQ_TRY(measure_two(w, a, quantized->pre, quantized->post, quantized->n, &m->rest_qdq, err));
    return measure_two(w, a, x, quantized->post, quantized->n, &m->rest_cross, err);
}

onq_code oq_mask_end(oq_moments *w, const oq_debug_act *a, oq_moment *m, onq_error *err) {
    const oq_moment_mask *k = m->mask;
    if (k == NULL || m->masked == 0)
        return ONQ_OK;
    for (const oq_moment_quantized *quantized = k->quantized; quantized != NULL;
         quantized = quantized->next) {
        const bool meets = quantized == k->quantized && !m->repeated && k->float_n == quantized->n;
        OQ_TRY(oq_mask_measure(w, a, m, meets ? k->flt.p : NULL, quantized, err));
    }
    return ONQ_OK;
}
