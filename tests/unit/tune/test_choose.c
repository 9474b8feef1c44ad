/*
 * test_choose.c — targets, which candidate is taken, the curve, and commands that a shell reads as they
 * were meant.
 */
#include "build_model.h"
#include "testing.h"
#include "tune/choose.h"

#include <math.h>

/* ---- choosing ---- */

typedef struct row {
    const char *command;
    double ms, agreement, db;
    uint64_t size;
    double ms_noise;
    size_t n_options;
} row;

static void fill(bm *b, oq_candidates *all, const row *rows, size_t n) {
    *all = (oq_candidates){0};
    for (size_t i = 0; i < n; i++) {
        oq_candidate *c = OQ_NEW(b->a, oq_candidate);
        *c = (oq_candidate){.label = "",
                            .recipe = {.command = rows[i].command},
                            .exact = rows[i].command == NULL,
                            .ok = true,
                            .path = "",
                            .size = rows[i].size,
                            .ms = rows[i].ms,
                            .ms_noise = rows[i].ms_noise,
                            .score = {.objective = rows[i].db, .samples = 100, .rows = 100}};
        for (size_t k = 0; k < OQ_METRICS; k++)
            c->score.figures[k] = (oq_figure){NAN, NAN, NAN};
        c->score.figures[OQ_METRIC_AGREEMENT] =
            (oq_figure){rows[i].agreement, rows[i].agreement, rows[i].agreement};
        c->score.figures[OQ_METRIC_SQNR] = (oq_figure){rows[i].db, rows[i].db, rows[i].db};
        for (size_t k = 0; k < rows[i].n_options; k++)
            assert_true(OQ_PUSH(b->a, &c->recipe.options, (oq_recipe_option){"option", NULL}));
        assert_true(OQ_PUSH(b->a, all, c));
    }
}

static size_t taken(bm *b, const row *rows, size_t n, oq_metric metric, double value,
                    oq_prefer prefer, bool *reached) {
    oq_candidates all;
    oq_targets t = {0};
    fill(b, &all, rows, n);
    assert_true(OQ_PUSH(b->a, &t, (oq_target){metric, value}));
    const oq_candidate *c = oq_choose(&all, &t, prefer, reached);
    for (size_t i = 0; i < n; i++)
        if (all.v[i] == c)
            return i;
    return n;
}

static void choices(void **state) {
    static const row rows[] = {
        {NULL, 10, 100, INFINITY, 40, 0, 0},   {"static", 5.05, 99.5, 25, 10, .06, 0},
        {"static", 5.0, 99.2, 20, 10, .06, 0}, {"static", 4.0, 97, 15, 10, 0, 0},
        {"dynamic", 9.0, 99.9, 40, 9, 0, 0},   {"static", 12, 100, 50, 8, 0, 0},
    };
    bm b;
    bool reached;
    (void)state;
    bm_begin(&b, NULL, 13);
    const size_t n = OQ_COUNT(rows);
    /* As fast as the fastest that reaches it, but for noise: the most accurate. */
    assert_int_equal(taken(&b, rows, n, OQ_METRIC_AGREEMENT, 99, OQ_PREFER_SPEED, &reached), 1);
    assert_true(reached);
    assert_int_equal(taken(&b, rows, n, OQ_METRIC_AGREEMENT, 90, OQ_PREFER_SPEED, &reached), 3);
    /* The last is the smallest and the most accurate, but slower than float. */
    assert_int_equal(taken(&b, rows, n, OQ_METRIC_AGREEMENT, 99, OQ_PREFER_SIZE, &reached), 4);
    assert_int_equal(taken(&b, rows, n, OQ_METRIC_AGREEMENT, 99, OQ_PREFER_ACCURACY, &reached), 4);
    assert_int_equal(taken(&b, rows, n, OQ_METRIC_SQNR, 45, OQ_PREFER_SIZE, &reached), 5);
    assert_int_equal(taken(&b, rows, n, OQ_METRIC_SQNR, 22, OQ_PREFER_SPEED, &reached), 1);
    /* What reaches it is slower than float: float. */
    assert_int_equal(taken(&b, rows, n, OQ_METRIC_SQNR, 45, OQ_PREFER_SPEED, &reached), 0);
    assert_true(reached);
    /* Nothing in integers reaches it: float, and it says so. */
    assert_int_equal(taken(&b, rows, n, OQ_METRIC_SQNR, 200, OQ_PREFER_SPEED, &reached), 0);
    assert_false(reached);
    assert_int_equal(taken(&b, rows, n, OQ_METRIC_SQNR, 200, OQ_PREFER_SIZE, &reached), 0);
    bm_end(&b);
}

