/*
 * test_bias.c — int32 biases: scales, rounding, saturation, and weight scales raised for them. The
 * numbers were made by the reference (quantize_bias_static_impl,
 * _adjust_weight_scale_for_int32_bias).
 */
#include "quantize/number/bias.h"

#include "testing.h"

#include <math.h>

static void scales_and_rounding(void **state) {
    (void)state;
    const float in = 0.05f, w[2] = {0.2f, 0.3f}, b[4] = {0.05f, -0.075f, 1.0f, -1.0f};
    float scale[2];
    int32_t q[4];
    bool nan;
    oq_dtype real;
    oq_bias_scales((oq_reals){&in, 1, OQ_FLOAT}, (oq_reals){w, 2, OQ_FLOAT}, scale, &real);
    assert_true(real == OQ_FLOAT);
    assert_true(scale[0] == 0.05f * 0.2f && scale[1] == 0.05f * 0.3f);
    const oq_reals scales = {scale, 2, OQ_FLOAT};
    assert_int_equal(oq_bias_quantize((oq_reals){b, 4, OQ_FLOAT}, scales, q, &nan), 0);
    assert_true(!nan && q[0] == 5 && q[1] == -5 && q[2] == 100 && q[3] == -67);
}

static void saturation(void **state) {
    (void)state;
    const float scale = 1e-9f, b[4] = {3.0f, -3.0f, INFINITY, NAN};
    int32_t q[4];
    bool nan;
    assert_int_equal(
        oq_bias_quantize((oq_reals){b, 2, OQ_FLOAT}, (oq_reals){&scale, 1, OQ_FLOAT}, q, &nan), 2);
    assert_true(q[0] == INT32_MAX && q[1] == INT32_MIN && !nan);
    oq_bias_quantize((oq_reals){b, 3, OQ_FLOAT}, (oq_reals){&scale, 1, OQ_FLOAT}, q, &nan);
    assert_true(nan);
    oq_bias_quantize((oq_reals){b, 4, OQ_FLOAT}, (oq_reals){&scale, 1, OQ_FLOAT}, q, &nan);
    assert_true(nan);
}

static void shapes(void **state) {
    (void)state;
    const int64_t vector[] = {4}, row[] = {1, 4}, column[] = {4, 1};
    assert_true(oq_bias_fits(vector, 1, 4) && oq_bias_fits(vector, 1, 1));
    assert_true(oq_bias_fits(row, 2, 4));
    assert_false(oq_bias_fits(column, 2, 4));
    assert_false(oq_bias_fits(NULL, 0, 4));
    assert_true(oq_bias_fits(NULL, 0, 1));
}

static void raised(void **state) {
    (void)state;
    const float in = 0.01f, b[2] = {4000.0f, -1.0f};
    float one = 1e-8f, many[2] = {1e-8f, 1e-8f}, enough = 1.0f;
    const oq_reals bias = {b, 2, OQ_FLOAT}, input = {&in, 1, OQ_FLOAT};
    assert_int_equal(oq_bias_adjust(bias, input, &one, 1, OQ_FLOAT, false), 1);
    assert_true(one == (float)(1e-8f * ((1.0001 * 8000.0 / 4294967294.0) / ((double)in * 1e-8f))));
    assert_int_equal(oq_bias_adjust(bias, input, many, 2, OQ_FLOAT, true), 2);
    assert_true(fabsf(many[0] / one - 1.0f) < 1e-6f && many[1] < many[0]);
    assert_int_equal(oq_bias_adjust(bias, input, &enough, 1, OQ_FLOAT, false), 0);
    assert_true(enough == 1.0f);
    int32_t q[2];
    bool nan;
    float scale;
    oq_dtype real;
    oq_bias_scales(input, (oq_reals){&one, 1, OQ_FLOAT}, &scale, &real);
    assert_int_equal(oq_bias_quantize(bias, (oq_reals){&scale, 1, OQ_FLOAT}, q, &nan), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(scales_and_rounding),
                                       cmocka_unit_test(saturation), cmocka_unit_test(shapes),
                                       cmocka_unit_test(raised)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
