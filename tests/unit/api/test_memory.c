/* test_memory.c — models that come from memory and go to memory, and options item by item. */
#include "build_model.h"
#include "flaky_alloc.h"
#include "scratch.h"
#include "testing.h"

static onq_error err;

#define ROWS 64
#define COLS 16

static float weight[ROWS * COLS];

/* A MatMul by a weight that is worth quantizing. */
/* The bytes of a model file. */
static void make_model(oq_buf *bytes) {
    bm b;
    for (int i = 0; i < ROWS * COLS; i++)
        weight[i] = (float)((i * 37) % 101 - 50) / 25.0f;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "N,64");
    bm_f32(&b, "w", "64,16", weight);
    bm_node(&b, "MatMul", "mm", "x w", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "N,16");
    oq_buf_init(bytes, oq_alloc_default());
    assert_ok(oq_model_encode(b.m, bytes, &err), err);
    bm_end(&b);
}

static onq_options *options(onq_env *env, const char *command) {
    onq_options *o = NULL;
    assert_ok(onq_options_new(env, command, &o, &err), err);
    if (onq_options_find(o, "no_verify") != NULL)
        assert_ok(onq_options_set(o, "no_verify", "true", &err), err);
    return o;
}

static onq_result *run(onq_env *env, const onq_options *o) {
    onq_result *r = NULL;
    assert_ok(onq_run(env, o, &r, &err), err);
    return r;
}

/* The same bytes as through files. */
static void bytes_in_and_out(void **state) {
    (void)state;
    scratch s;
    oq_buf bytes;
    make_model(&bytes);
    scratch_init(&s);
    onq_env *env = onq_env_new(NULL);
    const char *out = scratch_path(&s, "out.onnx");
    const char *in = scratch_file(&s, "in.onnx", bytes.p, bytes.n);

    onq_options *o = options(env, "dynamic");
    assert_ok(onq_options_set(o, "input", in, &err), err);
    assert_ok(onq_options_set(o, "output", out, &err), err);
    onq_result *r = run(env, o);
    assert_null(onq_result_file(r, 0));
    onq_result_free(r);

    const onq_bytes given = {.label = "net.onnx", .data = bytes.p, .size = bytes.n};
    assert_ok(onq_options_set_bytes(o, "input_model", &given, &err), err);
    assert_ok(onq_options_want_bytes(o, "output", NULL, &err), err);
    r = run(env, o);
    onq_options_free(o);
    onq_env_free(env); /* a result outlives both */
    const onq_file *f = onq_result_file(r, 0);
    assert_non_null(f);
    assert_null(onq_result_file(r, 1));
    assert_string_equal(f->option, "output");
    assert_string_equal(f->name, "output");
    assert_true(file_holds(out, f->data, f->size));
    assert_non_null(strstr(onq_result_json(r), "\"net.onnx\""));
    onq_result_free(r);
    oq_buf_release(&bytes);
    scratch_remove(&s);
}

/* ---- external data ---- */

typedef struct held {
    onq_result *r;
    int asked;
} held;

static int open_held(void *ctx, const char *location, const void **data, size_t *size) {
    held *h = ctx;
    const onq_file *f = onq_result_file(h->r, 1);
    h->asked++;
    if (strcmp(f->name, location) != 0)
        return -1;
    *data = f->data;
    *size = f->size;
    return 0;
}

