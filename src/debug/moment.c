/*
 * moment.c — see moment.h.
 */
#include "debug/moment.h"

#include "base/real.h"
#include "debug/weights.h"
#include "onnx/tensor.h"

#include <math.h>

#define MAX_HIST 16384 /* values of one tensor and sample that go into a histogram */

/* ---- values ---- */

static onq_code reserve(const oq_debug *d, float **p, uint64_t *cap, uint64_t n, onq_error *err) {
    if (n <= *cap)
        return ONQ_OK;
    float *more = oq_resize(&d->env->alloc, *p, *cap * sizeof **p, n * sizeof **p);
    if (more == NULL)
        return oq_fail_nomem(err);
    *p = more;
    *cap = n;
    return ONQ_OK;
}

/* The datum as float32: itself, or converted. */
onq_code oq_moments_floats(oq_moments *w, const oq_datum *t, const float **out, onq_error *err) {
    if (t->dtype == OQ_FLOAT) {
        *out = t->data;
        return ONQ_OK;
    }
    OQ_TRY(reserve(w->d, &w->scratch, &w->scratch_cap, t->count + 1, err));
    if (t->dtype == OQ_FLOAT16)
        oq_f16_to_f32_n(t->data, w->scratch, t->count);
    else
        for (uint64_t i = 0; i < t->count; i++)
            w->scratch[i] = (float)oq_raw_get_real(t->dtype, t->data, i);
    *out = w->scratch;
    return ONQ_OK;
}

/* An integer tensor with the parameters of its activation. */
static onq_code dequantize(oq_moments *w, const oq_debug_act *a, const oq_datum *t,
                           const float **out, onq_error *err) {
    OQ_TRY(reserve(w->d, &w->scratch, &w->scratch_cap, t->count + 1, err));
    const float scale = a->scale[0];
    const int32_t zero = a->zero[0];
    if (t->dtype == OQ_UINT8 || t->dtype == OQ_INT8) {
        const uint8_t *q = t->data;
        const int32_t flip = t->dtype == OQ_INT8 ? 128 : 0; /* two's complement without a branch */
        for (uint64_t i = 0; i < t->count; i++)
            w->scratch[i] = (float)(((q[i] ^ flip) - flip) - zero) * scale;
    } else {
        for (uint64_t i = 0; i < t->count; i++)
            w->scratch[i] = (float)(oq_raw_get_int(t->dtype, t->data, i) - zero) * scale;
    }
    *out = w->scratch;
    return ONQ_OK;
}

/* ---- what a quantizer does to float values ---- */

static bool has_steps(const oq_debug_act *a, oq_steps *s) {
    double lo = 0, hi = 0;
    if (a->n_params != 1 || !oq_debug_limits(a->type, &lo, &hi) || hi - lo > 65535 ||
        oq_dtype_find(a->type)->cls == OQ_CLASS_REAL)
        return false;
    const float scale = a->scale[0];
    *s = (oq_steps){scale, (float)(lo - a->zero[0]), (float)(hi - a->zero[0]),
                    (float)(lo - a->zero[0] - 1) * scale, (float)(hi - a->zero[0] + 1) * scale};
    return true;
}

/* ---- masks ---- */

/* Not NaN, which no mask has. */
static bool is_mask(const oq_debug_act *a, float x) {
    return x <= a->mask_below || x >= (float)OQ_DEBUG_HUGE;
}

/* Two tensors without the places where one of them has a value of a mask: such a value says nothing
 * of the others and outweighs them all. *m are left. */
static onq_code sift(oq_moments *w, const oq_debug_act *a, const float **x, const float **y,
                     uint64_t n, uint64_t *m, onq_error *err) {
    for (size_t k = 0; k < 2; k++)
        OQ_TRY(reserve(w->d, &w->sieve[k], &w->sieve_cap[k], n + 1, err));
    *m = 0;
    for (uint64_t i = 0; i < n; i++) {
        const float p = (*x)[i], q = (*y)[i];
        w->sieve[0][*m] = p;
        w->sieve[1][*m] = q;
        *m += !is_mask(a, p) && !is_mask(a, q);
    }
    *x = w->sieve[0];
    *y = w->sieve[1];
    return ONQ_OK;
}

/* The float model's values (without it, those before quantization): range, clipping, what the
 * quantizer does to them; a copy of them where `copy` is not NULL. */
