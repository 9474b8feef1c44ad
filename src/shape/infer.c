/*
 * infer.c — the driver: nodes in order, each by its rule; subgraphs and functions.
 *
 * Read infer.h first. In plain mode the steps and their order are those of onnx's
 * ShapeInferenceImplBase, down to the numbering of unk__N; in symbolic mode nodes go in topological
 * order and whatever a rule leaves open gets a name, as the reference's
 * _new_symbolic_dim_from_output does.
 */
#include "shape/infer.h"

#include "onnx/operators.h"
#include "shape/sop.h"

/* A type with the name that onnx gives to an open dimension. */
static oq_sdim name_plain(void *ctx, size_t axis, oq_sdim d) {
    oq_infer *in = ctx;
    (void)axis;
    if (!oq_sdim_is_unknown(d))
        return d;
    oq_str name;
    do {
        name = oq_str_format(in->arena, "unk__%llu", (unsigned long long)in->next_symbol++);
    } while (name.p != NULL && oq_map_has(&in->symbols, name));
    if (name.p == NULL || !oq_map_put(&in->symbols, name, 0)) {
        in->nomem = true;
        return d;
    }
    return oq_sdim_name(&in->dims, name, 0);
}

oq_sdim oq_infer_merged(oq_infer *in, oq_sdim d) {
    for (size_t i = 0; i < in->merges.n && oq_sdim_is_symbolic(d); i++) {
        const oq_sdim r = oq_sdim_replace(&in->dims, d, in->merges.v[i].from, in->merges.v[i].to);
        d = oq_sdim_is_unknown(r) ? d : r;
    }
    return d;
}

typedef struct open_dims {
    oq_rctx *c;
    size_t output;
    bool used;
} open_dims;

static oq_sdim name_symbolic(void *ctx, size_t axis, oq_sdim d) {
    open_dims *x = ctx;
    d = oq_infer_merged(x->c->in, d);
    if (!oq_sdim_is_unknown(d) && !(oq_sdim_is_num(d) && d.n < 0))
        return d;
    x->used = true;
    return oq_r_fresh(x->c, x->output, axis);
}

static bool note_made(oq_rctx *c, oq_val *v) {
    const bool listed = v->info != NULL && (c->in->plain || !v->only_output);
    if (v->maker == NULL && !listed && !OQ_PUSH(c->in->arena, &c->scope->added, v))
        c->in->nomem = true;
    v->maker = c->node;
    return !c->in->nomem;
}

/* Stores the type of output o; false when it contradicts what is declared. */
static bool store_plain(oq_rctx *c, size_t o) {
    oq_infer *in = c->in;
    const oq_str name = c->node->output.v[o];
    if (c->out[o].kind == OQ_V_NONE || name.n == 0)
        return true;
    oq_vtype *t = OQ_NEW(in->arena, oq_vtype);
    if (t == NULL) {
        in->nomem = true;
        return false;
    }
    *t = c->out[o];
    const oq_vtype *named = oq_vtype_map(in, t, name_plain, in);
    oq_val *v = oq_scope_lookup(c->scope, name);
    if (v != NULL && (v->type != NULL || v->info != NULL)) {
        const char *why = NULL;
        const oq_vtype *merged = oq_vtype_merge(in, v->type, named, &why);
        if (why != NULL)
            return oq_r_fail(c, "output '%.*s': %s from what is declared", OQ_STR(name), why);
        v->type = merged;
    } else {
        v = oq_scope_add(in, c->scope, name);
        if (v == NULL)
            return false;
        v->type = named;
    }
    return note_made(c, v);
}

/* What is inferred, completed by what is declared where nothing was found. */
static const oq_vtype *with_hint(oq_infer *in, const oq_vtype *t, const oq_vtype *hint) {
    if (t == NULL || hint == NULL || t->kind != hint->kind ||
        (t->elem_type != 0 && hint->elem_type != 0 && t->elem_type != hint->elem_type))
        return t != NULL ? t : hint;
    if (t->has_shape && (!hint->has_shape || hint->rank != t->rank))
        return t;
    oq_vtype *out = OQ_NEW(in->arena, oq_vtype);
    oq_sdim *dims = OQ_NEW_ARRAY(in->arena, oq_sdim, hint->rank + 1);
    if (out == NULL || dims == NULL) {
        in->nomem = true;
        return t;
    }
    *out = *t;
    out->elem_type = t->elem_type != 0 ? t->elem_type : hint->elem_type;
    out->has_shape = hint->has_shape;
    out->rank = hint->rank;
    out->dims = dims;
    for (uint32_t i = 0; i < hint->rank; i++)
        dims[i] = t->has_shape && !oq_sdim_is_unknown(t->dims[i]) ? t->dims[i] : hint->dims[i];
    return out;
}

