/*
 * str.c — text views and a growable text buffer. See str.h.
 */
#include "base/str.h"

#include "base/err.h"
#include "base/os.h"

#include <stdarg.h>

bool oq_str_contains(oq_str s, oq_str part) {
    for (size_t i = 0; i + part.n <= s.n; i++)
        if (part.n == 0 || memcmp(s.p + i, part.p, part.n) == 0)
            return true;
    return false;
}

bool oq_str_starts(oq_str s, oq_str prefix) {
    return s.n >= prefix.n && oq_str_eq((oq_str){s.p, prefix.n}, prefix);
}

bool oq_str_ends(oq_str s, oq_str suffix) {
    return s.n >= suffix.n &&
           (suffix.n == 0 || memcmp(s.p + (s.n - suffix.n), suffix.p, suffix.n) == 0);
}

bool oq_str_cut_end(oq_str *s, const char *end) {
    const bool ends = oq_str_ends(*s, oq_str_of(end));
    s->n -= ends ? strlen(end) : 0;
    return ends;
}

bool oq_str_among(oq_str s, const oq_str *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (oq_str_eq(list[i], s))
            return true;
    return false;
}

bool oq_str_is_any(oq_str s, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (oq_str_is(s, list[i]))
            return true;
    return false;
}

int oq_str_cmp(oq_str a, oq_str b) {
    const size_t n = a.n < b.n ? a.n : b.n;
    const int order = n != 0 ? memcmp(a.p, b.p, n) : 0;
    return order != 0 ? order : (a.n > b.n) - (a.n < b.n);
}

oq_str oq_str_format(oq_arena *a, const char *fmt, ...) {
    const oq_str none = {NULL, 0};
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *p = n < 0 ? NULL : oq_arena_alloc(a, (size_t)n + 1);
    if (p == NULL)
        return none;
    va_start(args, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, args);
    va_end(args);
    return (oq_str){p, (size_t)n};
}

oq_str oq_str_cat(oq_arena *a, oq_str x, oq_str y) {
    size_t n;
    char *p = NULL;
    if (!__builtin_add_overflow(x.n, y.n, &n) && n < SIZE_MAX)
        p = oq_arena_alloc(a, n + 1);
    if (p == NULL)
        return (oq_str){NULL, 0};
    if (x.n != 0)
        memcpy(p, x.p, x.n);
    if (y.n != 0)
        memcpy(p + x.n, y.p, y.n);
    return (oq_str){p, n};
}

oq_str oq_str_copy(oq_arena *a, oq_str s) {
    const char *p = oq_arena_strdup(a, s.p, s.n);
    return p != NULL ? (oq_str){p, s.n} : (oq_str){NULL, 0};
}

const char *oq_str_cstr(oq_arena *a, oq_str s) {
    return oq_arena_strdup(a, s.p, s.n);
}

/* Longer texts than this are nobody's typing mistake. */
enum { MAX_DISTANCE = 256 };

size_t oq_str_distance(oq_str a, oq_str b, size_t most) {
    const size_t gap = a.n > b.n ? a.n - b.n : b.n - a.n;
    if (gap >= most || a.n > MAX_DISTANCE || b.n > MAX_DISTANCE)
        return most;
    size_t row[MAX_DISTANCE + 1];
    for (size_t j = 0; j <= b.n; j++)
        row[j] = j;
    for (size_t i = 1; i <= a.n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.n; j++) {
            const size_t change = diagonal + (a.p[i - 1] != b.p[j - 1]);
            diagonal = row[j];
            const size_t drop = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < drop ? change : drop;
        }
    }
    return row[b.n] < most ? row[b.n] : most;
}

bool oq_str_to_i64(oq_str s, int64_t *out) {
    const bool negative = s.n != 0 && s.p[0] == '-';
    size_t i = negative;
    if (i == s.n)
        return false;
    int64_t v = 0;
    for (; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
        const int64_t digit = s.p[i] - '0';
        if (__builtin_mul_overflow(v, (int64_t)10, &v) ||
            __builtin_add_overflow(v, negative ? -digit : digit, &v))
            return false;
    }
    *out = v;
    return true;
}

size_t oq_utf8_len(const char *text, size_t n) {
    const unsigned char *p = (const unsigned char *)text;
    if (n == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    const size_t len = p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
    if (len == 0 || len > n)
        return 0;
    /* The second byte also rules out overlong forms, surrogates and what is past U+10FFFF. */
    const unsigned char low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++)
        if (p[i] < 0x80 || p[i] > 0xbf)
            return 0;
    return len;
}

/* ---- growable text ---- */

void oq_buf_init(oq_buf *b, const onq_allocator *alloc) {
    *b = (oq_buf){.alloc = alloc};
}

void oq_buf_release(oq_buf *b) {
    if (b->p != NULL)
        oq_free(b->alloc, b->p, b->cap);
    *b = (oq_buf){.alloc = b->alloc};
}

