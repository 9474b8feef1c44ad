/*
 * shape_conv.c — convolutions: Conv, ConvTranspose, their integer, fused, deformable and
 * channels-last forms, Col2Im.
 */
#include "shape/sop.h"
#include "shape/window.h"

/* Data at input x, weights [M, C/group, k...] at input w; channels_last: [N, ..., C] and [M, k...,
 * C/group]. */
static void conv(oq_rctx *c, size_t x_at, size_t w_at, bool channels_last) {
    const oq_vtype *x = oq_r_shape(c, x_at), *w = oq_r_shape(c, w_at);
    OQ_R_NEED(x != NULL && w != NULL);
    OQ_R_FAIL_IF(x->rank < 3, c, "the input has rank %u, at least 3 is needed", x->rank);
    const size_t n = x->rank - 2;
    OQ_R_FAIL_IF(w->rank != x->rank, c, "the weight has rank %u, the input %u", w->rank, x->rank);
    oq_window win;
    bool known;
    if (!oq_window_read(c, &win, n, w->dims + (channels_last ? 1 : 2), &known))
        return;
    if (!known && c->plain)
        return;
    oq_sdim *dims = oq_r_dims(c, x->rank);
    OQ_R_NEED(dims != NULL);
    dims[0] = x->dims[0];
    dims[channels_last ? n + 1 : 1] = w->dims[0];
    for (size_t i = 0; i < n; i++) {
        const size_t at = i + (channels_last ? 1 : 2);
        dims[at] = known ? oq_window_out(c, &win, i, x->dims[at]) : oq_sdim_unknown();
    }
    oq_r_set_shape(c, 0, dims, x->rank);
}

void oq_rule_conv(oq_rctx *c) {
    if (oq_r_pass_elem(c, 0, 0))
        conv(c, 0, 1, false);
}

void oq_rule_nhwc_conv(oq_rctx *c) {
    if (oq_r_pass_elem(c, 0, 0))
        conv(c, 0, 1, true);
}

void oq_rule_conv_integer(oq_rctx *c) {
    if (oq_r_pass_sums(c))
        conv(c, 0, 1, false);
}

/* x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B. */
void oq_rule_qlinear_conv(oq_rctx *c) {
    if (oq_r_pass_qlinear(c))
        conv(c, 0, 3, oq_r_int(c, "channels_last", 0) != 0);
}

/* Weights are [C, M/group, k...]. */
void oq_rule_conv_transpose(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0), *w = oq_r_shape(c, 1);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL && w != NULL);
    OQ_R_FAIL_IF(x->rank < 3 || w->rank != x->rank, c, "the input has rank %u, the weight %u",
                 x->rank, w->rank);
    const size_t n = x->rank - 2;
    oq_window win;
    bool known;
    const int64_t *sizes, *extra;
    size_t n_sizes = 0, n_extra = 0;
    OQ_R_NEED(oq_window_read(c, &win, n, w->dims + 2, &known) && (known || !c->plain));
    const bool has_sizes = oq_r_ints(c, "output_shape", &sizes, &n_sizes);
    const bool has_extra = oq_r_ints(c, "output_padding", &extra, &n_extra);
    OQ_R_FAIL_IF((has_sizes && n_sizes != n && (c->plain || n_sizes != x->rank)) ||
                     (has_extra && n_extra != n),
                 c, "'output_shape' or 'output_padding' has the wrong number of values");
    oq_sdim *dims = oq_r_dims(c, x->rank);
    OQ_R_NEED(dims != NULL);
    dims[0] = x->dims[0];
    dims[1] = oq_sdim_muln(c->ds, w->dims[1], oq_r_int(c, "group", 1));
    for (size_t i = 0; i < n; i++) {
        const int64_t pad = has_extra ? extra[i] : 0;
        if (has_sizes) {
            dims[i + 2] = oq_sdim_num(sizes[n_sizes - n + i]);
        } else {
            dims[i + 2] = known ? oq_window_out_transposed(c, &win, i, x->dims[i + 2], pad)
                                : oq_sdim_unknown();
        }
    }
    oq_r_set_shape(c, 0, dims, x->rank);
}

/* [N, C * product(block), L] with the image's and the block's sizes given as values. */
void oq_rule_col2im(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0), *is = oq_r_shape(c, 1), *bs = oq_r_shape(c, 2);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL && is != NULL && bs != NULL);
    OQ_R_FAIL_IF(x->rank != 3 || is->rank != 1 || bs->rank != 1, c,
                 "the inputs must have ranks 3, 1 and 1");
    const oq_data *image = oq_r_data(c, 1), *block = oq_r_data(c, 2);
    oq_sdim n = oq_r_same(c, is->dims[0], bs->dims[0]);
    n = image != NULL ? oq_r_same(c, n, oq_sdim_num((int64_t)image->n)) : n;
    static const char *const lists[] = {"pads", "dilations", "strides"};
    for (size_t i = 0; i < OQ_COUNT(lists); i++) {
        const int64_t *v;
        size_t count;
        if (oq_r_ints(c, lists[i], &v, &count))
            n = oq_r_same(c, n, oq_sdim_num((int64_t)(i == 0 ? count / 2 : count)));
    }
    OQ_R_NEED(!c->failed && oq_sdim_is_num(n) && n.n >= 0 && n.n <= OQ_WINDOW_AXES);
    oq_sdim *dims = oq_r_dims(c, (size_t)n.n + 2);
    OQ_R_NEED(dims != NULL);
    oq_sdim per_block = block != NULL ? oq_sdim_num(1) : oq_sdim_unknown();
    for (size_t i = 0; block != NULL && i < block->n; i++)
        per_block = oq_sdim_mul(c->ds, per_block, block->v[i].d);
    dims[0] = c->plain && !oq_sdim_is_num(x->dims[0]) ? oq_sdim_unknown() : x->dims[0];
    dims[1] = oq_sdim_floordiv(c->ds, x->dims[1], per_block);
    for (size_t i = 0; i < (size_t)n.n; i++)
        dims[i + 2] = image != NULL ? image->v[i].d : oq_sdim_unknown();
    oq_r_set_shape(c, 0, dims, (size_t)n.n + 2);
}
