/*
 * cal_minmax.c — MinMaxCalibrater: least and greatest value over the samples, or their mean.
 *
 * Each chunk gives a pair (np.nanmin/np.nanmax or np.nanmean over its samples, made symmetric if
 * asked) and chunks join by merge_range. Without moving average and chunks the pair is already
 * folded in lo and hi.
 */
#include "calibrate/collect/npmath.h"
#include "calibrate/method/method.h"

static onq_code check(const oq_cal_options *o, onq_error *err) {
    if (o->moving_average && !(o->averaging_constant >= 0 && o->averaging_constant <= 1))
        return oq_fail(err, ONQ_E_OPTION, "the averaging constant is %g, expected 0 to 1",
                       o->averaging_constant);
    if (o->per_channel && o->stride > 0)
        return oq_fail(err, ONQ_E_OPTION, "per_channel and strides cannot be used together");
    return ONQ_OK;
}

static int by_number(const void *a, const void *b) {
    const uint64_t x = ((const oq_row *)a)->number, y = ((const oq_row *)b)->number;
    return x < y ? -1 : x > y;
}

/* np.nanmean(rows, axis=0) for one channel. One channel: numpy sees a flat array and sums
 * pairwise; several: it adds row to row. */
static double nan_mean(const oq_tstat *t, const oq_row *rows, size_t n, size_t column,
                       float *work) {
    const bool flat = t->n_channels == 1;
    size_t count = 0;
    float total = 0;
    for (size_t i = 0; i < n; i++) {
        const float x = rows[i].v[column];
        work[i] = isnan(x) ? 0 : x;
        count += isnan(x) ? 0 : 1;
        if (!flat)
            total = oq_np_round(t->type, (double)(total + work[i]));
    }
    if (flat)
        total = oq_np_round(t->type, (double)oq_np_sum_f32(work, n));
    return (double)oq_np_round(t->type, (double)total / (double)count);
}

void oq_cal_join(const oq_cal_options *o, oq_dtype ty, double *lo, double *hi, double new_lo,
                 double new_hi) {
    if (!o->moving_average) {
        *lo = new_lo < *lo ? new_lo : *lo;
        *hi = new_hi > *hi ? new_hi : *hi;
        return;
    }
    const double k = (double)oq_np_round(ty, o->averaging_constant);
    double *const old[2] = {lo, hi};
    const double fresh[2] = {new_lo, new_hi};
    for (int i = 0; i < 2; i++) {
        const double step =
            (double)oq_np_round(ty, k * (double)oq_np_round(ty, fresh[i] - *old[i]));
        *old[i] = (double)oq_np_round(ty, *old[i] + step);
    }
}

static void symmetric(double *lo, double *hi) {
    const double a = fabs(*lo), b = fabs(*hi);
    const double most = isnan(a) ? b : isnan(b) ? a : a > b ? a : b;
    *lo = -most;
    *hi = most;
}

/* Rows in order of their samples, chunk by chunk. */
static onq_code from_rows(const oq_cal_options *o, const oq_tstat *t, oq_arena *a, double *lo,
                          double *hi, onq_error *err) {
    const size_t n = t->rows.n, channels = t->n_channels;
    oq_row *rows = OQ_NEW_ARRAY(a, oq_row, n);
    float *work = OQ_NEW_ARRAY(a, float, n);
    OQ_TRY_ALLOC(rows != NULL && work != NULL, err);
    if (n > 0) {
        memcpy(rows, t->rows.v, n * sizeof *rows);
        qsort(rows, n, sizeof *rows, by_number);
    }
    for (size_t from = 0, to; from < n; from = to) {
        const uint64_t size = o->moving_average ? o->stride : 1;
        for (to = from + 1; to < n; to++)
            if (size > 0 && rows[to].number / size != rows[from].number / size)
                break;
        for (size_t c = 0; c < channels; c++) {
            double x = (double)rows[from].v[c], y = (double)rows[from].v[channels + c];
            if (o->moving_average) {
                x = nan_mean(t, rows + from, to - from, c, work);
                y = nan_mean(t, rows + from, to - from, channels + c, work);
            }
            if (o->symmetric)
                symmetric(&x, &y);
            if (from > 0) {
                oq_cal_join(o, t->type, &lo[c], &hi[c], x, y);
            } else {
                lo[c] = x;
                hi[c] = y;
            }
        }
    }
    return ONQ_OK;
}

static onq_code emit(const oq_cal_options *o, const oq_tstat *t, const oq_cal_answer *x OQ_UNUSED,
                     oq_arena *a, oq_range *out, onq_error *err) {
    if (t->n_samples == 0)
        return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s' was not seen in any sample",
                       OQ_STR(t->name));
    if (!oq_num_make(a, &out->lowest, t->type, false, t->n_channels) ||
        !oq_num_make(a, &out->highest, t->type, false, t->n_channels))
        return oq_fail_nomem(err);
    if (o->moving_average || o->stride > 0) {
        OQ_SCRATCH(scratch, a->alloc);
        return from_rows(o, t, &scratch, out->lowest.v, out->highest.v, err);
    }
    for (size_t i = 0; i < t->n_channels; i++) {
        out->lowest.v[i] = (double)t->lo[i];
        out->highest.v[i] = (double)t->hi[i];
        if (o->symmetric)
            symmetric(&out->lowest.v[i], &out->highest.v[i]);
    }
    return ONQ_OK;
}

const oq_cal_class oq_cal_minmax = {.check = check, .emit = emit};
