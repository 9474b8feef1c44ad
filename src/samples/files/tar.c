/*
 * tar.c — see tar.h.
 *
 * A header is a block: name at 0 (100 bytes), size at 124 (12 bytes, octal digits, or base 256 when
 * the first bit is set), checksum at 148, type at 156, "ustar" at 257, prefix of the name at 345
 * (155 bytes). A long name comes in a member of its own before the file: type 'L' (GNU), or 'x'
 * with lines "LENGTH path=NAME" (pax), where "LENGTH size=N" may be as well.
 */
#include "samples/files/tar.h"

#define MAX_RECORDS   (1u << 20)  /* bytes of long names and pax records */
#define MAX_AFTER_END (64u << 20) /* bytes between the end of the archive and that of the stream */

enum { SIZE_AT = 124, SUM_AT = 148, TYPE_AT = 156, MAGIC_AT = 257, PREFIX_AT = 345 };

static bool read_octal(const uint8_t *p, size_t n, uint64_t *out) {
    uint64_t v = 0;
    size_t i = 0;
    while (i < n && p[i] == ' ')
        i++;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
        if (v >> 60 != 0)
            return false;
        v = v * 8 + (uint64_t)(p[i] - '0');
    }
    *out = v;
    return i == n || p[i] == ' ' || p[i] == '\0';
}

static bool read_size(const uint8_t *p, uint64_t *out) {
    if ((p[0] & 0x80) == 0)
        return read_octal(p, 12, out);
    uint64_t v = p[0] & 0x7f;
    for (size_t i = 1; i < 12; i++) {
        if (v >> 55 != 0)
            return false;
        v = v << 8 | p[i];
    }
    *out = v;
    return true;
}

static bool sum_is_right(const uint8_t *b) {
    uint64_t said = 0, sum = 0;
    for (size_t i = 0; i < OQ_TAR_BLOCK; i++)
        sum += i >= SUM_AT && i < SUM_AT + 8 ? ' ' : b[i];
    return read_octal(b + SUM_AT, 8, &said) && said == sum;
}

static bool is_zero(const uint8_t *b) {
    for (size_t i = 0; i < OQ_TAR_BLOCK; i++)
        if (b[i] != 0)
            return false;
    return true;
}

bool oq_tar_is(const uint8_t block[OQ_TAR_BLOCK]) {
    return is_zero(block) || sum_is_right(block);
}

onq_code oq_tar_skip(oq_pipe *p, uint64_t n, onq_error *err) {
    uint8_t waste[16384];
    while (n > 0) {
        uint64_t got = 0;
        const uint64_t part = n < sizeof waste ? n : sizeof waste;
        OQ_TRY(oq_pipe_read(p, waste, part, &got, err));
        if (got < part)
            return oq_fail(err, ONQ_E_MALFORMED, "the archive is cut off");
        n -= part;
    }
    return ONQ_OK;
}

/* A member that says something about the next one, as text in the arena. */
static onq_code read_text(oq_pipe *p, uint64_t size, oq_arena *a, oq_str *out, onq_error *err) {
    uint64_t got = 0;
    if (size > MAX_RECORDS)
        return oq_fail(err, ONQ_E_LIMIT, "names of more than %u bytes", MAX_RECORDS);
    char *text = oq_arena_alloc(a, size + 1);
    OQ_TRY_ALLOC(text != NULL, err);
    OQ_TRY(oq_pipe_read(p, text, size, &got, err));
    if (got < size)
        return oq_fail(err, ONQ_E_MALFORMED, "the archive is cut off");
    *out = (oq_str){text, (size_t)size};
    return oq_tar_skip(p, oq_tar_padding(size), err);
}

