/*
 * shape_unary.c — operators whose output has the shape of their input: activations, casts,
 * normalizations, dropout.
 */
#include "shape/sop.h"

/* Type and shape of input 0, also of a sequence or optional. */
void oq_rule_same(oq_rctx *c) {
    oq_r_pass(c, 0, 0);
}

/* A truth value for each element. */
void oq_rule_bool(oq_rctx *c) {
    oq_r_set_elem(c, 0, OQ_BOOL);
    oq_r_pass_shape(c, 0, 0);
}

/* Softmax and its family: the axis must exist. The default moved from 1 to -1 with opset 13;
 * before, the input is taken as a matrix and the runtime allows the axis after the last. */
void oq_rule_softmax(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    size_t axis;
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    const int64_t given = oq_r_int(c, "axis", c->opset >= 13 ? -1 : 1);
    const bool behind = !c->plain && c->opset < 13 && given == (int64_t)x->rank;
    if (behind || oq_r_axis(c, given, x->rank, &axis))
        oq_r_pass_shape(c, 0, 0);
}

void oq_rule_cast(oq_rctx *c) {
    if (oq_r_elem_attr(c, "to", 0, 0))
        oq_r_pass_shape(c, 0, 0);
}

void oq_rule_cast_like(oq_rctx *c) {
    if (oq_r_pass_elem(c, 1, 0))
        oq_r_pass_shape(c, 0, 0);
}

/* The bytes of the last axis are read as another type; sizes may differ only by a whole factor. */
void oq_rule_bit_cast(oq_rctx *c) {
    OQ_R_NEED(oq_r_elem_attr(c, "to", 0, 0));
    const oq_dtype_info *from = oq_dtype_find(oq_r_elem(c, 0)),
                        *to = oq_dtype_find(c->out[0].elem_type);
    if (from != NULL && to != NULL && from->bits == to->bits)
        oq_r_pass_shape(c, 0, 0);
    else if (from != NULL && to != NULL && c->plain)
        oq_r_fail(c, "the types have different sizes");
}

/* EyeLike, Bernoulli, Random*Like: shape of the input, element type from dtype if given. */
void oq_rule_like(oq_rctx *c) {
    if (oq_r_attr(c, "dtype") != NULL ? oq_r_elem_attr(c, "dtype", 0, 0) : oq_r_pass_elem(c, 0, 0))
        oq_r_pass_shape(c, 0, 0);
}

void oq_rule_eye_like(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    oq_rule_like(c);
    if (x != NULL && x->rank != 2)
        oq_r_fail(c, "the input must have rank 2");
}

/* The mask of Dropout is bool since opset 10 and has the type of the data before. */
void oq_rule_dropout(oq_rctx *c) {
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    oq_r_pass_shape(c, 0, 0);
    OQ_R_NEED(c->n_out >= 2 && (!c->plain || c->opset >= 10));
    if (c->opset >= 10)
        oq_r_set_elem(c, 1, OQ_BOOL);
    else
        oq_r_pass_elem(c, 0, 1);
    oq_r_pass_shape(c, 0, 1);
}

/* Checks inputs 1 to 4 and gives the number of channels. */
static bool channels(oq_rctx *c, oq_sdim *out) {
    const oq_vtype *x = oq_r_shape(c, 0);
    oq_sdim n = oq_sdim_unknown();
    if (x != NULL)
        n = x->rank > 1 ? x->dims[1] : oq_sdim_num(1);
    for (size_t i = 1; i <= 4; i++) {
        const oq_vtype *t = oq_r_shape(c, i);
        if (t != NULL && t->rank != 1)
            return oq_r_fail(c, "input %zu must have rank 1", i);
        n = t != NULL ? oq_r_same(c, n, t->dims[0]) : n;
    }
    *out = n;
    return !c->failed;
}

/* Before opset 14 the further outputs (running and saved mean and variance) are like the inputs. */
void oq_rule_batch_norm(oq_rctx *c) {
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    oq_r_pass_shape(c, 0, 0);
    if (c->plain && c->opset < 14)
        return;
    oq_sdim n = oq_sdim_unknown();
    if (c->opset >= 14 && !channels(c, &n))
        return;
    const bool training = oq_r_int(c, "training_mode", 0) != 0;
    OQ_R_FAIL_IF(c->opset >= 14 && c->plain && c->n_out != (training ? 3u : 1u), c,
                 "%zu outputs do not go with training_mode %d", c->n_out, training);
    for (size_t o = 1; o < c->n_out && o < 5; o++) {
        /* 14: running_mean, running_var are inputs 3, 4; before: mean, var, saved_mean,
         * saved_var. */
        const size_t from = c->opset >= 14 || o < 3 ? o + 2 : o;
        if (oq_r_elem(c, from) != 0)
            oq_r_pass_elem(c, from, o);
        if (c->opset >= 14)
            oq_r_set_shape(c, o, &n, 1);
        else
            oq_r_pass_shape(c, 1, o);
    }
}

/* Mean and inverse deviation of the axes from `axis` on. */
static void norm_statistics(oq_rctx *c, int32_t elem_type, size_t first) {
    const oq_vtype *x = oq_r_shape(c, 0);
    for (size_t o = first; o < first + 2 && o < c->n_out; o++)
        oq_r_set_elem(c, o, elem_type);
    OQ_R_NEED(x != NULL);
    int64_t axis = oq_r_int(c, "axis", -1);
    axis += axis < 0 ? (int64_t)x->rank : 0;
    OQ_R_FAIL_IF(axis < 0, c, "the axis is not in a tensor of rank %u", x->rank);
    oq_sdim *dims = oq_r_dims(c, x->rank);
    for (size_t i = 0; dims != NULL && i < x->rank; i++)
        dims[i] = (int64_t)i < axis ? x->dims[i] : oq_sdim_num(1);
    for (size_t o = first; dims != NULL && o < first + 2 && o < c->n_out; o++)
        oq_r_set_shape(c, o, dims, x->rank);
}

void oq_rule_layer_norm(oq_rctx *c) {
    oq_r_pass(c, 0, 0);
    if (!c->failed)
        norm_statistics(c, (int32_t)oq_r_int(c, "stash_type", OQ_FLOAT), 1);
}

/* The contrib SimplifiedLayerNormalization has one statistic, in float for the half types. */
void oq_rule_ms_layer_norm(oq_rctx *c) {
    oq_r_pass(c, 0, 0);
    const int32_t e = oq_r_elem(c, 0);
    if (!c->failed)
        norm_statistics(c, e == OQ_DOUBLE ? OQ_DOUBLE : OQ_FLOAT, 1);
}

/* SkipLayerNormalization: mean and deviation are outputs 1 and 2, the sum of the inputs is 3. */
void oq_rule_skip_layer_norm(oq_rctx *c) {
    oq_r_pass(c, 0, 0);
    OQ_R_NEED(!c->failed);
    norm_statistics(c, OQ_FLOAT, 1);
    if (c->n_out > 3)
        oq_r_pass(c, 0, 3);
}

/* Output 1, when there, is the sum of input and skip. */
void oq_rule_skip_group_norm(oq_rctx *c) {
    oq_r_pass(c, 0, 0);
    if (!c->failed && c->n_out > 1)
        oq_r_pass(c, 0, 1);
}
