/*
 * shape.c — inference over a whole model, and questions about its result.
 *
 * Called by preprocessing and by the quantizers. The work on nodes is in infer.c.
 */
#include "shape/shape.h"

#include "shape/infer.h"
#include "shape/sop.h"

#define MERGE_PASSES 16
#define BUDGET_EXTRA 200000u

struct oq_shapes {
    const onq_allocator *alloc;
    oq_arena arena;
    oq_infer in;
    oq_scope *root;
};

static uint64_t count_nodes(const oq_graph *g, unsigned depth) {
    uint64_t n = g->node.n;
    for (size_t i = 0; depth < OQ_MAX_SHAPE_DEPTH && i < g->node.n; i++) {
        const oq_node *node = g->node.v[i];
        for (size_t k = 0; k < node->attribute.n; k++) {
            n += node->attribute.v[k]->g != NULL ? count_nodes(node->attribute.v[k]->g, depth + 1)
                                                 : 0;
        }
    }
    return n;
}

static bool add_symbols(oq_infer *in, const oq_type *t, unsigned depth) {
    if (t == NULL || depth > 16)
        return true;
    const oq_tensor_type *tensor = t->tensor_type != NULL ? t->tensor_type : t->sparse_tensor_type;
    const oq_shape *shape = tensor != NULL ? tensor->shape : NULL;
    for (size_t i = 0; shape != NULL && i < shape->dim.n; i++) {
        const oq_str name = shape->dim.v[i]->dim_param;
        if (name.p != NULL && !oq_map_put(&in->symbols, name, 0))
            return false;
    }
    const oq_sequence_type *s = t->sequence_type != NULL ? t->sequence_type : t->optional_type;
    return (s == NULL || add_symbols(in, s->elem_type, depth + 1)) &&
           (t->map_type == NULL || add_symbols(in, t->map_type->value_type, depth + 1));
}

static onq_code add_graph_symbols(void *ctx, oq_graph *g, onq_error *err) {
    oq_infer *in = ctx;
    bool ok = true;
    for (size_t i = 0; ok && i < g->input.n; i++)
        ok = add_symbols(in, g->input.v[i]->type, 0);
    for (size_t i = 0; ok && i < g->output.n; i++)
        ok = add_symbols(in, g->output.v[i]->type, 0);
    for (size_t i = 0; ok && i < g->value_info.n; i++)
        ok = add_symbols(in, g->value_info.v[i]->type, 0);
    return ok ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code prepare(oq_infer *in, onq_error *err) {
    const oq_model_proto *p = in->model->proto;
    oq_map_init(&in->opsets, in->arena);
    oq_map_init(&in->functions, in->arena);
    oq_map_init(&in->symbols, in->arena);
    for (size_t i = 0; i < p->opset_import.n; i++) {
        const int64_t v = p->opset_import.v[i]->version.v;
        if (!oq_map_put(&in->opsets, p->opset_import.v[i]->domain,
                        v > 0 && v < INT32_MAX ? (uint32_t)v : 0))
            return oq_fail_nomem(err);
    }
    for (size_t i = 0; i < p->functions.n; i++) {
        const oq_function *f = p->functions.v[i];
        const oq_str key = oq_str_format(in->arena, "%.*s:%.*s:%.*s", OQ_STR(f->domain),
                                         OQ_STR(f->name), OQ_STR(f->overload));
        OQ_TRY_ALLOC(key.p != NULL && oq_map_put(&in->functions, key, (uint32_t)i), err);
    }
    return in->plain ? oq_walk_graphs(p->graph, add_graph_symbols, in, err) : ONQ_OK;
}

/* One pass over the model. */
static onq_code run_pass(oq_shapes *s, onq_error *err) {
    oq_infer *in = &s->in;
    oq_graph *g = in->model->proto->graph;
    oq_graph **key = OQ_NEW(in->arena, oq_graph *);
    s->root = OQ_NEW(in->arena, oq_scope);
    OQ_TRY_ALLOC(s->root != NULL && key != NULL, err);
    *key = g;
    in->scopes.n = 0;
    in->merged = false;
    in->why[0] = 0;
    in->report = (oq_shape_report){0};
    in->budget = 4 * count_nodes(g, 0) + BUDGET_EXTRA;
    oq_map_init(&in->graphs, in->arena);
    oq_map_init(&s->root->map, in->arena);
    s->root->graph = g;
    s->root->opsets = &in->opsets;
    if (!OQ_PUSH(in->arena, &in->scopes, s->root) ||
        !oq_map_put(&in->graphs, (oq_str){(const char *)key, sizeof *key}, 0) ||
        !oq_scope_fill(in, s->root) || !oq_infer_nodes(in, s->root, g->node.v, g->node.n))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static bool has_rank(const oq_vtype *t) {
    while (t != NULL && (t->kind == OQ_V_SEQUENCE || t->kind == OQ_V_OPTIONAL))
        t = t->inner;
    return t != NULL &&
           (t->kind == OQ_V_MAP || t->kind == OQ_V_OPAQUE || (t->has_shape && t->elem_type != 0));
}

/* The first node of the graph, in its order, with an output that has no shape. */
static void find_first(oq_shape_report *r, const oq_scope *s) {
    for (size_t i = 0; s->graph != NULL && i < s->graph->node.n; i++) {
        const oq_node *n = s->graph->node.v[i];
        for (size_t o = 0; o < n->output.n; o++) {
            const uint32_t at = oq_map_find(&s->map, n->output.v[o]);
            if (at == OQ_MAP_NONE || s->vals.v[at]->maker != n || has_rank(s->vals.v[at]->type))
                continue;
            r->first = n;
            r->first_output = n->output.v[o];
            return;
        }
    }
}

static void count(oq_infer *in) {
    oq_shape_report *r = &in->report;
    for (size_t i = 0; i < in->scopes.n; i++) {
        const oq_scope *s = in->scopes.v[i];
        for (size_t k = 0; k < s->vals.n; k++) {
            const oq_val *v = s->vals.v[k];
            if (v->maker == NULL)
                continue;
            const bool none = !has_rank(v->type);
            r->n_values++;
            r->n_none += none ? 1 : 0;
            r->n_partial += !none && v->made_up ? 1 : 0;
            r->n_full += !none && !v->made_up ? 1 : 0;
            if (none && r->first == NULL) {
                r->first = v->maker;
                r->first_output = v->name;
                find_first(r, s);
            }
        }
    }
    r->n_merged = in->merges.n;
}

static onq_code run(oq_shapes *s, onq_error *err) {
    oq_infer *in = &s->in;
    OQ_TRY(prepare(in, err));
    OQ_TRY(run_pass(s, err));
    for (unsigned i = 1; in->merged && i < MERGE_PASSES; i++)
        OQ_TRY(run_pass(s, err));
    count(in);
    const oq_node *no_rule = in->report.first_no_rule;
    if (in->opt.strict && !in->plain && in->report.first != NULL && no_rule != NULL) {
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "node '%.*s' (%.*s): onq has no shape rule for this operator",
                       OQ_STR(no_rule->name), OQ_STR(no_rule->op_type));
    }
    if (in->opt.strict && in->why[0] != 0)
        return oq_fail(err, ONQ_E_INVALID, "%s", in->why);
    const oq_node *n = in->report.first;
    if (in->opt.strict && !in->plain && n != NULL) {
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "node '%.*s' (%.*s): the shape of '%.*s' cannot be inferred",
                       OQ_STR(n->name), OQ_STR(n->op_type), OQ_STR(in->report.first_output));
    }
    return ONQ_OK;
}