/* What comes nearest is neither slower than float nor wrong. */
static void nearest(void **state) {
    static const row rows[] = {{NULL, 10, 100, INFINITY, 40, 0, 0},
                               {"static", 9, 97, 25, 10, 0, 0},
                               {"static", 12, 99, 35, 10, 0, 0},
                               {"static", 1, 0, -INFINITY, 10, 0, 0}};
    oq_candidates all;
    oq_targets t = {0};
    bm b;
    (void)state;
    bm_begin(&b, NULL, 13);
    fill(&b, &all, rows, OQ_COUNT(rows));
    assert_ptr_equal(oq_choose_nearest(&all, &t), all.v[1]);
    all.v[1]->ok = false;
    assert_null(oq_choose_nearest(&all, &t));
    /* Numbers of classes have no noise: what the target asks for decides. */
    static const row numbers[] = {{"static", 9, 90, INFINITY, 10, 0, 0},
                                  {"static", 9, 95, INFINITY, 10, 0, 1},
                                  {"static", 9, 93, INFINITY, 10, 0, 0}};
    fill(&b, &all, numbers, OQ_COUNT(numbers));
    assert_true(OQ_PUSH(b.a, &t, (oq_target){OQ_METRIC_AGREEMENT, 99}));
    assert_ptr_equal(oq_choose_nearest(&all, &t), all.v[1]);
    bm_end(&b);
}

/* A target that is a little lower, where much faster ones reach it without a doubt; with it one of
 * them is taken, or a better one. */
static void cheaper(void **state) {
    static const row rows[] = {
        {NULL, 10, 100, INFINITY, 40, 0, 0},   {"static", 8, 99.2, 32, 10, 0, 0},
        {"static", 4.6, 96.4, 22, 10, 0, 0},   {"static", 4.8, 98.4, 27.5, 10, 0, 0},
        {"static", 4.7, 98.1, 27.2, 10, 0, 0}, {"static", 7, 98.9, 31, 10, 0, 0},
        {"static", 3, 0, -INFINITY, 10, 0, 0},
    };
    double value = 0;
    oq_candidates all;
    oq_targets t = {0};
    bm b;
    bool reached;
    (void)state;
    bm_begin(&b, NULL, 13);
    fill(&b, &all, rows, OQ_COUNT(rows));
    assert_true(OQ_PUSH(b.a, &t, (oq_target){OQ_METRIC_AGREEMENT, 99}));
    const oq_candidate *taken_now = oq_choose(&all, &t, OQ_PREFER_SPEED, &reached);
    assert_ptr_equal(taken_now, all.v[1]);
    assert_ptr_equal(oq_choose_cheaper(&all, &t, taken_now, &value), all.v[4]);
    assert_true(value == 98);
    oq_targets lower = {0};
    assert_true(OQ_PUSH(b.a, &lower, (oq_target){OQ_METRIC_AGREEMENT, value}));
    assert_true(oq_choose(&all, &lower, OQ_PREFER_SPEED, &reached)->ms <= all.v[4]->ms && reached);
    /* Of what was measured twice the lower bound counts. */
    all.v[4]->doubted = all.v[3]->doubted = true;
    all.v[4]->report = all.v[3]->report = all.v[4]->score;
    all.v[4]->report.figures[OQ_METRIC_AGREEMENT].bound = 95;
    assert_ptr_equal(oq_choose_cheaper(&all, &t, taken_now, &value), all.v[3]);
    all.v[3]->report.figures[OQ_METRIC_AGREEMENT].bound = 97.9;
    assert_ptr_equal(oq_choose_cheaper(&all, &t, taken_now, &value), all.v[3]);
    assert_true(value == 97);
    all.v[3]->partly = true;
    assert_ptr_equal(oq_choose_cheaper(&all, &t, taken_now, &value), all.v[2]);
    assert_true(value == 96);
    /* Too far below; nothing is much faster; dB; more than one target. */
    t.v[0].value = 99.5;
    assert_null(oq_choose_cheaper(&all, &t, taken_now, &value));
    t.v[0].value = 99;
    assert_null(oq_choose_cheaper(&all, &t, all.v[2], &value));
    t.v[0] = (oq_target){OQ_METRIC_SQNR, 25};
    assert_ptr_equal(oq_choose_cheaper(&all, &t, taken_now, &value), all.v[2]);
    assert_true(value == 22);
    assert_true(OQ_PUSH(b.a, &t, (oq_target){OQ_METRIC_AGREEMENT, 99}));
    assert_null(oq_choose_cheaper(&all, &t, taken_now, &value));
    bm_end(&b);
}

