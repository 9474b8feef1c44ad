/*
 * cv_lower_nbits.c — DequantizeLinear in blocks and MatMul as MatMulNBits, and DequantizeLinear in
 * blocks and Gather as GatherBlockQuantized.
 */
#include "quantize/convert/cv.h"

typedef struct blocks {
    const oq_node *dq;
    oq_tensor *q, *scale, *zero;
    oq_span data, scales, zeros;
    uint64_t k, n, block, count;
    unsigned bits;
    bool is_signed;
} blocks;

static bool is_size(int64_t block) {
    return block >= 16 && block <= 256 && (block & (block - 1)) == 0;
}

/* A weight in blocks; false: something else. */
static bool find_blocks(oq_cv_scope *s, oq_str name, blocks *b) {
    const oq_index *owner = &s->index;
    const oq_value *v = oq_index_resolve(&owner, name);
    const oq_node *dq = v != NULL ? oq_value_node(owner, v) : NULL;
    onq_error ignored = ONQ_ERROR_INIT;
    if (!oq_node_is_dequantize(dq) || dq->input.n < 2)
        return false;
    *b = (blocks){.dq = dq,
                  .q = oq_cv_constant(s, dq->input.v[0]),
                  .scale = oq_cv_constant(s, dq->input.v[1]),
                  .zero = oq_cv_constant(s, oq_node_input(dq, 2))};
    const int64_t block = oq_attr_int(dq, "block_size", 0);
    const oq_dtype_info *type = b->q != NULL ? oq_dtype_find(b->q->data_type.v) : NULL;
    if (type == NULL || b->scale == NULL || (b->zero == NULL && oq_node_input(dq, 2).n > 0) ||
        !is_size(block) || (type->bits != 2 && type->bits != 4 && type->bits != 8) ||
        (type->cls != OQ_CLASS_INT && type->cls != OQ_CLASS_UINT) || b->q->dims.n != 2 ||
        b->scale->dims.n != 2 || !oq_dtype_is_float(b->scale->data_type.v) ||
        oq_model_data(s->cv->model, b->q, &b->data, &ignored) != ONQ_OK ||
        oq_model_data(s->cv->model, b->scale, &b->scales, &ignored) != ONQ_OK ||
        (b->zero != NULL && oq_model_data(s->cv->model, b->zero, &b->zeros, &ignored) != ONQ_OK))
        return false;
    b->bits = type->bits;
    b->is_signed = type->cls == OQ_CLASS_INT;
    b->block = (uint64_t)block;
    b->k = (uint64_t)b->q->dims.v[0];
    b->n = (uint64_t)b->q->dims.v[1];
    b->count = (b->k + b->block - 1) / b->block;
    return b->k > 0 && b->n > 0;
}

/* Blocks along the rows that a MatMul sums over, with parameters of the shape that belongs to them. */
static bool fits_matmul(const blocks *b) {
    const int64_t axis = oq_attr_int(b->dq, "axis", 1);
    return (axis == 0 || axis == -2) && (uint64_t)b->scale->dims.v[0] == b->count &&
           (uint64_t)b->scale->dims.v[1] == b->n &&
           (b->zero == NULL || (b->zero->dims.n == 2 && b->zero->dims.v[0] == b->scale->dims.v[0] &&
                                b->zero->dims.v[1] == b->scale->dims.v[1]));
}

static onq_code add_part(oq_cv_scope *s, const oq_tensor *near, const char *suffix, oq_dtype type,
                         const int64_t *dims, size_t rank, const oq_cv_turn *turn, oq_str *out,
                         onq_error *err) {
    *out = oq_cv_fresh(s, near->name, suffix);
    oq_tensor *t = oq_cv_init(s, near->name, *out, type, dims, rank);
    OQ_TRY_ALLOC(t != NULL, err);
    if (turn != NULL)
        return oq_cv_turn_payload(s->cv->model, t, turn, err);
    const size_t size = (size_t)(dims[0] * dims[1]); /* zero points that are 0 */
    uint8_t *p = oq_arena_alloc(s->cv->arena, size + 1);
    OQ_TRY_ALLOC(p != NULL, err);
    oq_tensor_set_view(t, p, size);
    return ONQ_OK;
}

static onq_code add_parts(oq_cv_scope *s, const blocks *b, oq_str out[3], onq_error *err) {
    const uint64_t zero_row = (b->count * b->bits + 7) / 8 * (8 / b->bits);
    const char *suffix = b->bits == 2 ? "_Q2" : b->bits == 4 ? "_Q4" : "_Q8";
    oq_cv_turn ints = {.data = b->data,
                       .type = (oq_dtype)b->q->data_type.v,
                       .rows = b->n,
                       .cols = b->k,
                       .stride = b->n,
                       .width = b->count * b->block,
                       .batch = 1,
                       .flip = b->is_signed};
    oq_cv_turn scale = ints, zero = ints;
    scale.data = b->scales;
    scale.type = (oq_dtype)b->scale->data_type.v;
    scale.cols = scale.width = b->count;
    scale.flip = false;
    zero.data = b->zeros;
    zero.cols = b->count;
    zero.width = zero_row;
    const int64_t n = (int64_t)b->n, blocks_of = (int64_t)b->count;
    const int64_t q_dims[] = {n, blocks_of, (int64_t)(b->block * b->bits / 8)};
    const int64_t scale_dims[] = {n, blocks_of};
    const int64_t zero_dims[] = {n, (int64_t)(zero_row * b->bits / 8)};
    OQ_TRY(add_part(s, b->q, suffix, OQ_UINT8, q_dims, 3, &ints, &out[0], err));
    OQ_TRY(add_part(s, b->scale, "_columns", scale.type, scale_dims, 2, &scale, &out[1], err));
    out[2] = (oq_str){0};
    if (b->zero == NULL && b->is_signed)
        return ONQ_OK;
    return add_part(s, b->q, "_zero_points", OQ_UINT8, zero_dims, 2, b->zero != NULL ? &zero : NULL,
                    &out[2], err);
}

