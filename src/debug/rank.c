/*
 * rank.c — what loses most, worst first, and the likely reason.
 *
 * A weight is judged by its own noise, an activation by what its quantizer does to the float
 * model's values, so that a tensor is not blamed for what happened before it. Noise relative to the
 * values passes on through a network about as it is, and noise of several sources adds up: so that
 * is also a guess at the effect on the outputs. Of a weight it is the mean over its channels, whose
 * outputs weigh alike whatever the size of their weights. Where a search has measured the effect,
 * that decides. The noise is compared
 * with that of a plain min-max scale of the same type over the same values (`ideal`). What loses
 * much more than that has parameters that do not fit, and comes first: it can be improved without
 * another format.
 */
#include "debug/search/search.h"
#include "debug/weights/weights.h"

#include "base/keyed.h"
#include "samples/agreement.h"

#include <math.h>
#include <stdlib.h>

#define EXCESS_FAULT   9.0    /* dB: more than one bit and a half below what the type can do */
#define SMALLEST_RANGE 1.1e-4 /* quantizers widen ranges to 1e-4 */
#define UNMEASURED     1000.0 /* dB: past every score */
#define LITTLE         40.0   /* dB: what loses no more adds little to what it inherits */

typedef struct reason_row {
    const char *text, *advice;
} reason_row;

static const reason_row reasons[] = {
    [OQ_DEBUG_FINE] = {"nothing unusual", ""},
    [OQ_DEBUG_SCALE_WRONG] = {"scale does not fit the values",
                              "quantize it again, or look at its override"},
    [OQ_DEBUG_CLIPPED] = {"clipped range",
                          "calibrate with more samples, or with minmax or a higher percentile"},
    [OQ_DEBUG_WIDE] = {"range far wider than the values",
                       "try --calibration_method percentile or entropy"},
    [OQ_DEBUG_OUTLIERS] = {"a few large values stretch the range",
                           "try --calibration_method percentile, or 16 bits for this tensor"},
    [OQ_DEBUG_CHANNEL] = {"outlier channel", "try --per_channel"},
    [OQ_DEBUG_SKEWED] = {"skewed: half of the range is not used",
                         "use an asymmetric type (quint8) for it"},
    [OQ_DEBUG_SMALL] = {"very small values",
                        "harmless unless they are scaled up; exclude the node"},
    [OQ_DEBUG_BIAS] = {"bias saturation", "leave weight adjustment on, or exclude the node"},
    [OQ_DEBUG_FEW_BITS] = {"too few steps for its values",
                           "use more bits for it, or exclude the node"},
    [OQ_DEBUG_BELOW_STEP] = {"smaller than one step of its scale",
                             "harmless: its error is half a step of the sum it is added to"},
    [OQ_DEBUG_INHERITED] = {"inherited from the layers before", "look at what ranks above it"},
    [OQ_DEBUG_MASK] = {"a mask stretches the range",
                       "leave its node and those that read it float: --masks float"},
    [OQ_DEBUG_NOT_FINITE] = {"NaN or infinity where float has numbers",
                             "look at the node before; leave it float"},
};

const char *oq_debug_reason_text(oq_debug_reason r) {
    assert((size_t)r < OQ_COUNT(reasons));
    return reasons[r].text;
}

const char *oq_debug_reason_advice(oq_debug_reason r) {
    assert((size_t)r < OQ_COUNT(reasons));
    return reasons[r].advice;
}

unsigned oq_debug_bits(const oq_debug *d) {
    unsigned least = 0;
    for (size_t i = 0; i < d->weights.n + d->acts.n; i++) {
        const oq_debug_weight *x = i < d->weights.n ? &d->weights.v[i] : NULL;
        const oq_dtype type = x != NULL ? x->type : d->acts.v[i - d->weights.n].type;
        const oq_dtype_info *info = oq_dtype_find((int64_t)type);
        const unsigned bits = x != NULL && x->layout >= OQ_DEBUG_NBITS ? (unsigned)x->bits
                              : info != NULL                           ? info->bits
                                                                       : 0;
        if (bits > 0 && bits < 32 && (least == 0 || bits < least))
            least = bits;
    }
    return least > 0 ? least : 8;
}

/* No activation is quantized, and all weights are of the kinds that only `nbits` makes. */
static bool has_weights_only(const oq_debug *d) {
    bool only = d->acts.n == 0 && d->weights.n > 0;
    for (size_t i = 0; i < d->weights.n; i++)
        only &= d->weights.v[i].layout >= OQ_DEBUG_NBITS || d->weights.v[i].block > 0;
    return only;
}

