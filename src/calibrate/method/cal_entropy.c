/*
 * cal_entropy.c — EntropyCalibrater: the range whose quantized histogram is nearest to the whole
 * one.
 *
 * For every range that grows from the middle by one bin on each side, p is the histogram inside it
 * with what lies outside added to its first and last bin, q is the same squeezed into
 * num_quantized_bins and spread again. Both are smoothed (zeros get a little, taken from the
 * others), and the range with the least relative entropy wins, the first of equals. p and q are
 * float32 from there on, as in the reference, with numpy's sums and logarithms.
 */
#include "calibrate/collect/npmath.h"
#include "calibrate/method/method.h"

#define EPS 0.0001

static onq_code check(const oq_cal_options *o, onq_error *err) {
    if (o->num_quantized_bins < 1 || o->num_quantized_bins / 2 > o->num_bins / 2)
        return oq_fail(err, ONQ_E_OPTION,
                       "calib_num_quantized_bins is %llu, expected 1 to calib_num_bins (%llu)",
                       (unsigned long long)o->num_quantized_bins, (unsigned long long)o->num_bins);
    return ONQ_OK;
}

typedef struct search {
    const oq_hist *h;
    size_t n_quantized;
    uint64_t *sum; /* sum[i]: counts before bin i */
    int64_t *p, *q;
    float *pf, *qf, *work;
} search;

/* p and q of the bins [start, end). */
static void spread(const search *s, size_t start, size_t end) {
    const uint64_t *count = s->h->count;
    const size_t size = end - start, n_bins = s->h->n_bins;
    const size_t merged = size / s->n_quantized;
    for (size_t i = 0; i < size; i++)
        s->p[i] = (int64_t)count[start + i];
    s->p[0] += (int64_t)s->sum[start];
    s->p[size - 1] += (int64_t)(s->sum[n_bins] - s->sum[end]);
    memset(s->q, 0, size * sizeof *s->q);
    for (size_t k = 0; k < s->n_quantized; k++) {
        const size_t from = k * merged, to = from + merged;
        const size_t upto = k + 1 == s->n_quantized ? size : to; /* the last takes the rest */
        const uint64_t inside = s->sum[start + upto] - s->sum[start + from];
        int64_t norm = 0;
        for (size_t i = from; i < to; i++)
            norm += s->p[i] != 0;
        if (norm == 0)
            continue;
        const int64_t each = (int64_t)((double)inside / (double)norm);
        for (size_t i = from; i < to; i++)
            s->q[i] = each;
    }
}

/* smooth_distribution. False where the reference has no answer: nothing but zeros, or so many
 * that smoothing would make others negative. */
static bool smooth(const int64_t *v, size_t n, float *out) {
    size_t zeros = 0;
    for (size_t i = 0; i < n; i++)
        zeros += v[i] == 0;
    if (zeros == n)
        return false;
    const double eps1 = EPS * (double)zeros / (double)(n - zeros);
    const float plus = (float)EPS, minus = (float)-eps1;
    for (size_t i = 0; i < n; i++) {
        out[i] = (float)v[i] + (v[i] == 0 ? plus : minus);
        if (!(out[i] > 0))
            return false;
    }
    return eps1 < 1.0;
}

/* Relative entropy of pf against qf, both scaled to sum 1. */
static float entropy(const search *s, size_t n) {
    const float p_sum = oq_np_sum_f32(s->pf, n), q_sum = oq_np_sum_f32(s->qf, n);
    for (size_t i = 0; i < n; i++) {
        s->pf[i] /= p_sum;
        s->qf[i] /= q_sum;
        s->work[i] = s->pf[i] / s->qf[i];
    }
    oq_np_log_f32_n(s->work, n);
    for (size_t i = 0; i < n; i++) {
        const bool usable = s->pf[i] > 0 && s->qf[i] > 0;
        s->work[i] = usable ? s->pf[i] * s->work[i] : INFINITY;
    }
    return oq_np_sum_f32(s->work, n);
}

static onq_code solve(const oq_cal_options *o, const oq_tstat *t, const onq_allocator *a,
                      oq_cal_answer *x, onq_error *err) {
    const oq_hist *h = &t->hist;
    const size_t n = h->n_bins, middle = n / 2;
    const size_t half = (size_t)(o->num_quantized_bins / 2);
    oq_arena scratch;
    oq_arena_init(&scratch, a);
    search s = {.h = h,
                .n_quantized = (size_t)o->num_quantized_bins,
                .sum = OQ_NEW_ARRAY(&scratch, uint64_t, n + 1),
                .p = OQ_NEW_ARRAY(&scratch, int64_t, n),
                .q = OQ_NEW_ARRAY(&scratch, int64_t, n),
                .pf = OQ_NEW_ARRAY(&scratch, float, n),
                .qf = OQ_NEW_ARRAY(&scratch, float, n),
                .work = OQ_NEW_ARRAY(&scratch, float, n)};
    if (s.sum == NULL || s.p == NULL || s.q == NULL || s.pf == NULL || s.qf == NULL ||
        s.work == NULL) {
        oq_arena_release(&scratch);
        return oq_fail_nomem(err);
    }
    for (size_t i = 0; i < n; i++)
        s.sum[i + 1] = s.sum[i] + h->count[i];
    float best = INFINITY;
    size_t best_start = middle - half, best_end = middle + half + 1 < n ? middle + half + 1 : n;
    for (size_t i = half; i <= middle; i++) {
        const size_t start = middle - i, end = middle + i + 1 < n ? middle + i + 1 : n;
        spread(&s, start, end);
        float div = INFINITY;
        if (smooth(s.p, end - start, s.pf) && smooth(s.q, end - start, s.qf))
            div = oq_np_round(t->type, (double)entropy(&s, end - start));
        if (div < best) {
            best = div;
            best_start = start;
            best_end = end;
        }
    }
    oq_arena_release(&scratch);
    *x = (oq_cal_answer){.lo = (double)h->edges[best_start],
                         .hi = (double)h->edges[best_end],
                         .lo_bare = true,
                         .hi_bare = true};
    oq_cal_clamp(t, x);
    return ONQ_OK;
}

static onq_code emit(const oq_cal_options *o OQ_UNUSED, const oq_tstat *t,
                     const oq_cal_answer *x OQ_UNUSED, oq_arena *a, oq_range *out, onq_error *err) {
    OQ_TRY_ALLOC(oq_cal_put_histogram(t, a, &out->hist, &out->bins), err);
    return ONQ_OK;
}

/* As many bins as quantized ones, which is the default: the only range to choose is the whole. */
static oq_cal_need bounds_need(const oq_cal_options *o) {
    return o->num_quantized_bins / 2 == o->num_bins / 2 ? OQ_NEED_EXTENT : OQ_NEED_COUNTS;
}

const oq_cal_class oq_cal_entropy = {.histogram = true,
                                     .num_bins = 128,
                                     .check = check,
                                     .solve = solve,
                                     .emit = emit,
                                     .bounds_need = bounds_need};
