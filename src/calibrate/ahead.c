/*
 * ahead.c — see ahead.h.
 */
#include "calibrate/ahead.h"

#include "base/real.h"
#include "calibrate/collect_int.h"

#include <math.h>

#define NEVER UINT64_MAX

onq_code oq_ahead_init(oq_ahead *a, const onq_allocator *alloc, oq_ahead_range *ranges, size_t n,
                       onq_error *err) {
    *a = (oq_ahead){.alloc = alloc, .ranges = ranges, .n = n};
    a->v = oq_calloc(alloc, n > 0 ? n : 1, sizeof *a->v);
    return a->v != NULL ? ONQ_OK : oq_fail_nomem(err);
}

void oq_ahead_release(oq_ahead *a) {
    if (a->alloc == NULL)
        return;
    for (size_t i = 0; a->v != NULL && i < a->n; i++)
        oq_hist_release(&a->v[i].hist);
    oq_free(a->alloc, a->v, (a->n > 0 ? a->n : 1) * sizeof *a->v);
    oq_hist_scratch_release(&a->scratch, a->alloc);
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

/* The range of all lanes so far, with r. */
static uint64_t widen(oq_ahead_range *common, uint64_t r) {
    uint64_t old = atomic_load_explicit(common, memory_order_relaxed);
    while (join(old, r) != old &&
           !atomic_compare_exchange_weak_explicit(common, &old, join(old, r), memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
    return join(old, r);
}

/* ---- counting ---- */

/* Begins again over the range. A tensor that was counted in this sample before (in a loop) cannot
 * be counted in it any more. */
static onq_code begin(oq_ahead *a, const oq_cal_options *o, oq_ahead_tensor *t, uint64_t range,
                      uint64_t sample, onq_error *err) {
    if (t->laid)
        t->since = t->last == sample + 1 ? sample + 1 : sample;
    oq_hist_release(&t->hist);
    t->range = range;
    t->laid = true;
    return oq_collect_first_hist(o, a->alloc, OQ_FLOAT, oq_f32_of_bits(~(uint32_t)range),
                                 oq_f32_of_bits((uint32_t)(range >> 32)), &t->hist, err);
}

onq_code oq_ahead_seen(oq_ahead *a, const oq_cal_options *o, size_t index, uint64_t sample,
                       const float *v, size_t n, oq_extent *e, onq_error *err) {
    oq_ahead_tensor *t = &a->v[index];
    oq_ahead_range *common = &a->ranges[index];
    const uint64_t so_far = atomic_load_explicit(common, memory_order_relaxed);
    *e = OQ_EXTENT_NONE;
    if (t->laid && t->range == so_far && t->since <= sample) {
        /* Nearly always: within the range so far. */
        OQ_TRY(oq_hist_measure(&t->hist, v, n, &a->scratch, e, err));
        if (!(e->lo <= e->hi) || join(so_far, range_of(o, e)) == so_far) {
            t->last = sample + 1;
            return ONQ_OK;
        }
    } else {
        oq_extent_add(e, v, n);
    }
    if (!(e->lo <= e->hi))
        return ONQ_OK; /* nothing to count in any layout */
    const uint64_t range = widen(common, range_of(o, e));
    if (!t->laid || t->range != range)
        OQ_TRY(begin(a, o, t, range, sample, err));
    if (t->since > sample)
        return ONQ_OK;
    t->last = sample + 1;
    return oq_hist_add(&t->hist, v, n, &a->scratch, err);
}

void oq_ahead_note(oq_ahead *a, const oq_cal_options *o, size_t index, const oq_extent *e) {
    if (e->lo <= e->hi)
        widen(&a->ranges[index], range_of(o, e));
}

void oq_ahead_lose(oq_ahead *a, size_t index) {
    a->v[index].lost = true;
}

void oq_ahead_settle(oq_ahead *a, oq_collector *c) {
    a->most = 0;
    for (size_t i = 0; i < a->n; i++) {
        oq_ahead_tensor *t = &a->v[i];
        oq_tstat *s = &c->v[i];
        const bool any = s->extent.lo <= s->extent.hi;
        if (t->lost || (t->laid && !(any && t->range == range_of(&c->options, &s->extent))))
            t->since = NEVER;
        if (t->laid && t->since != NEVER)
            for (size_t k = 0; k < s->next.n_bins; k++)
                s->next.count[k] += t->hist.count[k];
        oq_hist_release(&t->hist);
        t->laid = false;
        a->most = t->since > a->most ? t->since : a->most;
    }
    oq_hist_scratch_release(&a->scratch, a->alloc);
}
