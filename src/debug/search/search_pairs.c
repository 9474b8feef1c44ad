/*
 * search_pairs.c — which nodes of a QDQ model are quantized, which pairs they need, and the graph
 * without those that are not needed. See search_parts.h.
 *
 * The graph is edited in place for each try and put back: a DequantizeLinear that is not needed
 * becomes Identity over the float tensor, or the Relu or Clip that it stood for. Sessions clone the
 * graph, so the edit lasts only while one is opened.
 */
#include "debug/search/search_parts.h"
#include "debug/weights/weights.h"

#include "onnx/edit.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"

/* ---- who is quantized ---- */

/* A product that was left float among quantized nodes: its weight is a float constant. */
static bool has_float_weight(const oq_index *ix, const oq_node *n) {
    const oq_op_traits *t = oq_op_traits_of(n->op_type);
    const int slot = t->product != OQ_NO_PRODUCT ? oq_op_slot(t->weight) : -1;
    return slot >= 0 && oq_index_constant(ix, oq_node_input(n, (size_t)slot)) != NULL;
}

bool oq_debug_is_quantized(const oq_index *ix, const oq_node *n) {
    bool reads = false, weight = false;
    if (oq_node_is_pair(n) || has_float_weight(ix, n))
        return false;
    for (size_t k = 0; k < n->input.n; k++) {
        const oq_node *from = oq_index_producer(ix, n->input.v[k]);
        if (!oq_node_is_dequantize(from) || from->input.n == 0)
            continue;
        reads = true;
        weight = weight || oq_index_init(ix, from->input.v[0]) != NULL;
    }
    return reads && (weight || oq_node_feeds_quantize(ix, n));
}

/* An If, Loop or Scan is not quantized itself, whatever is around it. */
static bool is_unit_node(const oq_index *ix, const oq_node *n) {
    oq_graph_cursor at = {0};
    return n->name.n > 0 && oq_node_next_graph(n, &at) == NULL && oq_debug_is_quantized(ix, n);
}

static onq_code look_for_node(oq_debug *d, void *ctx, uint32_t holder, onq_error *err) {
    const oq_graph *g = d->quantized_index.graph;
    (void)holder, (void)err;
    for (size_t i = 0; i < g->node.n && !*(bool *)ctx; i++)
        *(bool *)ctx = is_unit_node(&d->quantized_index, g->node.v[i]);
    return ONQ_OK;
}

onq_code oq_debug_can_search(oq_debug *d, bool *can, onq_error *err) {
    *can = false;
    return oq_debug_each_graph(d, look_for_node, can, err);
}

/* One graph while its nodes and pairs are found. */
typedef struct finding {
    oq_searching *g;
    oq_map weights, acts; /* of the debugger, by the names of quantized tensors and of `pre` */
    const oq_index *ix;
    uint32_t holder;
    uint32_t *place; /* by node: in s->nodes, or OQ_NOBODY */
} finding;

static onq_code find_nodes(finding *f, onq_error *err) {
    oq_searching *g = f->g;
    const oq_index *ix = f->ix;
    const size_t n = ix->graph->node.n;
    f->place = OQ_NEW_ARRAY(g->arena, uint32_t, n + 1);
    OQ_TRY_ALLOC(f->place != NULL, err);
    for (uint32_t i = 0; i < n; i++) {
        const oq_node *node = ix->graph->node.v[i];
        f->place[i] = OQ_NOBODY;
        if (!is_unit_node(ix, node))
            continue;
        f->place[i] = (uint32_t)g->s->nodes.n;
        const oq_debug_node row = {.ix = ix, .node = i, .name = node->name, .op = node->op_type};
        OQ_TRY_ALLOC(OQ_PUSH(g->arena, &g->s->nodes, row), err);
    }
    return ONQ_OK;
}

/* ---- what can be taken away ---- */

static onq_code add_owner(const finding *f, oq_search_pair *p, uint32_t node, onq_error *err) {
    if (node == OQ_NO_NODE || f->place[node] == OQ_NOBODY)
        return ONQ_OK;
    return OQ_PUSH(f->g->arena, &p->owners, f->place[node]) ? ONQ_OK : oq_fail_nomem(err);
}

