/*
 * test_spend.c — what steps of a search are likely to cost: guesses, what was paid, the answer.
 */
#include "build_model.h"
#include "testing.h"
#include "tune/spend.h"

static oq_recipe recipe(bm *b, const char *command, const char *one, const char *two) {
    oq_recipe r = {.command = command};
    onq_error err = ONQ_ERROR_INIT;
    if (one != NULL)
        assert_ok(oq_recipe_add(&r, b->a, one, NULL, &err), err);
    if (two != NULL)
        assert_ok(oq_recipe_add(&r, b->a, two, NULL, &err), err);
    return r;
}

/* A small model has the limit of one that takes OQ_LEAST_BARE; 0 is no limit. */
static void limits(void **state) {
    oq_spending s = {0};
    (void)state;
    oq_spending_begin(&s, 30, 0.01, 10);
    assert_float_equal(s.limit, 30 * OQ_LEAST_BARE, 1e-12);
    oq_spending_begin(&s, 30, 2, 10);
    assert_float_equal(s.limit, 60, 1e-12);
    oq_spending_begin(&s, 0, 2, 10);
    assert_true(s.limit == 0);
}

/* What takes twice as long because float does counts half; between two looks the mean of both. */
static void busy_machines(void **state) {
    oq_spending s = {.began = 100};
    (void)state;
    assert_float_equal(oq_spending_spent(&s, 103), 3, 1e-12);
    oq_spending_see(&s, 104, 2); /* as it was from the beginning, as far as is known */
    assert_float_equal(oq_spending_spent(&s, 104), 2, 1e-12);
    assert_float_equal(oq_spending_spent(&s, 108), 4, 1e-12);
    oq_spending_see(&s, 107, 1);
    assert_float_equal(oq_spending_spent(&s, 107), 4, 1e-12);
    assert_float_equal(oq_spending_spent(&s, 109), 6, 1e-12);
}

/* What was paid takes the place of a guess, for its own kind alone, in proportion to the samples. */
static void learns(void **state) {
    bm b;
    oq_spending s = {0};
    (void)state;
    bm_begin(&b, NULL, 13);
    const oq_recipe plain = recipe(&b, "static", NULL, NULL);
    const oq_recipe bias = recipe(&b, "static", "bias_correction", NULL);
    const oq_recipe rounding = recipe(&b, "static", "bias_correction", "learned_rounding");
    oq_spending_begin(&s, 30, 4, 40);
    const double guessed = oq_spending_next(&s, &rounding, 20);
    assert_true(oq_spending_next(&s, &plain, 20) < oq_spending_next(&s, &bias, 20));
    assert_true(oq_spending_next(&s, &bias, 20) < guessed);
    oq_spending_add(&s, &bias, 1, 20, 7);
    assert_float_equal(oq_spending_next(&s, &bias, 20), 7, 1e-9);
    assert_float_equal(oq_spending_next(&s, &bias, 40), 14, 1e-9);
    assert_float_equal(oq_spending_next(&s, &rounding, 20), guessed, 1e-9);
    /* The next is like the last one, the answer like the dearest: nothing serves it. */
    oq_spending_add(&s, &bias, 1, 20, 1);
    assert_float_equal(oq_spending_next(&s, &bias, 20), 1, 1e-9);
    oq_spending_add(&s, &plain, 1, 20, 2);
    assert_float_equal(oq_spending_answer(&s, &plain, 1), 4, 1e-9);
    assert_float_equal(oq_spending_answer(&s, &bias, 1), 14, 1e-9);
    /* What is corrected and rounded takes both; finding ranges is a part of either. */
    assert_float_equal(oq_spending_answer(&s, &rounding, 1),
                       (14 + oq_spending_next(&s, &rounding, 40)), 1e-9);
    /* One that has taken more than any before it will take as much again. */
    assert_float_equal(oq_spending_after(&s, &bias, 1, 20, 30), 60, 1e-9);
    assert_float_equal(oq_spending_after(&s, &bias, 1, 20, 3), 14, 1e-9);
    bm_end(&b);
}

/* Ranges that are found by histograms cost more where channels are scaled, for nothing serves them:
 * what that took says nothing of the others. */