static onq_code add_truth(oq_moments *w, const oq_debug_act *a, oq_moment *m, const float *x,
                          float *copy, uint64_t n, onq_error *err) {
    oq_steps s;
    const bool known = has_steps(a, &s);
    oq_pass_truth out = {.lo = m->truth.lo, .hi = m->truth.hi};
    OQ_TRY(oq_pass_truth_run(w->pool, x, copy, n, known ? &s : NULL, &out, err));
    if (is_mask(a, out.lo) || is_mask(a, out.hi)) {
        const float *same = x;
        uint64_t left = 0;
        OQ_TRY(sift(w, a, &x, &same, n, &left, err));
        m->masked += n - left;
        n = left;
        out = (oq_pass_truth){.lo = m->truth.lo, .hi = m->truth.hi};
        OQ_TRY(oq_pass_truth_run(w->pool, x, NULL, n, known ? &s : NULL, &out, err));
    }
    m->truth.lo = out.lo;
    m->truth.hi = out.hi;
    m->seen += n;
    m->truth.clipped += out.clipped;
    if (known)
        oq_sums_join(&m->truth.local, &out.local);
    return ONQ_OK;
}

/* ---- histograms ---- */

/* Bins of this lane, once the range is set. */
static onq_code make_bins(const oq_moments *w, const oq_debug_act *a, oq_moment *m,
                          onq_error *err) {
    const onq_allocator *alloc = &w->d->env->alloc;
    if (a->hist.truth == NULL || m->bins != NULL)
        return ONQ_OK;
    m->bins = oq_calloc(alloc, 1, sizeof *m->bins);
    return m->bins != NULL ? ONQ_OK : oq_fail_nomem(err);
}

/* The range of a histogram: what can be represented and what the first sample has. */
static onq_code hist_begin(oq_moments *w, oq_debug_act *a, oq_moment *m, const float *x, uint64_t n,
                           onq_error *err) {
    oq_debug *d = w->d;
    if (!d->histograms)
        return ONQ_OK;
    if (a->hist.truth == NULL) {
        assert(w->alone);
        float lo = INFINITY, hi = -INFINITY;
        oq_span_add(&lo, &hi, x, n);
        if (m->masked > 0) { /* what is not the mask's */
            lo = m->truth.lo;
            hi = m->truth.hi;
        } else if (a->n_params == 1) {
            lo = fminf(lo, (float)a->q_lo);
            hi = fmaxf(hi, (float)a->q_hi);
        }
        const float room = (hi - lo) / 8; /* for what later samples bring */
        OQ_TRY(oq_debug_hist_make(&d->arena, &a->hist, lo - room, hi + room, err));
    }
    OQ_TRY(make_bins(w, a, m, err));
    oq_debug_hist_add(&a->hist, m->bins->truth, x, n, n / MAX_HIST + 1);
    return ONQ_OK;
}

/* What the quantizer makes of every so many values. */
static onq_code hist_quantized(const oq_moments *w, const oq_debug_act *a, oq_moment *m,
                               const float *x, uint64_t n, const oq_steps *s, onq_error *err) {
    OQ_TRY(make_bins(w, a, m, err));
    if (m->bins == NULL)
        return ONQ_OK;
    const uint64_t step = n / MAX_HIST + 1;
    for (uint64_t i = 0; i < n; i += step) {
        const float y = oq_steps_apply(s, x[i]);
        oq_debug_hist_add(&a->hist, m->bins->made, &y, 1, 1);
    }
    return ONQ_OK;
}

bool oq_moments_pending(const oq_debug *d) {
    for (size_t i = 0; d->histograms && i < d->acts.n; i++)
        if (d->acts.v[i].hist.truth == NULL && d->acts.v[i].trouble == NULL)
            return true;
    return false;
}

/* ---- observers ---- */

static onq_code seen_truth(oq_moments *w, oq_debug_act *a, oq_moment *m, const float *x, uint64_t n,
                           onq_error *err) {
    m->repeated |= m->has_held;
    OQ_TRY(reserve(w->d, &m->held, &m->held_cap, n + 1, err));
    OQ_TRY(add_truth(w, a, m, x, m->held, n, err));
    m->held_n = n;
    m->has_held = true;
    return hist_begin(w, a, m, x, n, err);
}

/* A pair of one scale is computed here as the runtime computes it: what comes out need not be
 * observed, and all sums are taken in one pass. */
