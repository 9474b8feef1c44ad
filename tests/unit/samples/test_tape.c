/*
 * test_tape.c — samples from a reader of the caller and from streams: order, second passes, what is
 * kept, strides, what is refused, memory that fails.
 */
#include "samples/source.h"

#include "build_model.h"
#include "flaky_alloc.h"
#include "samples/files/npy.h"
#include "scratch.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>

static onq_error err;

/* ---- a reader ---- */

typedef struct caller {
    int64_t at, n;   /* next sample, samples of a pass */
    int64_t stop_at; /* returns -1 there; -1: never */
    int n_calls, n_again;
    int64_t value, dims; /* of the sample */
    onq_tensor tensors[2];
    size_t n_tensors;
} caller;

static int next(void *ctx, const onq_tensor **inputs, size_t *n) {
    static const int64_t one = 1;
    caller *c = ctx;
    c->n_calls++;
    if (c->at == c->stop_at)
        return -1;
    if (c->at == c->n)
        return 0;
    c->value = c->at++;
    if (c->tensors[0].name == NULL)
        c->tensors[0] = (onq_tensor){
            .name = "x", .dtype = OQ_INT64, .rank = 1, .dims = &one, .data = &c->value, .size = 8};
    *inputs = c->tensors;
    *n = c->n_tensors > 0 ? c->n_tensors : 1;
    return 1;
}

static int again(void *ctx) {
    caller *c = ctx;
    c->n_again++;
    c->at = 0;
    return 0;
}

typedef struct world {
    bm b;
    scratch s;
    caller c;
    oq_tape *tape;
    oq_source *src;
} world;

static int setup(void **state) {
    world *w = test_calloc(1, sizeof *w);
    bm_begin(&w->b, NULL, 13);
    bm_input(&w->b, "x", OQ_INT64, "n");
    bm_output(&w->b, "x", OQ_INT64, "n");
    scratch_init(&w->s);
    w->c = (caller){.n = 9, .stop_at = -1};
    *state = w;
    return 0;
}

static void close_all(world *w) {
    oq_source_close(w->src);
    oq_tape_free(w->tape);
    w->src = NULL;
    w->tape = NULL;
}

static int teardown(void **state) {
    world *w = *state;
    close_all(w);
    scratch_remove(&w->s);
    bm_end(&w->b);
    test_free(w);
    return 0;
}

static oq_source_options on_tape(const world *w) {
    return (oq_source_options){.model = w->b.m, .tape = w->tape};
}

static void open_reader(world *w, bool rewinds, uint64_t memory) {
    oq_feed *feed = NULL;
    close_all(w);
    w->c.at = 0;
    const onq_reader r = {.next = next, .ctx = &w->c, .rewind = rewinds ? again : NULL};
    assert_ok(oq_feed_open_reader(w->b.env, &r, &feed, &err), err);
    assert_ok(oq_tape_new(w->b.env, feed, memory, &w->tape, &err), err);
    const oq_source_options o = on_tape(w);
    assert_ok(oq_source_open(w->b.env, &o, &w->src, &err), err);
}

/* A pass as its numbers, "0 1 2". */
static const char *pass(oq_source *src) {
    static char text[200];
    size_t n = 0;
    text[0] = '\0';
    for (;;) {
        const oq_sample *s = NULL;
        assert_ok(oq_source_next(src, &s, &err), err);
        if (s == NULL)
            return text;
        int64_t v = 0;
        memcpy(&v, s->inputs[0].data, sizeof v);
        n += (size_t)snprintf(text + n, sizeof text - n, n > 0 ? " %d" : "%d", (int)v);
    }
}

