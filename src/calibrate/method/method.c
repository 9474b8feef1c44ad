/*
 * method.c — the table of methods, their defaults and the checks that all share.
 */
#include "calibrate/method/method.h"

static const oq_cal_class *const classes[OQ_CAL_METHODS] = {
#define OQ_CAL_METHOD(NAME, text, symbol) [OQ_CAL_##NAME] = &oq_cal_##symbol,
#include "calibrate/method/method.def"
#undef OQ_CAL_METHOD
};

const char oq_cal_method_choices[] = ""
#define OQ_CAL_METHOD(NAME, text, symbol) "|" #symbol
#include "calibrate/method/method.def"
#undef OQ_CAL_METHOD
    ;

const oq_cal_class *oq_cal_class_of(oq_cal_method m) {
    assert((unsigned)m < OQ_CAL_METHODS);
    return classes[m];
}

/* With strides, later chunks make more bins than the options say. */
oq_cal_need oq_cal_need_of(const oq_cal_options *o) {
    const oq_cal_class *c = oq_cal_class_of(o->method);
    return o->bounds_only && o->stride == 0 && c->bounds_need != NULL ? c->bounds_need(o)
                                                                      : OQ_NEED_COUNTS;
}

bool oq_cal_reads_once(const oq_cal_options *o) {
    return !oq_cal_class_of(o->method)->histogram || oq_cal_need_of(o) == OQ_NEED_EXTENT;
}

onq_code oq_cal_emit(const oq_cal_options *o, const oq_tstat *t, const oq_cal_answer *x,
                     oq_arena *a, oq_range *out, onq_error *err) {
    const oq_cal_class *c = oq_cal_class_of(o->method);
    if (c->histogram) {
        if (!oq_num_make_one(a, &out->lowest, t->type, x->lo_bare, x->lo) ||
            !oq_num_make_one(a, &out->highest, t->type, x->hi_bare, x->hi))
            return oq_fail_nomem(err);
        if (o->bounds_only || c->emit == NULL)
            return ONQ_OK;
    }
    return c->emit(o, t, x, a, out, err);
}

bool oq_cal_put_histogram(const oq_tstat *t, oq_arena *a, oq_num *counts, oq_num *edges) {
    const oq_hist *h = &t->hist;
    if (!oq_num_make(a, counts, OQ_INT64, false, h->n_bins) ||
        !oq_num_make(a, edges, t->type, false, h->n_bins + 1))
        return false;
    for (size_t i = 0; i < h->n_bins; i++)
        counts->i[i] = (int64_t)h->count[i];
    for (size_t i = 0; i <= h->n_bins; i++)
        edges->v[i] = (double)h->edges[i];
    return true;
}

void oq_cal_clamp(const oq_tstat *t, oq_cal_answer *x) {
    if (x->lo < (double)t->min) {
        x->lo = (double)t->min;
        x->lo_bare = t->min_bare;
    }
    if (x->hi > (double)t->max) {
        x->hi = (double)t->max;
        x->hi_bare = t->max_bare;
    }
}

void oq_cal_defaults(oq_cal_options *o, oq_cal_method method) {
    const oq_cal_class *c = oq_cal_class_of(method);
    *o = (oq_cal_options){.method = method,
                          .symmetric = c->symmetric,
                          .averaging_constant = 0.01,
                          .num_bins = c->num_bins,
                          .num_quantized_bins =
                              c->num_quantized_bins > 0 ? c->num_quantized_bins : 128,
                          .percentile = 99.999,
                          .memory = OQ_CAL_MEMORY_AUTO};
}

onq_code oq_cal_check(const oq_cal_options *o, onq_error *err) {
    const oq_cal_class *c = oq_cal_class_of(o->method);
    if (c->histogram && (o->num_bins < 2 || o->num_bins > OQ_HIST_MAX_BINS))
        return oq_fail(err, ONQ_E_OPTION, "calib_num_bins is %llu, expected 2 to %u",
                       (unsigned long long)o->num_bins, OQ_HIST_MAX_BINS);
    return c->check != NULL ? c->check(o, err) : ONQ_OK;
}
