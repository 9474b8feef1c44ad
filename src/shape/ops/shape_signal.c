/*
 * shape_signal.c — DFT and STFT. The last axis is 1 (real) or 2 (complex).
 */
#include "shape/sop.h"

static oq_sdim half(oq_rctx *c, oq_sdim d) {
    return oq_sdim_addn(c->ds, oq_sdim_floordiv(c->ds, d, oq_sdim_num(2)), 1);
}

static bool scalar_dim(const oq_data *d, oq_sdim *out) {
    if (d == NULL || d->n != 1 || d->v[0].den != 1)
        return false;
    *out = d->v[0].d;
    return true;
}

/* DFT 17 has the axis as attribute (default 1), DFT 20 as input 2 (default -2). */
static bool dft_axis(oq_rctx *c, const oq_vtype *x, size_t *axis, bool *known) {
    oq_sdim at = oq_sdim_num(c->opset < 20 ? oq_r_int(c, "axis", 1) : -2);
    *known = true;
    if (c->opset >= 20 && oq_r_has(c, 2))
        *known = scalar_dim(oq_r_data(c, 2), &at) && oq_sdim_is_num(at);
    return !*known || oq_r_axis(c, at.n, x->rank, axis);
}

void oq_rule_dft(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    size_t axis = 0;
    bool known;
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    OQ_R_FAIL_IF(x->rank < 2, c, "the input must have rank 2 or more");
    const bool onesided = oq_r_int(c, "onesided", 0) != 0, inverse = oq_r_int(c, "inverse", 0) != 0;
    oq_sdim *dims = oq_r_dims_of(c, x);
    OQ_R_NEED(dims != NULL && dft_axis(c, x, &axis, &known));
    oq_sdim length = known ? dims[axis] : oq_sdim_unknown();
    const bool given = oq_r_has(c, 1);
    if (given && !scalar_dim(oq_r_data(c, 1), &length))
        length = oq_sdim_unknown();
    if (!known && (onesided || given)) {
        for (size_t i = 0; i < x->rank; i++)
            dims[i] = oq_sdim_unknown();
    } else if (known) {
        if (onesided && inverse && !given)
            length = oq_sdim_muln(c->ds, oq_sdim_addn(c->ds, length, -1), 2);
        else if (onesided && !inverse)
            length = half(c, length);
        dims[axis] = length;
    }
    dims[x->rank - 1] = oq_sdim_num(onesided && inverse ? 1 : 2);
    oq_r_set_shape(c, 0, dims, x->rank);
}

/* signal [batch, length, 1 or 2], frame_step, window, frame_length -> [batch, frames, bins, 2] */
void oq_rule_stft(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0), *window = oq_r_shape(c, 2);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    OQ_R_FAIL_IF(x->rank < 2, c, "the signal must have rank 2 or more");
    oq_sdim step = oq_sdim_unknown(), size = oq_sdim_unknown();
    scalar_dim(oq_r_data(c, 1), &step);
    if (oq_r_has(c, 3))
        scalar_dim(oq_r_data(c, 3), &size);
    else if (window != NULL && window->rank == 1)
        size = window->dims[0];
    if (c->plain && (!oq_sdim_is_num(x->dims[1]) || !oq_sdim_is_num(step) || !oq_sdim_is_num(size)))
        return;
    const bool onesided = oq_r_int(c, "onesided", c->plain ? 0 : 1) != 0;
    const oq_sdim frames =
        oq_sdim_addn(c->ds, oq_sdim_floordiv(c->ds, oq_sdim_sub(c->ds, x->dims[1], size), step), 1);
    const oq_sdim dims[4] = {c->plain && !oq_sdim_is_num(x->dims[0]) ? oq_sdim_unknown()
                                                                     : x->dims[0],
                             frames, onesided ? half(c, size) : size, oq_sdim_num(2)};
    oq_r_set_shape(c, 0, dims, 4);
}
