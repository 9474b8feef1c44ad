/*
 * shape_write.c — results of inference into the model, as onnx's infer_shapes leaves them: types of
 * inputs and outputs completed, value_infos merged, new ones added in the order of the nodes.
 */
#include "shape/infer.h"

static bool set_dim(oq_arena *a, oq_dim *m, oq_sdim d) {
    m->dim_value = (oq_opt_i64){0};
    m->dim_param = (oq_str){0};
    if (oq_sdim_is_num(d)) {
        m->dim_value = OQ_I64(d.n);
    } else if (!oq_sdim_is_unknown(d)) {
        m->dim_param = oq_sdim_text(a, d);
        return m->dim_param.p != NULL;
    }
    return true;
}

static bool set_tensor(oq_arena *a, oq_tensor_type *m, const oq_vtype *t) {
    if (t->elem_type != 0 || !m->elem_type.has)
        m->elem_type = OQ_I32(t->elem_type);
    if (!t->has_shape)
        return true;
    if (m->shape == NULL || m->shape->dim.n != t->rank) {
        m->shape = OQ_NEW(a, oq_shape);
        for (uint32_t i = 0; m->shape != NULL && i < t->rank; i++) {
            oq_dim *d = OQ_NEW(a, oq_dim);
            if (d == NULL || !OQ_PUSH(a, &m->shape->dim, d))
                return false;
        }
    }
    bool ok = m->shape != NULL;
    for (uint32_t i = 0; ok && i < t->rank; i++)
        ok = set_dim(a, m->shape->dim.v[i], t->dims[i]);
    return ok;
}

static bool set_inner(oq_arena *a, oq_type **m, const oq_vtype *t) {
    if (t == NULL)
        return true;
    if (*m == NULL) {
        *m = oq_vtype_to_message(a, t);
        return *m != NULL;
    }
    return oq_vtype_update(a, *m, t);
}

#define ENSURE(field, T) ((field) != NULL || ((field) = OQ_NEW(a, T)) != NULL)

bool oq_vtype_update(oq_arena *a, oq_type *m, const oq_vtype *t) {
    switch (t->kind) {
    case OQ_V_TENSOR:
        return ENSURE(m->tensor_type, oq_tensor_type) && set_tensor(a, m->tensor_type, t);
    case OQ_V_SPARSE:
        return ENSURE(m->sparse_tensor_type, oq_tensor_type) &&
               set_tensor(a, m->sparse_tensor_type, t);
    case OQ_V_SEQUENCE:
        return ENSURE(m->sequence_type, oq_sequence_type) &&
               set_inner(a, &m->sequence_type->elem_type, t->inner);
    case OQ_V_OPTIONAL:
        return ENSURE(m->optional_type, oq_sequence_type) &&
               set_inner(a, &m->optional_type->elem_type, t->inner);
    case OQ_V_MAP:
        if (!ENSURE(m->map_type, oq_map_type))
            return false;
        m->map_type->key_type = OQ_I32(t->elem_type);
        return set_inner(a, &m->map_type->value_type, t->inner);
    case OQ_V_OPAQUE:
    case OQ_V_NONE:
        break;
    }
    return true;
}

oq_type *oq_vtype_to_message(oq_arena *a, const oq_vtype *t) {
    oq_type *m = OQ_NEW(a, oq_type);
    return m != NULL && oq_vtype_update(a, m, t) ? m : NULL;
}

static bool is_case(const oq_type *m, const oq_vtype *t) {
    return (t->kind == OQ_V_TENSOR && m->tensor_type != NULL) ||
           (t->kind == OQ_V_SPARSE && m->sparse_tensor_type != NULL) ||
           (t->kind == OQ_V_SEQUENCE && m->sequence_type != NULL) ||
           (t->kind == OQ_V_OPTIONAL && m->optional_type != NULL) ||
           (t->kind == OQ_V_MAP && m->map_type != NULL);
}

/* Into a value_info that is there; one of another kind is replaced. */
static bool write_into(oq_arena *a, oq_value_info *vi, const oq_vtype *t) {
    if (vi->type != NULL && is_case(vi->type, t))
        return oq_vtype_update(a, vi->type, t);
    vi->type = oq_vtype_to_message(a, t);
    return vi->type != NULL;
}

static bool is_known(const oq_vtype *t) {
    return t != NULL && t->kind != OQ_V_NONE && t->kind != OQ_V_OPAQUE;
}

/* A value without a value_info. onnx lists an output that has no type as a value_info too, and
 * symbolic inference lists every output that a node makes. */
static bool write_added(oq_arena *a, oq_graph *g, const oq_val *v) {
    if (v->untyped != NULL && !write_into(a, v->untyped, v->type))
        return false;
    oq_value_info *vi = OQ_NEW(a, oq_value_info);
    if (vi == NULL)
        return false;
    vi->name = v->name;
    return write_into(a, vi, v->type) && OQ_PUSH(a, &g->value_info, vi);
}

static bool write_scope(oq_arena *a, const oq_scope *s) {
    for (size_t i = 0; i < s->vals.n; i++) {
        const oq_val *v = s->vals.v[i];
        if (v->info != NULL && is_known(v->type) && (v->maker != NULL || v->is_input) &&
            !write_into(a, v->info, v->type))
            return false;
    }
    for (size_t i = 0; i < s->added.n; i++)
        if (is_known(s->added.v[i]->type) && !write_added(a, s->graph, s->added.v[i]))
            return false;
    return true;
}

onq_code oq_shapes_write(const oq_shapes *s, oq_model *m, onq_error *err) {
    const oq_infer *in = oq_shapes_engine(s);
    oq_model_touch(m);
    for (size_t i = 0; i < in->scopes.n; i++)
        OQ_TRY_ALLOC(write_scope(&m->arena, in->scopes.v[i]), err);
    return ONQ_OK;
}
