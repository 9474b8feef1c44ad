/*
 * shape_reduce.c — reductions, ArgMax and ArgMin, TopK, Det.
 *
 * The axes are an attribute at first and an input later (ReduceSum 13, the others 18); both are
 * read.
 */
#include "shape/sop.h"

/* Marks the reduced axes; false when they are not known (or wrong). */
static bool reduced_axes(oq_rctx *c, size_t rank, bool *reduced, bool *noop) {
    const int64_t *axes = NULL;
    size_t n = 0;
    *noop = false;
    if (oq_r_has(c, 1)) {
        if (!oq_r_ints_in(c, 1, &axes, &n))
            return false;
    } else {
        oq_r_ints(c, "axes", &axes, &n);
    }
    if (n == 0)
        *noop = oq_r_int(c, "noop_with_empty_axes", 0) != 0;
    for (size_t i = 0; i < rank; i++)
        reduced[i] = n == 0;
    for (size_t i = 0; i < n; i++) {
        size_t axis;
        if (!oq_r_axis(c, axes[i], rank, &axis))
            return false;
        reduced[axis] = true;
    }
    return true;
}

static void set_reduced(oq_rctx *c, const oq_vtype *x, const bool *reduced, bool keep) {
    oq_sdim *dims = oq_r_dims(c, x->rank);
    size_t n = 0;
    for (size_t i = 0; dims != NULL && i < x->rank; i++)
        if (!reduced[i])
            dims[n++] = x->dims[i];
        else if (keep)
            dims[n++] = oq_sdim_num(1);
    if (dims != NULL)
        oq_r_set_shape(c, 0, dims, n);
}

void oq_rule_reduce(oq_rctx *c) {
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    const oq_vtype *x = oq_r_shape(c, 0);
    bool reduced[OQ_MAX_RANK], noop;
    const bool keep = oq_r_int(c, "keepdims", 1) == 1;
    OQ_R_NEED(x != NULL);
    if (!reduced_axes(c, x->rank, reduced, &noop)) {
        /* The rank at least, when it does not depend on the axes. */
        const oq_vtype *axes = oq_r_shape(c, 1);
        if (!c->plain && keep)
            oq_r_set_rank(c, 0, x->rank);
        else if (!c->plain && axes != NULL && axes->rank == 1 && oq_sdim_is_num(axes->dims[0]) &&
                 axes->dims[0].n > 0 && axes->dims[0].n <= x->rank)
            oq_r_set_rank(c, 0, x->rank - (size_t)axes->dims[0].n);
        return;
    }
    if (noop)
        oq_r_pass_shape(c, 0, 0);
    else
        set_reduced(c, x, reduced, keep);
}

void oq_rule_arg_reduce(oq_rctx *c) {
    oq_r_set_elem(c, 0, OQ_INT64);
    const oq_vtype *x = oq_r_shape(c, 0);
    bool reduced[OQ_MAX_RANK] = {false};
    size_t axis = 0;
    if (x == NULL ||
        (oq_r_attr(c, "axis") != NULL && !oq_r_axis(c, oq_r_int(c, "axis", 0), x->rank, &axis)))
        return;
    reduced[axis] = true;
    set_reduced(c, x, reduced, oq_r_int(c, "keepdims", 1) == 1);
}

/* k is an attribute before opset 10, then input 1. */
void oq_rule_top_k(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    size_t axis;
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    oq_r_set_elem(c, 1, OQ_INT64);
    OQ_R_NEED(x != NULL && oq_r_axis(c, oq_r_int(c, "axis", -1), x->rank, &axis));
    oq_sdim k;
    if (c->opset < 10) {
        k = oq_sdim_num(oq_r_int(c, "k", -1));
        OQ_R_FAIL_IF(k.n <= 0, c, "attribute 'k' is %lld", (long long)k.n);
    } else {
        const oq_data *d = oq_r_data(c, 1);
        k = d != NULL && d->n == 1 && d->v[0].den == 1 ? d->v[0].d : oq_r_fresh(c, 0, axis);
    }
    /* onnx wants to see that the axis is long enough. */
    const bool blind =
        c->plain && c->opset >= 10 && (!oq_sdim_is_num(k) || !oq_sdim_is_num(x->dims[axis]));
    OQ_R_FAIL_IF(!blind && oq_sdim_is_num(k) && oq_sdim_is_num(x->dims[axis]) && c->opset >= 10 &&
                     k.n > x->dims[axis].n,
                 c, "k is %lld, the axis has %lld", (long long)k.n, (long long)x->dims[axis].n);
    oq_sdim *dims = oq_r_dims(c, x->rank);
    for (size_t i = 0; dims != NULL && i < x->rank; i++)
        dims[i] = blind ? oq_sdim_unknown() : i == axis ? k : x->dims[i];
    if (dims != NULL) {
        oq_r_set_shape(c, 0, dims, x->rank);
        oq_r_set_shape(c, 1, dims, x->rank);
    }
}

void oq_rule_det(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    OQ_R_FAIL_IF(x->rank < 2, c, "the input must have rank 2 or more");
    oq_r_same(c, x->dims[x->rank - 1], x->dims[x->rank - 2]);
    oq_r_set_shape(c, 0, x->dims, x->rank - 2);
}