static void store_symbolic(oq_rctx *c, size_t o) {
    oq_infer *in = c->in;
    const oq_str name = c->node->output.v[o];
    if (name.n == 0)
        return;
    oq_val *v = oq_scope_add(in, c->scope, name);
    oq_vtype *t = OQ_NEW(in->arena, oq_vtype);
    if (v == NULL || t == NULL) {
        in->nomem = true;
        return;
    }
    *t = c->out[o];
    const oq_vtype *type = with_hint(in, t->kind == OQ_V_NONE ? NULL : t, v->hint);
    open_dims open = {c, o, false};
    v->type = oq_vtype_map(in, type, name_symbolic, &open);
    v->made_up = open.used;
    note_made(c, v);
    v->data = c->data[o];
    v->constant = NULL;
}

/* The tensor of a Constant node is read when somebody needs its values. */
static void keep_constant(oq_rctx *c) {
    const oq_node *n = c->node;
    if (!oq_node_is_constant(n) || n->output.n != 1)
        return;
    const oq_attribute *a = oq_r_attr(c, "value");
    oq_val *v = oq_scope_find(c->scope, n->output.v[0]);
    if (v != NULL) {
        v->data = c->data[0];
        v->constant = a != NULL ? a->t : NULL;
    }
}

static void store(oq_rctx *c) {
    const bool follow = !c->plain || c->in->opt.data_prop;
    if (!c->plain) {
        for (size_t o = 0; o < c->n_out; o++) {
            /* After a contradiction only the element types are believed. */
            if (c->failed && (c->out[o].kind == OQ_V_TENSOR || c->out[o].kind == OQ_V_SPARSE)) {
                c->out[o].has_shape = false;
                c->out[o].rank = 0;
            }
            store_symbolic(c, o);
        }
        keep_constant(c);
        return;
    }
    for (size_t o = 0; !c->failed && o < c->n_out; o++) {
        if (!store_plain(c, o))
            return;
        oq_val *v = follow ? oq_scope_find(c->scope, c->node->output.v[o]) : NULL;
        if (v != NULL)
            v->data = c->data[o];
    }
    if (!c->failed)
        keep_constant(c);
}

static int64_t version_of(const oq_scope *s, oq_str domain) {
    uint32_t v = oq_map_find(s->opsets, domain);
    if (v == OQ_MAP_NONE && domain.n == 0)
        v = oq_map_find(s->opsets, OQ_S("ai.onnx"));
    else if (v == OQ_MAP_NONE && oq_domain_is_onnx(domain))
        v = oq_map_find(s->opsets, OQ_S(""));
    return v == OQ_MAP_NONE ? 0 : (int64_t)v;
}

static const oq_function *function_of(oq_rctx *c) {
    if (c->in->functions.count == 0)
        return NULL;
    const oq_node *n = c->node;
    const oq_str key = oq_str_format(c->in->arena, "%.*s:%.*s:%.*s", OQ_STR(n->domain),
                                     OQ_STR(n->op_type), OQ_STR(n->overload));
    if (key.p == NULL) {
        c->in->nomem = true;
        return NULL;
    }
    const uint32_t at = oq_map_find(&c->in->functions, key);
    return at != OQ_MAP_NONE ? c->in->model->proto->functions.v[at] : NULL;
}

static bool is_onnx_domain(oq_str d) {
    return oq_domain_is_onnx(d) || oq_str_is(d, "ai.onnx.ml") ||
           oq_str_is(d, "ai.onnx.preview.training") || oq_str_is(d, "ai.onnx.preview");
}