static onq_code seen_pair(oq_moments *w, const oq_debug_act *a, oq_moment *m, const float *p,
                          uint64_t n, const oq_steps *s, onq_error *err) {
    oq_pass_pair out = {0};
    bool held = a->truth.p != NULL && m->has_held && !m->repeated;
    if (held && m->held_n != n) {
        m->trouble = "its size is not that of the float model's tensor";
        held = false;
    }
    const float *x = held ? m->held : p;
    OQ_TRY(oq_pass_pair_run(w->pool, x, p, n, s, &out, err));
    if (held)
        oq_sums_join(&m->cross, &out.cross);
    oq_sums_join(&m->qdq, held ? &out.qdq : &out.cross); /* alone: the same, with all sums */
    m->has_held = false;
    OQ_TRY(hist_quantized(w, a, m, p, n, s, err));
    if (m->masked == 0)
        return ONQ_OK;
    oq_pass_pair rest = {0};
    OQ_TRY(sift(w, a, &x, &p, n, &n, err));
    OQ_TRY(oq_pass_pair_run(w->pool, x, p, n, s, &rest, err));
    if (held)
        oq_sums_join(&m->rest_cross, &rest.cross);
    oq_sums_join(&m->rest_qdq, held ? &rest.qdq : &rest.cross);
    return ONQ_OK;
}

static onq_code keep_pre(oq_moments *w, oq_moment *m, const float *x, uint64_t n, onq_error *err) {
    if (m->pre == NULL) {
        m->pre = w->spare;
        m->pre_cap = w->spare_cap;
        w->spare = NULL;
        w->spare_cap = 0;
    }
    OQ_TRY(reserve(w->d, &m->pre, &m->pre_cap, n + 1, err));
    memcpy(m->pre, x, n * sizeof *x);
    m->pre_n = n;
    m->has_pre = true;
    return ONQ_OK;
}

static onq_code seen_pre(oq_moments *w, oq_debug_act *a, oq_moment *m, const float *x, uint64_t n,
                         onq_error *err) {
    oq_steps s;
    if (a->truth.p == NULL) {
        OQ_TRY(add_truth(w, a, m, x, NULL, n, err));
        OQ_TRY(hist_begin(w, a, m, x, n, err));
    }
    if (a->plain_pair && has_steps(a, &s))
        return seen_pair(w, a, m, x, n, &s, err);
    return keep_pre(w, m, x, n, err);
}

/* x against y, and where there is a mask the same without it. */
static onq_code add_sums(oq_moments *w, const oq_debug_act *a, const oq_moment *m, const float *x,
                         const float *y, uint64_t n, oq_sums *out, oq_sums *rest, onq_error *err) {
    OQ_TRY(oq_pass_sums_run(w->pool, x, y, n, out, err));
    if (m->masked == 0)
        return ONQ_OK;
    OQ_TRY(sift(w, a, &x, &y, n, &n, err));
    return oq_pass_sums_run(w->pool, x, y, n, rest, err);
}

/* The values before quantization are not needed again before the next sample. */
static void give_back_pre(oq_moments *w, oq_moment *m) {
    const onq_allocator *alloc = &w->d->env->alloc;
    if (w->spare_cap < m->pre_cap) {
        oq_free(alloc, w->spare, w->spare_cap * sizeof *w->spare);
        w->spare = m->pre;
        w->spare_cap = m->pre_cap;
    } else {
        oq_free(alloc, m->pre, m->pre_cap * sizeof *m->pre);
    }
    m->pre = NULL;
    m->pre_cap = 0;
    m->has_pre = false;
}

static onq_code seen_post(oq_moments *w, const oq_debug_act *a, oq_moment *m, const float *y,
                          uint64_t n, onq_error *err) {
    if (m->has_pre) {
        if (m->pre_n == n)
            OQ_TRY(add_sums(w, a, m, m->pre, y, n, &m->qdq, &m->rest_qdq, err));
        else
            m->trouble = "before and after quantization have different sizes";
        give_back_pre(w, m);
    }
    if (a->truth.p != NULL && m->has_held && !m->repeated) {
        if (m->held_n == n)
            OQ_TRY(add_sums(w, a, m, m->held, y, n, &m->cross, &m->rest_cross, err));
        else
            m->trouble = "its size is not that of the float model's tensor";
        m->has_held = false;
    }
    OQ_TRY(make_bins(w, a, m, err));
    if (m->bins != NULL)
        oq_debug_hist_add(&a->hist, m->bins->made, y, n, n / MAX_HIST + 1);
    return ONQ_OK;
}

