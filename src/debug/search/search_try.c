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

#include <pthread.h>
#include <stdlib.h>

/* ---- what tries begin with ---- */

/* The float model's outputs for every sample that is used. */
static onq_code keep_outputs(oq_searching *g, onq_error *err) {
    oq_session *session = NULL;
    onq_code rc = ONQ_OK;
    oq_session_options o = g->run->session;
    o.model = g->d->truth;
    o.level = OQ_OPT_NONE;
    o.no_spinning = true;
    OQ_GO(oq_session_open(g->run->engine, &o, &session, err));
    OQ_GO(oq_source_seek(g->run->truth_source, 0, err));
    g->n_outputs = session->outputs.n;
    while (g->kept.n < g->target->most_samples) {
        const oq_sample *sample = NULL;
        oq_outputs out = {0};
        OQ_GO(oq_source_next(g->run->truth_source, &sample, err));
        if (sample == NULL)
            break;
        OQ_GO(oq_session_run(session, sample->inputs, sample->n_inputs, &out, err));
        oq_datum *copy = OQ_NEW_ARRAY(g->arena, oq_datum, out.n + 1);
        if (copy == NULL || !OQ_PUSH(g->arena, &g->kept, copy)) {
            rc = oq_fail_nomem(err);
            goto done;
        }
        for (size_t k = 0; k < out.n; k++)
            OQ_GO(oq_datum_copy(g->arena, &out.v[k], &copy[k], err));
    }
    g->s->n_samples = g->kept.n;
done:
    oq_session_close(session);
    return rc;
}

/* What each DequantizeLinear reads when it is off. */
static onq_code list_reads(oq_searching *g, onq_error *err) {
    for (size_t i = 0; i < g->pairs.n; i++) {
        oq_search_pair *p = &g->pairs.v[i];
        for (size_t k = 0; k < p->inputs.n; k++) {
            const uint32_t v = oq_slicer_value(g->slicer, p->inputs.v[k]);
            if (v != OQ_NO_VALUE && !OQ_PUSH(g->arena, &p->reads, v))
                return oq_fail_nomem(err);
        }
    }
    return ONQ_OK;
}

onq_code oq_search_begin(oq_searching *g, onq_error *err) {
    oq_model *made = g->d->made;
    const oq_slicer_options o = {
        .engine = g->run->engine, .session = g->run->session, .model = made, .proto = made->proto};
    OQ_TRY(keep_outputs(g, err));
    OQ_TRY(oq_slicer_open(&o, &g->slicer, err));
    OQ_TRY(list_reads(g, err));
    OQ_TRY(oq_slicer_load(g->slicer, g->run->made_source, g->kept.n, UINT64_MAX, NULL, err));
    if (g->slicer->n_samples == 0)
        return oq_fail(err, ONQ_E_READ, "%s: there are no samples",
                       oq_source_text(g->run->made_source));
    oq_search_exclude_all(g, true);
    oq_search_apply(g);
    /* A quarter is left for tries that run at once. */
    const onq_code rc = oq_cuts_make(&g->cuts, g->slicer, g->target->memory / 4 * 3, err);
    oq_search_put_back(g);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", made->path);
}

/* ---- what a try runs ---- */

typedef struct trial {
    oq_change change;
    oq_slice head; /* stays closed when the try is idle */
} trial;

/* Looks at the try that `excluded` says, and makes its head if `head`. */
static onq_code plan(oq_searching *g, bool head, trial *t, oq_arena *a, onq_error *err) {
    *t = (trial){0};
    bool *changed = OQ_NEW_ARRAY(a, bool, g->slicer->n_nodes + 1);
    if (changed == NULL)
        return oq_fail_nomem(err);
    oq_search_apply(g);
    for (size_t i = 0; i < g->pairs.n; i++)
        changed[g->pairs.v[i].dq_at] = !g->pairs.v[i].off;
    onq_code rc = oq_cuts_find(&g->cuts, changed, a, &t->change, err);
    if (rc == ONQ_OK && head && !t->change.idle)
        rc = oq_cuts_head(&g->cuts, &t->change, &t->head, err);
    oq_search_put_back(g);
    return rc;
}

static onq_code open_slice(const oq_searching *g, oq_slice *p, oq_opt_level level, onq_error *err) {
    const onq_code rc = oq_slice_open(p, level, err);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", g->d->made->path);
}

static void close_tails(oq_searching *g) {
    for (size_t i = OQ_FLIGHT_LANES; i-- > 0;)
        oq_slice_close(&g->tails[i]);
    g->tail_cut = 0;
}

