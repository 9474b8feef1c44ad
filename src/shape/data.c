/*
 * data.c — values of small tensors: reading constants, cells, copies under other dims.
 *
 * A cell is an exact fraction wherever it can be, so that a size that goes through float arithmetic
 * (Cast, Mul by 0.5, Floor, Cast) stays an expression of names.
 */
#include "shape/infer.h"

bool oq_cell_real(oq_cell c, double *out) {
    if (c.den == 0) {
        *out = c.r;
        return true;
    }
    if (!oq_sdim_is_num(c.d))
        return false;
    *out = (double)c.d.n / (double)c.den;
    return true;
}

bool oq_cell_integer(oq_cell c, int64_t *out) {
    if (c.den != 1 || !oq_sdim_is_num(c.d))
        return false;
    *out = c.d.n;
    return true;
}

oq_cell oq_cell_of_real(double r) {
    double scaled = r;
    for (int64_t den = 1; den <= 1 << 20 && fabs(scaled) < 0x1p52; den *= 2, scaled *= 2)
        if (scaled == floor(scaled))
            return (oq_cell){oq_sdim_num((int64_t)scaled), den, 0};
    return (oq_cell){oq_sdim_unknown(), 0, r};
}

/* The number of elements; false if there are more dims than are folded, or a dim is none. */
static bool count(const int64_t *dims, size_t rank, uint64_t *n) {
    *n = 1;
    if (rank > OQ_FOLD_RANK)
        return false;
    for (size_t i = 0; i < rank; i++)
        if (dims[i] < 0 || !oq_mul(*n, (uint64_t)dims[i], n))
            return false;
    return true;
}

oq_data *oq_data_new(oq_infer *in, int32_t elem_type, const int64_t *dims, size_t rank) {
    assert(rank == 0 || dims != NULL);
    uint64_t n;
    if (!count(dims, rank, &n) || n > OQ_MAX_FOLD)
        return NULL;
    oq_data *d = OQ_NEW(in->arena, oq_data);
    oq_cell *v = OQ_NEW_ARRAY(in->arena, oq_cell, n + 1);
    if (d == NULL || v == NULL) {
        in->nomem = true;
        return NULL;
    }
    d->elem_type = elem_type;
    d->rank = rank;
    if (rank > 0)
        memcpy(d->dims, dims, rank * sizeof *dims);
    d->n = (size_t)n;
    d->v = v;
    assert(d->n <= OQ_MAX_FOLD && d->rank <= OQ_FOLD_RANK);
    for (size_t i = 0; i < d->n; i++)
        v[i] = oq_cell_int(oq_sdim_num(0));
    return d;
}

const oq_data *oq_data_of_tensor(oq_infer *in, oq_tensor *t) {
    const oq_dtype_info *info = oq_dtype_find(t->data_type.v);
    if (info == NULL || info->cls == OQ_CLASS_STRING || info->cls == OQ_CLASS_COMPLEX ||
        info->cls == OQ_CLASS_NONE)
        return NULL;
    oq_data *d = oq_data_new(in, t->data_type.v, t->dims.v, t->dims.n);
    oq_span bytes;
    /* A tensor that cannot be read is one whose values are not known; whoever needs it will say
     * so. */
    if (d == NULL || oq_model_data(in->model, t, &bytes, NULL) != ONQ_OK)
        return NULL;
    const oq_dtype type = (oq_dtype)t->data_type.v;
    for (size_t i = 0; i < d->n; i++) {
        d->v[i] = info->cls == OQ_CLASS_REAL
                      ? oq_cell_of_real(oq_raw_get_real(type, bytes.p, i))
                      : oq_cell_int(oq_sdim_num(oq_raw_get_int(type, bytes.p, i)));
    }
    return d;
}

const oq_data *oq_data_reshape(oq_infer *in, const oq_data *d, const int64_t *dims, size_t rank) {
    uint64_t n;
    if (!count(dims, rank, &n) || n != d->n)
        return NULL;
    oq_data *out = OQ_NEW(in->arena, oq_data);
    if (out == NULL) {
        in->nomem = true;
        return NULL;
    }
    *out = *d;
    out->rank = rank;
    assert(rank <= OQ_FOLD_RANK);
    if (rank > 0)
        memcpy(out->dims, dims, rank * sizeof *dims);
    return out;
}
