/*
 * moment.c — see moment.h.
 */
#include "debug/measure/moment.h"

#include "debug/weights/weights.h"
#include "onnx/tensor.h"

#define MAX_HIST 16384 /* values of one tensor and sample that go into a histogram */

/* ---- buffers ---- */

onq_code oq_moments_reserve(const oq_moments *w, oq_moment_buffer *b, uint64_t size,
                            onq_error *err) {
    if (size <= b->cap)
        return ONQ_OK;
    void *more = oq_resize(&w->d->env->alloc, b->p, b->cap, size);
    OQ_TRY_ALLOC(more != NULL, err);
    *b = (oq_moment_buffer){more, size};
    return ONQ_OK;
}

static void free_buffer(const oq_moments *w, oq_moment_buffer *b) {
    oq_free(&w->d->env->alloc, b->p, b->cap);
    *b = (oq_moment_buffer){0};
}

/* ---- values ---- */

/* The datum as float32: itself, or converted. */
onq_code oq_moments_floats(oq_moments *w, const oq_datum *t, const float **out, onq_error *err) {
    if (t->dtype == OQ_FLOAT) {
        *out = t->data;
        return ONQ_OK;
    }
    OQ_TRY(oq_moments_reserve(w, &w->scratch, (t->count + 1) * sizeof(float), err));
    oq_datum_to_floats(t, w->scratch.p);
    *out = w->scratch.p;
    return ONQ_OK;
}

/* An integer tensor with the parameters of its activation. */
static onq_code dequantize(oq_moments *w, const oq_debug_act *a, const oq_datum *t,
                           const float **out, onq_error *err) {
    OQ_TRY(oq_moments_reserve(w, &w->scratch, (t->count + 1) * sizeof(float), err));
    float *v = w->scratch.p;
    const float scale = a->scale[0];
    const int32_t zero = a->zero[0];
    if (t->dtype == OQ_UINT8 || t->dtype == OQ_INT8) {
        const uint8_t *q = t->data;
        const int32_t flip = t->dtype == OQ_INT8 ? 128 : 0; /* two's complement without a branch */
#pragma omp simd
        for (uint64_t i = 0; i < t->count; i++)
            v[i] = (float)(((q[i] ^ flip) - flip) - zero) * scale;
    } else {
        for (uint64_t i = 0; i < t->count; i++)
            v[i] = (float)(oq_raw_get_int(t->dtype, t->data, i) - zero) * scale;
    }
    *out = v;
    return ONQ_OK;
}

/* ---- what a quantizer does to float values ---- */

bool oq_moment_steps(const oq_debug_act *a, oq_steps *s) {
    double lo = 0, hi = 0;
    if (a->n_params != 1 || !oq_debug_limits(a->type, &lo, &hi) || hi - lo > 65535 ||
        oq_dtype_find(a->type)->cls == OQ_CLASS_REAL)
        return false;
    const float scale = a->scale[0];
    *s = (oq_steps){scale, (float)(lo - a->zero[0]), (float)(hi - a->zero[0]),
                    (float)(lo - a->zero[0] - 1) * scale, (float)(hi - a->zero[0] + 1) * scale};
    return true;
}

/* A pair of one scale is computed here as the runtime computes it: what comes out need not be
 * observed. */
static bool is_computed(const oq_debug_act *a, oq_steps *s) {
    return a->plain_pair && oq_moment_steps(a, s);
}

/* The float model's values (without it, those before quantization): range, clipping, what the
 * quantizer does to them; and how they compare with what was `kept` narrow (or NULL). */
static onq_code add_float(oq_moments *w, const oq_debug_act *a, oq_moment *m, const float *x,
                          const void *kept, uint64_t n, onq_error *err) {
    oq_steps s;
    const bool known = oq_moment_steps(a, &s);
    oq_pass_float out = {.lo = m->flt.lo, .hi = m->flt.hi};
    OQ_TRY(oq_pass_float_run(w->pool, x, kept, n, known ? &s : NULL, &out, err));
    oq_sums_join(&m->cross, &out.cross);
    if (oq_mask_is(a, out.lo) || oq_mask_is(a, out.hi)) {
        const float *same = x;
        uint64_t left = 0;
        OQ_TRY(oq_mask_sift(w, a, &x, &same, n, &left, err));
        m->masked += n - left;
        n = left;
        out = (oq_pass_float){.lo = m->flt.lo, .hi = m->flt.hi};
        OQ_TRY(oq_pass_float_run(w->pool, x, NULL, n, known ? &s : NULL, &out, err));
    }
    m->flt.lo = out.lo;
    m->flt.hi = out.hi;
    m->seen += n;
    m->flt.clipped += out.clipped;
    if (known)
        oq_sums_join(&m->flt.local, &out.local);
    return ONQ_OK;
}

