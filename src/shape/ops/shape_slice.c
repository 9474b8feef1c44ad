/*
 * shape_slice.c — parts of a tensor: Slice, Split, Concat, Pad, CenterCropPad.
 *
 * Bounds are attributes in old opsets and inputs in new ones; as inputs they may be expressions.
 */
#include "shape/sop.h"

/* An index counted from the end is made positive. False when its sign is not known. */
static bool from_start(oq_rctx *c, oq_sdim at, oq_sdim size, oq_sdim *out) {
    if (oq_sdim_is_unknown(at))
        return false;
    if (oq_sdim_least(at) >= 0) {
        *out = at;
        return true;
    }
    if (oq_sdim_most(at) < 0) {
        *out = oq_sdim_add(c->ds, size, at);
        return true;
    }
    return false;
}

static oq_sdim clamp(oq_rctx *c, oq_sdim d, oq_sdim least, oq_sdim most) {
    return oq_sdim_max(c->ds, least, oq_sdim_min(c->ds, d, most));
}

/* An end of a slice within its limits; far out it is one of them, whatever the size. False when
 * nothing is known of it. */
static bool settle(oq_rctx *c, oq_sdim *at, oq_sdim size, oq_sdim least, oq_sdim most) {
    const int64_t far = c->in->opt.int_max;
    if (oq_sdim_is_num(*at) && (at->n >= far || at->n <= -far)) {
        *at = at->n > 0 ? most : least;
        return true;
    }
    if (!from_start(c, *at, size, at))
        return false;
    *at = clamp(c, *at, least, most);
    return true;
}

/* The number of elements from start to end by step along an axis of the given size. */
static oq_sdim slice_size(oq_rctx *c, oq_sdim size, oq_sdim start, oq_sdim end, int64_t step) {
    const oq_sdim zero = oq_sdim_num(0), back = oq_sdim_num(-1);
    if (step == 0 || step == INT64_MIN) {
        oq_r_fail(c, "a step of 0");
        return oq_sdim_unknown();
    }
    const oq_sdim last = step > 0 ? size : oq_sdim_addn(c->ds, size, -1);
    const oq_sdim first = step > 0 ? zero : back;
    if (!settle(c, &start, size, zero, last) || !settle(c, &end, size, first, last))
        return oq_sdim_unknown();
    const oq_sdim n =
        step > 0 ? oq_sdim_ceildiv(c->ds, oq_sdim_sub(c->ds, end, start), oq_sdim_num(step))
                 : oq_sdim_ceildiv(c->ds, oq_sdim_sub(c->ds, start, end), oq_sdim_num(-step));
    return oq_sdim_max(c->ds, n, zero);
}

static oq_sdim cell_dim(const oq_data *d, size_t i) {
    return d != NULL && i < d->n && d->v[i].den == 1 ? d->v[i].d : oq_sdim_unknown();
}

/* Slice 1: all attributes. onnx leaves unsorted axes alone and gives negative ones a bare rank. */
void oq_rule_slice_attr(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    const int64_t *starts, *ends, *axes = NULL;
    size_t n, n_ends, n_axes;
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    OQ_R_FAIL_IF(!oq_r_ints(c, "starts", &starts, &n) || !oq_r_ints(c, "ends", &ends, &n_ends) ||
                     n != n_ends || (oq_r_ints(c, "axes", &axes, &n_axes) && n_axes != n),
                 c, "starts, ends and axes do not fit together");
    oq_sdim *dims = oq_r_dims_of(c, x);
    OQ_R_NEED(dims != NULL);
    for (size_t i = 0; i < n; i++) {
        size_t axis;
        const int64_t given = axes != NULL ? axes[i] : (int64_t)i;
        if (c->plain && given < 0) {
            oq_r_set_rank(c, 0, x->rank);
            return;
        }
        if (c->plain && axes != NULL && i > 0 && axes[i] < axes[i - 1])
            return;
        OQ_R_NEED(oq_r_axis(c, given, x->rank, &axis));
        dims[axis] =
            c->plain && !oq_sdim_is_num(dims[axis])
                ? oq_sdim_unknown()
                : slice_size(c, dims[axis], oq_sdim_num(starts[i]), oq_sdim_num(ends[i]), 1);
    }
    if (!c->failed)
        oq_r_set_shape(c, 0, dims, x->rank);
}

