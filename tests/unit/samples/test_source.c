/*
 * test_source.c — order, limit, shares, seeking, reading ahead, errors in the middle, memory that
 * fails.
 */
#include "samples/source.h"

#include "build_model.h"
#include "callback_source.h"
#include "flaky_alloc.h"
#include "no_threads.h"
#include "scratch.h"
#include "testing.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static onq_error err;

/* A model with an input x: INT64[n] and a scratch folder of test_data_sets whose x is [K]. */
typedef struct world {
    bm b;
    scratch s;
    oq_source *src;
} world;

static void write_set(world *w, unsigned k, const void *bytes, size_t n) {
    char folder[64], file[96];
    snprintf(folder, sizeof folder, "test_data_set_%u", k);
    if (access(scratch_path(&w->s, folder), F_OK) != 0)
        scratch_dir(&w->s, folder);
    snprintf(file, sizeof file, "%s/input_0.pb", folder);
    scratch_file(&w->s, file, bytes, n);
}

/* TensorProto: dims [1], INT64, int64_data [k]. */
static void write_good_set(world *w, unsigned k) {
    assert_true(k < 128);
    const uint8_t bytes[] = {0x08, 1, 0x10, 7, 0x3a, 1, (uint8_t)k};
    write_set(w, k, bytes, sizeof bytes);
}

static int setup(void **state) {
    no_threads(false);
    world *w = test_calloc(1, sizeof *w);
    bm_begin(&w->b, NULL, 13);
    bm_input(&w->b, "x", OQ_INT64, "n");
    bm_output(&w->b, "x", OQ_INT64, "n");
    scratch_init(&w->s);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    oq_source_close(w->src);
    scratch_remove(&w->s);
    bm_end(&w->b);
    test_free(w);
    return 0;
}

static oq_source_options options(world *w) {
    return (oq_source_options){.spec = w->s.dir, .model = w->b.m};
}

static onq_code open_source(world *w, const oq_source_options *o) {
    oq_source_close(w->src);
    w->src = NULL;
    return oq_source_open(w->b.env, o, &w->src, &err);
}

/* The samples of a pass as their numbers, "0 1 2". */
static const char *pass(oq_source *src, char *text, size_t cap) {
    size_t n = 0;
    text[0] = '\0';
    for (;;) {
        const oq_sample *s = NULL;
        assert_ok(oq_source_next(src, &s, &err), err);
        if (s == NULL)
            return text;
        int64_t v = 0;
        assert_int_equal(s->n_inputs, 1);
        memcpy(&v, s->inputs[0].data, sizeof v);
        n += (size_t)snprintf(text + n, cap - n, n > 0 ? " %d" : "%d", (int)v);
    }
}

static void test_order_limit_and_shares(void **state) {
    world *w = *state;
    char text[200];
    for (unsigned k = 0; k < 13; k++)
        write_good_set(w, k);
    for (int threaded = 0; threaded < 2; threaded++) {
        oq_source_options o = options(w);
        no_threads(!threaded);
        assert_ok(open_source(w, &o), err);
        assert_int_equal(oq_source_count(w->src), 13);
        assert_string_equal(pass(w->src, text, sizeof text), "0 1 2 3 4 5 6 7 8 9 10 11 12");
        assert_string_equal(pass(w->src, text, sizeof text), "");
        assert_ok(oq_source_seek(w->src, 0, &err), err);
        assert_string_equal(pass(w->src, text, sizeof text), "0 1 2 3 4 5 6 7 8 9 10 11 12");
        assert_ok(oq_source_seek(w->src, 10, &err), err);
        assert_string_equal(pass(w->src, text, sizeof text), "10 11 12");
        assert_fails(oq_source_seek(w->src, 14, &err), ONQ_E_INVALID, err, "14");
        o.limit = 8;
        o.share = 1;
        o.n_shares = 3;
        assert_ok(open_source(w, &o), err);
        assert_int_equal(oq_source_count(w->src), 3);
        assert_string_equal(pass(w->src, text, sizeof text), "1 4 7");
        assert_ok(oq_source_seek(w->src, 1, &err), err);
        assert_string_equal(pass(w->src, text, sizeof text), "4 7");
        o.limit = 1; /* fewer samples than shares: nothing for this one */
        assert_ok(open_source(w, &o), err);
        assert_int_equal(oq_source_count(w->src), 0);
        assert_string_equal(pass(w->src, text, sizeof text), "");
    }
}

