/*
 * shape_reshape.c — the same elements in another arrangement: Reshape, Flatten, Squeeze, Unsqueeze,
 * Transpose, Tile, DepthToSpace, SpaceToDepth.
 */
#include "shape/sop.h"

/* The dims of the target shape as input 1 gives them, or unknown ones when only their number is
 * known; NULL when not even that. */
static oq_sdim *target_dims(oq_rctx *c, size_t at, size_t *n, bool *valued) {
    const oq_data *d = oq_r_data(c, at);
    const oq_vtype *s = oq_r_shape(c, at);
    *valued = d != NULL;
    if (d != NULL) {
        *n = d->n;
    } else if (s != NULL && s->rank == 1 && oq_sdim_is_num(s->dims[0]) && s->dims[0].n >= 0 &&
               s->dims[0].n <= OQ_MAX_RANK) {
        *n = (size_t)s->dims[0].n;
    } else {
        if (s != NULL && s->rank != 1 && c->opset >= 14)
            oq_r_fail(c, "the shape must have rank 1");
        return NULL;
    }
    oq_sdim *dims = oq_r_dims(c, *n);
    for (size_t i = 0; dims != NULL && i < *n; i++)
        dims[i] = d != NULL && d->v[i].den == 1 ? d->v[i].d : oq_sdim_unknown();
    return dims;
}

/* The size that makes the products equal: what is left of the input's dims after the target's
 * others are taken out. Equal dims are struck first, so that long products stay short. */
static oq_sdim rest(oq_rctx *c, const oq_vtype *x, const oq_sdim *dims, size_t n, size_t open) {
    oq_sdim *left = oq_r_dims(c, x->rank), total = oq_sdim_num(1), used = oq_sdim_num(1);
    if (left == NULL)
        return oq_sdim_unknown();
    if (x->rank > 0)
        memcpy(left, x->dims, x->rank * sizeof *left);
    for (size_t i = 0; i < n; i++) {
        bool struck = i == open;
        for (size_t k = 0; k < x->rank && !struck; k++) {
            if (oq_sdim_eq(left[k], dims[i]) && !oq_sdim_is(dims[i], 0)) {
                left[k] = oq_sdim_num(1);
                struck = true;
            }
        }
        used = struck ? used : oq_sdim_mul(c->ds, used, dims[i]);
    }
    for (size_t k = 0; k < x->rank; k++)
        total = oq_sdim_mul(c->ds, total, left[k]);
    if (oq_sdim_is(used, 0)) {
        oq_r_fail(c, "-1 together with a dimension of 0");
        return oq_sdim_unknown();
    }
    oq_sdim out;
    if (oq_sdim_divide(c->ds, total, used, &out))
        return out;
    if (oq_sdim_is_num(total) && oq_sdim_is_num(used)) {
        oq_r_fail(c, "%lld elements do not divide by %lld", (long long)total.n, (long long)used.n);
        return oq_sdim_unknown();
    }
    return oq_sdim_floordiv(c->ds, total, used);
}

/* onnx resolves -1 when the input's dims are numbers, except those copied by 0. */
static oq_sdim rest_plain(oq_rctx *c, const oq_vtype *x, const oq_sdim *want, size_t n) {
    int64_t out = 1, in = 1;
    for (size_t i = 0; i < n; i++) {
        const bool zero = oq_sdim_is(want[i], 0);
        if (!oq_sdim_is_num(want[i]))
            return oq_sdim_unknown();
        if (want[i].n == -1 || (zero && (x == NULL || !oq_sdim_is_num(x->dims[i]))))
            continue;
        if (__builtin_mul_overflow(out, zero ? x->dims[i].n : want[i].n, &out))
            oq_r_fail(c, "the product of the dimensions overflows");
    }
    if (out <= 0)
        oq_r_fail(c, "-1 together with dimensions whose product is %lld", (long long)out);
    for (size_t i = 0; x != NULL && i < x->rank; i++) {
        if (oq_sdim_is_num(x->dims[i])) {
            if (__builtin_mul_overflow(in, x->dims[i].n, &in))
                oq_r_fail(c, "the product of the dimensions overflows");
        } else if (i >= n || !oq_sdim_is(want[i], 0)) {
            return oq_sdim_unknown();
        }
    }
    if (x == NULL || c->failed)
        return oq_sdim_unknown();
    if (in % out != 0) {
        oq_r_fail(c, "%lld elements do not divide by %lld", (long long)in, (long long)out);
        return oq_sdim_unknown();
    }
    return oq_sdim_num(in / out);
}

