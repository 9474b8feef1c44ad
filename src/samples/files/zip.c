/*
 * zip.c — see zip.h. Layout (all numbers little-endian):
 *   members, each after a local header (30 bytes, name, extra)
 *   central directory: one entry for each member (46 bytes, name, extra, comment)
 *   [zip64 end record, zip64 locator]
 *   end record (22 bytes, comment of at most 65,535)
 */
#include "samples/files/zip.h"

#define END_SIZE      22
#define MAX_END       (END_SIZE + 65535)
#define MAX_MEMBERS   100000
#define MAX_DIRECTORY (256u << 20)

static uint64_t u16(const uint8_t *p) {
    return (uint64_t)p[0] | (uint64_t)p[1] << 8;
}
static uint64_t u32(const uint8_t *p) {
    return u16(p) | u16(p + 2) << 16;
}
static uint64_t u64(const uint8_t *p) {
    return u32(p) | u32(p + 4) << 32;
}

typedef struct directory {
    uint64_t offset, size, count;
} directory;

static onq_code bad(onq_error *err, const char *what) {
    return oq_fail(err, ONQ_E_MALFORMED, "not a whole zip archive: %s", what);
}

/* The zip64 end record, when the locator in front of the end record names one. */
static onq_code read_end64(oq_bytes *all, uint64_t end_at, directory *d, onq_error *err) {
    uint8_t locator[20], end[56];
    if (end_at < sizeof locator)
        return ONQ_OK;
    OQ_TRY(oq_bytes_read(all, end_at - sizeof locator, locator, sizeof locator, err));
    if (u32(locator) != 0x07064b50)
        return ONQ_OK;
    const uint64_t at = u64(locator + 8);
    if (at > all->size || all->size - at < sizeof end)
        return bad(err, "the zip64 end record lies outside");
    OQ_TRY(oq_bytes_read(all, at, end, sizeof end, err));
    if (u32(end) != 0x06064b50)
        return bad(err, "no zip64 end record where it should be");
    *d = (directory){.count = u64(end + 32), .size = u64(end + 40), .offset = u64(end + 48)};
    return ONQ_OK;
}

static onq_code find_directory(oq_bytes *all, oq_arena *a, directory *d, onq_error *err) {
    const uint64_t n = all->size < MAX_END ? all->size : MAX_END;
    if (n < END_SIZE)
        return bad(err, "it is too short");
    uint8_t *tail = oq_arena_alloc(a, n);
    OQ_TRY_ALLOC(tail != NULL, err);
    OQ_TRY(oq_bytes_read(all, all->size - n, tail, n, err));
    uint64_t at = n - END_SIZE;
    while (u32(tail + at) != 0x06054b50) {
        if (at == 0)
            return bad(err, "it has no end record (cut off?)");
        at--;
    }
    const uint8_t *e = tail + at;
    *d = (directory){.count = u16(e + 10), .size = u32(e + 12), .offset = u32(e + 16)};
    if (u16(e + 4) != 0 || u16(e + 6) != 0)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "zip archives in several parts are not supported");
    OQ_TRY(read_end64(all, all->size - n + at, d, err));
    if (d->offset > all->size || d->size > all->size - d->offset)
        return bad(err, "the directory lies outside");
    if (d->count > MAX_MEMBERS || d->size > MAX_DIRECTORY || d->count * 46 > d->size)
        return bad(err, "the directory's size is impossible");
    return ONQ_OK;
}

/* Sizes and offsets of more than 32 bits are in an extra field (tag 1). */
static bool read_extra64(const uint8_t *p, uint64_t n, uint64_t **fields, size_t n_fields) {
    while (n >= 4) {
        const uint64_t tag = u16(p), size = u16(p + 2);
        if (size > n - 4)
            return false;
        if (tag == 1) {
            const uint8_t *q = p + 4;
            uint64_t left = size;
            for (size_t i = 0; i < n_fields; i++) {
                if (*fields[i] != UINT32_MAX)
                    continue;
                if (left < 8)
                    return false;
                *fields[i] = u64(q);
                q += 8;
                left -= 8;
            }
            return true;
        }
        p += 4 + size;
        n -= 4 + size;
    }
    return true;
}

