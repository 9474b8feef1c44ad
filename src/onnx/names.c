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

/* ---- nodes of one name ---- */

typedef struct apart {
    oq_arena *scratch;
    oq_fresh *fresh;
    size_t n;
    oq_str was, is; /* of the first */
} apart;

static onq_code name_graph_apart(void *ctx, oq_graph *g, onq_error *err) {
    apart *a = ctx;
    oq_map seen;
    oq_map_init(&seen, a->scratch);
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        if (n->name.n == 0)
            continue;
        if (!oq_map_has(&seen, n->name)) {
            OQ_TRY_ALLOC(oq_map_put(&seen, n->name, 0), err);
            continue;
        }
        const oq_str name = oq_fresh_node(a->fresh, n->name, "");
        OQ_TRY_ALLOC(name.p != NULL, err);
        if (a->n++ == 0) {
            a->was = n->name;
            a->is = name;
        }
        n->name = name;
    }
    return ONQ_OK;
}

onq_code oq_model_name_apart(oq_model *m, size_t *n, oq_str *was, oq_str *is, onq_error *err) {
    oq_fresh fresh;
    OQ_SCRATCH(scratch, &m->env->alloc);
    apart a = {.scratch = &scratch, .fresh = &fresh};
    OQ_TRY(oq_fresh_init(&fresh, &scratch, m, err));
    OQ_TRY(oq_walk_graphs(m->proto->graph, name_graph_apart, &a, err));
    *n = a.n;
    *was = a.was;
    *is = a.is;
    return ONQ_OK;
}