onq_code oq_shapes_infer(oq_model *m, const oq_shape_options *opts, oq_shapes **out,
                         onq_error *err) {
    *out = NULL;
    if (m->proto == NULL || m->proto->graph == NULL)
        return oq_fail(err, ONQ_E_INVALID, "%s: the model has no graph", m->path);
    const onq_allocator *alloc = &m->env->alloc;
    oq_shapes *s = oq_calloc(alloc, 1, sizeof *s);
    OQ_TRY_ALLOC(s != NULL, err);
    s->alloc = alloc;
    oq_arena_init(&s->arena, alloc);
    s->in.model = m;
    s->in.arena = &s->arena;
    s->in.opt = opts != NULL ? *opts : (oq_shape_options){0};
    s->in.plain = !s->in.opt.symbolic;
    s->in.opt.auto_merge = s->in.opt.auto_merge && s->in.opt.symbolic;
    if (s->in.opt.int_max <= 0)
        s->in.opt.int_max = INT32_MAX;
    oq_sdims_init(&s->in.dims, &s->arena, s->in.plain);
    const onq_code rc = run(s, err);
    if (rc != ONQ_OK) {
        oq_shapes_free(s);
        return rc;
    }
    *out = s;
    return ONQ_OK;
}

void oq_shapes_free(oq_shapes *s) {
    if (s != NULL) {
        oq_arena_release(&s->arena);
        oq_free(s->alloc, s, sizeof *s);
    }
}

static const oq_scope *scope_of(const oq_shapes *s, const oq_graph *g) {
    if (g == NULL)
        return s->root;
    const oq_str key = {(const char *)&g, sizeof g};
    const uint32_t at = oq_map_find(&s->in.graphs, key);
    return at != OQ_MAP_NONE ? s->in.scopes.v[at] : NULL;
}

const oq_vtype *oq_shapes_find(const oq_shapes *s, const oq_graph *g, oq_str name) {
    const oq_scope *scope = scope_of(s, g);
    const oq_val *v = scope != NULL ? oq_scope_lookup(scope, name) : NULL;
    return v != NULL && v->type != NULL && v->type->kind != OQ_V_NONE ? v->type : NULL;
}

bool oq_shapes_tensor(const oq_shapes *s, const oq_graph *g, oq_str name, oq_tensor_info *out) {
    const oq_vtype *t = oq_shapes_find(s, g, name);
    *out = (oq_tensor_info){0};
    if (t == NULL || t->kind != OQ_V_TENSOR)
        return false;
    *out = (oq_tensor_info){t->elem_type, t->has_shape, t->has_shape, t->rank, t->dims};
    for (uint32_t i = 0; i < t->rank; i++)
        out->is_fixed = out->is_fixed && oq_sdim_is_num(t->dims[i]);
    return true;
}

int32_t oq_shapes_elem_type(const oq_shapes *s, const oq_graph *g, oq_str name) {
    oq_tensor_info info;
    oq_shapes_tensor(s, g, name, &info);
    return info.elem_type;
}

int64_t oq_shapes_dim(const oq_shapes *s, const oq_graph *g, oq_str name, size_t i) {
    oq_tensor_info info;
    oq_shapes_tensor(s, g, name, &info);
    return i < info.rank && oq_sdim_is_num(info.dims[i]) && info.dims[i].n >= 0 ? info.dims[i].n
                                                                                : -1;
}

void oq_shapes_report(const oq_shapes *s, oq_shape_report *out) {
    *out = s->in.report;
}

const oq_infer *oq_shapes_engine(const oq_shapes *s) {
    return &s->in;
}
