/*
 * reach.c — what of a model a quantization reaches.
 */
#include "quantize/choose/reach.h"

#include "onnx/edit.h"
#include "onnx/operators.h"
#include "quantize/choose/selection.h"
#include "quantize/rules.h"

onq_code oq_reach_graphs(oq_model *m, const oq_qconfig *c, oq_graph_fn fn, void *ctx,
                         onq_error *err) {
    oq_graph *g = m->proto->graph;
    return c->enable_subgraph ? oq_walk_graphs(g, fn, ctx, err) : fn(ctx, g, err);
}

/* ---- tensors ---- */

typedef struct looking {
    oq_reach *s;
    oq_arena *a;
    const oq_graph *outer; /* the model's own */
    const oq_shapes *shapes;
    bool all_graphs; /* are quantized */
} looking;

/* The entry of a name, made if it is new; NULL: out of memory. */
static oq_reach_entry *entry_of(looking *l, oq_str name) {
    const uint32_t at = oq_map_find(&l->s->map, name);
    const oq_reach_entry fresh = {.is_left_alone = true};
    if (at != OQ_MAP_NONE)
        return &l->s->all.v[at];
    if (!oq_map_put(&l->s->map, name, (uint32_t)l->s->all.n) || !OQ_PUSH(l->a, &l->s->all, fresh) ||
        !OQ_PUSH(l->a, &l->s->names, name))
        return NULL;
    return &l->s->all.v[l->s->all.n - 1];
}

/* A name that the graph defines; `inside`: the graph is not quantized. */
static bool define(looking *l, oq_str name, oq_tensor *init, bool inside) {
    if (name.n == 0)
        return true;
    oq_reach_entry *e = entry_of(l, name);
    if (e == NULL)
        return false;
    if (inside)
        return true;
    e->is_left_alone = false;
    e->is_known = e->is_known || init == NULL;
    if (e->init == NULL)
        e->init = init;
    return true;
}

static bool look_at_weights(looking *l, const oq_graph *g, const oq_node *n, bool typed) {
    const oq_op_traits *traits = oq_op_traits_of(n->op_type);
    for (size_t k = 0; k < n->input.n; k++) {
        oq_reach_entry *e = n->input.v[k].n > 0 ? entry_of(l, n->input.v[k]) : NULL;
        if (e == NULL && n->input.v[k].n > 0)
            return false;
        if (e == NULL)
            continue;
        if (oq_shapes_find(l->shapes, typed ? g : NULL, n->input.v[k]) != NULL) {
            e->is_known = true;
            e->is_left_alone = false;
        }
        if (k >= 2 || !oq_op_takes_weight(traits, k))
            continue;
        e->is_weight = true;
        e->has_axis = e->has_axis || oq_op_channel_axis(n, &e->axis);
    }
    return true;
}

static onq_code look_at_graph(void *ctx, oq_graph *g, onq_error *err) {
    looking *l = ctx;
    const bool inner = g != l->outer, inside = inner && !l->all_graphs;
    bool ok = true;
    for (size_t i = 0; i < g->initializer.n; i++)
        ok = ok && define(l, g->initializer.v[i]->name, g->initializer.v[i], inside);
    for (size_t i = 0; i < g->input.n; i++)
        ok = ok && define(l, g->input.v[i]->name, NULL, inside);
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        for (size_t k = 0; k < n->output.n; k++)
            ok = ok && define(l, n->output.v[k], NULL, inside);
        if (ok && !inside)
            ok = look_at_weights(l, g, n, inner);
    }
    return ok ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_reach_init(oq_reach *s, oq_arena *a, oq_model *m, const oq_shapes *shapes,
                       const oq_qconfig *c, onq_error *err) {
    looking l = {.s = s,
                 .a = a,
                 .outer = m->proto->graph,
                 .shapes = shapes,
                 .all_graphs = c->enable_subgraph};
    *s = (oq_reach){0};
    oq_map_init(&s->map, a);
    return oq_walk_graphs(m->proto->graph, look_at_graph, &l, err);
}

