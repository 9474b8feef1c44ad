/*
 * shape_resize.c — resampling: Resize, Upsample, GridSample, AffineGrid.
 */
#include "shape/sop.h"

/* floor(size * scale): exact for whole and simple scales, also of names. */
static oq_sdim scaled(oq_rctx *c, oq_sdim size, oq_cell scale) {
    double s;
    if (oq_sdim_is_num(size) && oq_cell_real(scale, &s)) {
        const double v = floor((double)size.n * (double)(float)s);
        return v >= 0 && v < 9e15 ? oq_sdim_num((int64_t)v) : oq_sdim_unknown();
    }
    if (scale.den == 0 || c->plain)
        return oq_sdim_unknown();
    return oq_sdim_floordiv(c->ds, oq_sdim_mul(c->ds, size, scale.d), oq_sdim_num(scale.den));
}

/* The axes that sizes or scales are for, into `at`; false after a failure. */
static bool resize_axes(oq_rctx *c, size_t rank, size_t count, size_t *at) {
    const int64_t *axes = NULL;
    size_t n = 0;
    const bool given = oq_r_ints(c, "axes", &axes, &n) && c->opset >= 18;
    if (count != (given ? n : rank) || count > OQ_MAX_RANK) {
        oq_r_fail(c, "%zu sizes or scales for %zu axes", count, given ? n : rank);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        at[i] = i;
        if (given && !oq_r_axis(c, axes[i], rank, &at[i]))
            return false;
    }
    return true;
}

/* keep_aspect_ratio_policy: all sizes follow the one that limits. Only for numbers. */
static void keep_aspect(oq_rctx *c, const oq_vtype *x, const oq_data *sizes, const size_t *at,
                        oq_sdim *dims) {
    const bool larger = oq_r_str_is(c, "keep_aspect_ratio_policy", "stretch", "not_smaller");
    double scale = 0;
    bool known = true;
    for (size_t i = 0; i < sizes->n; i++) {
        int64_t want;
        known = known && oq_cell_integer(sizes->v[i], &want) && oq_sdim_is_num(x->dims[at[i]]) &&
                x->dims[at[i]].n > 0;
        if (!known)
            break;
        const double s = (double)want / (double)x->dims[at[i]].n;
        scale = i == 0 || (larger ? s > scale : s < scale) ? s : scale;
    }
    for (size_t i = 0; i < sizes->n; i++) {
        const double size = known ? round(scale * (double)x->dims[at[i]].n) : -1;
        dims[at[i]] = size >= 0 && size < 9e15 ? oq_sdim_num((int64_t)size) : oq_sdim_unknown();
    }
}

/* What onnx makes of sizes whose values it does not see: their number must fit, the axes stay
 * open. */
static void resize_blind(oq_rctx *c, const oq_vtype *x) {
    const oq_vtype *s = oq_r_shape(c, 3);
    size_t at[OQ_MAX_RANK];
    const bool counted = s != NULL && s->rank == 1 && oq_sdim_is_num(s->dims[0]) &&
                         s->dims[0].n >= 0 && s->dims[0].n <= OQ_MAX_RANK;
    const size_t n = counted ? (size_t)s->dims[0].n : 0;
    oq_sdim *dims = oq_r_dims(c, x->rank);
    OQ_R_NEED(dims != NULL && resize_axes(c, x->rank, n, at));
    for (size_t i = 0; i < x->rank; i++)
        dims[i] = oq_sdim_is_num(x->dims[i]) ? x->dims[i] : oq_sdim_unknown();
    for (size_t i = 0; i < n; i++)
        dims[at[i]] = oq_sdim_unknown();
    oq_r_set_shape(c, 0, dims, x->rank);
}

/* The dims of x, to be changed; plain mode knows those that are numbers. */
static oq_sdim *dims_of(oq_rctx *c, const oq_vtype *x) {
    oq_sdim *dims = oq_r_dims(c, x->rank);
    for (size_t i = 0; dims != NULL && i < x->rank; i++)
        dims[i] = c->plain && !oq_sdim_is_num(x->dims[i]) ? oq_sdim_unknown() : x->dims[i];
    return dims;
}

static void resize_to(oq_rctx *c, const oq_vtype *x, const oq_data *sizes) {
    size_t at[OQ_MAX_RANK];
    oq_sdim *dims = dims_of(c, x);
    OQ_R_NEED(dims != NULL && resize_axes(c, x->rank, sizes->n, at));
    if (!oq_r_str_is(c, "keep_aspect_ratio_policy", "stretch", "stretch")) {
        keep_aspect(c, x, sizes, at, dims);
    } else {
        for (size_t i = 0; i < sizes->n; i++) {
            const oq_sdim d = sizes->v[i].den == 1 ? sizes->v[i].d : oq_sdim_unknown();
            dims[at[i]] = oq_sdim_is_num(d) && d.n <= 0 ? oq_sdim_unknown() : d;
        }
    }
    oq_r_set_shape(c, 0, dims, x->rank);
}

/* tf_crop_and_resize takes only the region roi of each axis. */
static oq_cell crop(oq_rctx *c, const oq_data *roi, size_t n, size_t i, oq_cell scale) {
    double start, end, s;
    if (!oq_r_str_is(c, "coordinate_transformation_mode", "half_pixel", "tf_crop_and_resize"))
        return scale;
    if (c->plain)
        return scale;
    if (roi == NULL || roi->n != 2 * n || !oq_cell_real(roi->v[i], &start) ||
        !oq_cell_real(roi->v[n + i], &end) || !oq_cell_real(scale, &s))
        return (oq_cell){oq_sdim_unknown(), 1, 0};
    return oq_cell_of_real(s * (end - start));
}

