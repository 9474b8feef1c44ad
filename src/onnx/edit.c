/*
 * edit.c — new nodes and value_infos, adding and removing, renaming uses, unique names.
 *
 * prune.c removes what nothing uses.
 */
#include "onnx/edit.h"

/* ---- nodes ---- */

oq_node *oq_node_new(oq_arena *a, const char *op_type, oq_str name) {
    assert(op_type != NULL);
    oq_node *n = OQ_NEW(a, oq_node);
    if (n == NULL)
        return NULL;
    n->op_type = oq_str_of(op_type);
    n->name = name;
    return n;
}

void oq_node_carry(oq_node *to, const oq_node *from) {
    to->doc_string = from->doc_string;
    to->metadata_props = from->metadata_props;
    to->m.unknown = from->m.unknown;
    to->m.unknown_last = from->m.unknown_last;
}

bool oq_node_share_attributes(oq_arena *a, oq_node *to, const oq_node *from) {
    for (size_t i = 0; i < from->attribute.n; i++)
        if (!OQ_PUSH(a, &to->attribute, from->attribute.v[i]))
            return false;
    return true;
}

bool oq_node_add_input(oq_arena *a, oq_node *n, oq_str name) {
    return OQ_PUSH(a, &n->input, name.p != NULL ? name : OQ_S(""));
}

bool oq_node_add_output(oq_arena *a, oq_node *n, oq_str name) {
    return OQ_PUSH(a, &n->output, name.p != NULL ? name : OQ_S(""));
}

oq_node *oq_node_make(oq_arena *a, const char *op_type, oq_str name, const oq_str *in, size_t n_in,
                      const oq_str *out, size_t n_out) {
    assert((in != NULL || n_in == 0) && (out != NULL || n_out == 0));
    oq_node *n = oq_node_new(a, op_type, name);
    if (n == NULL)
        return NULL;
    for (size_t i = 0; i < n_in; i++)
        if (!oq_node_add_input(a, n, in[i]))
            return NULL;
    for (size_t i = 0; i < n_out; i++)
        if (!oq_node_add_output(a, n, out[i]))
            return NULL;
    return n;
}

/* ---- a graph's lists ---- */

bool oq_graph_add_node(oq_arena *a, oq_graph *g, oq_node *n) {
    assert(n != NULL);
    return OQ_PUSH(a, &g->node, n);
}

bool oq_graph_set_nodes(oq_arena *a, oq_graph *g, oq_node *const *v, size_t n) {
    assert(v == NULL || v != g->node.v);
    g->node.n = 0;
    for (size_t i = 0; i < n; i++)
        if (!oq_graph_add_node(a, g, v[i]))
            return false;
    return true;
}

bool oq_graph_insert_node(oq_arena *a, oq_graph *g, size_t at, oq_node *n) {
    assert(at <= g->node.n);
    if (!OQ_PUSH(a, &g->node, n))
        return false;
    memmove(&g->node.v[at + 1], &g->node.v[at], (g->node.n - 1 - at) * sizeof *g->node.v);
    g->node.v[at] = n;
    return true;
}

bool oq_graph_add_init(oq_arena *a, oq_graph *g, oq_tensor *t) {
    assert(t != NULL);
    return OQ_PUSH(a, &g->initializer, t);
}

bool oq_graph_add_inits(oq_arena *a, oq_graph *g, oq_tensor *const *v, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!oq_graph_add_init(a, g, v[i]))
            return false;
    return true;
}

oq_tensor *oq_graph_find_init(const oq_graph *g, oq_str name) {
    for (size_t i = 0; i < g->initializer.n; i++)
        if (oq_str_eq(g->initializer.v[i]->name, name))
            return g->initializer.v[i];
    return NULL;
}

bool oq_graph_remove_init(oq_graph *g, oq_str name) {
    for (size_t i = 0; i < g->initializer.n; i++) {
        if (oq_str_eq(g->initializer.v[i]->name, name)) {
            OQ_REMOVE_AT(&g->initializer, i);
            return true;
        }
    }
    return false;
}

oq_value_info *oq_graph_find_info(const oq_graph *g, oq_str name) {
    for (size_t i = 0; i < g->input.n; i++)
        if (oq_str_eq(g->input.v[i]->name, name))
            return g->input.v[i];
    for (size_t i = 0; i < g->output.n; i++)
        if (oq_str_eq(g->output.v[i]->name, name))
            return g->output.v[i];
    for (size_t i = 0; i < g->value_info.n; i++)
        if (oq_str_eq(g->value_info.v[i]->name, name))
            return g->value_info.v[i];
    return NULL;
}

void oq_graph_remove_nodes(oq_graph *g, const bool *drop) {
    size_t kept = 0;
    for (size_t i = 0; i < g->node.n; i++)
        if (!drop[i])
            g->node.v[kept++] = g->node.v[i];
    g->node.n = kept;
}

oq_value_info *oq_value_info_new(oq_arena *a, oq_str name, int32_t elem_type, const int64_t *dims,
                                 size_t rank, bool has_shape) {
    oq_value_info *info = OQ_NEW(a, oq_value_info);
    oq_type *type = OQ_NEW(a, oq_type);
    oq_tensor_type *tensor = OQ_NEW(a, oq_tensor_type);
    if (info == NULL || type == NULL || tensor == NULL)
        return NULL;
    info->name = name;
    info->type = type;
    type->tensor_type = tensor;
    tensor->elem_type = OQ_I32(elem_type);
    if (!has_shape)
        return info;
    tensor->shape = OQ_NEW(a, oq_shape);
    if (tensor->shape == NULL)
        return NULL;
    for (size_t i = 0; i < rank; i++) {
        oq_dim *dim = OQ_NEW(a, oq_dim);
        if (dim == NULL || !OQ_PUSH(a, &tensor->shape->dim, dim))
            return NULL;
        if (dims[i] >= 0)
            dim->dim_value = OQ_I64(dims[i]);
    }
    return info;
}

/* ---- renaming uses ---- */

typedef struct renames {
    const oq_map *map;
    const oq_str *to;
} renames;

static onq_code replace_mention(void *ctx, oq_str *name, onq_error *err OQ_UNUSED) {
    const renames *r = ctx;
    const uint32_t i = oq_map_find(r->map, *name);
    if (i != OQ_MAP_NONE)
        *name = r->to[i];
    return ONQ_OK;
}

onq_code oq_graph_replace_many(oq_model *m, oq_graph *g, const oq_map *map, const oq_str *to,
                               onq_error *err) {
    renames r = {map, to};
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        for (size_t k = 0; k < n->input.n; k++)
            if (n->input.v[k].n != 0)
                OQ_TRY(replace_mention(&r, &n->input.v[k], err));
        OQ_TRY(oq_walk_outer_names(&m->env->alloc, n, replace_mention, &r, err));
    }
    return ONQ_OK;
}
