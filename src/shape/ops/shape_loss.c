/*
 * shape_loss.c — losses and the optimisers of ai.onnx.preview.training.
 */
#include "shape/sop.h"

void oq_rule_nll_loss(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0), *y = oq_r_shape(c, 1);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    const bool whole = oq_r_str_is(c, "reduction", "mean", "none");
    if (x == NULL || y == NULL) {
        if (!c->plain && !whole)
            oq_r_set_shape(c, 0, NULL, 0);
        return;
    }
    OQ_R_FAIL_IF(x->rank < 2 || y->rank != x->rank - 1, c, "input and target have ranks %u and %u",
                 x->rank, y->rank);
    for (size_t i = 0; i < y->rank; i++)
        oq_r_same(c, x->dims[i == 0 ? 0 : i + 1], y->dims[i]);
    if (!whole) {
        oq_r_set_shape(c, 0, NULL, 0);
        return;
    }
    oq_sdim *dims = oq_r_dims(c, y->rank);
    for (size_t i = 0; dims != NULL && i < y->rank; i++)
        dims[i] = x->dims[i == 0 ? 0 : i + 1];
    if (dims != NULL)
        oq_r_set_shape(c, 0, dims, y->rank);
}

/* Output 1, if there, is log_prob with the shape of the scores. */
void oq_rule_softmax_cross_entropy(oq_rctx *c) {
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    if (oq_r_attr(c, "output_type") != NULL)
        oq_r_elem_attr(c, "output_type", 0, 0);
    if (oq_r_str_is(c, "reduction", "mean", "none"))
        oq_r_pass_shape(c, 1, 0);
    else
        oq_r_set_shape(c, 0, NULL, 0);
    if (c->n_out > 1) {
        oq_r_set_elem(c, 1, c->out[0].elem_type);
        oq_r_pass_shape(c, 0, 1);
    }
}

/* R, T, then n tensors, n gradients and k states each; out: n tensors, then k states each. */
static void optimiser(oq_rctx *c, size_t n_states) {
    OQ_R_FAIL_IF(c->n_in < 2 || (c->n_in - 2) % (n_states + 2) != 0, c, "%zu inputs do not fit",
                 c->n_in);
    const size_t n = (c->n_in - 2) / (n_states + 2);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k <= n_states; k++) {
            const size_t from = 2 + (k == 0 ? 0 : k + 1) * n + i, to = k * n + i;
            if (to < c->n_out)
                oq_r_pass(c, from, to);
        }
    }
}

void oq_rule_optimiser_1(oq_rctx *c) {
    optimiser(c, 1);
}

void oq_rule_optimiser_2(oq_rctx *c) {
    optimiser(c, 2);
}

/* Each output is the derivative by the input of the same place, and like it. */
void oq_rule_gradient(oq_rctx *c) {
    for (size_t o = 0; o < c->n_out && o < c->n_in; o++)
        oq_r_pass(c, o, o);
}