/* Copies the dims where the shape has 0; counts what is open. False after a failure. */
static bool resolve_zeros(oq_rctx *c, const oq_vtype *x, oq_sdim *dims, size_t n, size_t *open,
                          size_t *n_open, size_t *n_unknown) {
    const bool allow_zero = oq_r_int(c, "allowzero", 0) != 0;
    *n_open = *n_unknown = 0;
    *open = n;
    for (size_t i = 0; i < n; i++) {
        if (oq_sdim_is(dims[i], -1)) {
            *open = i;
            *n_open += 1;
        } else if (oq_sdim_is(dims[i], 0) && !allow_zero) {
            if (x != NULL && i >= x->rank)
                return oq_r_fail(c, "0 at axis %zu of a tensor of rank %u", i, x->rank);
            dims[i] = x != NULL ? x->dims[i] : oq_sdim_unknown();
        } else if (oq_sdim_is_num(dims[i]) && dims[i].n < 0) {
            return oq_r_fail(c, "a dimension of %lld", (long long)dims[i].n);
        }
        *n_unknown += oq_sdim_is_unknown(dims[i]) ? 1 : 0;
    }
    if (*n_open > 1)
        return oq_r_fail(c, "more than one -1");
    return true;
}

static void reshape_to(oq_rctx *c, oq_sdim *dims, size_t n, bool valued) {
    const oq_vtype *x = oq_r_shape(c, 0);
    size_t open, n_open, n_unknown;
    oq_sdim *want = oq_r_dims(c, n);
    OQ_R_NEED(want != NULL);
    if (n > 0)
        memcpy(want, dims, n * sizeof *want);
    OQ_R_NEED(resolve_zeros(c, x, dims, n, &open, &n_open, &n_unknown));
    if (c->plain) {
        if (n_open == 1)
            dims[open] = rest_plain(c, x, want, n);
    } else {
        /* One unknown element is the size that is left, whatever its value was. */
        if (n_open == 0 && n_unknown == 1 && valued) {
            for (open = 0; !oq_sdim_is_unknown(dims[open]); open++) {
            }
            n_unknown = 0;
            n_open = 1;
        }
        if (n_open == 1) {
            dims[open] =
                x != NULL && n_unknown == 0 ? rest(c, x, dims, n, open) : oq_sdim_unknown();
        }
    }
    if (!c->failed)
        oq_r_set_shape(c, 0, dims, n);
}

/* Before opset 5 the shape is an attribute. */
void oq_rule_reshape_attr(oq_rctx *c) {
    const int64_t *v;
    size_t n;
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && oq_r_ints(c, "shape", &v, &n));
    oq_sdim *dims = oq_r_dims(c, n);
    for (size_t i = 0; dims != NULL && i < n; i++)
        dims[i] = oq_sdim_num(v[i]);
    if (dims != NULL)
        reshape_to(c, dims, n, true);
}

void oq_rule_reshape(oq_rctx *c) {
    size_t n;
    bool valued;
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    oq_sdim *dims = target_dims(c, 1, &n, &valued);
    /* onnx guesses the rank from the shape's own shape only since opset 14. */
    if (dims != NULL && (valued || !c->plain || c->opset >= 14))
        reshape_to(c, dims, n, valued);
}

