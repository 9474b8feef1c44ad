/*
 * fuzz_json.c — JSON of any kind: read, or refused with a place inside the text; and what was read
 * is written and read again to the same. Literals of Python likewise.
 */
#include "base/text/json.h"
#include "base/text/literal.h"

#include <assert.h>
#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Writes a tree with oq_jw; as deep as the parser lets it be. */
static void write_tree(oq_jw *w, const json_t *v) {
    const char *key;
    json_t *item;
    size_t i;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        oq_jw_begin_object(w, NULL);
        for (void *it = json_object_iter((json_t *)(uintptr_t)v); it != NULL;
             it = json_object_iter_next((json_t *)(uintptr_t)v, it)) {
            key = json_object_iter_key(it);
            oq_jw_key(w, oq_str_of(key));
            write_tree(w, json_object_iter_value(it));
        }
        oq_jw_end_object(w);
        break;
    case JSON_ARRAY:
        oq_jw_begin_array(w, NULL);
        json_array_foreach(v, i, item) {
            write_tree(w, item);
        }
        oq_jw_end_array(w);
        break;
    case JSON_STRING:
        oq_jw_str(w, NULL, (oq_str){json_string_value(v), json_string_length(v)});
        break;
    case JSON_INTEGER:
        oq_jw_int(w, NULL, json_integer_value(v));
        break;
    case JSON_REAL:
        oq_jw_real(w, NULL, json_real_value(v));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        oq_jw_bool(w, NULL, json_is_true(v));
        break;
    case JSON_NULL:
        oq_jw_null(w, NULL);
        break;
    }
}

/* Equal as numbers too: a whole double is written without a point and read back as an integer. */
static bool same(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    if (json_typeof(a) != json_typeof(b))
        return false;
    if (json_is_array(a)) {
        if (json_array_size(a) != json_array_size(b))
            return false;
        for (size_t i = 0; i < json_array_size(a); i++)
            if (!same(json_array_get(a, i), json_array_get(b, i)))
                return false;
        return true;
    }
    if (json_is_object(a)) {
        if (json_object_size(a) != json_object_size(b))
            return false;
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)(uintptr_t)a, key, value) {
            const json_t *other = json_object_get(b, key);
            if (other == NULL || !same(value, other))
                return false;
        }
        return true;
    }
    return json_equal(a, b);
}

/* What JSON says, a literal says too; other bytes are read or refused. */
static void read_literal(oq_str text, const json_t *root) {
    oq_buf out;
    json_t *again = NULL;
    onq_error err = ONQ_ERROR_INIT;
    oq_buf_init(&out, oq_alloc_default());
    onq_code rc = oq_literal_json(&out, text, &err);
    assert(rc == ONQ_OK || err.text[0] != '\0');
    if (rc == ONQ_OK)
        rc = oq_json_parse("literal", (oq_str){out.p, out.n}, &again, &err);
    assert(rc != ONQ_OK || root == NULL || same(root, again));
    json_decref(again);
    oq_buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const oq_str text = {(const char *)data, size};
    onq_error err = ONQ_ERROR_INIT;
    json_t *root = NULL;
    const onq_code rc = oq_json_parse("fuzz", text, &root, &err);
    assert((rc == ONQ_OK) == (root != NULL));
    read_literal(text, root);
    if (rc != ONQ_OK) {
        assert(err.code == rc && err.text[0] != '\0');
        assert(err.offset >= -1 && err.offset <= (int64_t)size);
        return 0;
    }
    for (int pretty = 0; pretty < 2; pretty++) {
        oq_buf b;
        oq_jw w;
        oq_buf_init(&b, oq_alloc_default());
        oq_jw_init(&w, &b, pretty == 1);
        write_tree(&w, root);
        assert(!b.failed && w.depth == 0);
        json_t *again = NULL;
        const onq_code back = oq_json_parse("again", (oq_str){b.p, b.n}, &again, &err);
        assert(back == ONQ_OK);
        assert(same(root, again));
        json_decref(again);
        oq_buf_release(&b);
    }
    json_decref(root);
    return 0;
}
