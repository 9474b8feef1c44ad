/*
 * json_write.c — the streaming JSON writer. See json.h.
 *
 * Laid out for people as well: members of an object on lines of their own, an array of plain values
 * on one line, an array of objects one object after another.
 */
#include "base/text/json.h"

#include "base/text/number_text.h"

void oq_jw_init(oq_jw *w, oq_buf *out, bool pretty) {
    *w = (oq_jw){.out = out, .pretty = pretty};
}

static void new_line(oq_jw *w) {
    static const char spaces[] = "                                ";
    oq_buf_addc(w->out, '\n');
    for (size_t n = 2 * (size_t)w->depth; n != 0;) {
        const size_t part = n < sizeof spaces - 1 ? n : sizeof spaces - 1;
        oq_buf_add(w->out, spaces, part);
        n -= part;
    }
}

/* What comes before a value or a key: comma, line end, indentation. */
static void separate(oq_jw *w, bool own_line) {
    if (w->depth == 0)
        return;
    oq_jw_level *level = &w->levels[w->depth - 1];
    if (!level->empty)
        oq_buf_addc(w->out, ',');
    if (w->pretty && own_line) {
        new_line(w);
        level->lines = true;
    } else if (w->pretty && !level->empty) {
        oq_buf_addc(w->out, ' ');
    }
    level->empty = false;
}

oq_jw oq_jw_fork(const oq_jw *w, oq_buf *out) {
    assert(w->depth > 0 && !w->after_key);
    oq_jw part = *w;
    part.out = out;
    part.levels[part.depth - 1].empty = true;
    return part;
}

void oq_jw_join(oq_jw *w, const oq_jw *part) {
    assert(w->depth > 0 && part->depth == w->depth);
    oq_jw_level *level = &w->levels[w->depth - 1];
    w->out->failed |= part->out->failed;
    if (part->out->n == 0)
        return;
    if (!level->empty)
        oq_buf_addc(w->out, ',');
    oq_buf_add(w->out, part->out->p, part->out->n);
    *level = part->levels[part->depth - 1];
}

void oq_jw_key(oq_jw *w, oq_str key) {
    assert(!w->after_key);
    separate(w, true);
    oq_buf_add_json(w->out, key);
    oq_buf_adds(w->out, w->pretty ? ": " : ":");
    w->after_key = true;
}

/* Before each value. */
static void begin(oq_jw *w, const char *key, bool container) {
    if (key != NULL)
        oq_jw_key(w, oq_str_of(key));
    else if (!w->after_key)
        separate(w, container);
    w->after_key = false;
}

static void open_level(oq_jw *w, const char *key, char bracket) {
    begin(w, key, true);
    oq_buf_addc(w->out, bracket);
    assert(w->depth < OQ_MAX_JSON_DEPTH);
    if (w->depth < OQ_MAX_JSON_DEPTH)
        w->levels[w->depth++] = (oq_jw_level){.empty = true};
    else
        w->out->failed = true;
}

static void close_level(oq_jw *w, char bracket) {
    assert(w->depth > 0 && !w->after_key);
    w->depth--;
    if (w->levels[w->depth].lines)
        new_line(w);
    oq_buf_addc(w->out, bracket);
}

void oq_jw_begin_object(oq_jw *w, const char *key) {
    open_level(w, key, '{');
}

void oq_jw_end_object(oq_jw *w) {
    close_level(w, '}');
}

void oq_jw_begin_array(oq_jw *w, const char *key) {
    open_level(w, key, '[');
}

void oq_jw_end_array(oq_jw *w) {
    close_level(w, ']');
}

void oq_jw_str(oq_jw *w, const char *key, oq_str v) {
    begin(w, key, false);
    oq_buf_add_json(w->out, v);
}

void oq_jw_cstr(oq_jw *w, const char *key, const char *v) {
    oq_jw_str(w, key, oq_str_of(v));
}

void oq_jw_int(oq_jw *w, const char *key, int64_t v) {
    char b[OQ_NUMBER_TEXT];
    begin(w, key, false);
    oq_buf_add(w->out, b, oq_int_text(b, v));
}

void oq_jw_uint(oq_jw *w, const char *key, uint64_t v) {
    char b[OQ_NUMBER_TEXT];
    begin(w, key, false);
    oq_buf_add(w->out, b, oq_uint_text(b, v));
}

void oq_jw_real(oq_jw *w, const char *key, double v) {
    char b[OQ_NUMBER_TEXT];
    begin(w, key, false);
    oq_real_text(b, v);
    oq_buf_adds(w->out, isfinite(v) ? b : "null");
}

void oq_jw_float(oq_jw *w, const char *key, float v) {
    char b[OQ_NUMBER_TEXT];
    begin(w, key, false);
    oq_float_text(b, v);
    oq_buf_adds(w->out, isfinite(v) ? b : "null");
}

void oq_jw_bool(oq_jw *w, const char *key, bool v) {
    begin(w, key, false);
    oq_buf_adds(w->out, v ? "true" : "false");
}

void oq_jw_null(oq_jw *w, const char *key) {
    begin(w, key, false);
    oq_buf_adds(w->out, "null");
}
