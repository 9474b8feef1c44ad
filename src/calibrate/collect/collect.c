/*
 * collect.c — the collector's life, and the extents of samples (MinMax). Histograms are in
 * collect_hist.c, joining and the result in collect_join.c.
 */
#include "calibrate/collect/collect.h"

#include "base/text/real.h"
#include "calibrate/collect/ahead.h"
#include "calibrate/collect/collect_int.h"
#include "calibrate/method/method.h"

onq_code oq_collect_init(oq_collector *c, const onq_env *env, const oq_cal_options *o,
                         const oq_str *names, size_t n, onq_error *err) {
    *c = (oq_collector){.env = env, .options = *o, .most_bins = OQ_HIST_MAX_BINS};
    c->options.op_types = c->options.only = NULL;
    c->options.n_op_types = c->options.n_only = 0;
    oq_arena_init(&c->arena, &env->alloc);
    c->v = OQ_NEW_ARRAY(&c->arena, oq_tstat, n > 0 ? n : 1);
    if (c->v == NULL)
        goto nomem;
    for (size_t i = 0; i < n; i++) {
        oq_tstat *t = &c->v[i];
        t->name = oq_str_copy(&c->arena, names[i]);
        if (t->name.p == NULL)
            goto nomem;
        t->extent = OQ_EXTENT_NONE;
        c->n = i + 1;
    }
    return ONQ_OK;
nomem:
    oq_collect_release(c);
    return oq_fail_nomem(err);
}

void oq_collect_release(oq_collector *c) {
    if (c->arena.alloc == NULL)
        return;
    for (size_t i = 0; i < c->n; i++) {
        oq_hist_release(&c->v[i].hist);
        oq_hist_release(&c->v[i].next);
        oq_tails_release(&c->v[i].tails, c->arena.alloc);
    }
    oq_free(c->arena.alloc, c->convert, c->convert_n * sizeof(float));
    oq_hist_scratch_release(&c->scratch, c->arena.alloc);
    oq_arena_release(&c->arena);
    *c = (oq_collector){0};
}

void oq_collect_like(oq_collector *c, const oq_collector *other) {
    assert(c->n == other->n);
    c->by_sample = other->by_sample;
    c->n_by_sample = other->n_by_sample;
    for (size_t i = 0; i < c->n; i++) {
        c->v[i].rank = other->v[i].rank;
        c->v[i].alias = other->v[i].alias;
        c->v[i].padded = other->v[i].padded;
        c->v[i].tails.most = other->v[i].tails.most;
        c->v[i].tails.abs = other->v[i].tails.abs;
    }
}

/* ---- extents by channel ---- */

/* A tensor as [outer][channel][inner][tail]: axes 0 and 2 are reduced. The reference reduces
 * axis 0 and the declared axes from 2 on; where the model declares no shape only axis 0 goes,
 * and everything after it is a channel of its own. */
typedef struct channels {
    size_t outer, channel, inner, tail;
} channels;

static channels channels_of(const oq_tstat *t, const oq_datum *d) {
    channels s = {1, 1, 1, 1};
    for (size_t i = 0; i < d->rank; i++) {
        const size_t n = (size_t)d->dims[i];
        if (i == 0)
            s.outer *= n;
        else if (i >= t->rank)
            s.tail *= n;
        else if (i == 1)
            s.channel *= n;
        else
            s.inner *= n;
    }
    return s;
}

static float least(float a, float b) {
    return b < a ? b : a;
}
static float most(float a, float b) {
    return b > a ? b : a;
}