/* Slices the axes of `dims` that are known; the others are left open. */
static bool slice_axes(oq_rctx *c, oq_sdim *dims, size_t rank) {
    const oq_data *starts = oq_r_data(c, 1), *ends = oq_r_data(c, 2), *axes = oq_r_data(c, 3);
    const oq_data *steps = oq_r_data(c, 4);
    const size_t n = starts != NULL ? starts->n
                     : ends != NULL ? ends->n
                     : axes != NULL ? axes->n
                                    : 0;
    const bool no_axes = oq_r_has(c, 3) && axes == NULL, no_steps = oq_r_has(c, 4) && steps == NULL;
    if ((starts == NULL && ends == NULL && axes == NULL) || no_axes)
        return false;
    for (size_t i = 0; i < n; i++) {
        int64_t at = (int64_t)i, step = 1;
        size_t axis;
        if (axes != NULL && (i >= axes->n || !oq_cell_integer(axes->v[i], &at)))
            return false;
        if (!oq_r_axis(c, at, rank, &axis))
            return false;
        const oq_sdim start = cell_dim(starts, i), end = cell_dim(ends, i);
        const bool blind =
            no_steps || (steps != NULL && (i >= steps->n || !oq_cell_integer(steps->v[i], &step)));
        if (blind || (c->plain && !oq_sdim_is_num(dims[axis])))
            dims[axis] = oq_sdim_unknown();
        else
            dims[axis] = slice_size(c, dims[axis], start, end, step);
    }
    return true;
}

void oq_rule_slice(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    /* onnx looks at the values only when it has them all. */
    const bool all = oq_r_has_data(c, 1) && oq_r_has_data(c, 2) &&
                     (!oq_r_has(c, 3) || oq_r_has_data(c, 3)) &&
                     (!oq_r_has(c, 4) || oq_r_has_data(c, 4));
    oq_sdim *dims = oq_r_dims_of(c, x);
    OQ_R_NEED(dims != NULL);
    const bool ok = (all || !c->plain) && slice_axes(c, dims, x->rank);
    OQ_R_NEED(!c->failed);
    if (ok)
        oq_r_set_shape(c, 0, dims, x->rank);
    else
        oq_r_set_rank(c, 0, x->rank);
}

/* Sizes of the parts, n_out of them; false when they are not known. */
static bool split_sizes(oq_rctx *c, oq_sdim size, oq_sdim *parts) {
    const int64_t *v;
    size_t n;
    const oq_data *d = c->opset >= 13 ? oq_r_data(c, 1) : NULL;
    if (c->opset >= 13 && oq_r_has(c, 1) && d == NULL)
        return false;
    if (d != NULL || (c->opset < 13 && oq_r_ints(c, "split", &v, &n))) {
        n = d != NULL ? d->n : n;
        oq_sdim sum = oq_sdim_num(0);
        for (size_t i = 0; i < n && i < c->n_out; i++) {
            parts[i] = d != NULL ? cell_dim(d, i) : oq_sdim_num(v[i]);
            sum = oq_sdim_add(c->ds, sum, parts[i]);
        }
        if (n != c->n_out || (oq_sdim_is_num(sum) && oq_sdim_is_num(size) && sum.n != size.n))
            return oq_r_fail(c, "the parts do not fit the %zu outputs or the size", c->n_out);
        return true;
    }
    /* Equal parts; since opset 18 the last may be smaller, before that the rest must be 0. */
    const int64_t count = c->opset >= 18
                              ? oq_r_int(c, "num_outputs", c->plain ? 0 : (int64_t)c->n_out)
                              : (int64_t)c->n_out;
    if (count < 1 || count < (int64_t)c->n_out ||
        (c->opset < 18 && oq_sdim_is_num(size) && size.n % count != 0))
        return oq_r_fail(c, "the axis does not split into %lld parts", (long long)count);
    const oq_sdim chunk = c->opset >= 18 ? oq_sdim_ceildiv(c->ds, size, oq_sdim_num(count))
                                         : oq_sdim_floordiv(c->ds, size, oq_sdim_num(count));
    for (size_t i = 0; i < c->n_out; i++) {
        const oq_sdim last = oq_sdim_sub(c->ds, size, oq_sdim_muln(c->ds, chunk, count - 1));
        parts[i] = c->opset >= 18 && (int64_t)i == count - 1 ? last : chunk;
    }
    return true;
}