void oq_rule_flatten(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    int64_t axis = oq_r_int(c, "axis", 1);
    axis += axis < 0 && (c->opset >= 11 || !c->plain) ? (int64_t)x->rank : 0;
    OQ_R_FAIL_IF(axis < 0 || axis > (int64_t)x->rank, c, "axis %lld of a tensor of rank %u",
                 (long long)axis, x->rank);
    const oq_sdim dims[2] = {oq_r_product(c, x->dims, 0, (size_t)axis),
                             oq_r_product(c, x->dims, (size_t)axis, x->rank)};
    oq_r_set_shape(c, 0, dims, 2);
}

/* Axes from the attribute (before opset 13) or input 1; false when given but not known. */
static bool given_axes(oq_rctx *c, const int64_t **axes, size_t *n, bool *absent) {
    *n = 0;
    *absent = false;
    if (c->opset >= 13) {
        *absent = !oq_r_has(c, 1);
        return *absent || oq_r_ints_in(c, 1, axes, n);
    }
    *absent = !oq_r_ints(c, "axes", axes, n);
    return true;
}

void oq_rule_squeeze(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    const int64_t *axes = NULL;
    size_t n;
    bool absent, drop[OQ_MAX_RANK] = {false};
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    if (!given_axes(c, &axes, &n, &absent)) {
        const oq_vtype *a = oq_r_shape(c, 1);
        if (!c->plain && a != NULL && a->rank == 1 && oq_sdim_is_num(a->dims[0]) &&
            a->dims[0].n >= 0 && a->dims[0].n <= x->rank)
            oq_r_set_rank(c, 0, x->rank - (size_t)a->dims[0].n);
        return;
    }
    for (size_t i = 0; absent && i < x->rank; i++) {
        /* A name of the inputs is taken not to be 1, as the reference does; a made-up one is
         * not. */
        if (!oq_sdim_is_num(x->dims[i]) && (c->plain || oq_sdim_least(x->dims[i]) < 1))
            return;
        drop[i] = oq_sdim_is(x->dims[i], 1);
    }
    for (size_t i = 0; i < n; i++) {
        size_t axis;
        OQ_R_NEED(oq_r_axis(c, axes[i], x->rank, &axis));
        OQ_R_FAIL_IF(oq_sdim_is_num(x->dims[axis]) && x->dims[axis].n != 1, c,
                     "axis %zu has size %lld, not 1", axis, (long long)x->dims[axis].n);
        drop[axis] = true;
    }
    oq_sdim *dims = oq_r_dims(c, x->rank);
    size_t rank = 0;
    for (size_t i = 0; dims != NULL && i < x->rank; i++)
        if (!drop[i])
            dims[rank++] = x->dims[i];
    if (dims != NULL)
        oq_r_set_shape(c, 0, dims, rank);
}

void oq_rule_unsqueeze(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    const int64_t *axes = NULL;
    size_t n;
    bool absent, added[OQ_MAX_RANK] = {false};
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    if (!given_axes(c, &axes, &n, &absent)) {
        const oq_vtype *a = oq_r_shape(c, 1);
        if (!c->plain && a != NULL && a->rank == 1 && oq_sdim_is_num(a->dims[0]) &&
            a->dims[0].n >= 0 && a->dims[0].n <= OQ_MAX_RANK)
            oq_r_set_rank(c, 0, x->rank + (size_t)a->dims[0].n);
        return;
    }
    const size_t rank = x->rank + n;
    oq_sdim *dims = absent ? NULL : oq_r_dims(c, rank);
    OQ_R_NEED(dims != NULL);
    for (size_t i = 0; i < n; i++) {
        size_t axis;
        OQ_R_NEED(oq_r_axis(c, axes[i], rank, &axis));
        OQ_R_FAIL_IF(added[axis], c, "axis %zu is named twice", axis);
        added[axis] = true;
    }
    for (size_t i = 0, from = 0; i < rank; i++)
        dims[i] = added[i] ? oq_sdim_num(1) : x->dims[from++];
    oq_r_set_shape(c, 0, dims, rank);
}

