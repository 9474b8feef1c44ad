/*
 * collect_hist.c — histograms of a chunk: where they lie, how they join with the chunks before.
 *
 * The first chunk of a tensor makes a histogram of num_bins bins: over [-t, t], where t is the
 * greatest magnitude (collect_value of the reference), or over the magnitudes themselves
 * (collect_absolute_value). Later chunks widen it by whole bins (merge_histogram) or by edges at
 * the right. All is done in the tensor's type, operation by operation, as numpy does it there.
 */
#include "calibrate/collect/collect_int.h"
#include "calibrate/collect/npmath.h"
#include "calibrate/method/method.h"

static bool no_values(const oq_extent *e) {
    return !(e->lo <= e->hi);
}

/* Python's a // b of two numpy floats, b > 0. */
static float floor_divide(oq_dtype type, float a, float b) {
    const float mod = fmodf(a, b);
    float div = (a - mod) / b;
    if (mod < 0)
        div -= 1.0f;
    float whole = floorf(div);
    if (div - whole > 0.5f)
        whole += 1.0f;
    return oq_np_round(type, (double)whole);
}

/* One operation in the type: float16 rounds once more. */
static float in(oq_dtype type, float x) {
    return oq_np_round(type, (double)x);
}

/* merge_histogram with a threshold above the old one: whole bins on both sides. */
static onq_code layout_wider(oq_collector *c, oq_tstat *t, float threshold, onq_error *err) {
    const oq_dtype ty = t->type;
    const size_t old_n = t->hist.n_bins;
    const float old = t->threshold;
    const float stride = in(ty, in(ty, 2.0f * old) / in(ty, (float)old_n));
    const float more = in(ty, floor_divide(ty, in(ty, threshold - old), stride) + 1.0f);
    if (!(2 * (double)more + (double)old_n <= (double)c->most_bins))
        return oq_fail(
            err, ONQ_E_LIMIT,
            "tensor '%.*s': its histogram over [%g, %g] would need %g more bins to reach %g "
            "(calibrate without strides)",
            OQ_STR(t->name), -(double)old, (double)old, 2 * (double)more, (double)threshold);
    const size_t half = (size_t)more;
    const float wider = in(ty, in(ty, in(ty, more) * stride) + old);
    t->next_threshold = wider;
    t->offset = half;
    return oq_hist_uniform(&t->next, c->arena.alloc, ty, false, -wider, wider, old_n + 2 * half,
                           err);
}

onq_code oq_collect_first_hist(const oq_cal_options *o, const onq_allocator *a, oq_dtype type,
                               float least, float greatest, oq_hist *out, onq_error *err) {
    const bool abs = oq_cal_counts_abs(o);
    return oq_hist_uniform(out, a, type, abs, abs ? least : -greatest, greatest,
                           (size_t)o->num_bins, err);
}

static onq_code layout_value(oq_collector *c, oq_tstat *t, onq_error *err) {
    const onq_allocator *a = c->arena.alloc;
    const oq_extent *e = &t->extent;
    const float threshold = no_values(e) ? 0 : fmaxf(fabsf(e->lo), fabsf(e->hi));
    t->offset = 0;
    if (!t->has_hist) {
        t->next_threshold = threshold;
        return oq_collect_first_hist(&c->options, a, t->type, 0, threshold, &t->next, err);
    }
    if (threshold > t->threshold && t->threshold != 0)
        return layout_wider(c, t, threshold, err);
    const float wider = threshold > t->threshold ? threshold : t->threshold;
    t->next_threshold = wider;
    return oq_hist_uniform(&t->next, a, t->type, false, -wider, wider, t->hist.n_bins, err);
}

/* More edges of the same width at the right, up to the greatest magnitude: np.arange. */
static onq_code layout_more_edges(oq_collector *c, oq_tstat *t, float greatest, onq_error *err) {
    const onq_allocator *a = c->arena.alloc;
    const oq_dtype ty = t->type;
    const oq_hist *h = &t->hist;
    const float *old = h->edges;
    const float width = in(ty, old[1] - old[0]);
    const float start = in(ty, old[h->n_bins] + width), stop = in(ty, greatest + width);
    const double length = ceil((double)in(ty, in(ty, stop - start) / width));
    if (!(length + (double)h->n_bins <= (double)c->most_bins))
        return oq_fail(
            err, ONQ_E_LIMIT,
            "tensor '%.*s': its histogram would need %g more bins (calibrate without strides)",
            OQ_STR(t->name), length);
    const size_t more = length > 0 ? (size_t)length : 0;
    const size_t n = h->n_bins + more, bytes = (n + 1) * sizeof(float);
    float *edges = oq_alloc(a, bytes);
    OQ_TRY_ALLOC(edges != NULL, err);
    memcpy(edges, old, (h->n_bins + 1) * sizeof(float));
    const float step = in(ty, in(ty, start + width) - start);
    for (size_t i = 0; i < more; i++)
        edges[h->n_bins + 1 + i] = i == 0 ? start : in(ty, start + in(ty, in(ty, (float)i) * step));
    const onq_code rc = oq_hist_edges(&t->next, a, ty, true, edges, n, err);
    oq_free(a, edges, bytes);
    return rc;
}