void oq_rule_split(oq_rctx *c) {
    for (size_t o = 0; o < c->n_out; o++)
        OQ_R_NEED(oq_r_pass_elem(c, 0, o));
    const oq_vtype *x = oq_r_shape(c, 0);
    size_t axis;
    OQ_R_NEED(x != NULL && oq_r_axis(c, oq_r_int(c, "axis", 0), x->rank, &axis));
    oq_sdim *parts = OQ_NEW_ARRAY(c->in->arena, oq_sdim, c->n_out + 1);
    oq_sdim *dims = oq_r_dims(c, x->rank);
    if (parts == NULL || dims == NULL) {
        c->in->nomem = true;
        return;
    }
    const bool open = c->plain && !oq_sdim_is_num(x->dims[axis]);
    if (!open && !split_sizes(c, x->dims[axis], parts)) {
        OQ_R_NEED(!c->failed && !c->plain);
        for (size_t o = 0; o < c->n_out; o++)
            parts[o] = oq_sdim_unknown();
    }
    memcpy(dims, x->dims, x->rank * sizeof *dims);
    for (size_t o = 0; o < c->n_out; o++) {
        dims[axis] = open ? oq_sdim_unknown() : parts[o];
        oq_r_set_shape(c, o, dims, x->rank);
    }
}

/* Concatenates inputs first, first+stride, ...; the axis may be counted from the end since opset
 * 11. */
static void concat(oq_rctx *c, size_t first, size_t stride) {
    const oq_vtype *x = oq_r_shape(c, first);
    for (size_t i = first; i < c->n_in; i += stride)
        OQ_R_NEED(oq_r_shape(c, i) != NULL);
    size_t axis;
    /* Concat 1 had a default axis of 1. */
    OQ_R_NEED(x != NULL && oq_r_axis(c, oq_r_int(c, "axis", 1), x->rank, &axis));
    oq_sdim *dims = oq_r_dims_of(c, x);
    OQ_R_NEED(dims != NULL);
    const bool single = first + stride >= c->n_in;
    bool numbers = oq_sdim_is_num(x->dims[axis]);
    for (size_t i = first + stride; i < c->n_in; i += stride) {
        const oq_vtype *t = oq_r_shape(c, i);
        OQ_R_FAIL_IF(t->rank != x->rank, c, "input %zu has rank %u, the first %u", i, t->rank,
                     x->rank);
        for (size_t k = 0; k < x->rank; k++) {
            dims[k] = k == axis ? oq_sdim_add(c->ds, dims[k], t->dims[k])
                                : oq_r_same(c, dims[k], t->dims[k]);
        }
        numbers = numbers && oq_sdim_is_num(t->dims[axis]);
    }
    if (c->plain && !numbers && !single)
        dims[axis] = oq_sdim_unknown();
    if (!c->failed)
        oq_r_set_shape(c, 0, dims, x->rank);
}

void oq_rule_concat(oq_rctx *c) {
    if (oq_r_pass_elem(c, 0, 0)) {
        OQ_R_FAIL_IF(c->plain && oq_r_attr(c, "axis") == NULL, c, "attribute 'axis' is missing");
        concat(c, 0, 1);
    }
}

