/*
 * stream.c — see stream.h.
 */
#include "samples/files/stream.h"

#include <zlib.h>

#define CHUNK 65536

struct oq_bytes_inflate {
    z_stream z;
    bool open;
    uint64_t taken; /* stored bytes given to zlib */
    uint8_t in[CHUNK];
    uint8_t skipped[CHUNK];
};

void oq_bytes_init(oq_bytes *b, const onq_allocator *a, const oq_file *f) {
    *b = (oq_bytes){.file = f, .stored = f->size, .size = f->size, .alloc = a};
}

void oq_bytes_release(oq_bytes *b) {
    if (b->inflate != NULL) {
        if (b->inflate->open)
            inflateEnd(&b->inflate->z);
        oq_free(b->alloc, b->inflate, sizeof *b->inflate);
    }
    *b = (oq_bytes){0};
}

static onq_code read_stored(const oq_bytes *b, uint64_t from, void *out, uint64_t n,
                            onq_error *err) {
    uint64_t done = 0;
    if (b->file->borrowed) {
        if (b->offset + from > b->file->size || n > b->file->size - b->offset - from)
            return oq_fail(err, ONQ_E_READ, "the file ends too early (cut off)");
        memcpy(out, b->file->p + b->offset + from, n);
        return ONQ_OK;
    }
    while (done < n) {
        const int64_t got = oq_os_read_at(b->file->handle, (uint8_t *)out + done, n - done,
                                          b->offset + from + done);
        if (got > 0)
            done += (uint64_t)got;
        else if (got == 0)
            return oq_fail(err, ONQ_E_READ, "the file ends too early (cut off, or it shrank)");
        else if (errno != EINTR)
            return oq_fail_errno(err, ONQ_E_READ, errno, "cannot be read");
    }
    return ONQ_OK;
}

/* zlib's memory through the caller's allocator; it does not pass sizes back, so they are stored in
 * front. */
static voidpf z_alloc(voidpf ctx, uInt n, uInt size) {
    uint64_t total = 0;
    if (!oq_mul(n, size, &total))
        return NULL;
    uint64_t *p = oq_alloc(ctx, total + 16);
    if (p == NULL)
        return NULL;
    p[0] = total + 16;
    return p + 2;
}

static void z_free(voidpf ctx, voidpf p) {
    uint64_t *whole = (uint64_t *)p - 2;
    if (p != NULL)
        oq_free(ctx, whole, whole[0]);
}

static onq_code begin_inflate(oq_bytes *b, onq_error *err) {
    if (b->inflate == NULL)
        b->inflate = oq_calloc(b->alloc, 1, sizeof *b->inflate);
    oq_bytes_inflate *s = b->inflate;
    OQ_TRY_ALLOC(s != NULL, err);
    if (s->open)
        inflateEnd(&s->z);
    s->z = (z_stream){.zalloc = z_alloc, .zfree = z_free};
    const void *ctx = b->alloc;
    memcpy(&s->z.opaque, &ctx, sizeof ctx);
    s->open = inflateInit2(&s->z, -MAX_WBITS) == Z_OK;
    s->taken = 0;
    b->at = 0;
    return s->open ? ONQ_OK : oq_fail_nomem(err);
}

/* Follows the checksum as long as the bytes are read in order. */
static void note_read(oq_bytes *b, uint64_t from, const uint8_t *p, uint64_t n) {
    if (!b->has_crc)
        return;
    if (from == 0)
        b->crc_at = b->crc_now = 0;
    if (from != b->crc_at)
        return;
    b->crc_now = (uint32_t)crc32_z(b->crc_now, p, n);
    b->crc_at += n;
}

static onq_code refill(oq_bytes *b, onq_error *err) {
    oq_bytes_inflate *s = b->inflate;
    const uint64_t left = b->stored - s->taken;
    const uint64_t n = left < CHUNK ? left : CHUNK;
    if (n == 0)
        return oq_fail(err, ONQ_E_MALFORMED, "the compressed data ends too early");
    OQ_TRY(read_stored(b, s->taken, s->in, n, err));
    s->taken += n;
    s->z.next_in = s->in;
    s->z.avail_in = (uInt)n;
    return ONQ_OK;
}

static onq_code inflate_some(oq_bytes *b, uint8_t *out, uint64_t n, onq_error *err) {
    oq_bytes_inflate *s = b->inflate;
    uint64_t done = 0;
    while (done < n) {
        if (s->z.avail_in == 0)
            OQ_TRY(refill(b, err));
        const uint64_t most = n - done < (1u << 30) ? n - done : (1u << 30);
        s->z.next_out = out + done;
        s->z.avail_out = (uInt)most;
        const int r = inflate(&s->z, Z_NO_FLUSH);
        const uint64_t made = most - s->z.avail_out;
        note_read(b, b->at, out + done, made);
        done += made;
        b->at += made;
        OQ_TRY_ALLOC(r != Z_MEM_ERROR, err);
        if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
            return oq_fail(err, ONQ_E_MALFORMED, "the compressed data is damaged (%s)",
                           s->z.msg != NULL ? s->z.msg : "zlib");
        if (r == Z_STREAM_END && done < n)
            return oq_fail(err, ONQ_E_MALFORMED,
                           "the compressed data ends after %" PRIu64 " bytes, %" PRIu64
                           " were expected",
                           b->at, b->size);
    }
    return ONQ_OK;
}

onq_code oq_bytes_read(oq_bytes *b, uint64_t from, void *out, uint64_t n, onq_error *err) {
    if (from > b->size || n > b->size - from)
        return oq_fail(err, ONQ_E_MALFORMED,
                       "%" PRIu64 " bytes are missing at the end (it has %" PRIu64 ")",
                       n - (from < b->size ? b->size - from : 0), b->size);
    if (!b->deflated) {
        OQ_TRY(read_stored(b, from, out, n, err));
        note_read(b, from, out, n);
    } else {
        if (b->inflate == NULL || !b->inflate->open || from < b->at)
            OQ_TRY(begin_inflate(b, err));
        while (b->at < from) {
            const uint64_t gap = from - b->at;
            OQ_TRY(inflate_some(b, b->inflate->skipped, gap < CHUNK ? gap : CHUNK, err));
        }
        OQ_TRY(inflate_some(b, out, n, err));
    }
    if (b->has_crc && b->crc_at == b->size && b->crc_now != b->crc)
        return oq_fail(err, ONQ_E_MALFORMED, "the data does not match its checksum");
    return ONQ_OK;
}