/* A float tensor for the quantized model's graph; an input of the replacement. */
static onq_code float_input(oq_searching *g, const oq_tensor *like, oq_dtype type, oq_span raw,
                            oq_search_pair *p, onq_error *err) {
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
static onq_code own_input(oq_searching *g, oq_tensor *t, oq_search_pair *p, onq_error *err) {
    oq_span raw = {0};
    OQ_TRY(oq_model_data(g->d->flt, t, &raw, err));
    return float_input(g, t, (oq_dtype)t->data_type.v, raw, p, err);
}

/* A float weight, with what was folded into it. */
static onq_code weight_input(oq_searching *g, oq_debug_weight *w, oq_search_pair *p,
                             onq_error *err) {
    oq_debug_values v;
    if (w->norm == NULL)
        return own_input(g, w->flt, p, err);
    OQ_TRY(oq_debug_weight_values(g->d, w, false, g->arena, &v, err));
    return float_input(g, w->quantized, v.float_type, (oq_span){v.flt, v.float_bytes}, p, err);
}

/* A quantizer whose range begins at 0 makes a Relu needless, and the model has none then: without
 * the pair it is needed again. The same for Clip. */
static onq_code stand_in(oq_searching *g, const oq_map *acts, oq_search_pair *p, oq_str pre,
                         onq_error *err) {
    const oq_debug *d = g->d;
    if (!OQ_PUSH(g->arena, &p->inputs, pre))
        return oq_fail_nomem(err);
    const uint32_t at = oq_map_find(acts, pre);
    if (at == OQ_MAP_NONE || d->acts.v[at].flt.p == NULL)
        return ONQ_OK;
    const oq_node *flt = oq_index_producer(&d->float_index, d->acts.v[at].flt);
    const oq_node *quantized = oq_index_producer(&d->quantized_index, pre);
    if (flt == NULL || quantized == NULL || oq_str_eq(flt->op_type, quantized->op_type) ||
        !oq_op_traits_of(flt->op_type)->clips)
        return ONQ_OK;
    p->like = flt;
    for (size_t k = 1; k < flt->input.n; k++) {
        oq_tensor *t = oq_index_constant(&d->float_index, flt->input.v[k]);
        if (t != NULL)
            OQ_TRY(own_input(g, t, p, err));
        else if (!OQ_PUSH(g->arena, &p->inputs, OQ_S("")))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

static oq_debug_weight *weight_named(const oq_debug *d, const oq_map *weights, oq_str quantized) {
    const uint32_t at = oq_map_find(weights, quantized);
    return at != OQ_MAP_NONE ? &d->weights.v[at] : NULL;
}

static onq_code add_pair(finding *f, uint32_t at, onq_error *err) {
    oq_searching *g = f->g;
    const oq_index *ix = f->ix;
    oq_node *dq = ix->graph->node.v[at];
    const uint32_t run_at = f->holder != OQ_NO_NODE ? f->holder : at;
    oq_search_pair p = {.dq = dq, .ix = ix, .q_at = OQ_NO_NODE, .dq_at = at, .run_at = run_at};
    if (!oq_node_is_dequantize(dq) || dq->input.n < 2 || dq->output.n < 1)
        return ONQ_OK;
    const oq_node *q = oq_index_producer(ix, dq->input.v[0]);
    oq_debug_weight *w = weight_named(g->d, &f->weights, dq->input.v[0]);
    if (oq_node_is_quantize(q) && q->input.n > 0) {
        const oq_value *pre = oq_index_find(ix, q->input.v[0]);
        OQ_TRY(stand_in(g, &f->acts, &p, q->input.v[0], err));
        if (pre != NULL)
            OQ_TRY(add_owner(f, &p, pre->producer, err));
        p.q_at = oq_index_find(ix, dq->input.v[0])->producer;
    } else if (w != NULL && w->layout == OQ_DEBUG_AFFINE && !w->transposed) {
        OQ_TRY(weight_input(g, w, &p, err));
    } else {
        return ONQ_OK;
    }
    const oq_value *out = oq_index_find(ix, dq->output.v[0]);
    for (size_t i = 0; out != NULL && i < out->uses.n; i++)
        if (out->uses.v[i].slot != OQ_SLOT_INNER)
            OQ_TRY(add_owner(f, &p, out->uses.v[i].node, err));
    return OQ_PUSH(g->arena, &g->pairs, p) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code put_name(oq_map *map, oq_str name, uint32_t at, onq_error *err) {
    return name.p == NULL || oq_map_put(map, name, at) ? ONQ_OK : oq_fail_nomem(err);
}

/* ---- one try ---- */

bool oq_search_is_off(const oq_searching *g, const oq_search_pair *p) {
    for (size_t k = 0; k < p->owners.n; k++)
        if (!g->excluded[p->owners.v[k]])
            return false;
    return !g->keep_acts || p->q_at == OQ_NO_NODE;
}

void oq_search_apply(oq_searching *g) {
    oq_model_touch(g->d->quantized);
    for (size_t i = 0; i < g->pairs.n; i++) {
        oq_search_pair *p = &g->pairs.v[i];
        p->off = oq_search_is_off(g, p);
        if (!p->off)
            continue;
        p->saved = *p->dq;
        if (p->ix->parent == NULL) /* a body still reads what it read, or less */
            p->saved_reads = oq_slicer_rewire(g->slicer, p->dq_at, p->reads);
        p->dq->op_type = p->like != NULL ? p->like->op_type : OQ_S("Identity");
        p->dq->domain = OQ_S("");
        p->dq->input.v = p->inputs.v;
        p->dq->input.n = p->inputs.n;
        p->dq->input.cap = p->inputs.cap;
        p->dq->attribute.n = 0;
        if (p->like != NULL)
            memcpy(&p->dq->attribute, &p->like->attribute, sizeof p->dq->attribute);
    }
}

void oq_search_put_back(oq_searching *g) {
    for (size_t i = 0; i < g->pairs.n; i++) {
        oq_search_pair *p = &g->pairs.v[i];
        if (!p->off)
            continue;
        *p->dq = p->saved;
        if (p->ix->parent == NULL)
            oq_slicer_rewire(g->slicer, p->dq_at, p->saved_reads);
        p->off = false;
    }
}

/* Nodes of a body need the pairs outside of it that they read. */
static onq_code own_outer(finding *f, onq_error *err) {
    for (uint32_t i = 0; i < f->ix->graph->node.n; i++) {
        const oq_node *n = f->ix->graph->node.v[i];
        for (size_t k = 0; f->place[i] != OQ_NOBODY && k < n->input.n; k++) {
            if (n->input.v[k].n == 0 || oq_index_find(f->ix, n->input.v[k]) != NULL)
                continue;
            for (size_t p = 0; p < f->g->pairs.n; p++)
                if (oq_str_eq(f->g->pairs.v[p].dq->output.v[0], n->input.v[k]))
                    OQ_TRY(add_owner(f, &f->g->pairs.v[p], i, err));
        }
    }
    return ONQ_OK;
}

static onq_code find_in_graph(oq_debug *d, void *ctx, uint32_t holder, onq_error *err) {
    finding *f = ctx;
    oq_index *ix = OQ_NEW(f->g->arena, oq_index); /* that of `d` is about another graph soon */
    OQ_TRY_ALLOC(ix != NULL, err);
    *ix = d->quantized_index;
    f->ix = ix;
    f->holder = holder;
    OQ_TRY(find_nodes(f, err));
    for (uint32_t i = 0; i < ix->graph->node.n; i++)
        OQ_TRY(add_pair(f, i, err));
    return holder != OQ_NO_NODE ? own_outer(f, err) : ONQ_OK;
}

/* What no node needs that can be left float stays as it is. */
static void drop_unowned(oq_searching *g) {
    size_t n = 0;
    for (size_t i = 0; i < g->pairs.n; i++)
        if (g->pairs.v[i].owners.n > 0)
            g->pairs.v[n++] = g->pairs.v[i];
    g->pairs.n = n;
}

static onq_code add_inits(oq_searching *g, onq_error *err) {
    for (size_t i = 0; i < g->pairs.n; i++)
        for (size_t k = 0; k < g->pairs.v[i].inits.n; k++, g->n_inits++)
            if (!oq_graph_add_init(&g->d->quantized->arena, g->pairs.v[i].ix->graph,
                                   g->pairs.v[i].inits.v[k]))
                return oq_fail_nomem(err);
    return ONQ_OK;
}

onq_code oq_search_find(oq_searching *g, onq_error *err) {
    finding f = {.g = g};
    oq_map_init(&f.weights, g->arena);
    oq_map_init(&f.acts, g->arena);
    for (uint32_t i = 0; i < g->d->acts.n; i++)
        OQ_TRY(put_name(&f.acts, g->d->acts.v[i].pre, i, err));
    for (uint32_t i = 0; i < g->d->weights.n; i++)
        OQ_TRY(put_name(&f.weights, g->d->weights.v[i].quantized_name, i, err));
    OQ_TRY(oq_debug_each_graph(g->d, find_in_graph, &f, err));
    drop_unowned(g);
    g->excluded = OQ_NEW_ARRAY(g->arena, bool, g->s->nodes.n + 1);
    OQ_TRY_ALLOC(g->excluded != NULL, err);
    return add_inits(g, err);
}

void oq_search_forget(oq_searching *g) {
    for (size_t i = g->pairs.n; i-- > 0;)
        for (size_t k = g->pairs.v[i].inits.n; k-- > 0 && g->n_inits > 0; g->n_inits--)
            g->pairs.v[i].ix->graph->initializer.n--;
}