/* Only the samples of a list, whose limit and shares are counted among them. */
static void test_numbers(void **state) {
    static const uint64_t some[] = {1, 4, 5, 9}, beyond[] = {3, 13};
    world *w = *state;
    char text[200];
    for (unsigned k = 0; k < 13; k++)
        write_good_set(w, k);
    oq_source_options o = options(w);
    o.numbers = some;
    o.n_numbers = OQ_COUNT(some);
    assert_ok(open_source(w, &o), err);
    assert_int_equal(oq_source_count(w->src), 4);
    assert_string_equal(pass(w->src, text, sizeof text), "1 4 5 9");
    assert_ok(oq_source_seek(w->src, 2, &err), err);
    assert_string_equal(pass(w->src, text, sizeof text), "5 9");
    o.limit = 3;
    o.share = 1;
    o.n_shares = 2;
    assert_ok(open_source(w, &o), err);
    assert_string_equal(pass(w->src, text, sizeof text), "4");
    o = options(w);
    o.numbers = beyond;
    o.n_numbers = OQ_COUNT(beyond);
    assert_fails(open_source(w, &o), ONQ_E_INVALID, err, "no sample 13");
}

/* A set by itself is a sample. */
static void test_one_set(void **state) {
    world *w = *state;
    char text[200];
    write_good_set(w, 4);
    oq_source_options o = options(w);
    o.spec = scratch_path(&w->s, "test_data_set_4");
    assert_ok(open_source(w, &o), err);
    assert_int_equal(oq_source_count(w->src), 1);
    assert_string_equal(pass(w->src, text, sizeof text), "4");
    assert_ok(oq_source_seek(w->src, 0, &err), err);
    assert_string_equal(pass(w->src, text, sizeof text), "4");
}

/* A look at a sample takes nothing away. */
static void test_peek(void **state) {
    world *w = *state;
    char text[200];
    for (unsigned k = 0; k < 13; k++)
        write_good_set(w, k);
    write_set(w, 3, "\x08\x01\x10\x07\x3a", 5);
    for (int threaded = 0; threaded < 2; threaded++) {
        const oq_source_options o = options(w);
        no_threads(!threaded);
        assert_ok(open_source(w, &o), err);
        for (uint64_t k = 4; k < 6; k++) {
            const oq_sample *s = oq_source_peek(w->src, k);
            assert_non_null(s);
            assert_int_equal(s->number, k);
        }
        assert_ok(oq_source_seek(w->src, 5, &err), err);
        assert_string_equal(pass(w->src, text, sizeof text), "5 6 7 8 9 10 11 12");
        assert_null(oq_source_peek(w->src, 13));
        assert_null(oq_source_peek(w->src, 14));
        assert_null(oq_source_peek(w->src, 3)); /* cannot be read: next says why */
        assert_ok(oq_source_seek(w->src, 3, &err), err);
        const oq_sample *s = NULL;
        assert_fails(oq_source_next(w->src, &s, &err), ONQ_E_MALFORMED, err, "test_data_set_3");
        assert_string_equal(pass(w->src, text, sizeof text), "4 5 6 7 8 9 10 11 12");
    }
}

static void test_closed_in_the_middle(void **state) {
    world *w = *state;
    for (unsigned k = 0; k < 20; k++)
        write_good_set(w, k);
    for (unsigned taken = 0; taken < 5; taken++) {
        const oq_source_options o = options(w);
        assert_ok(open_source(w, &o), err);
        const oq_sample *s = NULL;
        for (unsigned i = 0; i < taken; i++)
            assert_ok(oq_source_next(w->src, &s, &err), err);
    }
}

/* An error comes where its sample would have come, and not before. */
static void test_error_in_the_middle(void **state) {
    world *w = *state;
    for (unsigned k = 0; k < 9; k++)
        write_good_set(w, k);
    write_set(w, 5, "\x08\x01\x10\x07\x3a", 5);
    for (int threaded = 0; threaded < 2; threaded++) {
        oq_source_options o = options(w);
        no_threads(!threaded);
        assert_ok(open_source(w, &o), err);
        const oq_sample *s = NULL;
        for (unsigned k = 0; k < 5; k++) {
            assert_ok(oq_source_next(w->src, &s, &err), err);
            assert_int_equal(s->number, k);
        }
        assert_fails(oq_source_next(w->src, &s, &err), ONQ_E_MALFORMED, err, "test_data_set_5");
        assert_null(s);
        assert_non_null(strstr(err.text, "input_0.pb"));
    }
}

