/*
 * collect_join.c — joining collectors of different samples, and the result.
 */
#include "calibrate/collect/collect_int.h"
#include "calibrate/method/method.h"

#include "base/pool.h"

/* ---- joining ---- */

static onq_code mismatch(const oq_tstat *t, const char *what, onq_error *err) {
    return oq_fail(err, ONQ_E_INVALID,
                   "tensor '%.*s' has another %s in one part than in the others", OQ_STR(t->name),
                   what);
}

static onq_code merge_minmax(oq_collector *c, oq_tstat *t, const oq_tstat *o, onq_error *err) {
    if (o->n_samples == 0)
        return ONQ_OK;
    if (t->n_samples == 0) {
        const size_t n = o->n_channels;
        OQ_TRY_ALLOC(oq_tstat_channels(&c->arena, t, n), err);
        memcpy(t->lo, o->lo, n * sizeof(float));
        memcpy(t->hi, o->hi, n * sizeof(float));
        memcpy(t->lo_at, o->lo_at, n * sizeof(uint64_t));
        memcpy(t->hi_at, o->hi_at, n * sizeof(uint64_t));
    } else if (t->n_channels != o->n_channels) {
        return mismatch(t, "number of channels", err);
    } else {
        for (size_t i = 0; i < t->n_channels; i++)
            oq_tstat_fold(t, i, o->lo[i], o->lo_at[i], o->hi[i], o->hi_at[i]);
    }
    for (size_t i = 0; i < o->rows.n; i++) {
        float *v = OQ_NEW_ARRAY(&c->arena, float, 2 * o->n_channels);
        if (v == NULL || !OQ_PUSH(&c->arena, &t->rows, (oq_row){o->rows.v[i].number, v}))
            return oq_fail_nomem(err);
        memcpy(v, o->rows.v[i].v, 2 * o->n_channels * sizeof(float));
    }
    return ONQ_OK;
}

bool oq_hist_is_sane(const oq_hist *h, const oq_hist *more) {
    uint64_t total = 0;
    for (size_t k = 0; k < h->n_bins; k++) {
        const uint64_t n = more != NULL ? more->count[k] : 0;
        if (h->count[k] > OQ_HIST_MAX_VALUES || n > OQ_HIST_MAX_VALUES)
            return false;
        total += h->count[k] + n;
        if (total > OQ_HIST_MAX_VALUES)
            return false;
    }
    return true;
}

/* What one of them saw without room for tails is lost. */
static onq_code merge_tails(oq_tstat *t, const oq_tstat *o, const onq_allocator *a,
                            onq_error *err) {
    if (o->n_samples > 0 && o->tails.most != t->tails.most)
        oq_tails_release(&t->tails, a);
    return t->tails.most > 0 ? oq_tails_merge(&t->tails, a, &o->tails, err) : ONQ_OK;
}

static onq_code merge_hist(oq_tstat *t, const oq_tstat *o, const onq_allocator *a, onq_error *err) {
    if (t->has_hist || o->has_hist)
        return mismatch(t, "state (strided calibration cannot be joined)", err);
    if (t->has_next != o->has_next)
        return mismatch(t, "state (one was counted, one only measured)", err);
    if (!t->has_next) {
        oq_extent_merge(&t->extent, &o->extent);
        return merge_tails(t, o, a, err);
    }
    /* Counted over the extent of all samples, which every part has. */
    if (!oq_hist_same_layout(&t->next, &o->next) ||
        memcmp(&t->extent.lo, &o->extent.lo, 2 * sizeof(float)) != 0)
        return mismatch(t, "histogram range", err);
    if (!oq_hist_is_sane(&t->next, &o->next))
        return oq_fail(err, ONQ_E_LIMIT, "tensor '%.*s' counts more values than there can be",
                       OQ_STR(t->name));
    for (size_t k = 0; k < t->next.n_bins; k++)
        t->next.count[k] += o->next.count[k];
    return ONQ_OK;
}

static onq_code merge_nan(oq_collector *c, oq_tstat *t, const oq_tstat *o, onq_error *err) {
    if (o->nan_from.n == 0 || (t->nan_from.n > 0 && t->nan_at <= o->nan_at))
        return ONQ_OK;
    t->nan_at = o->nan_at;
    t->nan_from = oq_str_copy(&c->arena, o->nan_from);
    return t->nan_from.p != NULL ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_collect_merge(oq_collector *c, const oq_collector *other, onq_error *err) {
    assert(c != other);
    const bool histogram = oq_cal_class_of(c->options.method)->histogram;
    if (c->n != other->n)
        return oq_fail(err, ONQ_E_INVALID,
                       "the parts have %zu and %zu tensors: they are not of one job", c->n,
                       other->n);
    for (size_t i = 0; i < c->n; i++) {
        oq_tstat *t = &c->v[i];
        const oq_tstat *o = &other->v[i];
        if (!oq_str_eq(t->name, o->name))
            return oq_fail(err, ONQ_E_INVALID,
                           "tensor '%.*s' is in the place where another part has '%.*s': the parts "
                           "are not of one job",
                           OQ_STR(t->name), OQ_STR(o->name));
        if (t->alias != o->alias)
            return mismatch(t, "source", err);
        if (t->alias != 0)
            continue;
        if (t->type != OQ_UNDEFINED && o->type != OQ_UNDEFINED && t->type != o->type)
            return mismatch(t, "type", err);
        OQ_TRY(histogram ? merge_hist(t, o, c->arena.alloc, err) : merge_minmax(c, t, o, err));
        OQ_TRY(merge_nan(c, t, o, err));
        if (t->type == OQ_UNDEFINED)
            t->type = o->type;
        t->apart = t->apart || o->apart;
        /* Parts of a histogram method have seen all samples, to know the range. */
        if (histogram && t->has_next)
            continue;
        t->n_samples += o->n_samples;
    }
    return ONQ_OK;
}

void oq_collect_follow(oq_collector *lane, oq_collector *c) {
    assert(lane->n == c->n && c->pass == OQ_PASS_COUNT && c->locks != NULL);
    lane->into = c;
    lane->pass = OQ_PASS_COUNT;
}

/* ---- the result ---- */

/* A tensor on a branch that no sample took. */
static bool was_not_run(const oq_collector *c, const oq_tstat *t) {
    return c->options.inner && t->alias == 0 && t->n_samples == 0;
}

typedef struct solving {
    oq_collector *c;
    oq_cal_answer *answers;
} solving;

static onq_code solve_task(void *ctx, size_t i, unsigned worker OQ_UNUSED, onq_error *err) {
    solving *s = ctx;
    oq_collector *c = s->c;
    if (c->v[i].alias != 0 || was_not_run(c, &c->v[i]))
        return ONQ_OK;
    const onq_code rc = oq_cal_class_of(c->options.method)
                            ->solve(&c->options, &c->v[i], c->arena.alloc, &s->answers[i], err);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "tensor '%.*s'", OQ_STR(c->v[i].name));
}

