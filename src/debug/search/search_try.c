/*
 * search_try.c — runs what a try changes, and measures the outputs. See search_parts.h.
 *
 * The graph with nothing quantized is cut in slices (engine/slice/cuts.h); the pairs that a try
 * leaves in are the change. The head of a try is opened for it, the tail serves all tries that end
 * at the same cut. Tries with one tail are measured at once, in lanes; a try that is measured alone
 * runs several samples at once. Either way each sample has sums of its own that are added up in the
 * order of the samples, so results do not depend on the number of lanes.
 */
#include "debug/search/search_parts.h"

#include "engine/sweep.h"

#include <pthread.h>

/* ---- what tries begin with ---- */

static bool is_sample_wanted(void *ctx, uint64_t at) {
    return at < ((oq_searching *)ctx)->target->most_samples;
}

static onq_code keep_output(void *ctx, const oq_turn *t, onq_error *err) {
    oq_searching *g = ctx;
    oq_datum *copy = NULL;
    OQ_TRY(oq_datums_copy(g->arena, t->outputs->v, t->outputs->n, &copy, err));
    return OQ_PUSH(g->arena, &g->kept, copy) ? ONQ_OK : oq_fail_nomem(err);
}

/* The float model's outputs for every sample that is used. */
static onq_code keep_outputs(oq_searching *g, onq_error *err) {
    oq_sweep sweep = {.env = g->d->env,
                      .model = {.source = g->run->float_source},
                      .ctx = g,
                      .more = is_sample_wanted,
                      .take = keep_output};
    oq_session_options o = g->run->session;
    o.model = g->d->flt;
    o.level = OQ_OPT_NONE;
    o.no_spinning = true;
    OQ_TRY(oq_session_open(g->run->engine, &o, &sweep.model.session, err));
    g->n_outputs = sweep.model.session->outputs.n;
    const onq_code rc = oq_sweep_run(&sweep, err);
    oq_session_close(sweep.model.session);
    g->s->n_samples = g->kept.n;
    return rc;
}

/* What each DequantizeLinear reads when it is off. */
static onq_code list_reads(oq_searching *g, onq_error *err) {
    for (size_t i = 0; i < g->pairs.n; i++) {
        oq_search_pair *p = &g->pairs.v[i];
        for (size_t k = 0; p->ix->parent == NULL && k < p->inputs.n; k++) {
            const uint32_t v = oq_slicer_value(g->slicer, p->inputs.v[k]);
            if (v != OQ_NO_VALUE && !OQ_PUSH(g->arena, &p->reads, v))
                return oq_fail_nomem(err);
        }
    }
    return ONQ_OK;
}

onq_code oq_search_begin(oq_searching *g, onq_error *err) {
    oq_model *quantized = g->d->quantized;
    const oq_slicer_options o = {.engine = g->run->engine,
                                 .session = g->run->session,
                                 .model = quantized,
                                 .proto = quantized->proto};
    OQ_TRY(oq_pool_new_of(g->d->env, g->n_lanes, &g->pool, err));
    OQ_TRY(keep_outputs(g, err));
    OQ_TRY(oq_slicer_open(&o, &g->slicer, err));
    OQ_TRY(list_reads(g, err));
    OQ_TRY(oq_slicer_load(g->slicer, g->run->quantized_source, g->kept.n, UINT64_MAX, NULL, err));
    if (g->slicer->n_samples == 0)
        return oq_fail(err, ONQ_E_READ, "%s: there are no samples",
                       oq_source_text(g->run->quantized_source));
    oq_search_exclude_all(g, true);
    oq_search_apply(g);
    /* A quarter is left for tries that run at once. */
    const onq_code rc = oq_cuts_make(&g->cuts, g->slicer, g->target->memory / 4 * 3, err);
    oq_search_put_back(g);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", quantized->path);
}

/* ---- what a try runs ---- */

typedef struct trial {
    oq_searching *g;
    oq_arena arena;
    oq_change change;
    oq_slice heads[OQ_FLIGHT_LANES]; /* the first, and those that share it */
    oq_search_sum *sums;             /* by sample and output */
} trial;

static void begin_try(trial *t, oq_searching *g) {
    *t = (trial){.g = g};
    oq_arena_init(&t->arena, &g->d->env->alloc);
}

static void end_try(trial *t) {
    for (size_t i = OQ_FLIGHT_LANES; i-- > 0;)
        oq_slice_close(&t->heads[i]);
    oq_arena_release(&t->arena);
}

/* Looks at the try that `excluded` says, and makes its head if `head`. */
static onq_code plan(trial *t, bool head, onq_error *err) {
    oq_searching *g = t->g;
    bool *changed = OQ_NEW_ARRAY(&t->arena, bool, g->slicer->n_nodes + 1);
    OQ_TRY_ALLOC(changed != NULL, err);
    oq_search_apply(g);
    for (size_t i = 0; i < g->pairs.n; i++)
        changed[g->pairs.v[i].run_at] |= !g->pairs.v[i].off;
    onq_code rc = oq_cuts_find(&g->cuts, changed, &t->arena, &t->change, err);
    if (rc == ONQ_OK && head)
        rc = oq_cuts_head(&g->cuts, &t->change, &t->heads[0], err);
    oq_search_put_back(g);
    return rc;
}

