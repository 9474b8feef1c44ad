/*
 * test_flight.c — samples that run at once: each once, folded in order, the first failure, no
 * threads, no memory.
 */
#include "engine/flight.h"

#include "build_model.h"
#include "flaky_alloc.h"
#include "no_threads.h"
#include "testing.h"

#include <stdio.h>
#include <unistd.h>

#define SAMPLES 40

typedef struct rig {
    bm b;
    oq_source *source, *beside;
    uint64_t fail_from;  /* samples that fail: this one and all after it */
    int runs[SAMPLES];   /* by sample */
    int busy[8];         /* by lane: a sample runs there */
    uint64_t place[8];   /* by lane */
    uint64_t folded;     /* samples */
    uint64_t fold_fails; /* the sample that cannot be folded */
} rig;

static onq_error err;

static onq_code give(void *ctx, uint64_t k, oq_arena *a, oq_datum *inputs, onq_error *e) {
    (void)ctx;
    static const int64_t dims[] = {2};
    float *v = oq_arena_array(a, 2, sizeof *v);
    if (v == NULL)
        return oq_fail_nomem(e);
    v[0] = v[1] = (float)k;
    inputs[0] = (oq_datum){.kind = OQ_DATUM_TENSOR,
                           .dtype = OQ_FLOAT,
                           .rank = 1,
                           .dims = dims,
                           .count = 2,
                           .data = v,
                           .size_bytes = 8};
    return ONQ_OK;
}

static onq_code run(void *ctx, unsigned lane, const oq_sample *s, onq_error *e) {
    rig *g = ctx;
    assert_int_equal(__atomic_add_fetch(&g->busy[lane], 1, __ATOMIC_SEQ_CST), 1);
    assert_true(((const float *)s->inputs[0].data)[1] == (float)s->number);
    __atomic_add_fetch(&g->runs[s->number], 1, __ATOMIC_SEQ_CST);
    __atomic_sub_fetch(&g->busy[lane], 1, __ATOMIC_SEQ_CST);
    return s->number >= g->fail_from ? oq_fail(e, ONQ_E_RUNTIME, "sample %d fails", (int)s->number)
                                     : ONQ_OK;
}

/* The second source has the same samples; early ones take longer than late ones. */
static onq_code run_both(void *ctx, unsigned lane, const oq_sample *s, onq_error *e) {
    rig *g = ctx;
    assert_int_equal(s[0].number, s[1].number);
    assert_int_equal(g->place[lane], s->number);
    assert_true(((const float *)s[1].inputs[0].data)[1] == (float)s->number);
    if (s->number % 4 == 0)
        usleep(500);
    return run(ctx, lane, s, e);
}

static onq_code fold(void *ctx, unsigned lane, const oq_sample *s, onq_error *e) {
    rig *g = ctx;
    assert_int_equal(g->place[lane], s->number);
    assert_int_equal(s[1].number, g->folded++);
    return s->number == g->fold_fails ? oq_fail(e, ONQ_E_WRITE, "not folded") : ONQ_OK;
}

static onq_code rig_open(rig *g, const onq_allocator *alloc) {
    *g = (rig){.fail_from = UINT64_MAX, .fold_fails = UINT64_MAX};
    bm_begin(&g->b, alloc, 13);
    if (g->b.m == NULL)
        return oq_fail_nomem(&err);
    bm_input(&g->b, "x", OQ_FLOAT, "2");
    const oq_source_options o = {.model = g->b.m};
    OQ_TRY(oq_source_open_callback(g->b.m->env, &o, give, g, SAMPLES, &g->beside, &err));
    return oq_source_open_callback(g->b.m->env, &o, give, g, SAMPLES, &g->source, &err);
}

static void rig_close(rig *g) {
    oq_source_close(g->source);
    oq_source_close(g->beside);
    bm_end(&g->b);
}

static onq_code fly(rig *g, unsigned lanes, uint64_t n) {
    const oq_flight f = {
        .env = g->b.m->env, .source = g->source, .n_lanes = lanes, .run = run, .ctx = g};
    return oq_flight_run(&f, n, "flying", 0, SAMPLES, &err);
}

