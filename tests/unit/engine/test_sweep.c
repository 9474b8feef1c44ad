/*
 * test_sweep.c — samples that run through models: each once, taken in order, one after another or
 * several at once; errors that name the sample, progress and cancel, no threads, no memory.
 */
#include "engine/sweep.h"

#include "build_model.h"
#include "callback_source.h"
#include "fake_engine.h"
#include "flaky_alloc.h"
#include "no_threads.h"
#include "testing.h"

#include <stdio.h>
#include <unistd.h>

#define SAMPLES 40
#define NEVER   UINT64_MAX

typedef struct rig {
    bm b;
    fake_engine engine;
    oq_session *session;
    oq_source *source, *beside;
    uint64_t unreadable; /* the sample that cannot be read */
    unsigned lanes;      /* that `ask` gives */
    uint64_t alone;      /* samples that run alone before */
    uint64_t fail_from;  /* samples that fail: this one and all after it */
    int runs[SAMPLES];   /* by sample */
    int busy[8];         /* by lane: a sample runs there */
    uint64_t n_taken;
    uint64_t take_fails; /* the sample that cannot be taken */
    uint64_t most;       /* samples that are wanted */
    float sums[SAMPLES]; /* of the outputs, by sample */
    uint64_t told[SAMPLES + 2], total;
    size_t n_told, cancel_at; /* 1: the first */
} rig;

static onq_error err;