/* An operator nobody knows: with guess_output_rank its outputs are like input 0. */
static void guess(oq_rctx *c) {
    if (c->in->report.first_no_rule == NULL)
        c->in->report.first_no_rule = c->node;
    if (c->plain || !c->in->opt.guess_output_rank)
        return;
    const oq_vtype *t = oq_r_shape(c, 0);
    for (size_t o = 0; t != NULL && o < c->n_out; o++) {
        oq_r_set_elem(c, o, t->elem_type);
        oq_r_set_rank(c, o, t->rank);
    }
}

static void apply_rule(oq_rctx *c) {
    const oq_node *n = c->node;
    c->opset = version_of(c->scope, n->domain);
    const oq_sop *op = oq_sop_find(n->domain, n->op_type, c->opset);
    const bool is_schema = op != NULL && is_onnx_domain(n->domain);
    const oq_function *f = is_schema ? NULL : function_of(c);
    if (f != NULL) {
        oq_infer_function(c, f);
        return;
    }
    if (op == NULL || (c->plain && !is_schema)) {
        guess(c);
        return;
    }
    if (c->plain && op->onnx == OQ_SOP_ONNX_NO)
        return;
    c->in->unreadable = false;
    op->rule(c);
    if (c->in->unreadable)
        oq_r_fail(c, "values that decide the shape are in external data");
    if (op->fold != NULL && !c->failed && (!c->plain || c->in->opt.data_prop))
        op->fold(c);
}

static bool find_order(oq_infer *in, oq_scope *s) {
    oq_index ix;
    uint32_t *order = NULL;
    OQ_SCRATCH(scratch, in->arena->alloc);
    const oq_index *given = in->opt.index;
    onq_code rc = ONQ_OK;
    if (given == NULL || given->graph != s->graph) {
        rc = oq_index_build(&ix, &scratch, s->graph, NULL, NULL);
        given = &ix;
    }
    if (rc == ONQ_OK)
        rc = oq_topo_order(given, &scratch, &order, NULL);
    if (rc == ONQ_OK) {
        uint32_t *copy = OQ_NEW_ARRAY(in->arena, uint32_t, s->graph->node.n + 1);
        in->nomem = in->nomem || copy == NULL;
        if (copy != NULL && s->graph->node.n > 0)
            memcpy(copy, order, s->graph->node.n * sizeof *copy);
        s->order = copy;
    }
    in->nomem = in->nomem || rc == ONQ_E_NOMEM;
    return !in->nomem;
}

/* The scope of a subgraph; the one of an earlier visit is replaced. */
static oq_scope *sub_scope(oq_rctx *c, oq_graph *g) {
    assert(g != NULL && g != c->scope->graph);
    oq_infer *in = c->in;
    oq_scope *s = OQ_NEW(in->arena, oq_scope);
    oq_graph **key = OQ_NEW(in->arena, oq_graph *);
    if (s == NULL || key == NULL) {
        in->nomem = true;
        return NULL;
    }
    *key = g;
    const oq_str name = {(const char *)key, sizeof *key};
    const uint32_t at = oq_map_find(&in->graphs, name);
    oq_map_init(&s->map, in->arena);
    s->graph = g;
    s->parent = c->scope;
    s->binding = c->scope->binding;
    s->opsets = c->scope->opsets;
    if (at != OQ_MAP_NONE) {
        s->prefix = in->scopes.v[at]->prefix;
        in->scopes.v[at] = s;
        return s;
    }
    s->prefix =
        oq_str_format(in->arena, "%.*s_%u", OQ_STR(c->scope->prefix), c->scope->n_subgraphs++);
    if (s->prefix.p == NULL || !OQ_PUSH(in->arena, &in->scopes, s) ||
        !oq_map_put(&in->graphs, name, (uint32_t)(in->scopes.n - 1))) {
        in->nomem = true;
        return NULL;
    }
    return s;
}

/* Graphs that no rule looked into (of an operator nobody knows, or a function of scores): what they
 * declare is known all the same. */
