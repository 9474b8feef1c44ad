/*
 * json.h — a thin layer over jansson.
 *
 * Reading has limits on size, depth and memory, refuses duplicate keys, and gives errors with file,
 * line and column (ONQ_E_CONFIG for text that is not JSON, ONQ_E_LIMIT for too much of it). Writing
 * is through oq_jw, a small streaming writer with stable key order, so that a large report needs no
 * tree in memory.
 */
#pragma once

#include "base/err.h"
#include "base/limits.h"
#include "base/str.h"

#include <jansson.h>

#define OQ_MAX_JSON    (64u << 20)  /* bytes of text */
#define OQ_JSON_MEMORY (512u << 20) /* bytes of the tree, estimated */

/* Parses a file, or the text itself where it begins with a brace; *out is a new reference
 * (json_decref it). */
onq_code oq_json_read(const onq_allocator *a, const char *path, json_t **out, onq_error *err);
/* Parses text; `where` names it in errors. */
onq_code oq_json_parse(const char *where, oq_str text, json_t **out, onq_error *err);

/* Appends the text to b, with bare NaN, Infinity and -Infinity, which Python writes, and numbers
 * too large for a double as texts, so that oq_json_parse takes them and oq_json_real reads them. */
onq_code oq_json_quote_words(oq_buf *b, oq_str text, onq_error *err);
/* A number, or one of those texts; false when it is neither. */
bool oq_json_real(const json_t *j, double *out);

/* The writer adds commas and indentation. Numbers are the shortest text that reads back
 * as the same double or float; NaN and infinities are written as null. */
typedef struct oq_jw_level {
    bool empty; /* nothing in it yet */
    bool lines; /* something in it is on a line of its own */
} oq_jw_level;

typedef struct oq_jw {
    oq_buf *out;
    unsigned depth;
    oq_jw_level levels[OQ_MAX_JSON_DEPTH];
    bool pretty;
    bool after_key;
} oq_jw;

void oq_jw_init(oq_jw *w, oq_buf *out, bool pretty);
/* A writer for elements of the array that is open in `w`, into another text, which oq_jw_join
 * appends later: what is found out of order is written in order. */
oq_jw oq_jw_fork(const oq_jw *w, oq_buf *out);
void oq_jw_join(oq_jw *w, const oq_jw *part);
void oq_jw_begin_object(oq_jw *w, const char *key); /* key NULL inside an array or at the top */
void oq_jw_end_object(oq_jw *w);
void oq_jw_begin_array(oq_jw *w, const char *key);
void oq_jw_end_array(oq_jw *w);
void oq_jw_key(oq_jw *w, oq_str key); /* a key from a model; the value follows with key NULL */
void oq_jw_str(oq_jw *w, const char *key, oq_str v);
void oq_jw_cstr(oq_jw *w, const char *key, const char *v);
void oq_jw_int(oq_jw *w, const char *key, int64_t v);
void oq_jw_uint(oq_jw *w, const char *key, uint64_t v);
void oq_jw_real(oq_jw *w, const char *key, double v);
void oq_jw_float(oq_jw *w, const char *key, float v);
void oq_jw_bool(oq_jw *w, const char *key, bool v);
void oq_jw_null(oq_jw *w, const char *key);
