/*
 * test_grade.c — the words for how near to float a model is, on both sides of every bound.
 */
#include "samples/grade.h"

#include "testing.h"

#include <math.h>

static oq_grade by_noise(double sqnr, double floor) {
    return oq_grade_of(&(oq_graded){.sqnr = sqnr, .floor = floor});
}

static void noise(void **state) {
    (void)state;
    const double floors[] = {oq_grade_floor(4), oq_grade_floor(8), oq_grade_floor(16),
                             OQ_GRADE_FLOOR_WEIGHTS};
    for (size_t i = 0; i < OQ_COUNT(floors); i++)
        for (int k = 0; k < 3; k++) {
            const double bound = floors[i] + 10 * k;
            assert_int_equal(by_noise(bound, floors[i]), OQ_GRADE_FAIR + k);
            assert_int_equal(by_noise(bound - 0.01, floors[i]), OQ_GRADE_POOR + k);
        }
    assert_int_equal(by_noise(OQ_GRADE_EQUAL - 1, 10), OQ_GRADE_CLOSE);
    assert_int_equal(by_noise(OQ_GRADE_EQUAL, 10), OQ_GRADE_SAME);
    assert_int_equal(by_noise((double)INFINITY, 10), OQ_GRADE_SAME);
    assert_int_equal(by_noise((double)NAN, 10), OQ_GRADE_POOR);
    assert_true(oq_grade_floor(4) == 0 && oq_grade_floor(8) == 10 && oq_grade_floor(16) == 30);
}

/* More than a tenth of other classes is fair at best. */
static void classes(void **state) {
    (void)state;
    oq_graded g = {.sqnr = 35, .floor = 10, .rows = 100, .same = 90};
    assert_int_equal(oq_grade_of(&g), OQ_GRADE_CLOSE);
    g.same = 89;
    assert_int_equal(oq_grade_of(&g), OQ_GRADE_FAIR);
    g.sqnr = 5;
    assert_int_equal(oq_grade_of(&g), OQ_GRADE_POOR);
}

static oq_grade by_text(double kl, uint64_t same, double sqnr) {
    const oq_lm_score text = {.rows = 1000, .same = same, .kl = 1000 * kl};
    return oq_grade_of(
        &(oq_graded){.sqnr = sqnr, .floor = 4, .rows = 1000, .same = same, .text = &text});
}

/* Noise does not count: 3 dB may be close to float, and 60 dB poor. */
static void language(void **state) {
    (void)state;
    const struct {
        double kl;
        uint64_t same;
    } bounds[] = {{0.30, 600}, {0.10, 750}, {0.02, 900}};
    for (size_t i = 0; i < OQ_COUNT(bounds); i++)
        for (int high = 0; high < 2; high++) {
            const double db = high ? 60 : 3, kl = bounds[i].kl;
            const uint64_t same = bounds[i].same;
            assert_int_equal(by_text(kl, same, db), OQ_GRADE_FAIR + i);
            assert_int_equal(by_text(kl + 1e-6, same, db), OQ_GRADE_POOR + i);
            assert_int_equal(by_text(kl, same - 1, db), OQ_GRADE_POOR + i);
        }
    assert_int_equal(by_text(0.5, 1000, 60), OQ_GRADE_POOR);
    assert_int_equal(by_text(0, 1000, (double)INFINITY), OQ_GRADE_SAME);
}

/* Without rows, or with shapes that differ, there is no text to judge by; NaN is poor. */
static void no_text(void **state) {
    (void)state;
    oq_lm_score text = {0};
    oq_grade g = OQ_GRADE_SAME;
    assert_false(oq_grade_of_text(NULL, &g) || oq_grade_of_text(&text, &g));
    text = (oq_lm_score){.rows = 1, .same = 1, .differs = true};
    assert_false(oq_grade_of_text(&text, &g));
    assert_int_equal(g, OQ_GRADE_SAME);
    text = (oq_lm_score){.rows = 1, .same = 1, .wrecked = true};
    assert_true(oq_grade_of_text(&text, &g));
    assert_int_equal(g, OQ_GRADE_POOR);
}

static void words(void **state) {
    (void)state;
    assert_string_equal(oq_grade_text(OQ_GRADE_FAIR), "fair");
    assert_string_equal(oq_grade_meaning(OQ_GRADE_FAIR), "some answers will change");
    assert_string_equal(oq_grade_text(OQ_GRADE_SAME), "the same as float");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(noise),   cmocka_unit_test(classes), cmocka_unit_test(language),
        cmocka_unit_test(no_text), cmocka_unit_test(words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
