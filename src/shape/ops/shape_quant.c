/*
 * shape_quant.c — QuantizeLinear, DequantizeLinear and the quantized forms of element-wise
 * operators.
 */
#include "shape/sop.h"

#include "onnx/operators.h"

/* The type is that of the zero point, else output_dtype, else uint8. */
void oq_rule_quantize_linear(oq_rctx *c) {
    const int64_t wanted = oq_r_int(c, "output_dtype", 0);
    if (oq_r_has(c, 2) && (oq_r_type(c, 2) != NULL || c->opset < 21 || wanted == 0))
        OQ_R_NEED(oq_r_pass_elem(c, 2, 0));
    else if (wanted != 0)
        OQ_R_NEED(oq_r_elem_attr(c, "output_dtype", 0, 0));
    else
        oq_r_set_elem(c, 0, OQ_UINT8);
    oq_r_pass_shape(c, 0, 0);
}

/* Float up to opset 13; then the type of the scale, or output_dtype. */
void oq_rule_dequantize_linear(oq_rctx *c) {
    if (oq_domain_is_onnx(c->node->domain) && c->opset < 19)
        oq_r_set_elem(c, 0, OQ_FLOAT);
    else if (oq_r_int(c, "output_dtype", 0) != 0)
        OQ_R_NEED(oq_r_elem_attr(c, "output_dtype", 0, 0));
    else if (!oq_r_pass_elem(c, 1, 0))
        return;
    oq_r_pass_shape(c, 0, 0);
}

void oq_rule_dynamic_quantize_linear(oq_rctx *c) {
    oq_r_set_elem(c, 0, OQ_UINT8);
    oq_r_set_elem(c, 1, OQ_FLOAT);
    oq_r_set_elem(c, 2, OQ_UINT8);
    oq_r_set_shape(c, 1, NULL, 0);
    oq_r_set_shape(c, 2, NULL, 0);
    oq_r_pass_shape(c, 0, 0);
}

/* QLinearReduceMean: axes and keepdims as attributes. */
void oq_rule_qlinear_reduce(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    const int64_t *axes = NULL;
    size_t n = 0, rank = 0;
    const bool keep = oq_r_int(c, "keepdims", 1) != 0;
    bool reduced[OQ_MAX_RANK] = {false};
    oq_r_ints(c, "axes", &axes, &n);
    for (size_t i = 0; i < n; i++) {
        size_t axis;
        OQ_R_NEED(oq_r_axis(c, axes[i], x->rank, &axis));
        reduced[axis] = true;
    }
    oq_sdim *dims = oq_r_dims(c, x->rank);
    for (size_t i = 0; dims != NULL && i < x->rank; i++)
        if (n > 0 && !reduced[i])
            dims[rank++] = x->dims[i];
        else if (keep)
            dims[rank++] = oq_sdim_num(1);
    if (dims != NULL)
        oq_r_set_shape(c, 0, dims, rank);
}
