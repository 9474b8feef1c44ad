/*
 * search.c — see search.h.
 *
 * The quantized model's graph is edited in place for each try and put back: a DequantizeLinear that
 * is not needed becomes Identity over the float tensor, or the Relu or Clip that it stood for.
 * Sessions clone the graph, so the edit lasts only while one is opened.
 *
 * Finding the least set: nodes in the order of what they cost alone; the shortest run of them that
 * reaches the target, by halving; then each of these is put back unless the target needs it.
 */
#include "debug/search.h"
#include "debug/weights.h"

#include "onnx/edit.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"

#include <math.h>
#include <stdlib.h>

/* A DequantizeLinear that can be taken away. */
typedef struct pair {
    oq_node *dq;
    /* A Relu or Clip of the float model that the pair's range stood for, or NULL. */
    const oq_node *like;
    OQ_VEC(oq_tensor *) inits; /* float tensors that the graph needs then */
    OQ_VEC(oq_str) inputs;     /* of the node in its place */
    OQ_VEC(uint32_t) owners;   /* in search.nodes: who needs it quantized */
    oq_node saved;
    bool off;
} pair;

typedef struct searching {
    oq_debug *d;
    const oq_debug_run *run;
    const oq_debug_target *target;
    oq_debug_search *s;
    oq_arena *arena;
    OQ_VEC(pair) pairs;
    uint32_t *place;         /* by node of the quantized model: in s->nodes, or UINT32_MAX */
    bool *excluded;          /* by s->nodes */
    OQ_VEC(oq_datum *) kept; /* the float model's outputs, one array for each sample */
    size_t n_outputs;
} searching;

#define NOBODY UINT32_MAX

/* ---- who is quantized ---- */

static bool is_dq(const oq_node *n) {
    return oq_debug_is_op(n, "DequantizeLinear");
}

static bool goes_into_q(const oq_index *ix, const oq_node *n) {
    for (size_t k = 0; k < n->output.n; k++) {
        const oq_value *v = n->output.v[k].n > 0 ? oq_index_find(ix, n->output.v[k]) : NULL;
        for (size_t i = 0; v != NULL && i < v->uses.n; i++)
            if (oq_debug_is_op(ix->graph->node.v[v->uses.v[i].node], "QuantizeLinear"))
                return true;
    }
    return false;
}

/* Reads dequantized tensors, and either gives its result to a quantizer or has a dequantized
 * weight. */
static bool is_quantized(const oq_index *ix, const oq_node *n) {
    bool reads = false, weight = false;
    if (is_dq(n) || oq_debug_is_op(n, "QuantizeLinear"))
        return false;
    for (size_t k = 0; k < n->input.n; k++) {
        const oq_node *from = oq_index_producer(ix, n->input.v[k]);
        if (from == NULL || !is_dq(from) || from->input.n == 0)
            continue;
        reads = true;
        weight = weight || oq_index_init(ix, from->input.v[0]) != NULL;
    }
    return reads && (weight || goes_into_q(ix, n));
}

static onq_code find_nodes(searching *g, onq_error *err) {
    const oq_index *ix = &g->d->made_index;
    const size_t n = ix->graph->node.n;
    g->place = OQ_NEW_ARRAY(g->arena, uint32_t, n + 1);
    if (g->place == NULL)
        return oq_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        const oq_node *node = ix->graph->node.v[i];
        g->place[i] = NOBODY;
        if (!is_quantized(ix, node) || node->name.n == 0)
            continue;
        g->place[i] = (uint32_t)g->s->nodes.n;
        const oq_debug_node row = {.node = i, .name = node->name, .op = node->op_type};
        if (!OQ_PUSH(g->arena, &g->s->nodes, row))
            return oq_fail_nomem(err);
    }
    g->excluded = OQ_NEW_ARRAY(g->arena, bool, g->s->nodes.n + 1);
    return g->excluded != NULL ? ONQ_OK : oq_fail_nomem(err);
}

/* ---- what can be taken away ---- */