static onq_code layout_abs(oq_collector *c, oq_tstat *t, onq_error *err) {
    const onq_allocator *a = c->arena.alloc;
    const size_t num_bins = (size_t)c->options.num_bins;
    const oq_extent *e = &t->extent;
    const float greatest = no_values(e) ? 0 : fmaxf(fabsf(e->lo), fabsf(e->hi));
    t->offset = 0;
    if (t->has_hist && greatest > t->hist.edges[t->hist.n_bins])
        return layout_more_edges(c, t, greatest, err);
    if (t->has_hist)
        return oq_hist_edges(&t->next, a, t->type, true, t->hist.edges, t->hist.n_bins, err);
    if (no_values(e)) { /* numpy's range of nothing, in double */
        OQ_TRY(oq_hist_uniform(&t->next, a, t->type, true, 0, 1, num_bins, err));
        const double step = 1.0 / (double)num_bins;
        for (size_t i = 0; i < t->next.n_bins; i++)
            t->next.edges[i] = oq_np_round(t->type, (double)i * step);
        return ONQ_OK;
    }
    return oq_collect_first_hist(&c->options, a, t->type, e->lo_abs, greatest, &t->next, err);
}

static void count_tails(const oq_cal_options *o, oq_tstat *t) {
    const oq_extent *e = &t->extent;
    size_t first = 0, last = 0;
    const uint64_t all = e->count - e->n_nan - e->n_low_inf - e->n_high_inf;
    const uint64_t rest = all - oq_tails_count(&t->tails, &t->next, &first, &last);
    t->settled =
        rest == 0 || oq_cal_class_of(o->method)->is_settled(o, &t->next, first, last, rest);
    if (t->settled)
        t->next.count[last] += rest;
    else
        memset(t->next.count, 0, t->next.n_bins * sizeof *t->next.count);
}

onq_code oq_collect_layout(oq_collector *c, size_t index, onq_error *err) {
    oq_tstat *t = &c->v[index];
    assert(!t->has_next && t->alias == 0);
    if (t->type == OQ_UNDEFINED && c->options.inner)
        return ONQ_OK; /* a branch that was not taken */
    if (t->type == OQ_UNDEFINED)
        return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s' was not seen in any sample",
                       OQ_STR(t->name));
    OQ_TRY(oq_cal_counts_abs(&c->options) ? layout_abs(c, t, err) : layout_value(c, t, err));
    t->has_next = true;
    if (t->tails.most > 0)
        count_tails(&c->options, t);
    if (t->padded != 0 && !oq_hist_same_layout(&t->next, &c->v[t->padded - 1].next))
        t->apart = true;
    return ONQ_OK;
}

onq_code oq_collect_count(oq_collector *c, size_t index, const void *values, size_t n,
                          oq_hist_scratch *scratch, onq_error *err) {
    oq_hist *h = &c->v[index].next;
    assert(c->v[index].has_next);
    if (c->locks == NULL || n > OQ_HIST_MAX_SCAN)
        return oq_hist_add(h, values, n, scratch, err);
    pthread_mutex_t *lock = oq_cal_lock(c->locks, index);
    pthread_mutex_lock(lock);
    onq_code rc = oq_hist_prepare(h, err);
    pthread_mutex_unlock(lock);
    if (rc == ONQ_OK)
        rc = oq_hist_scan(h, values, n, scratch, NULL, err);
    if (rc != ONQ_OK)
        return rc;
    pthread_mutex_lock(lock);
    oq_hist_commit(h, scratch);
    pthread_mutex_unlock(lock);
    return ONQ_OK;
}

onq_code oq_collect_count_times(oq_collector *c, size_t index, const void *values, size_t n,
                                uint64_t times, onq_error *err) {
    oq_tstat *t = &c->v[index];
    OQ_TRY(oq_collect_count(c, index, values, n, &c->scratch, err));
    for (size_t k = 0; k < t->next.n_bins; k++)
        t->next.count[k] *= times;
    return ONQ_OK;
}

/* min and max over the chunks, as Python's min(old, new): of equals the old stays. */
static void join_extent(oq_tstat *t) {
    const oq_extent *e = &t->extent;
    const bool none = no_values(e);
    const float lo = none ? 0 : e->lo, hi = none ? 0 : e->hi;
    if (!t->has_hist || lo < t->min) {
        t->min = lo;
        t->min_bare = !none;
    }
    if (!t->has_hist || hi > t->max) {
        t->max = hi;
        t->max_bare = !none;
    }
    t->n_nan += e->n_nan;
    t->n_low_inf += e->n_low_inf;
    t->n_high_inf += e->n_high_inf;
    t->n_values += e->count;
    t->extent = OQ_EXTENT_NONE;
}

/* The counts of the other tensor, and the zeros. */
static void count_padded(const oq_collector *c, oq_tstat *t) {
    const oq_tstat *from = &c->v[t->padded - 1];
    memcpy(t->next.count, from->next.count, t->next.n_bins * sizeof(uint64_t));
    oq_hist_add_zeros(&t->next, t->extent.count - from->extent.count);
}

onq_code oq_collect_end_chunk(oq_collector *c, onq_error *err OQ_UNUSED) {
    for (size_t i = 0; i < c->n; i++)
        if (c->v[i].has_next && oq_tstat_follows(&c->v[i]))
            count_padded(c, &c->v[i]);
    for (size_t i = 0; i < c->n; i++) {
        oq_tstat *t = &c->v[i];
        if (t->alias != 0 || (c->options.inner && !t->has_next))
            continue;
        assert(t->has_next);
        join_extent(t);
        if (t->has_hist) {
            for (size_t k = 0; k < t->hist.n_bins; k++)
                t->next.count[t->offset + k] += t->hist.count[k];
            oq_hist_release(&t->hist);
        }
        oq_hist_trim(&t->next);
        t->hist = t->next;
        t->threshold = t->next_threshold;
        t->next = (oq_hist){0};
        t->has_hist = true;
        t->has_next = false;
    }
    c->pass = OQ_PASS_EXTENT;
    return ONQ_OK;
}
