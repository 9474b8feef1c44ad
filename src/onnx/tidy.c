/*
 * tidy.c — the order of nodes, initializers that nothing reads, constants as initializers.
 */
#include "onnx/tidy.h"

#include "onnx/edit.h"
#include "onnx/operators.h"

/* ---- initializers that nothing reads ---- */

static int by_name(const void *a, const void *b) {
    const oq_attribute *const *x = a, *const *y = b;
    return oq_str_cmp((*x)->name, (*y)->name);
}

/* Rebuilds nodes that hold graphs as the reference does. */
static onq_code renew_owners(void *ctx OQ_UNUSED, oq_graph *g, onq_error *err OQ_UNUSED) {
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        bool holds = false;
        for (size_t k = 0; k < n->attribute.n; k++)
            holds |= n->attribute.v[k]->g != NULL || n->attribute.v[k]->graphs.n > 0;
        if (!holds)
            continue;
        qsort(n->attribute.v, n->attribute.n, sizeof *n->attribute.v, by_name);
        n->name = n->name.n > 0 ? n->name : (oq_str){0};
        n->domain = n->domain.n > 0 ? n->domain : (oq_str){0};
    }
    return ONQ_OK;
}

onq_code oq_model_clean_inits(oq_model *m, onq_error *err) {
    OQ_TRY(oq_graph_prune_inits(m, m->proto->graph, err));
    return oq_walk_graphs(m->proto->graph, renew_owners, NULL, err);
}

/* ---- the order of nodes ---- */

/* True if every node comes after what its subgraphs read and, unless only that is asked, after what
 * it reads itself. */
static bool is_sorted(const oq_index *ix, bool only_inside) {
    for (size_t i = 0; i < ix->values.n; i++) {
        const oq_value *v = &ix->values.v[i];
        for (size_t k = 0; v->producer != OQ_NO_NODE && k < v->uses.n; k++)
            if ((v->uses.v[k].slot == OQ_SLOT_INNER || !only_inside) &&
                v->uses.v[k].node < v->producer)
                return false;
    }
    return true;
}

/* Puts the nodes in a valid order that keeps as much of theirs as can be; not when what subgraphs
 * read was all that could be wrong, and is not. */
static onq_code sort_indexed(oq_model *m, const oq_index *ix, bool only_inside, oq_arena *scratch,
                             onq_error *err) {
    const oq_graph *g = ix->graph;
    uint32_t *order;
    if (is_sorted(ix, only_inside))
        return ONQ_OK;
    oq_model_touch(m);
    OQ_TRY(oq_topo_order(ix, scratch, &order, err));
    oq_node **sorted = OQ_NEW_ARRAY(scratch, oq_node *, g->node.n + 1);
    OQ_TRY_ALLOC(sorted != NULL, err);
    for (size_t i = 0; i < g->node.n; i++)
        sorted[i] = g->node.v[order[i]];
    if (g->node.n > 0)
        memcpy(g->node.v, sorted, g->node.n * sizeof *sorted);
    return ONQ_OK;
}

/* The same with an index of its own, unless `given` is of this graph. */
static onq_code sort_nodes(oq_model *m, oq_graph *g, const oq_index *given, bool only_inside,
                           onq_error *err) {
    oq_index ix;
    OQ_SCRATCH(scratch, &m->env->alloc);
    if (given == NULL || given->graph != g) {
        OQ_TRY(oq_index_build(&ix, &scratch, g, NULL, err));
        given = &ix;
    }
    return sort_indexed(m, given, only_inside, &scratch, err);
}

static bool has_inner(const oq_graph *g) {
    for (size_t i = 0; i < g->node.n; i++)
        if (oq_node_next_graph(g->node.v[i], &(oq_graph_cursor){0}) != NULL)
            return true;
    return false;
}

onq_code oq_model_sort(oq_model *m, onq_error *err) {
    OQ_TRY(oq_topo_sort_reference(m, m->proto->graph, err));
    return has_inner(m->proto->graph) ? sort_nodes(m, m->proto->graph, NULL, true, err) : ONQ_OK;
}

onq_code oq_model_sort_inner(oq_model *m, oq_graph *g, onq_error *err) {
    return sort_nodes(m, g, NULL, false, err);
}

typedef struct sorting {
    oq_model *m;
    const oq_index *main;
} sorting;

static onq_code sort_graph(void *ctx, oq_graph *g, onq_error *err) {
    const sorting *s = ctx;
    return sort_nodes(s->m, g, s->main, false, err);
}

onq_code oq_model_sort_all(oq_model *m, const oq_index *ix, onq_error *err) {
    sorting s = {m, ix};
    return oq_walk_graphs(m->proto->graph, sort_graph, &s, err);
}

/* ---- constants ---- */

typedef struct lifting {
    oq_model *m;
    size_t n;
} lifting;

onq_code oq_constant_make(oq_arena *a, const oq_node *n, oq_tensor **out, onq_error *err) {
    const oq_attribute *at;
    const oq_str name = n->output.v[0];
    *out = NULL;
    if ((at = oq_attr_find(n, "value")) != NULL && at->t != NULL) {
        *out = OQ_NEW(a, oq_tensor);
        OQ_TRY_ALLOC(*out != NULL, err);
        **out = *at->t;
        (*out)->name = name;
        return ONQ_OK;
    }
    if ((at = oq_attr_find(n, "value_float")) != NULL ||
        (at = oq_attr_find(n, "value_floats")) != NULL) {
        const bool one = oq_str_is(at->name, "value_float");
        const int64_t dims[1] = {(int64_t)at->floats.n};
        const float *v = one ? &at->f.v : at->floats.v;
        *out = oq_tensor_new(a, name, OQ_FLOAT, dims, one ? 0 : 1);
        return *out == NULL ? oq_fail_nomem(err)
                            : oq_tensor_set_raw(a, *out, v, (one ? 1 : at->floats.n) * 4, err);
    }
    if ((at = oq_attr_find(n, "value_int")) != NULL ||
        (at = oq_attr_find(n, "value_ints")) != NULL) {
        const bool one = oq_str_is(at->name, "value_int");
        const int64_t dims[1] = {(int64_t)at->ints.n};
        const int64_t *v = one ? &at->i.v : at->ints.v;
        *out = oq_tensor_new(a, name, OQ_INT64, dims, one ? 0 : 1);
        return *out == NULL ? oq_fail_nomem(err)
                            : oq_tensor_set_raw(a, *out, v, (one ? 1 : at->ints.n) * 8, err);
    }
    return ONQ_OK;
}

static onq_code lift_graph(void *ctx, oq_graph *g, onq_error *err) {
    lifting *l = ctx;
    oq_arena *a = &l->m->arena;
    size_t kept = 0;
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        oq_tensor *t = NULL;
        if (oq_node_is_constant(n) && n->output.n == 1)
            OQ_TRY(oq_constant_make(a, n, &t, err));
        if (t == NULL) {
            g->node.v[kept++] = n;
            continue;
        }
        OQ_TRY_ALLOC(oq_graph_add_init(a, g, t), err);
        l->n++;
    }
    g->node.n = kept;
    return ONQ_OK;
}

onq_code oq_model_lift_constants(oq_model *m, size_t *n, onq_error *err) {
    lifting l = {m, 0};
    oq_model_touch(m);
    OQ_TRY(oq_walk_graphs(m->proto->graph, lift_graph, &l, err));
    *n = l.n;
    return ONQ_OK;
}
