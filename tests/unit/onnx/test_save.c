/*
 * test_save.c — where the writer puts the bytes of tensors, from wherever they come, and what it
 * refuses before a byte is written.
 */
#include "build_model.h"
#include "flaky_io.h"
#include "onnx/attr.h"
#include "onnx/graph.h"
#include "onnx/tensor.h"
#include "scratch.h"
#include "testing.h"

#include <errno.h>
#include <unistd.h>

enum { MB = 1 << 20 };

static onq_error err;

static int teardown(void **state) {
    flaky_io_disarm();
    return scratch_teardown(state);
}

/* ---- tensors of every origin ---- */

static onq_code make_bytes(const oq_producer *self, uint8_t *out, onq_error *e) {
    if (self->ctx != NULL)
        return oq_fail(e, ONQ_E_INVALID, "%s", (const char *)self->ctx);
    for (uint64_t i = 0; i < self->size; i++)
        out[i] = (uint8_t)(i * 40503u >> 7);
    return ONQ_OK;
}

/* An initializer of `p->size` bytes that are made when they are written. */
static oq_tensor *add_made(bm *b, const char *name, const oq_producer *p) {
    const int64_t dims[] = {(int64_t)p->size};
    oq_tensor *t = oq_tensor_new(b->a, bm_str(b, name), OQ_UINT8, dims, 1);
    assert_non_null(t);
    oq_tensor_set_producer(t, p);
    assert_true(oq_graph_add_init(b->a, b->g, t));
    return t;
}

/* A Constant with a tensor of its own. */
static void add_constant(bm *b, const char *out, oq_tensor *t) {
    oq_node *n = bm_node(b, "Constant", out, "", out, "");
    assert_true(oq_attr_set_tensor(b->a, n, OQ_S("value"), t));
}

static oq_tensor *find(const oq_model *m, const char *name) {
    for (size_t i = 0; i < m->proto->graph->initializer.n; i++)
        if (oq_str_is(m->proto->graph->initializer.v[i]->name, name))
            return m->proto->graph->initializer.v[i];
    fail_msg("no '%s'", name);
    return NULL;
}

static void assert_made(oq_model *m, const char *name, uint64_t n) {
    oq_span raw;
    assert_ok(oq_model_data(m, find(m, name), &raw, &err), err);
    assert_int_equal(raw.n, n);
    for (uint64_t i = 0; i < n; i++)
        if (raw.p[i] != (uint8_t)(i * 40503u >> 7))
            fail_msg("'%s': byte %llu", name, (unsigned long long)i);
}

static oq_model *reopen(onq_env *env, const char *path) {
    oq_model *m = NULL;
    assert_ok(oq_model_open(env, path, NULL, &m, &err), err);
    return m;
}

/* ---- names ---- */

/* A file for each tensor: its name made safe, and a number where that is taken. */
static void names_of_files(void **state) {
    scratch *s = *state;
    static const struct {
        const char *name, *file;
    } rows[] = {
        {"a b/c", "a_b_c"},     {"Z_9-v1.2@{`[", "Z_9-v1.2____"},
        {"", "tensor"},         {"..", "_."},
        {"x:y", "x_y"},         {"x;y", "x_y_1"},
        {"m.onnx", "m.onnx_1"},
    };
    bm b;
    bm_begin(&b, NULL, 13);
    for (size_t i = 0; i < OQ_COUNT(rows); i++)
        bm_weight(&b, rows[i].name, "3", (unsigned)i);
    bm_weight(&b, "", "3", 99);
    const oq_save_options each = {.external = OQ_EXTERNAL_EACH, .threshold = 1};
    assert_ok(oq_model_save(b.m, scratch_path(s, "m.onnx"), &each, &err), err);
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        oq_span raw;
        assert_ok(oq_model_data(b.m, b.g->initializer.v[i], &raw, &err), err);
        if (!file_holds(scratch_path(s, rows[i].file), raw.p, raw.n))
            fail_msg("'%s' is not in '%s'", rows[i].name, rows[i].file);
    }
    assert_int_equal(access(scratch_path(s, "tensor_1"), F_OK), 0);

    const oq_save_options nameless = {.external = OQ_EXTERNAL_ONE, .location = ""};
    assert_fails(oq_model_save(b.m, scratch_path(s, "n.onnx"), &nameless, &err), ONQ_E_CONFIG, err,
                 "external data location ''");
    bm_end(&b);
}

/* ---- what goes out ---- */

