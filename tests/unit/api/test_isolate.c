/* test_isolate.c — isolated jobs of callers that are programs: files in memory, readers, ranges and
 * callbacks reach the worker and come back the same; and what is said between the two is
 * checked. */
#include "api/isolate/isolate_parts.h"
#include "api/options/command.h"
#include "build_model.h"
#include "scratch.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static onq_error err;

#define N     5
#define WIDTH 8

typedef struct world {
    onq_env *env;
    oq_buf bytes;   /* the model */
    float data[64]; /* its external data */
    int asked;      /* for it */
    float values[N][WIDTH];
    int at, stop_at, dtype;
    onq_tensor tensor;
    int64_t dims[2], strides[2];
} world;

static void make_world(world *w) {
    bm b;
    *w = (world){.stop_at = -1, .dtype = OQ_FLOAT, .env = onq_env_new(NULL)};
    for (int i = 0; i < N * WIDTH; i++)
        w->values[i / WIDTH][i % WIDTH] = (float)((i * 29) % 17) / 4.0f - 2.0f;
    for (int i = 0; i < 64; i++)
        w->data[i] = (float)((i * 13) % 31 - 15) / 8.0f;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "1,8");
    bm_f32(&b, "w", "8,8", w->data);
    bm_node(&b, "MatMul", "m,m", "x w", "t", "");
    bm_node(&b, "Relu", "relu", "t", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "1,8");
    oq_buf_init(&w->bytes, oq_alloc_default());
    assert_ok(oq_model_encode(b.m, &w->bytes, &err), err);
    bm_end(&b);
    /* Where the tests run, the program is beside them, not beside the library. Under an emulator it
     * cannot be started. */
    if (getenv("ONQ") != NULL && system("\"$ONQ\" --version >/dev/null 2>&1") == 0)
        setenv("ONQ_WORKER", getenv("ONQ"), 1);
    else
        skip();
}

static void end_world(world *w) {
    oq_buf_release(&w->bytes);
    onq_env_free(w->env);
}

/* Backwards in memory, so that the strides count. */
static int next(void *ctx, const onq_tensor **inputs, size_t *n) {
    world *w = ctx;
    if (w->at == w->stop_at)
        return -1;
    if (w->at == N)
        return 0;
    w->dims[0] = 1;
    w->dims[1] = WIDTH;
    w->strides[0] = WIDTH * 4;
    w->strides[1] = -4;
    w->tensor = (onq_tensor){.name = "x",
                             .dtype = w->dtype,
                             .rank = 2,
                             .dims = w->dims,
                             .data = &w->values[w->at++][WIDTH - 1],
                             .strides = w->strides};
    *inputs = &w->tensor;
    *n = 1;
    return 1;
}

static int again(void *ctx) {
    ((world *)ctx)->at = 0;
    return 0;
}

static onq_options *options(world *w, const char *command, bool isolated) {
    onq_options *o = NULL;
    const onq_bytes given = {.label = "net", .data = w->bytes.p, .size = w->bytes.n};
    w->at = 0;
    assert_ok(onq_options_new(w->env, command, &o, &err), err);
    assert_ok(onq_options_set_bytes(o, "input", &given, &err), err);
    assert_ok(onq_options_want_bytes(o, "output", "made", &err), err);
    assert_ok(onq_options_set(o, "isolate", isolated ? "true" : "false", &err), err);
    return o;
}

static void assert_same(const onq_result *a, const onq_result *b) {
    for (size_t i = 0;; i++) {
        const onq_file *x = onq_result_file(a, i), *y = onq_result_file(b, i);
        assert_int_equal(x == NULL, y == NULL);
        if (x == NULL)
            break;
        assert_string_equal(x->name, y->name);
        assert_string_equal(x->option, y->option);
        assert_int_equal(x->size, y->size);
        assert_memory_equal(x->data, y->data, x->size);
    }
    for (size_t i = 0;; i++) {
        const char *x = onq_result_warning(a, i), *y = onq_result_warning(b, i);
        assert_int_equal(x == NULL, y == NULL);
        if (x == NULL)
            break;
        assert_string_equal(x, y);
    }
    assert_int_equal(onq_result_status(a), onq_result_status(b));
    assert_int_equal(onq_result_ranges(a) == NULL, onq_result_ranges(b) == NULL);
}

