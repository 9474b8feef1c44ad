/*
 * neighbours.c — see neighbours.h.
 */
#include "tune/judge/neighbours.h"

#include "onnx/tensor.h"

#include <math.h>

/* The mean of some rows, of length 1; zeros stay zeros. */
static onq_code add_mean(oq_arena *a, const oq_datum *d, uint64_t first, uint64_t rows,
                         size_t width, oq_embeddings *into, onq_error *err) {
    double square = 0;
    OQ_SCRATCH(own, a->alloc);
    double *sum = OQ_NEW_ARRAY(&own, double, width);
    OQ_TRY_ALLOC(sum != NULL, err);
    for (uint64_t r = 0; r < rows; r++)
        for (size_t i = 0; i < width; i++)
            sum[i] += oq_raw_get_real(d->dtype, d->data, (first + r) * width + i);
    for (size_t i = 0; i < width; i++)
        square += sum[i] * sum[i];
    for (size_t i = 0; i < width; i++)
        OQ_TRY_ALLOC(OQ_PUSH(a, into, square > 0 ? (float)(sum[i] / sqrt(square)) : 0), err);
    return ONQ_OK;
}

onq_code oq_neighbours_add(oq_neighbours *x, const oq_datum *flt, const oq_datum *quantized,
                           uint64_t *n, onq_error *err) {
    const oq_dtype_info *info = oq_dtype_find((int64_t)flt->dtype);
    const size_t rank = flt->rank;
    *n = 0;
    if (info == NULL || info->cls != OQ_CLASS_REAL || rank < 2 || rank > 3 || flt->count == 0 ||
        flt->dtype != quantized->dtype || !oq_datum_same_dims(flt, quantized))
        return ONQ_OK;
    const size_t width = (size_t)flt->dims[rank - 1];
    const uint64_t rows = rank == 3 ? (uint64_t)flt->dims[1] : 1;
    if (width < 2 || (x->width != 0 && x->width != width))
        return ONQ_OK;
    x->width = width;
    for (; *n < (uint64_t)flt->dims[0]; ++*n) {
        OQ_TRY(add_mean(x->arena, flt, *n * rows, rows, width, &x->flt, err));
        OQ_TRY(add_mean(x->arena, quantized, *n * rows, rows, width, &x->quantized, err));
    }
    return ONQ_OK;
}

static double cosine(const oq_neighbours *x, const oq_embeddings *of, size_t i, size_t k) {
    double sum = 0;
    for (size_t c = 0; c < x->width; c++)
        sum += (double)of->v[i * x->width + c] * (double)of->v[k * x->width + c];
    return sum;
}

/* What the nearest one in float is nearer by than the next, and what the candidate takes of it. */
static void compare(const oq_neighbours *x, size_t n, size_t i, float *margin, float *error) {
    size_t nearest = i == 0 ? 1 : 0;
    double best = -INFINITY, next = -INFINITY, other = -INFINITY;
    for (size_t k = 0; k < n; k++) {
        const double near = k != i ? cosine(x, &x->flt, i, k) : -INFINITY;
        next = fmax(next, fmin(near, best));
        nearest = near > best ? k : nearest;
        best = fmax(best, near);
    }
    for (size_t k = 0; k < n; k++)
        if (k != i && k != nearest)
            other = fmax(other, cosine(x, &x->quantized, i, k));
    const double lost = best - next - (cosine(x, &x->quantized, i, nearest) - other);
    *margin = (float)(best - next);
    *error = isnan(lost) ? INFINITY : (float)lost;
}

onq_code oq_neighbours_end(const oq_neighbours *x, oq_arena *a, oq_flips *out, onq_error *err) {
    const size_t n = x->width > 0 ? x->flt.n / x->width : 0;
    float *margins = OQ_NEW_ARRAY(a, float, n + 1), *errors = OQ_NEW_ARRAY(a, float, n + 1);
    OQ_TRY_ALLOC(margins != NULL && errors != NULL, err);
    for (size_t i = 0; i < n && n > 2; i++)
        compare(x, n, i, &margins[i], &errors[i]);
    *out = (oq_flips){margins, errors, n > 2 ? n : 0};
    return ONQ_OK;
}