static onq_code open_slice(const oq_searching *g, oq_slice *p, oq_opt_level level, onq_error *err) {
    const onq_code rc = oq_slice_open(p, level, err);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", g->d->quantized->path);
}

static void close_tails(oq_searching *g) {
    for (size_t i = OQ_FLIGHT_LANES; i-- > 0;)
        oq_slice_close(&g->tails[i]);
    g->tail_cut = 0;
}

static onq_code make_tail(oq_searching *g, size_t cut, onq_error *err) {
    const size_t n = g->s->nodes.n;
    bool *set = OQ_NEW_ARRAY(g->arena, bool, n + 1);
    OQ_TRY_ALLOC(set != NULL, err);
    memcpy(set, g->excluded, n * sizeof *set);
    oq_search_exclude_all(g, true);
    oq_search_apply(g);
    const onq_code rc = oq_cuts_tail(&g->cuts, cut, &g->tails[0], err);
    oq_search_put_back(g);
    memcpy(g->excluded, set, n * sizeof *set);
    return rc;
}

/* From the cut on with nothing quantized, for every lane. */
static onq_code open_tails(oq_searching *g, size_t cut, onq_error *err) {
    assert(cut > 0); /* 0: no tail is open */
    if (g->tail_cut == cut)
        return ONQ_OK;
    close_tails(g);
    OQ_TRY(make_tail(g, cut, err));
    onq_code rc = open_slice(g, &g->tails[0], OQ_OPT_ALL, err);
    if (rc == ONQ_E_RUNTIME) { /* an optimisation may be what it cannot do */
        oq_error_clear(err);
        rc = open_slice(g, &g->tails[0], OQ_OPT_NONE, err);
    }
    for (unsigned i = 1; rc == ONQ_OK && i < g->n_lanes; i++)
        rc = oq_slice_share(&g->tails[0], &g->tails[i], err);
    if (rc == ONQ_OK)
        g->tail_cut = cut;
    return rc;
}

/* ---- running ---- */

/* Opens the head, and makes room for the sums. */
static onq_code open_try(trial *t, onq_error *err) {
    const size_t n = t->g->slicer->n_samples, n_outputs = t->g->n_outputs;
    t->sums = OQ_NEW_ARRAY(&t->arena, oq_search_sum, (n + 1) * (n_outputs + 1));
    return t->sums != NULL ? open_slice(t->g, &t->heads[0], OQ_OPT_NONE, err) : oq_fail_nomem(err);
}

/* One sample through a head and, if there is one, the tail of the lane. */
static onq_code run_sample(trial *t, oq_slice *head, unsigned lane, size_t i, onq_error *err) {
    oq_searching *g = t->g;
    assert(lane < g->n_lanes && i < g->slicer->n_samples);
    oq_slice *tail = t->change.tail ? &g->tails[lane] : NULL;
    OQ_TRY(oq_slice_run(head, NULL, i, err));
    if (tail != NULL)
        OQ_TRY(oq_slice_run(tail, head, i, err));
    for (size_t k = 0; k < g->n_outputs && k < g->cuts.outputs.n; k++) {
        const uint32_t v = g->cuts.outputs.v[k];
        const oq_datum *d = v != OQ_NO_VALUE ? oq_slice_given(head, v) : NULL;
        if (d == NULL && v != OQ_NO_VALUE && tail != NULL)
            d = oq_slice_given(tail, v);
        if (d == NULL && v != OQ_NO_VALUE)
            d = oq_slicer_kept(g->slicer, v, i);
        if (d != NULL)
            OQ_TRY(oq_search_sum_add(g, &t->sums[i * g->n_outputs + k], &g->kept.v[i][k], d, err));
    }
    return ONQ_OK;
}

/* The score of all samples, in their order. */
static oq_search_score score_of(trial *t) {
    const size_t n = t->g->n_outputs;
    for (size_t i = 1; i < t->g->slicer->n_samples; i++)
        for (size_t k = 0; k < n; k++)
            oq_search_sum_join(&t->sums[k], &t->sums[i * n + k]);
    return oq_search_score_of(t->sums, n);
}

/* ---- one try, several samples at once ---- */

static onq_code sample_task(void *ctx, size_t i, unsigned worker, onq_error *err) {
    trial *t = ctx;
    return run_sample(t, &t->heads[worker], worker, i, err);
}

static onq_code try_alone(trial *t, onq_error *err) {
    oq_searching *g = t->g;
    OQ_TRY(plan(t, true, err));
    OQ_TRY(open_try(t, err));
    if (t->change.tail)
        OQ_TRY(open_tails(g, t->change.end, err));
    for (unsigned i = 1; i < g->n_lanes; i++)
        OQ_TRY(oq_slice_share(&t->heads[0], &t->heads[i], err));
    return oq_pool_run(g->pool, g->slicer->n_samples, sample_task, t, err);
}

