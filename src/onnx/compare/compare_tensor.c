/*
 * compare_tensor.c — two tensors: type, dims, and values as they stream by, whatever their storage.
 *
 * Pieces that are equal byte for byte cost a memcmp; only pieces that are not are looked at element
 * by element.
 */
#include "onnx/compare/compare_parts.h"
#include "onnx/tensor.h"

enum {
    PIECE = 1 << 20,       /* bytes looked at in one go; a multiple of every element's size */
    DROP_EVERY = 64 << 20, /* pages are given back after so much */
};

bool oq_cmp_real_same(const oq_cmp *c, double a, double b) {
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    if (a == b)
        return signbit(a) == signbit(b) || c->how->atol > 0 || a != 0;
    return fabs(a - b) <= c->how->atol + c->how->rtol * fabs(b);
}

/* What was found in a pair of tensors. */
typedef struct tally {
    uint64_t differ;
    uint64_t first; /* element */
    double first_a, first_b;
    double largest; /* NaN when one of a pair is NaN */
} tally;

static bool is_wide(oq_dtype t) {
    return t == OQ_INT64 || t == OQ_UINT64;
}

/* Elements [0, n) of two pieces; `base` is the number of the first. */
static void tally_piece(const oq_cmp *c, oq_dtype type, const uint8_t *a, const uint8_t *b,
                        uint64_t n, uint64_t base, tally *t) {
    const bool exact = c->how->atol == 0 && c->how->rtol == 0;
    for (uint64_t i = 0; i < n; i++) {
        const double x = oq_raw_get_real(type, a, i), y = oq_raw_get_real(type, b, i);
        bool same = oq_cmp_real_same(c, x, y);
        /* Doubles do not hold every 64-bit integer. */
        if (same && exact && is_wide(type))
            same = oq_raw_get_int(type, a, i) == oq_raw_get_int(type, b, i);
        if (same)
            continue;
        const double d = fabs(x - y);
        if (t->differ++ == 0) {
            t->first = base + i;
            t->first_a = x;
            t->first_b = y;
        }
        if (isnan(d) || d > t->largest)
            t->largest = d;
    }
}

static onq_code tally_data(oq_cmp *c, oq_dtype type, oq_span a, oq_span b, uint64_t count, tally *t,
                           onq_error *err) {
    const oq_dtype_info *info = oq_dtype_find(type);
    const uint64_t per_piece = (uint64_t)PIECE * 8 / info->bits;
    for (uint64_t at = 0, done = 0; at < a.n; at += PIECE, done += per_piece) {
        const uint64_t n = a.n - at < PIECE ? a.n - at : PIECE;
        if (memcmp(a.p + at, b.p + at, n) != 0) {
            const uint64_t left = count - done;
            tally_piece(c, type, a.p + at, b.p + at, left < per_piece ? left : per_piece, done, t);
        }
        c->bytes_done += n;
        if (c->bytes_done - c->bytes_dropped >= DROP_EVERY) {
            c->bytes_dropped = c->bytes_done;
            oq_model_drop_pages(c->a);
            oq_model_drop_pages(c->b);
            OQ_TRY(oq_progress(c->a->env, "comparing, MB", c->bytes_done >> 20,
                               c->bytes_total >> 20, err));
        }
    }
    return ONQ_OK;
}

/* The file and offset a view of a model's files lies at; false for other memory. */
static bool locate(const oq_model *m, const uint8_t *p, const oq_file **file, uint64_t *offset) {
    for (size_t i = 0; i <= m->ext.n; i++) {
        const oq_file *f = i < m->ext.n ? &m->ext.v[i]->file : &m->file;
        if (f->p != NULL && p >= f->p && p < f->p + f->size) {
            *file = f;
            *offset = (uint64_t)(p - f->p);
            return true;
        }
    }
    return false;
}

/* Two views of the same bytes of the same file: models that share their external data. */
static bool same_place(const oq_cmp *c, oq_span a, oq_span b) {
    const oq_file *f, *g;
    uint64_t x, y;
    return a.n == b.n && a.n >= PIECE && locate(c->a, a.p, &f, &x) && locate(c->b, b.p, &g, &y) &&
           x == y && oq_info_is_same(&f->info, &g->info);
}

/* Complex numbers have no order: their bytes are compared. */
static uint64_t count_complex(oq_span a, oq_span b, unsigned bits) {
    const uint64_t size = bits / 8;
    uint64_t differ = 0;
    for (uint64_t at = 0; at + size <= a.n; at += size)
        differ += memcmp(a.p + at, b.p + at, size) != 0;
    return differ;
}