static onq_code lower_matmul(oq_cv_scope *s, const oq_node *n, const blocks *b, onq_error *err) {
    static const char *const keys[] = {"K", "N", "bits", "block_size"};
    const int64_t values[] = {(int64_t)b->k, (int64_t)b->n, (int64_t)b->bits, (int64_t)b->block};
    oq_str part[3];
    OQ_TRY(add_parts(s, b, part, err));
    const oq_str in[] = {n->input.v[0], part[0], part[1], part[2]};
    oq_node *made = oq_node_make(s->cv->arena, "MatMulNBits", n->name, in, part[2].n > 0 ? 4 : 3,
                                 n->output.v, 1);
    OQ_TRY_ALLOC(made != NULL, err);
    for (size_t i = 0; i < OQ_COUNT(keys); i++)
        OQ_TRY_ALLOC(oq_attr_set_int(s->cv->arena, made, oq_str_of(keys[i]), values[i]), err);
    made->domain = OQ_S(OQ_MICROSOFT);
    oq_node_carry(made, n);
    OQ_TRY(oq_cv_replaced(s, n, err));
    return oq_cv_emit(s, made, err);
}

static onq_code lower_gather(oq_cv_scope *s, const oq_node *n, const blocks *b, onq_error *err) {
    static const char *const keys[] = {"bits", "block_size", "gather_axis", "quantize_axis"};
    const int64_t axis = oq_attr_int(b->dq, "axis", 1);
    const int64_t values[] = {(int64_t)b->bits, (int64_t)b->block, oq_attr_int(n, "axis", 0),
                              axis < 0 ? axis + 2 : axis};
    const oq_str in[] = {b->q->name, n->input.v[1], b->scale->name,
                         b->zero != NULL ? b->zero->name : OQ_S("")};
    oq_node *made = oq_node_make(s->cv->arena, "GatherBlockQuantized", n->name, in,
                                 b->zero != NULL ? 4 : 3, n->output.v, 1);
    OQ_TRY_ALLOC(made != NULL, err);
    for (size_t i = 0; i < OQ_COUNT(keys); i++)
        OQ_TRY_ALLOC(oq_attr_set_int(s->cv->arena, made, oq_str_of(keys[i]), values[i]), err);
    made->domain = OQ_S(OQ_MICROSOFT);
    oq_node_carry(made, n);
    OQ_TRY(oq_cv_replaced(s, n, err));
    return oq_cv_emit(s, made, err);
}

/* True if the node reads a weight that is dequantized in blocks. */
static bool reads_blocks(const oq_cv_scope *s, const oq_node *n) {
    for (size_t i = 0; i < n->input.n && !oq_node_is_pair(n); i++) {
        const oq_index *owner = &s->index;
        const oq_value *v = n->input.v[i].n > 0 ? oq_index_resolve(&owner, n->input.v[i]) : NULL;
        const oq_node *dq = v != NULL ? oq_value_node(owner, v) : NULL;
        if (oq_node_is_dequantize(dq) && oq_attr_int(dq, "block_size", 0) != 0 && dq->input.n > 0 &&
            oq_cv_constant(s, dq->input.v[0]) != NULL)
            return true;
    }
    return false;
}

onq_code oq_cv_to_nbits(oq_cv_scope *s, onq_error *err) {
    const oq_graph *g = s->graph;
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        blocks b;
        if (reads_blocks(s, n) && oq_cv_leave(s, n)) {
            OQ_TRY(oq_cv_emit(s, n, err));
            continue;
        }
        if (oq_node_is(n, "MatMul") && n->input.n == 2 && n->output.n == 1 &&
            find_blocks(s, n->input.v[1], &b) && fits_matmul(&b)) {
            OQ_TRY(lower_matmul(s, n, &b, err));
            continue;
        }
        if (oq_node_is(n, "Gather") && n->input.n == 2 && n->output.n == 1 &&
            find_blocks(s, n->input.v[0], &b) && b.bits == 4) {
            OQ_TRY(lower_gather(s, n, &b, err));
            continue;
        }
        if (reads_blocks(s, n))
            OQ_TRY(
                oq_cv_stays(s, n,
                            "MatMulNBits takes the second input of MatMul, in blocks of 16, 32, "
                            "64, 128 or 256 along its rows, and GatherBlockQuantized tables of 4 "
                            "bits",
                            err));
        OQ_TRY(oq_cv_emit(s, n, err));
    }
    return ONQ_OK;
}
