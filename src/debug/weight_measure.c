/*
 * weight_measure.c — the figures of one weight: noise, ranges, channels, what is clipped, what a
 * good scale would give, and whether sums of two products can pass 16 bits.
 */
#include "debug/passes.h"
#include "debug/weights.h"

#include "onnx/attr.h"
#include "onnx/operators.h"

#include <math.h>

#define MAX_CHANNELS 65536

/* ---- histograms ---- */

onq_code oq_debug_hist_make(oq_arena *a, oq_debug_hist *h, float lo, float hi, onq_error *err) {
    if (!(hi > lo) || !isfinite(hi - lo)) {
        lo = isfinite(lo) ? lo - 0.5f : -1;
        hi = lo + 1;
    }
    h->lo = lo;
    h->hi = hi;
    h->truth = OQ_NEW_ARRAY(a, uint32_t, OQ_DEBUG_BINS);
    h->made = OQ_NEW_ARRAY(a, uint32_t, OQ_DEBUG_BINS);
    return h->truth != NULL && h->made != NULL ? ONQ_OK : oq_fail_nomem(err);
}

void oq_debug_hist_add(const oq_debug_hist *h, uint32_t *bins, const float *v, uint64_t n,
                       uint64_t step) {
    if (bins == NULL)
        return;
    const float scale = OQ_DEBUG_BINS / (h->hi - h->lo);
    for (uint64_t i = 0; i < n; i += step) {
        const float at = (v[i] - h->lo) * scale;
        if (at != at)
            continue;
        bins[at < 0 ? 0 : at >= OQ_DEBUG_BINS - 1 ? OQ_DEBUG_BINS - 1 : (int)at]++;
    }
}

/* ---- channels ---- */

/* The axis along which channels are shown: that of the scales, else that of the outputs. */
static size_t channel_axis(const oq_debug_weight *w) {
    const size_t rank = w->truth->dims.n;
    if (w->axis >= 0 && w->block == 0 && !w->transposed && (size_t)w->axis < rank)
        return (size_t)w->axis;
    const oq_op_traits *traits = oq_op_traits_of(w->op);
    if (traits->product == OQ_CONV_TRANSPOSE)
        return rank > 1;
    if (traits->product == OQ_CONV || oq_str_is(w->op, "Gather"))
        return 0;
    if (w->out_rows && rank > 1)
        return rank - 2;
    return rank > 0 ? rank - 1 : 0;
}

/* Sums and spans of channels, as arrays by channel. */
typedef struct by_channel {
    double *xx, *ee;
    float *lo, *hi;
} by_channel;

static double made_value(const oq_debug_unpacked *u, uint64_t i) {
    return u->wide != NULL ? u->wide[i] : (double)u->y[i];
}

/* One value of each channel, side by side. */
static void add_row(by_channel *b, const oq_debug_unpacked *u, uint64_t at, uint64_t dim) {
    const float *x = u->x + at;
    for (uint64_t c = 0; c < dim; c++) {
        b->lo[c] = x[c] < b->lo[c] ? x[c] : b->lo[c];
        b->hi[c] = x[c] > b->hi[c] ? x[c] : b->hi[c];
        b->xx[c] += (double)x[c] * (double)x[c];
    }
    for (uint64_t c = 0; u->wide == NULL && c < dim; c++) {
        const double e = (double)x[c] - (double)u->y[at + c];
        b->ee[c] += e * e;
    }
    for (uint64_t c = 0; u->wide != NULL && c < dim; c++) {
        const double e = (double)x[c] - u->wide[at + c];
        b->ee[c] += e * e;
    }
}

/* A run of values of one channel. */
static void add_run(by_channel *b, const oq_debug_unpacked *u, uint64_t at, uint64_t n,
                    uint64_t c) {
    double xx = 0, ee = 0;
    oq_span_add(&b->lo[c], &b->hi[c], u->x + at, n);
    for (uint64_t i = at; i < at + n; i++) {
        const double x = (double)u->x[i], e = x - made_value(u, i);
        xx += x * x;
        ee += e * e;
    }
    b->xx[c] += xx;
    b->ee[c] += ee;
}