static void extent_by_channel(const float *v, channels s, float *lo, float *hi) {
    for (size_t j = 0; j < s.channel * s.tail; j++) {
        lo[j] = INFINITY;
        hi[j] = -INFINITY;
    }
    for (size_t o = 0; o < s.outer; o++)
        for (size_t c = 0; c < s.channel; c++) {
            const float *p = v + (o * s.channel + c) * s.inner * s.tail;
            if (s.tail == 1) {
                float a, b;
                oq_extent_runtime(p, s.inner, &a, &b);
                lo[c] = o == 0 ? a : least(lo[c], a);
                hi[c] = o == 0 ? b : most(hi[c], b);
                continue;
            }
            for (size_t i = 0; i < s.inner; i++)
                for (size_t k = 0; k < s.tail; k++) {
                    const float x = p[i * s.tail + k];
                    const size_t j = c * s.tail + k;
                    const bool first = o == 0 && i == 0;
                    lo[j] = first ? x : least(lo[j], x);
                    hi[j] = first ? x : most(hi[j], x);
                }
        }
}

/* ---- NaN ---- */

/* Remembers the sample that runs as the first with NaN in the tensor. */
static onq_code note_nan(oq_collector *c, oq_tstat *t, onq_error *err) {
    if (t->nan_from.n > 0 || c->sample_name == NULL)
        return ONQ_OK;
    t->nan_from = oq_str_format(&c->arena, "sample %llu ('%s')", (unsigned long long)c->sample,
                                c->sample_name);
    t->nan_at = c->sample;
    return t->nan_from.p != NULL ? ONQ_OK : oq_fail_nomem(err);
}

/* ---- MinMax: one sample ---- */

bool oq_collect_keeps_rows(const oq_collector *c) {
    const oq_cal_options *o = &c->options;
    return !oq_cal_class_of(o->method)->histogram && (o->moving_average || o->stride > 0);
}

/* Side by side: those of one channel are in one line of the cache. */
bool oq_tstat_channels(oq_arena *a, oq_tstat *t, size_t n) {
    t->n_channels = n;
    t->lo_at = oq_arena_array(a, n, 2 * sizeof *t->lo_at + 2 * sizeof *t->lo);
    if (t->lo_at == NULL)
        return false;
    t->hi_at = t->lo_at + n;
    t->lo = (float *)(void *)(t->hi_at + n);
    t->hi = t->lo + n;
    return true;
}

static onq_code set_channels(oq_collector *c, oq_tstat *t, size_t n, onq_error *err) {
    if (t->n_samples > 0) {
        if (t->n_channels != n)
            return oq_fail(err, ONQ_E_INVALID,
                           "tensor '%.*s' has %zu channels in this sample and had %zu before "
                           "(calibrate without per_channel)",
                           OQ_STR(t->name), n, t->n_channels);
        return ONQ_OK;
    }
    OQ_TRY_ALLOC(oq_tstat_channels(&c->arena, t, n), err);
    for (size_t i = 0; i < n; i++)
        t->lo[i] = t->hi[i] = NAN;
    return ONQ_OK;
}

void oq_tstat_fold(oq_tstat *t, size_t i, float lo, uint64_t lo_at, float hi, uint64_t hi_at) {
    if (!isnan(lo) &&
        (isnan(t->lo[i]) || lo < t->lo[i] || (lo == t->lo[i] && lo_at >= t->lo_at[i]))) {
        t->lo[i] = lo;
        t->lo_at[i] = lo_at;
    }
    if (!isnan(hi) &&
        (isnan(t->hi[i]) || hi > t->hi[i] || (hi == t->hi[i] && hi_at >= t->hi_at[i]))) {
        t->hi[i] = hi;
        t->hi_at[i] = hi_at;
    }
}

/* A row of its own for the sample (moving average), or the chunk's. */
static onq_code add_row(oq_collector *c, oq_tstat *t, const float *lo, const float *hi,
                        onq_error *err) {
    const oq_cal_options *o = &c->options;
    const size_t n = t->n_channels;
    const uint64_t number = o->moving_average ? c->sample : c->sample / o->stride;
    if (!o->moving_average && t->rows.n > 0 && t->rows.v[t->rows.n - 1].number == number) {
        float *v = t->rows.v[t->rows.n - 1].v;
        for (size_t i = 0; i < n; i++) { /* np.nanmin, np.nanmax: the last of equals */
            if (!isnan(lo[i]) && !(v[i] < lo[i]))
                v[i] = lo[i];
            if (!isnan(hi[i]) && !(v[n + i] > hi[i]))
                v[n + i] = hi[i];
        }
        return ONQ_OK;
    }
    float *v = OQ_NEW_ARRAY(&c->arena, float, 2 * n);
    OQ_TRY_ALLOC(v != NULL && OQ_PUSH(&c->arena, &t->rows, (oq_row){number, v}), err);
    memcpy(v, lo, n * sizeof(float));
    memcpy(v + n, hi, n * sizeof(float));
    return ONQ_OK;
}

