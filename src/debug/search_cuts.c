/*
 * search_cuts.c — measures tries without running the whole graph for each. See search_parts.h.
 *
 * With nothing quantized every tensor has one value for each sample. Those values are kept, within
 * the memory that is given, at places where few tensors cross from the nodes before to the nodes
 * after: cuts. A try runs the part between the last cut before its first quantized node and the first
 * cut after its last one, on kept values; from there to the outputs nothing is quantized, so one
 * session that is opened once, with the runtime's optimisations, serves all tries that end there. A
 * tensor that is not kept is computed again from those that are: what is kept decides time, not
 * results.
 */
#include "debug/search_parts.h"

#include "onnx/edit.h"

#include <math.h>
#include <stdlib.h>

#define MAX_CUTS 24

/* A session over part of the graph. */
typedef struct part {
    oq_session *session;
    OQ_VEC(uint32_t) in, out; /* values, in the order of its inputs and outputs */
    oq_datum *feed;
    oq_outputs got;
} part;

struct oq_search_cuts {
    oq_arena arena;
    uint32_t *order, *at;       /* node by place; place by node */
    uint32_t *pair;             /* by node: its pair, if it is the DequantizeLinear of one */
    OQ_VEC(uint32_t) * reads;   /* by node: values that it and the graphs in it read */
    uint32_t *last;             /* by value: place of the last node that reads it, nothing
                                     * quantized; outputs of the graph: past the end */
    uint32_t *slot;             /* by value: in `values`, or OQ_NOBODY */
    OQ_VEC(uint32_t) kept;      /* values whose tensors are kept */
    OQ_VEC(oq_datum *) values;  /* one array for each sample */
    OQ_VEC(uint32_t) outputs;   /* values: outputs of the graph */
    uint32_t cut[MAX_CUTS + 2]; /* places; the first is 0, the last past the end */
    size_t n_cuts;
    part tail;
    size_t tail_cut; /* where it begins, or 0 */
};

/* ---- the graph by place ---- */

static const oq_index *index_of(const oq_searching *g) {
    return &g->d->made_index;
}

static uint32_t value_at(const oq_searching *g, oq_str name) {
    const oq_value *v = name.n > 0 ? oq_index_find(index_of(g), name) : NULL;
    return v != NULL ? (uint32_t)(v - index_of(g)->values.v) : OQ_NOBODY;
}

