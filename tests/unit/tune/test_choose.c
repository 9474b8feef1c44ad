/*
 * test_choose.c — the logic of `auto` without a runtime: dividing samples, scores, targets, which
 * candidate is taken, the curve, and commands that a shell reads as they were meant.
 */
#include "build_model.h"
#include "testing.h"
#include "tune/choose.h"
#include "tune/trial.h"

#include <math.h>

/* A fifth, at least 8 where there are 16, and something where there is anything. */
static void hold_out(void **state) {
    static const struct {
        uint64_t n, every;
    } cases[] = {{0, 0},  {1, 0},  {2, 2},  {4, 4},  {5, 5},  {8, 5},   {15, 5},
                 {16, 2}, {23, 2}, {24, 3}, {39, 4}, {40, 5}, {1000, 5}};
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        const uint64_t n = cases[i].n, every = oq_hold_out(n);
        assert_int_equal(every, cases[i].every);
        if (n >= 16)
            assert_true(n / every >= 8);
    }
}

static oq_datum floats(const float *v, const int64_t *dims, size_t rank) {
    uint64_t n = 1;
    for (size_t i = 0; i < rank; i++)
        n *= (uint64_t)dims[i];
    return (oq_datum){.kind = OQ_DATUM_TENSOR,
                      .dtype = OQ_FLOAT,
                      .rank = rank,
                      .dims = dims,
                      .count = n,
                      .data = v,
                      .size_bytes = n * sizeof *v};
}

static void score_of(const oq_datum *truth, const oq_datum *made, size_t n, oq_link link,
                     const int64_t *labels, oq_score *out) {
    const oq_link links[] = {link, OQ_LINK_NONE};
    bm b;
    oq_scoring s;
    oq_margins margins = {0};
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    assert_ok(oq_scoring_init(&s, b.a, links, n, &err), err);
    assert_ok(oq_margins_add(&margins, b.a, &truth[0], link, &err), err);
    s.margins = margins.v;
    s.n_margins = margins.n;
    oq_scoring_add(&s, truth, made, n, labels);
    oq_scoring_end(&s, out);
    bm_end(&b);
}

static void scores(void **state) {
    const float a[] = {1, 2, 3, 6, 5, 4}, b[] = {1, 2, 3, 5, 6, 4};
    const int64_t dims[] = {2, 3}, labels[] = {2, 1};
    const oq_datum truth = floats(a, dims, 2), made = floats(b, dims, 2);
    oq_score s;
    (void)state;
    score_of(&truth, &made, 1, OQ_LINK_NONE, labels, &s);
    assert_float_equal(s.agreement, 50, 1e-9);
    assert_true(fabs(s.sqnr - 10 * log10(91.0 / 2.0)) < 1e-9);
    assert_true(fabs(s.objective - s.sqnr) < 1e-9);
    assert_float_equal(s.accuracy, 100, 1e-9);
    assert_int_equal(s.rows, 2);
    assert_true(s.expected > 50 && s.expected < 100);
    score_of(&truth, &truth, 1, OQ_LINK_NONE, NULL, &s);
    assert_true(isinf(s.sqnr) && s.sqnr > 0);
    assert_float_equal(s.expected, 100, 1e-9);
    assert_true(isnan(s.accuracy));
}