static void ranges_anew(void **state) {
    bm b;
    oq_spending s = {0};
    (void)state;
    bm_begin(&b, NULL, 13);
    const oq_recipe ranges = recipe(&b, "static", "calibration_method", NULL);
    const oq_recipe channels = recipe(&b, "static", "channel_ranges", NULL);
    const oq_recipe both = recipe(&b, "static", "calibration_method", "channel_ranges");
    oq_spending_begin(&s, 30, 4, 40);
    assert_true(oq_spending_next(&s, &ranges, 20) < oq_spending_next(&s, &both, 20));
    oq_spending_add(&s, &ranges, 1, 20, 1);
    oq_spending_add(&s, &both, 1, 20, 9);
    assert_float_equal(oq_spending_next(&s, &ranges, 20), 1, 1e-9);
    assert_float_equal(oq_spending_next(&s, &both, 20), 9, 1e-9);
    assert_true(oq_spending_next(&s, &channels, 20) < 9);
    assert_float_equal(oq_spending_answer(&s, &both, 1), 18, 1e-9);
    bm_end(&b);
}

/* A part of it goes with no sample, half of it at most; where it is a guess, it comes on top. */
static void sessions(void **state) {
    bm b;
    oq_spending s = {.fixed = 1};
    (void)state;
    bm_begin(&b, NULL, 13);
    const oq_recipe plain = recipe(&b, "static", NULL, NULL);
    oq_spending_begin(&s, 30, 4, 40);
    assert_true(oq_spending_next(&s, &plain, 20) < 2 * oq_spending_next(&s, &plain, 10));
    oq_spending_add(&s, &plain, 1, 20, 3);
    assert_float_equal(oq_spending_next(&s, &plain, 20), 3, 1e-9);
    assert_float_equal(oq_spending_next(&s, &plain, 40), 5, 1e-9);
    assert_float_equal(oq_spending_answer(&s, &plain, 1), 5, 1e-9);
    oq_spending_add(&s, &plain, 1, 20, 1);
    assert_float_equal(oq_spending_next(&s, &plain, 40), 0.5 + 1, 1e-9);
    bm_end(&b);
}

/* Two makings have what goes with no sample twice, and the answer once; half of rounding goes with the
 * weights. So an answer of rounding costs less than both folds did, and confirming it about as much. */
static void folds_and_answer(void **state) {
    bm b;
    oq_spending s = {.fixed = 1};
    (void)state;
    bm_begin(&b, NULL, 13);
    const oq_recipe plain = recipe(&b, "static", NULL, NULL);
    const oq_recipe rounding = recipe(&b, "static", "learned_rounding", NULL);
    oq_spending_begin(&s, 30, 4, 40);
    oq_spending_add(&s, &plain, 2, 40, 6);
    assert_float_equal(oq_spending_next(&s, &plain, 20), 3, 1e-9);
    assert_float_equal(oq_spending_answer(&s, &plain, 1), 1 + 4, 1e-9);
    assert_float_equal(oq_spending_answer(&s, &plain, 2), 6, 1e-9);
    oq_spending_add(&s, &rounding, 2, 40, 20);
    assert_float_equal(oq_spending_next(&s, &rounding, 20), 10, 1e-9);
    assert_float_equal(oq_spending_answer(&s, &rounding, 1), 5 + 10, 1e-9);
    assert_float_equal(oq_spending_answer(&s, &rounding, 2), 20, 1e-9);
    /* Those that the next one need not round again: the answer must. */
    oq_spending_add(&s, &rounding, 2, 40, 2);
    assert_float_equal(oq_spending_next(&s, &rounding, 20), 1, 1e-9);
    assert_float_equal(oq_spending_answer(&s, &rounding, 1), 5 + 10, 1e-9);
    bm_end(&b);
}

/* What no sample calibrates is there when it was measured, and costs the same for any number; what
 * comes after static needs its ranges again. */
static void without_samples(void **state) {
    bm b;
    oq_spending s = {0};
    (void)state;
    bm_begin(&b, NULL, 13);
    const oq_recipe dynamic = recipe(&b, "dynamic", "per_channel", NULL);
    const oq_recipe plain = recipe(&b, "static", NULL, NULL);
    oq_recipe half = recipe(&b, "preprocess", "float16", NULL);
    oq_spending_begin(&s, 30, 4, 40);
    oq_spending_add(&s, &dynamic, 1, 20, 3);
    assert_float_equal(oq_spending_next(&s, &dynamic, 40), 3, 1e-9);
    assert_true(oq_spending_answer(&s, &dynamic, 1) == 0);
    half.after = &plain;
    assert_true(oq_spending_answer(&s, &half, 1) == oq_spending_answer(&s, &plain, 1));
    bm_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits),          cmocka_unit_test(learns),
        cmocka_unit_test(sessions),        cmocka_unit_test(folds_and_answer),
        cmocka_unit_test(without_samples), cmocka_unit_test(busy_machines),
        cmocka_unit_test(ranges_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