/* ---- histograms ---- */

/* Bins of this lane, once the range is set. */
static onq_code make_bins(const oq_moments *w, const oq_debug_act *a, oq_moment *m,
                          onq_error *err) {
    const onq_allocator *alloc = &w->d->env->alloc;
    if (a->hist.flt == NULL || m->bins != NULL)
        return ONQ_OK;
    m->bins = oq_calloc(alloc, 1, sizeof *m->bins);
    return m->bins != NULL ? ONQ_OK : oq_fail_nomem(err);
}

/* What waited goes into the bins, once the range is set. */
static onq_code hist_waiting(const oq_moments *w, const oq_debug_act *a, oq_moment *m,
                             onq_error *err) {
    OQ_TRY(make_bins(w, a, m, err));
    if (m->bins == NULL)
        return ONQ_OK;
    oq_debug_hist_add(&a->hist, m->bins->quantized, m->waiting.p, m->waiting_n, 1);
    m->waiting_n = 0;
    free_buffer(w, &m->waiting);
    return ONQ_OK;
}

/* The float model's values. The first sample sets the range: what can be represented and what it
 * has. */
static onq_code hist_float(oq_moments *w, oq_debug_act *a, oq_moment *m, const float *x, uint64_t n,
                           onq_error *err) {
    oq_debug *d = w->d;
    if (!d->histograms)
        return ONQ_OK;
    if (a->hist.flt == NULL) {
        assert(w->alone);
        float lo = INFINITY, hi = -INFINITY;
        oq_span_add(&lo, &hi, x, n);
        if (m->masked > 0) { /* what is not the mask's */
            lo = m->flt.lo;
            hi = m->flt.hi;
        } else if (a->n_params == 1) {
            lo = fminf(lo, (float)a->q_lo);
            hi = fmaxf(hi, (float)a->q_hi);
        }
        const float room = (hi - lo) / 8; /* for what later samples bring */
        OQ_TRY(oq_debug_hist_make(&d->arena, &a->hist, lo - room, hi + room, err));
    }
    OQ_TRY(hist_waiting(w, a, m, err));
    oq_debug_hist_add(&a->hist, m->bins->flt, x, n, n / MAX_HIST + 1);
    return ONQ_OK;
}

/* Every so many values after quantization; with `s`, of those before it. */
static onq_code hist_quantized(const oq_moments *w, const oq_debug_act *a, oq_moment *m,
                               const float *y, uint64_t n, const oq_steps *s, onq_error *err) {
    const uint64_t step = n / MAX_HIST + 1;
    if (!w->d->histograms)
        return ONQ_OK;
    OQ_TRY(oq_moments_reserve(w, &m->waiting, (m->waiting_n + n / step + 1) * sizeof(float), err));
    float *to = m->waiting.p;
    for (uint64_t i = 0; i < n; i += step)
        to[m->waiting_n++] = s != NULL ? oq_steps_apply(s, y[i]) : y[i];
    assert(m->waiting_n * sizeof *to <= m->waiting.cap);
    return hist_waiting(w, a, m, err);
}

bool oq_moments_pending(const oq_debug *d) {
    for (size_t i = 0; d->histograms && i < d->acts.n; i++)
        if (d->acts.v[i].hist.flt == NULL && d->acts.v[i].trouble == NULL)
            return true;
    return false;
}

/* ---- the quantized model ---- */

/* Room for the first tensor after quantization, if the float model has one to compare it with. */
static onq_code keep_after(oq_moments *w, const oq_debug_act *a, oq_moment *m, uint64_t n,
                           size_t width, void **to, onq_error *err) {
    *to = NULL;
    if (a->flt.p == NULL || m->has_after)
        return ONQ_OK;
    OQ_TRY(oq_moments_reserve(w, &m->after, (n + 1) * width, err));
    m->after_n = n;
    m->has_after = true;
    m->narrow = width < sizeof(float);
    *to = m->after.p;
    return ONQ_OK;
}

