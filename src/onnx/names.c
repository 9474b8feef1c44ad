/*
 * names.c — new names that collide with none.
 */
#include "onnx/names.h"

#include "onnx/graph.h"
#include "onnx/operators.h"

/* The value of a name is the number that oq_names_unique appends to it next, so that many
 * collisions stay cheap. */
static bool take(oq_names *s, oq_str name) {
    return name.n == 0 || oq_map_has(&s->map, name) || oq_map_put(&s->map, name, 1);
}

static bool take_infos(oq_names *s, oq_value_info *const *v, size_t n) {
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++)
        ok = take(s, v[i]->name);
    return ok;
}

static bool take_graph(oq_names *tensors, oq_names *nodes, const oq_graph *g) {
    bool ok = take_infos(tensors, g->input.v, g->input.n) &&
              take_infos(tensors, g->output.v, g->output.n);
    for (size_t i = 0; i < g->initializer.n && ok; i++)
        ok = take(tensors, g->initializer.v[i]->name);
    for (size_t i = 0; i < g->sparse_initializer.n && ok; i++) {
        const oq_tensor *values = g->sparse_initializer.v[i]->values;
        ok = values == NULL || take(tensors, values->name);
    }
    for (size_t i = 0; i < g->node.n && ok; i++) {
        const oq_node *n = g->node.v[i];
        ok = take(nodes, n->name);
        for (size_t k = 0; k < n->input.n && ok; k++)
            ok = take(tensors, n->input.v[k]);
        for (size_t k = 0; k < n->output.n && ok; k++)
            ok = take(tensors, n->output.v[k]);
    }
    return ok;
}

/* ---- one set ---- */

static onq_code collect_all(void *ctx, oq_graph *g, onq_error *err) {
    OQ_TRY_ALLOC(take_graph(ctx, ctx, g) && take_infos(ctx, g->value_info.v, g->value_info.n), err);
    return ONQ_OK;
}

onq_code oq_names_collect(oq_names *s, oq_arena *a, oq_model *m, onq_error *err) {
    s->arena = a;
    oq_map_init(&s->map, a);
    return m->proto->graph != NULL ? oq_walk_graphs(m->proto->graph, collect_all, s, err) : ONQ_OK;
}

bool oq_names_has(const oq_names *s, oq_str name) {
    return oq_map_has(&s->map, name);
}

oq_str oq_names_unique(oq_names *s, oq_str wanted) {
    assert(wanted.n == 0 || wanted.p != NULL);
    const oq_str none = {NULL, 0};
    uint32_t next = oq_map_find(&s->map, wanted);
    if (next == OQ_MAP_NONE)
        return oq_map_put(&s->map, wanted, 1) ? wanted : none;
    for (;; next++) {
        const oq_str suffix = oq_str_format(s->arena, "_%u", next);
        const oq_str name = oq_str_cat(s->arena, wanted, suffix);
        if (suffix.p == NULL || name.p == NULL)
            return none;
        if (oq_map_has(&s->map, name))
            continue;
        if (!oq_map_put(&s->map, wanted, next + 1) || !oq_map_put(&s->map, name, 1))
            return none;
        return name;
    }
}

/* ---- tensors and nodes ---- */

static onq_code collect(void *ctx, oq_graph *g, onq_error *err) {
    oq_fresh *s = ctx;
    OQ_TRY_ALLOC(take_graph(&s->tensors, &s->nodes, g), err);
    return ONQ_OK;
}

onq_code oq_fresh_init(oq_fresh *s, oq_arena *scratch, oq_model *m, onq_error *err) {
    *s = (oq_fresh){.tensors = {.arena = &m->arena}, .nodes = {.arena = &m->arena}};
    oq_map_init(&s->tensors.map, scratch);
    oq_map_init(&s->nodes.map, scratch);
    return m->proto->graph == NULL ? ONQ_OK : oq_fresh_add(s, m->proto->graph, err);
}

onq_code oq_fresh_add(oq_fresh *s, oq_graph *g, onq_error *err) {
    return oq_walk_graphs(g, collect, s, err);
}

static oq_str fresh(oq_fresh *s, oq_names *names, oq_str base, const char *suffix) {
    const oq_str wanted = oq_str_cat(names->arena, base, oq_str_of(suffix));
    const oq_str name = wanted.p != NULL ? oq_names_unique(names, wanted) : wanted;
    s->failed |= name.p == NULL;
    return name;
}

oq_str oq_fresh_tensor(oq_fresh *s, oq_str base, const char *suffix) {
    assert(suffix != NULL);
    return fresh(s, &s->tensors, base, suffix);
}

oq_str oq_fresh_node(oq_fresh *s, oq_str base, const char *suffix) {
    return fresh(s, &s->nodes, base, suffix);
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
        if (n->name.n == 0 || oq_node_is_constant(n)) /* the runtime makes initializers of these */
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
