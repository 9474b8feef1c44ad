/*
 * test_clock.c — which samples say how long a model takes.
 */
#include "build_model.h"
#include "fake_engine.h"
#include "testing.h"
#include "tune/trial.h"

#define N    8
#define ROWS 2048

/* One product of [n,8]. */
static void fill(bm *b) {
    static float w[8 * 8] = {1};
    bm_begin(b, NULL, 13);
    bm_input(b, "x", OQ_FLOAT, "n,8");
    bm_f32(b, "w", "8,8", w);
    bm_node(b, "MatMul", "mm", "x w", "y", "");
    bm_output(b, "y", OQ_FLOAT, "n,8");
}

/* Samples of so many rows; their time, and how many runs it took. */
static double time_of(const int64_t *rows, long *n_runs) {
    static float values[ROWS * 8];
    int64_t dims[N][2];
    oq_datum inputs[N];
    oq_meaning meaning = {.n = 1};
    oq_session *session = NULL;
    onq_error err = ONQ_ERROR_INIT;
    oq_trials set;
    fake_engine engine;
    bm b;
    fill(&b);
    fake_engine_init(&engine, b.env);
    oq_trials_init(&set, oq_alloc_default(), &meaning);
    for (size_t i = 0; i < N; i++) {
        dims[i][0] = rows[i];
        dims[i][1] = 8;
        inputs[i] = (oq_datum){.kind = OQ_DATUM_TENSOR,
                               .dtype = OQ_FLOAT,
                               .rank = 2,
                               .dims = dims[i],
                               .count = (uint64_t)rows[i] * 8,
                               .data = values,
                               .size_bytes = (uint64_t)rows[i] * 8 * sizeof *values};
        const oq_trial_step step = {.sample = {.number = i, .inputs = &inputs[i], .n_inputs = 1}};
        assert_true(OQ_PUSH(&set.arena, &set.steps, step));
        assert_true(OQ_PUSH(&set.arena, &set.all, ((oq_trial){i, 1})));
    }
    set.seconds = 1000; /* so long that as few as possible are taken */
    const oq_session_options o = {.model = b.m};
    assert_ok(oq_session_open(&engine.base, &o, &session, &err), err);
    double ms = 0;
    const oq_clocking clocking = {.sessions = &session, .ms = &ms, .n = 1, .own_time = true};
    assert_ok(oq_trials_clock(&set, &clocking, &err), err);
    *n_runs = engine.n_runs;
    oq_session_close(session);
    oq_trials_release(&set);
    bm_end(&b);
    return ms;
}

/* In whichever order samples come, their time is about the same. */
static void spread(void **state) {
    static const int64_t rising[] = {1, 1, 1, 1, ROWS, ROWS, ROWS, ROWS},
                         falling[] = {ROWS, ROWS, ROWS, ROWS, 1, 1, 1, 1};
    long n_runs = 0;
    (void)state;
    const double a = time_of(rising, &n_runs), b = time_of(falling, &n_runs);
    assert_int_equal(n_runs, 2 * OQ_CLOCK_ROUNDS);
    assert_true(a < 5 * b && b < 5 * a); /* one row takes a thousandth of it */
}

/* Samples that are alike need but one. */
static void alike(void **state) {
    static const int64_t rows[] = {9, 9, 9, 9, 9, 9, 9, 9};
    long n_runs = 0;
    (void)state;
    assert_true(time_of(rows, &n_runs) > 0);
    assert_int_equal(n_runs, OQ_CLOCK_ROUNDS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spread),
        cmocka_unit_test(alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