static void passes(void **state) {
    world *w = *state;
    for (int rewinds = 0; rewinds < 2; rewinds++) {
        open_reader(w, rewinds, rewinds ? 0 : 1 << 20);
        assert_int_equal(oq_source_count(w->src), 0);
        assert_string_equal(pass(w->src), "0 1 2 3 4 5 6 7 8");
        assert_int_equal(oq_source_count(w->src), 9);
        assert_ok(oq_source_seek(w->src, 0, &err), err);
        assert_string_equal(pass(w->src), "0 1 2 3 4 5 6 7 8");
        assert_ok(oq_source_seek(w->src, 7, &err), err);
        assert_string_equal(pass(w->src), "7 8");
        assert_int_equal(w->c.n_again, rewinds);
    }
    assert_int_equal(w->c.n_calls, 10 + 10 + 9); /* the end once; again where nothing is kept */
    oq_source_options o = on_tape(w);
    oq_source *other = NULL;
    o.limit = 8;
    o.share = 1;
    o.n_shares = 3;
    assert_ok(oq_source_open(w->b.env, &o, &other, &err), err);
    assert_ok(oq_source_measure(other, &err), err);
    assert_int_equal(oq_source_count(other), 3);
    assert_string_equal(pass(other), "1 4 7");
    oq_source_close(other);
    open_reader(w, true, 0);
    o = on_tape(w);
    o.limit = 5;
    assert_ok(oq_source_open(w->b.env, &o, &other, &err), err);
    assert_int_equal(oq_source_count(other), 0);
    assert_string_equal(pass(other), "0 1 2 3 4");
    assert_int_equal(oq_source_count(other), 5); /* a pass has shown it */
    oq_source_close(other);
}

/* A look at the first sample asks the caller for it once, also when it is not kept. */
static void looked_at(void **state) {
    world *w = *state;
    open_reader(w, false, 0);
    oq_source_read_once(w->src);
    const oq_sample *s = oq_source_peek(w->src, 0);
    assert_non_null(s);
    assert_int_equal(*(const int64_t *)s->inputs[0].data, 0);
    assert_int_equal(w->c.n_calls, 1);
    assert_string_equal(pass(w->src), "0 1 2 3 4 5 6 7 8");
    assert_int_equal(w->c.n_calls, 10);
    w->c.n = 0;
    open_reader(w, false, 0);
    assert_null(oq_source_peek(w->src, 0));
    assert_fails(oq_source_next(w->src, &s, &err), ONQ_E_INVALID, err, "no samples");
}

/* Two sources in turns see the same samples, which are asked for once. */
static void turns(void **state) {
    world *w = *state;
    open_reader(w, true, 0);
    oq_source *other = NULL;
    const oq_source_options o = on_tape(w);
    assert_ok(oq_source_open(w->b.env, &o, &other, &err), err);
    for (int k = 0; k < 9; k++) {
        const oq_sample *a = NULL, *b = NULL;
        assert_ok(oq_source_next(w->src, &a, &err), err);
        assert_ok(oq_source_next(other, &b, &err), err);
        assert_memory_equal(a->inputs[0].data, b->inputs[0].data, 8);
    }
    assert_int_equal(w->c.n_calls, 9);
    oq_source_close(other);
}

/* What cannot be kept is missed only by whoever asks for it. */
static void limits(void **state) {
    world *w = *state;
    open_reader(w, false, 100);
    assert_string_equal(pass(w->src), "0 1 2 3 4 5 6 7 8");
    const oq_sample *s = NULL;
    assert_ok(oq_source_seek(w->src, 0, &err), err);
    assert_fails(oq_source_next(w->src, &s, &err), ONQ_E_LIMIT, err, "--memory");
    open_reader(w, false, 100);
    oq_source_read_once(w->src);
    assert_string_equal(pass(w->src), "0 1 2 3 4 5 6 7 8");
}

