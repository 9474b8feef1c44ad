/*
 * ahead.c — see ahead.h.
 */
#include "calibrate/collect/ahead.h"

#include "base/text/real.h"
#include "calibrate/collect/collect_int.h"

#define NEVER UINT64_MAX

onq_code oq_ahead_init(oq_ahead *a, const onq_allocator *alloc, oq_cal_locks *locks, size_t n,
                       onq_error *err) {
    *a = (oq_ahead){.alloc = alloc, .locks = locks, .n = n};
    a->v = oq_calloc(alloc, n > 0 ? n : 1, sizeof *a->v);
    return a->v != NULL ? ONQ_OK : oq_fail_nomem(err);
}

void oq_ahead_release(oq_ahead *a) {
    if (a->alloc == NULL)
        return;
    for (size_t i = 0; a->v != NULL && i < a->n; i++)
        oq_hist_release(&a->v[i].hist);
    oq_free(a->alloc, a->v, (a->n > 0 ? a->n : 1) * sizeof *a->v);
    *a = (oq_ahead){0};
}

/* ---- ranges: what the layout of a first chunk depends on ---- */

/* Of an extent that has values. The least is stored upside down, so that both halves grow. */
static uint64_t range_of(const oq_cal_options *o, const oq_extent *e) {
    const float greatest = fmaxf(fabsf(e->lo), fabsf(e->hi));
    const uint32_t least = oq_cal_counts_abs(o) ? ~oq_f32_bits(e->lo_abs) : 0;
    return (uint64_t)oq_f32_bits(greatest) << 32 | least;
}

static uint64_t join(uint64_t a, uint64_t b) {
    const uint64_t upper = (a >> 32) > (b >> 32) ? a >> 32 : b >> 32;
    const uint64_t lower = (uint32_t)a > (uint32_t)b ? (uint32_t)a : (uint32_t)b;
    return upper << 32 | lower;
}

/* ---- counting ---- */

/* The quieter the ranges have been, the more likely they stay so. Where all samples differ, some
 * tensor's range grows nearly always: each sample runs twice anyway, and is best counted once. */
bool oq_ahead_pays(const oq_ahead *a, uint64_t sample) {
    const uint64_t growth = atomic_load_explicit(&a->growth, memory_order_relaxed);
    return sample >= growth + sample / 16;
}