static onq_code check_member(oq_zip_member *m, uint64_t flags, uint64_t method, onq_error *err) {
    oq_bytes *b = &m->bytes;
    if ((flags & 1) != 0)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "the member is encrypted");
    if (method != 0 && method != 8)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "compression method %" PRIu64
                       " is not supported (only stored and deflated are)",
                       method);
    b->deflated = method == 8;
    if (!b->deflated && b->stored != b->size)
        return bad(err, "a stored member has two sizes");
    if (b->deflated && b->size >= OQ_ZIP_RATIO_FROM && b->size / OQ_ZIP_RATIO > b->stored)
        return oq_fail(err, ONQ_E_LIMIT,
                       "%" PRIu64 " bytes are packed in %" PRIu64
                       ", more than %d to 1: refused as a zip bomb (save the array uncompressed if "
                       "this is intended)",
                       b->size, b->stored, OQ_ZIP_RATIO);
    return ONQ_OK;
}

/* Where the member's bytes begin: after its local header. */
static onq_code locate(oq_bytes *all, oq_zip_member *m, uint64_t header_at, onq_error *err) {
    uint8_t local[30];
    if (header_at > all->size || all->size - header_at < sizeof local)
        return bad(err, "a member lies outside");
    OQ_TRY(oq_bytes_read(all, header_at, local, sizeof local, err));
    if (u32(local) != 0x04034b50)
        return bad(err, "no member where one should be");
    const uint64_t at = header_at + sizeof local + u16(local + 26) + u16(local + 28);
    if (at > all->size || m->bytes.stored > all->size - at)
        return bad(err, "a member lies outside");
    m->bytes.offset = at;
    return ONQ_OK;
}

/* One entry of the directory at p; *used gets its length. */
static onq_code read_entry(oq_bytes *all, oq_arena *a, const uint8_t *p, uint64_t n,
                           oq_zip_member *m, uint64_t *used, onq_error *err) {
    if (n < 46 || u32(p) != 0x02014b50)
        return bad(err, "the directory is damaged");
    const uint64_t name = u16(p + 28), extra = u16(p + 30), comment = u16(p + 32);
    *used = 46 + name + extra + comment;
    if (*used > n)
        return bad(err, "the directory is damaged");
    m->name = oq_str_copy(a, (oq_str){(const char *)p + 46, name});
    OQ_TRY_ALLOC(m->name.p != NULL, err);
    m->bytes = (oq_bytes){.file = all->file,
                          .alloc = all->alloc,
                          .stored = u32(p + 20),
                          .size = u32(p + 24),
                          .has_crc = true,
                          .crc = (uint32_t)u32(p + 16)};
    uint64_t header_at = u32(p + 42);
    uint64_t *fields[] = {&m->bytes.size, &m->bytes.stored, &header_at};
    onq_code rc = ONQ_OK;
    if (!read_extra64(p + 46 + name, extra, fields, OQ_COUNT(fields)))
        rc = bad(err, "an extra field is damaged");
    if (rc == ONQ_OK)
        rc = check_member(m, u16(p + 8), u16(p + 10), err);
    if (rc == ONQ_OK)
        rc = locate(all, m, header_at, err);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "member '%.*s'", OQ_STR(m->name));
}

onq_code oq_zip_open(oq_zip *z, oq_arena *a, const onq_allocator *alloc, const oq_file *f,
                     onq_error *err) {
    *z = (oq_zip){0};
    oq_bytes all;
    oq_bytes_init(&all, alloc, f);
    directory d = {0};
    OQ_TRY(find_directory(&all, a, &d, err));
    uint8_t *p = oq_arena_alloc(a, d.size + 1);
    z->v = OQ_NEW_ARRAY(a, oq_zip_member, d.count + 1);
    OQ_TRY_ALLOC(p != NULL && z->v != NULL, err);
    OQ_TRY(oq_bytes_read(&all, d.offset, p, d.size, err));
    uint64_t left = d.size, used = 0;
    for (; z->n < d.count; p += used, left -= used) {
        OQ_TRY(read_entry(&all, a, p, left, &z->v[z->n], &used, err));
        z->n++;
    }
    return ONQ_OK;
}

void oq_zip_release(oq_zip *z) {
    for (size_t i = 0; i < z->n; i++)
        oq_bytes_release(&z->v[i].bytes);
    *z = (oq_zip){0};
}