/* Noise makes times equal, but never more than 2 % of one. */
static void noise_decides_nothing(void **state) {
    static const double times[] = {5.0, 5.04, 5.08, 5.099};
    row rows[] = {{"static", 5, 99.5, 25, 10, 0.05, 2}, {"static", 0, 99.6, 30, 10, 0.05, 3}};
    bm b;
    bool reached;
    (void)state;
    bm_begin(&b, NULL, 13);
    for (size_t i = 0; i < OQ_COUNT(times); i++) {
        rows[1].ms = times[i];
        assert_int_equal(taken(&b, rows, 2, OQ_METRIC_SQNR, 20, OQ_PREFER_SPEED, &reached), 1);
    }
    /* Beyond the noise, and without any noise at all, the faster one. */
    rows[1].ms = 5.11;
    assert_int_equal(taken(&b, rows, 2, OQ_METRIC_SQNR, 20, OQ_PREFER_SPEED, &reached), 0);
    rows[1].ms = 5.04;
    rows[0].ms_noise = rows[1].ms_noise = 0;
    assert_int_equal(taken(&b, rows, 2, OQ_METRIC_SQNR, 20, OQ_PREFER_SPEED, &reached), 0);
    /* A time that is nothing but noise is not equal to every other. */
    rows[1].ms = 9;
    rows[1].ms_noise = 8;
    assert_int_equal(taken(&b, rows, 2, OQ_METRIC_SQNR, 20, OQ_PREFER_SPEED, &reached), 0);
    bm_end(&b);
}

/* Equally fast and accurate: the simpler recipe, then the one that was tried first. */
static void simpler_first(void **state) {
    static const row rows[] = {{"static", 5.0, 99.5, 25, 10, .1, 3},
                               {"static", 4.99, 99.5, 25, 10, .1, 2},
                               {"static", 4.98, 99.5, 25, 10, .1, 2}};
    bm b;
    bool reached;
    (void)state;
    bm_begin(&b, NULL, 13);
    assert_int_equal(taken(&b, rows, 3, OQ_METRIC_SQNR, 20, OQ_PREFER_SPEED, &reached), 1);
    assert_int_equal(taken(&b, rows, 3, OQ_METRIC_SQNR, 20, OQ_PREFER_ACCURACY, &reached), 1);
    bm_end(&b);
}