static size_t n_external(const oq_model *m) {
    size_t n = 0;
    for (size_t i = 0; i < m->proto->graph->initializer.n; i++)
        n += oq_tensor_is_external(m->proto->graph->initializer.v[i]);
    return n;
}

/* Tensors of attributes go out only when that is asked for, texts and tensors of no elements
 * never, nor, as in onnx, typed values. */
static void what_goes_out(void **state) {
    scratch *s = *state;
    static const int64_t five[] = {5}, values[] = {1, -2, 3, -4, 5};
    bm b;
    bm_begin(&b, NULL, 13);
    oq_tensor *typed = oq_tensor_new(b.a, OQ_S("typed"), OQ_INT64, five, 1);
    assert_ok(oq_tensor_set_typed_i(b.a, typed, values, 5, &err), err);
    assert_true(oq_graph_add_init(b.a, b.g, typed));
    bm_i64(&b, "raw", "5", values);
    bm_raw(&b, "none", OQ_INT64, "0", NULL, 0);
    oq_tensor *text = oq_tensor_new(b.a, OQ_S("text"), OQ_STRING, five, 1);
    for (int i = 0; i < 5; i++)
        assert_true(OQ_PUSH(b.a, &text->string_data, OQ_S("word")));
    assert_true(oq_graph_add_init(b.a, b.g, text));
    add_constant(&b, "c", bm_tensor(&b, "inner", OQ_INT64, "5", values, sizeof values));
    for (int way = 0; way < 8; way++) {
        const oq_save_options save = {
            .external = (way & 1) != 0 ? OQ_EXTERNAL_EACH : OQ_EXTERNAL_ONE,
            .attributes = (way & 2) != 0,
            .threshold = (way & 4) != 0 ? sizeof values + 1 : 1,
        };
        const char *path = scratch_path(s, "m.onnx");
        assert_ok(oq_model_save(b.m, path, &save, &err), err);
        oq_model *m = reopen(b.env, path);
        const oq_tensor *inner = m->proto->graph->node.v[0]->attribute.v[0]->t;
        const bool out = save.threshold == 1;
        assert_int_equal(n_external(m), out ? 1 : 0);
        assert_int_equal(oq_tensor_is_external(inner), out && save.attributes);
        oq_span raw;
        assert_ok(oq_model_data(m, find(m, "typed"), &raw, &err), err);
        assert_int_equal(raw.n, sizeof values);
        assert_memory_equal(raw.p, values, sizeof values);
        assert_int_equal(find(m, "text")->string_data.n, 5);
        oq_model_free(m);
    }
    assert_false(oq_tensor_is_external(find(b.m, "raw"))); /* saving leaves the model as it was */
    bm_end(&b);
}

/* ---- where bytes come from ---- */

static int count_progress(void *ctx, const char *what, uint64_t done, uint64_t total) {
    (void)what;
    (void)done;
    (void)total;
    ++*(int *)ctx;
    return 0;
}

/* Producers, files and memory, each by its own way, and the same bytes at the end of each. */
static void from_everywhere(void **state) {
    scratch *s = *state;
    static const oq_producer large = {.size = 9 * MB, .make = make_bytes};
    static const oq_producer middle = {.size = 300000, .make = make_bytes};
    int told = 0;
    bm b;
    bm_begin(&b, NULL, 13);
    onq_env_set_progress(b.env, count_progress, &told);
    add_made(&b, "large", &large);
    add_made(&b, "middle", &middle);
    const oq_save_options each = {.external = OQ_EXTERNAL_EACH, .threshold = 1};
    const oq_save_options one = {.external = OQ_EXTERNAL_ONE, .threshold = 1};
    const char *apart = scratch_path(s, "apart.onnx"), *whole = scratch_path(s, "whole.onnx");
    assert_ok(oq_model_save(b.m, apart, &each, &err), err);
    assert_true(told > 0);

    /* Untouched, and yet another file: two files of data become one model. */
    oq_model *m = reopen(b.env, apart);
    told = 0;
    assert_ok(oq_model_save(m, whole, NULL, &err), err);
    assert_true(told > 0);
    oq_model_free(m);
    m = reopen(b.env, whole);
    assert_int_equal(n_external(m), 0);
    assert_made(m, "large", large.size);
    assert_ok(oq_model_save(m, scratch_path(s, "one.onnx"), &one, &err), err);

    /* Touched: from the model's file, and from memory of the caller's. */
    static uint8_t mine[300000];
    assert_ok(make_bytes(&middle, mine, &err), err);
    oq_model_touch(m);
    oq_tensor_set_view(find(m, "middle"), mine, sizeof mine);
    assert_ok(oq_model_save(m, scratch_path(s, "touched.onnx"), NULL, &err), err);
    oq_model_free(m);

    static const char *const paths[] = {"one.onnx", "touched.onnx"};
    for (size_t i = 0; i < OQ_COUNT(paths); i++) {
        m = reopen(b.env, scratch_path(s, paths[i]));
        assert_made(m, "large", large.size);
        assert_made(m, "middle", middle.size);
        oq_model_free(m);
    }
    bm_end(&b);
}