const oq_reach_entry *oq_reach_tensor(const oq_reach *s, oq_str name) {
    static const oq_reach_entry none = {.init = NULL};
    const uint32_t at = oq_map_find(&s->map, name);
    return at != OQ_MAP_NONE ? &s->all.v[at] : &none;
}

void oq_reach_offer(const oq_reach *s, oq_nearest *near) {
    for (size_t i = 0; i < s->all.n; i++)
        if (!s->all.v[i].is_left_alone)
            oq_nearest_offer(near, s->names.v[i]);
}

/* ---- nodes ---- */

typedef struct counting {
    oq_qrun *r;
    const oq_graph *outer; /* the model's own */
    const oq_shapes *shapes;
    unsigned modes;
    oq_arena *a;
    oq_map seen;
    oq_strs *types;
    bool any;
    size_t n;
} counting;

static onq_code add_types(void *ctx, oq_graph *g, onq_error *err) {
    counting *t = ctx;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_str type = g->node.v[i]->op_type;
        if (oq_map_has(&t->seen, type) || oq_qrun_left_why(t->r, g->node.v[i]) != NULL ||
            oq_pick_has(&t->r->config->op_types_to_exclude, type))
            continue;
        const bool listed = oq_pick_is_empty(&t->r->config->op_types)
                                ? (oq_rules_modes(type) & t->modes) != 0
                                : oq_pick_has(&t->r->config->op_types, type);
        if (!oq_map_put(&t->seen, type, 0) ||
            ((listed || t->r->config->op_types_all) && !OQ_PUSH(t->a, t->types, type)))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

onq_code oq_reach_types(oq_model *m, oq_qrun *r, unsigned modes, oq_arena *a, oq_strs *out,
                        onq_error *err) {
    counting t = {.r = r, .modes = modes, .a = a, .types = out};
    oq_map_init(&t.seen, a);
    return oq_reach_graphs(m, r->config, add_types, &t, err);
}

static bool is_float(int32_t type) {
    return type == OQ_FLOAT || type == OQ_FLOAT16;
}

static onq_code find_work(void *ctx, oq_graph *g, onq_error *err) {
    counting *w = ctx;
    (void)err;
    for (size_t i = 0; i < g->node.n && !w->any; i++) {
        const oq_node *n = g->node.v[i];
        if (oq_qrun_skip(w->r, n, w->modes) != NULL)
            continue;
        for (size_t k = 0; k < n->input.n + n->output.n; k++) {
            const oq_str name = k < n->input.n ? n->input.v[k] : n->output.v[k - n->input.n];
            w->any |= name.n > 0 &&
                      is_float(oq_shapes_elem_type(w->shapes, g != w->outer ? g : NULL, name)) &&
                      oq_graph_find_init(g, name) == NULL;
        }
    }
    return ONQ_OK;
}

onq_code oq_reach_has_work(oq_model *m, oq_qrun *r, const oq_shapes *shapes, unsigned modes,
                           bool *out, onq_error *err) {
    counting w = {.r = r, .outer = m->proto->graph, .shapes = shapes, .modes = modes};
    OQ_TRY(oq_reach_graphs(m, r->config, find_work, &w, err));
    *out = w.any;
    return ONQ_OK;
}

static onq_code count_inner(void *ctx, oq_graph *g, onq_error *err) {
    counting *w = ctx;
    (void)err;
    for (size_t i = 0; g != w->outer && i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        const oq_str out = n->output.n > 0 ? n->output.v[0] : OQ_S("");
        w->n += is_float(oq_shapes_elem_type(w->shapes, g, out)) &&
                oq_qrun_skip(w->r, n, w->modes) == NULL;
    }
    return ONQ_OK;
}

onq_code oq_reach_count_inner(oq_model *m, oq_qrun *r, const oq_shapes *shapes, unsigned modes,
                              size_t *out, onq_error *err) {
    counting w = {.r = r, .outer = m->proto->graph, .shapes = shapes, .modes = modes};
    *out = 0;
    if (!r->config->enable_subgraph)
        OQ_TRY(oq_walk_graphs(m->proto->graph, count_inner, &w, err));
    *out = w.n;
    return ONQ_OK;
}