/* A decoder that is faster with tokens may be a quarter slower with a text, and no more. */
static void decoders(void **state) {
    static const double texts[] = {99, 100, 125, 126, 1000};
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(texts); i++) {
        oq_candidate flt = {.label = "float", .exact = true, .ok = true, .ms = 10};
        oq_candidate made = {.label = "made", .recipe = {.command = "nbits"}, .ok = true, .ms = 5};
        oq_candidate *v[] = {&flt, &made};
        const oq_candidates all = {v, 2, 2};
        oq_target target = {OQ_METRIC_SQNR, 20};
        const oq_targets t = {&target, 1, 1};
        bool reached = false;
        flt.prefill_ms = 100;
        made.prefill_ms = texts[i];
        flt.score = made.score = oq_score_none();
        oq_score_set(&made.score, OQ_METRIC_SQNR, 30);
        const bool taken = texts[i] <= 125;
        assert_ptr_equal(oq_choose(&all, &t, OQ_PREFER_SPEED, &reached), taken ? &made : &flt);
        assert_true(reached);
        assert_ptr_equal(oq_choose_nearest(&all, &t), taken ? &made : NULL);
        assert_int_equal(oq_is_no_slower(&made, &flt), taken);
    }
}

/* Without the text of a decoder, which takes longer by more than the part, it would be faster. */
static void clearly_faster(void **state) {
    static const struct {
        double ms, noise, prefill;
        bool faster;
    } rows[] = {{9, 0, 0, true},   {9.7, 0, 0, false}, {9, 1.5, 0, false}, {9, 0, 100, true},
                {9, 0, 103, true}, {9, 0, 105, false}, {9, 0, 50, true},   {9.7, 0, 50, false}};
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        const oq_candidate than = {.ms = 10, .prefill_ms = rows[i].prefill > 0 ? 100 : 0};
        const oq_candidate c = {
            .ms = rows[i].ms, .ms_noise = rows[i].noise, .prefill_ms = rows[i].prefill};
        assert_int_equal(oq_is_clearly_faster(&c, &than, 0.04), rows[i].faster);
    }
}

/* Integers that are no faster than float, or by no more than two sessions of float differ, are not
 * worth it; with nothing else float it is. */
static void stays_float(void **state) {
    row rows[] = {{NULL, 10, 100, INFINITY, 40, .1, 0}, {"static", 9.61, 99.5, 25, 10, 0, 0}};
    bm b;
    bool reached;
    (void)state;
    bm_begin(&b, NULL, 13);
    assert_int_equal(taken(&b, rows, 2, OQ_METRIC_AGREEMENT, 99, OQ_PREFER_SPEED, &reached), 0);
    assert_true(reached);
    assert_int_equal(taken(&b, rows, 2, OQ_METRIC_AGREEMENT, 99, OQ_PREFER_SIZE, &reached), 1);
    rows[1].ms = 9.59;
    assert_int_equal(taken(&b, rows, 2, OQ_METRIC_AGREEMENT, 99, OQ_PREFER_SPEED, &reached), 1);
    assert_int_equal(taken(&b, rows, 1, OQ_METRIC_AGREEMENT, 99, OQ_PREFER_SPEED, &reached), 0);
    assert_false(reached);
    bm_end(&b);
}

/* The figure and the bound have to hold; the bound has half a point, or a dB, of slack. */
static void targets(void **state) {
    static const struct {
        oq_metric metric;
        double target, value, bound;
        bool holds;
    } cases[] = {
        {OQ_METRIC_AGREEMENT, 99, 99.2, 98.5, true},
        {OQ_METRIC_AGREEMENT, 99, 98.58, 98.58, false},
        {OQ_METRIC_AGREEMENT, 99, 100, 98.4, false},
        {OQ_METRIC_SQNR, 30, 31, 29, true},
        {OQ_METRIC_SQNR, 30, 31, 28.9, false},
        {OQ_METRIC_SQNR, 30, 29.9, 29.5, false},
        {OQ_METRIC_KL, 0.1, 0.05, 0.1, true},
        {OQ_METRIC_KL, 0.1, 0.05, 0.11, false},
        {OQ_METRIC_ACCURACY_DROP, 1, 0.5, 1.5, true},
        {OQ_METRIC_ACCURACY_DROP, 1, 2, 2, false},
        {OQ_METRIC_COSINE, 0.99, 0.995, 0.989, false},
        {OQ_METRIC_SQNR, 30, NAN, NAN, false},
    };
    bm b;
    (void)state;
    bm_begin(&b, NULL, 13);
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        oq_targets t = {0};
        oq_score s = {.samples = 10};
        assert_true(OQ_PUSH(b.a, &t, (oq_target){cases[i].metric, cases[i].target}));
        s.figures[cases[i].metric] = (oq_figure){cases[i].value, cases[i].bound, cases[i].value};
        assert_int_equal(oq_targets_hold(&t, &s), cases[i].holds);
        /* More samples help where the figure is there and the bound is not. */
        const bool lacks = cases[i].metric == OQ_METRIC_AGREEMENT && cases[i].value >= 99;
        if (lacks && !cases[i].holds)
            assert_true(oq_samples_needed(&t, &s) > 10);
        if (cases[i].value < 99 && cases[i].metric == OQ_METRIC_AGREEMENT)
            assert_int_equal(oq_samples_needed(&t, &s), 0);
    }
    bm_end(&b);
}

