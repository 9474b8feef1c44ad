/*
 * weight_measure.c — the figures of one weight: noise, ranges, channels, what is clipped, what a
 * good scale would give, and whether sums of two products can pass 16 bits.
 */
#include "debug/measure/passes.h"
#include "debug/weights/weights.h"

#include "onnx/attr.h"
#include "onnx/operators.h"
#include "samples/agreement.h"

#define MAX_CHANNELS 65536

/* ---- histograms ---- */

onq_code oq_debug_hist_make(oq_arena *a, oq_debug_hist *h, float lo, float hi, onq_error *err) {
    if (!(hi > lo) || !isfinite(hi - lo)) {
        lo = isfinite(lo) ? lo - 0.5f : -1;
        hi = lo + 1;
    }
    h->lo = lo;
    h->hi = hi;
    h->flt = OQ_NEW_ARRAY(a, uint32_t, OQ_DEBUG_BINS);
    h->quantized = OQ_NEW_ARRAY(a, uint32_t, OQ_DEBUG_BINS);
    return h->flt != NULL && h->quantized != NULL ? ONQ_OK : oq_fail_nomem(err);
}

void oq_debug_hist_add(const oq_debug_hist *h, uint32_t *bins, const float *v, uint64_t n,
                       uint64_t step) {
    assert(step > 0);
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
    const size_t rank = w->flt->dims.n;
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

static oq_debug_grid channel_grid(const oq_debug_weight *w) {
    const size_t axis = channel_axis(w), rank = w->flt->dims.n;
    oq_debug_grid g = {0};
    if (rank == 0)
        return g;
    g = (oq_debug_grid){(uint64_t)w->flt->dims.v[axis], 1, 0};
    for (size_t k = axis + 1; k < rank; k++)
        g.inner *= (uint64_t)w->flt->dims.v[k];
    if (g.dim < 2 || g.dim > MAX_CHANNELS || g.inner == 0)
        g.dim = 0;
    return g;
}

/* One value of each of the n channels from c on, side by side. */
static void add_row(oq_weight_sums *s, const oq_debug_unpacked *u, uint64_t at, uint64_t n,
                    uint64_t c) {
    const float *x = u->x + at;
    float *lo = s->channel_lo + c, *hi = s->channel_hi + c;
    double *xx = s->xx + c, *ee = s->ee + c;
#pragma omp simd
    for (uint64_t i = 0; i < n; i++) {
        lo[i] = x[i] < lo[i] ? x[i] : lo[i];
        hi[i] = x[i] > hi[i] ? x[i] : hi[i];
    }
    if (u->wide != NULL) {
#pragma omp simd
        for (uint64_t i = 0; i < n; i++) {
            const double e = (double)x[i] - u->wide[at + i];
            xx[i] += (double)x[i] * (double)x[i];
            ee[i] += e * e;
        }
        return;
    }
    const float *y = u->y + at;
#pragma omp simd
    for (uint64_t i = 0; i < n; i++) {
        const double e = (double)x[i] - (double)y[i];
        xx[i] += (double)x[i] * (double)x[i];
        ee[i] += e * e;
    }
}

/* A run of values of one channel. */
static void add_run(oq_weight_sums *s, const oq_debug_unpacked *u, uint64_t at, uint64_t n,
                    uint64_t c) {
    const float *x = u->x + at, *y = u->y + at;
    double xx = 0, ee = 0;
    oq_span_add(&s->channel_lo[c], &s->channel_hi[c], x, n);
    if (u->wide != NULL) {
        for (uint64_t i = 0; i < n; i++) {
            const double e = (double)x[i] - u->wide[at + i];
            xx += (double)x[i] * (double)x[i];
            ee += e * e;
        }
    } else {
#pragma omp simd reduction(+ : xx, ee)
        for (uint64_t i = 0; i < n; i++) {
            const double e = (double)x[i] - (double)y[i];
            xx += (double)x[i] * (double)x[i];
            ee += e * e;
        }
    }
    s->xx[c] += xx;
    s->ee[c] += ee;
}

static void add_channels(oq_weight_sums *s, const oq_debug_unpacked *u) {
    oq_debug_stretch t;
    for (uint64_t at = 0; s->channels.dim > 0 && at < u->n; at += t.n) {
        t = oq_debug_stretch_at(&s->channels, u->from + at, u->n - at);
        if (t.rising)
            add_row(s, u, at, t.n, t.number);
        else
            add_run(s, u, at, t.n, t.number);
    }
}

static onq_code show_channels(oq_debug *d, oq_debug_weight *w, const oq_weight_sums *s,
                              onq_error *err) {
    const uint64_t dim = s->channels.dim;
    if (dim == 0 || s->n == 0)
        return ONQ_OK;
    w->n_channels = dim;
    w->channel_lo = OQ_NEW_ARRAY(&d->arena, float, dim);
    w->channel_hi = OQ_NEW_ARRAY(&d->arena, float, dim);
    w->channel_sqnr = OQ_NEW_ARRAY(&d->arena, double, dim);
    OQ_TRY_ALLOC(w->channel_lo != NULL && w->channel_hi != NULL && w->channel_sqnr != NULL, err);
    memcpy(w->channel_lo, s->channel_lo, dim * sizeof *s->channel_lo);
    memcpy(w->channel_hi, s->channel_hi, dim * sizeof *s->channel_hi);
    double worst = INFINITY;
    float largest = 0;
    for (uint64_t c = 0; c < dim; c++) {
        w->channel_sqnr[c] = oq_sums_sqnr(&(oq_sums){.xx = s->xx[c], .ee = s->ee[c]});
        if (s->ee[c] > 0 && w->channel_sqnr[c] < worst) {
            worst = w->channel_sqnr[c];
            w->worst_channel = c;
        }
        const float top = fmaxf(fabsf(s->channel_lo[c]), fabsf(s->channel_hi[c]));
        if (top > largest) {
            largest = top;
            w->largest_channel = c;
        }
    }
    return ONQ_OK;
}

/* ---- range ---- */

/* Least and greatest value of each group of elements with one scale, 0 among them, and how many it
 * holds. Groups that are channels follow from these. */
static bool groups_are_channels(const oq_weight_sums *s, const oq_debug_grid *g) {
    return s->channels.dim > 0 && g->dim == s->channels.dim && g->inner == s->channels.inner &&
           g->block == 0;
}

static void add_groups(oq_weight_sums *s, const oq_debug_unpacked *u) {
    oq_debug_stretch t;
    for (uint64_t at = 0; at < u->n; at += t.n) {
        t = oq_debug_stretch_at(&u->grid, u->from + at, u->n - at);
        const float *x = u->x + at;
        float *lo = s->group_lo + t.number, *hi = s->group_hi + t.number;
        uint64_t *n = s->group_n + t.number;
        if (!t.rising) {
            oq_span_add(lo, hi, x, t.n);
            *n += t.n;
            continue;
        }
        for (uint64_t i = 0; i < t.n; i++) {
            lo[i] = x[i] < lo[i] ? x[i] : lo[i];
            hi[i] = x[i] > hi[i] ? x[i] : hi[i];
            n[i]++;
        }
    }
}

/* Noise of a good scale: for each group, the range it has over the steps the type has. */
static double ideal(const oq_debug_weight *w, const oq_debug_unpacked *u, const oq_weight_sums *s) {
    double lo = 0, hi = 0, noise = 0;
    if (s->n_groups == 0 || !oq_debug_limits(w->type, &lo, &hi))
        return NAN;
    const bool same = groups_are_channels(s, &u->grid);
    for (uint64_t g = 0; g < s->n_groups; g++) {
        const double low = (double)(same ? fminf(s->channel_lo[g], 0) : s->group_lo[g]),
                     high = (double)(same ? fmaxf(s->channel_hi[g], 0) : s->group_hi[g]);
        const uint64_t count = same ? s->n / s->channels.dim : s->group_n[g];
        const double top = fmax(-low, high);
        const double step =
            u->has_zero ? (high - low) / (hi - lo) : (lo < 0 ? 2 * top / (hi - lo) : high / hi);
        noise += (double)count * step * step / 12;
    }
    return oq_signal_to_noise(s->sums.xx, noise);
}

static void set_range(oq_weight_sums *s, const oq_debug_weight *w, const oq_debug_unpacked *u) {
    double lo = 0, hi = 0;
    s->q_lo = s->q_hi = NAN;
    if (u->mixed || !oq_debug_limits(w->type, &lo, &hi))
        return;
    s->q_lo = INFINITY;
    s->q_hi = -INFINITY;
    for (uint64_t g = 0; g < u->n_groups; g++) {
        s->q_lo = fmin(s->q_lo, (lo - u->zero[g]) * (double)u->scale[g]);
        s->q_hi = fmax(s->q_hi, (hi - u->zero[g]) * (double)u->scale[g]);
    }
}

#define FEW 64 /* elements that are looked at together */

/* Values at the ends of the type that are further off than rounding takes them. */
static void add_clipped(oq_weight_sums *s, const oq_debug_weight *w, const oq_debug_unpacked *u) {
    double least = 0, most = 0;
    if (u->mixed || !oq_debug_limits(w->type, &least, &most) ||
        oq_dtype_find(w->type)->cls == OQ_CLASS_REAL)
        return;
    const bool wide = most > INT32_MAX; /* uint32: its integers do not fit in what holds them */
    const int32_t lo = (int32_t)least, hi = wide ? INT32_MAX : (int32_t)most;
    for (uint64_t at = 0; at < u->n; at += FEW) {
        const uint64_t to = u->n - at < FEW ? u->n : at + FEW;
        int32_t any = 0;
#pragma omp simd reduction(| : any)
        for (uint64_t i = at; i < to; i++)
            any |= (u->q[i] == lo) | (u->q[i] == hi);
        for (uint64_t i = at; any != 0 && i < to; i++)
            s->clipped += ((double)u->q[i] == least || (double)u->q[i] == most) &&
                          fabs((double)u->x[i] - (double)u->y[i]) >
                              0.75 * (double)u->scale[oq_debug_group(u, u->from + i)];
    }
}

/* What the reference's (w - zero) makes of it, which wraps around in the weight's type. */
static bool wraps(const oq_debug_weight *w, const oq_debug_unpacked *u) {
    const oq_dtype_info *info = oq_dtype_find(w->type);
    return u->has_zero && !u->mixed && w->layout == OQ_DEBUG_AFFINE && info->bits <= 16 &&
           info->cls != OQ_CLASS_REAL;
}

static void add_wrapped(oq_weight_sums *s, const oq_debug_weight *w, const oq_debug_unpacked *u) {
    const oq_dtype_info *info = oq_dtype_find(w->type);
    float y[OQ_PASS_PIECE];
    for (uint64_t at = 0; wraps(w, u) && at < u->n; at += OQ_PASS_PIECE) {
        const uint64_t n = u->n - at < OQ_PASS_PIECE ? u->n - at : OQ_PASS_PIECE;
        oq_debug_stretch t;
        for (uint64_t k = 0; k < n; k += t.n) {
            t = oq_debug_stretch_at(&u->grid, u->from + at + k, n - k);
            for (uint64_t i = 0; i < t.n; i++) {
                const uint64_t g = t.number + (t.rising ? i : 0);
                y[k + i] = (float)oq_debug_wrapped(u->q[at + k + i] - (int32_t)u->zero[g],
                                                   info->bits, info->cls == OQ_CLASS_INT) *
                           u->scale[g];
            }
        }
        oq_passes_best()->sums(u->x + at, y, n, &s->wrapped);
    }
}

/* ---- sums of two products ---- */

/* Pairs of weights along the inputs of one output, as a kernel with 16-bit sums of two products
 * takes them: channels innermost. 255 times their sum passes 16 bits when it is beyond 128 either
 * way. */
typedef struct pairing {
    uint64_t ins, space;        /* inputs of an output, and places of a window */
    uint64_t out_step, in_step; /* in elements */
    uint64_t n;                 /* elements that are paired; 0: none are */
} pairing;

static pairing pairs_of(const oq_debug_weight *w, uint64_t n) {
    const size_t rank = w->flt->dims.n;
    if (w->type != OQ_INT8 || w->layout > OQ_DEBUG_PAIR || rank < 2 || n == 0)
        return (pairing){0};
    const int64_t *dims = w->flt->dims.v;
    const oq_product product = oq_op_traits_of(w->op)->product;
    const bool matrix = product == OQ_GEMM || product == OQ_MATMUL;
    const uint64_t rows = (uint64_t)dims[rank - 2], columns = (uint64_t)dims[rank - 1];
    if (product == OQ_CONV) {
        const uint64_t ins = (uint64_t)dims[1], block = n / (uint64_t)dims[0], space = block / ins;
        if (ins == 1 && space > 1) /* one channel: along the window */
            return (pairing){space, 1, block, 1, n};
        return (pairing){ins, space, block, space, n};
    }
    if (matrix && w->out_rows)
        return (pairing){columns, 1, columns, 1, rows * columns};
    if (matrix) /* two rows at a time, all their columns */
        return (pairing){2, columns, 2 * columns, columns, rows / 2 * 2 * columns};
    return (pairing){0};
}

uint64_t oq_weight_unit(const oq_debug_weight *w, uint64_t n) {
    const pairing p = pairs_of(w, n);
    return p.n > 0 ? p.out_step : 1;
}

static void add_pairs(oq_weight_sums *s, const oq_debug_weight *w, const oq_debug_unpacked *u,
                      uint64_t n) {
    const pairing p = pairs_of(w, n);
    const uint64_t to = p.n < u->from + u->n ? p.n : u->from + u->n;
    for (uint64_t at = u->from; at + p.out_step <= to && p.n > 0; at += p.out_step)
        for (uint64_t i = 0; i + 1 < p.ins; i += 2) {
            const int32_t *a = &u->q[at - u->from + i * p.in_step], *b = a + p.in_step;
            int32_t hot = 0; /* of less than 2^31 in a row */
#pragma omp simd reduction(+ : hot)
            for (uint64_t k = 0; k < p.space; k++) {
                const int32_t sum = a[k] + b[k];
                hot += (sum > 128) | (sum < -128);
            }
            s->pairs += p.space;
            s->hot_pairs += (uint64_t)hot;
        }
}

/* ---- all of it ---- */

onq_code oq_weight_sums_init(oq_weight_sums *s, const oq_debug_weight *w,
                             const oq_debug_unpacked *u, oq_arena *a, onq_error *err) {
    double lo = 0, hi = 0;
    *s = (oq_weight_sums){.lo = w->lo, .hi = w->hi, .channels = channel_grid(w)};
    set_range(s, w, u);
    const uint64_t dim = s->channels.dim;
    s->xx = OQ_NEW_ARRAY(a, double, dim + 1);
    s->ee = OQ_NEW_ARRAY(a, double, dim + 1);
    s->channel_lo = OQ_NEW_ARRAY(a, float, dim + 1);
    s->channel_hi = OQ_NEW_ARRAY(a, float, dim + 1);
    if (s->xx == NULL || s->ee == NULL || s->channel_lo == NULL || s->channel_hi == NULL)
        return oq_fail_nomem(err);
    for (uint64_t c = 0; c < dim; c++) {
        s->channel_lo[c] = INFINITY;
        s->channel_hi[c] = -INFINITY;
    }
    if (w->type == OQ_INT32 || u->mixed || !oq_debug_limits(w->type, &lo, &hi) ||
        oq_dtype_find(w->type)->cls == OQ_CLASS_REAL)
        return ONQ_OK;
    s->n_groups = u->n_groups;
    if (groups_are_channels(s, &u->grid))
        return ONQ_OK;
    s->group_lo = OQ_NEW_ARRAY(a, float, s->n_groups + 1);
    s->group_hi = OQ_NEW_ARRAY(a, float, s->n_groups + 1);
    s->group_n = OQ_NEW_ARRAY(a, uint64_t, s->n_groups + 1);
    return s->group_lo != NULL && s->group_hi != NULL && s->group_n != NULL ? ONQ_OK
                                                                            : oq_fail_nomem(err);
}

void oq_weight_sums_add(oq_weight_sums *s, const oq_debug_weight *w, const oq_debug_unpacked *u,
                        uint64_t n) {
    if (u->wide != NULL)
        oq_sums_add_real(&s->sums, u->x, u->wide, u->n);
    else
        oq_passes_best()->sums(u->x, u->y, u->n, &s->sums);
    oq_span_add(&s->lo, &s->hi, u->x, u->n);
    add_clipped(s, w, u);
    add_wrapped(s, w, u);
    add_pairs(s, w, u, n);
    if (s->group_lo != NULL)
        add_groups(s, u);
    add_channels(s, u);
    s->n += u->n;
}

static void join_spans(float *lo, float *hi, const float *more_lo, const float *more_hi,
                       uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        lo[i] = more_lo[i] < lo[i] ? more_lo[i] : lo[i];
        hi[i] = more_hi[i] > hi[i] ? more_hi[i] : hi[i];
    }
}