/* Room for n more bytes and the NUL after them. */
static bool reserve(oq_buf *b, size_t n) {
    size_t need;
    if (b->failed)
        return false;
    if (__builtin_add_overflow(b->n, n, &need) || need > SIZE_MAX / 2) {
        b->failed = true;
        return false;
    }
    if (need < b->cap)
        return true;
    size_t cap = b->cap < 128 ? 128 : b->cap * 2;
    if (cap < need + 1)
        cap = need + 1;
    char *p = oq_resize(b->alloc, b->p, b->cap, cap);
    if (p == NULL) {
        b->failed = true;
        return false;
    }
    b->p = p;
    b->cap = cap;
    return true;
}

void oq_buf_add(oq_buf *b, const void *p, size_t n) {
    if (!reserve(b, n))
        return;
    if (n != 0)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = '\0';
}

char *oq_buf_room(oq_buf *b, size_t n) {
    return reserve(b, n) ? b->p + b->n : NULL;
}

void oq_buf_take(oq_buf *b, const char *end) {
    assert(end >= b->p + b->n && end < b->p + b->cap);
    b->n = (size_t)(end - b->p);
    b->p[b->n] = '\0';
}

void oq_buf_adds(oq_buf *b, const char *c) {
    oq_buf_add(b, c, strlen(c));
}

void oq_buf_addc(oq_buf *b, char c) {
    oq_buf_add(b, &c, 1);
}

void oq_buf_add_str(oq_buf *b, oq_str s) {
    oq_buf_add(b, s.p, s.n);
}

void oq_buf_addf(oq_buf *b, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0) {
        b->failed = true;
        return;
    }
    if (!reserve(b, (size_t)n))
        return;
    va_start(args, fmt);
    vsnprintf(b->p + b->n, (size_t)n + 1, fmt, args);
    va_end(args);
    b->n += (size_t)n;
}

/* True if a message shows the character as it is. */
static bool is_printable(const char *p, size_t len) {
    char shown[32];
    const unsigned char c = (unsigned char)p[0];
    return len == 1 ? c >= 0x20 && c != 0x7f
                    : len > 0 && oq_text_escape(shown, sizeof shown, p, len) == len;
}

/* What is not printable lies below U+10000. */
static void add_code(oq_buf *b, const char *p, size_t len) {
    const unsigned char first = (unsigned char)p[0];
    unsigned code = len == 1 ? first : len == 2 ? first & 0x1f : first & 0x0f;
    for (size_t i = 1; i < len; i++)
        code = code << 6 | ((unsigned char)p[i] & 0x3f);
    oq_buf_addf(b, "\\u%04x", code);
}

void oq_buf_add_json(oq_buf *b, oq_str s) {
    oq_buf_addc(b, '"');
    size_t plain = 0, i = 0; /* bytes plain..i go out as they are */
    while (i < s.n) {
        const unsigned char c = (unsigned char)s.p[i];
        const size_t len = oq_utf8_len(s.p + i, s.n - i);
        if (c != '"' && c != '\\' && is_printable(s.p + i, len)) {
            i += len;
            continue;
        }
        oq_buf_add(b, s.p + plain, i - plain);
        if (len == 0)
            oq_buf_add(b, "\xef\xbf\xbd", 3);
        else if (c == '"' || c == '\\')
            oq_buf_add(b, (const char[]){'\\', (char)c}, 2);
        else if (c == '\n')
            oq_buf_add(b, "\\n", 2);
        else
            add_code(b, s.p + i, len);
        i += len != 0 ? len : 1;
        plain = i;
    }
    if (i > plain)
        oq_buf_add(b, s.p + plain, i - plain);
    oq_buf_addc(b, '"');
}

void oq_buf_add_safe(oq_buf *b, oq_str s) {
    /* In pieces, so that the escaped text needs no buffer of its own size. */
    for (size_t i = 0; i < s.n;) {
        char piece[256];
        size_t n = s.n - i < 48 ? s.n - i : 48;
        /* Not through the middle of a character. */
        while (n < s.n - i && n > 44 && ((unsigned char)s.p[i + n] & 0xc0) == 0x80)
            n--;
        oq_buf_add(b, piece, oq_text_escape(piece, sizeof piece, s.p + i, n));
        i += n;
    }
}

static bool is_plain_in_shell(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && (strchr("_./-:+,=@", c) != NULL || strchr(oq_os_shell.plain, c) != NULL));
}

static void add_word(oq_buf *b, oq_str s, void (*add)(oq_buf *b, oq_str s)) {
    bool plain = s.n > 0;
    for (size_t i = 0; i < s.n; i++)
        plain = plain && is_plain_in_shell(s.p[i]);
    if (plain) {
        oq_buf_add_str(b, s);
        return;
    }
    oq_buf_addc(b, oq_os_shell.quote);
    for (size_t i = 0; i < s.n;) {
        const char *quote = memchr(s.p + i, oq_os_shell.quote, s.n - i);
        const size_t n = quote != NULL ? (size_t)(quote - s.p) - i : s.n - i;
        add(b, (oq_str){s.p + i, n}); /* characters of several bytes stay whole */
        oq_buf_adds(b, quote != NULL ? oq_os_shell.inside : "");
        i += n + (quote != NULL);
    }
    oq_buf_addc(b, oq_os_shell.quote);
}

void oq_buf_add_word(oq_buf *b, oq_str s) {
    add_word(b, s, oq_buf_add_safe);
}

void oq_buf_add_exact_word(oq_buf *b, oq_str s) {
    add_word(b, s, oq_buf_add_str);
}
