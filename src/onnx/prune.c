/*
 * prune.c — removes what nothing uses: nodes, initializers, value_infos.
 *
 * oq_graph_prune marks backwards from the graph's outputs over arrays, so a long chain costs
 * neither stack nor quadratic time. oq_graph_prune_inits is the reference's
 * ONNXModel.clean_initializers.
 */
#include "onnx/edit.h"

/* For each node the nodes that make what it uses (inner uses counted): sources[begin[i] ..
 * begin[i+1]). */
typedef struct edges {
    uint32_t *begin, *sources;
} edges;

static bool edges_build(edges *e, const oq_index *ix, oq_arena *a) {
    const size_t n = ix->graph->node.n;
    size_t total = 0;
    e->begin = OQ_NEW_ARRAY(a, uint32_t, n + 2);
    if (e->begin == NULL)
        return false;
    for (size_t i = 0; i < ix->values.n; i++) {
        const oq_value *v = &ix->values.v[i];
        if (v->producer == OQ_NO_NODE)
            continue;
        for (size_t k = 0; k < v->uses.n; k++)
            e->begin[v->uses.v[k].node + 2]++;
        total += v->uses.n;
    }
    if (total > UINT32_MAX)
        return false;
    for (size_t i = 2; i < n + 2; i++)
        e->begin[i] += e->begin[i - 1];
    e->sources = OQ_NEW_ARRAY(a, uint32_t, total);
    if (e->sources == NULL)
        return false;
    /* begin[i + 1] is where the next source of i goes; in the end it is where those of i + 1
     * begin. */
    for (size_t i = 0; i < ix->values.n; i++) {
        const oq_value *v = &ix->values.v[i];
        if (v->producer == OQ_NO_NODE)
            continue;
        for (size_t k = 0; k < v->uses.n; k++)
            e->sources[e->begin[v->uses.v[k].node + 1]++] = v->producer;
    }
    return true;
}

static bool makes_one_of(const oq_node *n, const oq_map *names) {
    for (size_t i = 0; names != NULL && i < n->output.n; i++)
        if (oq_map_has(names, n->output.v[i]))
            return true;
    return false;
}

/* dead[i] for every node that no graph output needs, nor one that makes what `kept` has (or NULL);
 * NULL when out of memory. */
