/*
 * names.c — new names that collide with none.
 */
#include "onnx/names.h"

#include "onnx/graph.h"

static bool take(oq_map *map, oq_str name) {
    return name.n == 0 || oq_map_has(map, name) || oq_map_put(map, name, 0);
}

static onq_code collect(void *ctx, oq_graph *g, onq_error *err) {
    oq_fresh *s = ctx;
    bool ok = true;
    for (size_t i = 0; i < g->input.n; i++)
        ok &= take(&s->tensors, g->input.v[i]->name);
    for (size_t i = 0; i < g->output.n; i++)
        ok &= take(&s->tensors, g->output.v[i]->name);
    for (size_t i = 0; i < g->initializer.n; i++)
        ok &= take(&s->tensors, g->initializer.v[i]->name);
    for (size_t i = 0; i < g->sparse_initializer.n; i++)
        if (g->sparse_initializer.v[i]->values != NULL)
            ok &= take(&s->tensors, g->sparse_initializer.v[i]->values->name);
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        ok &= take(&s->nodes, n->name);
        for (size_t k = 0; k < n->input.n; k++)
            ok &= take(&s->tensors, n->input.v[k]);
        for (size_t k = 0; k < n->output.n; k++)
            ok &= take(&s->tensors, n->output.v[k]);
    }
    return ok ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_fresh_init(oq_fresh *s, oq_arena *scratch, oq_model *m, onq_error *err) {
    *s = (oq_fresh){.arena = &m->arena};
    oq_map_init(&s->tensors, scratch);
    oq_map_init(&s->nodes, scratch);
    return m->proto->graph == NULL ? ONQ_OK : oq_walk_graphs(m->proto->graph, collect, s, err);
}

static oq_str none(oq_fresh *s) {
    s->failed = true;
    return (oq_str){NULL, 0};
}

static oq_str unique(oq_fresh *s, oq_map *map, oq_str base, const char *suffix) {
    const oq_str wanted = oq_str_cat(s->arena, base, oq_str_of(suffix));
    oq_str name = wanted;
    if (name.p == NULL)
        return none(s);
    /* The map's value of a name is the last number tried for it, so that many collisions stay
     * cheap. */
    uint32_t number = oq_map_find(map, wanted);
    if (number != OQ_MAP_NONE) {
        do {
            number++;
            name = oq_str_cat(s->arena, wanted, oq_str_format(s->arena, "_%u", number));
            if (name.p == NULL)
                return none(s);
        } while (oq_map_has(map, name));
        if (!oq_map_put(map, wanted, number))
            return none(s);
    }
    return oq_map_put(map, name, 0) ? name : none(s);
}

oq_str oq_fresh_tensor(oq_fresh *s, oq_str base, const char *suffix) {
    assert(suffix != NULL);
    return unique(s, &s->tensors, base, suffix);
}

oq_str oq_fresh_node(oq_fresh *s, oq_str base, const char *suffix) {
    return unique(s, &s->nodes, base, suffix);
}

oq_str oq_fresh_node_of(oq_fresh *s, const oq_node *n, const char *suffix) {
    return n->name.n != 0 ? oq_fresh_node(s, n->name, suffix) : (oq_str){NULL, 0};
}
