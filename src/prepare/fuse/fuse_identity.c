/*
 * fuse_identity.c — nodes that change nothing, and nodes that compute what another one does.
 */
#include "onnx/codec/schema.h"
#include "onnx/operators.h"
#include "prepare/fuse/fuse.h"

/* ---- nodes that change nothing ---- */

static bool same_dims(const oq_fuse *f, const oq_node *n) {
    int64_t a[8], b[8];
    const int ra = oq_fuse_dims(f, n->input.v[0], a), rb = oq_fuse_dims(f, n->output.v[0], b);
    return ra >= 0 && ra == rb && memcmp(a, b, (size_t)ra * sizeof *a) == 0;
}

static bool is_off_dropout(oq_fuse *f, const oq_node *n) {
    const oq_str mode = oq_node_input(n, 2);
    oq_span s;
    if (mode.n == 0)
        return true;
    oq_tensor *t = oq_fuse_const(f, mode);
    return t != NULL && t->data_type.v == OQ_BOOL && oq_model_data(f->m, t, &s, NULL) == ONQ_OK &&
           s.n == 1 && s.p[0] == 0;
}

static bool is_same_cast(const oq_fuse *f, const oq_node *n) {
    const int32_t have = oq_shapes_elem_type(f->shapes, f->g, n->input.v[0]);
    return have != 0 && oq_attr_int(n, "to", 0) == have;
}

static bool is_still_transpose(const oq_node *n) {
    const oq_i64s *perm = oq_attr_ints(n, "perm");
    for (size_t i = 0; perm != NULL && i < perm->n; i++)
        if (perm->v[i] != (int64_t)i)
            return false;
    return perm != NULL;
}

static onq_code is_empty_pad(oq_fuse *f, const oq_node *n, bool *yes, onq_error *err) {
    const oq_i64s *attr = oq_attr_ints(n, "pads");
    int64_t *v = attr != NULL ? attr->v : NULL;
    size_t count = attr != NULL ? attr->n : 0;
    if (attr == NULL)
        OQ_TRY(oq_fuse_ints(f, oq_node_input(n, 1), &v, &count, err));
    *yes = v != NULL;
    for (size_t i = 0; i < count; i++)
        *yes = *yes && v[i] == 0;
    return ONQ_OK;
}

onq_code oq_fuse_identity(oq_fuse *f, uint32_t i, bool *done, onq_error *err) {
    const oq_node *n = oq_fuse_node(f, i);
    bool still = false;
    if (n->input.n == 0 || n->input.v[0].n == 0 || !oq_domain_is_onnx(n->domain) ||
        !oq_fuse_one_output(f, n))
        return ONQ_OK;
    if (oq_node_is(n, "Identity"))
        still = true;
    else if (oq_node_is(n, "Dropout"))
        still = is_off_dropout(f, n);
    else if (oq_node_is(n, "Cast"))
        still = is_same_cast(f, n);
    else if (oq_node_is(n, "Transpose"))
        still = is_still_transpose(n);
    else if (oq_node_is(n, "Pad"))
        OQ_TRY(is_empty_pad(f, n, &still, err));
    else if (oq_node_is(n, "Concat") || oq_node_is(n, "Sum"))
        still = n->input.n == 1;
    else
        still = same_dims(f, n);
    return still ? oq_fuse_bypass(f, i, 0, done, err) : ONQ_OK;
}

/* ---- x + 0, x * 1 ---- */

onq_code oq_fuse_neutral(oq_fuse *f, uint32_t i, bool *done, onq_error *err) {
    const oq_node *n = oq_fuse_node(f, i);
    if (n->input.n != 2 || n->domain.n != 0 || n->output.n != 1)
        return ONQ_OK;
    const bool sum = oq_node_is(n, "Add") || oq_node_is(n, "Sub");
    const bool either = oq_node_is(n, "Add") || oq_node_is(n, "Mul");
    for (size_t slot = either ? 0 : 1; slot < 2; slot++) {
        const oq_tensor *t = oq_fuse_const(f, n->input.v[slot]);
        double v = 0;
        if (t == NULL || !oq_fuse_scalar(f, n->input.v[slot], &v) || v != (sum ? 0.0 : 1.0))
            continue;
        /* The constant must not give the result more axes than the other input has. */
        const int rank = oq_fuse_rank(f, n->input.v[1 - slot]);
        if (t->dims.n != 0 && (rank < 0 || (size_t)rank < t->dims.n))
            continue;
        return oq_fuse_bypass(f, i, 1 - slot, done, err);
    }
    return ONQ_OK;
}