static onq_code fold_sample(oq_collector *c, oq_tstat *t, const float *lo, const float *hi,
                            onq_error *err) {
    for (size_t i = 0; i < t->n_channels; i++)
        if (isnan(lo[i]) || isnan(hi[i]))
            OQ_TRY(note_nan(c, t, err));
    if (oq_collect_keeps_rows(c))
        return add_row(c, t, lo, hi, err);
    if (c->by_sample != NULL)
        c->by_sample[(size_t)(t - c->v) * c->n_by_sample + c->place] =
            (oq_seen_extent){lo[0], hi[0]};
    for (size_t i = 0; i < t->n_channels; i++)
        oq_tstat_fold(t, i, lo[i], c->sample, hi[i], c->sample);
    return ONQ_OK;
}

static onq_code seen_minmax(oq_collector *c, oq_tstat *t, const oq_datum *d, const float *v,
                            onq_error *err) {
    if (!c->options.per_channel || d->rank == 0) {
        float lo, hi;
        oq_extent_runtime(v, (size_t)d->count, &lo, &hi);
        OQ_TRY(set_channels(c, t, 1, err));
        return fold_sample(c, t, &lo, &hi, err);
    }
    const channels s = channels_of(t, d);
    const size_t n = s.channel * s.tail;
    OQ_TRY(set_channels(c, t, n, err));
    float *both = oq_alloc(c->arena.alloc, 2 * n * sizeof(float));
    OQ_TRY_ALLOC(both != NULL, err);
    extent_by_channel(v, s, both, both + n);
    const onq_code rc = fold_sample(c, t, both, both + n, err);
    oq_free(c->arena.alloc, both, 2 * n * sizeof(float));
    return rc;
}

onq_code oq_collect_recall(oq_collector *c, size_t index, const oq_seen_tensor *seen,
                           const uint64_t *numbers, uint64_t n, onq_error *err) {
    oq_tstat *t = &c->v[index];
    assert(!c->options.per_channel && t->n_samples == 0);
    OQ_TRY(set_channels(c, t, 1, err));
    for (uint64_t i = 0; i < n; i++) {
        const oq_seen_extent *e = &seen->by_sample.v[numbers[i]];
        oq_tstat_fold(t, 0, e->lo, numbers[i], e->hi, numbers[i]);
    }
    t->type = seen->type;
    t->n_samples = n;
    return ONQ_OK;
}

/* ---- all methods: one tensor of one sample ---- */

/* The values as floats: the tensor itself, or float16 converted. */
static onq_code as_floats(oq_collector *c, const oq_datum *d, const float **out, onq_error *err) {
    if (d->dtype == OQ_FLOAT) {
        *out = d->data;
        return ONQ_OK;
    }
    if (c->convert_n < d->count) {
        const onq_allocator *a = c->arena.alloc;
        const size_t n = (size_t)d->count;
        float *grown = oq_resize(a, c->convert, c->convert_n * sizeof(float), n * sizeof(float));
        OQ_TRY_ALLOC(grown != NULL, err);
        c->convert = grown;
        c->convert_n = n;
    }
    oq_f16_to_f32_n(d->data, c->convert, (size_t)d->count);
    *out = c->convert;
    return ONQ_OK;
}

static onq_code take_extent(oq_collector *c, oq_tstat *t, const oq_extent *e, onq_error *err) {
    t->sample = *e;
    t->sample_at = c->sample + 1;
    oq_extent_merge(&t->extent, e);
    return e->n_nan > 0 ? note_nan(c, t, err) : ONQ_OK;
}