static void from_memory_to_memory(void **state) {
    (void)state;
    world w;
    onq_result *r[2] = {NULL};
    make_world(&w);
    for (int i = 0; i < 2; i++) {
        onq_options *o = options(&w, "dynamic", i == 1);
        assert_ok(onq_options_set(o, "no_verify", "true", &err), err);
        assert_ok(onq_options_set(o, "use_external_data_format", "true", &err), err);
        assert_ok(onq_options_add(o, "nodes_to_exclude", "m,n", &err), err);
        assert_ok(onq_options_set(o, "extra", "EnableSubgraph=True", &err), err);
        assert_ok(onq_options_set(o, "extra", "MatMulConstBOnly=none", &err), err);
        assert_ok(onq_run(w.env, o, &r[i], &err), err);
        onq_options_free(o);
    }
    assert_non_null(onq_result_file(r[0], 0));
    assert_same(r[0], r[1]);
    onq_result_free(r[0]);
    onq_result_free(r[1]);
    end_world(&w);
}

static int open_data(void *ctx, const char *location, const void **data, size_t *size) {
    world *w = ctx;
    w->asked++;
    if (strcmp(location, "w.bin") != 0)
        return -1;
    *data = w->data;
    *size = sizeof w->data;
    return 0;
}

/* External data that only a function of the caller has. */
static void external_data(void **state) {
    (void)state;
    world w;
    bm b;
    oq_buf bytes;
    onq_result *r[2] = {NULL};
    make_world(&w);
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "1,8");
    bm_f32(&b, "w", "8,8", w.data);
    bm_node(&b, "MatMul", "mm", "x w", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "1,8");
    b.m->proto->graph->initializer.v[0]->place =
        &(oq_place){.location = OQ_S("w.bin"), .offset = 0, .length = sizeof w.data};
    oq_buf_init(&bytes, oq_alloc_default());
    assert_ok(oq_model_encode(b.m, &bytes, &err), err);
    for (int i = 0; i < 2; i++) {
        onq_options *o = options(&w, "dynamic", i == 1);
        const onq_bytes given = {.data = bytes.p, .size = bytes.n, .open = open_data, .ctx = &w};
        assert_ok(onq_options_set_bytes(o, "input", &given, &err), err);
        assert_ok(onq_options_set(o, "no_verify", "true", &err), err);
        w.asked = 0;
        assert_ok(onq_run(w.env, o, &r[i], &err), err);
        assert_true(w.asked > 0);
        onq_options_free(o);
    }
    assert_same(r[0], r[1]);
    onq_result_free(r[0]);
    onq_result_free(r[1]);
    oq_buf_release(&bytes);
    bm_end(&b);
    end_world(&w);
}

/* Samples of a reader, and the ranges that it gives; then a model from these ranges. */
static void readers_and_ranges(void **state) {
    (void)state;
    world w;
    onq_result *r[4] = {NULL};
    make_world(&w);
    for (int i = 0; i < 4; i++) {
        onq_options *o = options(&w, "static", i % 2 == 1);
        const onq_reader reader = {.next = next, .ctx = &w, .rewind = i < 2 ? again : NULL};
        if (i < 2)
            assert_ok(onq_options_set(o, "calibration_method", "percentile", &err), err);
        assert_ok(onq_options_set(o, "memory", "0", &err), err);
        if (i < 3)
            assert_ok(onq_options_set_reader(o, &reader, &err), err);
        else
            assert_ok(onq_options_set_ranges(o, onq_result_ranges(r[2]), &err), err);
        if (onq_run(w.env, o, &r[i], &err) == ONQ_E_RUNTIME && i == 0)
            skip();
        assert_non_null(r[i]);
        onq_options_free(o);
    }
    assert_same(r[0], r[1]);
    const onq_ranges *a = onq_result_ranges(r[0]), *b = onq_result_ranges(r[1]);
    assert_int_equal(onq_ranges_count(a), onq_ranges_count(b));
    for (size_t i = 0; i < onq_ranges_count(a); i++) {
        const onq_range *x = onq_ranges_at(a, i), *y = onq_ranges_at(b, i);
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->bare, y->bare);
        assert_int_equal(x->lowest.size, y->lowest.size);
        assert_memory_equal(x->lowest.data, y->lowest.data, x->lowest.size);
        assert_memory_equal(x->highest.data, y->highest.data, x->highest.size);
    }
    const onq_file *made = onq_result_file(r[2], 0), *given = onq_result_file(r[3], 0);
    assert_int_equal(made->size, given->size);
    assert_memory_equal(made->data, given->data, made->size);
    for (int i = 0; i < 4; i++)
        onq_result_free(r[i]);
    end_world(&w);
}

