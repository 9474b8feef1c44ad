/*
 * qnn.c — the steps of qnn_preprocess_model. See qnn.h.
 *
 * Order, names and places of new nodes are the reference's. Differences: uses inside of subgraphs
 * are counted and renamed, a tensor that is an output of the graph is never fused away,
 * LayerNormalization is made over the last axis only.
 */
#include "prepare/qnn.h"

#include "onnx/check/check.h"
#include "prepare/fuse/fuse_pattern.h"
#include "prepare/qnn_parts.h"

/* ---- names ---- */

int64_t oq_qnn_next_suffix(const oq_graph *g, oq_str prefix) {
    int64_t most = -1;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_str name = g->node.v[i]->name;
        int64_t v;
        if (oq_str_starts(name, prefix) &&
            oq_str_to_i64((oq_str){name.p + prefix.n, name.n - prefix.n}, &v) && v > most &&
            v < INT64_MAX)
            most = v;
    }
    return most + 1;
}

oq_str oq_qnn_number(oq_model *m, oq_str prefix, int64_t n) {
    return oq_str_format(&m->arena, "%.*s%lld", (int)prefix.n, prefix.p, (long long)n);
}

static onq_code name_nodes(oq_model *m, size_t *n_named, onq_error *err) {
    oq_graph *g = m->proto->graph;
    const oq_str prefix = OQ_S("qnn_preproc_node_");
    int64_t next = oq_qnn_next_suffix(g, prefix);
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        /* By the type alone, as the reference does. */
        if (n->name.n != 0 || oq_op_traits_of(n->op_type)->kind == OQ_KIND_CONSTANT)
            continue;
        n->name = oq_qnn_number(m, prefix, next++);
        OQ_TRY_ALLOC(n->name.p != NULL, err);
        oq_info(m->env, "a node of type %.*s without a name is now %.*s", OQ_STR(n->op_type),
                OQ_STR(n->name));
        ++*n_named;
    }
    return ONQ_OK;
}

/* ---- fusions ---- */

typedef struct qnn_fusion {
    const char *search; /* node type that the pattern is looked for from */
    const char *op, *domain;
    bool (*find)(oq_fuse *f, uint32_t i, oq_pattern *p);
} qnn_fusion;

static const qnn_fusion gelu = {"Erf", "Gelu", "com.microsoft", oq_pattern_gelu};
static const qnn_fusion lpnorm = {"ReduceL2", "LpNormalization", "", oq_pattern_lpnorm};
static const qnn_fusion spacetodepth = {"Reshape", "SpaceToDepth", "", oq_pattern_spacetodepth};
static const qnn_fusion layernorm = {"ReduceMean", "LayerNormalization", "", oq_pattern_layernorm};

static onq_code make_node(oq_fuse *f, const qnn_fusion *q, const oq_pattern *p, oq_str name,
                          oq_node **out, onq_error *err) {
    oq_arena *a = &f->m->arena;
    const oq_str in[] = {p->input, p->weight, p->bias};
    oq_node *n = oq_node_make(a, q->op, name, in, q == &layernorm ? 3 : 1, &p->output, 1);
    bool ok = n != NULL && name.p != NULL;
    if (ok && q->domain[0] != '\0')
        n->domain = oq_str_of(q->domain);
    if (ok && q == &lpnorm)
        ok = oq_attr_set_int(a, n, OQ_S("axis"), -1) && oq_attr_set_int(a, n, OQ_S("p"), 2);
    if (ok && q == &spacetodepth)
        ok = oq_attr_set_int(a, n, OQ_S("blocksize"), p->blocksize);
    if (ok && q == &layernorm)
        ok = oq_attr_set_float(a, n, OQ_S("epsilon"), p->epsilon);
    *out = n;
    return ok ? ONQ_OK : oq_fail_nomem(err);
}