/* A mask that the float model will show, or, without it, has been seen. */
static onq_code see_mask(oq_moments *w, const oq_debug_act *a, oq_moment *m,
                         const oq_moment_quantized *quantized, onq_error *err) {
    if (a->flt.p != NULL)
        return oq_mask_keep(w, m, quantized, err);
    return m->masked > 0 ? oq_mask_measure(w, a, m, NULL, quantized, err) : ONQ_OK;
}

static onq_code see_pair(oq_moments *w, const oq_debug_act *a, oq_moment *m, const float *p,
                         uint64_t n, const oq_steps *s, onq_error *err) {
    /* All sums are wanted where they may be all there is. */
    const oq_pass_want want = a->flt.p != NULL && a->always ? OQ_PASS_NOISE : OQ_PASS_ALL;
    void *to = NULL;
    OQ_TRY(keep_after(w, a, m, n, oq_steps_bytes(s), &to, err));
    OQ_TRY(oq_pass_quantized_run(w->pool, p, to, n, s, want, &m->qdq, err));
    OQ_TRY(hist_quantized(w, a, m, p, n, s, err));
    return see_mask(w, a, m, &(oq_moment_quantized){.pre = p, .n = n}, err);
}

static onq_code keep_pre(oq_moments *w, oq_moment *m, const float *p, uint64_t n, onq_error *err) {
    if (m->pre.p == NULL) {
        m->pre = w->spare;
        w->spare = (oq_moment_buffer){0};
    }
    OQ_TRY(oq_moments_reserve(w, &m->pre, (n + 1) * sizeof *p, err));
    memcpy(m->pre.p, p, n * sizeof *p);
    m->pre_n = n;
    m->has_pre = true;
    return ONQ_OK;
}

/* The values before quantization are not needed again before the next sample. */
static void give_back_pre(oq_moments *w, oq_moment *m) {
    if (w->spare.cap < m->pre.cap) {
        free_buffer(w, &w->spare);
        w->spare = m->pre;
        m->pre = (oq_moment_buffer){0};
    }
    free_buffer(w, &m->pre);
    m->has_pre = false;
}

static onq_code see_pre(oq_moments *w, oq_debug_act *a, oq_moment *m, const oq_datum *t,
                        onq_error *err) {
    const float *p = NULL;
    oq_steps s;
    OQ_TRY(oq_moments_floats(w, t, &p, err));
    if (a->flt.p == NULL) {
        OQ_TRY(add_float(w, a, m, p, NULL, t->count, err));
        OQ_TRY(hist_float(w, a, m, p, t->count, err));
    }
    return is_computed(a, &s) ? see_pair(w, a, m, p, t->count, &s, err)
                              : keep_pre(w, m, p, t->count, err);
}

/* True if the integers of a tensor can be kept as they are. */
static bool is_narrow(const oq_debug_act *a, const oq_datum *t) {
    oq_steps s;
    return a->integer && t->dtype == a->type && oq_moment_steps(a, &s) &&
           (t->dtype == OQ_UINT8 || t->dtype == OQ_INT8 || t->dtype == OQ_UINT16 ||
            t->dtype == OQ_INT16);
}

/* Less the least of the type, which turns the sign bit around. */
static void copy_narrow(void *to, const oq_datum *t) {
    if (t->dtype == OQ_INT8)
        for (uint64_t i = 0; i < t->count; i++)
            ((uint8_t *)to)[i] = ((const uint8_t *)t->data)[i] ^ 0x80;
    else if (t->dtype == OQ_INT16)
        for (uint64_t i = 0; i < t->count; i++)
            ((uint16_t *)to)[i] = ((const uint16_t *)t->data)[i] ^ 0x8000;
    else
        memcpy(to, t->data, t->size_bytes);
}