/* The caller's own reasons come back as they are. */
static void readers_that_fail(void **state) {
    (void)state;
    world w;
    onq_result *r = NULL;
    make_world(&w);
    const onq_reader reader = {.next = next, .ctx = &w};
    onq_options *o = options(&w, "static", true);
    assert_ok(onq_options_set_reader(o, &reader, &err), err);
    w.stop_at = 1;
    const onq_code rc = onq_run(w.env, o, &r, &err);
    if (rc == ONQ_E_RUNTIME)
        skip();
    assert_int_equal(rc, ONQ_E_CANCEL);
    assert_string_equal(err.text, "reader: sample '1': the reader stopped the job");
    w.stop_at = -1;
    w.at = 0;
    w.dtype = 99;
    assert_fails(onq_run(w.env, o, &r, &err), ONQ_E_INVALID, err, "99 is not an element type");
    onq_options_free(o);
    end_world(&w);
}

static int stop(void *ctx, const char *what, uint64_t done, uint64_t total) {
    (void)what;
    (void)done;
    (void)total;
    ++*(int *)ctx;
    return 1;
}

static void stopping(void **state) {
    (void)state;
    world w;
    int asked = 0;
    onq_result *r = NULL;
    make_world(&w);
    onq_env_set_progress(w.env, stop, &asked);
    onq_options *o = options(&w, "dynamic", true);
    assert_ok(onq_options_set(o, "no_verify", "true", &err), err);
    const onq_code rc = onq_run(w.env, o, &r, &err);
    /* A job that is done before it is asked is done. */
    assert_true(rc == ONQ_E_CANCEL || (rc == ONQ_OK && asked <= 1));
    onq_result_free(r);
    onq_options_free(o);
    end_world(&w);
}

/* A worker that is slow to start is ended by the signal itself: stopped all the same. */
static void stopping_early(void **state) {
    (void)state;
    static const char script[] = "#!/bin/sh\nexec /bin/sleep 60\n";
    world w;
    scratch s;
    int asked = 0;
    onq_result *r = NULL;
    make_world(&w);
    scratch_init(&s);
    const char *slow = scratch_file(&s, "slow", script, sizeof script - 1);
    assert_int_equal(chmod(slow, 0755), 0);
    setenv("ONQ_WORKER", slow, 1);
    onq_env_set_progress(w.env, stop, &asked);
    onq_options *o = options(&w, "dynamic", true);
    assert_fails(onq_run(w.env, o, &r, &err), ONQ_E_CANCEL, err, "stopped");
    assert_int_equal(asked, 1);
    onq_options_free(o);
    scratch_remove(&s);
    end_world(&w);
}

static void only_whole_commands(void **state) {
    (void)state;
    world w;
    onq_calibrator *cal = NULL;
    onq_activations *acts = NULL;
    make_world(&w);
    onq_options *o = options(&w, "calibrate", true);
    assert_fails(onq_calibrator_new(w.env, o, &cal, &err), ONQ_E_OPTION, err, "whole commands");
    onq_options_free(o);
    assert_ok(onq_options_new(w.env, "run", &o, &err), err);
    assert_ok(onq_options_set(o, "isolate", "true", &err), err);
    assert_fails(onq_activations_collect(w.env, o, NULL, &acts, &err), ONQ_E_OPTION, err,
                 "whole commands");
    onq_options_free(o);
    end_world(&w);
}