/* Constants and Constant nodes that nothing uses any more; an input of the same name goes too. */
static onq_code drop_unused(oq_fuse *f, onq_error *err) {
    oq_graph *g = f->g;
    oq_index ix;
    size_t kept = 0;
    OQ_TRY(oq_index_build(&ix, f->scratch, g, NULL, err));
    oq_map dropped;
    oq_map_init(&dropped, f->scratch);
    for (size_t i = 0; i < g->initializer.n; i++) {
        oq_tensor *t = g->initializer.v[i];
        const oq_value *v = oq_index_find(&ix, t->name);
        if (v == NULL || v->uses.n != 0 || v->is_output)
            g->initializer.v[kept++] = t;
        else if (!oq_map_put(&dropped, t->name, 0))
            return oq_fail_nomem(err);
    }
    g->initializer.n = kept;
    kept = 0;
    for (size_t i = 0; i < g->input.n; i++)
        if (!oq_map_has(&dropped, g->input.v[i]->name))
            g->input.v[kept++] = g->input.v[i];
    g->input.n = kept;
    kept = 0;
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        const oq_value *v =
            oq_node_is_constant(n) && n->output.n == 1 ? oq_index_find(&ix, n->output.v[0]) : NULL;
        if (v == NULL || v->uses.n != 0 || v->is_output)
            g->node.v[kept++] = n;
    }
    g->node.n = kept;
    return ONQ_OK;
}

/* Fusion.apply: all patterns of the graph as it is; then the old nodes are removed and the new ones
 * appended. */
static onq_code fuse_all(oq_fuse *f, const qnn_fusion *q, size_t *count, onq_error *err) {
    OQ_VEC(oq_node *) made = {0};
    const oq_str prefix = oq_str_format(&f->m->arena, "%s_fused_%s_", q->op, q->search);
    OQ_TRY_ALLOC(prefix.p != NULL, err);
    int64_t next = oq_qnn_next_suffix(f->g, prefix);
    const size_t n = f->g->node.n;
    for (uint32_t i = 0; i < n; i++) {
        oq_pattern p = {0};
        oq_node *fused;
        if (f->busy[i] || !oq_str_is(f->g->node.v[i]->op_type, q->search) || !q->find(f, i, &p))
            continue;
        OQ_TRY(make_node(f, q, &p, oq_qnn_number(f->m, prefix, next++), &fused, err));
        for (size_t k = 0; k < p.n; k++)
            oq_fuse_drop(f, p.nodes[k]);
        OQ_TRY_ALLOC(OQ_PUSH(f->scratch, &made, fused), err);
    }
    *count = made.n;
    if (made.n == 0)
        return ONQ_OK;
    if (q->domain[0] != '\0')
        OQ_TRY(oq_model_set_opset(f->m, oq_str_of(q->domain), 1, err));
    oq_graph_remove_nodes(f->g, f->gone);
    for (size_t i = 0; i < made.n; i++)
        OQ_TRY_ALLOC(oq_graph_add_node(&f->m->arena, f->g, made.v[i]), err);
    return drop_unused(f, err);
}

static onq_code fuse(oq_model *m, const oq_shapes *shapes, const qnn_fusion *q, size_t *count,
                     onq_error *err) {
    OQ_SCRATCH(scratch, &m->env->alloc);
    oq_fuse f = {.m = m, .g = m->proto->graph, .scratch = &scratch, .shapes = shapes};
    OQ_TRY(oq_fuse_begin(&f, err));
    return fuse_all(&f, q, count, err);
}

onq_code oq_qnn_fuse(oq_model *m, oq_str op, size_t *count, onq_error *err) {
    static const qnn_fusion *const all[] = {&gelu, &lpnorm, &spacetodepth, &layernorm};
    for (size_t i = 0; i < OQ_COUNT(all); i++) {
        oq_shapes *shapes = NULL;
        if (!oq_str_is(op, all[i]->op))
            continue;
        onq_code rc = oq_shapes_infer(m, NULL, &shapes, err);
        if (rc == ONQ_OK)
            rc = fuse(m, shapes, all[i], count, err);
        oq_shapes_free(shapes);
        return rc;
    }
    return oq_fail(err, ONQ_E_OPTION,
                   "--fuse: '%.*s' is not one of Gelu, LpNormalization, SpaceToDepth and "
                   "LayerNormalization",
                   OQ_STR(op));
}