static onq_code see_post(oq_moments *w, const oq_debug_act *a, oq_moment *m, const oq_datum *t,
                         onq_error *err) {
    const bool narrow = is_narrow(a, t);
    const uint64_t n = t->count;
    const float *y = NULL;
    void *to = NULL;
    OQ_TRY(
        keep_after(w, a, m, n, narrow ? oq_dtype_find(t->dtype)->bits / 8 : sizeof *y, &to, err));
    if (narrow && to != NULL)
        copy_narrow(to, t);
    if (narrow && !m->has_pre && m->mask == NULL && !w->d->histograms)
        return ONQ_OK;
    OQ_TRY(a->integer ? dequantize(w, a, t, &y, err) : oq_moments_floats(w, t, &y, err));
    if (!narrow && to != NULL)
        memcpy(to, y, n * sizeof *y);
    if (m->has_pre && m->pre_n == n)
        OQ_TRY(oq_pass_sums_run(w->pool, m->pre.p, y, n, &m->qdq, err));
    else if (m->has_pre)
        m->trouble = "before and after quantization have different sizes";
    const bool both = m->has_pre && m->pre_n == n;
    OQ_TRY(see_mask(w, a, m, &(oq_moment_quantized){both ? m->pre.p : NULL, y, n, NULL}, err));
    if (m->has_pre)
        give_back_pre(w, m);
    return hist_quantized(w, a, m, y, n, NULL, err);
}

/* ---- the float model ---- */

static onq_code see_float(oq_moments *w, oq_debug_act *a, oq_moment *m, const oq_datum *t,
                          onq_error *err) {
    const float *x = NULL;
    const uint64_t n = t->count;
    OQ_TRY(oq_moments_floats(w, t, &x, err));
    m->repeated |= m->has_float;
    m->has_float = true;
    m->differs |= m->has_after && !m->repeated && m->after_n != n;
    const bool meets = m->has_after && !m->repeated && m->after_n == n;
    OQ_TRY(add_float(w, a, m, x, meets && m->narrow ? m->after.p : NULL, n, err));
    if (meets && !m->narrow)
        OQ_TRY(oq_pass_sums_run(w->pool, x, m->after.p, n, &m->cross, err));
    if (m->masked > 0)
        OQ_TRY(oq_mask_float(w, m, x, n, err));
    return hist_float(w, a, m, x, n, err);
}

onq_code oq_moments_see(oq_moments *w, const oq_moment_use *uses, const oq_datum *t,
                        onq_error *err) {
    for (const oq_moment_use *u = uses; u != NULL; u = u->next) {
        assert(u->act < w->n);
        oq_debug_act *a = &w->d->acts.v[u->act];
        oq_moment *m = &w->v[u->act];
        if (!oq_dtype_is_float(t->dtype) && !(u->role == OQ_MOMENT_POST && a->integer))
            m->trouble = "it is not a float tensor";
        else if (u->role == OQ_MOMENT_FLOAT)
            OQ_TRY(see_float(w, a, m, t, err));
        else if (u->role == OQ_MOMENT_PRE)
            OQ_TRY(see_pre(w, a, m, t, err));
        else
            OQ_TRY(see_post(w, a, m, t, err));
    }
    return ONQ_OK;
}

/* ---- what is watched ---- */

static onq_code watch_name(oq_debug *d, oq_watch *w, oq_str name, uint32_t act, oq_moment_role r,
                           onq_error *err) {
    oq_arena *a = &d->arena;
    uint32_t at = oq_map_find(&w->map, name);
    if (at == OQ_MAP_NONE) {
        at = (uint32_t)w->names.n;
        if (!oq_map_put(&w->map, name, at) || !OQ_PUSH(a, &w->names, name) ||
            !OQ_PUSH(a, &w->uses, NULL))
            return oq_fail_nomem(err);
    }
    oq_moment_use *u = OQ_NEW(a, oq_moment_use);
    OQ_TRY_ALLOC(u != NULL, err);
    *u = (oq_moment_use){act, r, w->uses.v[at]};
    w->uses.v[at] = u;
    return ONQ_OK;
}

