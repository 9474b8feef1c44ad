/*
 * scope.c — the values of one graph or function body: declaring what the graph says about them.
 *
 * Plain mode does as onnx's ShapeInferenceImplBase: value_infos, inputs and outputs give types that
 * are merged with what is inferred. Symbolic mode trusts inputs and initializers only; what
 * value_infos and outputs say is a hint, used where inference finds nothing, because it may be left
 * over from before the model was edited.
 */
#include "shape/infer.h"

oq_val *oq_scope_find(const oq_scope *s, oq_str name) {
    const uint32_t at = oq_map_find(&s->map, name);
    return at != OQ_MAP_NONE ? s->vals.v[at] : NULL;
}

oq_val *oq_scope_lookup(const oq_scope *s, oq_str name) {
    for (; s != NULL; s = s->parent) {
        oq_val *v = oq_scope_find(s, name);
        if (v != NULL)
            return v;
    }
    return NULL;
}

oq_val *oq_scope_add(oq_infer *in, oq_scope *s, oq_str name) {
    oq_val *v = oq_scope_find(s, name);
    if (v != NULL)
        return v;
    v = OQ_NEW(in->arena, oq_val);
    if (v == NULL || !OQ_PUSH(in->arena, &s->vals, v) ||
        !oq_map_put(&s->map, name, (uint32_t)(s->vals.n - 1))) {
        in->nomem = true;
        return NULL;
    }
    assert(oq_scope_find(s, name) == v);
    v->name = name;
    return v;
}

/* NULL when memory is short. */
static oq_val *declare(oq_infer *in, oq_scope *s, oq_value_info *vi) {
    oq_val *v = oq_scope_add(in, s, vi->name);
    if (v == NULL)
        return NULL;
    if (vi->type == NULL) {
        v->untyped = vi;
        return v;
    }
    v->info = vi;
    const oq_vtype *t = oq_vtype_of(in, vi->type, 0);
    if (in->plain)
        v->type = t;
    else
        v->hint = t;
    return in->nomem ? NULL : v;
}

/* For oq_vtype_map: a number for a dimension that is given, or a name for one that is open. */
typedef struct input_names {
    oq_infer *in;
    oq_str name;
    const oq_given_shape *given; /* or NULL */
} input_names;

static oq_sdim name_input_dim(void *ctx, size_t axis, oq_sdim d) {
    const input_names *x = ctx;
    assert(x->given == NULL || axis < x->given->rank);
    if (x->given != NULL)
        return oq_sdim_num(x->given->dims[axis]);
    if (!oq_sdim_is_unknown(d))
        return oq_infer_merged(x->in, d);
    const oq_str name = oq_str_format(x->in->arena, "%.*s_d%zu", OQ_STR(x->name), axis);
    if (name.p == NULL) {
        x->in->nomem = true;
        return d;
    }
    return oq_infer_merged(x->in, oq_sdim_name(&x->in->dims, name, 1));
}

/* What the caller gives for an input of the model, if it fits; else NULL. */
static const oq_given_shape *find_given(const oq_infer *in, const oq_scope *s, oq_str name,
                                        const oq_vtype *t) {
    if (s->graph != in->model->proto->graph || t == NULL || t->kind != OQ_V_TENSOR || !t->has_shape)
        return NULL;
    for (size_t i = 0; i < in->opt.n_given; i++)
        if (oq_str_eq(in->opt.given[i].name, name) && in->opt.given[i].rank == t->rank)
            return &in->opt.given[i];
    return NULL;
}

static bool declare_input(oq_infer *in, oq_scope *s, oq_value_info *vi) {
    oq_val *v = in->plain ? declare(in, s, vi) : oq_scope_add(in, s, vi->name);
    if (v == NULL)
        return false;
    v->is_input = true;
    if (in->plain)
        return true;
    v->info = vi;
    const oq_vtype *declared = oq_vtype_of(in, vi->type, 1);
    input_names names = {in, vi->name, find_given(in, s, vi->name, declared)};
    v->type = oq_vtype_map(in, declared, name_input_dim, &names);
    return !in->nomem;
}

static bool declare_initializer(oq_infer *in, oq_scope *s, oq_tensor *t) {
    oq_val *v = oq_scope_add(in, s, t->name);
    if (v == NULL)
        return false;
    v->constant = t;
    v->data = NULL;
    const bool typed = v->type != NULL || (in->plain && v->info != NULL);
    if (!in->plain || (!typed && in->model->proto->ir_version.v >= 4))
        v->type = oq_vtype_of_tensor(in, t);
    return !in->nomem;
}

static bool declare_sparse(oq_infer *in, oq_scope *s, const oq_sparse *t) {
    if (t->values == NULL || t->dims.n > OQ_MAX_RANK)
        return true;
    oq_val *v = oq_scope_add(in, s, t->values->name);
    oq_vtype *type = OQ_NEW(in->arena, oq_vtype);
    oq_sdim *dims = OQ_NEW_ARRAY(in->arena, oq_sdim, t->dims.n + 1);
    if (v == NULL || type == NULL || dims == NULL) {
        in->nomem = true;
        return false;
    }
    if (v->type != NULL)
        return true;
    for (size_t i = 0; i < t->dims.n; i++)
        dims[i] = oq_sdim_num(t->dims.v[i]);
    *type = (oq_vtype){.kind = OQ_V_SPARSE,
                       .elem_type = t->values->data_type.v,
                       .has_shape = true,
                       .rank = (uint32_t)t->dims.n,
                       .dims = dims};
    v->type = type;
    return true;
}

bool oq_scope_fill(oq_infer *in, oq_scope *s) {
    oq_graph *g = s->graph;
    bool ok = true;
    /* onnx's order; but names are first seen on inputs, which say that they are at least 1. */
    for (size_t i = 0; ok && !in->plain && i < g->input.n; i++)
        ok = declare_input(in, s, g->input.v[i]);
    for (size_t i = 0; ok && i < g->value_info.n; i++)
        ok = declare(in, s, g->value_info.v[i]) != NULL;
    for (size_t i = 0; ok && in->plain && i < g->input.n; i++)
        ok = declare_input(in, s, g->input.v[i]);
    for (size_t i = 0; ok && i < g->output.n; i++) {
        const size_t before = s->vals.n;
        oq_val *v = declare(in, s, g->output.v[i]);
        ok = v != NULL;
        if (ok && s->vals.n > before)
            v->only_output = true;
    }
    for (size_t i = 0; ok && i < g->initializer.n; i++)
        ok = declare_initializer(in, s, g->initializer.v[i]);
    for (size_t i = 0; ok && i < g->sparse_initializer.n; i++)
        ok = declare_sparse(in, s, g->sparse_initializer.v[i]);
    return ok;
}
