/*
 * search_cuts.c — so that a try need not run the whole graph. See search_parts.h.
 *
 * With nothing quantized every tensor has one value for each sample. Those values are kept, within
 * the memory that is given, at places where few tensors cross from the nodes before to the nodes
 * after: cuts. A try runs the part between the last cut before its first quantized node and the
 * first cut after its last one, on kept values; from there to the outputs nothing is quantized, so
 * one session that is opened once, with the runtime's optimisations, serves all tries that end
 * there. A tensor that is not kept is computed again from those that are: what is kept decides
 * time, not results.
 */
#include "debug/search/search_cuts.h"

#include <math.h>
#include <stdlib.h>

/* ---- the graph by place ---- */

uint32_t oq_search_value_at(const oq_searching *g, oq_str name) {
    const oq_value *v = name.n > 0 ? oq_index_find(oq_search_index(g), name) : NULL;
    return v != NULL ? (uint32_t)(v - oq_search_index(g)->values.v) : OQ_NOBODY;
}

static onq_code list_reads(oq_searching *g, onq_error *err) {
    oq_search_cuts *c = g->cuts;
    const oq_index *ix = oq_search_index(g);
    for (uint32_t v = 0; v < ix->values.n; v++)
        for (size_t k = 0; k < ix->values.v[v].uses.n; k++)
            if (!OQ_PUSH(&c->arena, &c->reads[ix->values.v[v].uses.v[k].node], v))
                return oq_fail_nomem(err);
    for (uint32_t i = 0; i < g->pairs.n; i++)
        c->pair[g->pairs.v[i].dq_at] = i;
    for (size_t i = 0; i < ix->graph->output.n; i++)
        if (!OQ_PUSH(&c->arena, &c->outputs, oq_search_value_at(g, ix->graph->output.v[i]->name)))
            return oq_fail_nomem(err);
    return ONQ_OK;
}

static bool is_fed(const oq_value *v) {
    return v->is_input && v->init == NULL;
}

typedef struct place {
    uint32_t before; /* a node that only constants reach: place of the first that reads it */
    uint32_t at;     /* in the order as it was */
    bool varies;     /* an input reaches it */
} place;