static onq_code channels(oq_debug *d, oq_debug_weight *w, const oq_debug_unpacked *u, oq_arena *a,
                         onq_error *err) {
    const size_t axis = channel_axis(w), rank = w->truth->dims.n;
    if (rank == 0 || u->n == 0)
        return ONQ_OK;
    uint64_t inner = 1;
    for (size_t k = axis + 1; k < rank; k++)
        inner *= (uint64_t)w->truth->dims.v[k];
    const uint64_t dim = (uint64_t)w->truth->dims.v[axis];
    if (dim < 2 || dim > MAX_CHANNELS)
        return ONQ_OK;
    w->n_channels = dim;
    w->channel_lo = OQ_NEW_ARRAY(&d->arena, float, dim);
    w->channel_hi = OQ_NEW_ARRAY(&d->arena, float, dim);
    w->channel_sqnr = OQ_NEW_ARRAY(&d->arena, double, dim);
    by_channel b = {OQ_NEW_ARRAY(a, double, dim), OQ_NEW_ARRAY(a, double, dim), w->channel_lo,
                    w->channel_hi};
    if (b.lo == NULL || b.hi == NULL || w->channel_sqnr == NULL || b.xx == NULL || b.ee == NULL)
        return oq_fail_nomem(err);
    for (uint64_t c = 0; c < dim; c++) {
        b.lo[c] = INFINITY;
        b.hi[c] = -INFINITY;
    }
    for (uint64_t at = 0; inner == 1 && at < u->n; at += dim)
        add_row(&b, u, at, dim);
    for (uint64_t k = 0; inner > 1 && k < u->n / inner; k++)
        add_run(&b, u, k * inner, inner, k % dim);
    double worst = INFINITY;
    float largest = 0;
    for (uint64_t c = 0; c < dim; c++) {
        w->channel_sqnr[c] = oq_sums_sqnr(&(oq_sums){.xx = b.xx[c], .ee = b.ee[c]});
        if (b.ee[c] > 0 && w->channel_sqnr[c] < worst) {
            worst = w->channel_sqnr[c];
            w->worst_channel = c;
        }
        const float top = fmaxf(fabsf(b.lo[c]), fabsf(b.hi[c]));
        if (top > largest) {
            largest = top;
            w->largest_channel = c;
        }
    }
    return ONQ_OK;
}

/* ---- range ---- */

/* Noise of a good scale: for each group of elements with one scale, the range they have over the
 * steps the type has. What is known of a group: its least and greatest value, and how many it
 * holds. */
static onq_code ideal(oq_debug_weight *w, const oq_debug_unpacked *u, oq_arena *a, onq_error *err) {
    double lo = 0, hi = 0;
    w->ideal = NAN;
    if (w->type == OQ_INT32 || u->mixed || !oq_debug_limits(w->type, &lo, &hi) ||
        oq_dtype_find(w->type)->cls == OQ_CLASS_REAL)
        return ONQ_OK;
    const uint64_t n_groups = u->n_groups;
    float *low = OQ_NEW_ARRAY(a, float, n_groups + 1), *high = OQ_NEW_ARRAY(a, float, n_groups + 1);
    uint64_t *count = OQ_NEW_ARRAY(a, uint64_t, n_groups + 1);
    if (low == NULL || high == NULL || count == NULL)
        return oq_fail_nomem(err);
    for (uint64_t i = 0; i < u->n && u->dim > 0; i++) {
        const uint64_t g = oq_debug_group(u, i);
        low[g] = u->x[i] < low[g] ? u->x[i] : low[g];
        high[g] = u->x[i] > high[g] ? u->x[i] : high[g];
        count[g]++;
    }
    if (u->dim == 0) { /* one scale for all: 0 is always in its range */
        low[0] = fminf(w->lo, 0);
        high[0] = fmaxf(w->hi, 0);
        count[0] = u->n;
    }
    double noise = 0;
    for (uint64_t g = 0; g < n_groups; g++) {
        const double top = fmax(-(double)low[g], (double)high[g]);
        const double step = u->has_zero ? ((double)high[g] - (double)low[g]) / (hi - lo)
                                        : (lo < 0 ? 2 * top / (hi - lo) : (double)high[g] / hi);
        noise += (double)count[g] * step * step / 12;
    }
    w->ideal = noise > 0 ? 10 * log10(w->sums.xx / noise) : INFINITY;
    return ONQ_OK;
}

static void range(oq_debug_weight *w, const oq_debug_unpacked *u) {
    double lo = 0, hi = 0;
    w->q_lo = w->q_hi = NAN;
    if (u->mixed || !oq_debug_limits(w->type, &lo, &hi))
        return;
    w->q_lo = INFINITY;
    w->q_hi = -INFINITY;
    for (uint64_t g = 0; g < u->n_groups; g++) {
        w->q_lo = fmin(w->q_lo, (lo - u->zero[g]) * (double)u->scale[g]);
        w->q_hi = fmax(w->q_hi, (hi - u->zero[g]) * (double)u->scale[g]);
    }
    uint64_t clipped = 0;
    if (oq_dtype_find(w->type)->cls == OQ_CLASS_REAL)
        return;
    for (uint64_t i = 0; i < u->n; i++)
        clipped +=
            ((double)u->q[i] == lo || (double)u->q[i] == hi) &&
            fabs((double)u->x[i] - (double)u->y[i]) > 0.75 * (double)u->scale[oq_debug_group(u, i)];
    w->saturated = u->n > 0 ? (double)clipped / (double)u->n : 0;
}

