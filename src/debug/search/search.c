/*
 * search.c — see search.h.
 *
 * Each unit is quantized alone and the outputs are measured (search_try.c). Noise adds up, so the
 * noise of units alone predicts that of every set of them. Finding the least set: units in the
 * order of their noise; the shortest run of them that reaches the target, by halving; then those
 * are put back that the target, as predicted, may not need.
 */
#include "debug/search/search_parts.h"

#include "base/keyed.h"

#define MAX_MISSES 8 /* units that are put back in vain before the rest is taken as needed */

/* ---- scores ---- */

onq_code oq_search_sum_add(const oq_searching *g, oq_search_sum *s, const oq_datum *x,
                           const oq_datum *y, onq_error *err) {
    if (x->kind != OQ_DATUM_TENSOR || y->kind != OQ_DATUM_TENSOR || x->count != y->count ||
        !oq_dtype_is_float(x->dtype) || !oq_dtype_is_float(y->dtype))
        return ONQ_OK;
    oq_arena floats;
    oq_arena_init(&floats, &g->d->env->alloc);
    const float *a = oq_datum_floats(x, &floats), *b = oq_datum_floats(y, &floats);
    const uint64_t row = x->rank > 0 ? (uint64_t)x->dims[x->rank - 1] : 0;
    const bool ok = a != NULL && b != NULL;
    if (ok) {
        oq_sums_add(&s->sums, a, b, x->count);
        oq_rows_add(&s->rows, &s->same, a, b, x->count, row);
    }
    oq_arena_release(&floats);
    return ok ? ONQ_OK : oq_fail_nomem(err);
}

void oq_search_sum_join(oq_search_sum *into, const oq_search_sum *more) {
    oq_sums_join(&into->sums, &more->sums);
    into->rows += more->rows;
    into->same += more->same;
}

/* The worst of the outputs counts. */
oq_search_score oq_search_score_of(const oq_search_sum *v, size_t n) {
    oq_search_score out = {INFINITY, NAN};
    for (size_t k = 0; k < n; k++) {
        if (v[k].sums.n > 0 && v[k].sums.ee > 0)
            out.sqnr = fmin(out.sqnr, oq_sums_sqnr(&v[k].sums));
        if (v[k].rows > 0)
            out.agreement = fmin(out.agreement, (double)v[k].same / (double)v[k].rows);
    }
    return out;
}

static onq_code measure(oq_searching *g, double *sqnr, double *agreement, onq_error *err) {
    oq_search_score score = {0};
    OQ_TRY(oq_search_measure(g, &score, err));
    *sqnr = score.sqnr;
    *agreement = score.agreement;
    return ONQ_OK;
}

/* True when the time that was given is over; what is not measured by then stays so. */
static bool is_time_over(void *ctx) {
    const oq_searching *g = ctx;
    const oq_debug_target *t = g->target;
    return (t->seconds > 0 && oq_seconds() - g->s->began > t->seconds) ||
           (t->cpu_until > 0 && oq_cpu_seconds() > t->cpu_until);
}

static bool is_late(oq_searching *g) {
    g->s->late |= is_time_over(g);
    return g->s->late;
}

/* ---- each alone ---- */

static void set_unit(oq_searching *g, size_t at, bool excluded) {
    assert(at < g->s->units.n);
    const oq_debug_unit *u = &g->s->units.v[at];
    for (size_t i = 0; i < u->nodes.n; i++)
        g->excluded[u->nodes.v[i]] = excluded;
}

static void set_alone(void *ctx, size_t at) {
    oq_search_exclude_all(ctx, true);
    set_unit(ctx, at, false);
}

static onq_code each_alone(oq_searching *g, onq_error *err) {
    const size_t n = g->s->units.n;
    const oq_search_tries tries = {.n = n,
                                   .what = g->s->grouped ? "groups" : "units",
                                   .set = set_alone,
                                   .is_late = is_time_over,
                                   .ctx = g,
                                   .scores = OQ_NEW_ARRAY(g->arena, oq_search_score, n + 1),
                                   .measured = OQ_NEW_ARRAY(g->arena, bool, n + 1)};
    OQ_TRY_ALLOC(tries.scores != NULL && tries.measured != NULL, err);
    OQ_TRY(oq_search_measure_all(g, &tries, err));
    for (size_t i = 0; i < n; i++) {
        if (!tries.measured[i])
            continue;
        g->s->units.v[i].sqnr = tries.scores[i].sqnr;
        g->s->units.v[i].agreement = tries.scores[i].agreement;
        g->s->n_measured++;
    }
    g->s->late |= g->s->n_measured < n;
    return ONQ_OK;
}

/* ---- the least set ---- */

static bool is_reached(const oq_searching *g, double sqnr, double agreement) {
    const oq_debug_target *t = g->target;
    return (isnan(t->sqnr) || sqnr >= t->sqnr) &&
           (isnan(t->agreement) || agreement >= t->agreement);
}

/* Excludes the first n of the order. */
static onq_code try_first(oq_searching *g, const oq_keyed *order, size_t n, bool *ok,
                          onq_error *err) {
    double sqnr = 0, agreement = 0;
    oq_search_exclude_all(g, false);
    for (size_t i = 0; i < n; i++)
        set_unit(g, order[i].at, true);
    OQ_TRY(measure(g, &sqnr, &agreement, err));
    *ok = is_reached(g, sqnr, agreement);
    if (*ok || n == g->s->units.n) {
        g->s->found_sqnr = sqnr;
        g->s->found_agreement = agreement;
    }
    return ONQ_OK;
}

static double noise(double sqnr) {
    return pow(10, -sqnr / 10);
}

/* True if the target may be reached with this unit quantized too. Predictions are good to a factor
 * of two. */
