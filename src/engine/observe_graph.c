/*
 * observe_graph.c — puts an Observe node after each named tensor of a graph (and its subgraphs).
 *
 * The output of a node is renamed and the observer gives out the old name, so that everything that
 * uses the tensor sees what it saw: nodes, subgraphs, value_info. Where the name itself must stay
 * (graph inputs, initializers, graph outputs) the observer gives out a new name, and the nodes that
 * use the tensor read that: the observer is then in the way of the first of them and runs while
 * the tensor is hot.
 */
#include "engine/session_graph.h"

#include "onnx/attr.h"
#include "onnx/edit.h"

typedef struct observing {
    oq_arena *arena;
    const oq_str *names;
    const oq_dtype *types; /* or NULL */
    bool beside;           /* nothing reads what the observers give out */
    size_t n;
    oq_map wanted;   /* name -> index */
    oq_names taken;  /* every name of the model */
    bool *found;     /* by index */
    oq_str *renamed; /* by index: what uses in the current graph become; p == NULL: unchanged */
    OQ_VEC(uint32_t) changed; /* indices with a renamed text */
    uint32_t *hidden; /* by index: > 0 inside a graph that has a tensor of that name of its own */
} observing;

static oq_str new_name(observing *o, oq_str base) {
    const oq_str text = oq_str_cat(o->arena, base, OQ_S("__onq_observed"));
    return text.p != NULL ? oq_names_unique(&o->taken, text) : text;
}

static oq_node *observe_node(observing *o, uint32_t index, oq_str in, oq_str out) {
    const oq_str name = oq_names_unique(&o->taken, OQ_S("onq_observe"));
    if (name.p == NULL)
        return NULL;
    const bool half = o->types != NULL && o->types[index] == OQ_FLOAT16;
    oq_node *n =
        oq_node_make(o->arena, half ? OQ_OBSERVE_HALF_OP : OQ_OBSERVE_OP, name, &in, 1, &out, 1);
    if (n == NULL || !oq_attr_set_int(o->arena, n, OQ_S("i"), (int64_t)index))
        return NULL;
    n->domain = OQ_S(OQ_ENGINE_DOMAIN);
    return n;
}

/* ---- uses of a tensor whose name stays ---- */

static void hide(observing *o, oq_str name, int by) {
    const uint32_t i = oq_map_find(&o->wanted, name);
    if (i != OQ_MAP_NONE)
        o->hidden[i] = (uint32_t)((int)o->hidden[i] + by);
}

static void hide_own(observing *o, const oq_graph *g, int by) {
    for (size_t i = 0; i < g->input.n; i++)
        hide(o, g->input.v[i]->name, by);
    for (size_t i = 0; i < g->initializer.n; i++)
        hide(o, g->initializer.v[i]->name, by);
    for (size_t i = 0; i < g->node.n; i++)
        for (size_t k = 0; k < g->node.v[i]->output.n; k++)
            hide(o, g->node.v[i]->output.v[k], by);
}

static onq_code rewire(observing *o, const oq_graph *g, unsigned depth, onq_error *err);

static onq_code rewire_inner(observing *o, const oq_graph *g, unsigned depth, onq_error *err) {
    hide_own(o, g, 1);
    onq_code rc = rewire(o, g, depth + 1, err);
    hide_own(o, g, -1);
    return rc;
}

static onq_code rewire(observing *o, const oq_graph *g, unsigned depth, onq_error *err) {
    if (depth > OQ_MAX_GRAPH_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "subgraphs are nested more than %d deep",
                       OQ_MAX_GRAPH_DEPTH);
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        for (size_t k = 0; k < n->input.n; k++) {
            const uint32_t at = oq_map_find(&o->wanted, n->input.v[k]);
            if (at != OQ_MAP_NONE && o->renamed[at].p != NULL && o->hidden[at] == 0)
                n->input.v[k] = o->renamed[at];
        }
        for (size_t k = 0; k < n->attribute.n; k++) {
            const oq_attribute *a = n->attribute.v[k];
            if (a->g != NULL)
                OQ_TRY(rewire_inner(o, a->g, depth, err));
            for (size_t j = 0; j < a->graphs.n; j++)
                OQ_TRY(rewire_inner(o, a->graphs.v[j], depth, err));
        }
    }
    return ONQ_OK;
}

/* ---- one graph ---- */

typedef OQ_VEC(oq_node *) node_list;

/* An observer for a tensor whose name stays; its users are rewired later. */
static onq_code observe_named(observing *o, uint32_t index, node_list *out, onq_error *err) {
    const oq_str to = new_name(o, o->names[index]);
    oq_node *n = to.p != NULL ? observe_node(o, index, o->names[index], to) : NULL;
    if (n == NULL || !OQ_PUSH(o->arena, out, n))
        return oq_fail_nomem(err);
    o->found[index] = true;
    if (o->beside)
        return ONQ_OK;
    if (!OQ_PUSH(o->arena, &o->changed, index))
        return oq_fail_nomem(err);
    o->renamed[index] = to;
    return ONQ_OK;
}