/* ---- frames ---- */

static void frames(void **state) {
    (void)state;
    int ends[2];
    oq_buf b;
    oq_iso_kind kind = OQ_ISO_NONE;
    oq_buf_init(&b, oq_alloc_default());
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    const oq_iso_end from = {.handle = ends[0]}, to = {.handle = ends[1], .is_caller = true};
    oq_iso_put(&b, 7);
    oq_iso_put_text(&b, OQ_S("text"));
    assert_ok(oq_iso_send_buf(&from, OQ_ISO_LOG, &b, &err), err);
    assert_ok(oq_iso_receive(&to, &kind, &b, &err), err);
    oq_iso_body body = oq_iso_read(&b);
    assert_int_equal(kind, OQ_ISO_LOG);
    assert_int_equal(oq_iso_get(&body), 7);
    assert_true(oq_str_is(oq_iso_get_text(&body), "text"));
    assert_false(body.bad);
    assert_int_equal(oq_iso_get(&body), 0); /* past the end */
    assert_true(body.bad);
    /* A text that is longer than what is there. */
    const uint64_t lie = 1000;
    body = (oq_iso_body){(const char *)&lie, sizeof lie, false};
    assert_int_equal(oq_iso_get_text(&body).n, 0);
    assert_true(body.bad);
    /* Lengths and kinds that nobody sends. */
    const uint64_t heads[][2] = {{OQ_ISO_LOG, 1u << 20},
                                 {0, 0},
                                 {99, 0},
                                 {OQ_ISO_DONE, 1ull << 60},
                                 {OQ_ISO_BYTES, 8}}; /* the last is for workers */
    for (size_t i = 0; i < OQ_COUNT(heads); i++) {
        assert_int_equal(write(ends[0], heads[i], sizeof heads[i]), sizeof heads[i]);
        assert_fails(oq_iso_receive(&to, &kind, &b, &err), ONQ_E_READ, err, "not a valid message");
    }
    assert_fails(oq_iso_send(&from, OQ_ISO_PART, "", OQ_ISO_PART_SIZE + 1, &err), ONQ_E_LIMIT, err,
                 "does not fit");
    close(ends[0]);
    assert_fails(oq_iso_receive(&to, &kind, &b, &err), ONQ_E_READ, err, "is gone");
    close(ends[1]);
    oq_buf_release(&b);
}

/* ---- a worker that lies ---- */

static void show(void *ctx) {
    (void)ctx;
}

/* What the caller makes of frames that a worker sent after its greeting. */
static onq_code hear(oq_job *job, uint64_t memory, const oq_buf *frames) {
    int ends[2];
    oq_buf hello;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    const oq_iso_end worker = {.handle = ends[0]};
    oq_iso_talk talk = {
        .job = job, .memory = memory, .show = show, .end = {.handle = ends[1], .is_caller = true}};
    oq_buf_init(&hello, oq_alloc_default());
    oq_iso_put_text(&hello, oq_str_of(onq_version()));
    assert_ok(oq_iso_send_buf(&worker, OQ_ISO_HELLO, &hello, &err), err);
    assert_int_equal(write(ends[0], frames->p, frames->n), frames->n);
    assert_int_equal(shutdown(ends[0], SHUT_WR), 0);
    const onq_code rc = oq_iso_talk_run(&talk, &err);
    oq_buf_release(&hello);
    close(ends[0]);
    close(ends[1]);
    return rc;
}

static void add_frame(oq_buf *frames, oq_iso_kind kind, const oq_buf *body) {
    oq_iso_put(frames, kind);
    oq_iso_put_text(frames, (oq_str){body->p, body->n});
}

