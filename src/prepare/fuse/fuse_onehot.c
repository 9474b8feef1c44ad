/*
 * fuse_onehot.c — MatMul(Cast(Equal(ids, 0..K-1)), W) is a table of K rows that is looked up.
 *
 * An id outside of 0..K-1 selects no row and gives zeros: the table gets a row of zeros before and
 * after, and ids are clipped to those.
 */
#include "prepare/fuse/fuse.h"

/* A constant 0, 1, ... K-1 along its last axis. */
static onq_code is_count(oq_fuse *f, oq_str name, int64_t k, bool *ok, onq_error *err) {
    const oq_tensor *t = oq_fuse_const(f, name);
    int64_t *v;
    size_t n;
    *ok = false;
    if (t == NULL || t->dims.n == 0 || t->dims.v[t->dims.n - 1] != k)
        return ONQ_OK;
    OQ_TRY(oq_fuse_ints(f, name, &v, &n, err));
    if (v == NULL || n != (size_t)k)
        return ONQ_OK;
    for (size_t i = 0; i < n; i++)
        if (v[i] != (int64_t)i)
            return ONQ_OK;
    *ok = true;
    return ONQ_OK;
}

/* Both have the same dims but for the last. */
static bool same_but_last(const oq_tensor_info *a, const oq_tensor_info *b) {
    if (!a->has_shape || !b->has_shape || a->rank != b->rank || a->rank == 0)
        return false;
    for (size_t i = 0; i + 1 < a->rank; i++)
        if (oq_sdim_is_unknown(a->dims[i]) || !oq_sdim_eq(a->dims[i], b->dims[i]))
            return false;
    return true;
}

static bool ends_in_one(const oq_tensor_info *t) {
    return t->has_shape && t->rank > 1 && oq_sdim_is_num(t->dims[t->rank - 1]) &&
           t->dims[t->rank - 1].n == 1;
}

/* The ids with a last axis of 1: `name` itself, or what an Expand repeats along the last axis. */
static bool find_ids(oq_fuse *f, oq_str name, oq_str *ids) {
    oq_tensor_info all, one;
    *ids = name;
    if (!oq_shapes_tensor(f->shapes, f->g, name, &all))
        return false;
    if (ends_in_one(&all))
        return true;
    const uint32_t at = oq_fuse_maker(f, name);
    if (at == OQ_NO_NODE || !oq_node_is(oq_fuse_node(f, at), "Expand"))
        return false;
    *ids = oq_fuse_node(f, at)->input.v[0];
    return oq_shapes_tensor(f->shapes, f->g, *ids, &one) && ends_in_one(&one) &&
           same_but_last(&all, &one);
}

/* The table with a row of zeros at both ends. */
static onq_code add_table(oq_fuse *f, oq_tensor *w, oq_str *name, onq_error *err) {
    float *v = NULL;
    size_t n = 0;
    const size_t width = (size_t)w->dims.v[1];
    const int64_t dims[2] = {w->dims.v[0] + 2, w->dims.v[1]};
    *name = (oq_str){0};
    OQ_TRY(oq_fuse_floats(f, w, &v, &n, err));
    if (v == NULL)
        return ONQ_OK;
    float *table = OQ_NEW_ARRAY(f->scratch, float, n + 2 * width + 1);
    const oq_str base = oq_str_cat(&f->m->arena, w->name, OQ_S("_table"));
    OQ_TRY_ALLOC(table != NULL && base.p != NULL, err);
    memcpy(table + width, v, n * sizeof *v);
    return oq_fuse_add_floats(f, base, (oq_dtype)w->data_type.v, table, dims, 2, name, err);
}

/* One integer of the type of the ids. */
static onq_code add_id(oq_fuse *f, oq_dtype type, int64_t v, oq_str *name, onq_error *err) {
    *name = oq_names_unique(f->names, OQ_S("onehot_id"));
    oq_tensor *t = name->p != NULL ? oq_tensor_new(&f->m->arena, *name, type, NULL, 0) : NULL;
    OQ_TRY_ALLOC(t != NULL && OQ_PUSH(f->scratch, &f->inits, t), err);
    const int32_t narrow = (int32_t)v;
    return type == OQ_INT64 ? oq_tensor_set_raw(&f->m->arena, t, &v, sizeof v, err)
                            : oq_tensor_set_raw(&f->m->arena, t, &narrow, sizeof narrow, err);
}