static bool visit_rest(oq_rctx *c) {
    oq_infer *in = c->in;
    oq_graph_cursor at = {0};
    for (oq_graph *g; (g = oq_node_next_graph(c->node, &at)) != NULL;) {
        const oq_str key = {(const char *)&g, sizeof g};
        if (oq_map_has(&in->graphs, key) || in->depth >= OQ_MAX_SHAPE_DEPTH)
            continue;
        oq_scope *s = sub_scope(c, g);
        if (s == NULL || !oq_scope_fill(in, s))
            return false;
        in->depth++;
        const bool ok = in->plain || oq_infer_nodes(in, s, g->node.v, g->node.n);
        in->depth--;
        if (!ok)
            return false;
    }
    return true;
}

static bool infer_node(oq_infer *in, oq_scope *s, const oq_node *n, size_t index) {
    oq_rctx c = {.in = in,
                 .scope = s,
                 .node = n,
                 .index = index,
                 .plain = in->plain,
                 .ds = &in->dims,
                 .n_in = n->input.n,
                 .n_out = n->output.n};
    c.out = OQ_NEW_ARRAY(in->arena, oq_vtype, c.n_out + 1);
    c.data = OQ_NEW_ARRAY(in->arena, const oq_data *, c.n_out + 1);
    if (c.out == NULL || c.data == NULL) {
        in->nomem = true;
        return false;
    }
    apply_rule(&c);
    store(&c);
    if (!visit_rest(&c)) {
        in->nomem = true;
        return false;
    }
    if (c.failed && in->why[0] == 0) {
        snprintf(in->why, sizeof in->why, "node '%.*s' (%.*s): %s",
                 (int)(n->name.n > 60 ? 60 : n->name.n), n->name.p != NULL ? n->name.p : "",
                 (int)(n->op_type.n > 30 ? 30 : n->op_type.n),
                 n->op_type.p != NULL ? n->op_type.p : "", c.why);
    }
    in->nomem = in->nomem || in->dims.failed;
    return !in->nomem;
}

bool oq_infer_nodes(oq_infer *in, oq_scope *s, oq_node *const *nodes, size_t n) {
    if (!in->plain && s->graph != NULL && !find_order(in, s))
        return false;
    for (size_t i = 0; i < n; i++) {
        const size_t at = s->order != NULL ? s->order[i] : i;
        if (in->budget == 0)
            return true;
        in->budget--;
        if (!infer_node(in, s, nodes[at], at))
            return false;
    }
    return true;
}

oq_graph *oq_r_graph(oq_rctx *c, const char *name) {
    const oq_attribute *a = oq_r_attr(c, name);
    if (a == NULL || a->g == NULL) {
        oq_r_fail(c, "attribute '%s' holds no graph", name);
        return NULL;
    }
    return a->g;
}

static bool is_initializer(const oq_scope *s, oq_str name) {
    const oq_val *v = oq_scope_find(s, name);
    return v != NULL && v->constant != NULL;
}

/* As GraphInferencerImpl::doInferencing checks the number of inputs. */
static bool inputs_fit(oq_rctx *c, const oq_scope *s, const oq_sub *sub) {
    const oq_graph *g = sub->graph;
    const bool old_ir = c->in->model->proto->ir_version.v < 4;
    if (g->input.n < sub->n_in || (!old_ir && c->plain && g->input.n != sub->n_in)) {
        return oq_r_fail(c, "the subgraph has %zu inputs, the node gives %zu", g->input.n,
                         sub->n_in);
    }
    for (size_t i = sub->n_in; i < g->input.n; i++)
        if (!is_initializer(s, g->input.v[i]->name))
            return oq_r_fail(c, "input %zu of the subgraph is not given", i);
    return true;
}

static bool bind_inputs(oq_rctx *c, oq_scope *s, const oq_sub *sub) {
    oq_infer *in = c->in;
    for (size_t i = 0; i < sub->n_in; i++) {
        oq_val *v = oq_scope_find(s, sub->graph->input.v[i]->name);
        if (v == NULL)
            continue;
        if (sub->types[i] != NULL && in->plain) {
            const char *why = NULL;
            const oq_vtype *t = oq_vtype_merge(in, v->type, sub->types[i], &why);
            if (why != NULL)
                return oq_r_fail(c, "input %zu of the subgraph: %s from what is declared", i, why);
            v->type = oq_vtype_map(in, t, name_plain, in);
        } else if (sub->types[i] != NULL) {
            open_dims open = {c, i, false};
            v->type = oq_vtype_map(in, sub->types[i], name_symbolic, &open);
        }
        if (v->info == NULL && v->type != NULL) {
            v->info = v->untyped;
            v->untyped = NULL;
        }
        v->data = !in->plain && sub->data != NULL ? sub->data[i] : NULL;
        v->constant = NULL;
    }
    return true;
}

