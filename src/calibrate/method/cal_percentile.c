/*
 * cal_percentile.c — PercentileCalibrater: the edges between which the given share of the values
 * lies.
 *
 * Symmetric, the histogram is of magnitudes and one edge serves for both sides; else half of what
 * is cut goes at each side. The result never leaves the values seen. The reference keeps the first
 * two counts as `hist` and `bins`; so does the cache here.
 */
#include "calibrate/method/method.h"

static onq_code check(const oq_cal_options *o, onq_error *err) {
    if (!(o->percentile >= 0 && o->percentile <= 100))
        return oq_fail(err, ONQ_E_OPTION, "the percentile is %g, expected 0 to 100", o->percentile);
    return ONQ_OK;
}

/* Shares of the values up to the ends of the range. */
static double lower_share(const oq_cal_options *o) {
    return (100.0 - o->percentile) / 200.0;
}

static double upper_share(const oq_cal_options *o) {
    return o->symmetric ? o->percentile / 100.0 : 1.0 - lower_share(o);
}

/* np.searchsorted(np.cumsum(hist / total), share): the first bin whose running share is not
 * below. A total of zero gives NaN, which numpy sorts after everything. */
static size_t edge_of(const oq_hist *h, uint64_t total, double share) {
    double sum = 0;
    for (size_t i = 0; i < h->n_bins; i++) {
        sum += (double)h->count[i] / (double)total;
        if (!(sum < share))
            return i;
    }
    return h->n_bins;
}

static uint64_t total_of(const oq_hist *h) {
    uint64_t total = 0;
    for (size_t i = 0; i < h->n_bins; i++)
        total += h->count[i];
    return total;
}

static onq_code solve(const oq_cal_options *o, const oq_tstat *t, const onq_allocator *a OQ_UNUSED,
                      oq_cal_answer *x, onq_error *err OQ_UNUSED) {
    const oq_hist *h = &t->hist;
    const uint64_t total = total_of(h);
    x->hi = (double)h->edges[edge_of(h, total, upper_share(o))];
    if (o->symmetric) {
        x->lo = -x->hi;
        x->lo_bare = true;
    } else {
        x->lo = (double)h->edges[edge_of(h, total, lower_share(o))];
    }
    oq_cal_clamp(t, x);
    return ONQ_OK;
}

static onq_code emit(const oq_cal_options *o OQ_UNUSED, const oq_tstat *t,
                     const oq_cal_answer *x OQ_UNUSED, oq_arena *a, oq_range *out, onq_error *err) {
    if (!oq_num_make_one(a, &out->hist, OQ_INT64, true, (double)t->hist.count[0]) ||
        !oq_num_make_one(a, &out->bins, OQ_INT64, true, (double)t->hist.count[1]))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

/* ---- the ends alone ---- */

/* More values than this share would have to be kept. */
#define MAX_TAIL 0.001

static double tail_share(const oq_cal_options *o) {
    return o->symmetric ? 1.0 - upper_share(o) : lower_share(o);
}

/* With 100 percent nothing is cut off, and rounding alone decides where the sum reaches 1. */
static oq_cal_need bounds_need(const oq_cal_options *o) {
    const double share = tail_share(o);
    return share > 0 && share <= MAX_TAIL ? OQ_NEED_TAILS : OQ_NEED_COUNTS;
}

/* edge_of with `rest` more values in bin `at`; n_bins where it is so near that rounding, which
 * depends on all counts, decides. */
static size_t clear_edge(const oq_hist *h, uint64_t total, double share, size_t at, uint64_t rest) {
    const double doubt = 0x1p-50 * (double)h->n_bins;
    double before = 0;
    uint64_t sum = 0;
    for (size_t i = 0; i < h->n_bins; i++) {
        sum += h->count[i] + (i == at ? rest : 0);
        const double upto = (double)sum / (double)total;
        if (!(upto < share - doubt))
            return before < share - doubt && upto > share + doubt ? i : h->n_bins;
        before = upto;
    }
    return h->n_bins;
}

static bool is_settled(const oq_cal_options *o, const oq_hist *h, size_t first, size_t last,
                       uint64_t rest) {
    const uint64_t total = total_of(h) + rest;
    const double shares[] = {upper_share(o), lower_share(o)};
    for (size_t i = 0; i < (o->symmetric ? 1 : 2); i++) {
        const size_t edge = clear_edge(h, total, shares[i], first, rest);
        if (edge == h->n_bins || clear_edge(h, total, shares[i], last, rest) != edge)
            return false;
    }
    return true;
}

const oq_cal_class oq_cal_percentile = {.histogram = true,
                                        .num_bins = 2048,
                                        .symmetric = true,
                                        .check = check,
                                        .solve = solve,
                                        .emit = emit,
                                        .bounds_need = bounds_need,
                                        .tail_share = tail_share,
                                        .is_settled = is_settled};