static void curve(void **state) {
    static const row rows[] = {
        {NULL, 10, 100, INFINITY, 40, 0, 0}, {"static", 6, 99, 25, 10, 0, 0},
        {"static", 5, 99, 20, 10, 0, 0},     {"static", 7, 99, 24, 10, 0, 0},
        {"static", 0, 99, 99, 10, 0, 0},
    };
    bm b;
    oq_candidates all;
    oq_targets t = {0};
    size_t order[OQ_COUNT(rows)];
    (void)state;
    bm_begin(&b, NULL, 13);
    fill(&b, &all, rows, OQ_COUNT(rows));
    assert_int_equal(oq_curve(&all, &t, order), 3);
    assert_int_equal(order[0], 2);
    assert_int_equal(order[1], 1);
    assert_int_equal(order[2], 0);
    assert_false(all.v[3]->on_curve);
    assert_false(all.v[4]->on_curve);
    bm_end(&b);
}

/* ---- recipes ---- */

static void commands(void **state) {
    bm b;
    oq_recipe r = {.command = "static"}, copy;
    oq_buf text;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    bm_begin(&b, NULL, 13);
    oq_buf_init(&text, &b.env->alloc);
    assert_ok(oq_recipe_add(&r, b.a, "per_channel", NULL, &err), err);
    assert_ok(oq_recipe_add(&r, b.a, "data", "my data", &err), err);
    assert_ok(oq_recipe_copy(&r, b.a, &copy, &err), err);
    assert_ok(oq_recipe_add(&copy, b.a, "nodes_to_exclude", "it's", &err), err);
    assert_null(oq_recipe_get(&r, "nodes_to_exclude"));
    assert_string_equal(oq_recipe_get(&r, "per_channel"), "");
    oq_recipe_text(&copy, "a.onnx", "$b", &text);
    if (oq_os_shell.quote == '\'')
        assert_string_equal(text.p, "onq static -i a.onnx -o '$b' --per_channel --data 'my data' "
                                    "--nodes_to_exclude 'it'\\''s'");
    else
        assert_string_equal(text.p, "onq static -i a.onnx -o \"$b\" --per_channel --data "
                                    "\"my data\" --nodes_to_exclude \"it's\"");
    oq_buf_release(&text);
    bm_end(&b);
}

/* A figure misses its target for good when it lies further from it than the bound from the figure. */
static void missed(void **state) {
    (void)state;
    static const struct {
        oq_target target;
        oq_figure figure;
        bool missed;
    } rows[] = {
        {{OQ_METRIC_SQNR, 30}, {28, 27, 28}, true},
        {{OQ_METRIC_SQNR, 30}, {28, 25, 28}, false},
        {{OQ_METRIC_SQNR, 30}, {31, 20, 31}, false},
        {{OQ_METRIC_KL, 0.1}, {0.3, 0.4, 0.3}, true},
        {{OQ_METRIC_KL, 0.1}, {0.3, 0.6, 0.3}, false},
        {{OQ_METRIC_AGREEMENT, 99}, {97, 96, 97}, true},
        {{OQ_METRIC_AGREEMENT, 99}, {NAN, 1, NAN}, false},
        {{OQ_METRIC_SQNR, 30}, {20, -INFINITY, 20}, false},
    };
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        oq_target one = rows[i].target;
        const oq_targets t = {.v = &one, .n = 1};
        oq_score s = oq_score_none();
        s.figures[one.metric] = rows[i].figure;
        assert_int_equal(oq_targets_are_missed(&t, &s), rows[i].missed);
    }
}

