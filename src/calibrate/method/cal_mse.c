/*
 * cal_mse.c — the range with the least squared error.
 *
 * A narrow range has small steps and cuts off what lies outside, a wide one the other way round.
 * Values inside are off by the rounding, step^2 / 12 on the average; values outside by their
 * distance. Zero is always a value of the grid, so the range holds it, and what lies in the bin of
 * zero costs nothing: after a Relu that is most of all values.
 *
 * Both ends are searched, first in coarse steps, then bin by bin around the best; sums over the
 * bins to the left of each edge make a trial cost nothing. A range that ends at zero stays so: the
 * outputs of a Relu or Clip have one end to search.
 */
#include "calibrate/method/method.h"

#define COARSE 64 /* steps on each side in the first search */

typedef struct sums {
    double n, x, xx; /* values, their sum, their squares' sum */
} sums;

typedef struct search {
    const oq_hist *h;
    sums *before; /* by edge: of all bins to its left */
    double levels;
    size_t zero; /* the edge at or just above zero */
    bool symmetric;
    size_t lo, hi; /* edges of the best range so far */
    double best;
} search;

static onq_code check(const oq_cal_options *o, onq_error *err) {
    if (o->num_quantized_bins < 2)
        return oq_fail(err, ONQ_E_OPTION, "calib_num_quantized_bins is %llu, expected 2 or more",
                       (unsigned long long)o->num_quantized_bins);
    return ONQ_OK;
}

static bool holds_zero(const oq_hist *h, size_t bin) {
    return h->edges[bin] <= 0 && 0 < h->edges[bin + 1];
}

static void add_up(const search *s) {
    const oq_hist *h = s->h;
    for (size_t i = 0; i < h->n_bins; i++) {
        const double middle = ((double)h->edges[i] + (double)h->edges[i + 1]) / 2;
        const double n = holds_zero(h, i) ? 0 : (double)h->count[i];
        s->before[i + 1] = (sums){s->before[i].n + n, s->before[i].x + n * middle,
                                  s->before[i].xx + n * middle * middle};
    }
}

/* The squared error of the range between two edges. */
static double error_of(const search *s, size_t lo, size_t hi) {
    const sums *all = &s->before[s->h->n_bins], *a = &s->before[lo], *b = &s->before[hi];
    const double from = fmin((double)s->h->edges[lo], 0), to = fmax((double)s->h->edges[hi], 0);
    const double step = (to - from) / (s->levels - 1);
    const double below = a->xx - 2 * from * a->x + from * from * a->n;
    const double n = all->n - b->n, x = all->x - b->x, xx = all->xx - b->xx;
    const double above = xx - 2 * to * x + to * to * n;
    return fmax(below, 0) + fmax(above, 0) + (b->n - a->n) * step * step / 12;
}

static void attempt(search *s, size_t lo, size_t hi) {
    if (lo >= hi)
        return;
    const double error = error_of(s, lo, hi);
    if (error < s->best) {
        s->best = error;
        s->lo = lo;
        s->hi = hi;
    }
}

/* All pairs of ends in steps of `by` bins, from least to most values cut off. */
static void try_pairs(search *s, size_t lo_from, size_t lo_to, size_t hi_from, size_t hi_to,
                      size_t by) {
    for (size_t lo = lo_from; lo <= lo_to; lo += by) {
        if (s->symmetric) {
            attempt(s, lo, s->h->n_bins - lo);
            continue;
        }
        for (size_t hi = hi_to;; hi -= by) {
            attempt(s, lo, hi);
            if (hi < hi_from + by)
                break;
        }
    }
}

static size_t less(size_t a, size_t b) {
    return a < b ? 0 : a - b;
}

/* The first and last edge that the values seen reach to. */
static void find_ends(const search *s, const oq_tstat *t, size_t *first, size_t *last) {
    const oq_hist *h = s->h;
    *first = 0;
    *last = h->n_bins;
    while (*first < s->zero && h->edges[*first + 1] <= t->min)
        ++*first;
    while (*last > s->zero && h->edges[*last - 1] >= t->max)
        --*last;
}

static void find_best(search *s, const oq_tstat *t) {
    size_t first, last;
    find_ends(s, t, &first, &last);
    if (s->symmetric) {
        first = first < s->h->n_bins - last ? first : s->h->n_bins - last;
        last = s->h->n_bins - first;
    }
    s->lo = first;
    s->hi = last;
    s->best = error_of(s, first, last);
    const size_t widest = last - s->zero > s->zero - first ? last - s->zero : s->zero - first;
    const size_t by = widest / COARSE > 0 ? widest / COARSE : 1;
    try_pairs(s, first, s->zero, s->zero, last, by);
    const size_t lo = s->lo, hi = s->hi;
    const size_t lo_from = less(lo, by) > first ? less(lo, by) : first;
    const size_t hi_from = less(hi, by) > s->zero ? less(hi, by) : s->zero;
    try_pairs(s, lo_from, lo + by < s->zero ? lo + by : s->zero, hi_from,
              hi + by < last ? hi + by : last, 1);
}

static onq_code solve(const oq_cal_options *o, const oq_tstat *t, const onq_allocator *a,
                      oq_cal_answer *x, onq_error *err) {
    const oq_hist *h = &t->hist;
    const size_t n = h->n_bins;
    search s = {.h = h, .levels = (double)o->num_quantized_bins, .symmetric = o->symmetric};
    s.before = oq_calloc(a, n + 1, sizeof *s.before);
    OQ_TRY_ALLOC(s.before != NULL, err);
    while (s.zero < n && h->edges[s.zero] < 0)
        s.zero++;
    add_up(&s);
    *x = (oq_cal_answer){.lo = (double)t->min, .hi = (double)t->max};
    if (s.before[n].n > 0) {
        find_best(&s, t);
        x->lo = fmin((double)h->edges[s.lo], 0);
        x->hi = fmax((double)h->edges[s.hi], 0);
        if (o->symmetric)
            x->lo = -x->hi; /* edges may differ in the last digit */
        else
            oq_cal_clamp(t, x);
        x->lo_bare = x->hi_bare = false;
    }
    oq_free(a, s.before, (n + 1) * sizeof *s.before);
    return ONQ_OK;
}

const oq_cal_class oq_cal_mse = {
    .histogram = true, .num_bins = 2048, .num_quantized_bins = 256, .check = check, .solve = solve};