double oq_debug_floor(const oq_debug *d) {
    return has_weights_only(d) ? OQ_GRADE_FLOOR_WEIGHTS : oq_grade_floor(oq_debug_bits(d));
}

oq_graded oq_debug_graded(const oq_debug *d) {
    oq_graded g = {.sqnr = INFINITY, .floor = oq_debug_floor(d), .text = &d->text};
    for (size_t i = 0; i < d->outputs.n; i++) {
        const oq_debug_output *o = &d->outputs.v[i];
        const oq_sums *s = oq_debug_output_judged(o);
        const double sqnr = !isfinite(s->ee) ? (double)NAN
                            : s->ee > 0      ? oq_sums_sqnr(s)
                                             : (double)INFINITY;
        if (s->n == 0 || o->state)
            continue;
        g.sqnr = isnan(sqnr) || sqnr < g.sqnr ? sqnr : g.sqnr;
        if (g.rows > 0)
            continue;
        g.rows = s == &o->plain ? o->rows : o->rows_optimised;
        g.same = s == &o->plain ? o->same_plain : o->same_optimised;
    }
    return g;
}

oq_grade oq_debug_grade(const oq_debug *d) {
    const oq_graded g = oq_debug_graded(d);
    return oq_grade_of(&g);
}

/* ---- weights ---- */

static float top_of(const oq_debug_weight *w, uint64_t c) {
    return fmaxf(fabsf(w->channel_lo[c]), fabsf(w->channel_hi[c]));
}

/* The size of most channels, and of the largest. */
static onq_code channel_sizes(oq_debug *d, const oq_debug_weight *w, float *usual, float *most,
                              onq_error *err) {
    *usual = *most = 0;
    if (w->n_channels < 2)
        return ONQ_OK;
    const size_t size = w->n_channels * sizeof(float);
    float *top = oq_alloc(&d->env->alloc, size);
    if (top == NULL)
        return oq_fail_nomem(err);
    for (uint64_t c = 0; c < w->n_channels; c++)
        top[c] = top_of(w, c);
    qsort(top, w->n_channels, sizeof *top, oq_by_float);
    *usual = top[w->n_channels / 2];
    *most = top[w->n_channels - 1];
    oq_free(&d->env->alloc, top, size);
    return ONQ_OK;
}

/* dB of the mean noise of a channel relative to its values. Channels that are next to nothing are
 * left out: what comes of them is next to nothing too. */
static double channel_noise(const oq_debug_weight *w, float usual) {
    double sum = 0;
    uint64_t n = 0;
    for (uint64_t c = 0; c < w->n_channels; c++) {
        if (!isfinite(w->channel_sqnr[c]) || top_of(w, c) < 0.001f * usual)
            continue;
        sum += fmin(1, pow(10, -w->channel_sqnr[c] / 10));
        n++;
    }
    return n > 0 && sum > 0 ? -oq_decibels(sum / (double)n) : INFINITY;
}

static bool is_bias_saturated(const oq_debug_weight *w) {
    return w->type == OQ_INT32 && w->saturated > 0;
}

/* A bias has the scale of the products it is added to: rounding it is lost among them, however
 * small it is. */
static bool is_rounded_bias(const oq_debug_weight *w) {
    const double step = w->q_hi / 2147483647.0; /* of the widest channel */
    return w->type == OQ_INT32 && w->sums.abs_max <= 0.51 * step;
}

static onq_code judge_weight(oq_debug *d, oq_debug_weight *w, onq_error *err) {
    oq_debug_verdict *v = &w->verdict;
    float usual = 0, most = 0;
    OQ_TRY(channel_sizes(d, w, &usual, &most, err));
    const bool channel = !w->per_channel && most > 4 * usual;
    v->effect = NAN;
    v->own = w->sums.ee == 0 ? INFINITY : isnan(w->rescaled) ? w->sqnr : w->rescaled;
    v->excess = isfinite(w->ideal) && w->sums.ee > 0 ? fmax(0, w->ideal - v->own) : 0;
    if (!isnan(w->rescaled)) { /* ranges, channels and clipping are those of the scaled weight */
        v->reason = v->own < 25 ? OQ_DEBUG_FEW_BITS : OQ_DEBUG_FINE;
        v->excess = 0;
        return ONQ_OK;
    }
    const double top = fmax(fabs((double)w->lo), fabs((double)w->hi));
    if (top < SMALLEST_RANGE / 2) {
        v->reason = OQ_DEBUG_SMALL;
        v->excess = 0;
    } else if (is_bias_saturated(w))
        v->reason = OQ_DEBUG_BIAS;
    else if (w->saturated > 0.001 && v->excess > 3)
        v->reason = OQ_DEBUG_CLIPPED;
    else if (is_rounded_bias(w))
        v->reason = w->sqnr < 40 ? OQ_DEBUG_BELOW_STEP : OQ_DEBUG_FINE;
    else if (v->excess > EXCESS_FAULT || (w->type == OQ_INT32 && w->sqnr < 20))
        v->reason = OQ_DEBUG_SCALE_WRONG;
    else if (channel && w->sqnr < 40)
        v->reason = OQ_DEBUG_CHANNEL;
    else if (v->own < 30)
        v->reason = OQ_DEBUG_FEW_BITS;
    w->spread = fmax(0, v->own - channel_noise(w, usual));
    return ONQ_OK;
}