static onq_code list_reads(oq_searching *g, onq_error *err) {
    oq_search_cuts *c = g->cuts;
    const oq_index *ix = index_of(g);
    for (uint32_t v = 0; v < ix->values.n; v++)
        for (size_t k = 0; k < ix->values.v[v].uses.n; k++)
            if (!OQ_PUSH(&c->arena, &c->reads[ix->values.v[v].uses.v[k].node], v))
                return oq_fail_nomem(err);
    for (uint32_t i = 0; i < g->pairs.n; i++)
        c->pair[g->pairs.v[i].dq_at] = i;
    for (size_t i = 0; i < ix->graph->output.n; i++)
        if (!OQ_PUSH(&c->arena, &c->outputs, value_at(g, ix->graph->output.v[i]->name)))
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
    const oq_index *ix = index_of(g);
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
    const oq_index *ix = index_of(g);
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

/* What a node reads as the graph is now: an Identity in the place of a pair reads what the pair
 * began with, or a constant. */
typedef struct reading {
    const uint32_t *v;
    size_t n;
    uint32_t one;
} reading;

static void reads_of(const oq_searching *g, uint32_t node, bool all_off, reading *r) {
    const oq_search_cuts *c = g->cuts;
    const uint32_t pair = c->pair[node];
    *r = (reading){c->reads[node].v, c->reads[node].n, OQ_NOBODY};
    if (pair == OQ_NOBODY || !(all_off || oq_search_is_off(g, &g->pairs.v[pair])))
        return;
    const oq_search_pair *p = &g->pairs.v[pair];
    r->one = p->q_at != OQ_NO_NODE ? value_at(g, p->inputs.v[0]) : OQ_NOBODY;
    r->v = &r->one;
    r->n = r->one != OQ_NOBODY;
}

static uint32_t made_at(const oq_searching *g, uint32_t value) {
    const uint32_t node = index_of(g)->values.v[value].producer;
    return node != OQ_NO_NODE ? g->cuts->at[node] : OQ_NOBODY;
}

/* Last readers, and values that no input reaches. */
static onq_code find_spans(oq_searching *g, bool **varies, onq_error *err) {
    oq_search_cuts *c = g->cuts;
    const oq_index *ix = index_of(g);
    *varies = OQ_NEW_ARRAY(&c->arena, bool, ix->values.n + 1);
    if (*varies == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < ix->values.n; i++)
        (*varies)[i] = is_fed(&ix->values.v[i]);
    for (uint32_t p = 0; p < ix->graph->node.n; p++) {
        const oq_node *n = ix->graph->node.v[c->order[p]];
        reading r;
        bool moved = false;
        reads_of(g, c->order[p], true, &r);
        for (size_t k = 0; k < r.n; k++) {
            c->last[r.v[k]] = p + 1;
            moved |= (*varies)[r.v[k]];
        }
        for (size_t k = 0; k < n->output.n; k++) {
            const uint32_t v = value_at(g, n->output.v[k]);
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

/* The value crosses from before the cut to after it. */
static bool crosses(const oq_searching *g, uint32_t value, uint32_t cut) {
    const uint32_t made = made_at(g, value);
    return (made == OQ_NOBODY || made < cut) && g->cuts->last[value] > cut;
}

/* Cuts at about equal distances, each where the fewest tensors cross. */
static onq_code choose_cuts(oq_searching *g, const bool *varies, onq_error *err) {
    oq_search_cuts *c = g->cuts;
    const oq_index *ix = index_of(g);
    const size_t n = ix->graph->node.n;
    uint32_t *across = OQ_NEW_ARRAY(&c->arena, uint32_t, n + 2);
    if (across == NULL)
        return oq_fail_nomem(err);
    for (uint32_t v = 0; v < ix->values.n; v++) {
        const uint32_t made = made_at(g, v), from = made == OQ_NOBODY ? 0 : made + 1;
        if (!varies[v] || from >= c->last[v])
            continue;
        across[from]++; /* differences first; they wrap around and back */
        across[c->last[v] <= n ? c->last[v] : n + 1]--;
    }
    for (size_t p = 1; p <= n; p++)
        across[p] += across[p - 1];
    const size_t wide = n / (MAX_CUTS + 1) + 1;
    c->cut[c->n_cuts++] = 0;
    for (size_t from = wide / 2 + 1; from + wide / 2 < n && c->n_cuts <= MAX_CUTS; from += wide) {
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
    const oq_index *ix = index_of(g);
    c->kept.n = 0;
    for (size_t i = 0; i < ix->values.n; i++)
        c->slot[i] = OQ_NOBODY;
    for (size_t i = 0; i < c->outputs.n; i++)
        if (c->outputs.v[i] != OQ_NOBODY)
            OQ_TRY(keep_value(g, c->outputs.v[i], err));
    for (uint32_t v = 0; v < ix->values.n; v++) {
        bool wanted = is_fed(&ix->values.v[v]);
        for (size_t k = 1; !wanted && varies[v] && k + 1 < c->n_cuts; k++)
            wanted = crosses(g, v, c->cut[k]);
        if (wanted)
            OQ_TRY(keep_value(g, v, err));
    }
    return ONQ_OK;
}

/* ---- parts ---- */

static void close_part(part *p) {
    oq_session_close(p->session);
    *p = (part){0};
}

/* Marks the nodes that the outputs need, back to values that are kept and made before `from`. */
static onq_code collect(oq_searching *g, part *p, uint32_t from, bool all_off, bool *needed,
                        oq_arena *a, onq_error *err) {
    const oq_search_cuts *c = g->cuts;
    const oq_index *ix = index_of(g);
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
        reading r;
        reads_of(g, node, all_off, &r);
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
    const oq_index *ix = index_of(g);
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

/* Opens a session over the part that makes p->out from place `from` on. `a` lives as long as the
 * part. */
static onq_code open_part(oq_searching *g, part *p, uint32_t from, bool all_off, oq_opt_level level,
                          oq_arena *a, onq_error *err) {
    oq_model *m = g->d->made;
    oq_graph *whole = m->proto->graph, mine = *whole;
    oq_session_options o = g->run->session;
    size_t n_inits = 0;
    bool *needed = OQ_NEW_ARRAY(a, bool, whole->node.n + 1);
    if (needed == NULL)
        return oq_fail_nomem(err);
    OQ_TRY(collect(g, p, from, all_off, needed, a, err));
    p->feed = OQ_NEW_ARRAY(a, oq_datum, p->in.n + 1);
    if (p->feed == NULL)
        return oq_fail_nomem(err);
    onq_code rc = oq_search_apply(g, &n_inits, err);
    if (rc == ONQ_OK) {
        mine.initializer = whole->initializer;
        rc = part_graph(g, p, needed, a, &mine, err);
    }
    o.model = m;
    o.level = level;
    o.no_spinning = true;
    m->proto->graph = &mine;
    if (rc == ONQ_OK)
        rc = oq_session_open(g->run->engine, &o, &p->session, err);
    m->proto->graph = whole;
    oq_search_put_back(g, n_inits);
    g->s->n_runs++;
    if (rc == ONQ_OK && p->session->inputs.n != p->in.n)
        rc = oq_fail(err, ONQ_E_INTERNAL, "a part of the graph has %zu inputs, not %zu",
                     p->session->inputs.n, p->in.n);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", m->path);
}

/* ---- the values that are kept ---- */

static void exclude_all(oq_searching *g) {
    for (size_t i = 0; i < g->s->nodes.n; i++)
        g->excluded[i] = true;
}

static uint64_t bytes_of(const oq_outputs *out) {
    uint64_t sum = 0;
    for (size_t i = 0; i < out->n; i++)
        sum += out->v[i].size_bytes;
    return sum;
}

/* One sample: its inputs and what the session gave, in the order of `kept`. */
static onq_code keep_sample(oq_searching *g, const oq_session *s, const oq_sample *sample,
                            const oq_outputs *out, const part *p, onq_error *err) {
    oq_search_cuts *c = g->cuts;
    oq_datum *row = OQ_NEW_ARRAY(&c->arena, oq_datum, c->kept.n + 1);
    if (row == NULL || !OQ_PUSH(&c->arena, &c->values, row))
        return oq_fail_nomem(err);
    for (size_t i = 0; i < s->inputs.n; i++) {
        const uint32_t v = value_at(g, s->inputs.v[i].name);
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
static onq_code open_whole(oq_searching *g, part *p, onq_error *err) {
    oq_search_cuts *c = g->cuts;
    const oq_index *ix = index_of(g);
    oq_session_options o = g->run->session;
    OQ_VEC(oq_str) names = {0};
    size_t n_inits = 0;
    p->out.n = 0;
    for (size_t i = 0; i < c->kept.n; i++)
        if (!is_fed(&ix->values.v[c->kept.v[i]]) &&
            (!OQ_PUSH(&c->arena, &p->out, c->kept.v[i]) ||
             !OQ_PUSH(&c->arena, &names, ix->values.v[c->kept.v[i]].name)))
            return oq_fail_nomem(err);
    exclude_all(g);
    onq_code rc = oq_search_apply(g, &n_inits, err);
    o.model = g->d->made;
    o.level = OQ_OPT_NONE;
    o.extra_outputs = names.v;
    o.n_extra_outputs = names.n;
    o.only_extra_outputs = names.n > 0;
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
    part whole = {0};
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
        if (c->values.n == 0 && c->n_cuts > 2 &&
            bytes_of(&out) > g->target->memory / (g->kept.n + 1)) {
            *fits = false;
            break;
        }
        OQ_GO(keep_sample(g, whole.session, sample, &out, &whole, err));
    }
done:
    close_part(&whole);
    return rc;
}

/* The float model's outputs for every sample that is used. */
static onq_code keep_outputs(oq_searching *g, onq_error *err) {
    oq_session *session = NULL;
    onq_code rc = ONQ_OK;
    oq_session_options o = g->run->session;
    o.model = g->d->truth;
    o.level = OQ_OPT_NONE;
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
            c->cut[1] = (uint32_t)index_of(g)->graph->node.n;
            c->values.n = 0;
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
    close_part(&g->cuts->tail);
    oq_arena_release(&g->cuts->arena);
    g->cuts = NULL;
}

/* ---- one try ---- */

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
    const oq_graph *graph = index_of(g)->graph;
    for (uint32_t p = lo; p < graph->node.n; p++) {
        const uint32_t node = c->order[p], pair = c->pair[node];
        bool on = pair != OQ_NOBODY && !oq_search_is_off(g, &g->pairs.v[pair]);
        reading r;
        reads_of(g, node, false, &r);
        for (size_t k = 0; k < r.n && !on; k++)
            on = dirty[r.v[k]];
        for (size_t k = 0; k < graph->node.v[node]->output.n; k++) {
            const uint32_t v = value_at(g, graph->node.v[node]->output.v[k]);
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
        for (uint32_t v = 0; good && v < index_of(g)->values.n; v++)
            good = !dirty[v] || c->slot[v] != OQ_NOBODY || !crosses(g, v, c->cut[k]);
        if (good)
            break;
    }
    return k;
}

uint32_t oq_search_cut_of(oq_searching *g) {
    const oq_search_cuts *c = g->cuts;
    uint32_t lo = 0, hi = 0, k = 1;
    if (!find_extent(g, &lo, &hi))
        return 0;
    while (k + 1 < c->n_cuts && c->cut[k] <= hi)
        k++;
    return k;
}

static bool is_output(const oq_search_cuts *c, uint32_t v) {
    for (size_t i = 0; i < c->outputs.n; i++)
        if (c->outputs.v[i] == v)
            return true;
    return false;
}

static bool has_outputs_after(const oq_searching *g, uint32_t cut) {
    const oq_search_cuts *c = g->cuts;
    for (size_t i = 0; i < c->outputs.n; i++)
        if (c->outputs.v[i] != OQ_NOBODY && made_at(g, c->outputs.v[i]) != OQ_NOBODY &&
            made_at(g, c->outputs.v[i]) >= cut)
            return true;
    return false;
}

/* From the cut on with nothing quantized, to the outputs that are made there. */
static onq_code open_tail(oq_searching *g, size_t cut, onq_error *err) {
    oq_search_cuts *c = g->cuts;
    onq_error why = ONQ_ERROR_INIT;
    bool *set = NULL;
    if (c->tail_cut == cut)
        return ONQ_OK;
    c->tail_cut = 0;
    set = OQ_NEW_ARRAY(&c->arena, bool, g->s->nodes.n + 1);
    if (set == NULL)
        return oq_fail_nomem(err);
    memcpy(set, g->excluded, g->s->nodes.n * sizeof *set);
    exclude_all(g);
    onq_code rc = ONQ_E_RUNTIME;
    for (int plain = 0; plain < 2 && rc == ONQ_E_RUNTIME; plain++) {
        close_part(&c->tail);
        for (size_t i = 0; i < c->outputs.n; i++) {
            const uint32_t at = made_at(g, c->outputs.v[i]);
            if (at != OQ_NOBODY && at >= c->cut[cut] &&
                !OQ_PUSH(&c->arena, &c->tail.out, c->outputs.v[i]))
                return oq_fail_nomem(err);
        }
        rc = open_part(g, &c->tail, c->cut[cut], true, plain ? OQ_OPT_NONE : OQ_OPT_ALL, &c->arena,
                       &why);
    }
    memcpy(g->excluded, set, g->s->nodes.n * sizeof *set);
    if (rc == ONQ_OK)
        c->tail_cut = cut;
    else if (err != NULL)
        *err = why;
    return rc;
}

static const oq_datum *given(const part *p, uint32_t v) {
    for (size_t i = 0; i < p->out.n; i++)
        if (p->out.v[i] == v && i < p->got.n)
            return &p->got.v[i];
    return NULL;
}

static onq_code run_part(oq_searching *g, part *p, const part *before, size_t sample,
                         onq_error *err) {
    const oq_search_cuts *c = g->cuts;
    for (size_t i = 0; i < p->in.n; i++) {
        const oq_datum *d = before != NULL ? given(before, p->in.v[i]) : NULL;
        p->feed[i] = d != NULL ? *d : c->values.v[sample][c->slot[p->in.v[i]]];
    }
    return oq_session_run(p->session, p->feed, p->in.n, &p->got, err);
}

/* All samples through the part that was opened and the tail; `cut` is where that begins, 0: there is
 * none. */
static onq_code run_samples(oq_searching *g, part *head, bool tail, oq_search_sum *sums,
                            onq_error *err) {
    oq_search_cuts *c = g->cuts;
    for (size_t i = 0; i < g->kept.n && i < c->values.n; i++) {
        if (head->session != NULL)
            OQ_TRY(run_part(g, head, NULL, i, err));
        if (tail)
            OQ_TRY(run_part(g, &c->tail, head, i, err));
        for (size_t k = 0; k < g->n_outputs && k < c->outputs.n; k++) {
            const uint32_t v = c->outputs.v[k];
            if (v == OQ_NOBODY)
                continue;
            const oq_datum *d = head->session != NULL ? given(head, v) : NULL;
            if (d == NULL && tail)
                d = given(&c->tail, v);
            oq_search_sum_add(&sums[k], &g->kept.v[i][k],
                              d != NULL ? d : &c->values.v[i][c->slot[v]]);
        }
    }
    return ONQ_OK;
}

static onq_code try_parts(oq_searching *g, oq_search_sum *sums, oq_arena *a, onq_error *err) {
    oq_search_cuts *c = g->cuts;
    const oq_index *ix = index_of(g);
    uint32_t lo = 0, hi = 0;
    part head = {0};
    if (!find_extent(g, &lo, &hi))
        return run_samples(g, &head, false, sums, err);
    bool *dirty = OQ_NEW_ARRAY(a, bool, ix->values.n + 1);
    if (dirty == NULL)
        return oq_fail_nomem(err);
    spread(g, lo, dirty);
    const size_t end = end_cut(g, hi, dirty);
    const bool tail = end + 1 < c->n_cuts && has_outputs_after(g, c->cut[end]);
    size_t begin = 0;
    while (begin + 1 < c->n_cuts && c->cut[begin + 1] <= lo)
        begin++;
    for (uint32_t v = 0; v < ix->values.n; v++) {
        const uint32_t at = made_at(g, v);
        if (dirty[v] && c->slot[v] != OQ_NOBODY && at != OQ_NOBODY && at < c->cut[end] &&
            (is_output(c, v) || (tail && crosses(g, v, c->cut[end]))) && !OQ_PUSH(a, &head.out, v))
            return oq_fail_nomem(err);
    }
    if (head.out.n == 0) /* nothing that is read */
        return run_samples(g, &head, false, sums, err);
    onq_code rc = open_part(g, &head, c->cut[begin], false, OQ_OPT_NONE, a, err);
    if (rc == ONQ_OK && tail)
        rc = open_tail(g, end, err);
    if (rc == ONQ_OK)
        rc = run_samples(g, &head, tail, sums, err);
    close_part(&head);
    return rc;
}

onq_code oq_search_measure(oq_searching *g, oq_search_score *out, onq_error *err) {
    oq_arena scratch;
    oq_arena_init(&scratch, &g->d->env->alloc);
    oq_search_sum *sums = OQ_NEW_ARRAY(&scratch, oq_search_sum, g->n_outputs + 1);
    const onq_code rc = sums != NULL ? try_parts(g, sums, &scratch, err) : oq_fail_nomem(err);
    if (rc == ONQ_OK)
        *out = oq_search_score_of(sums, g->n_outputs);
    oq_arena_release(&scratch);
    return rc;
}