onq_code oq_moments_see(oq_moments *w, const oq_moment_use *uses, const oq_datum *t,
                        onq_error *err) {
    for (const oq_moment_use *u = uses; u != NULL; u = u->next) {
        oq_debug_act *a = &w->d->acts.v[u->act];
        oq_moment *m = &w->v[u->act];
        const float *v = NULL;
        if (u->role == OQ_MOMENT_POST && a->integer) {
            OQ_TRY(dequantize(w, a, t, &v, err));
        } else if (!oq_dtype_is_float(t->dtype)) {
            m->trouble = "it is not a float tensor";
            continue;
        } else {
            OQ_TRY(oq_moments_floats(w, t, &v, err));
        }
        if (u->role == OQ_MOMENT_TRUTH)
            OQ_TRY(seen_truth(w, a, m, v, t->count, err));
        else if (u->role == OQ_MOMENT_PRE)
            OQ_TRY(seen_pre(w, a, m, v, t->count, err));
        else
            OQ_TRY(seen_post(w, a, m, v, t->count, err));
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
    if (u == NULL)
        return oq_fail_nomem(err);
    *u = (oq_moment_use){act, r, w->uses.v[at]};
    w->uses.v[at] = u;
    return ONQ_OK;
}

onq_code oq_moments_watch(oq_debug *d, oq_watch *truth, oq_watch *made, onq_error *err) {
    oq_map_init(&truth->map, &d->arena);
    oq_map_init(&made->map, &d->arena);
    for (uint32_t i = 0; i < d->acts.n; i++) {
        const oq_debug_act *a = &d->acts.v[i];
        if (a->truth.p != NULL)
            OQ_TRY(watch_name(d, truth, a->truth, i, OQ_MOMENT_TRUTH, err));
        if (a->pre.p != NULL)
            OQ_TRY(watch_name(d, made, a->pre, i, OQ_MOMENT_PRE, err));
        oq_steps s;
        if (!a->plain_pair || !has_steps(a, &s))
            OQ_TRY(watch_name(d, made, a->post, i, OQ_MOMENT_POST, err));
    }
    return ONQ_OK;
}

/* ---- a lane ---- */

onq_code oq_moments_init(oq_moments *w, oq_debug *d, onq_error *err) {
    *w = (oq_moments){.d = d};
    w->n = d->acts.n;
    w->v = OQ_NEW_ARRAY(&d->arena, oq_moment, w->n + 1);
    return w->v != NULL ? ONQ_OK : oq_fail_nomem(err);
}

void oq_moments_release(oq_moments *w) {
    if (w->d == NULL)
        return;
    const onq_allocator *alloc = &w->d->env->alloc;
    for (size_t i = 0; w->v != NULL && i < w->n; i++) {
        oq_moment *m = &w->v[i];
        oq_free(alloc, m->held, m->held_cap * sizeof *m->held);
        oq_free(alloc, m->pre, m->pre_cap * sizeof *m->pre);
        oq_free(alloc, m->bins, sizeof *m->bins);
    }
    oq_free(alloc, w->scratch, w->scratch_cap * sizeof *w->scratch);
    oq_free(alloc, w->spare, w->spare_cap * sizeof *w->spare);
    for (size_t k = 0; k < 2; k++)
        oq_free(alloc, w->sieve[k], w->sieve_cap[k] * sizeof *w->sieve[k]);
    *w = (oq_moments){0};
}

void oq_moments_begin(oq_moments *w) {
    for (size_t i = 0; i < w->n; i++) {
        oq_moment *m = &w->v[i];
        m->truth = (oq_pass_truth){.lo = INFINITY, .hi = -INFINITY};
        m->qdq = m->cross = m->rest_qdq = m->rest_cross = (oq_sums){0};
        m->seen = m->masked = 0;
        m->trouble = NULL;
        m->repeated = m->has_held = m->has_pre = false;
        if (m->bins != NULL)
            *m->bins = (oq_moment_bins){0};
    }
}

static void add_bins(oq_debug_hist *to, const oq_moment_bins *from) {
    for (size_t i = 0; from != NULL && i < OQ_DEBUG_BINS; i++) {
        to->truth[i] += from->truth[i];
        to->made[i] += from->made[i];
    }
}

void oq_moments_fold(oq_moments *w) {
    for (size_t i = 0; i < w->n; i++) {
        const oq_moment *m = &w->v[i];
        oq_debug_act *a = &w->d->acts.v[i];
        a->repeated |= m->repeated;
        a->lo = fminf(a->lo, m->truth.lo);
        a->hi = fmaxf(a->hi, m->truth.hi);
        a->seen += m->seen;
        a->clipped += m->truth.clipped;
        a->masked += m->masked;
        oq_sums_join(&a->local, &m->truth.local);
        oq_sums_join(&a->qdq, &m->qdq);
        oq_sums_join(&a->rest_qdq, m->masked > 0 ? &m->rest_qdq : &m->qdq);
        if (!a->repeated) {
            oq_sums_join(&a->cross, &m->cross);
            oq_sums_join(&a->rest_cross, m->masked > 0 ? &m->rest_cross : &m->cross);
        }
        if (m->trouble != NULL)
            a->trouble = m->trouble;
        add_bins(&a->hist, m->bins);
    }
}
