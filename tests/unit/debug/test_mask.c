/*
 * test_mask.c — which ranges are taken for those of a mask: far below zero, and a hundred times as
 * far as they reach above it.
 */
#include "debug/debug.h"

#include "build_model.h"
#include "testing.h"

static onq_error err;

/* Is the range of 255 steps of `step`, `below` of them below zero, one of a mask? */
static bool is_mask(float step, uint8_t below) {
    bm f, q;
    oq_debug d;
    bm *both[] = {&f, &q};
    for (int i = 0; i < 2; i++) {
        bm_begin(both[i], NULL, 13);
        bm_input(both[i], "x", OQ_FLOAT, "4");
        bm_output(both[i], "y", OQ_FLOAT, "4");
    }
    bm_node(&f, "Softmax", "softmax", "x", "y", "");
    bm_f32(&q, "s", "", &step);
    bm_raw(&q, "z", OQ_UINT8, "", &below, 1);
    bm_node(&q, "QuantizeLinear", "q", "x s z", "x_q", "");
    bm_node(&q, "DequantizeLinear", "dq", "x_q s z", "x_DequantizeLinear_Output", "");
    bm_node(&q, "Softmax", "softmax", "x_DequantizeLinear_Output", "y", "");
    oq_debug_init(&d, q.env, f.m, q.m);
    assert_ok(oq_debug_match(&d, &err), err);
    assert_int_equal(d.acts.n, 1);
    const bool mask = d.acts.v[0].mask_likely;
    oq_debug_release(&d);
    bm_end(&f);
    bm_end(&q);
    return mask;
}

static void a_mask_is_below_a_thousand(void **state) {
    (void)state;
    assert_true(is_mask(1010.0f / 253, 253));
    assert_false(is_mask(990.0f / 253, 253));
}

static void a_mask_is_a_hundred_times_as_far_below_as_above(void **state) {
    (void)state;
    assert_true(is_mask(40, 253));  /* -10120 to 80 */
    assert_false(is_mask(40, 252)); /* -10080 to 120 */
    assert_true(is_mask(40, 255));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mask_is_below_a_thousand),
        cmocka_unit_test(a_mask_is_a_hundred_times_as_far_below_as_above),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