onq_code oq_moments_watch(oq_debug *d, oq_watch *flt, oq_watch *quantized, onq_error *err) {
    oq_map_init(&flt->map, &d->arena);
    oq_map_init(&quantized->map, &d->arena);
    for (uint32_t i = 0; i < d->acts.n; i++) {
        const oq_debug_act *a = &d->acts.v[i];
        if (a->flt.p != NULL)
            OQ_TRY(watch_name(d, flt, a->flt, i, OQ_MOMENT_FLOAT, err));
        if (a->pre.p != NULL)
            OQ_TRY(watch_name(d, quantized, a->pre, i, OQ_MOMENT_PRE, err));
        oq_steps s;
        if (!is_computed(a, &s))
            OQ_TRY(watch_name(d, quantized, a->post, i, OQ_MOMENT_POST, err));
    }
    return ONQ_OK;
}

/* ---- a lane ---- */

onq_code oq_moments_init(oq_moments *w, oq_debug *d, const oq_moments *first, onq_error *err) {
    *w = (oq_moments){.d = d};
    w->n = d->acts.n;
    w->v = OQ_NEW_ARRAY(&d->arena, oq_moment, w->n + 1);
    OQ_TRY_ALLOC(w->v != NULL, err);
    for (size_t i = 0; i < w->n; i++)
        if (first != NULL ? first->v[i].mask != NULL : d->acts.v[i].mask_likely)
            OQ_TRY(oq_mask_expect(w, &w->v[i], err));
    return ONQ_OK;
}

void oq_moments_release(oq_moments *w) {
    if (w->d == NULL)
        return;
    for (size_t i = 0; w->v != NULL && i < w->n; i++) {
        oq_moment *m = &w->v[i];
        free_buffer(w, &m->after);
        free_buffer(w, &m->pre);
        free_buffer(w, &m->waiting);
        oq_free(&w->d->env->alloc, m->bins, sizeof *m->bins);
        oq_mask_release(w, m);
    }
    free_buffer(w, &w->scratch);
    free_buffer(w, &w->spare);
    for (size_t k = 0; k < 2; k++)
        free_buffer(w, &w->sieve[k]);
    *w = (oq_moments){0};
}

void oq_moments_begin(oq_moments *w) {
    w->again = false;
    for (size_t i = 0; i < w->n; i++) {
        oq_moment *m = &w->v[i];
        m->flt = (oq_pass_float){.lo = INFINITY, .hi = -INFINITY};
        m->qdq = m->cross = m->rest_qdq = m->rest_cross = (oq_sums){0};
        m->seen = m->masked = 0;
        m->trouble = NULL;
        m->has_float = m->repeated = m->differs = m->has_after = m->has_pre = false;
        m->waiting_n = 0;
        if (m->bins != NULL)
            *m->bins = (oq_moment_bins){0};
        oq_mask_begin(w, m);
    }
}

onq_code oq_moments_end(oq_moments *w, bool *again, onq_error *err) {
    *again = w->again;
    for (size_t i = 0; !w->again && i < w->n; i++)
        OQ_TRY(oq_mask_end(w, &w->d->acts.v[i], &w->v[i], err));
    return ONQ_OK;
}

static void add_bins(oq_debug_hist *to, const oq_moment_bins *from) {
    for (size_t i = 0; from != NULL && i < OQ_DEBUG_BINS; i++) {
        to->flt[i] += from->flt[i];
        to->quantized[i] += from->quantized[i];
    }
}

void oq_moments_fold(oq_moments *w) {
    assert(w->n == w->d->acts.n);
    for (size_t i = 0; i < w->n; i++) {
        const oq_moment *m = &w->v[i];
        oq_debug_act *a = &w->d->acts.v[i];
        a->repeated |= m->repeated;
        a->lo = fminf(a->lo, m->flt.lo);
        a->hi = fmaxf(a->hi, m->flt.hi);
        a->seen += m->seen;
        a->clipped += m->flt.clipped;
        a->masked += m->masked;
        oq_sums_join(&a->local, &m->flt.local);
        oq_sums_join(&a->qdq, &m->qdq);
        oq_sums_join(&a->rest_qdq, m->masked > 0 ? &m->rest_qdq : &m->qdq);
        if (!a->repeated) {
            oq_sums_join(&a->cross, &m->cross);
            oq_sums_join(&a->rest_cross, m->masked > 0 ? &m->rest_cross : &m->cross);
        }
        if (m->differs && !m->repeated)
            a->trouble = "its size is not that of the float model's tensor";
        if (m->trouble != NULL)
            a->trouble = m->trouble;
        add_bins(&a->hist, m->bins);
    }
}