static bool *find_dead(const oq_index *ix, const oq_map *kept, oq_arena *a) {
    const size_t n = ix->graph->node.n;
    edges e;
    bool *dead = OQ_NEW_ARRAY(a, bool, n);
    uint32_t *stack = OQ_NEW_ARRAY(a, uint32_t, n);
    if (dead == NULL || stack == NULL || !edges_build(&e, ix, a))
        return NULL;
    memset(dead, true, n);
    size_t top = 0;
    for (size_t i = 0; i < ix->values.n; i++) {
        const oq_value *v = &ix->values.v[i];
        if (v->is_output && v->producer != OQ_NO_NODE && dead[v->producer]) {
            dead[v->producer] = false;
            stack[top++] = v->producer;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        if (dead[i] && makes_one_of(ix->graph->node.v[i], kept)) {
            dead[i] = false;
            stack[top++] = i;
        }
    while (top != 0) {
        const uint32_t node = stack[--top];
        for (uint32_t k = e.begin[node]; k < e.begin[node + 1]; k++) {
            const uint32_t source = e.sources[k];
            if (dead[source]) {
                dead[source] = false;
                stack[top++] = source;
            }
        }
    }
    return dead;
}

static bool is_used(const oq_value *v, const bool *dead) {
    if (v->is_output)
        return true;
    for (size_t i = 0; i < v->uses.n; i++)
        if (!dead[v->uses.v[i].node])
            return true;
    return false;
}

static bool is_kept(const oq_index *ix, oq_str name, const bool *dead) {
    const oq_value *v = oq_index_find(ix, name);
    return v != NULL &&
           (v->is_input || is_used(v, dead) || (v->producer != OQ_NO_NODE && !dead[v->producer]));
}

static void drop_gone(const oq_index *ix, const bool *dead, const oq_map *names) {
    oq_graph *g = ix->graph;
    size_t kept = 0;
    for (size_t i = 0; i < g->initializer.n; i++)
        if (is_kept(ix, g->initializer.v[i]->name, dead))
            g->initializer.v[kept++] = g->initializer.v[i];
    g->initializer.n = kept;
    kept = 0;
    for (size_t i = 0; i < g->sparse_initializer.n; i++) {
        const oq_tensor *values = g->sparse_initializer.v[i]->values;
        if (values != NULL && is_kept(ix, values->name, dead))
            g->sparse_initializer.v[kept++] = g->sparse_initializer.v[i];
    }
    g->sparse_initializer.n = kept;
    kept = 0;
    for (size_t i = 0; i < g->value_info.n; i++)
        if (is_kept(ix, g->value_info.v[i]->name, dead) ||
            (names != NULL && oq_map_has(names, g->value_info.v[i]->name)))
            g->value_info.v[kept++] = g->value_info.v[i];
    g->value_info.n = kept;
    kept = 0;
    for (size_t i = 0; i < g->quantization_annotation.n; i++)
        if (is_kept(ix, g->quantization_annotation.v[i]->tensor_name, dead))
            g->quantization_annotation.v[kept++] = g->quantization_annotation.v[i];
    g->quantization_annotation.n = kept;
}

onq_code oq_graph_prune_new(oq_model *m, oq_graph *g, const oq_map *names, onq_error *err) {
    OQ_SCRATCH(scratch, &m->env->alloc);
    oq_index ix;
    OQ_TRY(oq_index_build(&ix, &scratch, g, NULL, err));
    const bool *dead = find_dead(&ix, names, &scratch);
    OQ_TRY_ALLOC(dead != NULL, err);
    oq_model_touch(m);
    drop_gone(&ix, dead, names);
    oq_graph_remove_nodes(g, dead);
    return ONQ_OK;
}

onq_code oq_graph_prune(oq_model *m, oq_graph *g, onq_error *err) {
    return oq_graph_prune_new(m, g, NULL, err);
}

typedef struct dead_names {
    const oq_model *m;
    oq_map *names;
} dead_names;

static onq_code add_dead(void *ctx, oq_graph *g, onq_error *err) {
    const dead_names *d = ctx;
    OQ_SCRATCH(scratch, &d->m->env->alloc);
    oq_index ix;
    OQ_TRY(oq_index_build(&ix, &scratch, g, NULL, err));
    const bool *dead = find_dead(&ix, NULL, &scratch);
    OQ_TRY_ALLOC(dead != NULL, err);
    for (size_t i = 0; i < g->node.n; i++)
        for (size_t k = 0; dead[i] && k < g->node.v[i]->output.n; k++)
            OQ_TRY_ALLOC(oq_map_put(d->names, g->node.v[i]->output.v[k], 0), err);
    for (size_t i = 0; i < g->value_info.n; i++)
        if (!is_kept(&ix, g->value_info.v[i]->name, dead))
            OQ_TRY_ALLOC(oq_map_put(d->names, g->value_info.v[i]->name, 0), err);
    return ONQ_OK;
}

onq_code oq_graph_find_dead(oq_model *m, oq_graph *g, oq_map *names, onq_error *err) {
    dead_names d = {m, names};
    return oq_walk_graphs(g, add_dead, &d, err);
}

/* ---- initializers alone ---- */

/* Removes an initializer's graph input with it. */
static void drop_inputs(oq_graph *g, const oq_map *dropped) {
    size_t kept = 0;
    for (size_t i = 0; i < g->input.n; i++)
        if (!oq_map_has(dropped, g->input.v[i]->name))
            g->input.v[kept++] = g->input.v[i];
    g->input.n = kept;
}

/* Of two initializers of one name the first is the one that is used. An initializer that a node
 * output of the same name hides is not used. */
static onq_code prune_inits_of(void *ctx, oq_graph *g, onq_error *err) {
    oq_model *m = ctx;
    OQ_SCRATCH(scratch, &m->env->alloc);
    oq_index ix;
    oq_map dropped;
    OQ_TRY(oq_index_build(&ix, &scratch, g, NULL, err));
    oq_map_init(&dropped, &scratch);
    bool *drop = OQ_NEW_ARRAY(&scratch, bool, g->initializer.n);
    for (size_t i = 0; drop != NULL && i < g->initializer.n; i++) {
        const oq_tensor *t = g->initializer.v[i];
        const oq_value *v = oq_index_find(&ix, t->name);
        drop[i] = v == NULL || v->init != t || v->producer != OQ_NO_NODE ||
                  (!v->is_output && v->uses.n == 0);
        if (drop[i] && !oq_map_put(&dropped, t->name, 0))
            drop = NULL;
    }
    OQ_TRY_ALLOC(drop != NULL, err);
    size_t kept = 0;
    for (size_t i = 0; i < g->initializer.n; i++)
        if (!drop[i])
            g->initializer.v[kept++] = g->initializer.v[i];
    g->initializer.n = kept;
    drop_inputs(g, &dropped);
    return ONQ_OK;
}

onq_code oq_graph_prune_inits(oq_model *m, oq_graph *g, onq_error *err) {
    oq_model_touch(m);
    return oq_walk_graphs(g, prune_inits_of, m, err);
}

static onq_code drop_infos(void *ctx OQ_UNUSED, oq_graph *g, onq_error *err OQ_UNUSED) {
    g->value_info.n = 0;
    return ONQ_OK;
}

onq_code oq_model_drop_shapes(oq_model *m, onq_error *err) {
    oq_model_touch(m);
    return oq_walk_graphs(m->proto->graph, drop_infos, NULL, err);
}