/* External data goes out by name and comes in by a function or from a folder. */
static void external_data(void **state) {
    (void)state;
    scratch s;
    oq_buf bytes;
    make_model(&bytes);
    scratch_init(&s);
    onq_env *env = onq_env_new(NULL);
    onq_options *o = options(env, "preprocess");
    const onq_bytes given = {.data = bytes.p, .size = bytes.n};
    assert_ok(onq_options_set_bytes(o, "input", &given, &err), err);
    assert_ok(onq_options_want_bytes(o, "output", "big.onnx", &err), err);
    assert_ok(onq_options_set(o, "optimizer", "none", &err), err);
    assert_ok(onq_options_set(o, "save_as_external_data", "true", &err), err);
    assert_ok(onq_options_set(o, "all_tensors_to_one_file", "true", &err), err);
    held h = {.r = run(env, o)};
    const onq_file *model = onq_result_file(h.r, 0), *data = onq_result_file(h.r, 1);
    assert_non_null(data);
    assert_null(onq_result_file(h.r, 2));
    assert_string_equal(model->name, "big.onnx");
    assert_string_equal(data->option, "output");
    assert_true(data->size >= sizeof weight);

    /* By a function. */
    onq_bytes split = {.data = model->data, .size = model->size, .open = open_held, .ctx = &h};
    onq_options *d = options(env, "dynamic");
    assert_ok(onq_options_set_bytes(d, "input", &split, &err), err);
    assert_ok(onq_options_want_bytes(d, "output", NULL, &err), err);
    onq_result *by_call = run(env, d);
    assert_int_equal(h.asked, 1);

    /* From a folder. */
    scratch_file(&s, data->name, data->data, data->size);
    split.open = NULL;
    split.folder = s.dir;
    assert_ok(onq_options_set_bytes(d, "input", &split, &err), err);
    onq_result *by_folder = run(env, d);
    const onq_file *x = onq_result_file(by_call, 0), *y = onq_result_file(by_folder, 0);
    assert_int_equal(x->size, y->size);
    assert_memory_equal(x->data, y->data, x->size);
    onq_result_free(by_call);
    onq_result_free(by_folder);

    /* From nowhere. */
    onq_result *none = NULL;
    split.folder = NULL;
    assert_ok(onq_options_set_bytes(d, "input", &split, &err), err);
    assert_fails(onq_run(env, d, &none, &err), ONQ_E_PATH, err, "no folder");
    onq_options_free(d);
    onq_options_free(o);
    onq_result_free(h.r);
    oq_buf_release(&bytes);
    onq_env_free(env);
    scratch_remove(&s);
}

/* Operands, labels, what is refused. */
static void operands_and_refusals(void **state) {
    (void)state;
    oq_buf bytes;
    make_model(&bytes);
    onq_env *env = onq_env_new(NULL);
    onq_options *o = options(env, "diff");
    onq_bytes given = {.label = "a", .data = bytes.p, .size = bytes.n};
    assert_ok(onq_options_set_bytes(o, "operand", &given, &err), err);
    given.label = "b";
    given.size = bytes.n - 3;
    assert_ok(onq_options_set_bytes(o, "operand", &given, &err), err);
    onq_result *r = NULL;
    assert_fails(onq_run(env, o, &r, &err), ONQ_E_MALFORMED, err, "b: not an ONNX model");
    assert_int_equal(onq_options_is_set(o, "operand"), 1);
    assert_ok(onq_options_clear(o, "operand", &err), err);
    given.size = bytes.n;
    given.label = ""; /* as good as none */
    assert_ok(onq_options_set_bytes(o, "operand", &given, &err), err);
    assert_string_equal(onq_options_get(o, "operand", 0), "model");
    assert_ok(onq_options_set_bytes(o, "operand", &given, &err), err);
    r = run(env, o);
    assert_int_equal(onq_result_status(r), 0);
    onq_result_free(r);
    assert_fails(onq_options_set_bytes(o, "tolerance", &given, &err), ONQ_E_OPTION, err, "a file");
    assert_fails(onq_options_want_bytes(o, "outptu", NULL, &err), ONQ_E_OPTION, err, "unknown");
    onq_options_free(o);
    o = options(env, "run");
    assert_fails(onq_options_want_bytes(o, "output", NULL, &err), ONQ_E_OPTION, err, "folder");
    onq_options_free(o);
    oq_buf_release(&bytes);
    onq_env_free(env);
}

/* ---- options read back ---- */

