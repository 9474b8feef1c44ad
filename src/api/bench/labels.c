/*
 * labels.c — reading labels and counting right answers.
 */
#include "api/bench/labels.h"

#include "base/system/file.h"
#include "onnx/tensor.h"
#include "samples/agreement.h"
#include "samples/files/npy.h"

static onq_code parse(oq_labels *l, oq_arena *a, const oq_file *f, onq_error *err) {
    uint64_t header = 0;
    oq_npy h;
    OQ_TRY(oq_npy_prefix(f->p, f->size, &header, err));
    if (header > f->size)
        return oq_fail(err, ONQ_E_MALFORMED, "the file ends inside its header");
    OQ_TRY(oq_npy_header(f->p, header, &h, err));
    const oq_dtype type = oq_npy_dtype(&h, OQ_INT64);
    if ((h.kind != 'i' && h.kind != 'u') || h.item > 8 || h.data_at > f->size ||
        h.data_size > f->size - h.data_at)
        return oq_fail(err, ONQ_E_INVALID, "labels must be integers, one for each row");
    uint8_t *raw = oq_arena_alloc(a, h.data_size);
    int64_t *v = OQ_NEW_ARRAY(a, int64_t, h.count);
    OQ_TRY_ALLOC(raw != NULL && v != NULL, err);
    oq_npy_convert(&h, h.dims, h.rank, h.fortran, f->p + h.data_at, raw);
    for (uint64_t i = 0; i < h.count; i++)
        v[i] = oq_raw_get_int(type, raw, i);
    l->v = v;
    l->n = h.count;
    return ONQ_OK;
}

onq_code oq_labels_read(oq_labels *l, oq_arena *a, const onq_allocator *alloc, const char *path,
                        onq_error *err) {
    oq_file f;
    OQ_TRY(oq_file_open(&f, alloc, path, err));
    *l = (oq_labels){.path = path};
    const onq_code rc = parse(l, a, &f, err);
    oq_file_close(&f);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", path);
}

onq_code oq_labels_count(const oq_labels *l, const oq_datum *d, uint64_t *seen, uint64_t *right,
                         onq_error *err) {
    assert(*right <= *seen);
    if (d->kind != OQ_DATUM_TENSOR || !oq_dtype_is_float((int64_t)d->dtype) || d->rank == 0 ||
        d->dims[d->rank - 1] <= 0)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "labels need a float output with classes along its last axis");
    const uint64_t classes = (uint64_t)d->dims[d->rank - 1];
    if (classes < 2)
        return oq_fail(err, ONQ_E_INVALID,
                       "%s: labels do not fit: the first output has rank %zu and %llu value along "
                       "its last axis, which is not enough for classes",
                       l->path, d->rank, (unsigned long long)classes);
    uint64_t rows = 1;
    for (size_t i = 0; i + 1 < d->rank; i++)
        rows *= (uint64_t)d->dims[i];
    for (uint64_t r = 0; r < rows; r++, (*seen)++) {
        if (*seen >= l->n)
            return oq_fail(err, ONQ_E_INVALID,
                           "%s: has %llu labels, too few: each row of the first output needs one, "
                           "and one sample has %llu rows",
                           l->path, (unsigned long long)l->n, (unsigned long long)rows);
        if (l->v[*seen] < 0 || (uint64_t)l->v[*seen] >= classes)
            return oq_fail(
                err, ONQ_E_INVALID,
                "%s: label %lld at %llu is not one of the %llu classes of the first output",
                l->path, (long long)l->v[*seen], (unsigned long long)*seen,
                (unsigned long long)classes);
        *right += (int64_t)oq_datum_top(d, r * classes, classes) == l->v[*seen];
    }
    return ONQ_OK;
}

onq_code oq_labels_end(const oq_labels *l, uint64_t seen, onq_error *err) {
    if (seen == l->n)
        return ONQ_OK;
    return oq_fail(err, ONQ_E_INVALID,
                   "%s: has %llu labels, but the first output has %llu rows over all samples",
                   l->path, (unsigned long long)l->n, (unsigned long long)seen);
}