/* The worst output counts, and one of another shape is as wrong as can be. */
static void worst_output(void **state) {
    const float a[] = {1, 2, 3}, b[] = {1, 2, 3}, c[] = {1, 2, 4};
    const int64_t dims[] = {1, 3}, other[] = {3};
    const oq_datum truth[] = {floats(a, dims, 2), floats(b, dims, 2)};
    const oq_datum made[] = {floats(a, dims, 2), floats(c, dims, 2)};
    const oq_datum wrong[] = {floats(a, dims, 2), floats(b, other, 1)};
    oq_score s;
    (void)state;
    score_of(truth, made, 2, OQ_LINK_NONE, NULL, &s);
    assert_float_equal(s.agreement, 100, 1e-9);
    assert_true(fabs(s.sqnr - 10 * log10(14.0)) < 1e-9);
    score_of(truth, wrong, 2, OQ_LINK_NONE, NULL, &s);
    assert_true(isinf(s.sqnr) && s.sqnr < 0);
    /* Labels are for the rows of float's output, however many another has. */
    const float more[] = {3, 2, 1, 3, 2, 1};
    const int64_t two_rows[] = {2, 3}, labels[] = {0, 0};
    const oq_datum longer = floats(more, two_rows, 2);
    score_of(truth, &longer, 1, OQ_LINK_NONE, labels, &s);
    assert_float_equal(s.accuracy, 0, 1e-9);
}

/* Noise on probabilities that are all but 0 is none before the Softmax. */
static void before_softmax(void **state) {
    const float a[] = {0.999F, 0.0005F, 0.0005F}, b[] = {0.9985F, 0.001F, 0.0005F};
    const int64_t dims[] = {1, 3};
    const oq_datum truth = floats(a, dims, 2), made = floats(b, dims, 2);
    oq_score s;
    (void)state;
    score_of(&truth, &made, 1, OQ_LINK_SOFTMAX, NULL, &s);
    assert_true(s.objective > 70); /* only 0.999 against 0.9985 is left */
    assert_float_equal(s.expected, 100, 1e-6);
}

static void expected_agreement(void **state) {
    const float margins[] = {0, 1, 1000};
    (void)state;
    assert_float_equal(oq_margins_expect(margins, 1, 0.5, NULL), 50, 1e-9);
    assert_float_equal(oq_margins_expect(margins + 2, 1, 0.5, NULL), 100, 1e-9);
    /* The difference of two values with deviation 0.5 has 0.5 x sqrt 2: P(z < 1.414) = 0.9213. */
    assert_float_equal(oq_margins_expect(margins + 1, 1, 0.5, NULL), 92.135, 1e-2);
    assert_true(isnan(oq_margins_expect(margins, 0, 1, NULL)));
}

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
                            .ok = true,
                            .path = "",
                            .size = rows[i].size,
                            .ms = rows[i].ms,
                            .ms_noise = rows[i].ms_noise,
                            .score = {.agreement = rows[i].agreement,
                                      .expected = rows[i].agreement,
                                      .sqnr = rows[i].db,
                                      .objective = rows[i].db,
                                      .cosine = 1,
                                      .accuracy = NAN,
                                      .metric = NAN,
                                      .rows = 100}};
        for (size_t k = 0; k < rows[i].n_options; k++)
            assert_true(OQ_PUSH(b->a, &c->recipe.options, (oq_recipe_option){"option", NULL}));
        assert_true(OQ_PUSH(b->a, all, c));
    }
}

static size_t taken(bm *b, const row *rows, size_t n, oq_metric metric, double value,
                    oq_prefer prefer, bool *reached) {
    oq_candidates all;
    oq_targets t = {.float_accuracy = NAN};
    fill(b, &all, rows, n);
    assert_true(OQ_PUSH(b->a, &t.all, (oq_target){metric, value}));
    const oq_candidate *c = oq_choose(&all, &t, prefer, reached);
    for (size_t i = 0; i < n; i++)
        if (all.v[i] == c)
            return i;
    return n;
}

