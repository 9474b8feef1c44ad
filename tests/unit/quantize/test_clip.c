/*
 * test_clip.c — bounds of Relu and Clip, and which quantized ranges hold them.
 */
#include "quantize/number/clip.h"

#include "build_model.h"
#include "testing.h"

#include <math.h>

static void ranges_that_hold(void **state) {
    const struct {
        oq_bounds b;
        oq_dtype type;
        oq_qparam p;
        bool holds;
    } rows[] = {
        {{0, INFINITY}, OQ_UINT8, {0.1f, 0}, true},
        {{0, INFINITY}, OQ_UINT8, {0.1f, 1}, false}, /* 0 is exact: not a step below */
        {{0, INFINITY}, OQ_INT8, {0.1f, -128}, true},
        {{0, INFINITY}, OQ_INT8, {0.1f, 0}, false},
        {{0, 6}, OQ_UINT8, {6.0f / 255, 0}, true},
        {{0, 6}, OQ_UINT8, {6.0f / 127, 0}, false}, /* one bit less */
        {{1, 6}, OQ_UINT8, {6.0f / 255, 0}, false},
        {{-6, -1}, OQ_UINT8, {6.0f / 255, 255}, false},
        {{-1, 1}, OQ_INT8, {1.0f / 127, 0}, true}, /* -128 is one step below */
        {{-10, 10}, OQ_UINT16, {1e-4f, 32768}, true},
    };
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(rows); i++)
        if (oq_bounds_hold(rows[i].b, rows[i].type, rows[i].p, OQ_STEPS_CALIBRATED) !=
            rows[i].holds)
            fail_msg("row %zu", i);
    assert_false(
        oq_bounds_hold((oq_bounds){-1, 1}, OQ_INT8, (oq_qparam){1.0f / 127, 0}, OQ_STEPS_TRAINED));
}

static void one_after_the_other(void **state) {
    (void)state;
    const oq_bounds relu = {0, INFINITY};
    oq_bounds b = oq_bounds_then(relu, (oq_bounds){-5, 5});
    assert_true(b.low == 0 && b.high == 5);
    b = oq_bounds_then((oq_bounds){-5, 5}, relu);
    assert_true(b.low == 0 && b.high == 5);
    b = oq_bounds_then(relu, (oq_bounds){-5, -3});
    assert_true(b.low == -3 && b.high == -3);
}

static void where_bounds_stand(void **state) {
    (void)state;
    bm b;
    oq_arena a;
    oq_index ix;
    oq_bounds out;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    oq_arena_init(&a, &b.env->alloc);
    bm_input(&b, "x", OQ_FLOAT, "4");
    bm_input(&b, "given", OQ_FLOAT, "");
    bm_f32(&b, "two", "", (const float[]){2});
    bm_f32(&b, "many", "2", (const float[]){2, 3});
    bm_i64(&b, "whole", "", (const int64_t[]){2});
    bm_node(&b, "Constant", "", "", "one", "value_float=1.0");
    bm_node(&b, "Identity", "", "two", "same", "");
    bm_node(&b, "Cast", "", "same", "real", "to=1");
    bm_node(&b, "Cast", "", "two", "cut", "to=7");
    bm_node(&b, "Cast", "", "cut", "rough", "to=1");
    bm_node(&b, "Abs", "", "two", "computed", "");
    const struct {
        const char *in;
        bool known;
        double low, high;
    } rows[] = {{"x one two", true, 1, 2},    {"x _ real", true, -INFINITY, 2},
                {"x one", true, 1, INFINITY}, {"x", true, -INFINITY, INFINITY},
                {"x rough two", false, 0, 0}, {"x one computed", false, 0, 0},
                {"x given", false, 0, 0},     {"x many", false, 0, 0},
                {"x whole", false, 0, 0},     {"x nowhere", false, 0, 0}};
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        const oq_node *n = bm_node(&b, "Clip", "", rows[i].in, "y", "");
        assert_ok(oq_index_build(&ix, &a, b.g, NULL, &err), err);
        const bool known = oq_clip_bounds(b.m, &ix, n, &out);
        if (known != rows[i].known ||
            (known && (out.low != rows[i].low || out.high != rows[i].high)))
            fail_msg("%s: %d %g %g", rows[i].in, known, out.low, out.high);
    }
    const oq_node *old = bm_node(&b, "Clip", "", "x", "z", "min=-1.5 max=2.5");
    assert_true(oq_clip_bounds(b.m, &ix, old, &out) && out.low == -1.5 && out.high == 2.5);
    const oq_node *relu = bm_node(&b, "Relu", "", "x", "v", "");
    assert_true(oq_clip_bounds(b.m, &ix, relu, &out) && out.low == 0 && isinf(out.high));
    oq_arena_release(&a);
    bm_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranges_that_hold),
                                       cmocka_unit_test(one_after_the_other),
                                       cmocka_unit_test(where_bounds_stand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
