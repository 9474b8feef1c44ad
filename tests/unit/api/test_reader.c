/* test_reader.c — commands whose samples come from a reader: what they make, what stops them, and a
 * reader that uses the library itself. Skipped where there is no runtime. */
#include "build_model.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static onq_error err;

#define N     6
#define WIDTH 8

typedef struct world {
    oq_buf bytes; /* the model */
    float values[N][WIDTH];
    int at, stop_at;  /* the next sample; where it returns -1 */
    int dtype, width; /* of what it gives */
    int n_again;
    bool nested; /* runs another job in each call */
    onq_tensor tensor;
    int64_t dims[2];
    onq_env *env;
} world;

static void make_world(world *w) {
    bm b;
    *w = (world){.stop_at = -1, .dtype = OQ_FLOAT, .width = WIDTH};
    for (int i = 0; i < N * WIDTH; i++)
        w->values[i / WIDTH][i % WIDTH] = (float)((i * 29) % 17) / 4.0f - 2.0f;
    oq_buf_init(&w->bytes, oq_alloc_default());
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "1,8");
    bm_weight(&b, "w", "8,8", 3);
    bm_node(&b, "MatMul", "mm", "x w", "t", "");
    bm_node(&b, "Relu", "relu", "t", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "1,8");
    assert_ok(oq_model_encode(b.m, &w->bytes, &err), err);
    bm_end(&b);
    w->env = onq_env_new(NULL);
}

static void end_world(world *w) {
    oq_buf_release(&w->bytes);
    onq_env_free(w->env);
}

static void inspect_model(const world *w) {
    onq_env *env = onq_env_new(NULL);
    onq_options *o = NULL;
    onq_result *r = NULL;
    onq_error e = ONQ_ERROR_INIT;
    const onq_bytes given = {.data = w->bytes.p, .size = w->bytes.n};
    assert_ok(onq_options_new(env, "inspect", &o, &e), e);
    assert_ok(onq_options_set_bytes(o, "operand", &given, &e), e);
    assert_ok(onq_run(env, o, &r, &e), e);
    onq_result_free(r);
    onq_options_free(o);
    onq_env_free(env);
}

static int next(void *ctx, const onq_tensor **inputs, size_t *n) {
    world *w = ctx;
    if (w->nested)
        inspect_model(w);
    if (w->at == w->stop_at)
        return -1;
    if (w->at == N)
        return 0;
    w->dims[0] = 1;
    w->dims[1] = w->width;
    w->tensor = (onq_tensor){.name = "x",
                             .dtype = w->dtype,
                             .rank = 2,
                             .dims = w->dims,
                             .data = w->values[w->at++],
                             .size = (size_t)w->width * 4};
    *inputs = &w->tensor;
    *n = 1;
    return 1;
}

static int again(void *ctx) {
    world *w = ctx;
    w->n_again++;
    w->at = 0;
    return 0;
}

static onq_options *options(world *w, const char *command, bool rewinds) {
    onq_options *o = NULL;
    const onq_bytes given = {.data = w->bytes.p, .size = w->bytes.n};
    const onq_reader r = {.next = next, .ctx = w, .rewind = rewinds ? again : NULL};
    w->at = 0;
    assert_ok(onq_options_new(w->env, command, &o, &err), err);
    assert_ok(onq_options_set_bytes(o, onq_options_find(o, "input") != NULL ? "input" : "operand",
                                    &given, &err),
              err);
    assert_ok(onq_options_set_reader(o, &r, &err), err);
    return o;
}

/* The runtime is there, or the test is skipped. */
static onq_code run(world *w, const onq_options *o, onq_result **r) {
    const onq_code rc = onq_run(w->env, o, r, &err);
    if (rc == ONQ_E_RUNTIME)
        skip();
    return rc;
}

/* Every method gives the same model, whether the reader can begin again or its samples are kept. */
static void quantizing(void **state) {
    (void)state;
    static const char *const methods[] = {"minmax", "entropy", "percentile"};
    world w;
    make_world(&w);
    for (size_t m = 0; m < OQ_COUNT(methods); m++) {
        onq_result *r[3] = {NULL};
        for (int way = 0; way < 3; way++) {
            onq_options *o = options(&w, "static", way > 0);
            assert_ok(onq_options_want_bytes(o, "output", NULL, &err), err);
            assert_ok(onq_options_set(o, "calibration_method", methods[m], &err), err);
            if (way == 2)
                assert_ok(onq_options_set(o, "memory", "0", &err), err);
            assert_ok(run(&w, o, &r[way]), err);
            const onq_file *a = onq_result_file(r[0], 0), *b = onq_result_file(r[way], 0);
            assert_int_equal(a->size, b->size);
            assert_memory_equal(a->data, b->data, a->size);
            onq_options_free(o);
        }
        for (int way = 0; way < 3; way++)
            onq_result_free(r[way]);
    }
    assert_true(w.n_again > 0);
    end_world(&w);
}

