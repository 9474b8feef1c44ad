/*
 * check_graph.c — the structure of one graph and of the graphs inside it.
 *
 * Nodes need not be in topological order (runtimes sort them), but there must be one. A name of
 * an outer graph may be defined again inside: the inner one counts there.
 */
#include "base/limits.h"
#include "onnx/attr.h"
#include "onnx/check/check_parts.h"
#include "onnx/dtype.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"

enum {
    ATTRIBUTES_FEW = 16, /* up to here comparing all pairs is cheaper than a map */
};

/* ---- attributes ---- */

static bool holds_its_type(const oq_attribute *a) {
    switch (a->type.v) {
    case OQ_ATTR_TENSOR:
        return a->t != NULL;
    case OQ_ATTR_GRAPH:
        return a->g != NULL;
    case OQ_ATTR_SPARSE_TENSOR:
        return a->sparse_tensor != NULL;
    case OQ_ATTR_TYPE_PROTO:
        return a->tp != NULL;
    default:
        return true;
    }
}

/* ONNX has INT64 alone; the runtime writes the narrowest type that holds them, and reads all. */
static bool is_index_type(oq_dtype dt) {
    return dt == OQ_INT64 || dt == OQ_INT32 || dt == OQ_INT16 || dt == OQ_INT8;
}

/* Each index within the dims: one number for a place in the flat tensor, or a row of coordinates.
 * (The runtime writes values where the indices say.) */
static onq_code check_indices(oq_check *c, const oq_sparse *s, onq_error *err) {
    const size_t rank = s->indices->dims.n == 1 ? 1 : s->dims.n;
    const oq_dtype dt = (oq_dtype)s->indices->data_type.v;
    oq_span data;
    uint64_t count = 0;
    int64_t total = 1;
    for (size_t i = 0; i < s->dims.n; i++)
        if (__builtin_mul_overflow(total, s->dims.v[i], &total))
            return oq_fail(err, ONQ_E_INVALID, "sparse tensor '%.*s': its size overflows",
                           OQ_STR(s->values->name));
    OQ_TRY(oq_tensor_count(s->indices, &count, err));
    OQ_TRY(oq_model_data(c->m, s->indices, &data, err));
    for (uint64_t i = 0; i < count; i++) {
        assert(rank > 0); /* rows of no coordinates hold nothing */
        const int64_t at = oq_raw_get_int(dt, data.p, i);
        const int64_t end = s->indices->dims.n == 1 ? total : s->dims.v[i % rank];
        if (at < 0 || at >= end)
            return oq_fail(err, ONQ_E_INVALID,
                           "sparse tensor '%.*s': index %lld is not within 0 and %lld",
                           OQ_STR(s->values->name), (long long)at, (long long)end - 1);
    }
    return ONQ_OK;
}

static onq_code check_sparse(oq_check *c, const oq_sparse *s, onq_error *err) {
    if (s->values == NULL || s->indices == NULL)
        return oq_fail(err, ONQ_E_INVALID, "a sparse tensor lacks its %s",
                       s->values == NULL ? "values" : "indices");
    const oq_tensor *values = s->values, *indices = s->indices;
    for (size_t i = 0; i < s->dims.n; i++) {
        if (s->dims.v[i] < 0)
            return oq_fail(err, ONQ_E_INVALID, "sparse tensor '%.*s': dimension %zu is %lld",
                           OQ_STR(values->name), i, (long long)s->dims.v[i]);
    }
    if (values->dims.n != 1 || !is_index_type((oq_dtype)indices->data_type.v))
        return oq_fail(err, ONQ_E_INVALID,
                       "sparse tensor '%.*s': it needs values of one dimension and INT64 indices",
                       OQ_STR(values->name));
    const bool linear = indices->dims.n == 1;
    const bool pairs = indices->dims.n == 2 && indices->dims.v[1] == (int64_t)s->dims.n;
    if ((!linear && !pairs) || indices->dims.v[0] != values->dims.v[0])
        return oq_fail(
            err, ONQ_E_INVALID,
            "sparse tensor '%.*s': the shape of its indices fits neither its %lld values nor its "
            "%zu dimensions",
            OQ_STR(values->name), (long long)values->dims.v[0], s->dims.n);
    return check_indices(c, s, err);
}

