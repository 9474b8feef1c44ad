/*
 * test_ort.c — the real runtime, where it is installed (skipped elsewhere), and the fake one beside
 * it: the same models, observers and failures through the same interface.
 */
#include "engine/ort.h"

#include "build_model.h"
#include "fake_engine.h"
#include "no_threads.h"
#include "onnx/attr.h"
#include "scratch.h"
#include "testing.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static onq_error err;

/* The engine under test: the fake, or the runtime. */
typedef struct world {
    bm b;
    fake_engine fake;
    oq_engine *engine;
} world;

static int setup_fake(void **state) {
    world *w = test_calloc(1, sizeof *w);
    bm_begin(&w->b, NULL, 13);
    fake_engine_init(&w->fake, w->b.env);
    w->engine = &w->fake.base;
    *state = w;
    return 0;
}

static int setup_real(void **state) {
    world *w = test_calloc(1, sizeof *w);
    bm_begin(&w->b, NULL, 13);
    *state = w;
    (void)oq_ort_open(w->b.env, NULL, &w->engine, &err); /* NULL: not installed */
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    oq_engine_close(w->engine);
    bm_end(&w->b);
    test_free(w);
    return 0;
}

static world *need_engine(void **state) {
    world *w = *state;
    if (w->engine == NULL) {
        printf("skipped: %s\n", err.text);
        skip();
    }
    return w;
}

/* x -> relu -> y; y + k -> z (output); -z -> q (output) */
static void build(bm *b) {
    static const float k[] = {0.5f};
    bm_input(b, "x", OQ_FLOAT, "n");
    bm_f32(b, "k", "1", k);
    bm_node(b, "Relu", "relu", "x", "y", "");
    bm_node(b, "Add", "add", "y k", "z", "");
    bm_node(b, "Neg", "neg", "z", "q", "");
    bm_output(b, "z", OQ_FLOAT, "n");
    bm_output(b, "q", OQ_FLOAT, "n");
}

static oq_datum vector(const float *v, const int64_t *n) {
    return (oq_datum){.kind = OQ_DATUM_TENSOR,
                      .dtype = OQ_FLOAT,
                      .rank = 1,
                      .dims = n,
                      .count = (uint64_t)*n,
                      .data = v,
                      .size_bytes = (uint64_t)*n * sizeof *v};
}

typedef struct seen {
    float least[8], most[8];
    int calls[8];
    long fail_at; /* call, from 1 */
    long n;
} seen;

static onq_code look(void *ctx, size_t i, const oq_datum *t, onq_error *e) {
    seen *s = ctx;
    if (++s->n == s->fail_at)
        return oq_fail(e, ONQ_E_CANCEL, "the observer has seen enough");
    assert_int_equal(t->kind, OQ_DATUM_TENSOR);
    assert_int_equal(t->dtype, OQ_FLOAT);
    assert_int_equal((uintptr_t)t->data % sizeof(float), 0);
    const float *p = t->data;
    s->least[i] = INFINITY;
    s->most[i] = -INFINITY;
    for (uint64_t k = 0; k < t->count; k++) {
        s->least[i] = fminf(s->least[i], p[k]);
        s->most[i] = fmaxf(s->most[i], p[k]);
    }
    s->calls[i]++;
    return ONQ_OK;
}

static const float numbers[4] = {-1, 2, -3, 4};
static const int64_t four = 4;

/* One of several models that are opened at once. */
typedef struct at_once {
    bm b;
    oq_engine *engine;
    pthread_t thread;
    pthread_barrier_t *start;
    onq_code code;
    onq_error error;
    seen got;
} at_once;

static void *open_and_look(void *p) {
    at_once *o = p;
    const oq_str names[] = {OQ_S("y")};
    const oq_observer ob = {names, 1, look, &o->got};
    const oq_session_options so = {.model = o->b.m, .n_threads = 1, .observer = &ob};
    oq_session *s = NULL;
    const oq_datum x = vector(numbers, &four);
    pthread_barrier_wait(o->start);
    o->code = oq_session_open(o->engine, &so, &s, &o->error);
    if (o->code == ONQ_OK)
        o->code = oq_session_run(s, &x, 1, NULL, &o->error);
    oq_session_close(s);
    return NULL;
}