static onq_code add_owner(searching *g, pair *p, uint32_t node, onq_error *err) {
    if (node == OQ_NO_NODE || g->place[node] == NOBODY)
        return ONQ_OK;
    return OQ_PUSH(g->arena, &p->owners, g->place[node]) ? ONQ_OK : oq_fail_nomem(err);
}

/* A float tensor for the quantized model's graph; an input of the replacement. */
static onq_code float_input(searching *g, const oq_tensor *like, oq_dtype type, oq_span raw,
                            pair *p, onq_error *err) {
    const oq_str name = oq_str_format(g->arena, "onq_float_%zu_%zu", g->pairs.n, p->inits.n);
    if (name.p == NULL)
        return oq_fail_nomem(err);
    oq_tensor *copy = oq_tensor_new(g->arena, name, type, like->dims.v, like->dims.n);
    if (copy == NULL)
        return oq_fail_nomem(err);
    oq_tensor_set_view(copy, raw.p, raw.n);
    if (!OQ_PUSH(g->arena, &p->inits, copy) || !OQ_PUSH(g->arena, &p->inputs, name))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

/* The same of the float model's own bytes. */
static onq_code own_input(searching *g, oq_tensor *t, pair *p, onq_error *err) {
    oq_span raw = {0};
    OQ_TRY(oq_model_data(g->d->truth, t, &raw, err));
    return float_input(g, t, (oq_dtype)t->data_type.v, raw, p, err);
}

/* A float weight, with what was folded into it. */
static onq_code weight_input(searching *g, oq_debug_weight *w, pair *p, onq_error *err) {
    oq_debug_values v;
    if (w->norm == NULL)
        return own_input(g, w->truth, p, err);
    OQ_TRY(oq_debug_weight_values(g->d, w, false, g->arena, &v, err));
    return float_input(g, w->quantized, v.truth_type, (oq_span){v.truth, v.truth_bytes}, p, err);
}

static oq_tensor *truth_constant(const oq_debug *d, oq_str name) {
    oq_tensor *t = oq_index_init(&d->truth_index, name);
    const oq_node *n = t == NULL ? oq_index_producer(&d->truth_index, name) : NULL;
    const oq_attribute *a =
        n != NULL && oq_debug_is_op(n, "Constant") ? oq_attr_find(n, "value") : NULL;
    return a != NULL ? a->t : t;
}

/* A quantizer whose range begins at 0 makes a Relu needless, and the model has none then: without
 * the pair it is needed again. The same for Clip. */
static onq_code stand_in(searching *g, const oq_map *acts, pair *p, oq_str pre, onq_error *err) {
    const oq_debug *d = g->d;
    if (!OQ_PUSH(g->arena, &p->inputs, pre))
        return oq_fail_nomem(err);
    const uint32_t at = oq_map_find(acts, pre);
    if (at == OQ_MAP_NONE || d->acts.v[at].truth.p == NULL)
        return ONQ_OK;
    const oq_node *truth = oq_index_producer(&d->truth_index, d->acts.v[at].truth);
    const oq_node *made = oq_index_producer(&d->made_index, pre);
    if (truth == NULL || made == NULL || oq_str_eq(truth->op_type, made->op_type) ||
        !oq_op_traits_of(truth->op_type)->clips)
        return ONQ_OK;
    p->like = truth;
    for (size_t k = 1; k < truth->input.n; k++) {
        oq_tensor *t = truth->input.v[k].n > 0 ? truth_constant(d, truth->input.v[k]) : NULL;
        if (t != NULL)
            OQ_TRY(own_input(g, t, p, err));
        else if (!OQ_PUSH(g->arena, &p->inputs, OQ_S("")))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

static oq_debug_weight *weight_named(const oq_debug *d, const oq_map *weights, oq_str made) {
    const uint32_t at = oq_map_find(weights, made);
    return at != OQ_MAP_NONE ? &d->weights.v[at] : NULL;
}

static onq_code add_pair(searching *g, const oq_map *weights, const oq_map *acts, oq_node *dq,
                         onq_error *err) {
    const oq_index *ix = &g->d->made_index;
    pair p = {.dq = dq};
    if (!is_dq(dq) || dq->input.n < 2 || dq->output.n < 1)
        return ONQ_OK;
    const oq_node *q = oq_index_producer(ix, dq->input.v[0]);
    oq_debug_weight *w = weight_named(g->d, weights, dq->input.v[0]);
    if (q != NULL && oq_debug_is_op(q, "QuantizeLinear") && q->input.n > 0) {
        const oq_value *pre = oq_index_find(ix, q->input.v[0]);
        OQ_TRY(stand_in(g, acts, &p, q->input.v[0], err));
        if (pre != NULL)
            OQ_TRY(add_owner(g, &p, pre->producer, err));
    } else if (w != NULL && w->layout == OQ_DEBUG_AFFINE && !w->transposed) {
        OQ_TRY(weight_input(g, w, &p, err));
    } else {
        return ONQ_OK;
    }
    const oq_value *out = oq_index_find(ix, dq->output.v[0]);
    for (size_t i = 0; out != NULL && i < out->uses.n; i++)
        OQ_TRY(add_owner(g, &p, out->uses.v[i].node, err));
    if (p.owners.n == 0)
        return ONQ_OK;
    return OQ_PUSH(g->arena, &g->pairs, p) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code find_pairs(searching *g, onq_error *err) {
    oq_map weights, acts;
    oq_map_init(&weights, g->arena);
    oq_map_init(&acts, g->arena);
    for (uint32_t i = 0; i < g->d->acts.n; i++)
        if (g->d->acts.v[i].pre.p != NULL && !oq_map_put(&acts, g->d->acts.v[i].pre, i))
            return oq_fail_nomem(err);
    for (uint32_t i = 0; i < g->d->weights.n; i++)
        if (!oq_map_put(&weights, g->d->weights.v[i].made, i))
            return oq_fail_nomem(err);
    const oq_graph *graph = g->d->made_index.graph;
    for (size_t i = 0; i < graph->node.n; i++)
        OQ_TRY(add_pair(g, &weights, &acts, graph->node.v[i], err));
    return ONQ_OK;
}

/* ---- one try ---- */

static onq_code apply(searching *g, onq_error *err) {
    oq_model *m = g->d->made;
    oq_graph *graph = m->proto->graph;
    for (size_t i = 0; i < g->pairs.n; i++) {
        pair *p = &g->pairs.v[i];
        bool needed = false;
        for (size_t k = 0; k < p->owners.n; k++)
            needed = needed || !g->excluded[p->owners.v[k]];
        if (needed)
            continue;
        for (size_t k = 0; k < p->inits.n; k++)
            if (!OQ_PUSH(&m->arena, &graph->initializer, p->inits.v[k]))
                return oq_fail_nomem(err);
        p->saved = *p->dq;
        p->off = true;
        p->dq->op_type = p->like != NULL ? p->like->op_type : OQ_S("Identity");
        p->dq->domain = OQ_S("");
        p->dq->input.v = p->inputs.v;
        p->dq->input.n = p->inputs.n;
        p->dq->input.cap = p->inputs.cap;
        p->dq->attribute.n = 0;
        if (p->like != NULL)
            memcpy(&p->dq->attribute, &p->like->attribute, sizeof p->dq->attribute);
    }
    return ONQ_OK;
}

static void put_back(searching *g, size_t n_inits) {
    for (size_t i = 0; i < g->pairs.n; i++) {
        pair *p = &g->pairs.v[i];
        if (p->off)
            *p->dq = p->saved;
        p->off = false;
    }
    g->d->made->proto->graph->initializer.n = n_inits;
}

static onq_code open_try(searching *g, oq_session **out, onq_error *err) {
    oq_session_options o = g->run->session;
    o.model = g->d->made;
    o.level = OQ_OPT_NONE;
    const size_t n_inits = g->d->made->proto->graph->initializer.n;
    oq_model_touch(g->d->made);
    onq_code rc = apply(g, err);
    if (rc == ONQ_OK)
        rc = oq_session_open(g->run->engine, &o, out, err);
    put_back(g, n_inits);
    g->s->n_runs++;
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", g->d->made->path);
}

/* ---- measuring ---- */

typedef struct score {
    oq_sums sums;
    uint64_t rows, same;
} score;

static void add_output(score *s, const oq_datum *x, const oq_datum *y) {
    if (x->kind != OQ_DATUM_TENSOR || y->kind != OQ_DATUM_TENSOR || x->dtype != OQ_FLOAT ||
        y->dtype != OQ_FLOAT || x->count != y->count)
        return;
    const float *a = x->data, *b = y->data;
    oq_sums_add(&s->sums, a, b, x->count);
    const uint64_t row = x->rank > 0 ? (uint64_t)x->dims[x->rank - 1] : 0;
    for (uint64_t i = 0; row >= 2 && i + row <= x->count; i += row) {
        uint64_t p = 0, q = 0;
        for (uint64_t k = 1; k < row; k++) {
            p = a[i + k] > a[i + p] ? k : p;
            q = b[i + k] > b[i + q] ? k : q;
        }
        s->rows++;
        s->same += p == q;
    }
}

/* The worst of the outputs counts. */
static onq_code measure(searching *g, double *sqnr, double *agreement, onq_error *err) {
    oq_session *session = NULL;
    onq_code rc = ONQ_OK;
    score *scores = OQ_NEW_ARRAY(g->arena, score, g->n_outputs + 1);
    if (scores == NULL)
        return oq_fail_nomem(err);
    OQ_GO(open_try(g, &session, err));
    OQ_GO(oq_source_seek(g->run->made_source, 0, err));
    for (size_t i = 0; i < g->kept.n; i++) {
        const oq_sample *sample = NULL;
        oq_outputs out = {0};
        OQ_GO(oq_source_next(g->run->made_source, &sample, err));
        if (sample == NULL)
            break;
        OQ_GO(oq_session_run(session, sample->inputs, sample->n_inputs, &out, err));
        for (size_t k = 0; k < g->n_outputs && k < out.n; k++)
            add_output(&scores[k], &g->kept.v[i][k], &out.v[k]);
    }
    *sqnr = INFINITY;
    *agreement = NAN;
    for (size_t k = 0; k < g->n_outputs; k++) {
        const score *s = &scores[k];
        if (s->sums.n > 0 && s->sums.ee > 0)
            *sqnr = fmin(*sqnr, oq_sums_sqnr(&s->sums));
        if (s->rows > 0)
            *agreement = fmin(*agreement, (double)s->same / (double)s->rows);
    }
done:
    oq_session_close(session);
    return rc;
}

/* The float model's outputs for every sample that is used. */
static onq_code keep_outputs(searching *g, onq_error *err) {
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

static void exclude_all(searching *g, bool value) {
    for (size_t i = 0; i < g->s->nodes.n; i++)
        g->excluded[i] = value;
}

static void set_unit(searching *g, size_t at, bool excluded) {
    const oq_debug_unit *u = &g->s->units.v[at];
    for (size_t i = 0; i < u->nodes.n; i++)
        g->excluded[u->nodes.v[i]] = excluded;
}

static onq_code each_alone(searching *g, onq_error *err) {
    for (size_t i = 0; i < g->s->units.n; i++) {
        oq_debug_unit *u = &g->s->units.v[i];
        exclude_all(g, true);
        set_unit(g, i, false);
        OQ_TRY(measure(g, &u->sqnr, &u->agreement, err));
        OQ_TRY(
            oq_progress(g->d->env, g->s->grouped ? "groups" : "nodes", i + 1, g->s->units.n, err));
    }
    return ONQ_OK;
}

/* ---- the least set ---- */

typedef struct order_row {
    double sqnr;
    uint32_t at;
} order_row;

static int by_sqnr(const void *a, const void *b) {
    const order_row *x = a, *y = b;
    if (x->sqnr != y->sqnr)
        return x->sqnr < y->sqnr ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static bool is_reached(const searching *g, double sqnr, double agreement) {
    const oq_debug_target *t = g->target;
    return (isnan(t->sqnr) || sqnr >= t->sqnr) &&
           (isnan(t->agreement) || agreement >= t->agreement);
}

/* Excludes the first n of the order. */
static onq_code try_first(searching *g, const order_row *order, size_t n, bool *ok,
                          onq_error *err) {
    double sqnr = 0, agreement = 0;
    exclude_all(g, false);
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

/* Puts back what the target does not need, the least costly first. */
static onq_code thin_out(searching *g, const order_row *order, size_t n, onq_error *err) {
    for (size_t i = 0; i < n; i++)
        g->s->units.v[order[i].at].excluded = true;
    for (size_t i = n; i-- > 0;) {
        double sqnr = 0, agreement = 0;
        g->s->units.v[order[i].at].excluded = false;
        exclude_all(g, false);
        for (size_t k = 0; k < g->s->units.n; k++) /* groups may share a node */
            if (g->s->units.v[k].excluded)
                set_unit(g, k, true);
        OQ_TRY(measure(g, &sqnr, &agreement, err));
        if (is_reached(g, sqnr, agreement)) {
            g->s->found_sqnr = sqnr;
            g->s->found_agreement = agreement;
        } else {
            g->s->units.v[order[i].at].excluded = true;
        }
        OQ_TRY(oq_progress(g->d->env, "thin out", n - i, n, err));
    }
    return ONQ_OK;
}

static onq_code bisect(searching *g, const order_row *order, onq_error *err) {
    const size_t n = g->s->units.n;
    size_t low = 0, high = n;
    bool ok = false;
    g->s->bisected = true;
    OQ_TRY(try_first(g, order, 0, &ok, err));
    if (!ok) {
        OQ_TRY(try_first(g, order, n, &ok, err));
        if (!ok)
            return ONQ_OK;       /* not even without any quantized node */
        while (low + 1 < high) { /* low fails, high reaches it */
            const size_t middle = low + (high - low) / 2;
            OQ_TRY(try_first(g, order, middle, &ok, err));
            *(ok ? &high : &low) = middle;
        }
        OQ_TRY(try_first(g, order, high, &ok, err));
        OQ_TRY(thin_out(g, order, high, err));
    }
    g->s->reached = true;
    for (size_t i = 0; i < n; i++) {
        const oq_debug_unit *u = &g->s->units.v[i];
        g->s->n_excluded += u->excluded;
        for (size_t k = 0; u->excluded && k < u->nodes.n; k++)
            g->s->nodes.v[u->nodes.v[k]].excluded = true;
    }
    return ONQ_OK;
}

static onq_code search_all(searching *g, onq_error *err) {
    oq_debug_search *s = g->s;
    OQ_TRY(find_nodes(g, err));
    OQ_TRY(find_pairs(g, err));
    if (s->nodes.n == 0)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "%s: there is no named node with QuantizeLinear and DequantizeLinear "
                       "around it; sensitivity and bisection need a QDQ model (--quant_format qdq)",
                       g->d->made->path);
    OQ_TRY(oq_debug_search_units(s, g->target, g->arena, err));
    OQ_TRY(keep_outputs(g, err));
    OQ_TRY(measure(g, &s->whole_sqnr, &s->whole_agreement, err));
    OQ_TRY(each_alone(g, err));
    const size_t n = s->units.n;
    order_row *order = OQ_NEW_ARRAY(g->arena, order_row, n);
    oq_debug_unit *sorted = OQ_NEW_ARRAY(g->arena, oq_debug_unit, n);
    if (order == NULL || sorted == NULL)
        return oq_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++)
        order[i] = (order_row){s->units.v[i].sqnr, i};
    qsort(order, n, sizeof *order, by_sqnr);
    if (g->target->bisect)
        OQ_TRY(bisect(g, order, err));
    for (size_t i = 0; i < n; i++)
        sorted[i] = s->units.v[order[i].at];
    memcpy(s->units.v, sorted, n * sizeof *sorted);
    return ONQ_OK;
}

onq_code oq_debug_run_search(oq_debug *d, const oq_debug_run *run, const oq_debug_target *t,
                             oq_debug_search *s, onq_error *err) {
    *s = (oq_debug_search){.d = d};
    searching g = {.d = d, .run = run, .target = t, .s = s, .arena = &d->arena};
    return search_all(&g, err);
}
