/*
 * npy.c — see npy.h. The header is parsed as the one dictionary it can be, nothing more.
 */
#include "samples/files/npy.h"

#include "base/alloc.h"

#define MAGIC "\x93NUMPY"

/* ---- the header ---- */

onq_code oq_npy_prefix(const uint8_t *p, uint64_t n, uint64_t *header_end, onq_error *err) {
    if (n < 10 || memcmp(p, MAGIC, 6) != 0)
        return oq_fail(err, ONQ_E_MALFORMED, "not an .npy array (it does not begin with NUMPY)");
    const unsigned major = p[6];
    if (major < 1 || major > 3)
        return oq_fail(err, ONQ_E_UNSUPPORTED, ".npy version %u (1, 2 and 3 are known)", major);
    uint64_t length = (uint64_t)p[8] | (uint64_t)p[9] << 8;
    uint64_t before = 10;
    if (major > 1) {
        if (n < 12)
            return oq_fail(err, ONQ_E_MALFORMED, "the .npy header is cut off");
        length |= (uint64_t)p[10] << 16 | (uint64_t)p[11] << 24;
        before = 12;
    }
    if (length > OQ_NPY_HEADER)
        return oq_fail(err, ONQ_E_LIMIT,
                       "the .npy header has %" PRIu64 " bytes, at most %d are read", length,
                       OQ_NPY_HEADER);
    *header_end = before + length;
    return ONQ_OK;
}

typedef struct cursor {
    const char *p, *end;
} cursor;

static void skip_blanks(cursor *c) {
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\t' || *c->p == '\r'))
        c->p++;
}

static bool take(cursor *c, char x) {
    skip_blanks(c);
    if (c->p >= c->end || *c->p != x)
        return false;
    c->p++;
    return true;
}

static bool take_word(cursor *c, const char *word) {
    skip_blanks(c);
    const size_t n = strlen(word);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n) != 0)
        return false;
    c->p += n;
    return true;
}

/* A quoted text without escapes. */
static bool take_text(cursor *c, oq_str *out) {
    skip_blanks(c);
    if (c->p >= c->end || (*c->p != '\'' && *c->p != '"'))
        return false;
    const char quote = *c->p++;
    const char *from = c->p;
    while (c->p < c->end && *c->p != quote && *c->p != '\\')
        c->p++;
    if (c->p >= c->end || *c->p != quote)
        return false;
    *out = (oq_str){from, (size_t)(c->p - from)};
    c->p++;
    return true;
}

static bool take_number(cursor *c, int64_t *out) {
    skip_blanks(c);
    const char *from = c->p;
    while (c->p < c->end && *c->p >= '0' && *c->p <= '9')
        c->p++;
    if (c->p == from || !oq_str_to_i64((oq_str){from, (size_t)(c->p - from)}, out))
        return false;
    if (c->p < c->end && *c->p == 'L') /* written by Python 2 */
        c->p++;
    return true;
}

static bool take_shape(cursor *c, oq_npy *h) {
    if (!take(c, '('))
        return false;
    h->rank = 0;
    while (!take(c, ')')) {
        if (h->rank >= OQ_NPY_RANK || !take_number(c, &h->dims[h->rank]))
            return false;
        h->rank++;
        if (!take(c, ',')) {
            /* (3) is a number in Python, no tuple. */
            return h->rank > 1 && take(c, ')');
        }
    }
    return true;
}

static bool is_one_of(char c, const char *set) {
    return c != '\0' && strchr(set, c) != NULL;
}

/* '<f4', '|u1', '>i8', '<U12' ... */
static onq_code read_descr(oq_npy *h, oq_str d, onq_error *err) {
    int64_t size = 0;
    if (d.n >= 2 && d.p[1] == 'O')
        return oq_fail(err, ONQ_E_UNSUPPORTED, "pickled objects are not read (dtype object)");
    if (d.n < 3 || !is_one_of(d.p[0], "<>|="))
        return oq_fail(err, ONQ_E_UNSUPPORTED, "elements of type '%.*s' are not read", OQ_STR(d));
    h->big_endian = d.p[0] == '>';
    h->kind = d.p[1];
    if (!oq_str_to_i64((oq_str){d.p + 2, d.n - 2}, &size) || size < 0 ||
        !is_one_of(h->kind, "fiubcSUV") || (h->kind == 'c' && size % 2 != 0))
        return oq_fail(err, ONQ_E_UNSUPPORTED, "elements of type '%.*s' are not read", OQ_STR(d));
    h->item = (uint64_t)size;
    if (h->kind == 'U' && !oq_mul(h->item, 4, &h->item))
        return oq_fail(err, ONQ_E_LIMIT, "elements of type '%.*s' are too large", OQ_STR(d));
    return ONQ_OK;
}

