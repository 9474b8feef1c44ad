/*
 * shape_matmul.c — matrix products: MatMul, Gemm, their integer, quantized and fused forms.
 */
#include "shape/sop.h"

typedef struct matrix {
    const oq_sdim *batch;
    size_t n_batch;
    oq_sdim rows, cols;
    bool vector;
} matrix;

static matrix matrix_of(const oq_vtype *t, bool right, bool transposed) {
    matrix m = {.batch = t->dims};
    if (t->rank == 1) {
        m.vector = true;
        m.rows = right ? t->dims[0] : oq_sdim_num(1);
        m.cols = right ? oq_sdim_num(1) : t->dims[0];
        return m;
    }
    m.n_batch = t->rank - 2;
    m.rows = t->dims[t->rank - (transposed ? 1 : 2)];
    m.cols = t->dims[t->rank - (transposed ? 2 : 1)];
    return m;
}

/* The shape of a @ b into output 0. */
static void product(oq_rctx *c, const oq_vtype *a, const oq_vtype *b, bool trans_a, bool trans_b) {
    OQ_R_FAIL_IF(a->rank == 0 || b->rank == 0, c, "a scalar is not a matrix");
    const matrix l = matrix_of(a, false, trans_a && a->rank > 1);
    const matrix r = matrix_of(b, true, trans_b && b->rank > 1);
    oq_r_same(c, l.cols, r.rows);
    const oq_vtype lb = {.has_shape = true, .rank = (uint32_t)l.n_batch, .dims = l.batch};
    const oq_vtype rb = {.has_shape = true, .rank = (uint32_t)r.n_batch, .dims = r.batch};
    const oq_vtype *shapes[2] = {&lb, &rb};
    const oq_sdim *batch;
    size_t n;
    OQ_R_NEED(!c->failed && oq_r_broadcast(c, shapes, 2, &batch, &n));
    oq_sdim *dims = oq_r_dims(c, n + 2);
    OQ_R_NEED(dims != NULL);
    if (n > 0)
        memcpy(dims, batch, n * sizeof *dims);
    if (!l.vector)
        dims[n++] = l.rows;
    if (!r.vector)
        dims[n++] = r.cols;
    oq_r_set_shape(c, 0, dims, n);
}

static void product_of(oq_rctx *c, size_t a_at, size_t b_at) {
    const oq_vtype *a = oq_r_shape(c, a_at), *b = oq_r_shape(c, b_at);
    if (a != NULL && b != NULL)
        product(c, a, b, false, false);
}

void oq_rule_matmul(oq_rctx *c) {
    if (oq_r_pass_elem(c, 0, 0))
        product_of(c, 0, 1);
}

void oq_rule_matmul_integer(oq_rctx *c) {
    if (oq_r_pass_sums(c))
        product_of(c, 0, 1);
}

/* a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point. */
void oq_rule_qlinear_matmul(oq_rctx *c) {
    if (oq_r_pass_qlinear(c))
        product_of(c, 0, 3);
}

/* MatMulIntegerToFloat: the scale of A is input 2. */
void oq_rule_matmul_to_float(oq_rctx *c) {
    if (oq_r_pass_elem(c, 2, 0))
        product_of(c, 0, 1);
}

/* Y = A' * B' + C; both matrices have rank 2. */
void oq_rule_gemm(oq_rctx *c) {
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    const oq_vtype *a = oq_r_shape(c, 0), *b = oq_r_shape(c, 1);
    OQ_R_FAIL_IF((a != NULL && a->rank != 2) || (b != NULL && b->rank != 2), c,
                 "the matrices must have rank 2");
    /* From opset 13 onnx takes what it can get; before it needs both. */
    if ((a == NULL || b == NULL) && (c->plain ? c->opset < 13 : false))
        return;
    const size_t ta = oq_r_int(c, "transA", 0) != 0 ? 1 : 0;
    const size_t tb = oq_r_int(c, "transB", 0) != 0 ? 1 : 0;
    if (a != NULL && b != NULL && (!c->plain || c->opset >= 13))
        oq_r_same(c, a->dims[1 - ta], b->dims[tb]);
    const oq_sdim dims[2] = {a != NULL ? a->dims[ta] : oq_sdim_unknown(),
                             b != NULL ? b->dims[1 - tb] : oq_sdim_unknown()};
    oq_r_set_shape(c, 0, dims, 2);
}