static void every_command(void **state) {
    (void)state;
    static const char *const commands[] = {"run", "bench", "calibrate", "static", "dynamic"};
    world w;
    make_world(&w);
    w.nested = true;
    for (size_t i = 0; i < OQ_COUNT(commands); i++) {
        onq_options *o = options(&w, commands[i], i % 2 == 0);
        onq_result *r = NULL;
        if (strcmp(commands[i], "run") != 0 && onq_options_find(o, "output") != NULL)
            assert_ok(onq_options_want_bytes(o, "output", NULL, &err), err);
        if (onq_options_find(o, "runs") != NULL)
            assert_ok(onq_options_set(o, "runs", "3", &err), err);
        assert_ok(run(&w, o, &r), err);
        onq_result_free(r);
        onq_options_free(o);
    }
    onq_options *o = NULL;
    onq_result *r = NULL;
    const onq_bytes given = {.data = w.bytes.p, .size = w.bytes.n};
    const onq_reader reader = {.next = next, .ctx = &w};
    w.at = 0;
    assert_ok(onq_options_new(w.env, "debug", &o, &err), err);
    assert_ok(onq_options_set_bytes(o, "float_model", &given, &err), err);
    assert_ok(onq_options_set_bytes(o, "qdq_model", &given, &err), err);
    assert_ok(onq_options_set_reader(o, &reader, &err), err);
    assert_ok(run(&w, o, &r), err);
    onq_result_free(r);
    onq_options_free(o);
    end_world(&w);
}

static void stopping(void **state) {
    (void)state;
    world w;
    make_world(&w);
    const struct {
        int stop_at, dtype, width;
        onq_code code;
        const char *says;
    } cases[] = {
        {0, OQ_FLOAT, WIDTH, ONQ_E_CANCEL, "sample '0': the reader stopped the job"},
        {4, OQ_FLOAT, WIDTH, ONQ_E_CANCEL, "sample '4': the reader stopped the job"},
        {-1, OQ_INT32, WIDTH, ONQ_E_INVALID, "sample '0': input 'x': got INT32[1,8]"},
        {-1, OQ_FLOAT, WIDTH - 1, ONQ_E_INVALID, "expected FLOAT[1,8]"},
    };
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        onq_options *o = options(&w, "static", false);
        onq_result *r = NULL;
        assert_ok(onq_options_want_bytes(o, "output", NULL, &err), err);
        w.stop_at = cases[i].stop_at;
        w.dtype = cases[i].dtype;
        w.width = cases[i].width;
        assert_fails(run(&w, o, &r), cases[i].code, err, cases[i].says);
        assert_null(r);
        onq_options_free(o);
    }
    end_world(&w);
}

/* Fewer samples than were promised, and none at all. */
static void ending_early(void **state) {
    (void)state;
    world w;
    make_world(&w);
    for (int at = N; at >= 2; at -= N - 2) {
        onq_options *o = options(&w, "static", false);
        onq_result *r = NULL;
        const onq_reader reader = {.next = next, .ctx = &w, .count = N + 3};
        w.at = at == N ? N : 0;
        assert_ok(onq_options_want_bytes(o, "output", NULL, &err), err);
        assert_ok(onq_options_set_reader(o, &reader, &err), err);
        const onq_code rc = run(&w, o, &r);
        assert_int_not_equal(rc, ONQ_OK);
        assert_non_null(strstr(err.text, at == N ? "no samples" : "ended after 6 of 9 samples"));
        assert_null(r);
        onq_options_free(o);
    }
    end_world(&w);
}

/* Samples that are named after it take the reader's place. */
static void replaced(void **state) {
    (void)state;
    world w;
    make_world(&w);
    onq_options *o = options(&w, "static", false);
    onq_result *r = NULL;
    assert_ok(onq_options_want_bytes(o, "output", NULL, &err), err);
    assert_ok(onq_options_set(o, "data", "/no/such/folder", &err), err);
    assert_fails(run(&w, o, &r), ONQ_E_MISSING, err, "/no/such/folder");
    assert_int_equal(w.at, 0);
    onq_options_free(o);
    end_world(&w);
}

/* A command without samples has no place for a reader. */
static void not_everywhere(void **state) {
    (void)state;
    world w;
    make_world(&w);
    onq_options *o = NULL;
    const onq_reader reader = {.next = next, .ctx = &w};
    assert_ok(onq_options_new(w.env, "inspect", &o, &err), err);
    assert_fails(onq_options_set_reader(o, &reader, &err), ONQ_E_OPTION, err, "data");
    onq_options_free(o);
    end_world(&w);
}

/* A sanitizer's build finds the runtime where set-up puts it for the usual one. */
static void find_runtime(void) {
    const char *root = getenv("ONQ_ROOT");
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/build/runtime", root != NULL ? root : ".");
    if (n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0)
        setenv("ONQ_ONNXRUNTIME", path, 0);
}

int main(void) {
    find_runtime();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantizing), cmocka_unit_test(every_command),
        cmocka_unit_test(stopping),   cmocka_unit_test(ending_early),
        cmocka_unit_test(replaced),   cmocka_unit_test(not_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
