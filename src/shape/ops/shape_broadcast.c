/*
 * shape_broadcast.c — element-wise operators of several inputs, with numpy's broadcasting.
 *
 * Before opset 7 broadcasting was one-sided and asked for by an attribute; the result had the shape
 * of the first input then.
 */
#include "shape/sop.h"

#include "onnx/operators.h"

/* Broadcasts n inputs into output 0, those of `slots`, or the first ones if it is NULL; nothing when
 * a rank is not known. */
static void broadcast(oq_rctx *c, const size_t *slots, size_t n) {
    const oq_vtype **shapes = OQ_NEW_ARRAY(c->in->arena, const oq_vtype *, n + 1);
    if (shapes == NULL) {
        c->in->nomem = true;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        shapes[i] = oq_r_shape(c, slots != NULL ? slots[i] : i);
        OQ_R_NEED(shapes[i] != NULL);
    }
    const oq_sdim *dims;
    size_t rank;
    if (oq_r_broadcast(c, shapes, n, &dims, &rank))
        oq_r_set_shape(c, 0, dims, rank);
}

/* The shape of the first input (one-sided broadcasting). */
static bool is_one_sided(const oq_rctx *c) {
    return c->opset < 7 && oq_domain_is_onnx(c->node->domain);
}

void oq_rule_binary(oq_rctx *c) {
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    if (is_one_sided(c))
        oq_r_pass_shape(c, 0, 0);
    else
        broadcast(c, NULL, 2);
}

void oq_rule_compare(oq_rctx *c) {
    oq_r_set_elem(c, 0, OQ_BOOL);
    if (!is_one_sided(c))
        broadcast(c, NULL, 2);
    else if (!c->plain)
        oq_r_pass_shape(c, 0, 0);
}

/* Max, Min, Sum, Mean: any number of inputs; all of one shape before opset 8. */
void oq_rule_variadic(oq_rctx *c) {
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    if (c->opset < 8)
        oq_r_pass_shape(c, 0, 0);
    else
        broadcast(c, NULL, c->n_in);
}

void oq_rule_where(oq_rctx *c) {
    if (oq_r_pass_elem(c, 1, 0) && c->n_in >= 3)
        broadcast(c, NULL, 3);
}

void oq_rule_string_concat(oq_rctx *c) {
    oq_r_set_elem(c, 0, OQ_STRING);
    broadcast(c, NULL, 2);
}

/* QLinearAdd, QLinearMul: A, its scale and zero point, then B. */
void oq_rule_qlinear_binary(oq_rctx *c) {
    if (oq_r_pass_elem(c, 0, 0))
        broadcast(c, (const size_t[]){0, 3}, 2);
}

/* QLinearWhere: condition, X with scale and zero point, Y with scale and zero point. */
void oq_rule_qlinear_where(oq_rctx *c) {
    if (oq_r_pass_elem(c, 1, 0))
        broadcast(c, (const size_t[]){0, 1, 4}, 3);
}

/* Expand: the input against the shape given by input 1, which must be one-dimensional. */
void oq_rule_expand(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0), *s = oq_r_shape(c, 1);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL && s != NULL);
    OQ_R_FAIL_IF(s->rank != 1, c, "input 'shape' must have rank 1");
    const oq_data *d = oq_r_data(c, 1);
    if (d == NULL &&
        (!oq_sdim_is_num(s->dims[0]) || s->dims[0].n < 0 || s->dims[0].n > OQ_MAX_RANK))
        return;
    const size_t rank = d != NULL ? d->n : (size_t)s->dims[0].n;
    oq_sdim *want = oq_r_dims(c, rank);
    for (size_t i = 0; want != NULL && i < rank; i++)
        want[i] = d != NULL && d->v[i].den == 1 ? d->v[i].d : oq_sdim_unknown();
    OQ_R_NEED(want != NULL);
    const oq_vtype target = {
        .kind = OQ_V_TENSOR, .has_shape = true, .rank = (uint32_t)rank, .dims = want};
    const oq_vtype *shapes[2] = {x, &target};
    const oq_sdim *dims;
    size_t out_rank;
    if (oq_r_broadcast(c, shapes, 2, &dims, &out_rank))
        oq_r_set_shape(c, 0, dims, out_rank);
}
