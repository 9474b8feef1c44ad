/*
 * graph.c — the index of a graph: names to indices, producers and consumers as arrays.
 *
 * One pass over definitions, one over uses; linear in the graph with the graphs inside it.
 * Definitions come first so that `info` and `init` of a value do not depend on the order of the
 * lists in the file.
 */
#include "onnx/graph.h"

#include "onnx/operators.h"

/* The value of `name`, made when new; NULL when out of memory. */
static oq_value *intern(oq_index *ix, oq_str name) {
    const size_t n = ix->values.n;
    if (n >= OQ_MAP_NONE)
        return NULL;
    const uint32_t found = oq_map_find_or_put(&ix->map, name, (uint32_t)n);
    if (found == OQ_MAP_NONE ||
        (found == n &&
         !OQ_PUSH(ix->arena, &ix->values, (oq_value){.name = name, .producer = OQ_NO_NODE})))
        return NULL;
    return &ix->values.v[found];
}

/* Empty names mean "not given": they are never values. */
static bool add_info(oq_index *ix, oq_value_info *info, bool is_input, bool is_output) {
    if (info->name.n == 0)
        return true;
    oq_value *v = intern(ix, info->name);
    if (v == NULL)
        return false;
    v->is_input = v->is_input || is_input;
    v->is_output = v->is_output || is_output;
    v->info = v->info != NULL ? v->info : info;
    return true;
}

static bool add_infos(oq_index *ix) {
    const oq_graph *g = ix->graph;
    bool ok = true;
    for (size_t i = 0; i < g->input.n && ok; i++)
        ok = add_info(ix, g->input.v[i], true, false);
    for (size_t i = 0; i < g->output.n && ok; i++)
        ok = add_info(ix, g->output.v[i], false, true);
    for (size_t i = 0; i < g->value_info.n && ok; i++)
        ok = add_info(ix, g->value_info.v[i], false, false);
    return ok;
}

bool oq_index_add_init(oq_index *ix, oq_tensor *t) {
    oq_value *v = intern(ix, t->name);
    if (v != NULL && v->init == NULL)
        v->init = t;
    return v != NULL;
}

static bool add_initializers(oq_index *ix) {
    const oq_graph *g = ix->graph;
    for (size_t i = 0; i < g->initializer.n; i++)
        if (g->initializer.v[i]->name.n != 0 && !oq_index_add_init(ix, g->initializer.v[i]))
            return false;
    for (size_t i = 0; i < g->sparse_initializer.n; i++) {
        oq_sparse *s = g->sparse_initializer.v[i];
        if (s->values == NULL || s->values->name.n == 0)
            continue;
        oq_value *v = intern(ix, s->values->name);
        if (v == NULL)
            return false;
        v->sparse_init = v->sparse_init != NULL ? v->sparse_init : s;
    }
    return true;
}

static bool add_producers(oq_index *ix) {
    const oq_graph *g = ix->graph;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        for (size_t k = 0; k < n->output.n; k++) {
            if (n->output.v[k].n == 0)
                continue;
            oq_value *v = intern(ix, n->output.v[k]);
            if (v == NULL)
                return false;
            if (v->producer == OQ_NO_NODE) {
                v->producer = (uint32_t)i;
                v->producer_slot = (uint32_t)k;
            }
        }
    }
    return true;
}

static bool add_use(oq_index *ix, oq_str name, uint32_t node, uint32_t slot) {
    oq_value *v = intern(ix, name);
    if (v == NULL)
        return false;
    const oq_use use = {node, slot};
    return OQ_PUSH(ix->arena, &v->uses, use);
}

typedef struct inner_use {
    oq_index *ix;
    uint32_t node;
} inner_use;

static onq_code add_inner_use(void *ctx, oq_str *name, onq_error *err) {
    const inner_use *u = ctx;
    const oq_value *v = oq_index_find(u->ix, *name);
    if (v != NULL && v->uses.n != 0) {
        const oq_use last = v->uses.v[v->uses.n - 1];
        if (last.node == u->node && last.slot == OQ_SLOT_INNER)
            return ONQ_OK;
    }
    return add_use(u->ix, *name, u->node, OQ_SLOT_INNER) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code add_uses(oq_index *ix, onq_error *err) {
    const oq_graph *g = ix->graph;
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        for (size_t k = 0; k < n->input.n; k++)
            if (n->input.v[k].n != 0 && !add_use(ix, n->input.v[k], (uint32_t)i, (uint32_t)k))
                return oq_fail_nomem(err);
        inner_use u = {ix, (uint32_t)i};
        OQ_TRY(oq_walk_outer_names(ix->arena->alloc, n, add_inner_use, &u, err));
    }
    return ONQ_OK;
}

onq_code oq_index_build(oq_index *ix, oq_arena *scratch, oq_graph *g, const oq_index *parent,
                        onq_error *err) {
    assert(g != NULL && (parent == NULL || parent->graph != g));
    *ix = (oq_index){.graph = g, .parent = parent, .arena = scratch};
    oq_map_init(&ix->map, scratch);
    if (g->node.n >= OQ_NO_NODE)
        return oq_fail(err, ONQ_E_LIMIT,
                       "the graph has %zu nodes, more than the %u that can be indexed", g->node.n,
                       OQ_NO_NODE - 1);
    /* About as many names as will come: most nodes make one value. */
    OQ_TRY_ALLOC(oq_map_reserve(&ix->map, g->input.n + g->initializer.n + g->node.n), err);
    OQ_TRY_ALLOC(add_infos(ix) && add_initializers(ix) && add_producers(ix), err);
    return add_uses(ix, err);
}

oq_value *oq_index_find(const oq_index *ix, oq_str name) {
    const uint32_t found = oq_map_find(&ix->map, name);
    return found != OQ_MAP_NONE ? &ix->values.v[found] : NULL;
}

oq_value *oq_index_resolve(const oq_index **ix, oq_str name) {
    for (; *ix != NULL; *ix = (*ix)->parent) {
        oq_value *v = oq_index_find(*ix, name);
        if (v != NULL && oq_value_is_defined(v))
            return v;
    }
    return NULL;
}

oq_value *oq_index_lookup(const oq_index *ix, oq_str name) {
    return oq_index_resolve(&ix, name);
}

oq_node *oq_index_producer(const oq_index *ix, oq_str name) {
    return oq_value_node(ix, oq_index_find(ix, name));
}

oq_tensor *oq_index_init(const oq_index *ix, oq_str name) {
    const oq_value *v = oq_index_lookup(ix, name);
    return v != NULL ? v->init : NULL;
}

oq_tensor *oq_index_constant(const oq_index *ix, oq_str name) {
    const oq_value *v = name.n > 0 ? oq_index_resolve(&ix, name) : NULL;
    const oq_node *n = v != NULL ? oq_value_node(ix, v) : NULL;
    return n != NULL ? oq_node_constant(n) : v != NULL ? v->init : NULL;
}