/* The first of all: the runtime is told of the domain of the observers once in a process. */
static void test_opened_at_once(void **state) {
    enum { N = 8 };
    world *w = need_engine(state);
    at_once *all = test_calloc(N, sizeof *all);
    pthread_barrier_t start;
    assert_int_equal(pthread_barrier_init(&start, NULL, N), 0);
    for (int i = 0; i < N; i++) {
        all[i] = (at_once){.engine = w->engine, .start = &start};
        bm_begin(&all[i].b, NULL, 13);
        build(&all[i].b);
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_create(&all[i].thread, NULL, open_and_look, &all[i]), 0);
    for (int i = 0; i < N; i++)
        pthread_join(all[i].thread, NULL);
    for (int i = 0; i < N; i++) {
        assert_ok(all[i].code, all[i].error);
        assert_int_equal(all[i].got.calls[0], 1);
        assert_true(all[i].got.most[0] == 4);
        bm_end(&all[i].b);
    }
    pthread_barrier_destroy(&start);
    test_free(all);
}

/* Starts engines and ends them; gives the message of one that did not start, or NULL. */
static void *start_and_end(void *p) {
    onq_error *e = p;
    onq_env *env = onq_env_new(NULL);
    onq_code rc = env != NULL ? ONQ_OK : oq_fail_nomem(e);
    for (int i = 0; i < 2000 && rc == ONQ_OK; i++) {
        oq_engine *engine = NULL;
        rc = oq_ort_open(env, NULL, &engine, e);
        oq_engine_close(engine);
    }
    onq_env_free(env);
    return rc == ONQ_OK ? NULL : e->text;
}