static void refusals(void **state) {
    world *w = *state;
    static const int64_t two[2] = {1, 1}, wrong[1] = {-3};
    static const int64_t value = 7;
    static const onq_tensor good = {
        .name = "x", .dtype = OQ_INT64, .rank = 1, .dims = two, .data = &value, .size = 8};
    struct {
        onq_tensor t[2];
        size_t n;
        onq_code code;
        const char *says;
    } cases[] = {
        {{good}, 1, ONQ_E_INVALID, "sample '0': input 'x': got FLOAT[1], expected INT64"},
        {{good}, 1, ONQ_E_INVALID, "sample '0': input 'x': got INT64[1,1], expected INT64[n]"},
        {{good}, 1, ONQ_E_INVALID, "sample '0': input 'x': it has 5 bytes"},
        {{good}, 1, ONQ_E_INVALID, "sample '0': input 'x': its shape is not possible"},
        {{good}, 1, ONQ_E_INVALID, "sample '0': input 'x': 99 is not an element type"},
        {{good}, 1, ONQ_E_INVALID, "sample '0': input 'x': its data is missing"},
        {{good}, 1, ONQ_E_INVALID, "sample '0': input 'x' is missing"},
        {{good, good}, 2, ONQ_E_INVALID, "takes no input 'z' (it takes: x)"},
        {{good, good}, 2, ONQ_E_INVALID, "sample '0': input 'x' is given twice"},
        {{good, good}, 2, ONQ_E_INVALID, "sample '0': tensor 1 has no name"},
        {{good}, 1, ONQ_E_LIMIT, "axes"},
    };
    cases[0].t[0].dtype = OQ_FLOAT;
    cases[0].t[0].size = 4;
    cases[1].t[0].rank = 2;
    cases[2].t[0].size = 5;
    cases[3].t[0].dims = wrong;
    cases[4].t[0].dtype = 99;
    cases[5].t[0].data = NULL;
    cases[6].t[0].name = "y";
    cases[7].t[1].name = "z";
    cases[9].t[1].name = NULL;
    cases[10].t[0].rank = 1000;
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        const oq_sample *s = NULL;
        memcpy(w->c.tensors, cases[i].t, sizeof w->c.tensors);
        w->c.n_tensors = cases[i].n;
        open_reader(w, true, 0);
        assert_fails(oq_source_next(w->src, &s, &err), cases[i].code, err, cases[i].says);
        assert_null(s);
    }
    memset(w->c.tensors, 0, sizeof w->c.tensors);
    w->c.n_tensors = 0;
    w->c.stop_at = 3;
    open_reader(w, true, 0);
    const oq_sample *s = NULL;
    for (int k = 0; k < 3; k++)
        assert_ok(oq_source_next(w->src, &s, &err), err);
    const int calls = w->c.n_calls;
    for (int k = 0; k < 2; k++) /* the reader is not asked again */
        assert_fails(oq_source_next(w->src, &s, &err), ONQ_E_CANCEL, err, "sample '3'");
    assert_int_equal(w->c.n_calls, calls + 1);
    w->c.stop_at = -1;
    w->c.n = 0;
    open_reader(w, true, 0);
    assert_fails(oq_source_next(w->src, &s, &err), ONQ_E_INVALID, err, "no samples");
}

/* ---- strides ---- */

static int give_strided(void *ctx, const onq_tensor **inputs, size_t *n) {
    *inputs = ctx;
    *n = 1;
    return 1;
}

static void strides(void **state) {
    world *w = *state;
    bm b;
    float memory[4 * 3 * 2]; /* v[i][j][k] = 100 i + 10 j + k */
    for (int i = 0; i < 24; i++)
        memory[i] = (float)(i / 6 * 100 + i / 2 % 3 * 10 + i % 2);
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "?,?,?");
    bm_output(&b, "x", OQ_FLOAT, "?,?,?");
    static const int64_t dims[3] = {2, 3, 2}, back[3] = {4, 8, 24}, odd[3] = {-48, 8, 0},
                         none[3] = {2, 0, 2};
    const struct {
        const float *from;
        const int64_t *dims, *strides;
        float first, last;
    } cases[] = {
        {memory, dims, back, 0, 121},       /* axes in reverse: v[k][j][i] */
        {memory + 18, dims, odd, 300, 120}, /* rows 3 and 1, the last axis repeated */
        {memory, none, back, 0, 0},
    };
    for (size_t c = 0; c < OQ_COUNT(cases); c++) {
        onq_tensor t = {.name = "x",
                        .dtype = OQ_FLOAT,
                        .rank = 3,
                        .dims = cases[c].dims,
                        .data = cases[c].from,
                        .strides = cases[c].strides};
        const onq_reader r = {.next = give_strided, .ctx = &t};
        oq_feed *feed = NULL;
        oq_tape *tape = NULL;
        oq_source *src = NULL;
        const oq_sample *s = NULL;
        assert_ok(oq_feed_open_reader(w->b.env, &r, &feed, &err), err);
        assert_ok(oq_tape_new(w->b.env, feed, 0, &tape, &err), err);
        const oq_source_options o = {.model = b.m, .tape = tape};
        assert_ok(oq_source_open(w->b.env, &o, &src, &err), err);
        assert_ok(oq_source_next(src, &s, &err), err);
        const float *v = s->inputs[0].data;
        const uint64_t n = s->inputs[0].count;
        assert_int_equal(s->inputs[0].size_bytes, n * 4);
        if (n > 0)
            assert_true(v[0] == cases[c].first && v[n - 1] == cases[c].last);
        oq_source_close(src);
        oq_tape_free(tape);
    }
    bm_end(&b);
}

