/*
 * err.c — errors with context. See err.h.
 *
 * Texts pass oq_text_escape on their way into an error or a log line, so whatever a hostile file
 * calls its tensors, the terminal sees printable UTF-8 only. Everything works in buffers on the
 * stack.
 */
#undef OQ_ANALYZER /* here are the functions themselves */
#include "base/err.h"

#include "base/os.h"

#include "base/str.h"

#include <stdarg.h>

/* Length of the printable UTF-8 character at p, 0 if the byte there has to be escaped. */
static size_t printable(const char *p, size_t n) {
    const unsigned char c = (unsigned char)p[0];
    if (c < 0x80)
        return c >= 0x20 && c != 0x7f;
    const size_t len = oq_utf8_len(p, n);
    if (len == 2 && c == 0xc2 && (unsigned char)p[1] < 0xa0)
        return 0; /* C1 control characters */
    if (len == 3 && c == 0xe2) {
        /* Characters that reorder or break the line: U+2028..202E, U+2066..2069. */
        const unsigned low = (((unsigned)p[1] & 0x3f) << 6) | ((unsigned)p[2] & 0x3f);
        if ((low >= 0x028 && low <= 0x02e) || (low >= 0x066 && low <= 0x069))
            return 0;
    }
    return len;
}

/* Bytes of the text once escaped; counts no further than `most`. */
static size_t escaped_size(const char *in, size_t n, size_t most) {
    size_t size = 0;
    for (size_t i = 0; i < n && size <= most;) {
        const size_t len = printable(in + i, n - i);
        size += len != 0 ? len : 4;
        i += len != 0 ? len : 1;
    }
    return size;
}

size_t oq_text_escape(char *out, size_t cap, const char *in, size_t n) {
    static const char hex[] = "0123456789abcdef";
    assert(cap >= 8);
    const bool fits = escaped_size(in, n, cap) < cap;
    const size_t room = fits ? cap - 1 : cap - 4; /* three dots and the NUL */
    size_t at = 0;
    for (size_t i = 0; i < n;) {
        const size_t len = printable(in + i, n - i);
        if (at + (len != 0 ? len : 4) > room)
            break;
        if (len != 0) {
            memcpy(out + at, in + i, len);
            at += len;
            i += len;
        } else {
            const unsigned char c = (unsigned char)in[i++];
            memcpy(out + at, (char[]){'\\', 'x', hex[c >> 4], hex[c & 15]}, 4);
            at += 4;
        }
    }
    if (!fits) {
        memcpy(out + at, "...", 3);
        at += 3;
    }
    out[at] = '\0';
    return at;
}

/* Formats into b; returns the length that is there, with "..." put at the end of a text that was
 * cut. */
static size_t format(char *b, size_t cap, const char *fmt, va_list args) OQ_PRINTF(3, 0);
static size_t format(char *b, size_t cap, const char *fmt, va_list args) {
    const int n = vsnprintf(b, cap, fmt, args);
    if (n < 0) {
        b[0] = '\0';
        return 0;
    }
    if ((size_t)n < cap)
        return (size_t)n;
    memcpy(b + cap - 4, "...", 4);
    return cap - 1;
}

static void set(onq_error *err, onq_code code, int64_t offset, const char *text, size_t n) {
    err->code = code;
    err->offset = offset;
    oq_text_escape(err->text, sizeof err->text, text, n);
}

onq_code oq_fail(onq_error *err, onq_code code, const char *fmt, ...) {
    if (err == NULL)
        return code;
    char b[sizeof err->text];
    va_list args;
    va_start(args, fmt);
    const size_t n = format(b, sizeof b, fmt, args);
    va_end(args);
    set(err, code, -1, b, n);
    return code;
}

/* Message and a suffix that must not be cut off. */
static void set_with_suffix(onq_error *err, onq_code code, int64_t offset, const char *suffix,
                            const char *fmt, va_list args) OQ_PRINTF(5, 0);
static void set_with_suffix(onq_error *err, onq_code code, int64_t offset, const char *suffix,
                            const char *fmt, va_list args) {
    char b[sizeof err->text];
    const size_t n = format(b, sizeof b, fmt, args);
    const size_t suffix_n = strlen(suffix);
    assert(suffix_n < sizeof b / 2);
    err->code = code;
    err->offset = offset;
    const size_t at = oq_text_escape(err->text, sizeof err->text - suffix_n, b, n);
    memcpy(err->text + at, suffix, suffix_n + 1);
}

onq_code oq_fail_at(onq_error *err, onq_code code, uint64_t offset, const char *fmt, ...) {
    if (err == NULL)
        return code;
    char suffix[40];
    snprintf(suffix, sizeof suffix, " (at byte %llu)", (unsigned long long)offset);
    va_list args;
    va_start(args, fmt);
    set_with_suffix(err, code, offset > INT64_MAX ? INT64_MAX : (int64_t)offset, suffix, fmt, args);
    va_end(args);
    return code;
}

onq_code oq_fail_errno(onq_error *err, onq_code code, int errnum, const char *fmt, ...) {
    if (code == ONQ_E_OPEN && errnum == ENOENT)
        code = ONQ_E_MISSING;
    if (err == NULL)
        return code;
    char reason[128], suffix[160];
    const char *why = oq_os_reason(errnum, reason, sizeof reason);
    snprintf(suffix, sizeof suffix, ": %.127s", why);
    va_list args;
    va_start(args, fmt);
    set_with_suffix(err, code, -1, suffix, fmt, args);
    va_end(args);
    return code;
}

onq_code oq_error_in(onq_error *err, onq_code code, const char *fmt, ...) {
    if (err == NULL)
        return code;
    char b[sizeof err->text], context[sizeof err->text / 2];
    va_list args;
    va_start(args, fmt);
    const size_t n = format(b, sizeof b, fmt, args);
    va_end(args);
    /* Context may take half of the text; the message keeps the rest. */
    size_t at = oq_text_escape(context, sizeof context - 2, b, n);
    memcpy(context + at, ": ", 3);
    at += 2;
    err->code = code;
    if (strncmp(err->text, context, at) == 0)
        return code; /* it is said already: a file's own functions name it too */
    const size_t old_n = strnlen(err->text, sizeof err->text - 1);
    memcpy(b, err->text, old_n);
    memcpy(err->text, context, at);
    oq_text_escape(err->text + at, sizeof err->text - at, b, old_n);
    return code;
}

onq_code oq_fail_nomem(onq_error *err) {
    return oq_fail(err, ONQ_E_NOMEM, "out of memory");
}

onq_code oq_error_give(onq_error *err, onq_code code, const onq_error *why) {
    if (err != NULL && why != err)
        *err = *why;
    return code;
}

onq_code oq_error_place(onq_error *err, onq_code code, int64_t offset) {
    if (err != NULL)
        err->offset = offset;
    return code;
}

const char *oq_error_text(const onq_error *err) {
    return err != NULL ? err->text : "";
}

void oq_error_clear(onq_error *err) {
    if (err == NULL)
        return;
    err->code = ONQ_OK;
    err->offset = -1;
    err->text[0] = '\0';
}