static onq_code read_field(cursor *c, oq_npy *h, unsigned *seen, onq_error *err) {
    oq_str key, text;
    if (!take_text(c, &key) || !take(c, ':'))
        return oq_fail(err, ONQ_E_MALFORMED, "the .npy header is not a dictionary");
    if (oq_str_is(key, "descr")) {
        *seen |= 1;
        skip_blanks(c);
        if (c->p < c->end && *c->p == '[')
            return oq_fail(err, ONQ_E_UNSUPPORTED, "structured elements are not read");
        if (!take_text(c, &text))
            return oq_fail(err, ONQ_E_MALFORMED, "'descr' in the .npy header is not a text");
        return read_descr(h, text, err);
    }
    if (oq_str_is(key, "fortran_order")) {
        *seen |= 2;
        h->fortran = take_word(c, "True");
        if (!h->fortran && !take_word(c, "False"))
            return oq_fail(err, ONQ_E_MALFORMED,
                           "'fortran_order' in the .npy header is not a bool");
        return ONQ_OK;
    }
    if (oq_str_is(key, "shape")) {
        *seen |= 4;
        if (!take_shape(c, h))
            return oq_fail(err, ONQ_E_MALFORMED, "'shape' in the .npy header is not a tuple");
        return ONQ_OK;
    }
    return oq_fail(err, ONQ_E_MALFORMED, "unknown key '%.*s' in the .npy header", OQ_STR(key));
}

static onq_code set_sizes(oq_npy *h, onq_error *err) {
    h->count = 1;
    bool empty = false, fits = true;
    for (size_t i = 0; i < h->rank; i++) {
        empty = empty || h->dims[i] == 0;
        fits = fits && oq_mul(h->count, h->dims[i] != 0 ? (uint64_t)h->dims[i] : 1, &h->count);
    }
    if (!fits || !oq_mul(h->count, h->item, &h->data_size) || h->data_size > INT64_MAX)
        return oq_fail(err, ONQ_E_INVALID, "the array's size does not fit in 64 bits");
    if (empty)
        h->count = h->data_size = 0;
    return ONQ_OK;
}

onq_code oq_npy_header(const uint8_t *p, uint64_t header_end, oq_npy *out, onq_error *err) {
    *out = (oq_npy){0};
    const uint64_t before = p[6] > 1 ? 12 : 10;
    cursor c = {(const char *)p + before, (const char *)p + header_end};
    unsigned seen = 0;
    if (!take(&c, '{'))
        return oq_fail(err, ONQ_E_MALFORMED, "the .npy header is not a dictionary");
    while (!take(&c, '}')) {
        OQ_TRY(read_field(&c, out, &seen, err));
        if (take(&c, ','))
            continue;
        if (!take(&c, '}'))
            return oq_fail(err, ONQ_E_MALFORMED, "the .npy header is not a dictionary");
        break;
    }
    skip_blanks(&c);
    if (c.p != c.end || seen != 7)
        return oq_fail(err, ONQ_E_MALFORMED,
                       "the .npy header must have 'descr', 'fortran_order' and 'shape'");
    out->data_at = header_end;
    return set_sizes(out, err);
}

/* ---- types ---- */

typedef struct type_row {
    char kind;
    uint8_t item;
    oq_dtype dtype;
} type_row;

static const type_row type_rows[] = {
    {'f', 2, OQ_FLOAT16},   {'f', 4, OQ_FLOAT},       {'f', 8, OQ_DOUBLE}, {'i', 1, OQ_INT8},
    {'i', 2, OQ_INT16},     {'i', 4, OQ_INT32},       {'i', 8, OQ_INT64},  {'u', 1, OQ_UINT8},
    {'u', 2, OQ_UINT16},    {'u', 4, OQ_UINT32},      {'u', 8, OQ_UINT64}, {'b', 1, OQ_BOOL},
    {'c', 8, OQ_COMPLEX64}, {'c', 16, OQ_COMPLEX128},
};

oq_dtype oq_npy_dtype(const oq_npy *h, oq_dtype want) {
    if (h->kind == 'S' || h->kind == 'U')
        return OQ_STRING;
    if (h->kind == 'V') {
        const bool is_float8 =
            (want >= OQ_FLOAT8E4M3FN && want <= OQ_FLOAT8E5M2FNUZ) || want == OQ_FLOAT8E8M0;
        if ((want == OQ_BFLOAT16 && h->item == 2) || (is_float8 && h->item == 1))
            return want;
        return OQ_UNDEFINED;
    }
    for (size_t i = 0; i < OQ_COUNT(type_rows); i++)
        if (type_rows[i].kind == h->kind && type_rows[i].item == h->item)
            return type_rows[i].dtype;
    return OQ_UNDEFINED;
}

/* ---- elements ---- */

/* Bytes that swap together: a complex number is two floats. */
static uint64_t swap_unit(const oq_npy *h) {
    return h->kind == 'c' ? h->item / 2 : h->item;
}

static void copy_swapped(uint8_t *out, const uint8_t *in, uint64_t n, uint64_t unit) {
    assert(n % unit == 0);
    for (uint64_t i = 0; i < n; i += unit)
        for (uint64_t k = 0; k < unit; k++)
            out[i + k] = in[i + unit - 1 - k];
}

