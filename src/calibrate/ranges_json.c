/*
 * ranges_json.c — the reference's calibration cache, both ways. See ranges.h.
 *
 * Writing gives the bytes of Python's json.dump: ", " and ": ", ASCII only, NaN and Infinity as
 * bare words. Reading goes over the two outer objects by itself and gives jansson one tensor at a
 * time, so that a cache of any size needs the memory of its largest tensor; bare words become texts
 * before.
 */
#include "calibrate/ranges.h"

#include "base/text/json.h"
#include "base/text/number_text.h"

/* ---- writing ---- */

/* A double as Python's json module writes it. */
static size_t real_text(char b[static OQ_NUMBER_TEXT], double v) {
    if (isfinite(v))
        return oq_python_text(b, v);
    const char *word = isnan(v) ? "NaN" : v < 0 ? "-Infinity" : "Infinity";
    return (size_t)snprintf(b, OQ_NUMBER_TEXT, "%s", word);
}

/* One code point of valid UTF-8; *n bytes were used. Returns -1 when it is not valid. */
static int32_t utf8_next(const uint8_t *p, size_t left, size_t *n) {
    static const uint8_t lead[] = {0, 0x00, 0xc0, 0xe0, 0xf0};
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t k = p[0] < 0x80 ? 1 : p[0] < 0xc0 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (k == 0 || k > left || p[0] > 0xf4)
        return -1;
    int32_t c = p[0] ^ lead[k];
    for (size_t i = 1; i < k; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return -1;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < least[k] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return -1;
    *n = k;
    return c;
}

static bool put_text(oq_buf *b, oq_str s) {
    oq_buf_addc(b, '"');
    for (size_t at = 0, n = 0; at < s.n; at += n) {
        const int32_t c = utf8_next((const uint8_t *)s.p + at, s.n - at, &n);
        if (c < 0)
            return false;
        if (c == '"' || c == '\\')
            oq_buf_addf(b, "\\%c", (char)c);
        else if (c == '\n')
            oq_buf_adds(b, "\\n");
        else if (c == '\r')
            oq_buf_adds(b, "\\r");
        else if (c == '\t')
            oq_buf_adds(b, "\\t");
        else if (c == '\b')
            oq_buf_adds(b, "\\b");
        else if (c == '\f')
            oq_buf_adds(b, "\\f");
        else if (c >= 0x10000)
            oq_buf_addf(b, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((c - 0x10000) >> 10)),
                        (unsigned)(0xdc00 + ((c - 0x10000) & 0x3ff)));
        else if (c < 0x20 || c > 0x7e)
            oq_buf_addf(b, "\\u%04x", (unsigned)c);
        else
            oq_buf_addc(b, (char)c);
    }
    oq_buf_addc(b, '"');
    return true;
}

/* Histograms have thousands of numbers: room for all of them is made at once. */
static void put_elements(oq_buf *b, const oq_num *x) {
    char *p = oq_buf_room(b, x->n * (OQ_NUMBER_TEXT + 2));
    if (p == NULL)
        return;
    for (size_t i = 0; i < x->n; i++) {
        if (i > 0) {
            *p++ = ',';
            *p++ = ' ';
        }
        p += x->type == OQ_INT64 ? oq_int_text(p, x->i[i]) : real_text(p, x->v[i]);
    }
    oq_buf_take(b, p);
}

static const char *type_name(oq_dtype type) {
    return type == OQ_INT64 ? "int64" : type == OQ_FLOAT16 ? "float16" : "float32";
}

static void put_num(oq_buf *b, const char *key, const oq_num *x) {
    if (!oq_num_has(x))
        return;
    oq_buf_addf(b, "\"%s\": ", key);
    if (x->bare) {
        put_elements(b, x);
    } else {
        oq_buf_adds(b, "{\"data\": ");
        if (!x->scalar)
            oq_buf_addc(b, '[');
        put_elements(b, x);
        if (!x->scalar)
            oq_buf_addc(b, ']');
        oq_buf_addf(b, ", \"dtype\": \"%s\", \"CLS\": \"numpy.array\"}", type_name(x->type));
    }
    oq_buf_adds(b, ", ");
}

static void put_range(oq_buf *b, const oq_range *r) {
    const bool with_avg = oq_num_has(&r->avg) || oq_num_has(&r->hist_edges);
    oq_buf_addc(b, '{');
    if (!with_avg) {
        put_num(b, "lowest", &r->lowest);
        put_num(b, "highest", &r->highest);
    }
    put_num(b, "avg", &r->avg);
    put_num(b, "std", &r->std);
    put_num(b, "hist", &r->hist);
    put_num(b, "hist_edges", &r->hist_edges);
    put_num(b, "bins", &r->bins);
    if (with_avg) {
        put_num(b, "lowest", &r->lowest);
        put_num(b, "highest", &r->highest);
    }
    oq_buf_adds(b, "\"CLS\": \"TensorData\"}");
}