static void test_misfits(void **state) {
    world *w = *state;
    const oq_sample *s = NULL;
    const oq_source_options o = options(w);
    write_set(w, 0, "\x08\x01\x10\x01\x4a\x04\0\0\0\0", 10); /* FLOAT[1] */
    assert_ok(open_source(w, &o), err);
    assert_fails(oq_source_next(w->src, &s, &err), ONQ_E_INVALID, err,
                 "input 'x': got FLOAT[1], expected INT64[n]");
    write_set(w, 0, "\x10\x07\x3a\x01\x05", 5); /* a scalar */
    assert_ok(open_source(w, &o), err);
    assert_fails(oq_source_next(w->src, &s, &err), ONQ_E_INVALID, err,
                 "got INT64[], expected INT64[n]");
    write_good_set(w, 0);
    const oq_dim_fix two = {OQ_S("n"), 2};
    oq_source_options fixed = o;
    fixed.dims = &two;
    fixed.n_dims = 1;
    assert_ok(open_source(w, &fixed), err);
    assert_fails(oq_source_next(w->src, &s, &err), ONQ_E_INVALID, err,
                 "got INT64[1], expected INT64[2]");
    const oq_dim_fix other = {OQ_S("m"), 2};
    fixed.dims = &other;
    assert_fails(open_source(w, &fixed), ONQ_E_OPTION, err, "did you mean n?");
}

static void test_nothing_there(void **state) {
    world *w = *state;
    oq_source_options o = options(w);
    assert_fails(open_source(w, &o), ONQ_E_INVALID, err, "no samples");
    o.spec = scratch_path(&w->s, "missing");
    assert_fails(open_source(w, &o), ONQ_E_MISSING, err, "missing");
    o.spec = "random:0";
    assert_fails(open_source(w, &o), ONQ_E_OPTION, err, "random:N");
    o.spec = scratch_file(&w->s, "a.txt", "x", 1);
    assert_fails(open_source(w, &o), ONQ_E_INVALID, err, "not a source");
}

/* What a model declares costs no bytes of a file, so random samples have a limit of their own, for
 * all inputs together. */
static void test_random_sizes(void **state) {
    world *w = *state;
    oq_source_options o = options(w);
    const oq_sample *s = NULL;
    oq_dim_fix most = {OQ_S("n"), (256 << 20) / 8};
    o.spec = "random:1";
    o.dims = &most;
    o.n_dims = 1;
    assert_ok(open_source(w, &o), err);
    assert_ok(oq_source_next(w->src, &s, &err), err);
    assert_int_equal(s->inputs[0].size_bytes, 256 << 20);
    most.value++;
    assert_fails(open_source(w, &o), ONQ_E_LIMIT, err, "input 'x'");
    most.value = INT64_MAX;
    assert_fails(open_source(w, &o), ONQ_E_LIMIT, err, "input 'x'");
    bm_input(&w->b, "second", OQ_INT64, "n");
    most.value = (256 << 20) / 16 + 1;
    assert_fails(open_source(w, &o), ONQ_E_LIMIT, err, "input 'second'");
}

/* ---- from a function ---- */

typedef struct caller {
    int64_t numbers[100];
    long fail_at;
} caller;

static onq_code give(void *ctx, uint64_t k, oq_arena *a, oq_datum *inputs, onq_error *e) {
    caller *c = ctx;
    if ((long)k == c->fail_at)
        return oq_fail(e, ONQ_E_CANCEL, "enough");
    int64_t *dims = OQ_NEW_ARRAY(a, int64_t, 1);
    if (dims == NULL)
        return oq_fail_nomem(e);
    dims[0] = 1;
    c->numbers[k] = (int64_t)k * 3;
    inputs[0] = (oq_datum){.kind = OQ_DATUM_TENSOR,
                           .dtype = OQ_INT64,
                           .rank = 1,
                           .dims = dims,
                           .count = 1,
                           .data = &c->numbers[k],
                           .size_bytes = 8};
    return ONQ_OK;
}

static void test_callback(void **state) {
    world *w = *state;
    char text[200];
    caller c = {.fail_at = -1};
    const oq_source_options o = {.model = w->b.m};
    assert_ok(callback_source_open(w->b.env, &o, give, &c, 5, &w->src, &err), err);
    assert_string_equal(pass(w->src, text, sizeof text), "0 3 6 9 12");
    oq_source_close(w->src);
    c.fail_at = 1;
    assert_ok(callback_source_open(w->b.env, &o, give, &c, 5, &w->src, &err), err);
    const oq_sample *s = NULL;
    assert_ok(oq_source_next(w->src, &s, &err), err);
    assert_fails(oq_source_next(w->src, &s, &err), ONQ_E_CANCEL, err, "sample '1': enough");
}