/* What the reference's (w - zero) makes of it, which wraps around in the weight's type. */
static void as_reference(oq_debug_weight *w, const oq_debug_unpacked *u) {
    const oq_dtype_info *info = oq_dtype_find(w->type);
    w->reference_sqnr = NAN;
    if (!u->has_zero || u->mixed || w->layout != OQ_DEBUG_AFFINE || info->bits > 16 ||
        info->cls == OQ_CLASS_REAL)
        return;
    oq_sums s = {0};
    for (uint64_t i = 0; i < u->n; i++) {
        const uint64_t g = oq_debug_group(u, i);
        const int32_t v =
            oq_debug_wrapped(u->q[i] - (int32_t)u->zero[g], info->bits, info->cls == OQ_CLASS_INT);
        const float y = (float)v * u->scale[g];
        oq_sums_add(&s, &u->x[i], &y, 1);
    }
    const double sqnr = oq_sums_sqnr(&s);
    w->reference_sqnr = fabs(sqnr - w->sqnr) > 1e-6 ? sqnr : NAN;
}

/* ---- sums of two products ---- */

/* Pairs of weights along the inputs of one output, as a kernel with 16-bit sums of two products
 * takes them: channels innermost. 255 times their sum passes 16 bits when it is beyond 128 either
 * way. */
static void pairs(oq_debug_weight *w, const oq_debug_unpacked *u) {
    const size_t rank = w->truth->dims.n;
    if (w->type != OQ_INT8 || w->layout > OQ_DEBUG_PAIR || rank < 2 || u->n == 0)
        return;
    const int64_t *dims = w->truth->dims.v;
    const oq_product product = oq_op_traits_of(w->op)->product;
    const bool matrix = product == OQ_GEMM || product == OQ_MATMUL;
    uint64_t outs, ins, space = 1, out_step, in_step;
    if (product == OQ_CONV) {
        outs = (uint64_t)dims[0];
        ins = (uint64_t)dims[1];
        space = u->n / outs / ins;
        out_step = ins * space;
        in_step = space;
        if (ins == 1 && space > 1) { /* one channel: along the window */
            ins = space;
            space = 1;
            in_step = 1;
        }
    } else if (matrix && w->out_rows) {
        outs = (uint64_t)dims[rank - 2];
        ins = (uint64_t)dims[rank - 1];
        out_step = ins;
        in_step = 1;
    } else if (matrix) {
        outs = (uint64_t)dims[rank - 1];
        ins = (uint64_t)dims[rank - 2];
        out_step = 1;
        in_step = outs;
    } else {
        return;
    }
    for (uint64_t o = 0; o < outs; o++)
        for (uint64_t s = 0; s < space; s++)
            for (uint64_t i = 0; i + 1 < ins; i += 2) {
                const int32_t *q = &u->q[o * out_step + s + i * in_step];
                const int32_t sum = q[0] + q[in_step];
                w->pairs++;
                w->hot_pairs += sum > 128 || sum < -128;
            }
}

onq_code oq_debug_weight_measure(oq_debug *d, oq_debug_weight *w, const oq_debug_unpacked *u,
                                 oq_arena *scratch, onq_error *err) {
    w->sums = (oq_sums){0};
    if (u->wide != NULL)
        oq_sums_add_real(&w->sums, u->x, u->wide, u->n);
    else
        oq_passes_best()->sums(u->x, u->y, u->n, &w->sums);
    w->sqnr = oq_sums_sqnr(&w->sums);
    w->per_channel = u->n_groups > 1;
    oq_span_add(&w->lo, &w->hi, u->x, u->n);
    range(w, u);
    as_reference(w, u);
    pairs(w, u);
    OQ_TRY(ideal(w, u, scratch, err));
    OQ_TRY(channels(d, w, u, scratch, err));
    if (!d->histograms)
        return ONQ_OK;
    float lo = w->lo, hi = w->hi;
    if (w->q_hi - w->q_lo <
        4 * ((double)hi - (double)lo)) { /* the range shows too, unless it is far off */
        lo = fminf(lo, (float)w->q_lo);
        hi = fmaxf(hi, (float)w->q_hi);
    }
    OQ_TRY(oq_debug_hist_make(&d->arena, &w->hist, lo, hi, err));
    const uint64_t step = u->n / 200000 + 1;
    oq_debug_hist_add(&w->hist, w->hist.truth, u->x, u->n, step);
    oq_debug_hist_add(&w->hist, w->hist.made, u->y, u->n, step);
    return ONQ_OK;
}