onq_code oq_ranges_write(const oq_ranges *r, const onq_allocator *alloc, oq_out *out,
                         enum oq_ranges_write_flags flags, onq_error *err) {
    onq_code rc = ONQ_OK;
    OQ_SCRATCH_BUF(b, alloc);
    oq_buf_adds(&b, "{\"CLS\": \"TensorsData\", \"data\": {");
    for (size_t i = 0; i < r->all.n; i++) {
        const oq_range *t = r->all.v[i];
        if (i > 0)
            oq_buf_adds(&b, ", ");
        if (!put_text(&b, t->name)) {
            rc = oq_fail(err, ONQ_E_UNSUPPORTED,
                         "tensor '%.*s': its name is not UTF-8, which a cache file must be",
                         OQ_STR(t->name));
            goto done;
        }
        oq_buf_adds(&b, ": ");
        put_range(&b, t);
        if (b.failed) {
            rc = oq_fail_nomem(err);
            goto done;
        }
        OQ_GO(oq_out_write(out, b.p, b.n, err));
        b.n = 0;
    }
    oq_buf_addf(&b,
                "}, \"calibration_method\": {\"CLS\": \"CalibrationMethod\", \"value\": "
                "\"CalibrationMethod.%s\"}",
                oq_cal_method_name(r->method));
    if (flags == OQ_RANGES_CACHE)
        oq_buf_addf(&b, ", \"smooth_quant\": %s", r->smooth_quant ? "true" : "false");
    oq_buf_addc(&b, '}');
    if (b.failed)
        rc = oq_fail_nomem(err);
    else
        rc = oq_out_write(out, b.p, b.n, err);
done:
    return rc;
}

onq_code oq_ranges_save(const oq_ranges *r, const onq_env *env, const char *path, onq_error *err) {
    oq_out out;
    OQ_TRY(oq_out_open(&out, &env->alloc, path, err));
    onq_code rc = oq_ranges_write(r, &env->alloc, &out, OQ_RANGES_CACHE, err);
    if (rc == ONQ_OK)
        rc = oq_out_commit(&out, err);
    oq_out_abort(&out);
    return rc;
}

/* ---- reading: the outer objects ---- */

typedef struct reader {
    oq_ranges *ranges;
    const onq_allocator *alloc;
    const char *where;
    const char *begin, *p, *end;
    bool has_method, has_data;
} reader;

static onq_code fail_here(const reader *r, onq_error *err, const char *what) {
    return oq_fail_at(err, ONQ_E_MALFORMED, (uint64_t)(r->p - r->begin),
                      "%s: not a calibration cache: %s", r->where, what);
}

static void skip_space(reader *r) {
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t'))
        r->p++;
}

static bool take(reader *r, char c) {
    skip_space(r);
    if (r->p == r->end || *r->p != c)
        return false;
    r->p++;
    return true;
}

/* The end of the text that begins at p, after its closing quote, or NULL. */
static const char *text_end(const char *p, const char *end) {
    for (p++; p < end; p++)
        if (*p == '\\')
            p++;
        else if (*p == '"')
            return p + 1;
    return NULL;
}

/* Any value: its extent only. Brackets are counted, not matched; jansson does that later. */
static onq_code take_value(reader *r, oq_str *out, onq_error *err) {
    skip_space(r);
    const char *p = r->p;
    size_t depth = 0;
    while (p < r->end) {
        const char c = *p;
        if (c == '"') {
            p = text_end(p, r->end);
            if (p == NULL)
                return fail_here(r, err, "a text without end");
            if (depth == 0)
                break;
            continue;
        }
        if ((c == ',' || c == '}' || c == ']') && depth == 0)
            break;
        p++;
        if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (--depth == 0)
                break;
        }
    }
    if (depth > 0)
        return fail_here(r, err, "it ends in the middle");
    if (p == r->p)
        return fail_here(r, err, "a value is missing");
    *out = (oq_str){r->p, (size_t)(p - r->p)};
    r->p = p;
    return ONQ_OK;
}

/* The next `"key":` of an object; *out is new text in the ranges' arena. */
static onq_code take_key(reader *r, oq_str *out, onq_error *err) {
    skip_space(r);
    if (r->p == r->end || *r->p != '"')
        return fail_here(r, err, "a key in quotes was expected");
    const char *end = text_end(r->p, r->end);
    if (end == NULL)
        return fail_here(r, err, "a text without end");
    json_t *key = NULL;
    OQ_TRY(oq_json_parse(r->where, (oq_str){r->p, (size_t)(end - r->p)}, &key, err));
    *out =
        oq_str_copy(&r->ranges->arena, (oq_str){json_string_value(key), json_string_length(key)});
    json_decref(key);
    OQ_TRY_ALLOC(out->p != NULL, err);
    r->p = end;
    if (!take(r, ':'))
        return fail_here(r, err, "a colon was expected");
    return ONQ_OK;
}