/* Room for the tails of a tensor, as its first sample has it and the others will. */
static void size_tails(oq_collector *c, oq_tstat *t, size_t n) {
    const double share = oq_cal_class_of(c->options.method)->tail_share(&c->options);
    const double most = 8 + 1.25 * share * (double)n * (double)c->tail_samples;
    if (!(most <= (double)c->tail_room))
        return;
    t->tails.most = (size_t)most;
    t->tails.abs = oq_cal_counts_abs(&c->options);
    c->tail_room -= t->tails.most;
}

static onq_code see_extent(oq_collector *c, size_t index, oq_dtype type, const float *v, size_t n,
                           onq_error *err) {
    oq_tstat *t = &c->v[index];
    oq_extent e = OQ_EXTENT_NONE;
    if (c->tail_samples > 0 && t->n_samples == 0)
        size_tails(c, t, n);
    if (t->tails.most > 0)
        OQ_TRY(oq_tails_add(&t->tails, c->arena.alloc, v, n, &e, err));
    else if (c->ahead != NULL && c->ahead_counts && type == OQ_FLOAT)
        OQ_TRY(oq_ahead_seen(c->ahead, &c->options, index, c->sample, v, n, &c->scratch, &e, err));
    else
        oq_extent_add(&e, v, n);
    if (c->ahead != NULL && type != OQ_FLOAT)
        oq_ahead_lose(c->ahead, index);
    else if (c->ahead != NULL && !c->ahead_counts)
        oq_ahead_note(c->ahead, &c->options, index, c->sample, &e);
    return take_extent(c, t, &e, err);
}

onq_code oq_collect_seen_padded(oq_collector *c, size_t index, const oq_datum *d, bool zeros,
                                onq_error *err) {
    oq_tstat *t = &c->v[index];
    const oq_tstat *from = &c->v[t->padded - 1];
    oq_extent e = from->sample;
    if (!zeros || from->sample_at != c->sample + 1 || d->count < e.count ||
        d->dtype != from->type) {
        t->apart = true;
        return oq_collect_seen(c, index, d, err);
    }
    if (d->count > e.count)
        oq_extent_merge(&e, &(oq_extent){0, 0, 0, d->count - e.count, 0, 0, 0});
    t->type = d->dtype;
    t->n_samples++;
    return take_extent(c, t, &e, err);
}

onq_code oq_collect_seen(oq_collector *c, size_t index, const oq_datum *d, onq_error *err) {
    assert(index < c->n);
    oq_collector *const to = c->into != NULL ? c->into : c;
    oq_tstat *t = &to->v[index];
    if (d->kind != OQ_DATUM_TENSOR || (d->dtype != OQ_FLOAT && d->dtype != OQ_FLOAT16))
        return oq_fail(err, ONQ_E_INVALID,
                       "tensor '%.*s' is %s when the model runs, not FLOAT or FLOAT16",
                       OQ_STR(t->name), oq_dtype_name(d->dtype));
    if (t->type != OQ_UNDEFINED && t->type != d->dtype)
        return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s' is %s now and was %s before",
                       OQ_STR(t->name), oq_dtype_name(d->dtype), oq_dtype_name(t->type));
    if (c->pass == OQ_PASS_COUNT && !t->has_next)
        return ONQ_OK; /* a branch that was not taken in the first pass: nowhere to count it */
    if (c->pass == OQ_PASS_COUNT)
        return oq_collect_count(to, index, d->data, (size_t)d->count, &c->scratch, err);
    const float *v = NULL;
    OQ_TRY(as_floats(c, d, &v, err));
    if (oq_cal_class_of(c->options.method)->histogram)
        OQ_TRY(see_extent(c, index, d->dtype, v, (size_t)d->count, err));
    else
        OQ_TRY(seen_minmax(c, t, d, v, err));
    t->type = d->dtype;
    t->n_samples++;
    return ONQ_OK;
}
