/*
 * shape_gather.c — picking elements by index, scattering them back, and outputs whose size depends
 * on the data: Gather, GatherElements, GatherND, Scatter*, OneHot, Compress, NonZero, Unique,
 * NonMaxSuppression.
 *
 * A size that only the running model knows gets a name of its own in symbolic mode.
 */
#include "shape/sop.h"

/* data[:axis] + indices + data[axis+1:], with the data's dims given. */
static void gather_dims(oq_rctx *c, const oq_vtype *data, const oq_vtype *indices, size_t axis) {
    const size_t rank = data->rank + indices->rank - 1;
    oq_sdim *dims = oq_r_dims(c, rank);
    size_t n = 0;
    for (size_t i = 0; dims != NULL && i < data->rank; i++) {
        if (i != axis) {
            dims[n++] = data->dims[i];
            continue;
        }
        for (size_t k = 0; k < indices->rank; k++)
            dims[n++] = indices->dims[k];
    }
    if (dims != NULL)
        oq_r_set_shape(c, 0, dims, rank);
}

void oq_rule_gather(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0), *ix = oq_r_shape(c, 1);
    size_t axis;
    if (!oq_r_pass_elem(c, 0, 0) || x == NULL || ix == NULL ||
        !oq_r_axis(c, oq_r_int(c, "axis", 0), x->rank, &axis))
        return;
    gather_dims(c, x, ix, axis);
}

/* GatherBlockQuantized: data may be packed, two 4-bit values in a byte, along the quantized (last)
 * axis; the result has the type of the scales. */
void oq_rule_gather_block_quantized(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0), *ix = oq_r_shape(c, 1);
    size_t axis, packed;
    if (!oq_r_pass_elem(c, 2, 0) || x == NULL || ix == NULL || x->rank == 0 ||
        !oq_r_axis(c, oq_r_int(c, "gather_axis", 0), x->rank, &axis) ||
        !oq_r_axis(c, oq_r_int(c, "quantize_axis", 1), x->rank, &packed))
        return;
    const int64_t bits = oq_r_int(c, "bits", 4);
    if (x->elem_type != OQ_UINT8 || bits <= 0 || bits > 8 || packed == axis) {
        gather_dims(c, x, ix, axis);
        return;
    }
    oq_vtype *wide = oq_r_new_type(c, OQ_V_TENSOR);
    oq_sdim *dims = oq_r_dims_of(c, x);
    if (wide != NULL && dims != NULL) {
        dims[packed] = oq_sdim_muln(c->ds, dims[packed], 8 / bits);
        *wide = *x;
        wide->dims = dims;
        gather_dims(c, wide, ix, axis);
    }
}

void oq_rule_gather_elements(oq_rctx *c) {
    if (oq_r_pass_elem(c, 0, 0))
        oq_r_pass_shape(c, 1, 0);
}

void oq_rule_gather_nd(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0), *ix = oq_r_shape(c, 1);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL && ix != NULL);
    OQ_R_FAIL_IF(x->rank < 1 || ix->rank < 1, c, "the inputs must have rank 1 or more");
    const oq_sdim last = ix->dims[ix->rank - 1];
    OQ_R_NEED(oq_sdim_is_num(last));
    const int64_t batch = c->opset >= 12 ? oq_r_int(c, "batch_dims", 0) : 0;
    int64_t used;
    OQ_R_FAIL_IF(__builtin_add_overflow(last.n, batch, &used) || used < 0 ||
                     used > (int64_t)x->rank,
                 c, "indices of length %lld for data of rank %u", (long long)last.n, x->rank);
    const size_t head = ix->rank - 1, tail = x->rank - (size_t)used;
    oq_sdim *dims = oq_r_dims(c, head + tail);
    OQ_R_NEED(dims != NULL);
    for (size_t i = 0; i < head + tail; i++)
        dims[i] = i < head ? ix->dims[i] : x->dims[(size_t)used + i - head];
    oq_r_set_shape(c, 0, dims, head + tail);
}

/* Scatter*, TensorScatter, Trilu, ReverseSequence: the shape of the data. */
void oq_rule_scatter(oq_rctx *c) {
    if (oq_r_pass_elem(c, 0, 0))
        oq_r_pass_shape(c, 0, 0);
}

