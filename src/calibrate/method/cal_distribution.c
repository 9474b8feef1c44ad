/*
 * cal_distribution.c — DistributionCalibrater: mean and deviation of the histogram, for float 8.
 *
 * Means are over the middles of the bins. Scenario p3 takes their cube roots (with sign): float 8
 * is then taken to be distributed like the cube of what is normal. numpy's float32 power has other
 * last digits on machines with AVX-512 than elsewhere; here it is the C library's everywhere
 * (docs/DIFFERENCES.md).
 */
#include "calibrate/collect/npmath.h"
#include "calibrate/method/method.h"

static onq_code check(const oq_cal_options *o, onq_error *err) {
    if (o->num_bins < 512)
        return oq_fail(err, ONQ_E_OPTION, "calib_num_bins is %llu, Distribution needs 512 or more",
                       (unsigned long long)o->num_bins);
    return ONQ_OK;
}

static float middle(const oq_cal_options *o, const oq_hist *h, size_t i) {
    const float v = oq_np_step(h->type, oq_np_step(h->type, h->edges[i] + h->edges[i + 1]) * 0.5f);
    if (o->scenario == OQ_CAL_SAME)
        return v;
    const float power = oq_np_round(h->type, 1.0 / 3.0);
    const float root = oq_np_step(h->type, powf(fabsf(v), power));
    return v < 0 ? -root : root;
}

static onq_code solve(const oq_cal_options *o, const oq_tstat *t, const onq_allocator *a,
                      oq_cal_answer *x, onq_error *err) {
    const oq_hist *h = &t->hist;
    double *first = oq_calloc(a, 2 * h->n_bins, sizeof(double));
    OQ_TRY_ALLOC(first != NULL, err);
    double *second = first + h->n_bins;
    int64_t total = 0;
    for (size_t i = 0; i < h->n_bins; i++) {
        const float v = middle(o, h, i);
        const double n = (double)h->count[i];
        first[i] = n * (double)v;
        second[i] = n * (double)oq_np_step(h->type, v * v);
        total += (int64_t)h->count[i];
    }
    const double avg = oq_np_sum_f64(first, h->n_bins) / (double)total;
    const double mean_square = oq_np_sum_f64(second, h->n_bins) / (double)total;
    const double std = pow(mean_square - pow(avg, 2.0), 0.5);
    oq_free(a, first, 2 * h->n_bins * sizeof(double));
    x->avg = (double)oq_np_round(t->type, avg);
    x->std = (double)oq_np_round(t->type, std);
    x->lo = (double)h->edges[0];
    x->hi = (double)h->edges[h->n_bins];
    x->lo_bare = x->hi_bare = true;
    return ONQ_OK;
}

static onq_code emit(const oq_cal_options *o OQ_UNUSED, const oq_tstat *t, const oq_cal_answer *x,
                     oq_arena *a, oq_range *out, onq_error *err) {
    if (!oq_num_make_one(a, &out->avg, t->type, false, x->avg) ||
        !oq_num_make_one(a, &out->std, t->type, false, x->std) ||
        !oq_cal_put_histogram(t, a, &out->hist, &out->hist_edges))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static oq_cal_need bounds_need(const oq_cal_options *o OQ_UNUSED) {
    return OQ_NEED_EXTENT;
}

const oq_cal_class oq_cal_distribution = {.histogram = true,
                                          .num_bins = 2048,
                                          .check = check,
                                          .solve = solve,
                                          .emit = emit,
                                          .bounds_need = bounds_need};
