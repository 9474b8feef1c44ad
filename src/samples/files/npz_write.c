/*
 * npz_write.c — see npz_write.h; zip.c draws the layout. Archives stay below 4 GiB: no zip64 is
 * written.
 */
#include "samples/files/npz_write.h"

#include "samples/files/npy.h"

#include <zlib.h>

#define MAX_ARCHIVE (UINT32_MAX - (1u << 20))

typedef struct member {
    oq_str name; /* with .npy */
    uint32_t crc;
    uint64_t size, header_at;
} member;

static void add16(oq_buf *b, uint64_t v) {
    const uint8_t p[2] = {(uint8_t)v, (uint8_t)(v >> 8)};
    oq_buf_add(b, p, 2);
}

static void add32(oq_buf *b, uint64_t v) {
    add16(b, v & 0xffff);
    add16(b, (v >> 16) & 0xffff);
}

/* What local header and directory entry have in common: version to lengths. */
static void add_common(oq_buf *b, const member *m) {
    add16(b, 20);      /* version that can read it */
    add16(b, 1 << 11); /* names are UTF-8 */
    add16(b, 0);       /* stored */
    add16(b, 0);       /* time and date: 1 January 1980, so that equal data gives equal files */
    add16(b, 1 << 5 | 1);
    add32(b, m->crc);
    add32(b, m->size);
    add32(b, m->size);
    add16(b, m->name.n);
    add16(b, 0); /* extra */
}

/* ---- texts: numpy keeps them as UTF-32 of equal length ---- */

static size_t decode_utf8(oq_str s, size_t *at, uint32_t *out) {
    const size_t n = oq_utf8_len(s.p + *at, s.n - *at);
    const uint8_t *p = (const uint8_t *)s.p + *at;
    if (n <= 1) {
        *out = n == 1 ? p[0] : 0xfffd;
        *at += 1;
        return 1;
    }
    uint32_t c = p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (p[i] & 0x3f);
    *out = c;
    *at += n;
    return 1;
}

static uint64_t text_length(oq_str s) {
    uint64_t n = 0;
    uint32_t c;
    for (size_t at = 0; at < s.n;)
        n += decode_utf8(s, &at, &c);
    return n;
}

static void add_texts(oq_buf *b, const oq_datum *d, uint64_t width) {
    for (uint64_t i = 0; i < d->count; i++) {
        uint64_t n = 0;
        uint32_t c;
        for (size_t at = 0; at < d->strings[i].n;) {
            n += decode_utf8(d->strings[i], &at, &c);
            add32(b, c);
        }
        for (; n < width; n++)
            add32(b, 0);
    }
}

/* ---- members ---- */

static onq_code add_array(oq_buf *b, const oq_datum *d, onq_error *err) {
    if (d->kind != OQ_DATUM_TENSOR)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "it is not a tensor: numpy has no array for it (use --format pb)");
    if (d->dtype == OQ_STRING) {
        uint64_t width = 1;
        for (uint64_t i = 0; i < d->count; i++) {
            const uint64_t n = text_length(d->strings[i]);
            width = n > width ? n : width;
        }
        uint64_t chars = 0;
        if (!oq_mul(d->count, width, &chars) || chars > MAX_ARCHIVE / 4)
            return oq_fail(err, ONQ_E_LIMIT, "its texts need more than 4 GB (use --format pb)");
        oq_npy_write_text_header(b, width, d->dims, d->rank);
        add_texts(b, d, width);
        return ONQ_OK;
    }
    if (!oq_npy_write_header(b, d->dtype, d->dims, d->rank))
        return oq_fail(err, ONQ_E_UNSUPPORTED, "numpy has no type %s (use --format pb)",
                       oq_dtype_name(d->dtype));
    oq_buf_add(b, d->data, d->size_bytes);
    return ONQ_OK;
}

static onq_code add_member(oq_buf *b, const oq_datum *d, member *m, onq_error *err) {
    OQ_SCRATCH_BUF(body, b->alloc);
    OQ_TRY(add_array(&body, d, err));
    OQ_TRY_ALLOC(!body.failed && !b->failed, err);
    if (body.n > MAX_ARCHIVE || b->n > MAX_ARCHIVE - body.n)
        return oq_fail(err, ONQ_E_LIMIT, "the archive passes 4 GB (use --format pb)");
    m->header_at = b->n;
    m->size = body.n;
    m->crc = (uint32_t)crc32_z(0, (const uint8_t *)body.p, body.n);
    add32(b, 0x04034b50);
    add_common(b, m);
    oq_buf_add_str(b, m->name);
    oq_buf_add(b, body.p, body.n);
    return ONQ_OK;
}

static void add_directory(oq_buf *b, const member *v, size_t n) {
    const uint64_t at = b->n;
    for (size_t i = 0; i < n; i++) {
        add32(b, 0x02014b50);
        add16(b, 20);
        add_common(b, &v[i]);
        add16(b, 0); /* comment */
        add16(b, 0); /* part */
        add16(b, 0);
        add32(b, 0);
        add32(b, v[i].header_at);
        oq_buf_add_str(b, v[i].name);
    }
    const uint64_t size = b->n - at;
    add32(b, 0x06054b50);
    add16(b, 0);
    add16(b, 0);
    add16(b, n);
    add16(b, n);
    add32(b, size);
    add32(b, at);
    add16(b, 0);
}

onq_code oq_npz_write(oq_buf *out, const oq_datum *d, const oq_io *names, size_t n,
                      onq_error *err) {
    OQ_SCRATCH(arena, out->alloc);
    member *v = OQ_NEW_ARRAY(&arena, member, n + 1);
    onq_code rc = v != NULL ? ONQ_OK : oq_fail_nomem(err);
    if (rc == ONQ_OK && n > UINT16_MAX)
        rc = oq_fail(err, ONQ_E_LIMIT, "%zu outputs in one archive (use --format pb)", n);
    for (size_t i = 0; rc == ONQ_OK && i < n; i++) {
        v[i].name = oq_str_cat(&arena, names[i].name, OQ_S(".npy"));
        if (v[i].name.p == NULL)
            rc = oq_fail_nomem(err);
        else if (v[i].name.n > UINT16_MAX)
            rc = oq_fail(err, ONQ_E_LIMIT, "its name is too long for an archive");
        if (rc == ONQ_OK)
            rc = add_member(out, &d[i], &v[i], err);
        if (rc != ONQ_OK)
            rc = oq_error_in(err, rc, "output '%.*s'", OQ_STR(names[i].name));
    }
    if (rc == ONQ_OK) {
        add_directory(out, v, n);
        if (out->failed)
            rc = oq_fail_nomem(err);
    }
    return rc;
}