/* What pax records say of name and size: lines "LENGTH key=value\n". */
static onq_code read_records(oq_arena *a, oq_str text, oq_tar_member *m, bool *sized,
                             onq_error *err) {
    while (text.n > 0) {
        const char *blank = memchr(text.p, ' ', text.n);
        int64_t n = 0, size = 0;
        if (blank == NULL || !oq_str_to_i64((oq_str){text.p, (size_t)(blank - text.p)}, &n) ||
            n < 3 || (uint64_t)n > text.n || blank - text.p >= n)
            return oq_fail(err, ONQ_E_MALFORMED, "a pax record is damaged");
        const oq_str line = {blank + 1, (size_t)n - (size_t)(blank - text.p) - 2};
        if (oq_str_starts(line, OQ_S("path="))) {
            m->name = oq_arena_strdup(a, line.p + 5, line.n - 5);
            OQ_TRY_ALLOC(m->name != NULL, err);
        } else if (oq_str_starts(line, OQ_S("size="))) {
            if (!oq_str_to_i64((oq_str){line.p + 5, line.n - 5}, &size) || size < 0)
                return oq_fail(err, ONQ_E_MALFORMED, "a pax record is damaged");
            m->size = (uint64_t)size;
            *sized = true;
        }
        text = (oq_str){text.p + n, text.n - (size_t)n};
    }
    return ONQ_OK;
}

static const char *header_name(oq_arena *a, const uint8_t *b) {
    const char *name = (const char *)b, *prefix = (const char *)b + PREFIX_AT;
    const int n = (int)strnlen(name, 100), k = (int)strnlen(prefix, 155);
    const bool ustar = memcmp(b + MAGIC_AT, "ustar\0", 6) == 0;
    return oq_str_format(a, "%.*s%s%.*s", ustar ? k : 0, prefix, ustar && k > 0 ? "/" : "", n, name)
        .p;
}

static onq_code read_block(oq_pipe *p, uint8_t *block, bool *more, onq_error *err) {
    uint64_t got = 0;
    OQ_TRY(oq_pipe_read(p, block, OQ_TAR_BLOCK, &got, err));
    *more = got > 0 && !(got == OQ_TAR_BLOCK && is_zero(block));
    if (got > 0 && got < OQ_TAR_BLOCK)
        return oq_fail(err, ONQ_E_MALFORMED, "the archive is cut off");
    return ONQ_OK;
}

/* After the end: what a program still writes, so that it ends by itself. Archives are filled up to
 * a multiple of 10 KB or of the size of a tape's block. */
static onq_code drain(oq_pipe *p, onq_error *err) {
    uint8_t waste[16384];
    uint64_t got = 1, sum = 0;
    for (; got > 0 && sum < MAX_AFTER_END; sum += got)
        OQ_TRY(oq_pipe_read(p, waste, sizeof waste, &got, err));
    return got == 0 ? ONQ_OK : oq_fail(err, ONQ_E_LIMIT, "the archive goes on after its end");
}

onq_code oq_tar_next(oq_pipe *p, const uint8_t *block, oq_arena *a, oq_tar_member *out, bool *more,
                     onq_error *err) {
    uint8_t b[OQ_TAR_BLOCK];
    bool sized = false;
    *out = (oq_tar_member){0};
    for (;;) {
        *more = true;
        if (block == NULL)
            OQ_TRY(read_block(p, b, more, err));
        else
            memcpy(b, block, sizeof b);
        if (!*more || (block != NULL && is_zero(b))) {
            *more = false;
            return drain(p, err);
        }
        block = NULL;
        uint64_t size = 0;
        const char type = (char)b[TYPE_AT];
        oq_str text = {NULL, 0};
        if (!sum_is_right(b) || !read_size(b + SIZE_AT, &size))
            return oq_fail(err, ONQ_E_MALFORMED, "a header of the archive is damaged");
        if (type == 'L' || type == 'x') {
            OQ_TRY(read_text(p, size, a, &text, err));
            if (type == 'x')
                OQ_TRY(read_records(a, text, out, &sized, err));
            else
                out->name = text.p;
            continue;
        }
        if (type != '0' && type != '\0' && type != '7') { /* folders, links, global records */
            if (type == 'g' || type == 'K')
                OQ_TRY(oq_tar_skip(p, size + oq_tar_padding(size), err));
            *out = (oq_tar_member){0};
            sized = false;
            continue;
        }
        out->size = sized ? out->size : size;
        if (out->name == NULL)
            out->name = header_name(a, b);
        return out->name != NULL ? ONQ_OK : oq_fail_nomem(err);
    }
}