/* Graph inputs and initializers: once each, in front. */
static onq_code observe_given(observing *o, oq_str name, node_list *out, onq_error *err) {
    const uint32_t i = oq_map_find(&o->wanted, name);
    if (i == OQ_MAP_NONE || o->renamed[i].p != NULL || (o->beside && o->found[i]))
        return ONQ_OK;
    return observe_named(o, i, out, err);
}

static bool is_output(const oq_graph *g, oq_str name) {
    for (size_t i = 0; i < g->output.n; i++)
        if (oq_str_eq(g->output.v[i]->name, name))
            return true;
    return false;
}

static onq_code observe_made(observing *o, const oq_graph *g, oq_str *output, node_list *out,
                             onq_error *err) {
    const uint32_t i = oq_map_find(&o->wanted, *output);
    if (output->n == 0 || i == OQ_MAP_NONE)
        return ONQ_OK;
    if (o->beside || is_output(g, *output))
        return observe_named(o, i, out, err);
    const oq_str inner = new_name(o, *output);
    oq_node *n = inner.p != NULL ? observe_node(o, i, inner, *output) : NULL;
    if (n == NULL || !OQ_PUSH(o->arena, out, n))
        return oq_fail_nomem(err);
    *output = inner;
    o->found[i] = true;
    return ONQ_OK;
}

static onq_code observe_graph(void *ctx, oq_graph *g, oq_node *owner, onq_error *err) {
    observing *o = ctx;
    (void)owner;
    node_list first = {0}, all = {0}, beside = {0};
    for (size_t i = 0; i < g->input.n; i++)
        OQ_TRY(observe_given(o, g->input.v[i]->name, &first, err));
    for (size_t i = 0; i < g->initializer.n; i++)
        OQ_TRY(observe_given(o, g->initializer.v[i]->name, &first, err));
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        if (!OQ_PUSH(o->arena, &all, n))
            return oq_fail_nomem(err);
        for (size_t k = 0; k < n->output.n; k++)
            OQ_TRY(observe_made(o, g, &n->output.v[k], o->beside ? &beside : &all, err));
    }
    /* The runtime starts with the last node that nothing reads and what that needs. In this
     * order an observer runs as soon as its tensor is there, and the tensor need not live until
     * the end. */
    while (beside.n > 0)
        if (!OQ_PUSH(o->arena, &all, beside.v[--beside.n]))
            return oq_fail_nomem(err);
    /* Rewire what was there before the observers, which must keep reading the old names. */
    if (o->changed.n > 0)
        OQ_TRY(rewire(o, g, 0, err));
    while (o->changed.n > 0)
        o->renamed[o->changed.v[--o->changed.n]] = (oq_str){NULL, 0};
    const size_t total = first.n + all.n;
    oq_node **v = OQ_NEW_ARRAY(o->arena, oq_node *, total);
    if (v == NULL && total > 0)
        return oq_fail_nomem(err);
    if (first.n > 0)
        memcpy(v, first.v, first.n * sizeof *v);
    if (all.n > 0)
        memcpy(v + first.n, all.v, all.n * sizeof *v);
    g->node.v = v;
    g->node.n = g->node.cap = total;
    return ONQ_OK;
}

/* ---- the model ---- */

static onq_code import_domain(oq_arena *a, oq_model_proto *proto, onq_error *err) {
    oq_opset *set = OQ_NEW(a, oq_opset);
    if (set == NULL)
        return oq_fail_nomem(err);
    set->domain = OQ_S(OQ_ENGINE_DOMAIN);
    set->version = OQ_I64(1);
    return OQ_PUSH(a, &proto->opset_import, set) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_graph_observe(oq_arena *a, oq_model *m, oq_model_proto *proto,
                          const oq_session_options *so, onq_error *err) {
    const oq_str *names = so->observer->names;
    const size_t n = so->observer->n_names;
    observing o = {.arena = a,
                   .names = names,
                   .types = so->observed_types,
                   .beside = so->observe_beside,
                   .n = n};
    oq_map_init(&o.wanted, a);
    o.found = OQ_NEW_ARRAY(a, bool, n);
    o.renamed = OQ_NEW_ARRAY(a, oq_str, n);
    o.hidden = OQ_NEW_ARRAY(a, uint32_t, n);
    if (o.found == NULL || o.renamed == NULL || o.hidden == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < n; i++)
        if (!oq_map_put(&o.wanted, names[i], (uint32_t)i))
            return oq_fail_nomem(err);
    OQ_TRY(oq_names_collect(&o.taken, a, m, err));
    OQ_TRY(oq_walk_graphs(proto->graph, observe_graph, &o, err));
    for (size_t i = 0; i < n; i++)
        if (!o.found[i])
            return oq_fail(err, ONQ_E_INVALID, "there is no tensor '%.*s' in the graph to observe",
                           OQ_STR(names[i]));
    return import_domain(a, proto, err);
}