static void each_sample_once(void **state) {
    (void)state;
    for (int refused = 0; refused < 2; refused++) {
        for (unsigned lanes = 1; lanes <= 7; lanes += 3) {
            rig g;
            assert_ok(rig_open(&g, NULL), err);
            no_threads(refused == 1);
            assert_ok(fly(&g, lanes, SAMPLES - 3), err);
            assert_ok(fly(&g, lanes, 3), err); /* goes on where it was */
            no_threads(false);
            for (int i = 0; i < SAMPLES; i++)
                assert_int_equal(g.runs[i], 1);
            assert_int_equal(fly(&g, lanes, 1), ONQ_E_READ);
            assert_non_null(strstr(err.text, "ended after 0 of 40 samples"));
            rig_close(&g);
        }
    }
}

/* Whichever ends first. */
static void first_failure(void **state) {
    (void)state;
    for (unsigned lanes = 1; lanes <= 7; lanes++) {
        rig g;
        assert_ok(rig_open(&g, NULL), err);
        g.fail_from = 11;
        assert_int_equal(fly(&g, lanes, SAMPLES), ONQ_E_RUNTIME);
        assert_string_equal(err.text, "sample 11 fails");
        rig_close(&g);
    }
}

static onq_code fly_in_order(rig *g, unsigned lanes, uint64_t n) {
    const oq_flight f = {.env = g->b.m->env,
                         .source = g->source,
                         .beside = g->beside,
                         .n_lanes = lanes,
                         .run = run_both,
                         .fold = fold,
                         .place = g->place,
                         .ctx = g};
    return oq_flight_run(&f, n, "flying", 0, SAMPLES, &err);
}

/* One after the other and each once, up to the first that fails. */
static void folded_in_order(void **state) {
    (void)state;
    for (int refused = 0; refused < 2; refused++) {
        for (unsigned lanes = 1; lanes <= 7; lanes += 3) {
            rig g;
            assert_ok(rig_open(&g, NULL), err);
            no_threads(refused == 1);
            assert_ok(fly_in_order(&g, lanes, OQ_FLIGHT_ALL), err);
            no_threads(false);
            assert_int_equal(g.folded, SAMPLES);
            rig_close(&g);
        }
    }
    for (unsigned lanes = 1; lanes <= 7; lanes++) {
        rig g;
        assert_ok(rig_open(&g, NULL), err);
        g.fail_from = 11;
        assert_int_equal(fly_in_order(&g, lanes, OQ_FLIGHT_ALL), ONQ_E_RUNTIME);
        assert_string_equal(err.text, "sample 11 fails");
        assert_int_equal(g.folded, 11);
        rig_close(&g);
        assert_ok(rig_open(&g, NULL), err);
        g.fold_fails = 5;
        assert_int_equal(fly_in_order(&g, lanes, OQ_FLIGHT_ALL), ONQ_E_WRITE);
        assert_int_equal(g.folded, 6);
        rig_close(&g);
    }
}

static void lanes_by_memory(void **state) {
    (void)state;
    onq_env *env = onq_env_new(NULL);
    onq_env_set_threads(env, 4);
    assert_int_equal(oq_flight_lanes(env, 0, 0), 4);
    assert_int_equal(oq_flight_lanes(env, 100, 0), 1);
    assert_int_equal(oq_flight_lanes(env, 100, 250), 3);
    assert_int_equal(oq_flight_lanes(env, 100, 10000), 4);
    onq_env_set_threads(env, 1000);
    assert_int_equal(oq_flight_lanes(env, 1, 10000), 16);
    onq_env_free(env);
    assert_true(oq_flight_resident() > 1 << 20);
}

static onq_code oom_body(const onq_allocator *alloc, void *ctx, onq_error *e) {
    rig g;
    (void)ctx;
    onq_code rc = rig_open(&g, alloc);
    if (rc == ONQ_OK)
        rc = fly_in_order(&g, 2, 3);
    if (rc == ONQ_OK)
        flaky_give(alloc, &g.folded, sizeof g.folded);
    rig_close(&g);
    *e = err;
    return rc;
}

static void out_of_memory(void **state) {
    (void)state;
    assert_true(flaky_sweep(oom_body, NULL) > 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sample_once), cmocka_unit_test(first_failure),
        cmocka_unit_test(folded_in_order),  cmocka_unit_test(lanes_by_memory),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