/* ---- activations ---- */

/* What is known of the quantizer's own noise; without a mask where there is one. */
static const oq_sums *sums_of(const oq_debug_act *a) {
    if (a->rescaled)
        return &a->qdq;
    return a->local.n > 0      ? &a->local
           : a->rest_qdq.n > 0 ? &a->rest_qdq
           : a->qdq.n > 0      ? &a->qdq
                               : &a->cross;
}

/* What a min-max scale over the values that were seen would give. */
static double ideal_of(const oq_debug_act *a) {
    double lo = 0, hi = 0;
    const oq_sums *s = sums_of(a);
    if (a->n_params != 1 || !oq_debug_limits(a->type, &lo, &hi) || s->n == 0 || !(a->hi >= a->lo))
        return NAN;
    const double step = (fmax((double)a->hi, 0) - fmin((double)a->lo, 0)) / (hi - lo);
    return step > 0 ? oq_signal_to_noise(s->xx / (double)s->n, step * step / 12) : INFINITY;
}

static void judge_act(oq_debug_act *a) {
    oq_debug_verdict *v = &a->verdict;
    const oq_sums *s = sums_of(a);
    a->ideal = ideal_of(a);
    v->effect = NAN;
    v->own = s->ee == 0 ? INFINITY : isfinite(s->ee) ? oq_sums_sqnr(s) : NAN;
    v->excess = isfinite(a->ideal) && s->ee > 0 ? fmax(0, a->ideal - v->own) : 0;
    const double used = (double)a->hi - (double)a->lo, range = a->q_hi - a->q_lo;
    const double rms = s->n > 0 ? sqrt(s->xx / (double)s->n) : 0;
    const double top = fmax(fabs((double)a->hi), fabs((double)a->lo));
    const double share = a->seen > 0 ? (double)a->clipped / (double)a->seen : 0;
    if (isnan(v->own)) {
        v->reason = OQ_DEBUG_NOT_FINITE;
    } else if ((a->masked > 0 || a->mask_likely) && range > 100 * fmax(used, 0)) {
        v->reason = OQ_DEBUG_MASK;
    } else if (a->n_params == 1 && range < SMALLEST_RANGE && used < range) {
        v->reason = OQ_DEBUG_SMALL;
        v->excess = 0;
    } else if (a->rescaled) {
        v->reason = v->own < 20 ? OQ_DEBUG_FEW_BITS : OQ_DEBUG_FINE;
        v->excess = 0;
    } else if (share > 0.0001 && v->excess > 3) {
        v->reason = OQ_DEBUG_CLIPPED;
    } else if (a->n_params == 1 && used > 0 && v->excess > 5 && a->lo >= 0 &&
               a->q_lo < -0.4 * range) {
        v->reason = OQ_DEBUG_SKEWED;
    } else if (a->n_params == 1 && used > 0 &&
               range > (v->excess > EXCESS_FAULT ? 1.5 : 3) * used) {
        v->reason = OQ_DEBUG_WIDE;
    } else if (v->excess > EXCESS_FAULT) {
        v->reason = OQ_DEBUG_SCALE_WRONG;
    } else if (v->own < 30 && top > 20 * rms) {
        v->reason = OQ_DEBUG_OUTLIERS;
    } else if (v->own < 25) {
        v->reason = OQ_DEBUG_FEW_BITS;
    } else if (v->own >= LITTLE && !oq_str_is(a->op, "input") && isfinite(a->xmodel_err) &&
               a->xmodel_err < v->own - 6) {
        v->reason = OQ_DEBUG_INHERITED;
    }
}

/* ---- order ---- */