static void copy_elements(const oq_npy *h, uint8_t *out, const uint8_t *in, uint64_t n) {
    if (h->big_endian && swap_unit(h) > 1)
        copy_swapped(out, in, n, swap_unit(h));
    else if (h->kind == 'b')
        for (uint64_t i = 0; i < n; i++)
            out[i] = in[i] != 0;
    else
        memcpy(out, in, n);
}

/* Fortran order to C order: walks the output in order, stepping through the input by strides. */
static void copy_fortran(const oq_npy *h, const int64_t *dims, size_t rank, const uint8_t *in,
                         uint8_t *out, uint64_t count) {
    assert(rank <= OQ_NPY_RANK);
    uint64_t stride[OQ_NPY_RANK], at[OQ_NPY_RANK] = {0};
    uint64_t step = h->item;
    for (size_t i = 0; i < rank; i++) {
        stride[i] = step;
        step *= (uint64_t)dims[i];
    }
    uint64_t from = 0;
    for (uint64_t k = 0; k < count; k++) {
        copy_elements(h, out + k * h->item, in + from, h->item);
        for (size_t i = rank; i-- > 0;) {
            from += stride[i];
            if (++at[i] < (uint64_t)dims[i])
                break;
            from -= stride[i] * (uint64_t)dims[i];
            at[i] = 0;
        }
    }
}

void oq_npy_convert(const oq_npy *h, const int64_t *dims, size_t rank, bool fortran,
                    const uint8_t *in, uint8_t *out) {
    uint64_t count = 1;
    for (size_t i = 0; i < rank; i++)
        count *= (uint64_t)dims[i];
    if (count == 0 || h->item == 0)
        return;
    if (fortran && rank > 1)
        copy_fortran(h, dims, rank, in, out, count);
    else
        copy_elements(h, out, in, count * h->item);
}

static void add_utf8(char *out, size_t *n, uint32_t c) {
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        c = 0xfffd;
    if (c < 0x80) {
        out[(*n)++] = (char)c;
        return;
    }
    const unsigned more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t head[] = {0, 0xc0, 0xe0, 0xf0};
    out[(*n)++] = (char)(head[more] | c >> (6 * more));
    for (unsigned i = more; i-- > 0;)
        out[(*n)++] = (char)(0x80 | ((c >> (6 * i)) & 0x3f));
}

oq_str oq_npy_text(const oq_npy *h, oq_arena *a, const uint8_t *in, uint64_t i) {
    const uint8_t *p = in + i * h->item;
    uint64_t n = h->item;
    const uint64_t unit = h->kind == 'U' ? 4 : 1;
    static const uint8_t zero[4];
    while (n >= unit && memcmp(p + n - unit, zero, unit) == 0)
        n -= unit;
    if (h->kind == 'S')
        return oq_str_copy(a, (oq_str){(const char *)p, n});
    char *out = oq_arena_alloc(a, n + 1); /* UTF-8 is never longer than UTF-32 */
    size_t used = 0;
    for (uint64_t k = 0; out != NULL && k < n; k += 4) {
        const uint8_t *q = p + k;
        const uint32_t c =
            h->big_endian
                ? (uint32_t)q[0] << 24 | (uint32_t)q[1] << 16 | (uint32_t)q[2] << 8 | q[3]
                : (uint32_t)q[3] << 24 | (uint32_t)q[2] << 16 | (uint32_t)q[1] << 8 | q[0];
        add_utf8(out, &used, c);
    }
    return (oq_str){out, used};
}

/* ---- writing ---- */

static void write_header(oq_buf *out, const char *descr, const int64_t *dims, size_t rank) {
    OQ_SCRATCH_BUF(text, out->alloc);
    oq_buf_addf(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (size_t i = 0; i < rank; i++)
        oq_buf_addf(&text, i > 0 ? ", %" PRId64 : "%" PRId64, dims[i]);
    oq_buf_adds(&text, rank == 1 ? ",), }" : "), }");
    /* Blanks and a newline so that the elements begin at a multiple of 64. */
    while (!text.failed && (10 + text.n + 1) % 64 != 0)
        oq_buf_addc(&text, ' ');
    oq_buf_addc(&text, '\n');
    const uint8_t prefix[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (uint8_t)(text.n & 255), (uint8_t)(text.n >> 8)};
    oq_buf_add(out, prefix, sizeof prefix);
    oq_buf_add(out, text.p, text.n);
    out->failed = out->failed || text.failed;
}

bool oq_npy_write_header(oq_buf *out, oq_dtype dt, const int64_t *dims, size_t rank) {
    for (size_t i = 0; i < OQ_COUNT(type_rows); i++) {
        const type_row *row = &type_rows[i];
        if (row->dtype != dt)
            continue;
        char descr[16];
        snprintf(descr, sizeof descr, "%c%c%u", row->item == 1 ? '|' : '<', row->kind, row->item);
        write_header(out, descr, dims, rank);
        return true;
    }
    return false;
}

void oq_npy_write_text_header(oq_buf *out, uint64_t width, const int64_t *dims, size_t rank) {
    char descr[32];
    snprintf(descr, sizeof descr, "<U%" PRIu64, width);
    write_header(out, descr, dims, rank);
}