static onq_code compare_strings(oq_cmp *c, oq_diff_kind kind, oq_str name, const char *what,
                                const oq_tensor *a, const oq_tensor *b, onq_error *err) {
    uint64_t differ = 0;
    for (size_t i = 0; i < a->string_data.n && i < b->string_data.n; i++)
        differ += !oq_str_eq(a->string_data.v[i], b->string_data.v[i]);
    if (a->string_data.n != b->string_data.n)
        return oq_cmp_found(c, err, kind, name, "%s%zu strings vs %zu", what, a->string_data.n,
                            b->string_data.n);
    if (differ > 0)
        return oq_cmp_found(c, err, kind, name, "%s%llu of %zu strings differ", what,
                            (unsigned long long)differ, a->string_data.n);
    return ONQ_OK;
}

/* "[1, 2]" for element i. */
static void index_text(char *b, size_t size, const oq_tensor *t, uint64_t i) {
    size_t n = 0;
    uint64_t under = 1;
    b[0] = '\0';
    for (size_t k = t->dims.n; k > 0; k--)
        under *= (uint64_t)t->dims.v[k - 1];
    for (size_t k = 0; k < t->dims.n && n + 24 < size; k++) {
        under /= (uint64_t)t->dims.v[k];
        n += (size_t)snprintf(b + n, size - n, "%s%llu", k > 0 ? ", " : "",
                              (unsigned long long)(i / under));
        i %= under;
    }
}

static void dims_text(char *b, size_t size, const oq_tensor *t) {
    size_t n = (size_t)snprintf(b, size, "%s[", oq_dtype_name(t->data_type.v));
    for (size_t k = 0; k < t->dims.n && n + 30 < size; k++)
        n +=
            (size_t)snprintf(b + n, size - n, "%s%lld", k > 0 ? ", " : "", (long long)t->dims.v[k]);
    snprintf(b + n, size - n, "]");
}

onq_code oq_cmp_tensor(oq_cmp *c, oq_diff_kind kind, oq_str name, const char *what, oq_tensor *a,
                       oq_tensor *b, onq_error *err) {
    if (a->data_type.v != b->data_type.v || !oq_tensor_same_dims(a, b)) {
        char x[160], y[160];
        dims_text(x, sizeof x, a);
        dims_text(y, sizeof y, b);
        return oq_cmp_found(c, err, kind, name, "%s%s vs %s", what, x, y);
    }
    OQ_TRY(oq_cmp_notes(c, name, "tensor", OQ_NOTES(a), OQ_NOTES(b), err));
    const oq_diff_kind of_value = kind == OQ_DIFF_INITIALIZER ? OQ_DIFF_VALUE : kind;
    if (a->data_type.v == OQ_STRING)
        return compare_strings(c, of_value, name, what, a, b, err);

    oq_span x, y;
    uint64_t count;
    OQ_TRY(oq_tensor_count(a, &count, err));
    onq_code rc = oq_model_data(c->a, a, &x, err);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "%s", c->a->path);
    rc = oq_model_data(c->b, b, &y, err);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "%s", c->b->path);
    if (x.n != y.n)
        return oq_cmp_found(c, err, of_value, name, "%s%llu bytes vs %llu", what,
                            (unsigned long long)x.n, (unsigned long long)y.n);
    if (same_place(c, x, y))
        return ONQ_OK;
    const oq_dtype type = (oq_dtype)a->data_type.v;
    const oq_dtype_info *info = oq_dtype_find(type);
    if (info->cls == OQ_CLASS_COMPLEX) {
        const uint64_t differ = count_complex(x, y, info->bits);
        return differ == 0
                   ? ONQ_OK
                   : oq_cmp_found(c, err, of_value, name, "%s%llu of %llu values differ", what,
                                  (unsigned long long)differ, (unsigned long long)count);
    }
    tally t = {0};
    OQ_TRY(tally_data(c, type, x, y, count, &t, err));
    if (t.differ == 0)
        return ONQ_OK;
    char at[160];
    index_text(at, sizeof at, a, t.first);
    return oq_cmp_found(c, err, of_value, name,
                        "%s%llu of %llu values differ, by up to %.6g; first at [%s]: %.9g vs %.9g",
                        what, (unsigned long long)t.differ, (unsigned long long)count, t.largest,
                        at, t.first_a, t.first_b);
}
