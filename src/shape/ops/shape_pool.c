/*
 * shape_pool.c — poolings: windows, global, unpooling, regions of interest.
 */
#include "shape/sop.h"
#include "shape/window.h"

static void pool(oq_rctx *c, size_t channels_last) {
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_NEED(x != NULL);
    OQ_R_FAIL_IF(x->rank < 3, c, "the input has rank %u, at least 3 is needed", x->rank);
    oq_window w;
    bool known;
    const size_t n = x->rank - 2;
    OQ_R_NEED(oq_window_read(c, &w, n, NULL, &known));
    oq_sdim *dims = oq_r_dims_of(c, x);
    OQ_R_NEED(dims != NULL);
    for (size_t i = 0; i < n; i++) {
        const size_t at = i + (channels_last ? 1 : 2);
        dims[at] = oq_window_out(c, &w, i, x->dims[at]);
    }
    for (size_t o = 0; o < c->n_out && o < 2; o++)
        oq_r_set_shape(c, o, dims, x->rank);
}

/* MaxPool has its indices as output 1 from opset 8 on. */
void oq_rule_pool(oq_rctx *c) {
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    if (c->n_out > 1)
        oq_r_set_elem(c, 1, OQ_INT64);
    pool(c, 0);
}

void oq_rule_qlinear_pool(oq_rctx *c) {
    if (oq_r_pass_elem(c, 0, 0))
        pool(c, oq_r_int(c, "channels_last", 0) != 0 ? 1 : 0);
}

void oq_rule_nhwc_pool(oq_rctx *c) {
    if (oq_r_pass_elem(c, 0, 0))
        pool(c, 1);
}

static void global_pool(oq_rctx *c, bool channels_last) {
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL && x->rank >= 2);
    oq_sdim *dims = oq_r_dims(c, x->rank);
    for (size_t i = 0; dims != NULL && i < x->rank; i++) {
        const bool kept = i == 0 || i == (channels_last ? x->rank - 1 : 1);
        dims[i] = kept ? x->dims[i] : oq_sdim_num(1);
    }
    if (dims != NULL)
        oq_r_set_shape(c, 0, dims, x->rank);
}

void oq_rule_global_pool(oq_rctx *c) {
    global_pool(c, false);
}

void oq_rule_qlinear_global_pool(oq_rctx *c) {
    global_pool(c, oq_r_int(c, "channels_last", 0) != 0);
}

/* Input 2, if given, is the shape of the output. */
void oq_rule_max_unpool(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0), *ix = oq_r_shape(c, 1);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    OQ_R_FAIL_IF(x->rank < 2, c, "the input must have rank 2 or more");
    oq_window w;
    bool known;
    OQ_R_NEED(oq_window_read(c, &w, x->rank - 2, NULL, &known));
    oq_sdim *dims = oq_r_dims(c, x->rank);
    const oq_data *given = c->plain ? NULL : oq_r_data(c, 2);
    OQ_R_NEED(dims != NULL && (c->n_in != 3 || !c->plain) && (oq_r_has(c, 2) || ix != NULL));
    for (size_t i = 0; i < x->rank; i++)
        if (oq_r_has(c, 2))
            dims[i] = given != NULL && given->n == x->rank ? given->v[i].d : oq_sdim_unknown();
        else if (i < 2)
            dims[i] = i == 0 || ix->rank < 2 ? x->dims[i] : ix->dims[1];
        else
            dims[i] = oq_window_out_transposed(c, &w, i - 2, x->dims[i], 0);
    oq_r_set_shape(c, 0, dims, x->rank);
}

void oq_rule_max_roi_pool(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0), *rois = oq_r_shape(c, 1);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL && rois != NULL);
    const int64_t *size;
    size_t n;
    OQ_R_FAIL_IF(x->rank < 4 || rois->rank != 2 || !oq_r_ints(c, "pooled_shape", &size, &n) ||
                     n != x->rank - 2 || n < 2,
                 c, "the ranks or 'pooled_shape' do not fit");
    const oq_sdim dims[4] = {rois->dims[0], x->dims[1], oq_sdim_num(size[0]), oq_sdim_num(size[1])};
    oq_r_set_shape(c, 0, dims, 4);
}

void oq_rule_roi_align(oq_rctx *c) {
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    const oq_vtype *x = oq_r_shape(c, 0), *rois = oq_r_shape(c, 1), *batch = oq_r_shape(c, 2);
    oq_sdim dims[4] = {oq_sdim_unknown(), oq_sdim_unknown(),
                       oq_sdim_num(oq_r_int(c, "output_height", 1)),
                       oq_sdim_num(oq_r_int(c, "output_width", 1))};
    OQ_R_FAIL_IF((x != NULL && x->rank != 4) || (rois != NULL && rois->rank != 2) ||
                     (batch != NULL && batch->rank != 1),
                 c, "the inputs must have ranks 4, 2 and 1");
    dims[0] = rois != NULL ? rois->dims[0] : dims[0];
    dims[0] = batch != NULL ? oq_r_same(c, dims[0], batch->dims[0]) : dims[0];
    dims[1] = x != NULL ? x->dims[1] : dims[1];
    oq_r_set_shape(c, 0, dims, 4);
}