static onq_code give(void *ctx, uint64_t k, oq_arena *a, oq_datum *inputs, onq_error *e) {
    const rig *g = ctx;
    static const int64_t dims[] = {2};
    float *v = oq_arena_array(a, 2, sizeof *v);
    if (v == NULL)
        return oq_fail_nomem(e);
    if (k == g->unreadable)
        return oq_fail(e, ONQ_E_READ, "cannot be read");
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

static onq_code open_sources(rig *g) {
    const oq_source_options o = {.model = g->b.m};
    OQ_TRY(callback_source_open(g->b.m->env, &o, give, g, SAMPLES, &g->source, &err));
    return callback_source_open(g->b.m->env, &o, give, g, SAMPLES, &g->beside, &err);
}

static onq_code rig_open(rig *g, const onq_allocator *alloc) {
    *g = (rig){
        .unreadable = NEVER, .lanes = 1, .fail_from = NEVER, .take_fails = NEVER, .most = NEVER};
    bm_begin(&g->b, alloc, 13);
    if (g->b.m == NULL)
        return oq_fail_nomem(&err);
    bm_input(&g->b, "x", OQ_FLOAT, "2");
    bm_node(&g->b, "Neg", "neg", "x", "y", NULL);
    bm_output(&g->b, "y", OQ_FLOAT, "2");
    if (g->b.failed)
        return oq_fail_nomem(&err);
    fake_engine_init(&g->engine, g->b.env);
    const oq_session_options o = {.model = g->b.m};
    OQ_TRY(oq_session_open(&g->engine.base, &o, &g->session, &err));
    return open_sources(g);
}

static void rig_close(rig *g) {
    oq_session_close(g->session);
    oq_source_close(g->source);
    oq_source_close(g->beside);
    assert_int_equal(g->engine.n_open, 0);
    bm_end(&g->b);
}

/* ---- lanes of the caller's ---- */

/* The second source has the same samples; early ones take longer than late ones. */
static onq_code run(void *ctx, const oq_turn *t, onq_error *e) {
    rig *g = ctx;
    const oq_sample *s = t->samples;
    assert_int_equal(__atomic_add_fetch(&g->busy[t->lane], 1, __ATOMIC_SEQ_CST), 1);
    assert_true(t->at >= g->alone || t->lane == 0);
    for (size_t i = 0; i < t->sweep->n_models; i++) {
        assert_int_equal(s[i].number, t->at);
        assert_true(((const float *)s[i].inputs[0].data)[1] == (float)t->at);
    }
    if (t->at % 4 == 0)
        usleep(500);
    __atomic_add_fetch(&g->runs[t->at], 1, __ATOMIC_SEQ_CST);
    __atomic_sub_fetch(&g->busy[t->lane], 1, __ATOMIC_SEQ_CST);
    return t->at >= g->fail_from ? oq_fail(e, ONQ_E_RUNTIME, "sample %d fails", (int)t->at)
                                 : ONQ_OK;
}

static onq_code take(void *ctx, const oq_turn *t, onq_error *e) {
    rig *g = ctx;
    assert_int_equal(t->at, g->n_taken++);
    return t->at == g->take_fails ? oq_fail(e, ONQ_E_WRITE, "not taken") : ONQ_OK;
}

static onq_code ask(void *ctx, uint64_t at, unsigned *n, onq_error *e) {
    const rig *g = ctx;
    (void)e;
    assert_int_equal(*n, 1);
    *n = at < g->alone ? 1 : g->lanes;
    return ONQ_OK;
}

static onq_code sweep(rig *g, unsigned lanes, uint64_t from, uint64_t n) {
    const oq_sweep_model models[] = {{.source = g->source}, {.source = g->beside}};
    const oq_sweep s = {.env = g->b.env,
                        .models = models,
                        .n_models = 2,
                        .ctx = g,
                        .from = from,
                        .n = n,
                        .run = run,
                        .take = from == 0 ? take : NULL,
                        .lanes = ask};
    g->lanes = lanes;
    return oq_sweep_run(&s, &err);
}

static void each_sample_once(void **state) {
    (void)state;
    for (int refused = 0; refused < 2; refused++) {
        for (unsigned lanes = 1; lanes <= 7; lanes += 3) {
            rig g;
            assert_ok(rig_open(&g, NULL), err);
            g.alone = lanes - 1;
            no_threads(refused == 1);
            assert_ok(sweep(&g, lanes, 0, SAMPLES - 3), err);
            assert_ok(sweep(&g, lanes, SAMPLES - 3, 0), err);
            no_threads(false);
            for (int i = 0; i < SAMPLES; i++)
                assert_int_equal(g.runs[i], 1);
            assert_int_equal(g.n_taken, SAMPLES - 3);
            assert_fails(sweep(&g, lanes, SAMPLES - 1, 3), ONQ_E_READ, err,
                         "ended after 40 of 42 samples");
            rig_close(&g);
        }
    }
}

/* Whichever ends first; and none is taken after it. */
static void first_failure(void **state) {
    (void)state;
    for (unsigned lanes = 1; lanes <= 7; lanes++) {
        rig g;
        assert_ok(rig_open(&g, NULL), err);
        g.fail_from = 11;
        assert_int_equal(sweep(&g, lanes, 0, 0), ONQ_E_RUNTIME);
        assert_string_equal(err.text, "sample 11 fails");
        assert_int_equal(g.n_taken, 11);
        rig_close(&g);
        assert_ok(rig_open(&g, NULL), err);
        g.take_fails = 5;
        assert_int_equal(sweep(&g, lanes, 0, 0), ONQ_E_WRITE);
        assert_string_equal(err.text, "sample '5': not taken");
        assert_int_equal(g.n_taken, 6);
        rig_close(&g);
    }
}

/* ---- whole sequences ---- */

typedef struct walking {
    rig g;
    unsigned lane_of[SAMPLES]; /* by sequence */
    int steps[SAMPLES];        /* that ran */
    uint64_t taken[OQ_SWEEP_SLOTS];
    uint64_t n_ended, end_fails;
} walking;

#define STEPS 7 /* the last sequence has fewer */

static onq_code run_step(void *ctx, const oq_turn *t, onq_error *e) {
    walking *w = ctx;
    const oq_sample *s = t->samples;
    assert_int_equal(s->number, t->at);
    assert_true(((const float *)s->inputs[0].data)[1] == (float)t->at);
    if (s->step == 0)
        w->lane_of[s->sequence] = t->lane;
    assert_int_equal(w->lane_of[s->sequence], t->lane);
    assert_int_equal(w->steps[s->sequence]++, s->step);
    usleep(100);
    return run(&w->g, t, e);
}

/* Steps of a sequence in its slot, in their order. */
static onq_code take_step(void *ctx, const oq_turn *t, onq_error *e) {
    walking *w = ctx;
    (void)e;
    assert_int_equal(t->slot, t->samples[0].sequence % OQ_SWEEP_SLOTS);
    assert_int_equal(w->taken[t->slot]++, t->samples[0].step);
    return ONQ_OK;
}

/* Sequences in their order, each with all its steps. */
static onq_code end_sequence(void *ctx, unsigned slot, onq_error *e) {
    walking *w = ctx;
    const uint64_t k = w->n_ended++;
    assert_int_equal(slot, k % OQ_SWEEP_SLOTS);
    assert_int_equal(w->taken[slot], (k + 1) * STEPS <= SAMPLES ? STEPS : SAMPLES % STEPS);
    w->taken[slot] = 0;
    return k == w->end_fails ? oq_fail(e, ONQ_E_WRITE, "sequence %d is not joined", (int)k)
                             : ONQ_OK;
}

/* Of the first step that fails; sequences before it are joined. */
static void sequences_are_joined(void **state) {
    (void)state;
    for (unsigned lanes = 1; lanes <= 4; lanes++) {
        walking w = {.end_fails = NEVER};
        assert_ok(rig_open(&w.g, NULL), err);
        const oq_source_options o = {.model = w.g.b.m};
        oq_source_close(w.g.source);
        oq_source_close(w.g.beside);
        assert_ok(callback_source_open_steps(w.g.b.env, &o, give, &w.g, SAMPLES, STEPS, &w.g.source,
                                             &err),
                  err);
        assert_ok(callback_source_open_steps(w.g.b.env, &o, give, &w.g, SAMPLES, STEPS, &w.g.beside,
                                             &err),
                  err);
        const oq_sweep_model models[] = {{.source = w.g.source}, {.source = w.g.beside}};
        const oq_sweep s = {.env = w.g.b.env,
                            .models = models,
                            .n_models = 2,
                            .ctx = &w,
                            .run = run_step,
                            .take = take_step,
                            .end = end_sequence,
                            .lanes = ask,
                            .whole_sequences = true};
        w.g.lanes = lanes;
        assert_ok(oq_sweep_run(&s, &err), err);
        assert_int_equal(w.n_ended, (SAMPLES + STEPS - 1) / STEPS);
        memset(w.steps, 0, sizeof w.steps);
        w.n_ended = 0;
        w.g.fail_from = 23;
        assert_int_equal(oq_sweep_run(&s, &err), ONQ_E_RUNTIME);
        assert_string_equal(err.text, "sample 23 fails");
        assert_int_equal(w.n_ended, 23 / STEPS);
        memset(w.steps, 0, sizeof w.steps);
        memset(w.taken, 0, sizeof w.taken);
        w.n_ended = 0;
        w.g.fail_from = NEVER;
        w.end_fails = 2;
        assert_int_equal(oq_sweep_run(&s, &err), ONQ_E_WRITE);
        assert_string_equal(err.text, "sequence 2 is not joined");
        assert_int_equal(w.n_ended, 3);
        rig_close(&w.g);
    }
}

static void sequences_in_lanes(void **state) {
    (void)state;
    for (unsigned lanes = 1; lanes <= 4; lanes++) {
        walking w = {0};
        assert_ok(rig_open(&w.g, NULL), err);
        const oq_source_options o = {.model = w.g.b.m};
        oq_source_close(w.g.source);
        assert_ok(callback_source_open_steps(w.g.b.env, &o, give, &w.g, SAMPLES, STEPS, &w.g.source,
                                             &err),
                  err);
        w.g.lanes = lanes;
        w.g.alone = 1; /* in the middle of a sequence nothing changes */
        const oq_sweep s = {.env = w.g.b.env,
                            .model = {.source = w.g.source},
                            .ctx = &w,
                            .run = run_step,
                            .lanes = ask,
                            .whole_sequences = true};
        assert_ok(oq_sweep_run(&s, &err), err);
        for (int i = 0; i < SAMPLES; i++)
            assert_int_equal(w.g.runs[i], 1);
        for (int i = 0; i * STEPS < SAMPLES; i++)
            assert_int_equal(w.steps[i], (i + 1) * STEPS <= SAMPLES ? STEPS : SAMPLES % STEPS);
        memset(w.g.runs, 0, sizeof w.g.runs);
        memset(w.steps, 0, sizeof w.steps);
        w.g.fail_from = 23;
        assert_fails(oq_sweep_run(&s, &err), ONQ_E_RUNTIME, err, "fails");
        rig_close(&w.g);
    }
}

/* ---- sessions of the sweep's ---- */

static onq_code add(void *ctx, const oq_turn *t, onq_error *e) {
    rig *g = ctx;
    (void)e;
    assert_int_equal(t->at, g->n_taken++);
    for (size_t i = 0; i < t->sweep->n_models; i++) {
        const float *y = t->outputs[i].v[0].data;
        g->sums[t->at] += y[0] + y[1];
    }
    return ONQ_OK;
}

static bool more(void *ctx, uint64_t at) {
    return at < ((const rig *)ctx)->most;
}

static int count_told(void *ctx, const char *what, uint64_t done, uint64_t total) {
    rig *g = ctx;
    assert_string_equal(what, "sweeping");
    assert_true(g->n_told < OQ_COUNT(g->told));
    g->told[g->n_told++] = done;
    g->total = total;
    return g->n_told == g->cancel_at;
}

static onq_code run_sessions(rig *g, unsigned jobs, size_t n_models) {
    const oq_sweep_model models[] = {
        {.source = g->source, .session = g->session, .path = n_models > 1 ? "a.onnx" : NULL},
        {.source = g->beside, .session = g->session, .path = "b.onnx"}};
    const oq_sweep s = {.env = g->b.env,
                        .models = models,
                        .n_models = n_models,
                        .ctx = g,
                        .more = more,
                        .take = add,
                        .wide = {.model = jobs > 0 ? g->b.m : NULL, .jobs = jobs},
                        .what = "sweeping"};
    return oq_sweep_run(&s, &err);
}

/* jobs 0: the sweep is not told that samples may run at once. */
static void same_at_once(void **state) {
    (void)state;
    for (unsigned jobs = 0; jobs <= 4; jobs++) {
        rig g;
        assert_ok(rig_open(&g, NULL), err);
        g.most = jobs == 3 ? 2 : NEVER;
        const uint64_t n = g.most < SAMPLES ? g.most : SAMPLES;
        assert_ok(run_sessions(&g, jobs, 1), err);
        assert_int_equal(g.n_taken, n);
        assert_int_equal(g.engine.n_runs, n);
        assert_int_equal(g.engine.n_sessions, jobs > 0 ? jobs : 1);
        assert_int_equal(g.engine.n_open, 1);
        for (uint64_t i = 0; i < n; i++)
            assert_true(g.sums[i] == -2 * (float)i);
        rig_close(&g);
    }
}

static void named_in_errors(void **state) {
    (void)state;
    for (unsigned jobs = 0; jobs <= 1; jobs++) {
        rig g;
        assert_ok(rig_open(&g, NULL), err);
        g.engine.fail_at_run = 4;
        assert_fails(run_sessions(&g, jobs, 1), ONQ_E_RUNTIME, err, "sample '3': ");
        assert_true(strncmp(err.text, "sample", 6) == 0);
        rig_close(&g);
        assert_ok(rig_open(&g, NULL), err);
        g.engine.fail_at_run = 8;
        assert_fails(run_sessions(&g, jobs, 2), ONQ_E_RUNTIME, err, "b.onnx: sample '3': ");
        rig_close(&g);
    }
}

static void unreadable_sample(void **state) {
    rig g;
    (void)state;
    for (unsigned jobs = 0; jobs <= 2; jobs++) {
        assert_ok(rig_open(&g, NULL), err);
        oq_source_close(g.source); /* it may have read ahead */
        oq_source_close(g.beside);
        g.unreadable = 7;
        assert_ok(open_sources(&g), err);
        assert_fails(run_sessions(&g, jobs, 1), ONQ_E_READ, err, "cannot be read");
        assert_non_null(strstr(err.text, "7"));
        assert_true(jobs > 1 || g.n_taken == 7);
        g.n_taken = 0;
        assert_fails(run_sessions(&g, jobs, 2), ONQ_E_READ, err, "a.onnx: ");
        rig_close(&g);
    }
}

static void progress(void **state) {
    rig g;
    (void)state;
    assert_ok(rig_open(&g, NULL), err);
    onq_env_set_progress(g.b.env, count_told, &g);
    assert_ok(run_sessions(&g, 0, 1), err);
    assert_int_equal(g.n_told, SAMPLES + 1);
    for (uint64_t i = 0; i <= SAMPLES; i++)
        assert_int_equal(g.told[i], i);
    assert_int_equal(g.total, SAMPLES);
    g.n_told = g.n_taken = 0;
    g.most = 6;
    assert_ok(run_sessions(&g, 0, 1), err);
    assert_int_equal(g.n_told, 7);
    assert_int_equal(g.told[6], 6);
    g.n_told = g.n_taken = 0;
    g.most = NEVER;
    assert_ok(run_sessions(&g, 3, 1), err); /* some are not reported, and the last is */
    for (size_t i = 1; i < g.n_told; i++)
        assert_true(g.told[i] > g.told[i - 1]);
    assert_int_equal(g.told[g.n_told - 1], SAMPLES);
    rig_close(&g);
}

/* A part of longer work: its third of the samples, each counted four times. */
static void progress_of_a_part(void **state) {
    rig g;
    (void)state;
    assert_ok(rig_open(&g, NULL), err);
    const oq_sweep s = {.env = g.b.env,
                        .model = {.source = g.source, .session = g.session},
                        .from = 10,
                        .n = 2,
                        .what = "sweeping",
                        .done = 100,
                        .each = 4,
                        .total = 500};
    onq_env_set_progress(g.b.env, count_told, &g);
    assert_ok(oq_sweep_run(&s, &err), err);
    assert_int_equal(g.n_told, 3);
    assert_int_equal(g.told[0], 140);
    assert_int_equal(g.told[1], 144);
    assert_int_equal(g.told[2], 148);
    assert_int_equal(g.total, 500);
    rig_close(&g);
}

static void cancel(void **state) {
    (void)state;
    for (unsigned jobs = 0; jobs <= 4; jobs += 2) {
        rig g;
        assert_ok(rig_open(&g, NULL), err);
        onq_env_set_progress(g.b.env, count_told, &g);
        g.cancel_at = 2;
        assert_fails(run_sessions(&g, jobs, 1), ONQ_E_CANCEL, err, "sweeping: cancelled");
        assert_int_equal(g.n_told, 2);
        /* Where all is busy, other lanes may be done before the first gets its second turn. */
        assert_true(jobs > 0 ? g.n_taken <= SAMPLES : g.n_taken == 1);
        rig_close(&g);
    }
}

/* ---- samples in memory ---- */

static void kept_samples(void **state) {
    (void)state;
    for (unsigned jobs = 0; jobs <= 3; jobs++) {
        rig g;
        assert_ok(rig_open(&g, NULL), err);
        const float v[] = {1, 2, 3, 4, 5, 6};
        const int64_t dims[] = {2};
        oq_datum inputs[3];
        oq_sample kept[3];
        for (size_t i = 0; i < 3; i++) {
            inputs[i] = (oq_datum){.kind = OQ_DATUM_TENSOR,
                                   .dtype = OQ_FLOAT,
                                   .rank = 1,
                                   .dims = dims,
                                   .count = 2,
                                   .data = &v[2 * i],
                                   .size_bytes = 8};
            kept[i] = (oq_sample){.name = "kept", .inputs = &inputs[i], .n_inputs = 1};
        }
        const oq_sweep s = {.env = g.b.env,
                            .model = {.kept = kept, .n_kept = 3, .session = g.session},
                            .ctx = &g,
                            .take = add,
                            .wide = {.model = jobs > 0 ? g.b.m : NULL, .jobs = jobs}};
        assert_ok(oq_sweep_run(&s, &err), err);
        assert_int_equal(g.n_taken, 3);
        assert_true(g.sums[0] == -3 && g.sums[1] == -7 && g.sums[2] == -11);
        rig_close(&g);
    }
}

/* ---- how many ---- */

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
    assert_true(oq_os_resident() > 1 << 20);
}