/* Takes a range in. The lock is held. */
static void widen(oq_ahead *a, oq_ahead_tensor *t, uint64_t range, uint64_t sample) {
    const uint64_t joined = join(t->range, range);
    if (joined == t->range)
        return;
    t->range = joined;
    uint64_t growth = atomic_load_explicit(&a->growth, memory_order_relaxed);
    while (growth < sample + 1 &&
           !atomic_compare_exchange_weak_explicit(&a->growth, &growth, sample + 1,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

/* Begins again over the range so far. All that was counted is lost. `since` only grows, so a sample
 * that was refused once stays refused. The lock is held. */
static onq_code begin(oq_ahead *a, const oq_cal_options *o, oq_ahead_tensor *t, uint64_t sample,
                      onq_error *err) {
    const uint64_t from = t->last > sample ? t->last : sample;
    if (t->laid && from > t->since)
        t->since = from;
    if (t->since > sample)
        return ONQ_OK;
    oq_hist_release(&t->hist);
    t->laid = true;
    t->laid_range = t->range;
    return oq_collect_first_hist(o, a->alloc, OQ_FLOAT, oq_f32_of_bits(~(uint32_t)t->range),
                                 oq_f32_of_bits((uint32_t)(t->range >> 32)), &t->hist, err);
}

/* Counts in a layout that no kernel knows. The lock is held: the edges are read. */
static onq_code count_locked(oq_ahead_tensor *t, uint64_t sample, const float *v, size_t n,
                             oq_hist_scratch *scratch, onq_error *err) {
    t->last = t->last > sample + 1 ? t->last : sample + 1;
    return oq_hist_add(&t->hist, v, n, scratch, err);
}

static bool is_laid(const oq_ahead_tensor *t) {
    return t->laid && t->laid_range == t->range;
}

/* The layout to count in, if the sample can be counted now. */
static bool layout_now(oq_ahead *a, const oq_ahead_tensor *t, size_t index, uint64_t sample,
                       oq_hist *layout, uint64_t *range) {
    pthread_mutex_t *lock = oq_cal_lock(a->locks, index);
    pthread_mutex_lock(lock);
    const bool can = is_laid(t) && t->since <= sample && t->hist.scale != 0;
    *layout = t->hist;
    *range = t->laid_range;
    pthread_mutex_unlock(lock);
    return can;
}

/* Scans without the lock. True if it was counted, or there was nothing to count: the values lie in
 * the range, and that had not grown meanwhile. */
static onq_code count_now(oq_ahead *a, const oq_cal_options *o, size_t index, uint64_t sample,
                          const float *v, size_t n, oq_hist_scratch *scratch, oq_extent *e,
                          bool *counted, onq_error *err) {
    oq_ahead_tensor *t = &a->v[index];
    pthread_mutex_t *lock = oq_cal_lock(a->locks, index);
    oq_hist layout;
    uint64_t range;
    *e = OQ_EXTENT_NONE;
    *counted = false;
    if (!layout_now(a, t, index, sample, &layout, &range)) {
        oq_extent_add(e, v, n);
        *counted = !(e->lo <= e->hi);
        return ONQ_OK;
    }
    OQ_TRY(oq_hist_scan(&layout, v, n, scratch, e, err));
    *counted = !(e->lo <= e->hi);
    if (*counted || join(range, range_of(o, e)) != range)
        return ONQ_OK;
    pthread_mutex_lock(lock);
    *counted = is_laid(t) && t->laid_range == range && t->since <= sample;
    if (*counted) {
        oq_hist_commit(&t->hist, scratch);
        t->last = t->last > sample + 1 ? t->last : sample + 1;
    }
    pthread_mutex_unlock(lock);
    return ONQ_OK;
}

onq_code oq_ahead_seen(oq_ahead *a, const oq_cal_options *o, size_t index, uint64_t sample,
                       const float *v, size_t n, oq_hist_scratch *scratch, oq_extent *e,
                       onq_error *err) {
    oq_ahead_tensor *t = &a->v[index];
    pthread_mutex_t *lock = oq_cal_lock(a->locks, index);
    for (;;) { /* until the range has not grown while the values were counted */
        bool done = false;
        OQ_TRY(count_now(a, o, index, sample, v, n, scratch, e, &done, err));
        if (done)
            return ONQ_OK;
        onq_code rc = ONQ_OK;
        pthread_mutex_lock(lock);
        widen(a, t, range_of(o, e), sample);
        if (!is_laid(t))
            rc = begin(a, o, t, sample, err);
        done = t->since > sample;
        if (rc == ONQ_OK && !done && t->hist.scale == 0) {
            rc = count_locked(t, sample, v, n, scratch, err);
            done = true;
        }
        pthread_mutex_unlock(lock);
        if (rc != ONQ_OK || done)
            return rc;
    }
}

void oq_ahead_note(oq_ahead *a, const oq_cal_options *o, size_t index, uint64_t sample,
                   const oq_extent *e) {
    pthread_mutex_t *lock = oq_cal_lock(a->locks, index);
    if (!(e->lo <= e->hi))
        return;
    pthread_mutex_lock(lock);
    widen(a, &a->v[index], range_of(o, e), sample);
    pthread_mutex_unlock(lock);
}

void oq_ahead_lose(oq_ahead *a, size_t index) {
    pthread_mutex_t *lock = oq_cal_lock(a->locks, index);
    pthread_mutex_lock(lock);
    a->v[index].lost = true;
    pthread_mutex_unlock(lock);
}

void oq_ahead_settle(oq_ahead *a, oq_collector *c, size_t index) {
    oq_ahead_tensor *t = &a->v[index];
    oq_tstat *s = &c->v[index];
    const bool any = s->extent.lo <= s->extent.hi;
    if (t->lost || (t->laid && !(any && t->laid_range == range_of(&c->options, &s->extent))))
        t->since = NEVER;
    if (t->laid && t->since != NEVER)
        for (size_t k = 0; k < s->next.n_bins; k++)
            s->next.count[k] += t->hist.count[k];
    oq_hist_release(&t->hist);
    t->laid = false;
    a->most = t->since > a->most ? t->since : a->most;
}