static void values_are_read_back(void **state) {
    (void)state;
    onq_env *env = onq_env_new(NULL);
    onq_options *o = options(env, "static");
    assert_string_equal(onq_options_get(o, "per_channel", 0), "false");
    assert_null(onq_options_get(o, "per_channel", 1));
    assert_null(onq_options_get(o, "no_such_thing", 0));
    assert_null(onq_options_get(o, "limit", 0));
    assert_int_equal(onq_options_is_set(o, "per_channel"), 0);
    assert_ok(onq_options_set(o, "per-channel", "yes", &err), err);
    assert_ok(onq_options_set(o, "calib_percentile", "99.9", &err), err);
    assert_ok(onq_options_set(o, "memory", "2k", &err), err);
    assert_ok(onq_options_set(o, "limit", "12", &err), err);
    assert_ok(onq_options_set(o, "weight_type", "QuantType.QUInt8", &err), err);
    assert_string_equal(onq_options_get(o, "per_channel", 0), "true");
    assert_string_equal(onq_options_get(o, "calib_percentile", 0), "99.9");
    assert_string_equal(onq_options_get(o, "memory", 0), "2048");
    assert_string_equal(onq_options_get(o, "limit", 0), "12");
    assert_string_equal(onq_options_get(o, "weight_type", 0), "quint8");
    assert_ok(onq_options_clear(o, "weight_type", &err), err);
    assert_string_equal(onq_options_get(o, "weight_type", 0), "qint8");
    assert_int_equal(onq_options_is_set(o, "weight_type"), 0);
    assert_ok(onq_options_clear(o, "limit", &err), err);
    assert_null(onq_options_get(o, "limit", 0));

    static const char *const names[] = {"a,b", "@c", "re:d.", ""};
    for (size_t i = 0; i < OQ_COUNT(names); i++)
        assert_ok(onq_options_add(o, "nodes_to_exclude", names[i], &err), err);
    assert_string_equal(onq_options_get(o, "nodes_to_exclude", 0), "a\\,b");
    assert_string_equal(onq_options_get(o, "nodes_to_exclude", 1), "\\@c");
    assert_string_equal(onq_options_get(o, "nodes_to_exclude", 2), "re:^re:d\\.$");
    assert_string_equal(onq_options_get(o, "nodes_to_exclude", 3), "");
    assert_null(onq_options_get(o, "nodes_to_exclude", 4));
    assert_fails(onq_options_add(o, "limit", "3", &err), ONQ_E_OPTION, err, "not a list");
    assert_fails(onq_options_clear(o, "extra", &err), ONQ_E_OPTION, err, "new options");
    onq_options_free(o);
    onq_env_free(env);
}

/* Warnings of a run are in its result, and in the log too. */
static void count_log(void *ctx, onq_log_level level, const char *text) {
    (void)text;
    if (level == ONQ_LOG_WARNING || level == ONQ_LOG_ALERT)
        ++*(size_t *)ctx;
}

static void warnings_are_kept(void **state) {
    (void)state;
    oq_buf bytes;
    size_t logged = 0, kept = 0;
    make_model(&bytes);
    onq_env *env = onq_env_new(NULL);
    onq_env_set_log(env, count_log, &logged);
    onq_options *o = options(env, "dynamic");
    const onq_bytes given = {.data = bytes.p, .size = bytes.n};
    assert_ok(onq_options_set_bytes(o, "input", &given, &err), err);
    assert_ok(onq_options_want_bytes(o, "output", NULL, &err), err);
    assert_ok(onq_options_add(o, "nodes_to_exclude", "mm", &err), err);
    assert_ok(onq_options_add(o, "nodes_to_exclude", "nowhere", &err), err);
    onq_result *r = run(env, o);
    bool named = false;
    for (const char *text; (text = onq_result_warning(r, kept)) != NULL; kept++)
        named |= strstr(text, "nowhere") != NULL;
    assert_true(named);
    assert_true(kept >= 2 && kept == logged); /* and that nothing was quantized */
    onq_result_free(r);
    onq_options_free(o);
    oq_buf_release(&bytes);
    onq_env_free(env);
}

/* ---- every allocation in turn ---- */

static onq_code sweep(const onq_allocator *a, void *ctx, onq_error *e) {
    onq_env *env = onq_env_new(a);
    onq_options *o = NULL;
    onq_result *r = NULL;
    onq_code rc = ONQ_OK;
    if (env == NULL)
        return oq_fail_nomem(e);
    OQ_GO(onq_options_new(env, "dynamic", &o, e));
    OQ_GO(onq_options_set(o, "no_verify", "true", e));
    OQ_GO(onq_options_set_bytes(o, "input", ctx, e));
    OQ_GO(onq_options_want_bytes(o, "output", NULL, e));
    OQ_GO(onq_options_add(o, "nodes_to_exclude", "re:x", e));
    OQ_GO(onq_run(env, o, &r, e));
    assert_non_null(onq_result_file(r, 0));
    flaky_give(a, onq_result_file(r, 0)->data, onq_result_file(r, 0)->size);
done:
    onq_result_free(r);
    onq_options_free(o);
    onq_env_free(env);
    return rc;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    oq_buf bytes;
    make_model(&bytes);
    onq_bytes given = {.data = bytes.p, .size = bytes.n, .folder = "."};
    assert_true(flaky_sweep(sweep, &given) > 20);
    oq_buf_release(&bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_in_and_out),      cmocka_unit_test(external_data),
        cmocka_unit_test(operands_and_refusals), cmocka_unit_test(values_are_read_back),
        cmocka_unit_test(warnings_are_kept),     cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