void oq_weight_sums_join(oq_weight_sums *into, const oq_weight_sums *more) {
    assert(into->n_groups == more->n_groups && into->channels.dim == more->channels.dim);
    oq_sums_join(&into->sums, &more->sums);
    oq_sums_join(&into->wrapped, &more->wrapped);
    join_spans(&into->lo, &into->hi, &more->lo, &more->hi, 1);
    into->n += more->n;
    into->clipped += more->clipped;
    into->pairs += more->pairs;
    into->hot_pairs += more->hot_pairs;
    if (into->group_lo != NULL)
        join_spans(into->group_lo, into->group_hi, more->group_lo, more->group_hi, into->n_groups);
    for (uint64_t g = 0; into->group_n != NULL && g < into->n_groups; g++)
        into->group_n[g] += more->group_n[g];
    join_spans(into->channel_lo, into->channel_hi, more->channel_lo, more->channel_hi,
               into->channels.dim);
    for (uint64_t c = 0; c < into->channels.dim; c++) {
        into->xx[c] += more->xx[c];
        into->ee[c] += more->ee[c];
    }
}

onq_code oq_debug_weight_finish(oq_debug *d, oq_debug_weight *w, const oq_debug_unpacked *u,
                                const oq_weight_sums *s, onq_error *err) {
    w->sums = s->sums;
    w->sqnr = oq_sums_sqnr(&w->sums);
    w->per_channel = u->n_groups > 1;
    w->lo = s->lo;
    w->hi = s->hi;
    w->q_lo = s->q_lo;
    w->q_hi = s->q_hi;
    w->saturated = s->n > 0 ? (double)s->clipped / (double)s->n : 0;
    const double wrapped = wraps(w, u) ? oq_sums_sqnr(&s->wrapped) : w->sqnr;
    w->reference_sqnr = fabs(wrapped - w->sqnr) > 1e-6 ? wrapped : NAN;
    w->pairs = s->pairs;
    w->hot_pairs = s->hot_pairs;
    w->ideal = ideal(w, u, s);
    OQ_TRY(show_channels(d, w, s, err));
    if (!d->histograms)
        return ONQ_OK;
    float lo = w->lo, hi = w->hi;
    if (w->q_hi - w->q_lo <
        4 * ((double)hi - (double)lo)) { /* the range shows too, unless it is far off */
        lo = fminf(lo, (float)w->q_lo);
        hi = fmaxf(hi, (float)w->q_hi);
    }
    return oq_debug_hist_make(&d->arena, &w->hist, lo, hi, err);
}
