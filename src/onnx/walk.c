/*
 * walk.c — visits graphs inside graphs, tensors wherever they are, and names taken from outside.
 *
 * Graphs nest through attributes of nodes; the depth is limited, so the recursion here is bounded
 * (OQ_MAX_GRAPH_DEPTH) and is never over nodes.
 */
#include "onnx/graph.h"
#include "onnx/tensor.h"

oq_graph *oq_node_next_graph(const oq_node *n, oq_graph_cursor *at) {
    assert(at->attribute <= n->attribute.n);
    for (; at->attribute < n->attribute.n; at->attribute++, at->graph = 0) {
        const oq_attribute *a = n->attribute.v[at->attribute];
        /* Slot 0 is `g`, the others are `graphs`. */
        if (at->graph == 0) {
            at->graph = 1;
            if (a->g != NULL)
                return a->g;
        }
        if (at->graph - 1 < a->graphs.n)
            return a->graphs.v[at->graph++ - 1];
    }
    return NULL;
}

oq_str oq_node_label(const oq_node *n) {
    if (n->name.n != 0 || n->output.n == 0)
        return n->name;
    return n->output.v[0];
}

static onq_code too_deep(onq_error *err) {
    return oq_fail(err, ONQ_E_LIMIT, "graphs are nested more than %d deep", OQ_MAX_GRAPH_DEPTH);
}

/* ---- graphs ---- */

static onq_code walk_graphs(oq_graph *g, oq_graph_fn fn, void *ctx, int depth, onq_error *err) {
    if (depth > OQ_MAX_GRAPH_DEPTH)
        return too_deep(err);
    OQ_TRY(fn(ctx, g, err));
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        oq_graph_cursor at = {0};
        for (oq_graph *sub; (sub = oq_node_next_graph(n, &at)) != NULL;)
            OQ_TRY(walk_graphs(sub, fn, ctx, depth + 1, err));
    }
    return ONQ_OK;
}

onq_code oq_node_blame(const oq_node *n, onq_code rc, onq_error *err) {
    return rc == ONQ_OK ? rc
                        : oq_error_in(err, rc, "node '%.*s' (%.*s)", OQ_STR(oq_node_label(n)),
                                      OQ_STR(n->op_type));
}

onq_code oq_walk_graphs(oq_graph *g, oq_graph_fn fn, void *ctx, onq_error *err) {
    return walk_graphs(g, fn, ctx, 1, err);
}

/* ---- tensors ---- */

typedef struct tensor_walk {
    oq_tensor_fn fn;
    void *ctx;
} tensor_walk;

static onq_code visit(const tensor_walk *w, oq_tensor *t, bool in_attribute, onq_error *err) {
    return t != NULL ? w->fn(w->ctx, t, in_attribute, err) : ONQ_OK;
}

static onq_code visit_sparse(const tensor_walk *w, const oq_sparse *s, bool in_attribute,
                             onq_error *err) {
    if (s == NULL)
        return ONQ_OK;
    OQ_TRY(visit(w, s->values, in_attribute, err));
    return visit(w, s->indices, in_attribute, err);
}

static onq_code visit_attribute(const tensor_walk *w, const oq_attribute *a, onq_error *err) {
    OQ_TRY(visit(w, a->t, true, err));
    for (size_t i = 0; i < a->tensors.n; i++)
        OQ_TRY(visit(w, a->tensors.v[i], true, err));
    OQ_TRY(visit_sparse(w, a->sparse_tensor, true, err));
    for (size_t i = 0; i < a->sparse_tensors.n; i++)
        OQ_TRY(visit_sparse(w, a->sparse_tensors.v[i], true, err));
    return ONQ_OK;
}

static onq_code visit_node(const tensor_walk *w, const oq_node *n, onq_error *err) {
    for (size_t i = 0; i < n->attribute.n; i++)
        OQ_TRY(visit_attribute(w, n->attribute.v[i], err));
    return ONQ_OK;
}

/* One graph without those inside: oq_walk_graphs brings them. */
static onq_code visit_graph(void *ctx, oq_graph *g, onq_error *err) {
    const tensor_walk *w = ctx;
    for (size_t i = 0; i < g->initializer.n; i++)
        OQ_TRY(visit(w, g->initializer.v[i], false, err));
    for (size_t i = 0; i < g->sparse_initializer.n; i++)
        OQ_TRY(visit_sparse(w, g->sparse_initializer.v[i], false, err));
    for (size_t i = 0; i < g->node.n; i++)
        OQ_TRY(visit_node(w, g->node.v[i], err));
    return ONQ_OK;
}

static onq_code visit_graphs_of(tensor_walk *w, const oq_node *n, onq_error *err) {
    oq_graph_cursor at = {0};
    for (oq_graph *sub; (sub = oq_node_next_graph(n, &at)) != NULL;)
        OQ_TRY(oq_walk_graphs(sub, visit_graph, w, err));
    return ONQ_OK;
}

