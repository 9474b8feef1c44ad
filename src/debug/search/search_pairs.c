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

bool oq_debug_can_search(const oq_debug *d) {
    const oq_graph *g = d->quantized_index.graph;
    for (size_t i = 0; i < g->node.n; i++)
        if (g->node.v[i]->name.n > 0 && oq_debug_is_quantized(&d->quantized_index, g->node.v[i]))
            return true;
    return false;
}

static onq_code find_nodes(oq_searching *g, onq_error *err) {
    const oq_index *ix = &g->d->quantized_index;
    const size_t n = ix->graph->node.n;
    g->place = OQ_NEW_ARRAY(g->arena, uint32_t, n + 1);
    if (g->place == NULL)
        return oq_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        const oq_node *node = ix->graph->node.v[i];
        g->place[i] = OQ_NOBODY;
        if (!oq_debug_is_quantized(ix, node) || node->name.n == 0)
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

static onq_code add_owner(oq_searching *g, oq_search_pair *p, uint32_t node, onq_error *err) {
    if (node == OQ_NO_NODE || g->place[node] == OQ_NOBODY)
        return ONQ_OK;
    return OQ_PUSH(g->arena, &p->owners, g->place[node]) ? ONQ_OK : oq_fail_nomem(err);
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

static onq_code add_pair(oq_searching *g, const oq_map *weights, const oq_map *acts, uint32_t at,
                         onq_error *err) {
    const oq_index *ix = &g->d->quantized_index;
    oq_node *dq = ix->graph->node.v[at];
    oq_search_pair p = {.dq = dq, .q_at = OQ_NO_NODE, .dq_at = at};
    if (!oq_node_is_dequantize(dq) || dq->input.n < 2 || dq->output.n < 1)
        return ONQ_OK;
    const oq_node *q = oq_index_producer(ix, dq->input.v[0]);
    oq_debug_weight *w = weight_named(g->d, weights, dq->input.v[0]);
    if (oq_node_is_quantize(q) && q->input.n > 0) {
        const oq_value *pre = oq_index_find(ix, q->input.v[0]);
        OQ_TRY(stand_in(g, acts, &p, q->input.v[0], err));
        if (pre != NULL)
            OQ_TRY(add_owner(g, &p, pre->producer, err));
        p.q_at = oq_index_find(ix, dq->input.v[0])->producer;
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

static onq_code find_pairs(oq_searching *g, onq_error *err) {
    oq_map weights, acts;
    oq_map_init(&weights, g->arena);
    oq_map_init(&acts, g->arena);
    for (uint32_t i = 0; i < g->d->acts.n; i++)
        if (g->d->acts.v[i].pre.p != NULL && !oq_map_put(&acts, g->d->acts.v[i].pre, i))
            return oq_fail_nomem(err);
    for (uint32_t i = 0; i < g->d->weights.n; i++)
        if (!oq_map_put(&weights, g->d->weights.v[i].quantized_name, i))
            return oq_fail_nomem(err);
    const oq_graph *graph = g->d->quantized_index.graph;
    for (uint32_t i = 0; i < graph->node.n; i++)
        OQ_TRY(add_pair(g, &weights, &acts, i, err));
    return ONQ_OK;
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
        oq_slicer_rewire(g->slicer, p->dq_at, p->saved_reads);
        p->off = false;
    }
}

onq_code oq_search_find(oq_searching *g, onq_error *err) {
    oq_model *m = g->d->quantized;
    g->n_inits = m->proto->graph->initializer.n;
    OQ_TRY(find_nodes(g, err));
    OQ_TRY(find_pairs(g, err));
    for (size_t i = 0; i < g->pairs.n; i++)
        for (size_t k = 0; k < g->pairs.v[i].inits.n; k++)
            if (!oq_graph_add_init(&m->arena, m->proto->graph, g->pairs.v[i].inits.v[k]))
                return oq_fail_nomem(err);
    return ONQ_OK;
}