/* ---- streams ---- */

/* numpy.save of INT64[n_samples] or INT64[1], and a tar header. */
static void add_npy(oq_buf *b, int64_t first, int64_t n, bool many) {
    const int64_t dims[2] = {n, 1};
    assert_true(oq_npy_write_header(b, OQ_INT64, dims, many ? 2 : 1));
    for (int64_t i = 0; i < n; i++) {
        const int64_t v = first + i;
        oq_buf_add(b, &v, sizeof v);
    }
}

static void add_tar(oq_buf *b, const char *name, char type, const void *p, size_t n) {
    uint8_t h[512] = {0};
    static const uint8_t zeros[512];
    unsigned sum = 0;
    snprintf((char *)h, 100, "%s", name);
    snprintf((char *)h + 124, 12, "%011zo", n);
    h[156] = (uint8_t)type;
    memcpy(h + 257, "ustar\00000", 8);
    memset(h + 148, ' ', 8);
    for (size_t i = 0; i < sizeof h; i++)
        sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", sum);
    oq_buf_add(b, h, sizeof h);
    oq_buf_add(b, p, n);
    oq_buf_add(b, zeros, (512 - n % 512) % 512);
}

static onq_code read_stream(world *w, const oq_buf *bytes, const char **out) {
    oq_feed *feed = NULL;
    close_all(w);
    const char *path = scratch_file(&w->s, "s.tar", bytes->p, bytes->n);
    assert_ok(oq_feed_open_stream(w->b.env, path, w->b.m, NULL, &feed, &err), err);
    assert_ok(oq_tape_new(w->b.env, feed, 0, &w->tape, &err), err);
    const oq_source_options o = on_tape(w);
    assert_ok(oq_source_open(w->b.env, &o, &w->src, &err), err);
    const onq_code rc = oq_source_measure(w->src, &err);
    if (rc == ONQ_OK && oq_source_count(w->src) > 0)
        *out = pass(w->src); /* and read from the beginning again */
    return rc;
}