static onq_code make_tail(oq_searching *g, size_t cut, onq_error *err) {
    const size_t n = g->s->nodes.n;
    bool *set = OQ_NEW_ARRAY(g->arena, bool, n + 1);
    if (set == NULL)
        return oq_fail_nomem(err);
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

/* One sample through the head and the tail, which may be NULL. `sums` are its own. */
static onq_code run_sample(const oq_searching *g, oq_slice *head, oq_slice *tail, size_t i,
                           oq_search_sum *sums, onq_error *err) {
    OQ_TRY(oq_slice_run(head, NULL, i, err));
    if (tail != NULL)
        OQ_TRY(oq_slice_run(tail, head, i, err));
    for (size_t k = 0; k < g->n_outputs && k < g->cuts.outputs.n; k++) {
        const uint32_t v = g->cuts.outputs.v[k];
        if (v == OQ_NO_VALUE)
            continue;
        const oq_datum *d = oq_slice_given(head, v);
        if (d == NULL && tail != NULL)
            d = oq_slice_given(tail, v);
        if (d == NULL)
            d = oq_slicer_kept(g->slicer, v, i);
        if (d != NULL)
            oq_search_sum_add(&sums[k], &g->kept.v[i][k], d);
    }
    return ONQ_OK;
}

static size_t count_samples(const oq_searching *g) {
    return g->slicer->n_samples;
}

static oq_search_sum *new_sums(const oq_searching *g, oq_arena *a) {
    return OQ_NEW_ARRAY(a, oq_search_sum, (count_samples(g) + 1) * (g->n_outputs + 1));
}

/* The score of all samples, in their order. */
static oq_search_score score_of(const oq_searching *g, oq_search_sum *sums) {
    for (size_t i = 1; i < count_samples(g); i++)
        for (size_t k = 0; k < g->n_outputs; k++)
            oq_search_sum_join(&sums[k], &sums[i * g->n_outputs + k]);
    return oq_search_score_of(sums, g->n_outputs);
}

/* ---- one try, several samples at once ---- */

typedef struct alone {
    oq_searching *g;
    oq_slice *heads[OQ_FLIGHT_LANES];
    bool tail;
    oq_search_sum *sums;
} alone;

static onq_code sample_task(void *ctx, size_t i, unsigned worker, onq_error *err) {
    const alone *w = ctx;
    return run_sample(w->g, w->heads[worker], w->tail ? &w->g->tails[worker] : NULL, i,
                      &w->sums[i * w->g->n_outputs], err);
}

static onq_code run_all_samples(oq_searching *g, trial *t, oq_search_sum *sums, onq_error *err) {
    const size_t n = count_samples(g);
    const bool several = n > 1 && g->pool != NULL;
    oq_slice shared[OQ_FLIGHT_LANES] = {0};
    alone w = {.g = g, .tail = t->change.tail && !t->change.idle, .sums = sums};
    onq_code rc = ONQ_OK;
    w.heads[0] = &t->head;
    for (unsigned i = 1; several && i < g->n_lanes; i++) {
        w.heads[i] = &shared[i];
        if (!t->change.idle)
            OQ_GO(oq_slice_share(&t->head, &shared[i], err));
    }
    if (several)
        OQ_GO(oq_pool_run(g->pool, n, sample_task, &w, err));
    for (size_t i = 0; !several && i < n; i++)
        OQ_GO(sample_task(&w, i, 0, err));
done:
    for (unsigned i = 1; i < OQ_FLIGHT_LANES; i++)
        oq_slice_close(&shared[i]);
    return rc;
}

static onq_code try_alone(oq_searching *g, oq_search_sum *sums, oq_arena *a, onq_error *err) {
    trial t;
    onq_code rc = plan(g, true, &t, a, err);
    if (rc == ONQ_OK && !t.change.idle)
        rc = open_slice(g, &t.head, OQ_OPT_NONE, err);
    if (rc == ONQ_OK && t.change.tail && !t.change.idle)
        rc = open_tails(g, t.change.end, err);
    if (rc == ONQ_OK)
        rc = run_all_samples(g, &t, sums, err);
    oq_slice_close(&t.head);
    return rc;
}

onq_code oq_search_measure(oq_searching *g, oq_search_score *out, onq_error *err) {
    oq_arena scratch;
    oq_arena_init(&scratch, &g->d->env->alloc);
    oq_search_sum *sums = new_sums(g, &scratch);
    const onq_code rc = sums != NULL ? try_alone(g, sums, &scratch, err) : oq_fail_nomem(err);
    if (rc == ONQ_OK)
        *out = score_of(g, sums);
    oq_arena_release(&scratch);
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
static onq_code run_try(together *w, size_t at, unsigned worker, trial *t, oq_arena *a,
                        onq_error *err) {
    oq_searching *g = w->g;
    oq_search_sum *sums = new_sums(g, a);
    if (sums == NULL)
        return oq_fail_nomem(err);
    pthread_mutex_lock(&w->lock);
    w->tries->set(w->tries->ctx, at);
    onq_code rc = plan(g, true, t, a, err);
    pthread_mutex_unlock(&w->lock);
    if (rc == ONQ_OK && !t->change.idle)
        rc = open_slice(g, &t->head, OQ_OPT_NONE, err);
    oq_slice *tail = t->change.tail && !t->change.idle ? &g->tails[worker] : NULL;
    for (size_t i = 0; rc == ONQ_OK && i < count_samples(g); i++)
        rc = run_sample(g, &t->head, tail, i, &sums[i * g->n_outputs], err);
    if (rc == ONQ_OK)
        w->tries->scores[at] = score_of(g, sums);
    return rc;
}

static onq_code try_task(void *ctx, size_t i, unsigned worker, onq_error *err) {
    together *w = ctx;
    const oq_search_tries *tries = w->tries;
    const size_t at = w->order[i].at;
    oq_arena scratch;
    trial t = {0};
    if (tries->is_late(tries->ctx))
        return ONQ_OK;
    oq_arena_init(&scratch, &w->g->d->env->alloc);
    const onq_code rc = run_try(w, at, worker, &t, &scratch, err);
    oq_slice_close(&t.head);
    oq_arena_release(&scratch);
    OQ_TRY(rc);
    pthread_mutex_lock(&w->lock);
    tries->measured[at] = true;
    const size_t done = ++w->done;
    pthread_mutex_unlock(&w->lock);
    return worker == 0 ? oq_progress(w->g->d->env, tries->what, done, tries->n, err) : ONQ_OK;
}

/* Tries that end at one cut. */
static onq_code run_group(together *w, const turn *order, size_t n, onq_error *err) {
    oq_searching *g = w->g;
    w->order = order;
    if (order->end > 0)
        OQ_TRY(open_tails(g, order->end, err));
    if (g->pool != NULL)
        return oq_pool_run(g->pool, n, try_task, w, err);
    for (size_t i = 0; i < n; i++)
        OQ_TRY(try_task(w, i, 0, err));
    return ONQ_OK;
}

/* Where each try ends; 0: it has no tail. */
static onq_code order_tries(oq_searching *g, const oq_search_tries *tries, turn *order,
                            onq_error *err) {
    for (uint32_t i = 0; i < tries->n; i++) {
        oq_arena scratch;
        trial t;
        oq_arena_init(&scratch, &g->d->env->alloc);
        tries->set(tries->ctx, i);
        const onq_code rc = plan(g, false, &t, &scratch, err);
        oq_arena_release(&scratch);
        OQ_TRY(rc);
        order[i] = (turn){t.change.tail && !t.change.idle ? (uint32_t)t.change.end : 0, i};
    }
    if (tries->n > 1)
        qsort(order, tries->n, sizeof *order, by_end);
    return ONQ_OK;
}

onq_code oq_search_measure_all(oq_searching *g, const oq_search_tries *tries, onq_error *err) {
    turn *order = OQ_NEW_ARRAY(g->arena, turn, tries->n + 1);
    together w = {.g = g, .tries = tries};
    if (order == NULL)
        return oq_fail_nomem(err);
    OQ_TRY(order_tries(g, tries, order, err));
    pthread_mutex_init(&w.lock, NULL);
    onq_code rc = ONQ_OK;
    for (size_t i = 0, to = 0; rc == ONQ_OK && i < tries->n; i = to) {
        while (to < tries->n && order[to].end == order[i].end)
            to++;
        rc = run_group(&w, &order[i], to - i, err);
    }
    pthread_mutex_destroy(&w.lock);
    return rc;
}

/* ---- lanes ---- */

onq_code oq_search_lanes(oq_searching *g, uint64_t before, onq_error *err) {
    const uint64_t memory = g->target->memory, kept = g->slicer->bytes;
    close_tails(g); /* there is one for each lane */
    OQ_TRY(oq_flight_decide(g->d->env, g->d->made, g->run->jobs, before,
                            memory > kept ? memory - kept : 0, &g->n_lanes, err));
    return g->n_lanes > 1 ? oq_pool_new_of(g->d->env, g->n_lanes, &g->pool, err) : ONQ_OK;
}

void oq_search_end(oq_searching *g) {
    close_tails(g);
    oq_pool_free(g->pool);
    if (g->slicer != NULL)
        g->s->n_runs = g->slicer->n_slices;
    oq_slicer_close(g->slicer);
    g->d->made->proto->graph->initializer.n = g->n_inits;
}