/* QLinearConcat: y_scale, y_zero_point, then triples of tensor, scale, zero point. */
void oq_rule_qlinear_concat(oq_rctx *c) {
    if (oq_r_pass_elem(c, 1, 0))
        concat(c, 2, 3);
}

static void pad_by(oq_rctx *c, const oq_vtype *x, const oq_data *pads, const size_t *axes,
                   size_t n) {
    oq_sdim *dims = oq_r_dims_of(c, x);
    OQ_R_NEED(dims != NULL);
    for (size_t i = 0; i < n; i++) {
        const oq_sdim both = oq_sdim_add(c->ds, cell_dim(pads, i), cell_dim(pads, n + i));
        dims[axes[i]] = oq_sdim_add(c->ds, x->dims[axes[i]], both);
    }
    oq_r_set_shape(c, 0, dims, x->rank);
}

/* Pads are an attribute ("paddings" in opset 1), then input 1; axes are input 3 since opset 18. */
void oq_rule_pad_attr(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    const int64_t *v;
    size_t n;
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    OQ_R_FAIL_IF((!oq_r_ints(c, "pads", &v, &n) && !oq_r_ints(c, "paddings", &v, &n)) ||
                     n != 2 * (size_t)x->rank,
                 c, "attribute 'pads' must have %u values", 2 * x->rank);
    oq_sdim *dims = oq_r_dims(c, x->rank);
    for (size_t i = 0; dims != NULL && i < x->rank; i++) {
        int64_t both;
        dims[i] = __builtin_add_overflow(v[i], v[x->rank + i], &both)
                      ? oq_sdim_unknown()
                      : oq_sdim_addn(c->ds, x->dims[i], both);
    }
    if (dims != NULL)
        oq_r_set_shape(c, 0, dims, x->rank);
}

void oq_rule_pad(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    size_t axes[OQ_MAX_RANK], n = x->rank;
    for (size_t i = 0; i < n; i++)
        axes[i] = i;
    if (c->opset >= 18 && oq_r_has(c, 3)) {
        const int64_t *v;
        if (!oq_r_ints_in(c, 3, &v, &n)) {
            if (!c->plain)
                oq_r_set_rank(c, 0, x->rank);
            return;
        }
        OQ_R_FAIL_IF(n > x->rank, c, "%zu axes for a tensor of rank %u", n, x->rank);
        for (size_t i = 0; i < n; i++)
            OQ_R_NEED(oq_r_axis(c, v[i], x->rank, &axes[i]));
    }
    const oq_data *pads = oq_r_data(c, 1);
    if (pads == NULL)
        oq_r_set_rank(c, 0, x->rank);
    else if (pads->n != 2 * n)
        oq_r_fail(c, "%zu pads for %zu axes", pads->n, n);
    else
        pad_by(c, x, pads, axes, n);
}

void oq_rule_center_crop_pad(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    const oq_data *d = oq_r_data(c, 1);
    const int64_t *axes = NULL;
    size_t n_axes = 0;
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL && (d != NULL || !c->plain));
    const bool given = oq_r_ints(c, "axes", &axes, &n_axes);
    const size_t n = given ? n_axes : x->rank;
    oq_sdim *dims = oq_r_dims(c, x->rank);
    OQ_R_FAIL_IF(dims == NULL || (d != NULL && d->n != n), c,
                 "the shape has another number of values than there are axes");
    if (x->rank > 0)
        memcpy(dims, x->dims, x->rank * sizeof *dims);
    for (size_t i = 0; i < n; i++) {
        size_t axis;
        if (!oq_r_axis(c, given ? axes[i] : (int64_t)i, x->rank, &axis))
            return;
        dims[axis] = cell_dim(d, i);
    }
    oq_r_set_shape(c, 0, dims, x->rank);
}