static void choices(void **state) {
    static const row rows[] = {
        {NULL, 10, 100, INFINITY, 40, 0, 0}, {"static", 5.1, 99.5, 25, 10, 0, 0},
        {"static", 5.0, 99.2, 20, 10, 0, 0}, {"static", 4.0, 97, 15, 10, 0, 0},
        {"dynamic", 9.0, 99.9, 40, 9, 0, 0},
    };
    bm b;
    bool reached;
    (void)state;
    bm_begin(&b, NULL, 13);
    const size_t n = OQ_COUNT(rows);
    /* Within 5 % of the fastest that reaches it: the most accurate. */
    assert_int_equal(taken(&b, rows, n, OQ_METRIC_AGREEMENT, 99, OQ_PREFER_SPEED, &reached), 1);
    assert_true(reached);
    assert_int_equal(taken(&b, rows, n, OQ_METRIC_AGREEMENT, 90, OQ_PREFER_SPEED, &reached), 3);
    assert_int_equal(taken(&b, rows, n, OQ_METRIC_AGREEMENT, 99, OQ_PREFER_SIZE, &reached), 4);
    assert_int_equal(taken(&b, rows, n, OQ_METRIC_AGREEMENT, 99, OQ_PREFER_ACCURACY, &reached), 4);
    assert_int_equal(taken(&b, rows, n, OQ_METRIC_SQNR, 22, OQ_PREFER_SPEED, &reached), 1);
    /* Nothing in integers reaches it: the most accurate of them, and it says so. */
    assert_int_equal(taken(&b, rows, n, OQ_METRIC_SQNR, 200, OQ_PREFER_SPEED, &reached), 4);
    assert_false(reached);
    bm_end(&b);
}

/* One that is about 5 % slower than the fastest and more accurate is taken wherever its time falls
 * within the noise, not only when it falls on the near side. */
static void noise_decides_nothing(void **state) {
    static const double times[] = {5.0, 5.2, 5.24, 5.26, 5.3, 5.34};
    row rows[] = {{"static", 5, 99.5, 25, 10, 0.05, 2}, {"static", 0, 99.6, 30, 10, 0.05, 3}};
    bm b;
    bool reached;
    (void)state;
    bm_begin(&b, NULL, 13);
    for (size_t i = 0; i < OQ_COUNT(times); i++) {
        rows[1].ms = times[i];
        assert_int_equal(taken(&b, rows, 2, OQ_METRIC_SQNR, 20, OQ_PREFER_SPEED, &reached), 1);
    }
    /* Beyond noise, and without noise beyond 5 %, the faster one. */
    rows[1].ms = 5.4;
    assert_int_equal(taken(&b, rows, 2, OQ_METRIC_SQNR, 20, OQ_PREFER_SPEED, &reached), 0);
    rows[1].ms = 5.26;
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
    static const row rows[] = {{"static", 5.1, 99.5, 25, 10, 0, 3},
                               {"static", 5.0, 99.5, 25, 10, 0, 2},
                               {"static", 4.9, 99.5, 25, 10, 0, 2}};
    bm b;
    bool reached;
    (void)state;
    bm_begin(&b, NULL, 13);
    assert_int_equal(taken(&b, rows, 3, OQ_METRIC_SQNR, 20, OQ_PREFER_SPEED, &reached), 1);
    assert_int_equal(taken(&b, rows, 3, OQ_METRIC_SQNR, 20, OQ_PREFER_ACCURACY, &reached), 1);
    bm_end(&b);
}

/* Integers that are no faster than float are not worth it; with nothing else float it is. */
static void stays_float(void **state) {
    static const row rows[] = {{NULL, 10, 100, INFINITY, 40, 0, 0},
                               {"static", 9.8, 99.5, 25, 10, 0, 0}};
    bm b;
    bool reached;
    (void)state;
    bm_begin(&b, NULL, 13);
    assert_int_equal(taken(&b, rows, 2, OQ_METRIC_AGREEMENT, 99, OQ_PREFER_SPEED, &reached), 0);
    assert_true(reached);
    assert_int_equal(taken(&b, rows, 2, OQ_METRIC_AGREEMENT, 99, OQ_PREFER_SIZE, &reached), 1);
    assert_int_equal(taken(&b, rows, 1, OQ_METRIC_AGREEMENT, 99, OQ_PREFER_SPEED, &reached), 0);
    assert_false(reached);
    bm_end(&b);
}