/* QGemm: A, scale, zero point, B, scale, zero point, C, y_scale, y_zero_point (float without
 * it). */
void oq_rule_qgemm(oq_rctx *c) {
    const oq_vtype *a = oq_r_shape(c, 0), *b = oq_r_shape(c, 3);
    if (!oq_r_pass_elem(c, oq_r_has(c, 8) ? 8 : 1, 0) || a == NULL || b == NULL)
        return;
    OQ_R_FAIL_IF(a->rank != 2 || b->rank != 2, c, "the matrices must have rank 2");
    const oq_sdim dims[2] = {a->dims[oq_r_int(c, "transA", 0) != 0 ? 1 : 0],
                             b->dims[oq_r_int(c, "transB", 0) != 0 ? 0 : 1]};
    oq_r_set_shape(c, 0, dims, 2);
}

void oq_rule_gemm_float8(oq_rctx *c) {
    const oq_vtype *a = oq_r_shape(c, 0), *b = oq_r_shape(c, 1);
    OQ_R_NEED(oq_r_elem_attr(c, "dtype", 0, OQ_FLOAT) && a != NULL && b != NULL);
    product(c, a, b, oq_r_int(c, "transA", 0) != 0, oq_r_int(c, "transB", 0) != 0);
}

/* transBatchA, transBatchB: the leading axis of rank-3-and-more inputs is the row axis. */
static const oq_vtype *batch_first(oq_rctx *c, const oq_vtype *t, bool moved) {
    if (!moved || t->rank < 3)
        return t;
    oq_vtype *out = oq_r_new_type(c, t->kind);
    oq_sdim *dims = oq_r_dims(c, t->rank);
    if (out == NULL || dims == NULL)
        return t;
    memcpy(dims, t->dims + 1, (t->rank - 2) * sizeof *dims);
    dims[t->rank - 2] = t->dims[0];
    dims[t->rank - 1] = t->dims[t->rank - 1];
    *out = *t;
    out->dims = dims;
    return out;
}

void oq_rule_fused_matmul(oq_rctx *c) {
    const oq_vtype *a = oq_r_shape(c, 0), *b = oq_r_shape(c, 1);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && a != NULL && b != NULL);
    product(c, batch_first(c, a, oq_r_int(c, "transBatchA", 0) != 0),
            batch_first(c, b, oq_r_int(c, "transBatchB", 0) != 0), oq_r_int(c, "transA", 0) != 0,
            oq_r_int(c, "transB", 0) != 0);
}

/* MatMulNBits, MatMulBnb4, MatMulFpQ4: B is packed, its sizes are attributes K and N. */
void oq_rule_matmul_nbits(oq_rctx *c) {
    const oq_vtype *a = oq_r_shape(c, 0);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && a != NULL);
    const oq_sdim k = oq_sdim_num(oq_r_int(c, "K", 0)), n = oq_sdim_num(oq_r_int(c, "N", 0));
    OQ_R_FAIL_IF(a->rank == 0 || k.n <= 0 || n.n <= 0, c, "A is a scalar, or K or N is missing");
    /* Bnb4's transB 0 swaps the two. */
    const bool swapped = oq_r_int(c, "transB", 1) == 0;
    oq_r_same(c, a->dims[a->rank - 1], swapped ? n : k);
    if (!c->failed)
        oq_r_set_last(c, 0, a, a->rank - 1, swapped ? k : n);
}

/* MatMulFpQ4: the shape of B is the values of input 2. */
void oq_rule_matmul_fpq4(oq_rctx *c) {
    const oq_vtype *a = oq_r_shape(c, 0);
    const int64_t *shape;
    size_t n;
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && a != NULL && oq_r_ints_in(c, 2, &shape, &n) && n == 2);
    const oq_sdim b_dims[2] = {oq_sdim_num(shape[0]), oq_sdim_num(shape[1])};
    const oq_vtype b = {.kind = OQ_V_TENSOR, .has_shape = true, .rank = 2, .dims = b_dims};
    product(c, a, &b, false, false);
}
