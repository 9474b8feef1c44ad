/*
 * test_budget.c — the budget of the search for a cause ends where it says: by CPU time, with a
 * floor, and by runs.
 */
#include "api/causes/budget.h"

#include "testing.h"

static void test_ten_times_bare_inference(void **state) {
    const oq_budget b = {.began = 5, .bare = 3, .n_samples = 8};
    (void)state;
    assert_true(oq_budget_limit(&b) == 30);
    assert_false(oq_budget_is_over(&b, 34.9));
    assert_true(oq_budget_is_over(&b, 35));
}

static void test_a_small_model_has_the_floor(void **state) {
    const oq_budget b = {.began = 1, .bare = 0.1, .n_samples = 8};
    (void)state;
    assert_true(oq_budget_limit(&b) == OQ_BUDGET_FLOOR);
    assert_false(oq_budget_is_over(&b, 1 + OQ_BUDGET_FLOOR - 0.1));
    assert_true(oq_budget_is_over(&b, 1 + OQ_BUDGET_FLOOR));
}

static void test_runs_are_counted(void **state) {
    oq_budget b = {.bare = 100, .n_samples = 8, .n_runs = 8 * 10 + 319};
    (void)state;
    assert_false(oq_budget_is_over(&b, 0));
    b.n_runs++;
    assert_true(oq_budget_is_over(&b, 0));
}

/* A remedy leaves time to measure it, and is not begun where its cost is not left. */
static void test_what_is_not_finished_is_not_begun(void **state) {
    const oq_budget b = {.began = 5, .bare = 3, .kept = 2, .n_samples = 8};
    (void)state;
    assert_true(oq_budget_until(&b) == 33);
    assert_true(oq_budget_allows(&b, 30, 5));
    assert_false(oq_budget_allows(&b, 30, 5.1));
    assert_true(oq_budget_allows(&b, 34, 0)); /* a cost that is not known yet */
    assert_false(oq_budget_allows(&b, 35, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_times_bare_inference),
        cmocka_unit_test(test_a_small_model_has_the_floor),
        cmocka_unit_test(test_runs_are_counted),
        cmocka_unit_test(test_what_is_not_finished_is_not_begun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
