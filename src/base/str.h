/*
 * str.h — a text view (pointer, length) and a growable text buffer.
 *
 * Views point into a mapping, an arena or a literal and are not NUL-terminated. Names in ONNX may
 * hold any bytes, NUL included, so they stay views; oq_str_cstr makes a C string where one is
 * needed.
 */
#pragma once

#include "base/arena.h"

typedef struct oq_str {
    const char *p;
    size_t n;
} oq_str;

/* For printf's "%.*s". */
#define OQ_STR(s) (int)((s).n > 200 ? 200 : (s).n), (s).p ? (s).p : ""
/* The s at the end of a counted noun, and of its verb. */
#define OQ_NOUN_S(n) ((n) == 1 ? "" : "s")
#define OQ_VERB_S(n) ((n) == 1 ? "s" : "")
/* A view of a literal. */
#define OQ_S(lit) ((oq_str){"" lit, sizeof(lit) - 1})

static inline oq_str oq_str_of(const char *c) {
    return (oq_str){c, c ? strlen(c) : 0};
}
static inline bool oq_str_eq(oq_str a, oq_str b) {
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}
static inline bool oq_str_is(oq_str a, const char *c) {
    return oq_str_eq(a, oq_str_of(c));
}
bool oq_str_contains(oq_str s, oq_str part);
bool oq_str_starts(oq_str s, oq_str prefix);
bool oq_str_ends(oq_str s, oq_str suffix);
/* Takes an ending away; false: the text does not end so. */
bool oq_str_cut_end(oq_str *s, const char *end);
/* True if the text is one of these. */
bool oq_str_among(oq_str s, const oq_str *list, size_t n);
bool oq_str_is_any(oq_str s, const char *const *list, size_t n);
/* Bytewise order, as memcmp. */
int oq_str_cmp(oq_str a, oq_str b);
/* Formats into the arena. An empty view with p == NULL when out of memory. */
oq_str oq_str_format(oq_arena *a, const char *fmt, ...) OQ_PRINTF(2, 3);
/* a followed by b, in the arena; p == NULL when out of memory. */
oq_str oq_str_cat(oq_arena *a, oq_str x, oq_str y);
oq_str oq_str_copy(oq_arena *a, oq_str s);
/* NUL-terminated copy, NULL when out of memory. */
const char *oq_str_cstr(oq_arena *a, oq_str s);
/* Edit distance, for "did you mean"; stops counting at `most`. */
size_t oq_str_distance(oq_str a, oq_str b, size_t most);
/* Whole decimal integer, optional '-'; false if anything else or out of range. */
bool oq_str_to_i64(oq_str s, int64_t *out);

/* Bytes of the well-formed UTF-8 character at p (n bytes are there), 0 if there is none. */
size_t oq_utf8_len(const char *p, size_t n);

/* Growable text. `failed` is sticky, so a run of appends needs one check at the end. */
typedef struct oq_buf {
    const onq_allocator *alloc;
    char *p; /* NUL-terminated once anything was added */
    size_t n, cap;
    bool failed;
} oq_buf;

void oq_buf_init(oq_buf *b, const onq_allocator *alloc);
void oq_buf_release(oq_buf *b);
/* Declares a text that is released when the block that it is declared in is left, in any way. */
#define OQ_SCRATCH_BUF(name, allocator)                                                            \
    OQ_CLEANUP(oq_buf_release) oq_buf name;                                                        \
    oq_buf_init(&name, allocator)

void oq_buf_add(oq_buf *b, const void *p, size_t n);
void oq_buf_adds(oq_buf *b, const char *c);
void oq_buf_addc(oq_buf *b, char c);
void oq_buf_addf(oq_buf *b, const char *fmt, ...) OQ_PRINTF(2, 3);
/* Room for n bytes at the end, or NULL, and what was written there, up to `end`. */
char *oq_buf_room(oq_buf *b, size_t n);
void oq_buf_take(oq_buf *b, const char *end);
void oq_buf_add_str(oq_buf *b, oq_str s);
/* As a JSON string with quotes; invalid UTF-8 becomes U+FFFD. */
void oq_buf_add_json(oq_buf *b, oq_str s);
/* With control bytes escaped as \xNN. */
void oq_buf_add_safe(oq_buf *b, oq_str s);
/* As one word for the system's shell: in quotes unless it is plain. To be shown: control bytes are
 * escaped. */
void oq_buf_add_word(oq_buf *b, oq_str s);
/* The same to be run: all bytes as they are. */
void oq_buf_add_exact_word(oq_buf *b, oq_str s);
