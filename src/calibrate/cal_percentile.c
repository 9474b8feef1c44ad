/*
 * cal_percentile.c — PercentileCalibrater: the edges between which the given share of the values
 * lies.
 *
 * Symmetric, the histogram is of magnitudes and one edge serves for both sides; else half of what
 * is cut goes at each side. The result never leaves the values seen. The reference keeps the first
 * two counts as `hist` and `bins`; so does the cache here.
 */
#include "calibrate/collect_int.h"
#include "calibrate/method.h"

static onq_code check(const oq_cal_options *o, onq_error *err) {
    if (!(o->percentile >= 0 && o->percentile <= 100))
        return oq_fail(err, ONQ_E_OPTION, "the percentile is %g, expected 0 to 100", o->percentile);
    return ONQ_OK;
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

static onq_code solve(const oq_cal_options *o, const oq_tstat *t, const onq_allocator *a,
                      oq_cal_answer *x, onq_error *err) {
    (void)a;
    (void)err;
    const oq_hist *h = &t->hist;
    uint64_t total = 0;
    for (size_t i = 0; i < h->n_bins; i++)
        total += h->count[i];
    if (o->symmetric) {
        x->hi = (double)h->edges[edge_of(h, total, o->percentile / 100.0)];
        x->lo = -x->hi;
        x->lo_bare = true;
    } else {
        const double cut = (100.0 - o->percentile) / 200.0;
        x->hi = (double)h->edges[edge_of(h, total, 1.0 - cut)];
        x->lo = (double)h->edges[edge_of(h, total, cut)];
    }
    oq_cal_clamp(t, x);
    return ONQ_OK;
}

static onq_code emit(const oq_cal_options *o, const oq_tstat *t, const oq_cal_answer *x,
                     oq_arena *a, oq_range *out, onq_error *err) {
    (void)o;
    if (!oq_num_make_one(a, &out->lowest, t->type, x->lo_bare, x->lo) ||
        !oq_num_make_one(a, &out->highest, t->type, x->hi_bare, x->hi) ||
        !oq_num_make_one(a, &out->hist, OQ_INT64, true, (double)t->hist.count[0]) ||
        !oq_num_make_one(a, &out->bins, OQ_INT64, true, (double)t->hist.count[1]))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

const oq_cal_class oq_cal_percentile = {.histogram = true,
                                        .num_bins = 2048,
                                        .symmetric = true,
                                        .check = check,
                                        .solve = solve,
                                        .emit = emit};