static void score(oq_debug_verdict *v) {
    v->score = v->own;
    if (v->excess > EXCESS_FAULT && v->own < 30) /* what keeps 30 dB can wait */
        v->score -= 2 * v->excess;
    if (v->reason == OQ_DEBUG_SMALL) /* an epsilon that becomes 0 is seldom the trouble */
        v->score = fmax(v->score, 45);
    if (v->reason == OQ_DEBUG_BELOW_STEP)
        v->score = fmax(v->score, 60);
    if (v->reason == OQ_DEBUG_INHERITED) /* what it inherits ranks above it */
        v->score = fmax(v->score, 60);
    if (isnan(v->score))
        v->score = -INFINITY; /* NaN in the values: nothing is worse */
}

static oq_debug_verdict *verdict_of(const oq_debug *d, uint32_t i) {
    assert(i < d->weights.n + d->acts.n);
    return i < d->weights.n ? &d->weights.v[i].verdict : &d->acts.v[i - d->weights.n].verdict;
}

/* What a search measured, for every row of the nodes it quantized alone: `effect` of the unit, and
 * scores such that the worst row of a unit has that effect, the others as much more as they lose
 * less. */
static onq_code take_effects(oq_debug *d, size_t n, onq_error *err) {
    const oq_debug_search *s = d->search;
    oq_map units;
    oq_map_init(&units, &d->arena);
    if (s == NULL)
        return ONQ_OK;
    double *worst = OQ_NEW_ARRAY(&d->arena, double, s->units.n + 1);
    uint32_t *unit = OQ_NEW_ARRAY(&d->arena, uint32_t, n + 1);
    if (worst == NULL || unit == NULL)
        return oq_fail_nomem(err);
    for (uint32_t i = 0; i < s->units.n; i++) {
        worst[i] = INFINITY;
        for (size_t k = 0; k < s->units.v[i].nodes.n; k++)
            if (!oq_map_put(&units, s->nodes.v[s->units.v[i].nodes.v[k]].name, i))
                return oq_fail_nomem(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        const oq_str node =
            i < d->weights.n ? d->weights.v[i].node : d->acts.v[i - d->weights.n].node;
        unit[i] = oq_map_find(&units, node);
        if (unit[i] == OQ_MAP_NONE)
            continue;
        verdict_of(d, i)->effect = s->units.v[unit[i]].sqnr;
        worst[unit[i]] = fmin(worst[unit[i]], verdict_of(d, i)->score);
    }
    for (uint32_t i = 0; i < n; i++) {
        oq_debug_verdict *v = verdict_of(d, i);
        if (unit[i] == OQ_MAP_NONE || isnan(v->effect))
            v->score += isfinite(v->score) ? UNMEASURED : 0; /* after all that was measured */
        else if (isfinite(v->score))
            v->score += v->effect - worst[unit[i]];
    }
    return ONQ_OK;
}

onq_code oq_debug_rank(oq_debug *d, onq_error *err) {
    assert(d->ranking == NULL && "ranked once");
    OQ_TRY(oq_debug_find_rescaled(d, err));
    for (size_t i = 0; i < d->weights.n; i++)
        OQ_TRY(judge_weight(d, &d->weights.v[i], err));
    const bool ran = d->n_samples > 0;
    OQ_TRY(oq_debug_mark_rescaled(d, err));
    for (size_t i = 0; i < d->acts.n && ran; i++)
        judge_act(&d->acts.v[i]);
    const size_t n = d->weights.n + (ran ? d->acts.n : 0);
    oq_keyed *v = OQ_NEW_ARRAY(&d->arena, oq_keyed, n + 1);
    d->ranking = OQ_NEW_ARRAY(&d->arena, uint32_t, n + 1);
    if (v == NULL || d->ranking == NULL)
        return oq_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        score(verdict_of(d, i));
        if (i < d->weights.n && d->weights.v[i].type != OQ_INT32 &&
            d->weights.v[i].verdict.reason != OQ_DEBUG_SMALL)
            verdict_of(d, i)->score -= d->weights.v[i].spread;
        v[i].at = i;
    }
    OQ_TRY(take_effects(d, n, err));
    for (uint32_t i = 0; i < n; i++)
        v[i].key = verdict_of(d, i)->score;
    oq_keyed_sort(v, n);
    for (uint32_t i = 0; i < n; i++) {
        d->ranking[i] = v[i].at;
        verdict_of(d, v[i].at)->rank = i + 1;
    }
    d->n_ranking = n;
    return ONQ_OK;
}