void oq_rule_transpose(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    const int64_t *perm = NULL;
    size_t n = 0;
    bool seen[OQ_MAX_RANK] = {false};
    const bool given = oq_r_ints(c, "perm", &perm, &n);
    const size_t rank = given ? n : x->rank;
    OQ_R_FAIL_IF(rank > x->rank || (!c->plain && rank != x->rank), c,
                 "perm has %zu values, the input rank %u", n, x->rank);
    oq_sdim *dims = oq_r_dims(c, rank);
    for (size_t i = 0; dims != NULL && i < rank; i++) {
        const int64_t from = given ? perm[i] : (int64_t)(rank - 1 - i);
        OQ_R_FAIL_IF(from < 0 || from >= (int64_t)x->rank || seen[from], c, "perm holds %lld",
                     (long long)from);
        seen[from] = true;
        dims[i] = x->dims[from];
    }
    if (dims != NULL)
        oq_r_set_shape(c, 0, dims, rank);
}

/* Tile 1 has tiles and axis as scalars; later the repeats of all axes are input 1. */
void oq_rule_tile(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL && (!c->plain || c->opset >= 6));
    const oq_data *d = oq_r_data(c, 1);
    oq_sdim *dims = oq_r_dims(c, x->rank);
    int64_t old_axis = -1;
    OQ_R_NEED(dims != NULL);
    if (c->opset < 6 && !oq_r_int_in(c, 2, &old_axis))
        d = NULL;
    OQ_R_FAIL_IF(c->opset >= 6 && d != NULL && d->n != x->rank, c,
                 "%zu repeats for a tensor of rank %u", d->n, x->rank);
    for (size_t i = 0; i < x->rank; i++) {
        if (d == NULL) {
            dims[i] = oq_sdim_unknown();
        } else if (c->opset < 6) {
            dims[i] = (int64_t)i == old_axis && d->n == 1
                          ? oq_sdim_mul(c->ds, x->dims[i], d->v[0].d)
                          : x->dims[i];
        } else {
            dims[i] =
                d->v[i].den == 1 ? oq_sdim_mul(c->ds, x->dims[i], d->v[i].d) : oq_sdim_unknown();
            if (c->plain && !oq_sdim_is_num(x->dims[i]))
                dims[i] = oq_sdim_unknown();
        }
    }
    oq_r_set_shape(c, 0, dims, x->rank);
}

static void blocks(oq_rctx *c, bool to_depth) {
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    const int64_t b = oq_r_int(c, "blocksize", 0);
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_FAIL_IF(b <= 0 || b > 1 << 20, c, "blocksize is %lld", (long long)b);
    OQ_R_NEED(x != NULL);
    OQ_R_FAIL_IF(x->rank != 4, c, "the input must have rank 4");
    const oq_sdim one = oq_sdim_num(b), two = oq_sdim_num(b * b);
    oq_sdim dims[4] = {x->dims[0], oq_sdim_unknown(), oq_sdim_unknown(), oq_sdim_unknown()};
    dims[1] =
        to_depth ? oq_sdim_mul(c->ds, x->dims[1], two) : oq_sdim_floordiv(c->ds, x->dims[1], two);
    for (size_t i = 2; i < 4; i++) {
        dims[i] = to_depth ? oq_sdim_floordiv(c->ds, x->dims[i], one)
                           : oq_sdim_mul(c->ds, x->dims[i], one);
    }
    oq_r_set_shape(c, 0, dims, 4);
}

void oq_rule_space_to_depth(oq_rctx *c) {
    blocks(c, true);
}

void oq_rule_depth_to_space(oq_rctx *c) {
    blocks(c, false);
}
