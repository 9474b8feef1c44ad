/*
 * json.c — reading JSON through jansson, with limits. See json.h; the writer is in json_write.c.
 *
 * jansson's parser recurses, so nesting is counted in the text before it sees it. Its memory comes from
 * the C library (its allocator is a global that is not ours to set).
 */
#include "base/json.h"

#include "base/file.h"

/* Line and column (both from 1, in bytes) of a place in the text. */
static void place_of(oq_str text, size_t at, size_t *line, size_t *column) {
    *line = 1;
    size_t start = 0;
    for (size_t i = 0; i < at && i < text.n; i++) {
        if (text.p[i] == '\n') {
            ++*line;
            start = i + 1;
        }
    }
    *column = at - start + 1;
}

/* True if brackets nest at most OQ_JSON_DEPTH deep; *at is the bracket that is too much. */
static bool depth_ok(oq_str text, size_t *at) {
    size_t depth = 0;
    bool in_text = false;
    for (size_t i = 0; i < text.n; i++) {
        const char c = text.p[i];
        if (in_text) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_text = false;
        } else if (c == '"') {
            in_text = true;
        } else if (c == '[' || c == '{') {
            if (++depth > OQ_JSON_DEPTH) {
                *at = i;
                return false;
            }
        } else if ((c == ']' || c == '}') && depth != 0) {
            depth--;
        }
    }
    return true;
}

onq_code oq_json_parse(const char *where, oq_str text, json_t **out, onq_error *err) {
    size_t at = 0, line, column;
    *out = NULL;
    if (text.n > OQ_JSON_MOST)
        return oq_fail(err, ONQ_E_LIMIT, "%s: has %zu bytes of JSON, at most %u are read", where,
                       text.n, OQ_JSON_MOST);
    if (!depth_ok(text, &at)) {
        place_of(text, at, &line, &column);
        return oq_fail(err, ONQ_E_LIMIT,
                       "%s: line %zu, column %zu: JSON is nested more than %d deep", where, line,
                       column, OQ_JSON_DEPTH);
    }
    json_error_t why;
    json_t *root = json_loadb(text.p != NULL ? text.p : "", text.n,
                              JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (root != NULL) {
        *out = root;
        return ONQ_OK;
    }
    if (json_error_code(&why) == json_error_out_of_memory)
        return oq_fail_nomem(err);
    /* jansson's column counts characters and stands behind the token; the byte position does not. */
    at = why.position > 0 ? (size_t)why.position - 1 : 0;
    if (at > text.n)
        at = text.n;
    place_of(text, at, &line, &column);
    oq_fail(err, ONQ_E_CONFIG, "%s: line %zu, column %zu: not valid JSON: %s", where, line, column,
            why.text);
    if (err != NULL)
        err->offset = (int64_t)at;
    return ONQ_E_CONFIG;
}

onq_code oq_json_read(const onq_allocator *a, const char *path, json_t **out, onq_error *err) {
    oq_arena arena;
    oq_str text;
    *out = NULL;
    oq_arena_init(&arena, a);
    onq_code rc = oq_file_read_all(&arena, a, path, OQ_JSON_MOST, &text, err);
    if (rc == ONQ_OK)
        rc = oq_json_parse(path, text, out, err);
    oq_arena_release(&arena);
    return rc;
}
