/*
 * literal.c — see literal.h. A recursive descent over the text, with a limit on its depth.
 */
#include "base/text/literal.h"

#include "base/text/json.h"

typedef struct reader {
    oq_str text;
    size_t at;
    oq_buf *out;
    unsigned depth;
    onq_error *err;
} reader;

static onq_code read_value(reader *r);

static onq_code fail(const reader *r, const char *what) {
    return oq_fail(r->err, ONQ_E_CONFIG, "%s at character %zu", what, r->at + 1);
}

static char peek(const reader *r) {
    return r->at < r->text.n ? r->text.p[r->at] : '\0';
}

static void skip_space(reader *r) {
    static const char space[] = {' ', '\t', '\r', '\n'};
    while (r->at < r->text.n && memchr(space, r->text.p[r->at], sizeof space) != NULL)
        r->at++;
}

static bool take(reader *r, char c) {
    skip_space(r);
    if (r->at >= r->text.n || r->text.p[r->at] != c)
        return false;
    r->at++;
    return true;
}

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '+' || c == '-';
}

/* The quote that ends it is the one that begins it. Escapes are those of JSON, and \' of Python. */
static onq_code read_string(reader *r) {
    const char quote = r->text.p[r->at++];
    oq_buf_addc(r->out, '"');
    for (; r->at < r->text.n && r->text.p[r->at] != quote; r->at++) {
        char c = r->text.p[r->at];
        if (c == '\\' && r->at + 1 < r->text.n) {
            c = r->text.p[++r->at];
            if (c != '\'')
                oq_buf_addc(r->out, '\\');
        } else if (c == '"') {
            oq_buf_addc(r->out, '\\');
        }
        oq_buf_addc(r->out, c);
    }
    if (r->at >= r->text.n)
        return fail(r, "the text ends inside quotes");
    r->at++;
    oq_buf_addc(r->out, '"');
    return ONQ_OK;
}

/* Python's +1, .5 and 1. are not numbers in JSON. */
static void add_number(oq_buf *out, oq_str word) {
    for (size_t i = 0; i < word.n; i++) {
        const bool digit_before = i > 0 && word.p[i - 1] >= '0' && word.p[i - 1] <= '9';
        const bool digit_after = i + 1 < word.n && word.p[i + 1] >= '0' && word.p[i + 1] <= '9';
        if (word.p[i] == '+' && i == 0)
            continue;
        if (word.p[i] == '.' && !digit_before)
            oq_buf_addc(out, '0');
        oq_buf_addc(out, word.p[i]);
        if (word.p[i] == '.' && !digit_after)
            oq_buf_addc(out, '0');
    }
}

static onq_code read_list(reader *r, char end);

/* np.array(0.5, dtype=np.float32): the first argument stays. The parenthesis is read. */
static onq_code read_call(reader *r) {
    if (take(r, ')'))
        return fail(r, "a value is missing in the parentheses");
    OQ_TRY(read_value(r));
    const size_t kept = r->out->n;
    while (take(r, ',')) {
        if (take(r, ')'))
            return ONQ_OK;
        OQ_TRY(read_value(r));
        if (take(r, '='))
            OQ_TRY(read_value(r));
        if (!r->out->failed)
            r->out->n = kept;
    }
    return take(r, ')') ? ONQ_OK : fail(r, "')' is missing");
}

static onq_code read_word(reader *r) {
    static const char *const words[][2] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"},
        {"true", "true"}, {"false", "false"}, {"null", "null"},
    };
    const size_t begin = r->at;
    while (r->at < r->text.n && is_name(r->text.p[r->at]))
        r->at++;
    const oq_str word = {r->text.p + begin, r->at - begin};
    if (word.n == 0)
        return fail(r, "no value");
    if (strchr("0123456789+-.", word.p[0]) != NULL) {
        add_number(r->out, word);
        return ONQ_OK;
    }
    if (take(r, '('))
        return read_call(r);
    for (size_t i = 0; i < OQ_COUNT(words); i++) {
        if (oq_str_is(word, words[i][0])) {
            oq_buf_adds(r->out, words[i][1]);
            return ONQ_OK;
        }
    }
    oq_buf_add_json(r->out, word);
    return ONQ_OK;
}

/* What follows an opening bracket, up to and including the closing one. */
static onq_code read_list(reader *r, char end) {
    oq_buf_addc(r->out, '[');
    for (bool first = true; !take(r, end); first = false) {
        if (!first) {
            if (!take(r, ','))
                return fail(r, "',' or the closing bracket is missing");
            if (take(r, end))
                break;
            oq_buf_addc(r->out, ',');
        }
        OQ_TRY(read_value(r));
    }
    oq_buf_addc(r->out, ']');
    return ONQ_OK;
}

/* A dictionary or a set: what follows the first item decides. */
static onq_code read_braces(reader *r) {
    const size_t at = r->out->n;
    bool dictionary = true;
    oq_buf_addc(r->out, '{');
    for (bool first = true; !take(r, '}'); first = false) {
        if (!first) {
            if (!take(r, ','))
                return fail(r, "',' or '}' is missing");
            if (take(r, '}'))
                break;
            oq_buf_addc(r->out, ',');
        }
        skip_space(r);
        if (dictionary && !first && peek(r) != '"' && peek(r) != '\'')
            return fail(r, "a text as key is missing");
        OQ_TRY(read_value(r));
        if (first)
            dictionary = take(r, ':');
        else if (dictionary && !take(r, ':'))
            return fail(r, "':' is missing");
        if (!dictionary)
            continue;
        oq_buf_addc(r->out, ':');
        OQ_TRY(read_value(r));
    }
    oq_buf_addc(r->out, dictionary ? '}' : ']');
    if (!dictionary && !r->out->failed)
        r->out->p[at] = '[';
    return ONQ_OK;
}

static onq_code read_value(reader *r) {
    onq_code rc;
    skip_space(r);
    if (r->depth >= OQ_MAX_JSON_DEPTH)
        return fail(r, "too many brackets inside each other");
    r->depth++;
    if (peek(r) == '"' || peek(r) == '\'')
        rc = read_string(r);
    else if (take(r, '['))
        rc = read_list(r, ']');
    else if (take(r, '('))
        rc = read_list(r, ')');
    else if (take(r, '{'))
        rc = read_braces(r);
    else
        rc = read_word(r);
    r->depth--;
    return rc;
}

onq_code oq_literal_json(oq_buf *out, oq_str text, onq_error *err) {
    reader r = {.text = text, .out = out, .err = err};
    OQ_TRY(read_value(&r));
    skip_space(&r);
    if (r.at < text.n)
        return fail(&r, "more than one value");
    return out->failed ? oq_fail_nomem(err) : ONQ_OK;
}