static void tar_and_npy(void **state) {
    world *w = *state;
    oq_buf all, one, two;
    const char *text = "";
    oq_buf_init(&all, oq_alloc_default());
    oq_buf_init(&one, oq_alloc_default());
    oq_buf_init(&two, oq_alloc_default());
    add_npy(&one, 5, 1, false);
    add_npy(&two, 7, 3, true);
    /* Arrays one after another, one of them with three samples. */
    oq_buf_add(&all, one.p, one.n);
    oq_buf_add(&all, two.p, two.n);
    oq_buf_add(&all, one.p, one.n);
    assert_ok(read_stream(w, &all, &text), err);
    assert_string_equal(text, "5 7 8 9 5");
    all.n -= 3;
    assert_fails(read_stream(w, &all, &text), ONQ_E_MALFORMED, err,
                 "sample '4': array 2: the stream");
    /* The same in an archive, with a folder, a file of another kind and a long name. */
    all.n = 0;
    add_tar(&all, "folder", '5', NULL, 0);
    add_tar(&all, "folder/readme.txt", '0', "text", 4);
    add_tar(&all, "folder/a.npy", '0', one.p, one.n);
    static const char pax[] = "18 path=long/b.npy\n";
    add_tar(&all, "x", 'x', pax, 19);
    add_tar(&all, "short", '0', two.p, two.n);
    assert_fails(read_stream(w, &all, &text), ONQ_E_MALFORMED, err, "pax");
    all.n -= 512 + (two.n + 511) / 512 * 512 + 1024;
    static const char right[] = "19 path=long/b.npy\n";
    add_tar(&all, "x", 'x', right, 19);
    add_tar(&all, "short", '0', two.p, two.n);
    add_tar(&all, "x", 'L', "gnu/c.npy", 10);
    add_tar(&all, "short", '0', one.p, one.n);
    assert_ok(read_stream(w, &all, &text), err);
    assert_string_equal(text, "5 7 8 9 5"); /* without the zeros at the end, too */
    char zeros[1024] = {0};
    oq_buf_add(&all, zeros, sizeof zeros);
    assert_ok(read_stream(w, &all, &text), err);
    assert_string_equal(text, "5 7 8 9 5");
    /* Every cut is an error or fewer samples, never more. */
    const size_t whole = all.n - sizeof zeros;
    for (all.n = 0; all.n < whole; all.n += 97)
        if (read_stream(w, &all, &text) != ONQ_OK)
            assert_true(err.code == ONQ_E_MALFORMED || err.code == ONQ_E_INVALID);
    all.n = 100;
    memcpy(all.p, "PK\3\4", 4);
    assert_fails(read_stream(w, &all, &text), ONQ_E_MALFORMED, err, "one .npz file");
    oq_buf_release(&all);
    oq_buf_release(&one);
    oq_buf_release(&two);
}

/* ---- memory ---- */

static onq_code sweep(const onq_allocator *a, void *ctx, onq_error *e) {
    world *w = ctx;
    onq_env *env = onq_env_new(a);
    oq_feed *feed = NULL;
    oq_tape *tape = NULL;
    oq_source *src = NULL;
    onq_code rc = ONQ_OK;
    if (env == NULL)
        return oq_fail_nomem(e);
    w->c.at = 0;
    const onq_reader r = {.next = next, .ctx = &w->c};
    if (w->c.n_again == 0)
        OQ_GO(oq_feed_open_reader(env, &r, &feed, e));
    else
        OQ_GO(oq_feed_open_stream(env, scratch_path(&w->s, "s.tar"), w->b.m, NULL, &feed, e));
    OQ_GO(oq_tape_new(env, feed, 1 << 20, &tape, e));
    const oq_source_options o = {.model = w->b.m, .tape = tape};
    OQ_GO(oq_source_open(env, &o, &src, e));
    for (const oq_sample *s = NULL; rc == ONQ_OK;) {
        rc = oq_source_next(src, &s, e);
        if (s == NULL)
            break;
    }
done:
    oq_source_close(src);
    oq_tape_free(tape);
    onq_env_free(env);
    return rc;
}

static void every_allocation_may_fail(void **state) {
    world *w = *state;
    oq_buf all, one;
    assert_true(flaky_sweep(sweep, w) > 10);
    oq_buf_init(&all, oq_alloc_default());
    oq_buf_init(&one, oq_alloc_default());
    add_npy(&one, 5, 1, false);
    add_tar(&all, "a.npy", '0', one.p, one.n);
    add_tar(&all, "b.npy", '0', one.p, one.n);
    scratch_file(&w->s, "s.tar", all.p, all.n);
    w->c.n_again = 1;
    assert_true(flaky_sweep(sweep, w) > 10);
    oq_buf_release(&all);
    oq_buf_release(&one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(passes, setup, teardown),
        cmocka_unit_test_setup_teardown(looked_at, setup, teardown),
        cmocka_unit_test_setup_teardown(turns, setup, teardown),
        cmocka_unit_test_setup_teardown(limits, setup, teardown),
        cmocka_unit_test_setup_teardown(refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(strides, setup, teardown),
        cmocka_unit_test_setup_teardown(tar_and_npy, setup, teardown),
        cmocka_unit_test_setup_teardown(every_allocation_may_fail, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