static int by_place(const void *a, const void *b) {
    const place *x = a, *y = b;
    if (x->before != y->before)
        return x->before < y->before ? -1 : 1;
    if (x->varies != y->varies)
        return x->varies ? 1 : -1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Puts nodes that only constants reach, such as the DequantizeLinear of a weight, right before the
 * first node that reads them: a try begins where its first node is. */
static onq_code sink_constants(oq_searching *g, onq_error *err) {
    oq_search_cuts *c = g->cuts;
    const oq_index *ix = oq_search_index(g);
    const size_t n = ix->graph->node.n;
    place *v = OQ_NEW_ARRAY(&c->arena, place, n + 1);
    uint32_t *order = OQ_NEW_ARRAY(&c->arena, uint32_t, n + 1);
    if (v == NULL || order == NULL)
        return oq_fail_nomem(err);
    for (uint32_t p = 0; p < n; p++) {
        const uint32_t node = c->order[p];
        bool varies = false;
        for (size_t k = 0; k < c->reads[node].n && !varies; k++) {
            const oq_value *in = &ix->values.v[c->reads[node].v[k]];
            varies = is_fed(in) || (in->producer != OQ_NO_NODE && v[c->at[in->producer]].varies);
        }
        v[p] = (place){varies ? p : (uint32_t)n, p, varies};
    }
    for (size_t p = n; p-- > 0;) {
        const uint32_t node = c->order[p];
        for (size_t k = 0; k < c->reads[node].n; k++) {
            const uint32_t from = ix->values.v[c->reads[node].v[k]].producer;
            place *in = from != OQ_NO_NODE ? &v[c->at[from]] : NULL;
            if (in != NULL && !in->varies && v[p].before < in->before)
                in->before = v[p].before;
        }
    }
    qsort(v, n, sizeof *v, by_place);
    for (uint32_t p = 0; p < n; p++)
        order[p] = c->order[v[p].at];
    for (uint32_t p = 0; p < n; p++)
        c->at[order[p]] = p;
    c->order = order;
    return ONQ_OK;
}

static onq_code order_graph(oq_searching *g, onq_error *err) {
    oq_search_cuts *c = g->cuts;
    const oq_index *ix = oq_search_index(g);
    const size_t n = ix->graph->node.n, n_values = ix->values.n;
    OQ_TRY(oq_topo_order(ix, &c->arena, &c->order, err));
    c->at = OQ_NEW_ARRAY(&c->arena, uint32_t, n + 1);
    c->pair = OQ_NEW_ARRAY(&c->arena, uint32_t, n + 1);
    c->reads = oq_arena_alloc(&c->arena, (n + 1) * sizeof *c->reads);
    c->last = OQ_NEW_ARRAY(&c->arena, uint32_t, n_values + 1);
    c->slot = OQ_NEW_ARRAY(&c->arena, uint32_t, n_values + 1);
    if (c->at == NULL || c->pair == NULL || c->reads == NULL || c->last == NULL || c->slot == NULL)
        return oq_fail_nomem(err);
    memset(c->reads, 0, (n + 1) * sizeof *c->reads);
    for (uint32_t i = 0; i < n; i++) {
        c->at[c->order[i]] = i;
        c->pair[i] = OQ_NOBODY;
    }
    for (size_t i = 0; i < n_values; i++)
        c->slot[i] = OQ_NOBODY;
    OQ_TRY(list_reads(g, err));
    return sink_constants(g, err);
}

void oq_search_reads_of(const oq_searching *g, uint32_t node, bool all_off, oq_search_reading *r) {
    const oq_search_cuts *c = g->cuts;
    const uint32_t pair = c->pair[node];
    *r = (oq_search_reading){c->reads[node].v, c->reads[node].n, OQ_NOBODY};
    if (pair == OQ_NOBODY || !(all_off || oq_search_is_off(g, &g->pairs.v[pair])))
        return;
    const oq_search_pair *p = &g->pairs.v[pair];
    r->one = p->q_at != OQ_NO_NODE ? oq_search_value_at(g, p->inputs.v[0]) : OQ_NOBODY;
    r->v = &r->one;
    r->n = r->one != OQ_NOBODY;
}

uint32_t oq_search_made_at(const oq_searching *g, uint32_t value) {
    const uint32_t node = oq_search_index(g)->values.v[value].producer;
    return node != OQ_NO_NODE ? g->cuts->at[node] : OQ_NOBODY;
}

/* Last readers, and values that no input reaches. */
static onq_code find_spans(oq_searching *g, bool **varies, onq_error *err) {
    oq_search_cuts *c = g->cuts;
    const oq_index *ix = oq_search_index(g);
    *varies = OQ_NEW_ARRAY(&c->arena, bool, ix->values.n + 1);
    if (*varies == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < ix->values.n; i++)
        (*varies)[i] = is_fed(&ix->values.v[i]);
    for (uint32_t p = 0; p < ix->graph->node.n; p++) {
        const oq_node *n = ix->graph->node.v[c->order[p]];
        oq_search_reading r;
        bool moved = false;
        oq_search_reads_of(g, c->order[p], true, &r);
        for (size_t k = 0; k < r.n; k++) {
            c->last[r.v[k]] = p + 1;
            moved |= (*varies)[r.v[k]];
        }
        for (size_t k = 0; k < n->output.n; k++) {
            const uint32_t v = oq_search_value_at(g, n->output.v[k]);
            if (v != OQ_NOBODY)
                (*varies)[v] = moved;
        }
    }
    for (size_t i = 0; i < c->outputs.n; i++)
        if (c->outputs.v[i] != OQ_NOBODY)
            c->last[c->outputs.v[i]] = (uint32_t)ix->graph->node.n + 1;
    return ONQ_OK;
}

/* ---- where to cut ---- */

bool oq_search_crosses(const oq_searching *g, uint32_t value, uint32_t cut) {
    const uint32_t made = oq_search_made_at(g, value);
    return (made == OQ_NOBODY || made < cut) && g->cuts->last[value] > cut;
}

/* Cuts at about equal distances, each where the fewest tensors cross. */
static onq_code choose_cuts(oq_searching *g, const bool *varies, onq_error *err) {
    oq_search_cuts *c = g->cuts;
    const oq_index *ix = oq_search_index(g);
    const size_t n = ix->graph->node.n;
    uint32_t *across = OQ_NEW_ARRAY(&c->arena, uint32_t, n + 2);
    if (across == NULL)
        return oq_fail_nomem(err);
    for (uint32_t v = 0; v < ix->values.n; v++) {
        const uint32_t made = oq_search_made_at(g, v), from = made == OQ_NOBODY ? 0 : made + 1;
        if (!varies[v] || from >= c->last[v])
            continue;
        across[from]++; /* differences first; they wrap around and back */
        across[c->last[v] <= n ? c->last[v] : n + 1]--;
    }
    for (size_t p = 1; p <= n; p++)
        across[p] += across[p - 1];
    const size_t wide = n / (OQ_SEARCH_CUTS + 1) + 1;
    c->cut[c->n_cuts++] = 0;
    for (size_t from = wide / 2 + 1; from + wide / 2 < n && c->n_cuts <= OQ_SEARCH_CUTS;
         from += wide) {
        size_t best = from;
        for (size_t p = from; p < from + wide && p < n; p++)
            best = across[p] < across[best] ? p : best;
        if (best > c->cut[c->n_cuts - 1])
            c->cut[c->n_cuts++] = (uint32_t)best;
    }
    c->cut[c->n_cuts++] = (uint32_t)n;
    return ONQ_OK;
}

static onq_code keep_value(oq_searching *g, uint32_t v, onq_error *err) {
    oq_search_cuts *c = g->cuts;
    if (c->slot[v] != OQ_NOBODY)
        return ONQ_OK;
    c->slot[v] = (uint32_t)c->kept.n;
    return OQ_PUSH(&c->arena, &c->kept, v) ? ONQ_OK : oq_fail_nomem(err);
}

/* Inputs and outputs of the graph, and what crosses a cut. */
static onq_code choose_values(oq_searching *g, const bool *varies, onq_error *err) {
    oq_search_cuts *c = g->cuts;
    const oq_index *ix = oq_search_index(g);
    c->kept.n = 0;
    for (size_t i = 0; i < ix->values.n; i++)
        c->slot[i] = OQ_NOBODY;
    for (size_t i = 0; i < c->outputs.n; i++)
        if (c->outputs.v[i] != OQ_NOBODY)
            OQ_TRY(keep_value(g, c->outputs.v[i], err));
    for (uint32_t v = 0; v < ix->values.n; v++) {
        bool wanted = is_fed(&ix->values.v[v]);
        for (size_t k = 1; !wanted && varies[v] && k + 1 < c->n_cuts; k++)
            wanted = oq_search_crosses(g, v, c->cut[k]);
        if (wanted)
            OQ_TRY(keep_value(g, v, err));
    }
    return ONQ_OK;
}

/* ---- the values that are kept ---- */

static uint64_t bytes_of(const oq_outputs *out) {
    uint64_t sum = 0;
    for (size_t i = 0; i < out->n; i++)
        sum += out->v[i].size_bytes;
    return sum;
}

/* One sample: its inputs and what the session gave, in the order of `kept`. */
static onq_code keep_sample(oq_searching *g, const oq_session *s, const oq_sample *sample,
                            const oq_outputs *out, const oq_search_part *p, onq_error *err) {
    oq_search_cuts *c = g->cuts;
    oq_datum *row = OQ_NEW_ARRAY(&c->arena, oq_datum, c->kept.n + 1);
    if (row == NULL || !OQ_PUSH(&c->arena, &c->values, row))
        return oq_fail_nomem(err);
    for (size_t i = 0; i < s->inputs.n; i++) {
        const uint32_t v = oq_search_value_at(g, s->inputs.v[i].name);
        if (v != OQ_NOBODY && c->slot[v] != OQ_NOBODY)
            OQ_TRY(oq_datum_copy(&c->arena, &sample->inputs[i], &row[c->slot[v]], err));
    }
    for (size_t i = 0; i < p->out.n && i < out->n; i++)
        if (c->slot[p->out.v[i]] != OQ_NOBODY)
            OQ_TRY(oq_datum_copy(&c->arena, &out->v[i], &row[c->slot[p->out.v[i]]], err));
    return ONQ_OK;
}

/* The session that gives all that is kept and is not an input of the graph: the whole graph with
 * nothing quantized. */
static onq_code open_whole(oq_searching *g, oq_search_part *p, onq_error *err) {
    oq_search_cuts *c = g->cuts;
    const oq_index *ix = oq_search_index(g);
    oq_session_options o = g->run->session;
    OQ_VEC(oq_str) names = {0};
    size_t n_inits = 0;
    p->out.n = 0;
    for (size_t i = 0; i < c->kept.n; i++)
        if (!is_fed(&ix->values.v[c->kept.v[i]]) &&
            (!OQ_PUSH(&c->arena, &p->out, c->kept.v[i]) ||
             !OQ_PUSH(&c->arena, &names, ix->values.v[c->kept.v[i]].name)))
            return oq_fail_nomem(err);
    oq_search_exclude_all(g, true);
    onq_code rc = oq_search_apply(g, &n_inits, err);
    o.model = g->d->made;
    o.level = OQ_OPT_NONE;
    o.extra_outputs = names.v;
    o.n_extra_outputs = names.n;
    o.only_extra_outputs = names.n > 0;
    o.no_spinning = true;
    if (rc == ONQ_OK)
        rc = oq_session_open(g->run->engine, &o, &p->session, err);
    oq_search_put_back(g, n_inits);
    g->s->n_runs++;
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", g->d->made->path);
}

/* Half of the cuts, until what is kept of all samples fits. True if there is nothing to drop. */
static bool drop_cuts(oq_search_cuts *c) {
    if (c->n_cuts <= 2)
        return false;
    size_t n = 1;
    for (size_t k = 2; k + 1 < c->n_cuts; k += 2)
        c->cut[n++] = c->cut[k];
    c->cut[n++] = c->cut[c->n_cuts - 1];
    c->n_cuts = n;
    return true;
}

static onq_code run_whole(oq_searching *g, bool *fits, onq_error *err) {
    oq_search_cuts *c = g->cuts;
    oq_search_part whole = {0};
    onq_code rc = ONQ_OK;
    *fits = true;
    OQ_GO(open_whole(g, &whole, err));
    OQ_GO(oq_source_seek(g->run->made_source, 0, err));
    while (c->values.n < g->kept.n) {
        const oq_sample *sample = NULL;
        oq_outputs out = {0};
        OQ_GO(oq_source_next(g->run->made_source, &sample, err));
        if (sample == NULL)
            break;
        OQ_GO(oq_session_run(whole.session, sample->inputs, sample->n_inputs, &out, err));
        /* A quarter is left for tries that run at once. */
        if (c->values.n == 0 && c->n_cuts > 2 &&
            bytes_of(&out) > g->target->memory / 4 * 3 / (g->kept.n + 1)) {
            *fits = false;
            break;
        }
        c->bytes += bytes_of(&out);
        OQ_GO(keep_sample(g, whole.session, sample, &out, &whole, err));
    }
done:
    oq_session_close(whole.session);
    return rc;
}

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

onq_code oq_search_cuts_make(oq_searching *g, onq_error *err) {
    oq_search_cuts *c = OQ_NEW(g->arena, oq_search_cuts);
    bool *varies = NULL, fits = false;
    if (c == NULL)
        return oq_fail_nomem(err);
    oq_arena_init(&c->arena, &g->d->env->alloc);
    c->n_lanes = 1;
    g->cuts = c;
    OQ_TRY(keep_outputs(g, err));
    OQ_TRY(order_graph(g, err));
    OQ_TRY(find_spans(g, &varies, err));
    OQ_TRY(choose_cuts(g, varies, err));
    while (!fits) {
        OQ_TRY(choose_values(g, varies, err));
        const onq_code rc = run_whole(g, &fits, err);
        /* The runtime may refuse tensors as outputs: without cuts none but the graph's own are. */
        if (rc == ONQ_E_RUNTIME && c->n_cuts > 2) {
            oq_error_clear(err);
            c->n_cuts = 2;
            c->cut[1] = (uint32_t)oq_search_index(g)->graph->node.n;
            c->values.n = 0;
            c->bytes = 0;
            fits = false;
            continue;
        }
        OQ_TRY(rc);
        if (!fits && !drop_cuts(c))
            break;
    }
    return ONQ_OK;
}

void oq_search_cuts_free(oq_searching *g) {
    if (g->cuts == NULL)
        return;
    oq_arena_release(&g->cuts->arena);
    g->cuts = NULL;
}