/* ---- reading: one tensor ---- */

static bool read_element(oq_num *x, size_t i, const json_t *j) {
    if (x->type == OQ_INT64) {
        if (!json_is_integer(j))
            return false;
        x->i[i] = json_integer_value(j);
        return true;
    }
    double v = 0;
    if (!oq_json_real(j, &v))
        return false;
    x->v[i] = x->type == OQ_FLOAT16 ? v : (double)(float)v;
    return true;
}

static onq_code bad_attr(onq_error *err, const char *key, const char *what) {
    return oq_fail(err, ONQ_E_INVALID, "attribute '%s' %s", key, what);
}

/* {"data": ..., "dtype": "float32", "CLS": "numpy.array"} */
static onq_code read_array(oq_arena *a, const char *key, bool real, const json_t *j, oq_num *x,
                           onq_error *err) {
    const char *cls = json_string_value(json_object_get(j, "CLS"));
    const char *dtype = json_string_value(json_object_get(j, "dtype"));
    const json_t *data = json_object_get(j, "data");
    if (cls == NULL || strcmp(cls, "numpy.array") != 0 || dtype == NULL || data == NULL)
        return bad_attr(err, key, "is not a numpy.array with data and dtype");
    oq_dtype type = strcmp(dtype, "float32") == 0   ? OQ_FLOAT
                    : strcmp(dtype, "float16") == 0 ? OQ_FLOAT16
                    : strcmp(dtype, "int64") == 0   ? OQ_INT64
                                                    : OQ_UNDEFINED;
    if (type == OQ_UNDEFINED || (real && type == OQ_INT64))
        return oq_fail(err, ONQ_E_INVALID, "attribute '%s' has dtype %s, expected %s", key, dtype,
                       real ? "float32 or float16" : "float32, float16 or int64");
    const bool scalar = !json_is_array(data);
    const size_t n = scalar ? 1 : json_array_size(data);
    if (n == 0)
        return bad_attr(err, key, "is empty");
    OQ_TRY_ALLOC(oq_num_make(a, x, type, scalar, n), err);
    for (size_t i = 0; i < n; i++)
        if (!read_element(x, i, scalar ? data : json_array_get(data, i)))
            return bad_attr(err, key, "holds something that is not a number");
    return ONQ_OK;
}

static onq_code read_attr(oq_arena *a, const char *key, bool real, const json_t *j, oq_num *x,
                          onq_error *err) {
    if (json_is_object(j))
        return read_array(a, key, real, j, x, err);
    const bool whole = !real && json_is_integer(j);
    OQ_TRY_ALLOC(oq_num_make(a, x, whole ? OQ_INT64 : OQ_FLOAT, true, 1), err);
    x->bare = !real;
    if (!read_element(x, 0, j))
        return bad_attr(err, key, "is not a number");
    return ONQ_OK;
}

static onq_code read_range(oq_arena *a, const json_t *j, oq_range *r, onq_error *err) {
    const struct {
        const char *key;
        oq_num *x;
        bool real;
    } attrs[] = {{"lowest", &r->lowest, true},
                 {"highest", &r->highest, true},
                 {"avg", &r->avg, true},
                 {"std", &r->std, true},
                 {"hist_edges", &r->hist_edges, true},
                 {"hist", &r->hist, false},
                 {"bins", &r->bins, false}};
    const char *key;
    json_t *value;
    if (!json_is_object(j))
        return oq_fail(err, ONQ_E_INVALID, "is not an object");
    json_object_foreach((json_t *)(uintptr_t)j, key, value) {
        size_t k = 0;
        if (strcmp(key, "CLS") == 0)
            continue;
        while (k < OQ_COUNT(attrs) && strcmp(key, attrs[k].key) != 0)
            k++;
        if (k == OQ_COUNT(attrs))
            return bad_attr(err, key, "is not known");
        OQ_TRY(read_attr(a, key, attrs[k].real, value, attrs[k].x, err));
        r->lowest_was_bare |= attrs[k].x == &r->lowest && !json_is_object(value);
    }
    return ONQ_OK;
}