static onq_code check_attribute(oq_check *c, const oq_attribute *a, onq_error *err) {
    if (a->name.n == 0)
        return oq_fail(err, ONQ_E_INVALID, "an attribute without a name");
    if (a->type.v < 0 || a->type.v > OQ_ATTR_TYPE_PROTOS)
        return oq_fail(err, ONQ_E_INVALID, "attribute '%.*s' has unknown type %d", OQ_STR(a->name),
                       (int)a->type.v);
    if (a->ref_attr_name.n == 0 && !holds_its_type(a))
        return oq_fail(err, ONQ_E_INVALID, "attribute '%.*s' is empty", OQ_STR(a->name));
    if (a->sparse_tensor != NULL)
        OQ_TRY(check_sparse(c, a->sparse_tensor, err));
    for (size_t i = 0; i < a->sparse_tensors.n; i++)
        OQ_TRY(check_sparse(c, a->sparse_tensors.v[i], err));
    return ONQ_OK;
}

static onq_code check_attributes(oq_check *c, const oq_node *n, onq_error *err) {
    oq_map seen;
    const bool many = n->attribute.n > ATTRIBUTES_FEW;
    if (many)
        oq_map_init(&seen, &c->arena);
    for (size_t i = 0; i < n->attribute.n; i++) {
        const oq_attribute *a = n->attribute.v[i];
        OQ_TRY(check_attribute(c, a, err));
        bool again = many && oq_map_has(&seen, a->name);
        for (size_t k = 0; !many && k < i && !again; k++)
            again = oq_str_eq(a->name, n->attribute.v[k]->name);
        if (again)
            return oq_fail(err, ONQ_E_INVALID, "attribute '%.*s' occurs twice", OQ_STR(a->name));
        if (many && !oq_map_put(&seen, a->name, 0))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* ---- types ---- */

static onq_code check_elem(int32_t type, const char *what, onq_error *err) {
    if (type != OQ_UNDEFINED && oq_dtype_find(type) == NULL)
        return oq_fail(err, ONQ_E_INVALID, "unknown %s type %d", what, (int)type);
    return ONQ_OK;
}

/* Sequences, optionals and maps hold one type each, so a type is a chain, not a tree. */
static onq_code check_type(const oq_type *t, onq_error *err) {
    while (t != NULL) {
        const oq_tensor_type *tensor =
            t->tensor_type != NULL ? t->tensor_type : t->sparse_tensor_type;
        if (tensor != NULL)
            OQ_TRY(check_elem(tensor->elem_type.v, "element", err));
        if (tensor != NULL && tensor->shape != NULL && tensor->shape->dim.n > OQ_MAX_AXES)
            return oq_fail(err, ONQ_E_LIMIT, "%zu axes, and %d is the most", tensor->shape->dim.n,
                           OQ_MAX_AXES);
        if (t->map_type != NULL)
            OQ_TRY(check_elem(t->map_type->key_type.v, "key", err));
        t = t->sequence_type != NULL   ? t->sequence_type->elem_type
            : t->optional_type != NULL ? t->optional_type->elem_type
            : t->map_type != NULL      ? t->map_type->value_type
                                       : NULL;
    }
    return ONQ_OK;
}

static onq_code check_info(const oq_value_info *v, const char *what, onq_error *err) {
    const onq_code rc = check_type(v->type, err);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s '%.*s'", what, OQ_STR(v->name));
}

static onq_code check_infos(const oq_graph *g, onq_error *err) {
    for (size_t i = 0; i < g->input.n; i++)
        OQ_TRY(check_info(g->input.v[i], "input", err));
    for (size_t i = 0; i < g->output.n; i++)
        OQ_TRY(check_info(g->output.v[i], "output", err));
    for (size_t i = 0; i < g->value_info.n; i++)
        OQ_TRY(check_info(g->value_info.v[i], "value_info", err));
    return ONQ_OK;
}

/* ---- names ---- */

static onq_code check_given(oq_check *c, const oq_index *ix, onq_error *err) {
    const oq_graph *g = ix->graph;
    for (size_t i = 0; i < g->input.n; i++) {
        const oq_value_info *v = g->input.v[i];
        if (v->name.n == 0)
            return oq_fail(err, ONQ_E_INVALID, "graph input %zu has no name", i);
        if (oq_index_find(ix, v->name)->info != v)
            return oq_fail(err, ONQ_E_INVALID, "graph input '%.*s' occurs twice", OQ_STR(v->name));
    }
    for (size_t i = 0; i < g->initializer.n; i++) {
        const oq_tensor *t = g->initializer.v[i];
        if (t->name.n == 0)
            return oq_fail(err, ONQ_E_INVALID, "initializer %zu has no name", i);
        if (oq_index_find(ix, t->name)->init != t)
            return oq_fail(err, ONQ_E_INVALID, "initializer '%.*s' occurs twice", OQ_STR(t->name));
    }
    for (size_t i = 0; i < g->sparse_initializer.n; i++) {
        const oq_sparse *s = g->sparse_initializer.v[i];
        OQ_TRY(check_sparse(c, s, err));
        const oq_value *v = oq_index_find(ix, s->values->name);
        if (v == NULL)
            return oq_fail(err, ONQ_E_INVALID, "sparse initializer %zu has no name", i);
        if (v->sparse_init != s || v->init != NULL)
            return oq_fail(err, ONQ_E_INVALID, "initializer '%.*s' occurs twice", OQ_STR(v->name));
    }
    return ONQ_OK;
}

static onq_code check_outputs_of(const oq_index *ix, size_t node, onq_error *err) {
    const oq_node *n = ix->graph->node.v[node];
    /* Every operator of ONNX has one; those of others may have none. */
    if (n->output.n == 0 && oq_domain_is_onnx(n->domain))
        return oq_fail(err, ONQ_E_INVALID, "the node has no output");
    for (size_t k = 0; k < n->output.n; k++) {
        const oq_str name = n->output.v[k];
        if (name.n == 0)
            continue;
        const oq_value *v = oq_index_find(ix, name);
        if (v->is_input || v->init != NULL || v->sparse_init != NULL)
            return oq_fail(err, ONQ_E_INVALID, "output '%.*s' has the name of %s", OQ_STR(name),
                           v->is_input ? "a graph input" : "an initializer");
        if (v->producer == node && v->producer_slot == k)
            continue;
        const oq_node *other = ix->graph->node.v[v->producer];
        return oq_fail(err, ONQ_E_INVALID, "output '%.*s' is also an output of node '%.*s' (%.*s)",
                       OQ_STR(name), OQ_STR(oq_node_label(other)), OQ_STR(other->op_type));
    }
    return ONQ_OK;
}

static onq_code check_inputs_of(const oq_index *ix, const oq_node *n, onq_error *err) {
    for (size_t k = 0; k < n->input.n; k++) {
        const oq_str name = n->input.v[k];
        if (name.n != 0 && oq_index_lookup(ix, name) == NULL)
            return oq_fail(
                err, ONQ_E_INVALID,
                "input '%.*s' is not a graph input, an initializer or an output of a node",
                OQ_STR(name));
    }
    return ONQ_OK;
}

/* ---- nodes ---- */

static bool is_imported(const oq_imports *imports, oq_str domain) {
    if (imports->implied && oq_domain_is_onnx(domain))
        return true;
    for (size_t i = 0; i < imports->n; i++)
        if (oq_str_eq(oq_domain_plain(imports->v[i]->domain), oq_domain_plain(domain)))
            return true;
    return false;
}

/* Control flow is nothing without its graphs. In a function they may come with the call. */
static onq_code check_bodies(const oq_node *n, onq_error *err) {
    static const struct {
        const char *op, *graphs[2];
    } rows[] = {{"If", {"then_branch", "else_branch"}},
                {"Loop", {"body"}},
                {"Scan", {"body"}},
                {"SequenceMap", {"body"}}};
    size_t row = 0;
    while (row < OQ_COUNT(rows) && !oq_str_is(n->op_type, rows[row].op))
        row++;
    if (row == OQ_COUNT(rows) || !oq_domain_is_onnx(n->domain))
        return ONQ_OK;
    for (size_t i = 0; i < OQ_COUNT(rows[row].graphs) && rows[row].graphs[i] != NULL; i++) {
        const oq_attribute *a = oq_attr_find(n, rows[row].graphs[i]);
        if (a == NULL || (a->g == NULL && a->ref_attr_name.n == 0))
            return oq_fail(err, ONQ_E_INVALID, "it has no graph '%s'", rows[row].graphs[i]);
    }
    return ONQ_OK;
}

static onq_code check_names(const oq_strs *names, size_t from, const char *what, onq_error *err) {
    for (size_t i = from; i < names->n; i++)
        if (names->v[i].n == 0)
            return oq_fail(err, ONQ_E_INVALID, "%s %zu has no name (the runtime would crash)", what,
                           i);
    return ONQ_OK;
}

/* Some operators take, or make, as many tensors as one likes. Of these none can be left out, nor of
 * the outputs of a BatchNormalization that trains; and some inputs may be absent, but not there
 * without a name. The runtime crashes on all of this. */
static onq_code check_lists(const oq_node *n, onq_error *err) {
    enum { NONE = UINT8_MAX };
    static const struct {
        const char *op;
        uint8_t inputs, outputs; /* where the list begins */
    } rows[] = {{"Concat", 0, NONE},
                {"DFT", 2, NONE},
                {"Einsum", 0, NONE},
                {"If", NONE, 0},
                {"LayerNormalization", 2, NONE},
                {"Loop", 2, 0},
                {"Max", 0, NONE},
                {"Mean", 0, NONE},
                {"Min", 0, NONE},
                {"Scan", 1, 0},
                {"SequenceConstruct", 0, NONE},
                {"SequenceMap", 1, 0},
                {"Split", NONE, 0},
                {"Sum", 0, NONE}};
    size_t row = 0;
    while (row < OQ_COUNT(rows) && !oq_str_is(n->op_type, rows[row].op))
        row++;
    if (oq_domain_is_onnx(n->domain) && oq_str_is(n->op_type, "BatchNormalization") &&
        oq_attr_int(n, "training_mode", 0) != 0)
        return check_names(&n->output, 0, "output", err);
    if (row == OQ_COUNT(rows) || !oq_domain_is_onnx(n->domain))
        return ONQ_OK;
    if (rows[row].inputs != NONE)
        OQ_TRY(check_names(&n->input, rows[row].inputs, "input", err));
    return rows[row].outputs != NONE ? check_names(&n->output, rows[row].outputs, "output", err)
                                     : ONQ_OK;
}

static onq_code check_node(oq_check *c, const oq_index *ix, size_t i, const oq_imports *imports,
                           onq_error *err) {
    const oq_node *n = ix->graph->node.v[i];
    if (n->op_type.n == 0)
        return oq_fail(err, ONQ_E_INVALID, "the node has no op_type");
    if (imports != NULL && !is_imported(imports, n->domain))
        return oq_fail(err, ONQ_E_INVALID, "the opset imports have no domain '%.*s'",
                       OQ_STR(n->domain));
    OQ_TRY(check_attributes(c, n, err));
    OQ_TRY(check_bodies(n, err));
    OQ_TRY(check_lists(n, err));
    OQ_TRY(check_outputs_of(ix, i, err));
    return check_inputs_of(ix, n, err);
}

static onq_code check_graph(oq_check *c, oq_graph *g, const oq_index *parent,
                            const oq_imports *imports, int depth, onq_error *err);

static onq_code check_inner(oq_check *c, const oq_index *ix, oq_node *n, const oq_imports *imports,
                            int depth, onq_error *err) {
    oq_graph_cursor at = {0};
    for (oq_graph *sub; (sub = oq_node_next_graph(n, &at)) != NULL;) {
        OQ_TRY_IN(check_graph(c, sub, ix, imports, depth + 1, err), err, "inner graph '%.*s'",
                  OQ_STR(sub->name));
    }
    return ONQ_OK;
}

static bool is_utf8(oq_str s) {
    for (size_t at = 0, n; at < s.n; at += n)
        if ((n = oq_utf8_len(s.p + at, s.n - at)) == 0)
            return false;
    return true;
}

/* The runtime takes any bytes for a name; Python cannot read what has them. */
static onq_code check_spelling(const oq_index *ix, onq_error *err) {
    for (size_t i = 0; i < ix->values.n; i++)
        if (!is_utf8(ix->values.v[i].name))
            return oq_fail(err, ONQ_E_INVALID, "the name of tensor '%.*s' is not valid UTF-8",
                           OQ_STR(ix->values.v[i].name));
    for (size_t i = 0; i < ix->graph->node.n; i++) {
        const oq_node *n = ix->graph->node.v[i];
        if (!is_utf8(n->name) || !is_utf8(n->op_type) || !is_utf8(n->domain))
            return oq_fail(err, ONQ_E_INVALID,
                           "node '%.*s' (%.*s): name, type or domain is not valid UTF-8",
                           OQ_STR(oq_node_label(n)), OQ_STR(n->op_type));
    }
    return ONQ_OK;
}

static onq_code check_nodes(oq_check *c, const oq_index *ix, const oq_imports *imports, int depth,
                            onq_error *err) {
    for (size_t i = 0; i < ix->graph->node.n; i++) {
        oq_node *n = ix->graph->node.v[i];
        onq_code rc = check_node(c, ix, i, imports, err);
        if (rc == ONQ_OK)
            rc = check_inner(c, ix, n, imports, depth, err);
        OQ_TRY(oq_node_blame(n, rc, err));
    }
    return ONQ_OK;
}

static onq_code check_graph(oq_check *c, oq_graph *g, const oq_index *parent,
                            const oq_imports *imports, int depth, onq_error *err) {
    if (depth > OQ_MAX_GRAPH_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "graphs are nested more than %d deep", OQ_MAX_GRAPH_DEPTH);
    oq_index own = {.arena = &c->arena};
    oq_index *ix = c->main != NULL && g == c->m->proto->graph ? c->main : &own;
    OQ_TRY(oq_index_build(ix, ix->arena, g, parent, err));
    OQ_TRY(check_spelling(ix, err));
    OQ_TRY(check_infos(g, err));
    OQ_TRY(check_given(c, ix, err));
    OQ_TRY(check_nodes(c, ix, imports, depth, err));
    for (size_t i = 0; i < g->output.n; i++) {
        const oq_str name = g->output.v[i]->name;
        if (name.n == 0)
            return oq_fail(err, ONQ_E_INVALID, "graph output %zu has no name", i);
        if (oq_index_lookup(ix, name) == NULL)
            return oq_fail(err, ONQ_E_INVALID, "graph output '%.*s' is not an output of any node",
                           OQ_STR(name));
    }
    uint32_t *order = NULL;
    return oq_topo_order(ix, &c->arena, &order, err);
}

onq_code oq_check_graph(oq_check *c, oq_graph *g, const oq_imports *imports, onq_error *err) {
    return check_graph(c, g, NULL, imports, 1, err);
}

/* A function's body as a graph: its inputs and outputs are names without types. */
static bool name_list(oq_arena *a, const oq_strs *names, oq_value_info ***out) {
    *out = OQ_NEW_ARRAY(a, oq_value_info *, names->n);
    oq_value_info *infos = OQ_NEW_ARRAY(a, oq_value_info, names->n);
    if (*out == NULL || infos == NULL)
        return false;
    for (size_t i = 0; i < names->n; i++) {
        infos[i].name = names->v[i];
        (*out)[i] = &infos[i];
    }
    return true;
}

onq_code oq_check_function(oq_check *c, oq_function *f, const oq_imports *imports, onq_error *err) {
    oq_graph *g = OQ_NEW(&c->arena, oq_graph);
    if (g == NULL || !name_list(&c->arena, &f->input, &g->input.v) ||
        !name_list(&c->arena, &f->output, &g->output.v))
        return oq_fail_nomem(err);
    g->input.n = f->input.n;
    g->output.n = f->output.n;
    g->node.v = f->node.v;
    g->node.n = f->node.n;
    g->value_info.v = f->value_info.v;
    g->value_info.n = f->value_info.n;
    for (size_t i = 0; i < f->attribute_proto.n; i++)
        OQ_TRY(check_attribute(c, f->attribute_proto.v[i], err));
    return check_graph(c, g, NULL, imports, 1, err);
}