/* ---- memory ---- */

static onq_code oom_body(const onq_allocator *alloc, void *ctx, onq_error *e) {
    world *w = ctx;
    onq_env *env = onq_env_new(alloc);
    if (env == NULL)
        return oq_fail_nomem(e);
    oq_source_options o = options(w);
    oq_source *src = NULL;
    onq_code rc = oq_source_open(env, &o, &src, e);
    for (const oq_sample *s = NULL; rc == ONQ_OK;) {
        rc = oq_source_next(src, &s, e);
        if (s == NULL)
            break;
    }
    oq_source_close(src);
    onq_env_free(env);
    return rc;
}

static void test_oom_sets(void **state) {
    world *w = *state;
    for (unsigned k = 0; k < 3; k++)
        write_good_set(w, k);
    no_threads(true); /* which allocation is the n-th must not depend on the scheduler */
    assert_true(flaky_sweep(oom_body, w) > 5);
}

/* The memory of a pass does not grow with the samples. */
static onq_code run_random(flaky *f, world *w, unsigned n) {
    onq_env *env = onq_env_new(&f->alloc);
    char spec[32];
    snprintf(spec, sizeof spec, "random:%u", n);
    const oq_dim_fix wide = {OQ_S("n"), 100000};
    const oq_source_options o = {.spec = spec, .model = w->b.m, .dims = &wide, .n_dims = 1};
    oq_source *src = NULL;
    onq_code rc = oq_source_open(env, &o, &src, &err);
    uint64_t seen = 0;
    for (const oq_sample *s = NULL; rc == ONQ_OK;) {
        rc = oq_source_next(src, &s, &err);
        if (s == NULL)
            break;
        seen++;
    }
    assert_int_equal(seen, n);
    oq_source_close(src);
    onq_env_free(env);
    return rc;
}

static void test_memory_is_constant(void **state) {
    world *w = *state;
    flaky few, many;
    flaky_init(&few, -1);
    flaky_init(&many, -1);
    assert_ok(run_random(&few, w, 8), err);
    assert_ok(run_random(&many, w, 200), err);
    assert_int_equal(few.live, 0);
    assert_int_equal(many.live, 0);
    assert_true(many.peak <= few.peak + 4096);
    assert_true(many.peak < 8u * 800000);
}

/* Samples along the first axis of an .npy file that is written to, or cut short, after the
 * first of them. */
static void test_array_that_changes(void **state) {
    world *w = *state;
    char bytes[128 + 4 * 2 * 8] = "\x93NUMPY\x01";
    bytes[8] = 118;
    memset(bytes + 10, ' ', 118);
    const char header[] = "{'descr': '<i8', 'fortran_order': False, 'shape': (4, 2), }";
    memcpy(bytes + 10, header, sizeof header - 1);
    bytes[127] = '\n';
    no_threads(true); /* nothing is read ahead */
    const oq_sample *s = NULL;
    for (int cut = 0; cut < 2; cut++) {
        scratch_file(&w->s, "x.npy", bytes, sizeof bytes);
        const char *path = scratch_path(&w->s, "x.npy");
        const oq_source_options o = {.spec = path, .model = w->b.m};
        assert_ok(open_source(w, &o), err);
        assert_int_equal(oq_source_count(w->src), 4);
        assert_ok(oq_source_next(w->src, &s, &err), err);
        assert_int_equal(s->inputs[0].count, 2);
        const struct timespec then[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
        if (cut)
            assert_int_equal(truncate(path, sizeof bytes - 1), 0);
        else
            assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
        assert_fails(oq_source_next(w->src, &s, &err), ONQ_E_READ, err,
                     cut ? "bytes while it was read" : "was written to while it was read");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order_limit_and_shares, setup, teardown),
        cmocka_unit_test_setup_teardown(test_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_set, setup, teardown),
        cmocka_unit_test_setup_teardown(test_peek, setup, teardown),
        cmocka_unit_test_setup_teardown(test_closed_in_the_middle, setup, teardown),
        cmocka_unit_test_setup_teardown(test_error_in_the_middle, setup, teardown),
        cmocka_unit_test_setup_teardown(test_misfits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_there, setup, teardown),
        cmocka_unit_test_setup_teardown(test_random_sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_callback, setup, teardown),
        cmocka_unit_test_setup_teardown(test_array_that_changes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_oom_sets, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_is_constant, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