/* Noise is a power, errors of classes an amplitude; a bound has its slack. Of a part of the samples
 * only what they lost already counts. */
static void lack(void **state) {
    (void)state;
    static const struct {
        oq_target target;
        oq_figure figure;
        uint64_t samples;
        double db;
    } rows[] = {
        {{OQ_METRIC_SQNR, 30}, {28, 26, 28}, 10, 3},
        {{OQ_METRIC_SQNR, 30}, {28, 28, 28}, 10, 2},
        {{OQ_METRIC_SQNR, 30}, {31, 29, 31}, 10, 0},
        {{OQ_METRIC_SQNR, 30}, {28, 10, 28}, 5, 2},
        {{OQ_METRIC_KL, 0.1}, {1, 0.5, 1}, 10, 10},
        {{OQ_METRIC_AGREEMENT, 99}, {90, 99, 90}, 10, 20},
        {{OQ_METRIC_AGREEMENT, 99}, {100, 97, 100}, 10, 6.0206},
        {{OQ_METRIC_AGREEMENT, 99}, {80, 10, 80}, 5, 20},
        {{OQ_METRIC_AGREEMENT, 99}, {100, 98.5, 100}, 10, 0},
        {{OQ_METRIC_COSINE, 0.99}, {0.9, 0.99, 0.9}, 10, 10},
        {{OQ_METRIC_METRIC, 5}, {1, 1, 1}, 10, 0},
        {{OQ_METRIC_SQNR, 30}, {NAN, NAN, NAN}, 10, 0},
        {{OQ_METRIC_SQNR, 30}, {29, -INFINITY, 29}, 10, 1},
    };
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        oq_target one = rows[i].target;
        const oq_targets t = {.v = &one, .n = 1};
        oq_score s = oq_score_none();
        s.samples = rows[i].samples;
        s.figures[one.metric] = rows[i].figure;
        assert_float_equal(oq_targets_lack(&t, &s, 10), rows[i].db, 1e-3);
    }
}

/* No better than what was seen, whichever way is better. */
static void promises(void **state) {
    (void)state;
    static const struct {
        oq_metric m;
        double value, bound, promise;
    } rows[] = {{OQ_METRIC_AGREEMENT, 95.8, 97, 95.8},
                {OQ_METRIC_AGREEMENT, 99, 97, 97},
                {OQ_METRIC_SQNR, 30, -INFINITY, -INFINITY},
                {OQ_METRIC_KL, 0.1, 0.05, 0.1},
                {OQ_METRIC_KL, 0.1, 0.2, 0.2}};
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        oq_score s = oq_score_none();
        s.figures[rows[i].m] = (oq_figure){rows[i].value, rows[i].bound, 100};
        assert_true(oq_score_promise(&s, rows[i].m) == rows[i].promise);
    }
    const oq_score none = oq_score_none();
    assert_true(isnan(oq_score_promise(&none, OQ_METRIC_SQNR)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(promises),       cmocka_unit_test(choices),
        cmocka_unit_test(nearest),        cmocka_unit_test(noise_decides_nothing),
        cmocka_unit_test(simpler_first),  cmocka_unit_test(stays_float),
        cmocka_unit_test(curve),          cmocka_unit_test(targets),
        cmocka_unit_test(commands),       cmocka_unit_test(missed),
        cmocka_unit_test(decoders),       cmocka_unit_test(lack),
        cmocka_unit_test(clearly_faster), cmocka_unit_test(cheaper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