/* All rows agree, but the noise is too large for that to be more than luck. */
static void luck(void **state) {
    oq_targets t = {.float_accuracy = NAN};
    oq_score s = {.agreement = 100, .expected = 95, .sqnr = 20, .accuracy = NAN, .rows = 8};
    bm b;
    (void)state;
    bm_begin(&b, NULL, 13);
    assert_true(OQ_PUSH(b.a, &t.all, (oq_target){OQ_METRIC_AGREEMENT, 99}));
    assert_false(oq_targets_hold(&t, &s, true));
    assert_true(oq_targets_hold(&t, &s, false));
    s.rows = 100000;
    assert_true(oq_targets_hold(&t, &s, true));
    bm_end(&b);
}

static void accuracy_drop(void **state) {
    oq_targets t = {.float_accuracy = 90};
    oq_score s = {.agreement = 97, .expected = 97, .accuracy = 89.5, .rows = 100};
    bm b;
    (void)state;
    bm_begin(&b, NULL, 13);
    assert_true(OQ_PUSH(b.a, &t.all, (oq_target){OQ_METRIC_ACCURACY_DROP, 1}));
    assert_true(oq_targets_hold(&t, &s, true));
    s.accuracy = 88;
    assert_false(oq_targets_hold(&t, &s, true));
    /* Without labels no more can be lost than disagrees. */
    s.accuracy = NAN;
    assert_false(oq_targets_hold(&t, &s, true));
    s.agreement = s.expected = 99.5;
    assert_true(oq_targets_hold(&t, &s, true));
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
    size_t order[OQ_COUNT(rows)];
    (void)state;
    bm_begin(&b, NULL, 13);
    fill(&b, &all, rows, OQ_COUNT(rows));
    assert_int_equal(oq_curve(&all, order), 3);
    assert_int_equal(order[0], 2);
    assert_int_equal(order[1], 1);
    assert_int_equal(order[2], 0);
    assert_false(all.v[3]->on_curve);
    assert_false(all.v[4]->on_curve);
    bm_end(&b);
}

static void bounds(void **state) {
    (void)state;
    assert_float_equal(oq_agreement_bound(100, 8), 67.6, 0.1);
    assert_true(oq_agreement_bound(99, 100000) > 98.9);
    assert_true(isnan(oq_agreement_bound(99, 0)));
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
    assert_string_equal(text.p, "onq static -i a.onnx -o '$b' --per_channel --data 'my data' "
                                "--nodes_to_exclude 'it'\\''s'");
    oq_buf_release(&text);
    bm_end(&b);
}

/* ---- what outputs went through ---- */

static void links(void **state) {
    const oq_link *v = NULL;
    bool classes = false;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "1,3");
    bm_node(&b, "Softmax", "", "x", "s", "");
    bm_node(&b, "Identity", "", "s", "y", "");
    bm_node(&b, "Sigmoid", "", "x", "z", "");
    bm_node(&b, "Relu", "", "x", "r", "");
    bm_output(&b, "y", OQ_FLOAT, "1,3");
    bm_output(&b, "z", OQ_FLOAT, "1,3");
    bm_output(&b, "r", OQ_FLOAT, "1,3");
    assert_ok(oq_link_find(b.m, b.a, &v, &classes, &err), err);
    assert_int_equal(v[0], OQ_LINK_SOFTMAX);
    assert_int_equal(v[1], OQ_LINK_SIGMOID);
    assert_int_equal(v[2], OQ_LINK_NONE);
    assert_true(classes);
    bm_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hold_out),      cmocka_unit_test(scores),
        cmocka_unit_test(worst_output),  cmocka_unit_test(before_softmax),
        cmocka_unit_test(choices),       cmocka_unit_test(noise_decides_nothing),
        cmocka_unit_test(simpler_first), cmocka_unit_test(expected_agreement),
        cmocka_unit_test(stays_float),   cmocka_unit_test(luck),
        cmocka_unit_test(curve),         cmocka_unit_test(accuracy_drop),
        cmocka_unit_test(bounds),        cmocka_unit_test(commands),
        cmocka_unit_test(links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