bool oq_infer_sub(oq_rctx *c, oq_sub *sub) {
    oq_infer *in = c->in;
    oq_graph *g = sub->graph;
    if (g->output.n != sub->n_out)
        return oq_r_fail(c, "the subgraph has %zu outputs, expected %zu", g->output.n, sub->n_out);
    if (in->depth >= OQ_MAX_SHAPE_DEPTH)
        return oq_r_fail(c, "subgraphs are nested more than %d deep", OQ_MAX_SHAPE_DEPTH);
    oq_scope *s = sub_scope(c, g);
    if (s == NULL || !oq_scope_fill(in, s) || !inputs_fit(c, s, sub) || !bind_inputs(c, s, sub))
        return oq_r_fail(c, "out of memory");
    in->depth++;
    const bool ok = oq_infer_nodes(in, s, g->node.v, g->node.n);
    in->depth--;
    for (size_t i = 0; ok && i < g->output.n; i++) {
        const oq_val *v = oq_scope_lookup(s, g->output.v[i]->name);
        sub->outs[i] = v != NULL ? v->type : NULL;
        if (sub->out_data != NULL)
            sub->out_data[i] = v != NULL && !in->plain ? v->data : NULL;
    }
    return ok;
}

static bool collect_opsets(oq_infer *in, oq_map *map, oq_opset *const *v, size_t n) {
    oq_map_init(map, in->arena);
    for (size_t i = 0; i < n; i++) {
        const int64_t version = v[i]->version.v;
        const uint32_t fits = version > 0 && version < INT32_MAX ? (uint32_t)version : 0;
        if (!oq_map_put(map, v[i]->domain, fits)) {
            in->nomem = true;
            return false;
        }
    }
    return true;
}

/* Gives the function's inputs the types and values of the node's. */
static bool bind_call(oq_rctx *c, oq_scope *s, const oq_function *f) {
    for (size_t i = 0; i < f->input.n; i++) {
        oq_val *v = oq_scope_add(c->in, s, f->input.v[i]);
        if (v == NULL)
            return false;
        v->is_input = true;
        v->type = oq_r_type(c, i);
        v->data = oq_r_data(c, i);
    }
    return true;
}

bool oq_infer_function(oq_rctx *c, const oq_function *f) {
    oq_infer *in = c->in;
    if (in->depth >= OQ_MAX_SHAPE_DEPTH)
        return oq_r_fail(c, "functions call each other more than %d deep", OQ_MAX_SHAPE_DEPTH);
    oq_scope *s = OQ_NEW(in->arena, oq_scope);
    oq_binding *b = OQ_NEW(in->arena, oq_binding);
    oq_map *opsets = OQ_NEW(in->arena, oq_map);
    if (s == NULL || b == NULL || opsets == NULL ||
        !collect_opsets(in, opsets, f->opset_import.v, f->opset_import.n)) {
        in->nomem = true;
        return oq_r_fail(c, "out of memory");
    }
    *b = (oq_binding){c->node, f, c->scope->binding};
    oq_map_init(&s->map, in->arena);
    s->binding = b;
    s->opsets = opsets;
    s->prefix = oq_str_format(in->arena, "%.*s_%zu", OQ_STR(c->scope->prefix), c->index);
    if (!bind_call(c, s, f))
        return oq_r_fail(c, "out of memory");
    in->depth++;
    const bool ok = oq_infer_nodes(in, s, f->node.v, f->node.n);
    in->depth--;
    for (size_t o = 0; ok && o < c->n_out && o < f->output.n; o++) {
        const oq_val *v = oq_scope_find(s, f->output.v[o]);
        if (v != NULL) {
            oq_r_set_type(c, o, v->type);
            c->data[o] = v->data;
        }
    }
    return ok;
}