/* The runtime's environment goes with the last engine and comes again with the next. */
static void test_started_and_ended_at_once(void **state) {
    enum { N = 3 };
    pthread_t threads[N];
    onq_error errors[N];
    const char *said = NULL;
    world *w = need_engine(state);
    oq_engine_close(w->engine);
    w->engine = NULL;
    for (int i = 0; i < N; i++) {
        errors[i] = (onq_error)ONQ_ERROR_INIT;
        assert_int_equal(pthread_create(&threads[i], NULL, start_and_end, &errors[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        void *text = NULL;
        pthread_join(threads[i], &text);
        said = text != NULL ? text : said;
    }
    if (said != NULL)
        fail_msg("%s", said);
}

static void test_run(void **state) {
    world *w = need_engine(state);
    build(&w->b);
    const oq_session_options o = {.model = w->b.m, .n_threads = 1};
    oq_session *s = NULL;
    assert_ok(oq_session_open(w->engine, &o, &s, &err), err);
    assert_int_equal(s->inputs.n, 1);
    assert_int_equal(s->outputs.n, 2);
    const oq_datum x = vector(numbers, &four);
    oq_outputs out;
    for (int i = 0; i < 3; i++) {
        assert_ok(oq_session_run(s, &x, 1, &out, &err), err);
        assert_int_equal(out.n, 2);
        static const float z[4] = {0.5f, 2.5f, 0.5f, 4.5f};
        assert_memory_equal(out.v[0].data, z, sizeof z);
        assert_int_equal(out.v[0].dims[0], 4);
        assert_true(((const float *)out.v[1].data)[3] == -4.5f);
    }
    assert_ok(oq_session_run(s, &x, 1, NULL, &err), err);
    oq_session_close(s);
}

static void test_observers(void **state) {
    world *w = need_engine(state);
    build(&w->b);
    const oq_str names[] = {OQ_S("q"), OQ_S("x"), OQ_S("y"), OQ_S("z"), OQ_S("k")};
    static const float wanted[5][2] = {{-4.5f, -0.5f}, {-3, 4}, {0, 4}, {0.5f, 4.5f}, {0.5f, 0.5f}};
    static const oq_opt_level levels[] = {OQ_OPT_NONE, OQ_OPT_ALL};
    for (size_t level = 0; level < 2; level++) {
        seen got = {0};
        const oq_observer ob = {names, 5, look, &got};
        const oq_session_options o = {
            .model = w->b.m, .n_threads = 1, .level = levels[level], .observer = &ob};
        oq_session *s = NULL;
        oq_outputs out;
        const oq_datum x = vector(numbers, &four);
        assert_ok(oq_session_open(w->engine, &o, &s, &err), err);
        for (int run = 1; run <= 3; run++) {
            assert_ok(oq_session_run(s, &x, 1, &out, &err), err);
            for (size_t i = 0; i < 5; i++) {
                assert_int_equal(got.calls[i], run);
                assert_true(got.least[i] == wanted[i][0] && got.most[i] == wanted[i][1]);
            }
            assert_true(((const float *)out.v[0].data)[3] == 4.5f);
        }
        oq_session_close(s);
    }
}

/* The runtime reads large weights where the file has them. Names of four lengths bring them to four
 * remainders. */
static void test_weights_in_files_are_aligned(void **state) {
    world *w = need_engine(state);
    float k[2048];
    for (int i = 0; i < 2048; i++)
        k[i] = (float)i;
    const oq_str names[] = {OQ_S("k"), OQ_S("ka"), OQ_S("kab"), OQ_S("kabc")};
    static const char *const sums[] = {"x", "a", "b", "c", "y"};
    bm_input(&w->b, "x", OQ_FLOAT, "2048");
    for (int i = 0; i < 4; i++) {
        char both[16];
        bm_f32(&w->b, names[i].p, "2048", k);
        (void)snprintf(both, sizeof both, "%s %s", sums[i], names[i].p);
        bm_node(&w->b, "Add", sums[i + 1], both, sums[i + 1], "");
    }
    bm_output(&w->b, "y", OQ_FLOAT, "2048");
    scratch folder;
    scratch_init(&folder);
    const char *path = scratch_path(&folder, "m.onnx");
    oq_model *m = NULL;
    assert_ok(oq_model_save(w->b.m, path, NULL, &err), err);
    assert_ok(oq_model_open(w->b.env, path, NULL, &m, &err), err);
    static const int64_t n = 2048;
    seen got = {0};
    const oq_observer ob = {names, 4, look, &got};
    const oq_session_options o = {.model = m, .n_threads = 1, .observer = &ob};
    oq_session *s = NULL;
    const oq_datum x = vector(k, &n);
    assert_ok(oq_session_open(w->engine, &o, &s, &err), err);
    assert_ok(oq_session_run(s, &x, 1, NULL, &err), err);
    for (size_t i = 0; i < 4; i++)
        assert_true(got.calls[i] == 1 && got.least[i] == 0 && got.most[i] == 2047);
    oq_session_close(s);
    oq_model_free(m);
    scratch_remove(&folder);
}

/* The error of an observer comes back as it is, and the next run works. */
static void test_observer_that_fails(void **state) {
    world *w = need_engine(state);
    build(&w->b);
    const oq_str name = OQ_S("y");
    seen got = {.fail_at = 2};
    const oq_observer ob = {&name, 1, look, &got};
    const oq_session_options o = {.model = w->b.m, .n_threads = 1, .observer = &ob};
    oq_session *s = NULL;
    const oq_datum x = vector(numbers, &four);
    assert_ok(oq_session_open(w->engine, &o, &s, &err), err);
    assert_ok(oq_session_run(s, &x, 1, NULL, &err), err);
    assert_fails(oq_session_run(s, &x, 1, NULL, &err), ONQ_E_CANCEL, err, "seen enough");
    assert_ok(oq_session_run(s, &x, 1, NULL, &err), err);
    assert_int_equal(got.calls[0], 2);
    oq_session_close(s);
}

/* Small tensors are shown together: the same values, and the error of an observer as before. */
static void test_groups(void **state) {
    world *w = need_engine(state);
    build(&w->b);
    const oq_str names[] = {OQ_S("q"), OQ_S("x"), OQ_S("y"), OQ_S("z"), OQ_S("k")};
    static const float wanted[5][2] = {{-4.5f, -0.5f}, {-3, 4}, {0, 4}, {0.5f, 4.5f}, {0.5f, 0.5f}};
    static const uint64_t bytes[] = {16, 16, 16, 16, 4};
    seen got = {0};
    const oq_observer ob = {names, 5, look, &got};
    const oq_session_options o = {
        .model = w->b.m, .n_threads = 1, .observer = &ob, .observed_bytes = bytes};
    oq_session *s = NULL;
    oq_outputs out;
    const oq_datum x = vector(numbers, &four);
    assert_ok(oq_session_open(w->engine, &o, &s, &err), err);
    for (long fail_at = 5; fail_at > 0; fail_at--) {
        got = (seen){0};
        assert_ok(oq_session_run(s, &x, 1, &out, &err), err);
        for (size_t i = 0; i < 5; i++) {
            assert_int_equal(got.calls[i], 1);
            assert_true(got.least[i] == wanted[i][0] && got.most[i] == wanted[i][1]);
        }
        assert_true(((const float *)out.v[1].data)[3] == -4.5f);
        got = (seen){.fail_at = fail_at};
        assert_fails(oq_session_run(s, &x, 1, NULL, &err), ONQ_E_CANCEL, err, "seen enough");
        assert_int_equal(got.n, fail_at); /* nothing is shown after it */
    }
    oq_session_close(s);
}

enum { CHAIN = 300, OWN_EVERY = 10 };

typedef struct in_order {
    bool seen[CHAIN];
    const uint64_t *bytes;
} in_order;

/* Every tensor of its own is shown when the groups that were complete before it have been. */
static onq_code look_at_order(void *ctx, size_t at, const oq_datum *t, onq_error *e) {
    in_order *o = ctx;
    size_t waiting = 0;
    (void)t;
    (void)e;
    o->seen[at] = true;
    for (size_t i = 0; o->bytes[at] == 0 && i < at; i++)
        waiting += o->seen[i] ? 0 : 1;
    assert_true(waiting <= 64);
    return ONQ_OK;
}

/* Groups run as soon as they can, so that what they read does not live until the end. */
static void test_order_of_groups(void **state) {
    world *w = need_engine(state);
    bm *b = &w->b;
    char text[CHAIN][8];
    oq_str names[CHAIN];
    uint64_t bytes[CHAIN];
    bm_input(b, "x", OQ_FLOAT, "4");
    for (int i = 0; i < CHAIN; i++) {
        snprintf(text[i], sizeof text[i], "t%d", i);
        names[i] = oq_str_of(text[i]);
        bytes[i] = i % OWN_EVERY == 0 ? 0 : 16;
        bm_node(b, "Neg", "", i == 0 ? "x" : text[i - 1], text[i], "");
    }
    bm_output(b, text[CHAIN - 1], OQ_FLOAT, "4");
    in_order order = {.bytes = bytes};
    const oq_observer ob = {names, CHAIN, look_at_order, &order};
    const oq_session_options o = {
        .model = b->m, .n_threads = 1, .observer = &ob, .observed_bytes = bytes};
    oq_session *s = NULL;
    const oq_datum x = vector(numbers, &four);
    assert_ok(oq_session_open(w->engine, &o, &s, &err), err);
    assert_ok(oq_session_run(s, &x, 1, NULL, &err), err);
    for (int i = 0; i < CHAIN; i++)
        assert_true(order.seen[i]);
    oq_session_close(s);
}

/* A session whose other threads are held back computes the same bits, before and after they are
 * woken; so does one that shares it. */
static void test_alone(void **state) {
    world *w = need_engine(state);
    enum { N = 1 << 16 };
    static float x[N], want[N];
    static const int64_t n = N;
    oq_outputs out;
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 977) / 31.0f - 9.0f;
    build(&w->b);
    const oq_datum in = vector(x, &n);
    for (int alone = 0; alone < 2; alone++) {
        oq_session *s = NULL, *other = NULL;
        const oq_session_options o = {
            .model = w->b.m, .n_threads = 4, .level = OQ_OPT_NONE, .alone = alone == 1};
        assert_ok(oq_session_open(w->engine, &o, &s, &err), err);
        assert_ok(oq_session_run(s, &in, 1, &out, &err), err);
        assert_int_equal(out.v[1].size_bytes, sizeof want);
        if (alone == 0)
            memcpy(want, out.v[1].data, sizeof want);
        assert_memory_equal(out.v[1].data, want, sizeof want);
        assert_ok(oq_session_share(s, NULL, &other, &err), err);
        oq_session_wake(s);
        oq_session_wake(s); /* once more does nothing */
        assert_ok(oq_session_run(other, &in, 1, &out, &err), err);
        assert_memory_equal(out.v[1].data, want, sizeof want);
        oq_session_close(other);
        assert_ok(oq_session_run(s, &in, 1, &out, &err), err);
        assert_memory_equal(out.v[1].data, want, sizeof want);
        oq_session_close(s);
    }
}

/* A Conv with float weights between QuantizeLinear and DequantizeLinear: optimised, the runtime
 * would quantize its weights with one scale, which leaves nothing of the second. */
static void test_pairs_that_are_kept(void **state) {
    world *w = need_engine(state);
    static const float scale[] = {0.02f}, weights[] = {100, 0.3f};
    static const uint8_t zero[] = {128};
    static const float x[4] = {-1, 0.5f, 2, 1.25f};
    static const int64_t dims[4] = {1, 1, 2, 2};
    oq_datum in = vector(x, &four);
    bm *b = &w->b;
    in.rank = 4;
    in.dims = dims;
    bm_input(b, "x", OQ_FLOAT, "1,1,2,2");
    bm_f32(b, "s", "", scale);
    bm_raw(b, "z", OQ_UINT8, "", zero, sizeof zero);
    bm_f32(b, "w", "2,1,1,1", weights);
    bm_node(b, "QuantizeLinear", "q", "x s z", "xq", "");
    bm_node(b, "DequantizeLinear", "dq", "xq s z", "xd", "");
    bm_node(b, "Conv", "conv", "xd w", "c", "");
    bm_node(b, "QuantizeLinear", "qc", "c s z", "cq", "");
    bm_node(b, "DequantizeLinear", "dqc", "cq s z", "y", "");
    bm_output(b, "y", OQ_FLOAT, "1,2,2,2");
    const oq_session_options o = {
        .model = b->m, .n_threads = 1, .level = OQ_OPT_ALL, .keeps_pairs = true};
    oq_session *s = NULL;
    oq_outputs out;
    assert_ok(oq_session_open(w->engine, &o, &s, &err), err);
    assert_ok(oq_session_run(s, &in, 1, &out, &err), err);
    for (int i = 0; i < 4; i++)
        assert_float_equal(((const float *)out.v[0].data)[4 + i], 0.3f * x[i], 0.0101f);
    oq_session_close(s);
}

static void test_refusals(void **state) {
    world *w = need_engine(state);
    build(&w->b);
    const oq_str name = OQ_S("nothing");
    const oq_observer ob = {&name, 1, look, NULL};
    oq_session_options o = {.model = w->b.m, .n_threads = 1, .observer = &ob};
    oq_session *s = NULL;
    assert_fails(oq_session_open(w->engine, &o, &s, &err), ONQ_E_INVALID, err, "nothing");
    o.observer = NULL;
    bm_node(&w->b, "NoSuchOperator", "bad", "z", "bad_out", "");
    assert_fails(oq_session_open(w->engine, &o, &s, &err), ONQ_E_RUNTIME, err, "NoSuchOperator");
    assert_null(s);
}

static void test_fake_fails_when_told(void **state) {
    world *w = *state;
    build(&w->b);
    w->fake.fail_at_run = 2;
    const oq_session_options o = {.model = w->b.m};
    oq_session *s = NULL;
    const oq_datum x = vector(numbers, &four);
    assert_ok(oq_session_open(w->engine, &o, &s, &err), err);
    assert_ok(oq_session_run(s, &x, 1, NULL, &err), err);
    assert_fails(oq_session_run(s, &x, 1, NULL, &err), ONQ_E_RUNTIME, err, "told to fail");
    oq_session_close(s);
    assert_int_equal(w->fake.n_open, 0);
}

/* ---- only the runtime ---- */

static void test_wrong_input_names_the_node(void **state) {
    world *w = need_engine(state);
    bm_input(&w->b, "x", OQ_FLOAT, "n");
    bm_input(&w->b, "y", OQ_FLOAT, "m");
    bm_node(&w->b, "Add", "the_sum", "x y", "z", "");
    bm_output(&w->b, "z", OQ_FLOAT, "k");
    const oq_session_options o = {.model = w->b.m, .n_threads = 1};
    oq_session *s = NULL;
    static const int64_t three = 3;
    const oq_datum in[2] = {vector(numbers, &four), vector(numbers, &three)};
    assert_ok(oq_session_open(w->engine, &o, &s, &err), err);
    assert_fails(oq_session_run(s, in, 2, NULL, &err), ONQ_E_RUNTIME, err, "node 'the_sum' (Add)");
    assert_null(strstr(err.text, "/onnxruntime_src/"));
    oq_session_close(s);
}

/* What the machine lacks is not held against the model: it is another code than a refusal's. */
static void test_thread_that_does_not_start(void **state) {
    world *w = need_engine(state);
    build(&w->b);
    const oq_session_options o = {.model = w->b.m, .n_threads = 2};
    oq_session *s = NULL;
    no_threads(true);
    const onq_code rc = oq_session_open(w->engine, &o, &s, &err);
    no_threads(false);
    assert_fails(rc, ONQ_E_LIMIT, err, "pthread_create");
    assert_false(oq_engine_calls_invalid(&err));
}

static void test_what_the_runtime_calls_wrong(void **state) {
    static const struct {
        const char *text;
        bool wrong;
    } rows[] = {
        {"the model was refused: This is an invalid model. In Node, (\"n\", Conv, \"\", -1) : x",
         true},
        {"the model was refused: This is an invalid model. In Node, (\"n\", Foo, \"\", -1) : () -> "
         "() "
         ", Error No Op registered for Foo with domain_version of 13",
         true},
        {"the model was refused: This is an invalid model. In Node, (\"n\", Foo, "
         "\"com.microsoft\", -1) "
         ": () -> () , Error No Op registered for Foo with domain_version of 1",
         false},
        {"Node (mm) Op (MatMul) [ShapeInferenceError] Incompatible dimensions", true},
        {"the model was refused: INVALID_GRAPH : Unsupported attribute value type of 5", true},
        {"Could not find an implementation for Conv(11) node with name 'conv'", false},
    };
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        (void)oq_fail(&err, ONQ_E_RUNTIME, "%s", rows[i].text);
        assert_int_equal(oq_engine_calls_invalid(&err), rows[i].wrong);
    }
    (void)oq_fail(&err, ONQ_E_NOMEM, "This is an invalid model");
    assert_false(oq_engine_calls_invalid(&err));
}

/* A tensor in the body of a loop is seen once a turn; one on a branch not taken is not seen. */
static void test_observers_in_subgraphs(void **state) {
    world *w = need_engine(state);
    bm *b = &w->b;
    static const int64_t turns = 3;
    static const uint8_t yes = 1, no = 0;
    bm_input(b, "x", OQ_FLOAT, "2");
    bm_i64(b, "turns", "", &turns);
    bm_raw(b, "yes", OQ_BOOL, "", &yes, 1);
    bm_raw(b, "no", OQ_BOOL, "", &no, 1);
    oq_node *loop = bm_node(b, "Loop", "loop", "turns yes x", "y", "");
    oq_graph *around = bm_enter(b, loop, "body");
    bm_input(b, "i", OQ_INT64, "");
    bm_input(b, "go", OQ_BOOL, "");
    bm_input(b, "v", OQ_FLOAT, "2");
    bm_node(b, "Add", "grow", "v x", "grown", "");
    bm_node(b, "Identity", "keep", "grown", "v2", "");
    bm_node(b, "Identity", "on", "go", "go2", "");
    bm_output(b, "go2", OQ_BOOL, "");
    bm_output(b, "v2", OQ_FLOAT, "2");
    bm_leave(b, around);
    oq_node *branch = bm_node(b, "If", "if", "no", "z", "");
    around = bm_enter(b, branch, "then_branch");
    bm_node(b, "Neg", "minus", "y", "never", "");
    bm_output(b, "never", OQ_FLOAT, "2");
    bm_leave(b, around);
    around = bm_enter(b, branch, "else_branch");
    bm_node(b, "Abs", "plus", "y", "always", "");
    bm_output(b, "always", OQ_FLOAT, "2");
    bm_leave(b, around);
    bm_output(b, "z", OQ_FLOAT, "2");
    const oq_str names[] = {OQ_S("grown"), OQ_S("never"), OQ_S("always"), OQ_S("y"), OQ_S("x")};
    static const uint64_t bytes[] = {8, 8, 8, 8, 8};
    for (int grouped = 0; grouped < 2; grouped++) {
        seen got = {0};
        const oq_observer ob = {names, 5, look, &got};
        const oq_session_options o = {.model = b->m,
                                      .n_threads = 1,
                                      .observer = &ob,
                                      .observed_bytes = grouped == 1 ? bytes : NULL};
        oq_session *s = NULL;
        oq_outputs out;
        static const int64_t two = 2;
        const oq_datum x = vector(numbers, &two);
        assert_ok(oq_session_open(w->engine, &o, &s, &err), err);
        assert_ok(oq_session_run(s, &x, 1, &out, &err), err);
        static const int calls[] = {3, 0, 1, 1, 1};
        for (size_t i = 0; i < 5; i++)
            assert_int_equal(got.calls[i], calls[i]);
        assert_true(got.most[0] == 8 && got.least[0] == -4); /* x + 3 x */
        assert_true(((const float *)out.v[0].data)[0] == 4);
        oq_session_close(s);
    }
}

static void test_library_paths(void **state) {
    (void)state;
    onq_env *env = onq_env_new(NULL);
    oq_engine *e = NULL;
    assert_fails(oq_ort_open(env, "/nowhere/lib.so", &e, &err), ONQ_E_RUNTIME, err,
                 "--onnxruntime");
    assert_null(e);
    assert_fails(oq_ort_open(env, "/", &e, &err), ONQ_E_RUNTIME, err, "no libonnxruntime.so");
    assert_fails(oq_ort_open(env, "libc.so.6", &e, &err), ONQ_E_RUNTIME, err, "OrtGetApiBase");
    onq_env_free(env);
}

static onq_code work(bm *b, void *ctx, onq_error *e) {
    oq_engine *engine = NULL;
    oq_session *s = NULL;
    (void)ctx;
    onq_code rc = oq_ort_open(b->env, NULL, &engine, e);
    if (rc == ONQ_OK) {
        const oq_str names[] = {OQ_S("y"), OQ_S("z"), OQ_S("q")};
        static const uint64_t bytes[] = {0, 16, 16};
        seen got = {0};
        const oq_observer ob = {names, 3, look, &got};
        const oq_session_options o = {
            .model = b->m, .n_threads = 1, .observer = &ob, .observed_bytes = bytes};
        rc = oq_session_open(engine, &o, &s, e);
        const oq_datum x = vector(numbers, &four);
        oq_outputs out;
        if (rc == ONQ_OK)
            rc = oq_session_run(s, &x, 1, &out, e);
        oq_session_close(s);
    }
    oq_engine_close(engine);
    return rc;
}

static void test_oom(void **state) {
    (void)need_engine(state);
    assert_true(bm_sweep(13, build, work, NULL) > 10);
}

int main(void) {
#define BOTH(test)                                                                                 \
    cmocka_unit_test_setup_teardown(test, setup_fake, teardown),                                   \
        cmocka_unit_test_setup_teardown(test, setup_real, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_opened_at_once, setup_real, teardown),
        cmocka_unit_test_setup_teardown(test_started_and_ended_at_once, setup_real, teardown),
        BOTH(test_run),
        BOTH(test_observers),
        cmocka_unit_test_setup_teardown(test_weights_in_files_are_aligned, setup_real, teardown),
        BOTH(test_observer_that_fails),
        BOTH(test_groups),
        cmocka_unit_test_setup_teardown(test_order_of_groups, setup_real, teardown),
        cmocka_unit_test_setup_teardown(test_pairs_that_are_kept, setup_real, teardown),
        BOTH(test_alone),
        BOTH(test_refusals),
        cmocka_unit_test_setup_teardown(test_fake_fails_when_told, setup_fake, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_input_names_the_node, setup_real, teardown),
        cmocka_unit_test_setup_teardown(test_thread_that_does_not_start, setup_real, teardown),
        cmocka_unit_test(test_what_the_runtime_calls_wrong),
        cmocka_unit_test_setup_teardown(test_observers_in_subgraphs, setup_real, teardown),
        cmocka_unit_test(test_library_paths),
        cmocka_unit_test_setup_teardown(test_oom, setup_real, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
