/*
 * test_clock.c — whether the times of two models say which is faster.
 */
#include "api/causes/clock.h"

#include "testing.h"

#define STEP 0.001

/* The second model takes so many times as long as the first, in even runs and in odd ones. */
static bool is_clear(double even, double odd) {
    double halves[2][2] = {{2, 3}, {2 * even, 3 * odd}};
    return oq_clock_is_clear(halves);
}

static void halves_that_agree_are_clear(void **state) {
    static const double ratios[] = {0.01, 0.5, 1, 2, 84};
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(ratios); i++)
        assert_true(is_clear(ratios[i], ratios[i]));
}

static void small_noise_is_no_doubt(void **state) {
    (void)state;
    assert_true(is_clear(1 - OQ_CLOCK_NOISE / 2, 1 + OQ_CLOCK_NOISE / 2 - STEP));
    assert_false(is_clear(1 - OQ_CLOCK_NOISE / 2, 1 + OQ_CLOCK_NOISE / 2 + STEP));
}

/* Three times as long in one half: the other must be over 5/3. */
static void noise_may_not_be_larger_than_the_difference(void **state) {
    (void)state;
    assert_true(is_clear(3, 5.0 / 3 + STEP) && is_clear(5.0 / 3 + STEP, 3));
    assert_false(is_clear(3, 5.0 / 3 - STEP) || is_clear(5.0 / 3 - STEP, 3));
    assert_false(is_clear(84, 0.9) || is_clear(0.5, 1.5));
    assert_true(is_clear(84, 50) && is_clear(0.4, 0.6));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_that_agree_are_clear),
        cmocka_unit_test(small_noise_is_no_doubt),
        cmocka_unit_test(noise_may_not_be_larger_than_the_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