/* ---- no memory ---- */

static onq_code oom_body(const onq_allocator *alloc, void *ctx, onq_error *e) {
    rig g;
    (void)ctx;
    onq_code rc = rig_open(&g, alloc);
    g.most = 4;
    if (rc == ONQ_OK)
        rc = run_sessions(&g, 2, 2);
    assert_true(rc != ONQ_OK || g.n_taken == 4);
    for (uint64_t i = 0; rc == ONQ_OK && i < 4; i++)
        assert_true(g.sums[i] == -4 * (float)i);
    g.n_taken = 0;
    if (rc == ONQ_OK)
        rc = sweep(&g, 2, 0, 3);
    if (rc == ONQ_OK) {
        flaky_give(alloc, g.sums, sizeof g.sums);
        flaky_give(alloc, &g.n_taken, sizeof g.n_taken);
    }
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
        cmocka_unit_test(each_sample_once),     cmocka_unit_test(sequences_in_lanes),
        cmocka_unit_test(sequences_are_joined), cmocka_unit_test(first_failure),
        cmocka_unit_test(same_at_once),         cmocka_unit_test(named_in_errors),
        cmocka_unit_test(unreadable_sample),    cmocka_unit_test(progress),
        cmocka_unit_test(progress_of_a_part),   cmocka_unit_test(cancel),
        cmocka_unit_test(kept_samples),         cmocka_unit_test(lanes_by_memory),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
