/*
 * json.c — reading JSON through jansson, with limits. See json.h; the writer is in json_write.c.
 *
 * jansson's parser recurses, and it makes some 300 bytes of `{}`, so nesting and values are counted
 * in the text before it sees it. Its memory comes from the C library (its allocator is a global
 * that is not ours to set).
 */
#include "base/text/json.h"

#include "base/system/file.h"

#define TEXT_OF(x)       #x
#define TEXT_OF_VALUE(x) TEXT_OF(x)

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

/* What a character outside of texts costs in memory, about: a container and its first table, a
 * value and its place in one. */
static size_t cost_of(char c) {
    return c == '{' ? 360 : c == '[' ? 120 : c == ':' ? 140 : c == ',' ? 60 : c == '"' ? 40 : 0;
}

/* Looks through the text for what must not reach the parser: nesting that is too deep, and small
 * text that makes large trees. Returns what is too much and sets *at to where, or NULL. */
static const char *find_excess(oq_str text, size_t *at) {
    size_t depth = 0, cost = 0;
    bool in_text = false;
    for (size_t i = 0; i < text.n; i++) {
        const char c = text.p[i];
        *at = i;
        if (in_text) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_text = false;
            continue;
        }
        if (c == '"')
            in_text = true;
        else if (c == '[' || c == '{')
            depth++;
        else if ((c == ']' || c == '}') && depth != 0)
            depth--;
        if (depth > OQ_MAX_JSON_DEPTH)
            return "JSON is nested more than " TEXT_OF_VALUE(OQ_MAX_JSON_DEPTH) " deep";
        cost += cost_of(c);
        if (cost > OQ_JSON_MEMORY)
            return "more values than there is memory for (512 MiB)";
    }
    return NULL;
}

/* Where an error of jansson's begins: its position is the end of the token that its message
 * names. */
static size_t place_of_error(oq_str text, const json_error_t *why) {
    size_t at = why->position > 0 ? (size_t)why->position : 0;
    if (at > text.n)
        at = text.n;
    const char *token = strstr(why->text, " near '");
    if (token != NULL) {
        token += 7;
        const size_t n = strlen(token) != 0 ? strlen(token) - 1 : 0; /* without the quote */
        if (n != 0 && n <= at && memcmp(text.p + at - n, token, n) == 0)
            return at - n;
    }
    return at != 0 ? at - 1 : 0;
}

static onq_code fail_json(onq_error *err, const char *where, oq_str text, size_t at,
                          const char *what) {
    size_t line, column;
    place_of(text, at, &line, &column);
    oq_fail(err, ONQ_E_CONFIG, "%s: line %zu, column %zu: not valid JSON: %s", where, line, column,
            what);
    return oq_error_place(err, ONQ_E_CONFIG, (int64_t)at);
}

onq_code oq_json_parse(const char *where, oq_str text, json_t **out, onq_error *err) {
    size_t at = 0, line, column;
    *out = NULL;
    if (text.n > OQ_MAX_JSON)
        return oq_fail(err, ONQ_E_LIMIT, "%s: has %zu bytes of JSON, more than the limit of %u",
                       where, text.n, OQ_MAX_JSON);
    const char *excess = find_excess(text, &at);
    if (excess != NULL) {
        place_of(text, at, &line, &column);
        return oq_fail(err, ONQ_E_LIMIT, "%s: line %zu, column %zu: %s", where, line, column,
                       excess);
    }
    const char *nul = text.n != 0 ? memchr(text.p, '\0', text.n) : NULL;
    if (nul != NULL) {
        /* To jansson a NUL after the value is the end; it does not look at what follows. */
        return fail_json(err, where, text, (size_t)(nul - text.p), "a NUL byte");
    }
    json_error_t why;
    json_t *root = json_loadb(text.p != NULL ? text.p : "", text.n,
                              JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (root != NULL) {
        *out = root;
        return ONQ_OK;
    }
    OQ_TRY_ALLOC(json_error_code(&why) != json_error_out_of_memory, err);
    return fail_json(err, where, text, place_of_error(text, &why), why.text);
}

/* The text that replaces a word outside of texts, or NULL when the word may stay. */
static const char *text_for(oq_str word) {
    static const char *const names[] = {"NaN", "Infinity", "-Infinity"};
    char copy[64];
    for (size_t i = 0; i < 3; i++)
        if (oq_str_is(word, names[i]))
            return names[i];
    const char *digits = word.p[0] == '-' ? word.p + 1 : word.p;
    if (word.n >= sizeof copy || digits == word.p + word.n || *digits < '0' || *digits > '9')
        return NULL;
    memcpy(copy, word.p, word.n);
    copy[word.n] = '\0';
    char *end;
    const double v = strtod(copy, &end);
    if (*end != '\0' || isfinite(v))
        return NULL;
    return v < 0 ? names[2] : names[1];
}

static bool is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '+' || c == '.';
}

onq_code oq_json_quote_words(oq_buf *b, oq_str text, onq_error *err) {
    size_t i = 0, done = 0;
    while (i < text.n) {
        if (text.p[i] == '"') {
            for (i++; i < text.n && text.p[i] != '"'; i++)
                i += text.p[i] == '\\';
            i++;
            continue;
        }
        const size_t begin = i;
        while (i < text.n && is_word(text.p[i]))
            i++;
        if (i == begin) {
            i++;
            continue;
        }
        const char *instead = text_for((oq_str){text.p + begin, i - begin});
        if (instead == NULL)
            continue;
        oq_buf_add(b, text.p + done, begin - done);
        oq_buf_addc(b, '"');
        oq_buf_adds(b, instead);
        oq_buf_addc(b, '"');
        done = i;
    }
    oq_buf_add(b, text.p + done, text.n - done);
    return b->failed ? oq_fail_nomem(err) : ONQ_OK;
}

bool oq_json_real(const json_t *j, double *out) {
    if (json_is_number(j)) {
        *out = json_number_value(j);
        return true;
    }
    const char *s = json_string_value(j);
    if (s == NULL)
        return false;
    if (strcmp(s, "NaN") == 0)
        *out = NAN;
    else if (strcmp(s, "Infinity") == 0)
        *out = INFINITY;
    else if (strcmp(s, "-Infinity") == 0)
        *out = -INFINITY;
    else
        return false;
    return true;
}

onq_code oq_json_read(const onq_allocator *a, const char *path, json_t **out, onq_error *err) {
    oq_str text;
    *out = NULL;
    if (path[strspn(path, " \t\r\n")] == '{')
        return oq_json_parse("JSON text", oq_str_of(path), out, err);
    OQ_SCRATCH(arena, a);
    OQ_TRY(oq_file_read_all(&arena, path, OQ_MAX_JSON, &text, err));
    return oq_json_parse(path, text, out, err);
}