/* ---- duplicates ---- */

/* All that decides what a node computes. p == NULL: it cannot be compared. */
static onq_code node_key(oq_fuse *f, oq_node *n, oq_str *key, onq_error *err) {
    *key = (oq_str){0};
    if (oq_op_traits_of(n->op_type)->random || oq_str_is(n->op_type, "Dropout") ||
        (!oq_domain_is_onnx(n->domain) && !oq_str_is(n->domain, "com.microsoft")))
        return ONQ_OK;
    OQ_SCRATCH_BUF(b, &f->m->env->alloc);
    oq_buf_addf(&b, "%zu:", n->output.n);
    oq_buf_add_str(&b, n->domain);
    oq_buf_addc(&b, '\0');
    oq_buf_add_str(&b, n->op_type);
    onq_code rc = ONQ_OK;
    for (size_t i = 0; i < n->input.n; i++) {
        const uint32_t at = oq_map_find(&f->renames, n->input.v[i]);
        const oq_str name = at != OQ_MAP_NONE ? f->to.v[at] : n->input.v[i];
        oq_buf_addf(&b, "\x01%zu:", name.n);
        oq_buf_add_str(&b, name);
    }
    for (size_t i = 0; i < n->attribute.n && rc == ONQ_OK; i++) {
        oq_attribute *a = n->attribute.v[i];
        oq_pieces pieces = {.arena = f->scratch};
        if (a->g != NULL || a->graphs.n != 0 || a->t != NULL || a->tensors.n != 0)
            goto done;
        const uint64_t size = oq_encode_size(OQ_SCHEMA_attribute, a);
        rc = oq_encode(&pieces, OQ_SCHEMA_attribute, a, err);
        oq_buf_addf(&b, "\x02%llu:", (unsigned long long)size);
        for (size_t k = 0; k < pieces.list.n && rc == ONQ_OK; k++)
            oq_buf_add(&b, pieces.list.v[k].p, (size_t)pieces.list.v[k].n);
    }
    if (rc == ONQ_OK &&
        (b.failed || (*key = oq_str_copy(f->scratch, (oq_str){b.p, b.n})).p == NULL))
        rc = oq_fail_nomem(err);
done:
    return rc;
}

onq_code oq_fuse_duplicate(oq_fuse *f, uint32_t i, bool *done, onq_error *err) {
    oq_node *n = oq_fuse_node(f, i);
    oq_str key;
    if (n->input.n == 0)
        return ONQ_OK;
    OQ_TRY(node_key(f, n, &key, err));
    if (key.p == NULL)
        return ONQ_OK;
    const uint32_t at = oq_map_find(&f->seen, key);
    if (at == OQ_MAP_NONE)
        return oq_map_put(&f->seen, key, i) ? ONQ_OK : oq_fail_nomem(err);
    const oq_node *first = oq_fuse_node(f, at);
    if (!oq_fuse_free(f, at))
        return ONQ_OK;
    for (size_t k = 0; k < n->output.n; k++) {
        const oq_value *v = n->output.v[k].n != 0 ? oq_index_find(&f->ix, n->output.v[k]) : NULL;
        if ((v != NULL && v->is_output) || (n->output.v[k].n != 0) != (first->output.v[k].n != 0))
            return ONQ_OK;
    }
    for (size_t k = 0; k < n->output.n; k++)
        if (n->output.v[k].n != 0)
            OQ_TRY(oq_fuse_rename(f, n->output.v[k], first->output.v[k], err));
    oq_fuse_drop(f, i);
    *done = true;
    return ONQ_OK;
}