onq_code oq_search_measure(oq_searching *g, oq_search_score *out, onq_error *err) {
    trial t;
    begin_try(&t, g);
    const onq_code rc = try_alone(&t, err);
    if (rc == ONQ_OK)
        *out = score_of(&t);
    end_try(&t);
    return rc;
}

/* ---- several tries at once ---- */

typedef struct turn {
    uint32_t end, at; /* cut; try */
} turn;

typedef struct together {
    oq_searching *g;
    const oq_search_tries *tries;
    const turn *order;
    pthread_mutex_t lock; /* of the graph, `excluded` and `done` */
    size_t done;
} together;

static int by_end(const void *a, const void *b) {
    const turn *x = a, *y = b;
    if (x->end != y->end)
        return x->end > y->end ? -1 : 1; /* the last first: their tails are short */
    return x->at < y->at ? -1 : x->at > y->at;
}

/* The graph is edited by one lane at a time; opening and running is what takes long. */
static onq_code run_try(together *w, size_t at, unsigned lane, trial *t, onq_error *err) {
    pthread_mutex_lock(&w->lock);
    w->tries->set(w->tries->ctx, at);
    const onq_code rc = plan(t, true, err);
    pthread_mutex_unlock(&w->lock);
    OQ_TRY(rc);
    OQ_TRY(open_try(t, err));
    for (size_t i = 0; i < w->g->slicer->n_samples; i++)
        OQ_TRY(run_sample(t, &t->heads[0], lane, i, err));
    w->tries->scores[at] = score_of(t);
    return ONQ_OK;
}

static onq_code try_task(void *ctx, size_t i, unsigned worker, onq_error *err) {
    together *w = ctx;
    const oq_search_tries *tries = w->tries;
    const size_t at = w->order[i].at;
    trial t;
    if (tries->is_late(tries->ctx))
        return ONQ_OK;
    begin_try(&t, w->g);
    const onq_code rc = run_try(w, at, worker, &t, err);
    end_try(&t);
    OQ_TRY(rc);
    pthread_mutex_lock(&w->lock);
    tries->measured[at] = true;
    const size_t done = ++w->done;
    pthread_mutex_unlock(&w->lock);
    return worker == 0 ? oq_progress(w->g->d->env, tries->what, done, tries->n, err) : ONQ_OK;
}

/* Where each try ends; 0: it has no tail. */
static onq_code order_tries(oq_searching *g, const oq_search_tries *tries, turn *order,
                            onq_error *err) {
    for (uint32_t i = 0; i < tries->n; i++) {
        trial t;
        begin_try(&t, g);
        tries->set(tries->ctx, i);
        const onq_code rc = plan(&t, false, err);
        order[i] = (turn){t.change.tail ? (uint32_t)t.change.end : 0, i};
        end_try(&t);
        OQ_TRY(rc);
    }
    if (tries->n > 1)
        qsort(order, tries->n, sizeof *order, by_end);
    return ONQ_OK;
}

onq_code oq_search_measure_all(oq_searching *g, const oq_search_tries *tries, onq_error *err) {
    turn *order = OQ_NEW_ARRAY(g->arena, turn, tries->n + 1);
    together w = {.g = g, .tries = tries, .order = order};
    OQ_TRY_ALLOC(order != NULL, err);
    OQ_TRY(order_tries(g, tries, order, err));
    pthread_mutex_init(&w.lock, NULL);
    onq_code rc = ONQ_OK;
    for (size_t n = 0, left = tries->n; rc == ONQ_OK && left > 0; w.order += n, left -= n) {
        for (n = 1; n < left && w.order[n].end == w.order->end;)
            n++;
        if (w.order->end > 0)
            rc = open_tails(g, w.order->end, err);
        if (rc == ONQ_OK)
            rc = oq_pool_run(g->pool, n, try_task, &w, err);
    }
    pthread_mutex_destroy(&w.lock);
    return rc;
}

/* ---- lanes ---- */

onq_code oq_search_lanes(oq_searching *g, uint64_t before, onq_error *err) {
    const uint64_t memory = g->target->memory, kept = g->slicer->bytes;
    close_tails(g); /* there is one for each lane */
    OQ_TRY(oq_flight_decide(g->d->env, g->d->quantized, g->run->jobs, before,
                            memory > kept ? memory - kept : 0, &g->n_lanes, err));
    oq_pool_free(g->pool);
    return oq_pool_new_of(g->d->env, g->n_lanes, &g->pool, err);
}

void oq_search_end(oq_searching *g) {
    close_tails(g);
    oq_pool_free(g->pool);
    if (g->slicer != NULL)
        g->s->n_runs = g->slicer->n_slices;
    oq_slicer_close(g->slicer);
    oq_search_forget(g);
}