/* A file for each tensor, kept in memory. */
static void each_in_memory(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 13);
    bm_weight(&b, "v", "3", 1);
    bm_weight(&b, "w", "3", 2);
    oq_files files;
    oq_files_init(&files, oq_alloc_default());
    const oq_save_options each = {.external = OQ_EXTERNAL_EACH, .threshold = 1, .memory = &files};
    assert_ok(oq_model_save(b.m, "m.onnx", &each, &err), err);
    assert_int_equal(files.all.n, 3);
    assert_string_equal(files.all.v[0].path, "m.onnx");
    assert_string_equal(files.all.v[1].path, "v");
    assert_string_equal(files.all.v[2].path, "w");
    oq_files_release(&files);
    bm_end(&b);
}

/* ---- failures ---- */

static void failures(void **state) {
    scratch *s = *state;
    static const oq_producer good = {.size = 100000, .make = make_bytes};
    static const oq_producer bad = {
        .size = 100000, .make = make_bytes, .ctx = (void *)(uintptr_t) "made no bytes"};
    const char *path = scratch_path(s, "m.onnx");
    bm b;
    bm_begin(&b, NULL, 13);
    oq_tensor *t = add_made(&b, "t", &good);
    flaky_io_arm(IO_WRITE, 0, ENOSPC, true);
    assert_fails(oq_model_save(b.m, path, NULL, &err), ONQ_E_WRITE, err, "free some space");
    assert_true(flaky_io_disarm());

    oq_buf out;
    oq_buf_init(&out, oq_alloc_default());
    oq_tensor_set_producer(t, &bad);
    assert_fails(oq_model_save(b.m, path, NULL, &err), ONQ_E_INVALID, err, "made no bytes");
    assert_fails(oq_model_encode(b.m, &out, &err), ONQ_E_INVALID, err, "made no bytes");
    oq_buf_release(&out);

    /* Data that changes while the model is held: what was written from it is worth nothing. */
    const oq_save_options each = {.external = OQ_EXTERNAL_EACH, .threshold = 1};
    oq_tensor_set_producer(t, &good);
    assert_ok(oq_model_save(b.m, path, &each, &err), err);
    oq_model *m = reopen(b.env, path);
    assert_made(m, "t", good.size);
    scratch_file(s, "t", NULL, good.size + 1);
    assert_fails(oq_model_save(m, scratch_path(s, "n.onnx"), NULL, &err), ONQ_E_READ, err, "/t");
    assert_int_equal(access(scratch_path(s, "n.onnx"), F_OK), -1);
    oq_model_free(m);
    bm_end(&b);
}

/* More than 2 GB: the weights go to a file, and what cannot is refused before a byte is made. */
static void past_two_gigabytes(void **state) {
    scratch *s = *state;
    static const oq_producer huge = {
        .size = 3000000000, .make = make_bytes, .ctx = (void *)(uintptr_t) "was asked for"};
    bm b;
    bm_begin(&b, NULL, 13);
    oq_tensor *t = add_made(&b, "t", &huge);
    const oq_save_options stay = {.external = OQ_EXTERNAL_ONE, .threshold = UINT64_MAX};
    const char *path = scratch_path(s, "m.onnx");
    assert_fails(oq_model_save(b.m, path, &stay, &err), ONQ_E_LIMIT, err, "3.00 GB");
    scratch_dir(s, "m.onnx.data");
    assert_fails(oq_model_save(b.m, path, NULL, &err), ONQ_E_WRITE, err, "m.onnx.data");
    b.g->initializer.n = 0;
    add_constant(&b, "c", t);
    assert_fails(oq_model_save(b.m, path, NULL, &err), ONQ_E_LIMIT, err, "move attribute tensors");
    bm_end(&b);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(names_of_files), TEST(what_goes_out), TEST(from_everywhere),
        TEST(each_in_memory), TEST(failures),      TEST(past_two_gigabytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
