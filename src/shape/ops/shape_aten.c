/*
 * shape_aten.c — the ATen operator of org.pytorch.aten: the PyTorch function is named by an
 * attribute.
 */
#include "shape/sop.h"

static bool scalar(const oq_rctx *c, size_t i, int64_t *v) {
    return oq_r_int_in(c, i, v);
}

/* Drops (or keeps as 1) one axis. */
static void reduce_axis(oq_rctx *c, size_t o, const oq_vtype *x, int64_t at, bool keep) {
    size_t axis, n = 0;
    oq_sdim *dims = oq_r_dims(c, x->rank);
    OQ_R_NEED(dims != NULL && oq_r_axis(c, at, x->rank, &axis));
    for (size_t i = 0; i < x->rank; i++)
        if (i != axis)
            dims[n++] = x->dims[i];
        else if (keep)
            dims[n++] = oq_sdim_num(1);
    oq_r_set_shape(c, o, dims, n);
}

static void arg_max(oq_rctx *c, const oq_vtype *x) {
    int64_t dim, keep = 0;
    oq_r_set_elem(c, 0, OQ_INT64);
    if (!oq_r_has(c, 1))
        oq_r_set_shape(c, 0, NULL, 0);
    else if (x != NULL && scalar(c, 1, &dim) && scalar(c, 2, &keep))
        reduce_axis(c, 0, x, dim, keep != 0);
}

static void min_max(oq_rctx *c, const oq_vtype *x) {
    int64_t dim, keep = 0;
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    if (c->n_in == 1) {
        oq_r_set_shape(c, 0, NULL, 0);
    } else if (x != NULL && scalar(c, 1, &dim) && scalar(c, 2, &keep)) {
        oq_r_set_elem(c, 1, OQ_INT64);
        reduce_axis(c, 0, x, dim, keep != 0);
        reduce_axis(c, 1, x, dim, keep != 0);
    }
}

static void diagonal(oq_rctx *c, const oq_vtype *x) {
    int64_t offset, d1, d2;
    size_t a, b, n = 0;
    if (!oq_r_pass_elem(c, 0, 0) || x == NULL || !scalar(c, 1, &offset) || !scalar(c, 2, &d1) ||
        !scalar(c, 3, &d2) || !oq_r_axis(c, d1, x->rank, &a) || !oq_r_axis(c, d2, x->rank, &b))
        return;
    oq_sdim *dims = oq_r_dims(c, x->rank);
    for (size_t i = 0; dims != NULL && i < x->rank; i++)
        if (i != a && i != b)
            dims[n++] = x->dims[i];
    if (dims != NULL && a != b) {
        const oq_sdim rows = oq_sdim_addn(c->ds, x->dims[a], offset < 0 ? offset : 0);
        const oq_sdim cols = oq_sdim_addn(c->ds, x->dims[b], offset > 0 ? -offset : 0);
        dims[n++] = oq_sdim_max(c->ds, oq_sdim_num(0), oq_sdim_min(c->ds, rows, cols));
        oq_r_set_shape(c, 0, dims, n);
    }
}

static void unfold(oq_rctx *c, const oq_vtype *x) {
    int64_t dim, size, step;
    size_t axis;
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    if (!scalar(c, 1, &dim) || !scalar(c, 2, &size) || !scalar(c, 3, &step) || step <= 0) {
        oq_r_set_rank(c, 0, (size_t)x->rank + 1);
        return;
    }
    if (oq_r_axis(c, dim, x->rank, &axis))
        oq_r_unfold(c, x, axis, size, step);
}

/* Spatial sizes from the values of input 1, or open. */
static void resample(oq_rctx *c, const oq_vtype *x, bool use_values) {
    const oq_data *d = use_values ? oq_r_data(c, 1) : NULL;
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL && x->rank >= 3);
    oq_sdim *dims = oq_r_dims(c, x->rank);
    for (size_t i = 0; dims != NULL && i < x->rank; i++) {
        const bool known = d != NULL && d->n == x->rank - 2u && i >= 2;
        dims[i] = i < 2 ? x->dims[i] : known ? d->v[i - 2].d : oq_sdim_unknown();
    }
    if (dims != NULL) {
        oq_r_set_shape(c, 0, dims, x->rank);
        oq_r_set(c, 1, OQ_INT64, dims, x->rank);
    }
}

static void group_norm(oq_rctx *c, const oq_vtype *x) {
    int64_t group = 0;
    oq_r_pass(c, 0, 0);
    const bool known = scalar(c, 6, &group);
    for (size_t o = 1; !c->failed && o < c->n_out && o < 3; o++) {
        const oq_sdim dims[2] = {x != NULL && x->rank > 0 ? x->dims[0] : oq_sdim_unknown(),
                                 known ? oq_sdim_num(group) : oq_sdim_unknown()};
        oq_r_pass_elem(c, 0, o);
        oq_r_set_shape(c, o, dims, 2);
    }
}

static void multinomial(oq_rctx *c, const oq_vtype *x) {
    int64_t n;
    oq_r_set_elem(c, 0, OQ_INT64);
    if (x != NULL && (x->rank == 1 || x->rank == 2)) {
        const oq_sdim last = scalar(c, 1, &n) ? oq_sdim_num(n) : oq_r_fresh(c, 0, x->rank - 1);
        const oq_sdim dims[2] = {x->rank == 2 ? x->dims[0] : last, last};
        oq_r_set_shape(c, 0, dims, x->rank);
    }
}

void oq_rule_aten(oq_rctx *c) {
    const oq_str op = oq_r_str(c, "operator", "");
    const oq_vtype *x = oq_r_shape(c, 0);
    if (oq_str_is(op, "embedding"))
        oq_rule_gather(c);
    else if (oq_str_is(op, "bitwise_or"))
        oq_rule_binary(c);
    else if (oq_str_is(op, "diagonal"))
        diagonal(c, x);
    else if (oq_str_is(op, "max") || oq_str_is(op, "min"))
        min_max(c, x);
    else if (oq_str_is(op, "argmax"))
        arg_max(c, x);
    else if (oq_str_is(op, "unfold"))
        unfold(c, x);
    else if (oq_str_is(op, "multinomial"))
        multinomial(c, x);
    else if (oq_str_is(op, "numpy_T"))
        oq_rule_transpose(c);
    else if (oq_str_is(op, "native_group_norm"))
        group_norm(c, x);
    else if (oq_str_starts(op, OQ_S("upsample_")))
        resample(c, x, true);
    else if (oq_str_ends(op, OQ_S("pool2d")) || oq_str_is(op, "max_pool2d_with_indices"))
        resample(c, x, false);
}
