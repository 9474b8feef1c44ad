/*
 * search_try.c — runs what a try changes, and measures the outputs. See search_parts.h.
 *
 * A try has a head, which is opened for it, and a tail from the next cut on, in which nothing is
 * quantized and which serves all tries that end at that cut. Tries with one tail are measured at
 * once, in lanes; a try that is measured alone runs several samples at once. Either way each sample
 * has sums of its own that are added up in the order of the samples, so results do not depend on
 * the number of lanes.
 */
#include "debug/search/search_cuts.h"

#include "engine/flight.h"
#include "onnx/codec/schema.h"
#include "onnx/edit.h"

#include <pthread.h>
#include <stdlib.h>

typedef oq_search_part part;

/* What a try runs. */
typedef struct trial {
    size_t begin, end; /* cuts */
    bool tail;         /* there is something to run after `end` */
    bool idle;         /* it changes no output */
    part head;
    oq_model *model; /* of the head, cloned */
} trial;

/* ---- parts ---- */

static void close_part(part *p) {
    oq_session_close(p->session);
    *p = (part){0};
}

/* Marks the nodes that the outputs need, back to values that are kept and made before `from`. */
static onq_code collect(oq_searching *g, part *p, uint32_t from, bool all_off, bool *needed,
                        oq_arena *a, onq_error *err) {
    const oq_search_cuts *c = g->cuts;
    const oq_index *ix = oq_search_index(g);
    OQ_VEC(uint32_t) todo = {0};
    bool *seen = OQ_NEW_ARRAY(a, bool, ix->values.n + 1);
    if (seen == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < p->out.n; i++)
        if (!OQ_PUSH(a, &todo, p->out.v[i]))
            return oq_fail_nomem(err);
    while (todo.n > 0) {
        const uint32_t v = todo.v[--todo.n], node = ix->values.v[v].producer;
        if (seen[v])
            continue;
        seen[v] = true;
        if (c->slot[v] != OQ_NOBODY && (node == OQ_NO_NODE || c->at[node] < from)) {
            if (!OQ_PUSH(a, &p->in, v))
                return oq_fail_nomem(err);
            continue;
        }
        if (node == OQ_NO_NODE || needed[node])
            continue;
        needed[node] = true;
        oq_search_reading r;
        oq_search_reads_of(g, node, all_off, &r);
        for (size_t k = 0; k < r.n; k++)
            if (!OQ_PUSH(a, &todo, r.v[k]))
                return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* The graph of a part: its nodes in order, kept values as inputs. Types of outputs are the
 * runtime's to find. */
static onq_code part_graph(oq_searching *g, const part *p, const bool *needed, oq_arena *a,
                           oq_graph *out, onq_error *err) {
    const oq_search_cuts *c = g->cuts;
    const oq_index *ix = oq_search_index(g);
    out->node.n = out->node.cap = 0;
    out->input.n = out->input.cap = 0;
    out->output.n = out->output.cap = 0;
    out->value_info.n = 0;
    for (size_t i = 0; i < ix->graph->node.n; i++)
        if (needed[c->order[i]] && !OQ_PUSH(a, &out->node, ix->graph->node.v[c->order[i]]))
            return oq_fail_nomem(err);
    for (size_t i = 0; i < p->in.n; i++) {
        const oq_dtype type = c->values.v[0][c->slot[p->in.v[i]]].dtype;
        oq_value_info *v =
            oq_value_info_new(a, ix->values.v[p->in.v[i]].name, (int32_t)type, NULL, 0, false);
        if (v == NULL || !OQ_PUSH(a, &out->input, v))
            return oq_fail_nomem(err);
    }
    for (size_t i = 0; i < p->out.n; i++) {
        oq_value_info *v = OQ_NEW(a, oq_value_info);
        if (v == NULL || !OQ_PUSH(a, &out->output, v))
            return oq_fail_nomem(err);
        v->name = ix->values.v[p->out.v[i]].name;
    }
    return ONQ_OK;
}

/* A model of the graph, in the arena, that sessions can be opened with while the own one
 * changes. */
static oq_model *clone_model(const oq_model *m, const oq_graph *graph, oq_arena *a) {
    oq_model *shell = OQ_NEW(a, oq_model);
    oq_model_proto *proto = OQ_NEW(a, oq_model_proto);
    if (shell == NULL || proto == NULL)
        return NULL;
    *shell = *m;
    *proto = *m->proto;
    shell->proto = proto;
    proto->graph = oq_message_clone(a, OQ_SCHEMA_graph, graph);
    return proto->graph != NULL ? shell : NULL;
}

/* Makes a model of the part that gives p->out from place `from` on, as `excluded` says now. `a`
 * lives as long as the part. */
static onq_code make_part(oq_searching *g, part *p, uint32_t from, bool all_off, oq_arena *a,
                          oq_model **out, onq_error *err) {
    const oq_graph *whole = g->d->made->proto->graph;
    size_t n_inits = 0;
    bool *needed = OQ_NEW_ARRAY(a, bool, whole->node.n + 1);
    if (needed == NULL)
        return oq_fail_nomem(err);
    OQ_TRY(collect(g, p, from, all_off, needed, a, err));
    p->feed = OQ_NEW_ARRAY(a, oq_datum, p->in.n + 1);
    if (p->feed == NULL)
        return oq_fail_nomem(err);
    onq_code rc = oq_search_apply(g, &n_inits, err);
    oq_graph mine = *whole;
    if (rc == ONQ_OK)
        rc = part_graph(g, p, needed, a, &mine, err);
    *out = rc == ONQ_OK ? clone_model(g->d->made, &mine, a) : NULL;
    if (rc == ONQ_OK && *out == NULL)
        rc = oq_fail_nomem(err);
    oq_search_put_back(g, n_inits);
    g->s->n_runs++;
    return rc;
}

static onq_code open_part(const oq_searching *g, part *p, oq_model *m, oq_opt_level level,
                          onq_error *err) {
    oq_session_options o = g->run->session;
    o.model = m;
    o.level = level;
    o.no_spinning = true;
    onq_code rc = oq_session_open(g->run->engine, &o, &p->session, err);
    if (rc == ONQ_OK && p->session->inputs.n != p->in.n)
        rc = oq_fail(err, ONQ_E_INTERNAL, "a part of the graph has %zu inputs, not %zu",
                     p->session->inputs.n, p->in.n);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", m->path);
}

/* The same part for another thread. */
static onq_code share_part(const part *of, part *p, oq_arena *a, onq_error *err) {
    *p = *of;
    p->session = NULL;
    p->got = (oq_outputs){0};
    p->feed = OQ_NEW_ARRAY(a, oq_datum, p->in.n + 1);
    if (p->feed == NULL)
        return oq_fail_nomem(err);
    return of->session != NULL ? oq_session_share(of->session, NULL, &p->session, err) : ONQ_OK;
}

/* ---- what a try needs ---- */

/* Places of the first and the last node that is quantized; false if there is none. */
static bool find_extent(const oq_searching *g, uint32_t *lo, uint32_t *hi) {
    const oq_search_cuts *c = g->cuts;
    *lo = OQ_NOBODY;
    *hi = 0;
    for (size_t i = 0; i < g->pairs.n; i++) {
        const oq_search_pair *p = &g->pairs.v[i];
        if (oq_search_is_off(g, p))
            continue;
        const uint32_t at = c->at[p->dq_at];
        const uint32_t q = p->q_at != OQ_NO_NODE ? c->at[p->q_at] : at;
        *lo = q < *lo ? q : *lo;
        *lo = at < *lo ? at : *lo;
        *hi = at > *hi ? at : *hi;
    }
    return *lo != OQ_NOBODY;
}

/* Marks values that differ from those that are kept. */
static void spread(const oq_searching *g, uint32_t lo, bool *dirty) {
    const oq_search_cuts *c = g->cuts;
    const oq_graph *graph = oq_search_index(g)->graph;
    for (uint32_t p = lo; p < graph->node.n; p++) {
        const uint32_t node = c->order[p], pair = c->pair[node];
        bool on = pair != OQ_NOBODY && !oq_search_is_off(g, &g->pairs.v[pair]);
        oq_search_reading r;
        oq_search_reads_of(g, node, false, &r);
        for (size_t k = 0; k < r.n && !on; k++)
            on = dirty[r.v[k]];
        for (size_t k = 0; k < graph->node.v[node]->output.n; k++) {
            const uint32_t v = oq_search_value_at(g, graph->node.v[node]->output.v[k]);
            if (v != OQ_NOBODY)
                dirty[v] = on;
        }
    }
}

/* The first cut past `hi` over which no value goes that differs and is not kept. */
static size_t end_cut(const oq_searching *g, uint32_t hi, const bool *dirty) {
    const oq_search_cuts *c = g->cuts;
    size_t k = 1;
    while (k + 1 < c->n_cuts && c->cut[k] <= hi)
        k++;
    for (; k + 1 < c->n_cuts; k++) {
        bool good = true;
        for (uint32_t v = 0; good && v < oq_search_index(g)->values.n; v++)
            good = !dirty[v] || c->slot[v] != OQ_NOBODY || !oq_search_crosses(g, v, c->cut[k]);
        if (good)
            break;
    }
    return k;
}

static bool is_output(const oq_search_cuts *c, uint32_t v) {
    for (size_t i = 0; i < c->outputs.n; i++)
        if (c->outputs.v[i] == v)
            return true;
    return false;
}

static bool is_made_after(const oq_searching *g, uint32_t value, uint32_t cut) {
    const uint32_t at = value != OQ_NOBODY ? oq_search_made_at(g, value) : OQ_NOBODY;
    return at != OQ_NOBODY && at >= cut;
}

static bool has_outputs_after(const oq_searching *g, uint32_t cut) {
    const oq_search_cuts *c = g->cuts;
    for (size_t i = 0; i < c->outputs.n; i++)
        if (is_made_after(g, c->outputs.v[i], cut))
            return true;
    return false;
}

/* Where the try as `excluded` says begins and ends, and what its head gives. */
static onq_code plan(const oq_searching *g, trial *t, oq_arena *a, onq_error *err) {
    const oq_search_cuts *c = g->cuts;
    const oq_index *ix = oq_search_index(g);
    uint32_t lo = 0, hi = 0;
    *t = (trial){.idle = !find_extent(g, &lo, &hi)};
    if (t->idle)
        return ONQ_OK;
    bool *dirty = OQ_NEW_ARRAY(a, bool, ix->values.n + 1);
    if (dirty == NULL)
        return oq_fail_nomem(err);
    spread(g, lo, dirty);
    t->end = end_cut(g, hi, dirty);
    t->tail = t->end + 1 < c->n_cuts && has_outputs_after(g, c->cut[t->end]);
    while (t->begin + 1 < c->n_cuts && c->cut[t->begin + 1] <= lo)
        t->begin++;
    for (uint32_t v = 0; v < ix->values.n; v++) {
        const uint32_t at = oq_search_made_at(g, v);
        if (dirty[v] && c->slot[v] != OQ_NOBODY && at != OQ_NOBODY && at < c->cut[t->end] &&
            (is_output(c, v) || (t->tail && oq_search_crosses(g, v, c->cut[t->end]))) &&
            !OQ_PUSH(a, &t->head.out, v))
            return oq_fail_nomem(err);
    }
    t->idle = t->head.out.n == 0; /* nothing that is read */
    return ONQ_OK;
}

/* From the cut on with nothing quantized, to the outputs that are made there. */
static onq_code open_tail(oq_searching *g, size_t cut, onq_error *err) {
    oq_search_cuts *c = g->cuts;
    onq_error why = ONQ_ERROR_INIT;
    if (c->tail_cut == cut)
        return ONQ_OK;
    c->tail_cut = 0;
    bool *set = OQ_NEW_ARRAY(&c->arena, bool, g->s->nodes.n + 1);
    if (set == NULL)
        return oq_fail_nomem(err);
    memcpy(set, g->excluded, g->s->nodes.n * sizeof *set);
    oq_search_exclude_all(g, true);
    onq_code rc = ONQ_E_RUNTIME;
    for (int plain = 0; plain < 2 && rc == ONQ_E_RUNTIME; plain++) {
        oq_model *m = NULL;
        close_part(&c->tail);
        rc = ONQ_OK;
        for (size_t i = 0; i < c->outputs.n; i++)
            if (is_made_after(g, c->outputs.v[i], c->cut[cut]) &&
                !OQ_PUSH(&c->arena, &c->tail.out, c->outputs.v[i]))
                rc = oq_fail_nomem(&why);
        if (rc == ONQ_OK)
            rc = make_part(g, &c->tail, c->cut[cut], true, &c->arena, &m, &why);
        if (rc == ONQ_OK)
            rc = open_part(g, &c->tail, m, plain ? OQ_OPT_NONE : OQ_OPT_ALL, &why);
    }
    memcpy(g->excluded, set, g->s->nodes.n * sizeof *set);
    if (rc == ONQ_OK)
        c->tail_cut = cut;
    else if (err != NULL)
        *err = why;
    return rc;
}

/* ---- running ---- */

static const oq_datum *given(const part *p, uint32_t v) {
    for (size_t i = 0; i < p->out.n; i++)
        if (p->out.v[i] == v && i < p->got.n)
            return &p->got.v[i];
    return NULL;
}

static onq_code run_part(const oq_searching *g, part *p, const part *before, size_t sample,
                         onq_error *err) {
    const oq_search_cuts *c = g->cuts;
    for (size_t i = 0; i < p->in.n; i++) {
        const oq_datum *d = before != NULL ? given(before, p->in.v[i]) : NULL;
        p->feed[i] = d != NULL ? *d : c->values.v[sample][c->slot[p->in.v[i]]];
    }
    return oq_session_run(p->session, p->feed, p->in.n, &p->got, err);
}

/* One sample through the head and the tail; a part without a session is left out. `sums` are its
 * own. */
static onq_code run_sample(const oq_searching *g, part *head, part *tail, size_t i,
                           oq_search_sum *sums, onq_error *err) {
    const oq_search_cuts *c = g->cuts;
    if (head->session != NULL)
        OQ_TRY(run_part(g, head, NULL, i, err));
    if (tail->session != NULL)
        OQ_TRY(run_part(g, tail, head, i, err));
    for (size_t k = 0; k < g->n_outputs && k < c->outputs.n; k++) {
        const uint32_t v = c->outputs.v[k];
        if (v == OQ_NOBODY)
            continue;
        const oq_datum *d = head->session != NULL ? given(head, v) : NULL;
        if (d == NULL && tail->session != NULL)
            d = given(tail, v);
        oq_search_sum_add(&sums[k], &g->kept.v[i][k], d != NULL ? d : &c->values.v[i][c->slot[v]]);
    }
    return ONQ_OK;
}

static size_t count_samples(const oq_searching *g) {
    return g->kept.n < g->cuts->values.n ? g->kept.n : g->cuts->values.n;
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
    const oq_searching *g;
    part heads[OQ_FLIGHT_LANES], tails[OQ_FLIGHT_LANES];
    unsigned n_lanes;
    oq_search_sum *sums;
} alone;

static onq_code sample_task(void *ctx, size_t i, unsigned worker, onq_error *err) {
    alone *w = ctx;
    return run_sample(w->g, &w->heads[worker], &w->tails[worker], i, &w->sums[i * w->g->n_outputs],
                      err);
}

static onq_code run_all_samples(oq_searching *g, const part *head, const part *tail,
                                oq_search_sum *sums, oq_arena *a, onq_error *err) {
    const oq_search_cuts *c = g->cuts;
    const size_t n = count_samples(g);
    alone w = {.g = g, .n_lanes = 1, .sums = sums};
    onq_code rc = ONQ_OK;
    w.heads[0] = *head;
    w.tails[0] = *tail;
    for (; n > 1 && w.n_lanes < c->n_lanes; w.n_lanes++) {
        OQ_GO(share_part(head, &w.heads[w.n_lanes], a, err));
        OQ_GO(share_part(tail, &w.tails[w.n_lanes], a, err));
    }
    if (w.n_lanes > 1)
        OQ_GO(oq_pool_run(c->pool, n, sample_task, &w, err));
    for (size_t i = 0; w.n_lanes == 1 && i < n; i++)
        OQ_GO(sample_task(&w, i, 0, err));
done:
    for (unsigned i = 1; i < OQ_FLIGHT_LANES; i++) {
        oq_session_close(w.heads[i].session);
        oq_session_close(w.tails[i].session);
    }
    return rc;
}

static onq_code try_alone(oq_searching *g, oq_search_sum *sums, oq_arena *a, onq_error *err) {
    trial t;
    part none = {0};
    OQ_TRY(plan(g, &t, a, err));
    if (t.idle)
        return run_all_samples(g, &none, &none, sums, a, err);
    OQ_TRY(make_part(g, &t.head, g->cuts->cut[t.begin], false, a, &t.model, err));
    onq_code rc = open_part(g, &t.head, t.model, OQ_OPT_NONE, err);
    if (rc == ONQ_OK && t.tail)
        rc = open_tail(g, t.end, err);
    if (rc == ONQ_OK)
        rc = run_all_samples(g, &t.head, t.tail ? &g->cuts->tail : &none, sums, a, err);
    close_part(&t.head);
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
    part tails[OQ_FLIGHT_LANES];
    pthread_mutex_t lock; /* of the graph, `excluded` and `done` */
    size_t done;
} together;

static int by_end(const void *a, const void *b) {
    const turn *x = a, *y = b;
    if (x->end != y->end)
        return x->end > y->end ? -1 : 1; /* the last first: their tails are short */
    return x->at < y->at ? -1 : x->at > y->at;
}

/* The graph is edited and cloned by one lane at a time; opening and running is what takes long. */
static onq_code prepare(together *w, size_t at, trial *t, oq_arena *a, onq_error *err) {
    oq_searching *g = w->g;
    pthread_mutex_lock(&w->lock);
    w->tries->set(w->tries->ctx, at);
    onq_code rc = plan(g, t, a, err);
    if (rc == ONQ_OK && !t->idle)
        rc = make_part(g, &t->head, g->cuts->cut[t->begin], false, a, &t->model, err);
    pthread_mutex_unlock(&w->lock);
    return rc;
}

static onq_code run_try(together *w, size_t at, unsigned worker, oq_arena *a, onq_error *err) {
    const oq_searching *g = w->g;
    trial t;
    part none = {0};
    oq_search_sum *sums = new_sums(g, a);
    if (sums == NULL)
        return oq_fail_nomem(err);
    OQ_TRY(prepare(w, at, &t, a, err));
    onq_code rc = t.idle ? ONQ_OK : open_part(g, &t.head, t.model, OQ_OPT_NONE, err);
    for (size_t i = 0; rc == ONQ_OK && i < count_samples(g); i++)
        rc = run_sample(g, &t.head, t.tail && !t.idle ? &w->tails[worker] : &none, i,
                        &sums[i * g->n_outputs], err);
    if (rc == ONQ_OK)
        w->tries->scores[at] = score_of(g, sums);
    close_part(&t.head);
    return rc;
}

static onq_code try_task(void *ctx, size_t i, unsigned worker, onq_error *err) {
    together *w = ctx;
    const oq_search_tries *t = w->tries;
    const size_t at = w->order[i].at;
    oq_arena scratch;
    if (t->is_late(t->ctx))
        return ONQ_OK;
    oq_arena_init(&scratch, &w->g->d->env->alloc);
    const onq_code rc = run_try(w, at, worker, &scratch, err);
    oq_arena_release(&scratch);
    OQ_TRY(rc);
    pthread_mutex_lock(&w->lock);
    t->measured[at] = true;
    const size_t done = ++w->done;
    pthread_mutex_unlock(&w->lock);
    return worker == 0 ? oq_progress(w->g->d->env, t->what, done, t->n, err) : ONQ_OK;
}

/* Tries that end at one cut. */
static onq_code run_group(together *w, const turn *order, size_t n, onq_error *err) {
    oq_searching *g = w->g;
    oq_search_cuts *c = g->cuts;
    oq_arena scratch;
    onq_code rc = ONQ_OK;
    oq_arena_init(&scratch, &g->d->env->alloc);
    w->order = order;
    if (order->end > 0) {
        OQ_GO(open_tail(g, order->end, err));
        w->tails[0] = c->tail;
        for (unsigned i = 1; i < c->n_lanes; i++)
            OQ_GO(share_part(&c->tail, &w->tails[i], &scratch, err));
    }
    if (c->pool != NULL)
        OQ_GO(oq_pool_run(c->pool, n, try_task, w, err));
    for (size_t i = 0; c->pool == NULL && i < n; i++)
        OQ_GO(try_task(w, i, 0, err));
done:
    for (unsigned i = 1; i < OQ_FLIGHT_LANES; i++)
        oq_session_close(w->tails[i].session);
    memset(w->tails, 0, sizeof w->tails);
    oq_arena_release(&scratch);
    return rc;
}

/* Where each try ends; 0: it has no tail. */
static onq_code order_tries(oq_searching *g, const oq_search_tries *tries, turn *order,
                            onq_error *err) {
    for (uint32_t i = 0; i < tries->n; i++) {
        oq_arena scratch;
        trial t;
        oq_arena_init(&scratch, &g->d->env->alloc);
        tries->set(tries->ctx, i);
        const onq_code rc = plan(g, &t, &scratch, err);
        oq_arena_release(&scratch);
        OQ_TRY(rc);
        order[i] = (turn){t.tail && !t.idle ? (uint32_t)t.end : 0, i};
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
    oq_search_cuts *c = g->cuts;
    const uint64_t memory = g->target->memory;
    unsigned n = 1;
    OQ_TRY(oq_flight_decide(g->d->env, g->d->made, g->run->jobs, before,
                            memory > c->bytes ? memory - c->bytes : 0, &n, err));
    c->n_lanes = n;
    return n > 1 ? oq_pool_new_of(g->d->env, n, &c->pool, err) : ONQ_OK;
}

void oq_search_end(oq_searching *g) {
    if (g->cuts == NULL)
        return;
    close_part(&g->cuts->tail);
    oq_pool_free(g->cuts->pool);
    oq_search_cuts_free(g);
}