static onq_code fuse_ops(oq_model *m, const oq_qnn_options *o, oq_qnn_report *r, onq_error *err) {
    oq_shapes *shapes = NULL;
    onq_code rc = oq_shapes_infer(m, NULL, &shapes, err);
    if (rc == ONQ_OK)
        rc = fuse(m, shapes, &gelu, &r->n_gelu, err);
    if (rc == ONQ_OK)
        rc = fuse(m, shapes, &lpnorm, &r->n_lpnorm, err);
    if (rc == ONQ_OK)
        rc = fuse(m, shapes, &spacetodepth, &r->n_spacetodepth, err);
    if (rc == ONQ_OK && o->fuse_layernorm) {
        const int64_t opset = oq_model_opset(m, OQ_S(""));
        if (opset < 17)
            oq_warn(m->env,
                    "%s: LayerNormalization cannot be put together: it needs opset 17, the model "
                    "has %lld (--opset 17 raises it)",
                    m->path, (long long)opset);
        else
            rc = fuse(m, shapes, &layernorm, &r->n_layernorm, err);
    }
    oq_shapes_free(shapes);
    return rc;
}

/* ---- all ---- */

static bool drop_init_inputs(oq_model *m, onq_error *err, onq_code *rc) {
    oq_graph *g = m->proto->graph;
    oq_map inits;
    size_t kept = 0;
    *rc = ONQ_OK;
    if (m->proto->ir_version.v < 4) {
        oq_warn(m->env, "%s: initializers stay inputs: below IR version 4 they must be", m->path);
        return false;
    }
    OQ_SCRATCH(scratch, &m->env->alloc);
    oq_map_init(&inits, &scratch);
    for (size_t i = 0; i < g->initializer.n && *rc == ONQ_OK; i++)
        if (!oq_map_put(&inits, g->initializer.v[i]->name, 0))
            *rc = oq_fail_nomem(err);
    const size_t before = g->input.n;
    for (size_t i = 0; i < before && *rc == ONQ_OK; i++)
        if (!oq_map_has(&inits, g->input.v[i]->name))
            g->input.v[kept++] = g->input.v[i];
    if (*rc == ONQ_OK)
        g->input.n = kept;
    return kept != before;
}

onq_code oq_qnn_prepare(oq_model *m, const oq_qnn_options *o, oq_qnn_report *report,
                        onq_error *err) {
    oq_qnn_report r = {0};
    onq_code rc = ONQ_OK;
    bool changed = o->n_shapes != 0;
    oq_model_touch(m);
    if (o->n_shapes != 0)
        OQ_TRY(oq_qnn_fix_shapes(m, o->shapes, o->n_shapes, err));
    if (o->exclude_initializer_from_input)
        changed |= drop_init_inputs(m, err, &rc);
    OQ_TRY(rc);
    OQ_TRY(fuse_ops(m, o, &r, err));
    changed |= r.n_gelu + r.n_lpnorm + r.n_spacetodepth + r.n_layernorm != 0;
    if (o->n_inputs_channel_last + o->n_outputs_channel_last != 0) {
        OQ_TRY(oq_qnn_channel_last(m, o, err));
        changed = true;
    }
    OQ_TRY(name_nodes(m, &r.n_named, err));
    r.changed = changed || r.n_named != 0;
    if (report != NULL)
        *report = r;
    if (r.changed)
        OQ_TRY(oq_topo_sort_reference(m, m->proto->graph, err));
    OQ_ASSERT_VALID(m);
    return ONQ_OK;
}
