/*
 * test_npmath.c — numpy's sums, logarithms and linspace. The expected numbers are numpy 2.4's.
 */
#include "calibrate/collect/npmath.h"

#include "testing.h"

#include <math.h>
#include <string.h>

static uint32_t bits(float x) {
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

/* A sequence that Python makes as well: x = (k * 2654435761 mod 2^32) / 2^32 - 0.5 in float32. */
static float draw(uint32_t k) {
    return (float)((double)(uint32_t)(k * 2654435761u) / 4294967296.0 - 0.5);
}

static void sums(void **state) {
    (void)state;
    static const struct {
        size_t n;
        uint32_t f32;
        double f64;
    } want[] = {
        {0, 0x00000000, 0x0.0p+0},
        {1, 0xbf000000, -0x1.0000000000000p-1},
        {7, 0xbf057304, -0x1.0ae6088000000p-1},
        {8, 0xbf31eeb0, -0x1.63dd610000000p-1},
        {100, 0xbf3b54f8, -0x1.76a9f72000000p-1},
        {129, 0xbf8175b7, -0x1.02eb742800000p+0},
        {1000, 0xbcc16280, -0x1.82c9fc0000000p-6},
        {5000, 0xbe802964, -0x1.0054e44c00000p-2},
    };
    static float v[5000];
    static double d[5000];
    for (uint32_t k = 0; k < 5000; k++)
        d[k] = (double)(v[k] = draw(k));
    for (size_t i = 0; i < OQ_COUNT(want); i++) {
        assert_int_equal(bits(oq_np_sum_f32(v, want[i].n)), want[i].f32);
        assert_true(oq_np_sum_f64(d, want[i].n) == want[i].f64);
    }
}

static void logarithms(void **state) {
    (void)state;
    static const float x[] = {1.0f,  2.0f,      0.5f,   0.7071068f, 3.1f,
                              1e-3f, 123456.0f, 1e-40f, 3e38f,      0.999999f};
    static const uint32_t want[] = {0x00000000, 0x3f317218, 0xbf317218, 0xbeb17215, 0x3f90d1c8,
                                    0xc0dd0c55, 0x413b9408, 0xc2b834f2, 0x42b13196, 0xb5880004};
    float v[OQ_COUNT(x)];
    memcpy(v, x, sizeof v);
    oq_np_log_f32_n(v, OQ_COUNT(v));
    for (size_t i = 0; i < OQ_COUNT(x); i++) {
        assert_int_equal(bits(oq_np_log_f32(x[i])), want[i]);
        assert_int_equal(bits(v[i]), want[i]);
    }
    assert_true(isnan(oq_np_log_f32(-1)) && isnan(oq_np_log_f32(NAN)));
    assert_true(oq_np_log_f32(0) == -INFINITY && oq_np_log_f32(INFINITY) == INFINITY);
    /* The vector loop and the single one agree. */
    float many[1003];
    for (uint32_t k = 0; k < 1003; k++)
        many[k] = draw(k) + 0.6f;
    float alone[1003];
    for (size_t k = 0; k < 1003; k++)
        alone[k] = oq_np_log_f32(many[k]);
    oq_np_log_f32_n(many, 1003);
    assert_memory_equal(many, alone, sizeof many);
}

static void spaced(void **state) {
    (void)state;
    static const uint32_t f32[] = {0xbfa66666, 0xbf3a83a7, 0xbe20ea08, 0x3ed41d48,
                                   0x3f7c57c8, 0x3fc75076, 0x40083a85, 0x402ccccd};
    static const uint32_t f16[] = {0xbfa66000, 0xbf3a8000, 0xbe210000, 0x3ed40000,
                                   0x3f7c4000, 0x3fc72000, 0x40084000, 0x402cc000};
    float v[8];
    oq_np_linspace(OQ_FLOAT, -1.3f, 2.7f, 7, v);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(bits(v[i]), f32[i]);
    oq_np_linspace(OQ_FLOAT16, oq_np_round(OQ_FLOAT16, -1.3), oq_np_round(OQ_FLOAT16, 2.7), 7, v);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(bits(v[i]), f16[i]);
    /* numpy's way round denormal steps */
    oq_np_linspace(OQ_FLOAT, 0, 0x1p-149f, 4, v);
    assert_true(v[0] == 0 && v[4] == 0x1p-149f && v[1] == 0 && v[3] == 0x1p-149f);
    /* a width that float32 cannot hold: still from end to end */
    oq_np_linspace(OQ_FLOAT, -3e38f, 3e38f, 4, v);
    assert_true(v[0] == -3e38f && v[2] == 0 && v[4] == 3e38f && v[1] < v[2] && v[2] < v[3]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums),
        cmocka_unit_test(logarithms),
        cmocka_unit_test(spaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