static onq_code read_tensor(reader *r, oq_str name, oq_str text, onq_error *err) {
    oq_buf quoted;
    json_t *j = NULL;
    oq_buf_init(&quoted, r->alloc);
    onq_code rc = oq_json_quote_words(&quoted, text, err);
    if (rc == ONQ_OK)
        rc = oq_json_parse("JSON", (oq_str){quoted.p, quoted.n}, &j, err);
    if (rc == ONQ_OK && oq_ranges_find(r->ranges, name) != NULL)
        rc = oq_fail(err, ONQ_E_INVALID, "occurs twice");
    if (rc == ONQ_OK) {
        oq_range *t = oq_ranges_add(r->ranges, name);
        rc = t == NULL ? oq_fail_nomem(err) : read_range(&r->ranges->arena, j, t, err);
    }
    json_decref(j);
    oq_buf_release(&quoted);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "%s: tensor '%.*s'", r->where, OQ_STR(name));
    return ONQ_OK;
}

/* ---- reading: the whole ---- */

/* Calls fn(r, key, value text) for each member of the object at the cursor. */
static onq_code each_member(reader *r, onq_code (*fn)(reader *, oq_str, oq_str, onq_error *),
                            onq_error *err) {
    if (!take(r, '{'))
        return fail_here(r, err, "an object was expected");
    if (take(r, '}'))
        return ONQ_OK;
    do {
        oq_str key, value;
        OQ_TRY(take_key(r, &key, err));
        OQ_TRY(take_value(r, &value, err));
        OQ_TRY(fn(r, key, value, err));
    } while (take(r, ','));
    if (!take(r, '}'))
        return fail_here(r, err, "a comma or the end of the object was expected");
    return ONQ_OK;
}

#define OQ_CAL_METHOD(NAME, text, symbol) ", " text
static const char method_names[] =
#include "calibrate/method/method.def"
    ;
#undef OQ_CAL_METHOD

/* {"CLS": "CalibrationMethod", "value": "CalibrationMethod.MinMax"} */
static onq_code read_method(reader *r, oq_str text, onq_error *err) {
    json_t *j = NULL;
    OQ_TRY(oq_json_parse(r->where, text, &j, err));
    const char *value = json_string_value(json_is_object(j) ? json_object_get(j, "value") : j);
    const char *dot = value != NULL ? strrchr(value, '.') : NULL;
    const oq_str name = oq_str_of(dot != NULL ? dot + 1 : value);
    r->has_method = value != NULL && oq_cal_method_find(name, &r->ranges->method);
    onq_code rc = ONQ_OK;
    if (!r->has_method)
        rc = oq_fail(err, ONQ_E_INVALID,
                     "%s: calibration_method is '%s', expected CalibrationMethod. and one of %s",
                     r->where, value != NULL ? value : "?", method_names + 2);
    json_decref(j);
    return rc;
}

static onq_code read_member(reader *r, oq_str key, oq_str text, onq_error *err) {
    if (oq_str_is(key, "data")) {
        reader inner = *r;
        inner.p = text.p;
        inner.end = text.p + text.n;
        r->has_data = true;
        return each_member(&inner, read_tensor, err);
    }
    if (oq_str_is(key, "calibration_method"))
        return read_method(r, text, err);
    if (oq_str_is(key, "smooth_quant"))
        r->ranges->smooth_quant = oq_str_is(text, "true");
    return ONQ_OK;
}

onq_code oq_ranges_parse(oq_ranges *out, const onq_allocator *alloc, const char *where, oq_str text,
                         onq_error *err) {
    reader r = {.ranges = out,
                .alloc = alloc,
                .where = where,
                .begin = text.p,
                .p = text.p,
                .end = text.p + text.n};
    oq_ranges_init(out, alloc, OQ_CAL_MINMAX);
    onq_code rc = each_member(&r, read_member, err);
    skip_space(&r);
    if (rc == ONQ_OK && r.p != r.end)
        rc = fail_here(&r, err, "there is more text after its end");
    if (rc == ONQ_OK && !r.has_data)
        rc = oq_fail(err, ONQ_E_INVALID, "%s: not a calibration cache: it has no 'data'", where);
    if (rc == ONQ_OK && !r.has_method)
        rc = oq_fail(err, ONQ_E_INVALID,
                     "%s: not a calibration cache: it has no 'calibration_method'", where);
    if (rc != ONQ_OK)
        oq_ranges_release(out);
    return rc;
}

onq_code oq_ranges_load(oq_ranges *r, const onq_env *env, const char *path, onq_error *err) {
    oq_file file;
    OQ_TRY(oq_file_open(&file, &env->alloc, path, err));
    onq_code rc = oq_ranges_parse(r, &env->alloc, path,
                                  (oq_str){(const char *)file.p, (size_t)file.size}, err);
    if (rc == ONQ_OK) {
        rc = oq_file_check(&file, err);
        if (rc != ONQ_OK)
            oq_ranges_release(r);
    }
    oq_file_close(&file);
    return rc;
}