/* Terminals and memory of the caller are out of a worker's reach. */
static void lies(void **state) {
    (void)state;
    world w;
    oq_buf body, frames;
    make_world(&w);
    onq_options *o = options(&w, "dynamic", true);
    oq_job job = {.env = w.env, .opts = o};
    oq_arena_init(&job.arena, &w.env->alloc);
    oq_buf_init(&job.text, &w.env->alloc);
    oq_buf_init(&job.json_text, &w.env->alloc);
    oq_files_init(&job.files, &w.env->alloc);
    oq_buf_init(&body, &w.env->alloc);
    oq_buf_init(&frames, &w.env->alloc);

    oq_iso_put(&body, 0);
    oq_iso_put_text(&body, OQ_S("one\n\033[2Jtwo\n"));
    oq_iso_put_text(&body, OQ_S("{}\n"));
    oq_iso_put(&body, 0);
    add_frame(&frames, OQ_ISO_DONE, &body);
    assert_ok(hear(&job, 16u << 20, &frames), err);
    oq_buf_addc(&job.text, '\0');
    assert_string_equal(job.text.p, "one\n\\x1b[2Jtwo\n");

    const oq_str json[] = {OQ_S("{\033[2J}"),
                           OQ_S("{\xc2\x9b"
                                "2J}"),
                           OQ_S("{\x9b}"), OQ_S("{\xe2\x80\xae}")};
    for (size_t i = 0; i < OQ_COUNT(json); i++) {
        body.n = frames.n = 0;
        oq_iso_put(&body, 0);
        oq_iso_put_text(&body, OQ_S(""));
        oq_iso_put_text(&body, json[i]);
        oq_iso_put(&body, 0);
        add_frame(&frames, OQ_ISO_DONE, &body);
        assert_fails(hear(&job, 16u << 20, &frames), ONQ_E_RUNTIME, err, "not a valid message");
    }

    /* Files without an end. */
    body.n = frames.n = 0;
    oq_iso_put_text(&body, OQ_S("output"));
    oq_iso_put_text(&body, OQ_S("made"));
    oq_iso_put(&body, UINT64_MAX);
    add_frame(&frames, OQ_ISO_FILE, &body);
    assert_fails(hear(&job, 16u << 20, &frames), ONQ_E_READ, err, "is gone");
    for (size_t i = 0; i < 5000; i++) {
        oq_iso_put(&frames, OQ_ISO_PART);
        oq_iso_put(&frames, 0);
    }
    assert_fails(hear(&job, 1u << 20, &frames), ONQ_E_LIMIT, err, "more than the 1 MB it may have");

    oq_buf_release(&frames);
    oq_buf_release(&body);
    oq_files_release(&job.files);
    oq_buf_release(&job.text);
    oq_buf_release(&job.json_text);
    oq_arena_release(&job.arena);
    onq_options_free(o);
    end_world(&w);
}

/* A worker that never lets the caller wait does not outlive its time. */
static onq_code limited_times(void *ctx, onq_error *e) {
    int *left = ctx;
    return (*left)-- > 0 ? ONQ_OK : oq_fail(e, ONQ_E_LIMIT, "too long");
}

static void a_flood_is_ended(void **state) {
    (void)state;
    int ends[2], left = 6;
    size_t n_frames = 0;
    oq_iso_kind kind;
    oq_buf body;
    onq_code rc = ONQ_OK;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    const oq_iso_end from = {.handle = ends[0]};
    const oq_iso_end to = {
        .handle = ends[1], .is_caller = true, .go_on = limited_times, .ctx = &left};
    oq_buf_init(&body, oq_alloc_default());
    for (int i = 0; i < 100; i++)
        assert_ok(oq_iso_send(&from, OQ_ISO_PROGRESS, "progress", 8, &err), err);
    while (rc == ONQ_OK && n_frames < 100) {
        rc = oq_iso_receive(&to, &kind, &body, &err);
        n_frames += rc == ONQ_OK;
    }
    assert_fails(rc, ONQ_E_LIMIT, err, "too long");
    assert_int_equal(n_frames, 3); /* head and body of each */
    oq_buf_release(&body);
    close(ends[0]);
    close(ends[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flood_is_ended),
        cmocka_unit_test(from_memory_to_memory),
        cmocka_unit_test(external_data),
        cmocka_unit_test(readers_and_ranges),
        cmocka_unit_test(readers_that_fail),
        cmocka_unit_test(stopping),
        cmocka_unit_test(stopping_early),
        cmocka_unit_test(only_whole_commands),
        cmocka_unit_test(frames),
        cmocka_unit_test(lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