/* Histograms are of the finite values. What else there is makes the range infinite, as MinMax has
 * it: no scale holds a mask of -inf together with the values that it leaves. */
static void widen(const oq_cal_options *o, const oq_tstat *t, oq_range *r) {
    const bool both = o->symmetric && t->n_low_inf + t->n_high_inf > 0;
    if (t->n_low_inf > 0 || both)
        r->lowest.v[0] = -INFINITY;
    if (t->n_high_inf > 0 || both)
        r->highest.v[0] = INFINITY;
}

#define NAN_TOLD 3 /* tensors that get a line of their own */

/* Says it of the first tensors with NaN; *n counts them. */
static void warn_left_out(const oq_collector *c, const oq_tstat *t, size_t *n) {
    if (t->n_nan > 0 && ++*n <= NAN_TOLD)
        oq_warn(c->env, "tensor '%.*s': %llu of %llu values are NaN and were left out%s%.*s",
                OQ_STR(t->name), (unsigned long long)t->n_nan, (unsigned long long)t->n_values,
                t->nan_from.n > 0 ? ", the first in " : "", OQ_STR(t->nan_from));
}

/* The tensor whose range tensor i gets. A part could hold a ring of aliases: NULL. */
static const oq_tstat *origin(const oq_collector *c, size_t i) {
    for (size_t step = 0; step <= c->n; step++) {
        if (c->v[i].alias == 0)
            return &c->v[i];
        i = c->v[i].alias - 1;
    }
    return NULL;
}

static onq_code emit_aliases(const oq_collector *c, oq_ranges *out, onq_error *err) {
    for (size_t i = 0; i < c->n; i++) {
        const oq_tstat *from = c->v[i].alias != 0 ? origin(c, i) : NULL;
        const oq_range *r = from != NULL ? oq_ranges_find(out, from->name) : NULL;
        if (from != NULL && was_not_run(c, from))
            continue;
        if (c->v[i].alias != 0 && r == NULL)
            return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s' follows a tensor that has no range",
                           OQ_STR(c->v[i].name));
        if (r != NULL && !oq_ranges_copy(out, c->v[i].name, r))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

onq_code oq_collect_finish(oq_collector *c, oq_ranges *out, onq_error *err) {
    const oq_cal_class *cls = oq_cal_class_of(c->options.method);
    solving s = {.c = c};
    oq_pool *pool = NULL;
    onq_code rc = ONQ_OK;
    oq_ranges_init(out, c->arena.alloc, c->options.method);
    s.answers = oq_calloc(c->arena.alloc, c->n, sizeof(oq_cal_answer));
    if (s.answers == NULL) {
        rc = oq_fail_nomem(err);
        goto done;
    }
    if (cls->solve != NULL) {
        OQ_GO(oq_pool_new(c->env, &pool, err));
        OQ_GO(oq_pool_run(pool, c->n, solve_task, &s, err));
    }
    size_t n_nan = 0;
    for (size_t i = 0; i < c->n; i++) {
        const oq_tstat *from = origin(c, i);
        if (from != NULL && was_not_run(c, from))
            continue;
        oq_range *r = oq_ranges_add(out, c->v[i].name);
        if (r == NULL) {
            rc = oq_fail_nomem(err);
            goto done;
        }
        if (c->v[i].alias != 0)
            continue;
        warn_left_out(c, &c->v[i], &n_nan);
        OQ_GO(oq_cal_emit(&c->options, &c->v[i], &s.answers[i], &out->arena, r, err));
        widen(&c->options, &c->v[i], r);
        r->nan_from = oq_str_copy(&out->arena, c->v[i].nan_from);
        if (r->nan_from.p == NULL) {
            rc = oq_fail_nomem(err);
            goto done;
        }
    }
    if (n_nan > NAN_TOLD)
        oq_warn(c->env, "%zu more tensors hold NaN, which were left out", n_nan - NAN_TOLD);
    rc = emit_aliases(c, out, err);
done:
    oq_pool_free(pool);
    oq_free(c->arena.alloc, s.answers, c->n * sizeof(oq_cal_answer));
    if (rc != ONQ_OK)
        oq_ranges_release(out);
    return rc;
}
