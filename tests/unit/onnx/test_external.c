/*
 * test_external.c — which bytes of which file a tensor's external data is; base/test_file_dir.c has
 * the ways out of a folder.
 */
#include "build_model.h"
#include "onnx/tensor.h"
#include "scratch.h"
#include "testing.h"

static onq_error err;

/* One tensor of four bytes whose external_data is keys and values in turn. */
static void with_entries(bm *b, const char *const *words, size_t n) {
    bm_begin(b, NULL, 13);
    oq_tensor *t = bm_raw(b, "t", OQ_UINT8, "4", "----", 4);
    oq_tensor_clear_data(t);
    t->data_location = OQ_I32(OQ_LOCATION_EXTERNAL);
    for (size_t i = 0; i + 1 < n; i += 2) {
        oq_entry *e = OQ_NEW(b->a, oq_entry);
        assert_non_null(e);
        e->key = bm_str(b, words[i]);
        e->value = bm_str(b, words[i + 1]);
        assert_true(OQ_PUSH(b->a, &t->external_data, e));
    }
}

typedef struct caller {
    const char *location, *data; /* the one that it has */
} caller;

static int open_data(void *ctx, const char *location, const void **data, size_t *size) {
    const caller *c = ctx;
    if (strcmp(location, c->location) != 0)
        return 1;
    *data = c->data;
    *size = strlen(c->data);
    return 0;
}

/* What the tensor's bytes are, or why there are none. */
static onq_code read_tensor(bm *b, const oq_open_options *opts, char out[5]) {
    oq_buf bytes;
    oq_model *m = NULL;
    oq_span raw;
    oq_buf_init(&bytes, oq_alloc_default());
    assert_ok(oq_model_encode(b->m, &bytes, &err), err);
    onq_code rc = oq_model_open_memory(b->env, bytes.p, bytes.n, opts, &m, &err);
    if (rc == ONQ_OK)
        rc = oq_model_data(m, m->proto->graph->initializer.v[0], &raw, &err);
    if (rc == ONQ_OK) {
        assert_int_equal(raw.n, 4);
        memcpy(out, raw.p, 4);
        out[4] = '\0';
    }
    oq_model_free(m);
    oq_buf_release(&bytes);
    return rc;
}

#define WORDS(...) (const char *const[]){__VA_ARGS__}, OQ_COUNT(((const char *[]){__VA_ARGS__}))

static void ranges(void **state) {
    (void)state;
    const struct {
        const char *const *words;
        size_t n;
        const char *holds; /* or the part of a message */
        onq_code code;
    } rows[] = {
        {WORDS("location", "w"), "0123", ONQ_OK},
        {WORDS("location", "w", "offset", "3", "length", "4"), "3456", ONQ_OK},
        {WORDS("length", "4", "location", "w", "offset", "6"), "6789", ONQ_OK},
        {WORDS("location", "v", "offset", "1", "checksum", "x", "offset", "2", "location", "w"),
         "2345", ONQ_OK}, /* the last one counts, and what is not known does not */
        {WORDS("location", "w", "length", "9", "length", "4"), "0123", ONQ_OK},
        {WORDS("location", "w", "offset", "7"), "goes past the end of 'w' (10 bytes)",
         ONQ_E_INVALID},
        {WORDS("location", "w", "offset", "9223372036854775807"), "goes past the end",
         ONQ_E_INVALID},
        {WORDS("location", "w", "length", "5"), "has 5 bytes, but its shape and type need 4",
         ONQ_E_INVALID},
        {WORDS("location", "w", "offset", "-1"), "offset is '-1', not a number", ONQ_E_INVALID},
        {WORDS("location", "w", "length", "x"), "length is 'x', not a number", ONQ_E_INVALID},
        {WORDS("offset", "0"), "has no location", ONQ_E_INVALID},
        {WORDS("location", ""), "has no location", ONQ_E_INVALID},
        {WORDS("location", "v"), "external data 'v' of a model that has no folder", ONQ_E_PATH},
    };
    caller c = {"w", "0123456789"};
    const oq_open_options opts = {.open = {open_data, &c}};
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        char got[5] = "";
        bm b;
        with_entries(&b, rows[i].words, rows[i].n);
        if (rows[i].code == ONQ_OK) {
            assert_ok(read_tensor(&b, &opts, got), err);
            assert_string_equal(got, rows[i].holds);
        } else {
            assert_fails(read_tensor(&b, &opts, got), rows[i].code, err, rows[i].holds);
            assert_non_null(strstr(err.text, "tensor 't'"));
        }
        bm_end(&b);
    }
    /* A size with which the end is past what can be counted. */
    char got[5] = "";
    bm b;
    with_entries(&b, WORDS("location", "w", "offset", "100"));
    oq_tensor *t = b.g->initializer.v[0];
    t->data_type = OQ_I32(OQ_DOUBLE);
    t->dims.v[0] = INT64_MAX / 4;
    assert_fails(read_tensor(&b, &opts, got), ONQ_E_INVALID, err, "goes past the end");
    bm_end(&b);
}

/* What the caller does not have lies in the folder, or in the root that is allowed beside it. */
static void folders(void **state) {
    (void)state;
    scratch s;
    char got[5] = "";
    bm b;
    scratch_init(&s);
    scratch_dir(&s, "model");
    scratch_dir(&s, "root");
    scratch_file(&s, "model/in", "in--", 4);
    scratch_file(&s, "root/out", "out-", 4);
    scratch_link(&s, "model/link", "../root/out");
    caller c = {"w", "0123456789"};
    oq_open_options opts = {.open = {open_data, &c}, .base_dir = scratch_path(&s, "model")};
    with_entries(&b, WORDS("location", "in"));
    assert_ok(read_tensor(&b, &opts, got), err);
    assert_string_equal(got, "in--");
    bm_end(&b);

    with_entries(&b, WORDS("location", "link"));
    assert_fails(read_tensor(&b, &opts, got), ONQ_E_PATH, err, "leads out of the model's folder");
    opts.data_root = scratch_path(&s, "root");
    assert_ok(read_tensor(&b, &opts, got), err);
    assert_string_equal(got, "out-");
    opts.data_root = scratch_path(&s, "nothing");
    assert_fails(read_tensor(&b, &opts, got), ONQ_E_MISSING, err, "nothing");

    /* The same for a model that is a file. */
    const char *path = scratch_path(&s, "model/m.onnx");
    oq_model *m = NULL;
    oq_span raw;
    oq_buf bytes;
    oq_buf_init(&bytes, oq_alloc_default());
    assert_ok(oq_model_encode(b.m, &bytes, &err), err);
    scratch_file(&s, "model/m.onnx", bytes.p, bytes.n);
    assert_fails(oq_model_open(b.env, path, &opts, &m, &err), ONQ_E_MISSING, err, "nothing");
    opts.data_root = scratch_path(&s, "root");
    assert_ok(oq_model_open(b.env, path, &opts, &m, &err), err);
    assert_ok(oq_model_data(m, m->proto->graph->initializer.v[0], &raw, &err), err);
    assert_memory_equal(raw.p, "out-", 4);
    oq_model_free(m);
    oq_buf_release(&bytes);
    bm_end(&b);
    scratch_remove(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranges), cmocka_unit_test(folders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