/* ids (last axis 1) -> Squeeze -> Clip to -1..K -> + 1: rows of the table. */
static onq_code add_rows(oq_fuse *f, const oq_node *n, oq_str ids, int64_t k, oq_str *out,
                         onq_error *err) {
    const oq_dtype type = (oq_dtype)oq_shapes_elem_type(f->shapes, f->g, ids);
    oq_str low, high, one, axes;
    const int64_t last = -1;
    OQ_TRY(add_id(f, type, -1, &low, err));
    OQ_TRY(add_id(f, type, k, &high, err));
    OQ_TRY(add_id(f, type, 1, &one, err));
    oq_node *squeeze;
    if (f->opset >= 13) {
        OQ_TRY(oq_fuse_add_ints(f, OQ_S("onehot_axis"), &last, 1, &axes, err));
        squeeze = oq_fuse_add_node(f, n, "Squeeze", (oq_str[]){ids, axes}, 2, out);
    } else {
        squeeze = oq_fuse_add_node(f, n, "Squeeze", &ids, 1, out);
        if (squeeze != NULL && !oq_attr_set_ints(&f->m->arena, squeeze, OQ_S("axes"), &last, 1))
            squeeze = NULL;
    }
    if (squeeze == NULL ||
        oq_fuse_add_node(f, n, "Clip", (oq_str[]){*out, low, high}, 3, out) == NULL ||
        oq_fuse_add_node(f, n, "Add", (oq_str[]){*out, one}, 2, out) == NULL)
        return oq_fail_nomem(err);
    return ONQ_OK;
}

onq_code oq_fuse_onehot(oq_fuse *f, uint32_t i, bool *done, onq_error *err) {
    oq_node *n = oq_fuse_node(f, i);
    oq_str ids = {0}, table, rows;
    bool ok = false;
    oq_tensor *w = n->input.n == 2 ? oq_fuse_const(f, n->input.v[1]) : NULL;
    const uint32_t cast_at = w != NULL ? oq_fuse_maker(f, n->input.v[0]) : OQ_NO_NODE;
    const oq_node *cast = cast_at != OQ_NO_NODE ? oq_fuse_node(f, cast_at) : NULL;
    if (f->opset < 12 || cast == NULL || w->dims.n != 2 || w->dims.v[1] < 1 ||
        !oq_node_is(n, "MatMul") || !oq_node_is(cast, "Cast"))
        return ONQ_OK;
    const uint32_t equal_at = oq_fuse_maker(f, cast->input.v[0]);
    const oq_node *equal = equal_at != OQ_NO_NODE ? oq_fuse_node(f, equal_at) : NULL;
    if (equal == NULL || !oq_node_is(equal, "Equal") || equal->input.n != 2)
        return ONQ_OK;
    for (size_t slot = 0; slot < 2 && !ok; slot++) {
        OQ_TRY(is_count(f, equal->input.v[slot], w->dims.v[0], &ok, err));
        ok = ok && find_ids(f, equal->input.v[1 - slot], &ids);
    }
    const int32_t type = ok ? oq_shapes_elem_type(f->shapes, f->g, ids) : 0;
    /* Ids of fewer axes than the constant would grow. */
    if (!ok || (type != OQ_INT32 && type != OQ_INT64) ||
        oq_fuse_rank(f, ids) != oq_fuse_rank(f, cast->output.v[0]))
        return ONQ_OK;
    OQ_TRY(add_table(f, w, &table, err));
    if (table.p == NULL)
        return ONQ_OK;
    OQ_TRY(add_rows(f, n, ids, w->dims.v[0], &rows, err));
    n->op_type = OQ_S("Gather");
    n->input.v[0] = table;
    n->input.v[1] = rows;
    OQ_TRY_ALLOC(oq_attr_set_int(&f->m->arena, n, OQ_S("axis"), 0), err);
    oq_fuse_keep(f, i);
    *done = true;
    return ONQ_OK;
}