/* Like the data, which must have rank 2 or more. */
void oq_rule_matrix_like(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    oq_rule_scatter(c);
    if (x != NULL && x->rank < 2)
        oq_r_fail(c, "the input must have rank 2 or more");
}

void oq_rule_reverse_sequence(oq_rctx *c) {
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && (!c->plain || oq_r_shape(c, 1) != NULL));
    oq_rule_matrix_like(c);
}

void oq_rule_one_hot(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    size_t axis;
    OQ_R_NEED(oq_r_pass_elem(c, 2, 0) && x != NULL);
    OQ_R_FAIL_IF(x->rank < 1 && c->plain, c, "the indices must have rank 1 or more");
    OQ_R_NEED(oq_r_axis(c, oq_r_int(c, "axis", -1), (size_t)x->rank + 1, &axis));
    const oq_data *d = oq_r_data(c, 1);
    oq_sdim depth = oq_r_fresh(c, 0, axis);
    if (d != NULL && d->n == 1 && d->v[0].den == 1)
        depth = d->v[0].d;
    oq_sdim *dims = oq_r_dims(c, (size_t)x->rank + 1);
    for (size_t i = 0; dims != NULL && i <= x->rank; i++)
        dims[i] = i == axis ? depth : x->dims[i < axis ? i : i - 1];
    if (dims != NULL)
        oq_r_set_shape(c, 0, dims, (size_t)x->rank + 1);
}

void oq_rule_compress(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    size_t axis = 0;
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    if (oq_r_attr(c, "axis") == NULL) {
        const oq_sdim flat = oq_r_fresh(c, 0, 0);
        oq_r_set_shape(c, 0, &flat, 1);
        return;
    }
    OQ_R_NEED(x != NULL && oq_r_axis(c, oq_r_int(c, "axis", 0), x->rank, &axis));
    oq_sdim *dims = oq_r_dims(c, x->rank);
    for (size_t i = 0; dims != NULL && i < x->rank; i++)
        dims[i] = i == axis ? oq_r_fresh(c, 0, axis) : x->dims[i];
    if (dims != NULL)
        oq_r_set_shape(c, 0, dims, x->rank);
}

void oq_rule_non_zero(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    oq_r_set_elem(c, 0, OQ_INT64);
    /* A scalar gives one row, as the runtime does. */
    const int64_t rank = x == NULL ? 0 : x->rank == 0 && !c->plain ? 1 : (int64_t)x->rank;
    const oq_sdim dims[2] = {x != NULL ? oq_sdim_num(rank) : oq_sdim_unknown(),
                             oq_r_fresh(c, 0, 1)};
    oq_r_set_shape(c, 0, dims, 2);
}

/* Y, indices, inverse_indices, counts: Y, indices and counts share one size. */
void oq_rule_unique(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    const bool flat = oq_r_attr(c, "axis") == NULL;
    size_t axis = 0;
    if (!flat && x != NULL && !oq_r_axis(c, oq_r_int(c, "axis", 0), x->rank, &axis))
        return;
    const oq_sdim n = oq_r_fresh(c, 0, axis);
    oq_sdim all = oq_sdim_unknown();
    if (x != NULL && !c->plain)
        all = flat ? oq_r_product(c, x->dims, 0, x->rank) : x->dims[axis];
    for (size_t o = 1; o < c->n_out && o < 4; o++)
        oq_r_set(c, o, OQ_INT64, o == 2 ? &all : &n, 1);
    if (flat) {
        oq_r_set_shape(c, 0, &n, 1);
    } else if (x != NULL) {
        oq_sdim *dims = oq_r_dims(c, x->rank);
        for (size_t i = 0; dims != NULL && i < x->rank; i++)
            dims[i] = i == axis ? n : x->dims[i];
        if (dims != NULL)
            oq_r_set_shape(c, 0, dims, x->rank);
    }
}

void oq_rule_non_max_suppression(oq_rctx *c) {
    oq_r_set_elem(c, 0, OQ_INT64);
    if (c->plain && c->opset < 11)
        return;
    const oq_sdim dims[2] = {oq_r_fresh(c, 0, 0), oq_sdim_num(3)};
    oq_r_set_shape(c, 0, dims, 2);
}