static void resize_by(oq_rctx *c, const oq_vtype *x, const oq_data *scales, const oq_data *roi) {
    size_t at[OQ_MAX_RANK];
    oq_sdim *dims = dims_of(c, x);
    OQ_R_NEED(dims != NULL && resize_axes(c, x->rank, scales->n, at));
    for (size_t i = 0; i < scales->n; i++)
        dims[at[i]] = scaled(c, x->dims[at[i]], crop(c, roi, scales->n, i, scales->v[i]));
    oq_r_set_shape(c, 0, dims, x->rank);
}

/* X, scales (opset 10); X, roi, scales, sizes (11 and later); an empty tensor means "not given". */
void oq_rule_resize(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    const size_t scales_at = c->opset < 11 ? 1 : 2;
    const oq_data *scales = oq_r_data(c, scales_at),
                  *sizes = c->opset < 11 ? NULL : oq_r_data(c, 3);
    const bool no_scales = !oq_r_has(c, scales_at) || (scales != NULL && scales->n == 0);
    const bool no_sizes = c->opset < 11 || !oq_r_has(c, 3) || (sizes != NULL && sizes->n == 0);
    if (c->plain && c->opset >= 13 && no_scales == no_sizes)
        oq_r_fail(c, "one of 'scales' and 'sizes' is needed, not both");
    else if (sizes != NULL && sizes->n > 0)
        resize_to(c, x, sizes);
    else if (c->plain && !no_sizes)
        resize_blind(c, x);
    else if (scales != NULL && scales->n > 0 && no_sizes)
        resize_by(c, x, scales, c->opset < 11 ? NULL : oq_r_data(c, 1));
    else
        oq_r_set_rank(c, 0, x->rank);
}

/* Upsample 7: the scales are an attribute; 9: input 1. */
void oq_rule_upsample_attr(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    if (c->plain && x == NULL)
        return;
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    const oq_attribute *a = oq_r_attr(c, "scales");
    oq_sdim *dims = oq_r_dims(c, x->rank);
    if (a == NULL && !c->plain) { /* opset 1: width_scale and height_scale of an NCHW image */
        const double h = oq_r_float(c, "height_scale", 1), w = oq_r_float(c, "width_scale", 1);
        for (size_t i = 0; dims != NULL && x->rank == 4 && i < 4; i++)
            dims[i] = i < 2 ? x->dims[i] : scaled(c, x->dims[i], oq_cell_of_real(i == 2 ? h : w));
    } else if (a == NULL || a->floats.n != x->rank) {
        oq_r_fail(c, "attribute 'scales' does not fit a tensor of rank %u", x->rank);
        return;
    } else {
        for (size_t i = 0; dims != NULL && i < x->rank; i++)
            dims[i] = scaled(c, x->dims[i], oq_cell_of_real((double)a->floats.v[i]));
    }
    if (dims != NULL)
        oq_r_set_shape(c, 0, dims, x->rank);
}

void oq_rule_upsample(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    const oq_data *scales = oq_r_data(c, 1);
    if (scales != NULL)
        resize_by(c, x, scales, NULL);
    else
        oq_r_set_rank(c, 0, x->rank);
}

void oq_rule_grid_sample(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0), *grid = oq_r_shape(c, 1);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL && grid != NULL);
    OQ_R_FAIL_IF(x->rank != grid->rank || x->rank < 3, c, "input and grid have ranks %u and %u",
                 x->rank, grid->rank);
    oq_sdim *dims = oq_r_dims(c, x->rank);
    OQ_R_NEED(dims != NULL);
    dims[0] = oq_r_same(c, x->dims[0], grid->dims[0]);
    dims[1] = x->dims[1];
    for (size_t i = 2; i < x->rank; i++)
        dims[i] = grid->dims[i - 1];
    oq_r_set_shape(c, 0, dims, x->rank);
}

/* theta [N, 2, 3] or [N, 3, 4]; size is (N, C, H, W) or (N, C, D, H, W). */
void oq_rule_affine_grid(oq_rctx *c) {
    const oq_data *size = oq_r_data(c, 1);
    const oq_vtype *s = oq_r_shape(c, 1);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && (!c->plain || oq_r_shape(c, 0) != NULL));
    size_t n = size != NULL ? size->n : 0;
    if (size == NULL && s != NULL && s->rank == 1 && oq_sdim_is_num(s->dims[0]))
        n = s->dims[0].n == 4 || s->dims[0].n == 5 ? (size_t)s->dims[0].n : 0;
    OQ_R_NEED(n != 0);
    OQ_R_FAIL_IF(n != 4 && n != 5, c, "size has %zu values, not 4 or 5", n);
    oq_sdim dims[5];
    for (size_t i = 0; i < n - 1; i++) {
        const size_t from = i == 0 ? 0 : i + 1;
        dims[i] = size != NULL && size->v[from].den == 1 ? size->v[from].d : oq_sdim_unknown();
    }
    dims[n - 1] = oq_sdim_num((int64_t)n - 2);
    oq_r_set_shape(c, 0, dims, n);
}