static bool is_spare(const oq_searching *g, const oq_debug_unit *u) {
    if (isnan(g->target->sqnr) || isnan(u->sqnr))
        return true;
    return noise(u->sqnr) <= 2 * (noise(g->target->sqnr) - noise(g->s->found_sqnr)) ||
           noise(u->sqnr) < 0.25 * noise(g->target->sqnr);
}

/* Puts back what the target does not need, the least costly first. */
static onq_code thin_out(oq_searching *g, const oq_keyed *order, size_t n, onq_error *err) {
    size_t misses = 0;
    for (size_t i = 0; i < n; i++)
        g->s->units.v[order[i].at].excluded = true;
    for (size_t i = n; i-- > 0 && misses < MAX_MISSES && !is_late(g);) {
        oq_debug_unit *u = &g->s->units.v[order[i].at];
        double sqnr = 0, agreement = 0;
        if (!is_spare(g, u))
            continue;
        u->excluded = false;
        oq_search_exclude_all(g, false);
        for (size_t k = 0; k < g->s->units.n; k++) /* groups may share a node */
            if (g->s->units.v[k].excluded)
                set_unit(g, k, true);
        OQ_TRY(measure(g, &sqnr, &agreement, err));
        if (is_reached(g, sqnr, agreement)) {
            g->s->found_sqnr = sqnr;
            g->s->found_agreement = agreement;
        } else {
            u->excluded = true;
            misses++;
        }
        OQ_TRY(oq_progress(g->d->env, "thin out", n - i, n, err));
    }
    return ONQ_OK;
}

static onq_code bisect(oq_searching *g, const oq_keyed *order, onq_error *err) {
    const size_t n = g->s->units.n;
    size_t low = 0, high = n;
    bool ok = false;
    g->s->bisected = true;
    OQ_TRY(try_first(g, order, 0, &ok, err));
    if (!ok) {
        OQ_TRY(try_first(g, order, n, &ok, err));
        if (!ok)
            return ONQ_OK;                      /* not even without any quantized node */
        while (low + 1 < high && !is_late(g)) { /* low fails, high reaches it */
            const size_t middle = low + (high - low) / 2;
            OQ_TRY(try_first(g, order, middle, &ok, err));
            *(ok ? &high : &low) = middle;
        }
        assert(low < high && high <= n);
        OQ_TRY(try_first(g, order, high, &ok, err));
        OQ_TRY(thin_out(g, order, high, err));
    }
    g->s->reached = true;
    for (size_t i = 0; i < n; i++)
        g->s->n_excluded += g->s->units.v[i].excluded;
    return ONQ_OK;
}

/* The set that counts: what bisection found, else the worst unit. */
static void mark_nodes(oq_debug_search *s) {
    for (size_t i = 0; i < s->units.n; i++) {
        const oq_debug_unit *u = &s->units.v[i];
        const bool in = s->bisected ? u->excluded : i == 0;
        for (size_t k = 0; in && k < u->nodes.n; k++)
            s->nodes.v[u->nodes.v[k]].excluded = true;
    }
}

static onq_code sort_units(oq_searching *g, oq_keyed *order, onq_error *err) {
    oq_debug_search *s = g->s;
    const size_t n = s->units.n;
    oq_debug_unit *sorted = OQ_NEW_ARRAY(g->arena, oq_debug_unit, n);
    OQ_TRY_ALLOC(sorted != NULL, err);
    for (size_t i = 0; i < n; i++)
        sorted[i] = s->units.v[order[i].at];
    memcpy(s->units.v, sorted, n * sizeof *sorted);
    return ONQ_OK;
}

static onq_code search_all(oq_searching *g, onq_error *err) {
    oq_debug_search *s = g->s;
    OQ_TRY(oq_search_find(g, err));
    if (s->nodes.n == 0)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "%s: it has no named node with QuantizeLinear and "
                       "DequantizeLinear around it; sensitivity and bisection need a QDQ model "
                       "(--quant_format qdq)",
                       g->d->quantized->path);
    OQ_TRY(oq_debug_search_units(s, g->target, g->arena, err));
    OQ_TRY(oq_search_begin(g, err));
    oq_search_exclude_all(g, false);
    const uint64_t before = oq_os_resident();
    OQ_TRY(measure(g, &s->whole_sqnr, &s->whole_agreement, err));
    OQ_TRY(oq_search_lanes(g, before, err));
    OQ_TRY(each_alone(g, err));
    const size_t n = s->units.n;
    oq_keyed *order = OQ_NEW_ARRAY(g->arena, oq_keyed, n + 1);
    OQ_TRY_ALLOC(order != NULL, err);
    for (uint32_t i = 0; i < n; i++)
        order[i] = (oq_keyed){s->units.v[i].sqnr, i};
    oq_keyed_sort(order, n); /* those that were not measured come last */
    if (g->target->bisect)
        OQ_TRY(bisect(g, order, err));
    OQ_TRY(sort_units(g, order, err));
    mark_nodes(s);
    return oq_search_verify(g, err);
}

onq_code oq_debug_run_search(oq_debug *d, const oq_debug_run *run, const oq_debug_target *t,
                             oq_debug_search *s, onq_error *err) {
    *s = (oq_debug_search){.d = d,
                           .began = oq_seconds(),
                           .quantized_sqnr = NAN,
                           .quantized_agreement = NAN,
                           .wide_sqnr = NAN,
                           .macs = NAN,
                           .weights = NAN};
    oq_searching g = {.d = d, .run = run, .target = t, .s = s, .arena = &d->arena, .n_lanes = 1};
    const onq_code rc = search_all(&g, err);
    oq_search_end(&g);
    return rc;
}