static onq_code visit_function(tensor_walk *w, const oq_function *f, onq_error *err) {
    for (size_t i = 0; i < f->attribute_proto.n; i++) {
        oq_attribute *a = f->attribute_proto.v[i];
        OQ_TRY(visit_attribute(w, a, err));
        if (a->g != NULL)
            OQ_TRY(oq_walk_graphs(a->g, visit_graph, w, err));
        for (size_t k = 0; k < a->graphs.n; k++)
            OQ_TRY(oq_walk_graphs(a->graphs.v[k], visit_graph, w, err));
    }
    for (size_t i = 0; i < f->node.n; i++) {
        OQ_TRY(visit_node(w, f->node.v[i], err));
        OQ_TRY(visit_graphs_of(w, f->node.v[i], err));
    }
    return ONQ_OK;
}

onq_code oq_walk_tensors(oq_model *m, oq_tensor_fn fn, void *ctx, onq_error *err) {
    tensor_walk w = {fn, ctx};
    const oq_model_proto *p = m->proto;
    if (p->graph != NULL)
        OQ_TRY(oq_walk_graphs(p->graph, visit_graph, &w, err));
    for (size_t i = 0; i < p->functions.n; i++)
        OQ_TRY(visit_function(&w, p->functions.v[i], err));
    for (size_t i = 0; i < p->training_info.n; i++) {
        const oq_training *t = p->training_info.v[i];
        if (t->initialization != NULL)
            OQ_TRY(oq_walk_graphs(t->initialization, visit_graph, &w, err));
        if (t->algorithm != NULL)
            OQ_TRY(oq_walk_graphs(t->algorithm, visit_graph, &w, err));
    }
    return ONQ_OK;
}

static onq_code add_external(void *ctx, oq_tensor *t, bool in_attribute, onq_error *err) {
    uint64_t *sum = ctx, bytes = 0;
    (void)in_attribute;
    if (!oq_tensor_is_external(t))
        return ONQ_OK;
    OQ_TRY(oq_tensor_bytes(t, &bytes, err));
    return oq_add(*sum, bytes, sum)
               ? ONQ_OK
               : oq_fail(err, ONQ_E_INVALID, "tensor '%.*s': the tensors pass 2^64 bytes",
                         OQ_STR(t->name));
}

onq_code oq_model_size(oq_model *m, uint64_t *bytes, onq_error *err) {
    *bytes = m->bytes.n;
    return oq_walk_tensors(m, add_external, bytes, err);
}

/* ---- names taken from outside ---- */

/* The names that one inner graph defines, and the graph around it. */
typedef struct scope {
    oq_map names;
    const struct scope *up;
} scope;

typedef struct name_walk {
    oq_arena arena;
    oq_name_fn fn;
    void *ctx;
} name_walk;

static bool define(scope *s, oq_str name) {
    return name.n == 0 || oq_map_put(&s->names, name, 0);
}

static bool define_all(scope *s, const oq_graph *g) {
    bool ok = true;
    for (size_t i = 0; i < g->input.n; i++)
        ok = ok && define(s, g->input.v[i]->name);
    for (size_t i = 0; i < g->initializer.n; i++)
        ok = ok && define(s, g->initializer.v[i]->name);
    for (size_t i = 0; i < g->sparse_initializer.n; i++) {
        const oq_tensor *values = g->sparse_initializer.v[i]->values;
        ok = ok && (values == NULL || define(s, values->name));
    }
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        for (size_t k = 0; k < n->output.n; k++)
            ok = ok && define(s, n->output.v[k]);
    }
    return ok;
}

static onq_code mention(const name_walk *w, const scope *s, oq_str *name, onq_error *err) {
    if (name->n == 0)
        return ONQ_OK;
    for (; s != NULL; s = s->up)
        if (oq_map_has(&s->names, *name))
            return ONQ_OK;
    return w->fn(w->ctx, name, err);
}

static onq_code walk_scope(name_walk *w, oq_graph *g, const scope *up, int depth, onq_error *err) {
    if (depth > OQ_MAX_GRAPH_DEPTH)
        return too_deep(err);
    scope s = {.up = up};
    oq_map_init(&s.names, &w->arena);
    OQ_TRY_ALLOC(define_all(&s, g), err);
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        for (size_t k = 0; k < n->input.n; k++)
            OQ_TRY(mention(w, &s, &n->input.v[k], err));
        oq_graph_cursor at = {0};
        for (oq_graph *sub; (sub = oq_node_next_graph(n, &at)) != NULL;)
            OQ_TRY(walk_scope(w, sub, &s, depth + 1, err));
    }
    for (size_t i = 0; i < g->output.n; i++)
        OQ_TRY(mention(w, &s, &g->output.v[i]->name, err));
    return ONQ_OK;
}

onq_code oq_walk_outer_names(const onq_allocator *alloc, oq_node *n, oq_name_fn fn, void *ctx,
                             onq_error *err) {
    oq_graph_cursor at = {0};
    oq_graph *sub = oq_node_next_graph(n, &at);
    if (sub == NULL)
        return ONQ_OK;
    name_walk w = {.fn = fn, .ctx = ctx};
    oq_arena_init(&w.arena, alloc);
    onq_code rc = ONQ_OK;
    for (; sub != NULL && rc == ONQ_OK; sub = oq_node_next_graph(n, &at))
        rc = walk_scope(&w, sub, NULL, 1, err);
    oq_arena_release(&w.arena);
    return rc;
}
