/*
 * test_real.c — small floats and small integers, exhaustively.
 *
 * The reference here is the definition of each format, written anew with ldexp: every code's value;
 * and for encoding every value itself, every middle between two neighbours and the floats right
 * beside it.
 *
 *     unit_base_test_real KIND    float32 (float64 for f64_f16) from standard input, codes as
 *                                 uint16 to standard output; the reverse for KINDs that end in _f32
 *
 * The last form serves the parity test, which compares with numpy, ml_dtypes and onnx.
 */
#include "base/text/real.h"

#include "testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A format by its definition. `codes` positive codes 0.. are finite values; the rest of the
 * positive half is infinity and NaN. */
struct format {
    const char *name;
    int man, bias;
    uint32_t codes;
    uint32_t sign; /* bit of the sign */
    uint32_t (*encode)(float x);
    float (*decode)(uint32_t code);
    uint32_t overflow; /* code for what is too large, positive */
    bool no_minus_zero;
};

static uint32_t enc_f16(float x) {
    return oq_f32_to_f16(x);
}
static float dec_f16(uint32_t c) {
    return oq_f16_to_f32((uint16_t)c);
}
static uint32_t enc_f16_64(float x) {
    return oq_f64_to_f16((double)x);
}
static uint32_t enc_bf16(float x) {
    return oq_f32_to_bf16(x);
}
static float dec_bf16(uint32_t c) {
    return oq_bf16_to_f32((uint16_t)c);
}
static float dec_fp4(uint32_t c) {
    return oq_fp4_to_f32((uint8_t)c);
}
#define FP8(short_name, kind)                                                                      \
    static uint32_t enc_##short_name(float x) {                                                    \
        return oq_f32_to_fp8(x, kind, false);                                                      \
    }                                                                                              \
    static uint32_t sat_##short_name(float x) {                                                    \
        return oq_f32_to_fp8(x, kind, true);                                                       \
    }                                                                                              \
    static float dec_##short_name(uint32_t c) {                                                    \
        return oq_fp8_to_f32((uint8_t)c, kind);                                                    \
    }
FP8(e4m3fn, OQ_FP8_E4M3FN)
FP8(e4m3fnuz, OQ_FP8_E4M3FNUZ)
FP8(e5m2, OQ_FP8_E5M2)
FP8(e5m2fnuz, OQ_FP8_E5M2FNUZ)
#undef FP8

static const struct format formats[] = {
    {"f16", 10, 15, 0x7c00, 0x8000, enc_f16, dec_f16, 0x7c00, false},
    {"f16 of f64", 10, 15, 0x7c00, 0x8000, enc_f16_64, dec_f16, 0x7c00, false},
    {"bf16", 7, 127, 0x7f80, 0x8000, enc_bf16, dec_bf16, 0x7f80, false},
    {"e4m3fn", 3, 7, 0x7f, 0x80, enc_e4m3fn, dec_e4m3fn, 0x7f, false},
    {"e4m3fnuz", 3, 8, 0x80, 0x80, enc_e4m3fnuz, dec_e4m3fnuz, 0x80, true},
    {"e5m2", 2, 15, 0x7c, 0x80, enc_e5m2, dec_e5m2, 0x7c, false},
    {"e5m2fnuz", 2, 16, 0x80, 0x80, enc_e5m2fnuz, dec_e5m2fnuz, 0x80, true},
    {"e4m3fn saturated", 3, 7, 0x7f, 0x80, sat_e4m3fn, dec_e4m3fn, 0x7e, false},
    {"e4m3fnuz saturated", 3, 8, 0x80, 0x80, sat_e4m3fnuz, dec_e4m3fnuz, 0x7f, true},
    {"e5m2 saturated", 2, 15, 0x7c, 0x80, sat_e5m2, dec_e5m2, 0x7b, false},
    {"e5m2fnuz saturated", 2, 16, 0x80, 0x80, sat_e5m2fnuz, dec_e5m2fnuz, 0x7f, true},
};

/* The value of a positive code by the definition. One past the last finite code is allowed: the
 * value it would have. */
static double value_of(const struct format *f, uint32_t code) {
    const uint32_t exponent = code >> f->man, low = code & ((1u << f->man) - 1);
    if (exponent == 0)
        return ldexp(low, 1 - f->bias - f->man);
    return ldexp((double)low + (double)(1u << f->man), (int)exponent - f->bias - f->man);
}

static void check(const struct format *f, double x, uint32_t wanted) {
    assert_true((double)(float)x == x); /* the test's own numbers are floats */
    uint32_t got = f->encode((float)x);
    if (got != wanted)
        fail_msg("%s: %a becomes %#x, not %#x", f->name, x, got, wanted);
    /* The same below zero, but for a format without minus zero or without a sign on NaN. */
    uint32_t below = wanted | f->sign;
    if (f->no_minus_zero && wanted == 0)
        below = 0;
    got = f->encode((float)-x);
    if (got != below)
        fail_msg("%s: %a becomes %#x, not %#x", f->name, -x, got, below);
}

static void every_code_and_middle(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
        const struct format *f = &formats[k];
        for (uint32_t code = 0; code < f->codes; code++) {
            const double v = value_of(f, code), next = value_of(f, code + 1);
            assert_true((double)f->decode(code) == v);
            if (code != 0 || !f->no_minus_zero)
                assert_true((double)f->decode(code | f->sign) == -v &&
                            signbit(f->decode(code | f->sign)));
            check(f, v, code);
            const uint32_t above = code + 1 < f->codes ? code + 1 : f->overflow;
            const double middle = (v + next) / 2;
            if (fabs(middle) > 3.4028234663852886e38 || (double)(float)middle != middle)
                continue; /* past the floats: the last middle of bf16 */
            const bool even = (code & 1) == 0;
            check(f, middle, even ? code : above);
            check(f, (double)nextafterf((float)middle, 0), code);
            check(f, (double)nextafterf((float)middle, INFINITY), above);
        }
        check(f, (double)INFINITY, f->overflow);
        if (f->overflow < f->codes || f->man < 7)
            check(f, (double)3e38f, f->overflow);
    }
}

/* Between the middles nothing changes: random floats go to the nearest value of a sorted table. */
static void random_floats(void **state) {
    (void)state;
    uint64_t rng = 3;
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
        const struct format *f = &formats[k];
        for (int i = 0; i < 50000; i++) {
            rng = rng * 6364136223846793005u + 1442695040888963407u;
            const double scale = value_of(f, f->codes - 1);
            /* Spread over the exponents of the format and a little outside. */
            const double x =
                (double)(float)(ldexp((double)(rng >> 11), -53) * scale * 1.1 *
                                ldexp(1, -(int)((rng >> 3) % (unsigned)(f->bias + f->man + 3))));
            uint32_t low = 0, high = f->codes; /* value_of(low) <= x < value_of(high) */
            while (high - low > 1) {
                const uint32_t mid = (low + high) / 2;
                if (value_of(f, mid) <= x)
                    low = mid;
                else
                    high = mid;
            }
            const double down = x - value_of(f, low), up = value_of(f, high) - x;
            uint32_t wanted = down < up || (down == up && (low & 1) == 0) ? low : high;
            if (x >= value_of(f, f->codes) || wanted >= f->codes)
                wanted = f->overflow;
            if (isfinite((float)x))
                check(f, x, wanted);
        }
    }
}

static float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static void not_a_number(void **state) {
    (void)state;
    static const uint32_t nans[] = {0x7f800001, 0x7fc00000, 0x7fffffff, 0x7fbfe000, 0x7f802000};
    static const uint16_t halves[] = {0x7c01, 0x7e00, 0x7fff, 0x7dff, 0x7c01}; /* numpy's */
    for (size_t i = 0; i < 5; i++) {
        const float x = float_of(nans[i]), minus = float_of(nans[i] | 0x80000000);
        assert_int_equal(oq_f32_to_f16(x), halves[i]);
        assert_int_equal(oq_f32_to_f16(minus), halves[i] | 0x8000);
        assert_int_equal(oq_f32_to_bf16(x), 0x7fc0);
        assert_int_equal(oq_f32_to_bf16(minus), 0xffc0);
        for (int saturate = 0; saturate < 2; saturate++) {
            assert_int_equal(oq_f32_to_fp8(x, OQ_FP8_E4M3FN, saturate), 0x7f);
            assert_int_equal(oq_f32_to_fp8(minus, OQ_FP8_E4M3FN, saturate), 0xff);
            assert_int_equal(oq_f32_to_fp8(x, OQ_FP8_E5M2, saturate), 0x7e);
            assert_int_equal(oq_f32_to_fp8(minus, OQ_FP8_E5M2, saturate), 0xfe);
            assert_int_equal(oq_f32_to_fp8(x, OQ_FP8_E4M3FNUZ, saturate), 0x80);
            assert_int_equal(oq_f32_to_fp8(minus, OQ_FP8_E5M2FNUZ, saturate), 0x80);
        }
    }
    uint64_t wide = 0x7ff0000000000001;
    double d;
    memcpy(&d, &wide, sizeof d);
    assert_int_equal(oq_f64_to_f16(d), 0x7c01);
    wide = 0xfff8040000000000;
    memcpy(&d, &wide, sizeof d);
    assert_int_equal(oq_f64_to_f16(d), 0xfe01);
    /* Every half NaN and infinity, bit for bit: the payload moves up. */
    for (uint32_t h = 0x7c00; h < 0x8000; h++) {
        assert_int_equal(bits_of(oq_f16_to_f32((uint16_t)h)), 0x7f800000 | (h & 0x3ff) << 13);
        assert_int_equal(bits_of(oq_f16_to_f32((uint16_t)(h | 0x8000))), 0xff800000 | (h & 0x3ff)
                                                                                          << 13);
    }
    assert_true(isnan(oq_fp8_to_f32(0x7f, OQ_FP8_E4M3FN)) &&
                isnan(oq_fp8_to_f32(0xff, OQ_FP8_E4M3FN)));
    assert_true(isnan(oq_fp8_to_f32(0x80, OQ_FP8_E4M3FNUZ)));
    assert_true(isnan(oq_fp8_to_f32(0x80, OQ_FP8_E5M2FNUZ)));
    assert_true(isinf(oq_fp8_to_f32(0x7c, OQ_FP8_E5M2)) && isinf(oq_fp8_to_f32(0xfc, OQ_FP8_E5M2)));
    for (uint8_t b = 0x7d; b < 0x80; b++)
        assert_true(isnan(oq_fp8_to_f32(b, OQ_FP8_E5M2)));
}

static void powers_of_two(void **state) {
    (void)state;
    for (int b = 0; b < 255; b++)
        assert_true((double)oq_e8m0_to_f32((uint8_t)b) == ldexp(1, b - 127));
    assert_true(isnan(oq_e8m0_to_f32(255)));
}

static void four_bits(void **state) {
    (void)state;
    const struct format e2m1 = {.man = 1, .bias = 1};
    for (uint32_t b = 0; b < 8; b++) {
        assert_true((double)oq_fp4_to_f32((uint8_t)b) == value_of(&e2m1, b));
        assert_true((double)oq_fp4_to_f32((uint8_t)(b | 8)) == -value_of(&e2m1, b));
    }
}

static void six_bits(void **state) {
    (void)state;
    const struct format e2m3 = {.man = 3, .bias = 1}, e3m2 = {.man = 2, .bias = 3};
    for (uint32_t b = 0; b < 32; b++) {
        assert_true((double)oq_fp6_to_f32((uint8_t)b, false) == value_of(&e2m3, b));
        assert_true((double)oq_fp6_to_f32((uint8_t)b, true) == value_of(&e3m2, b));
        assert_true((double)oq_fp6_to_f32((uint8_t)(b | 32), true) == -value_of(&e3m2, b));
        assert_true((double)oq_fp6_to_f32((uint8_t)(b | 32), false) == -value_of(&e2m3, b));
    }
}

/* Doubles between the floats: rounded once, not twice. */
static void halves_of_doubles(void **state) {
    (void)state;
    assert_int_equal(oq_f64_to_f16(1 + 0x1p-11), 0x3c00);
    assert_int_equal(oq_f64_to_f16(1 + 0x1p-11 + 0x1p-50), 0x3c01);
    assert_int_equal(oq_f64_to_f16(0x1p-25), 0);
    assert_int_equal(oq_f64_to_f16(0x1p-25 + 0x1p-70), 1);
    assert_int_equal(oq_f64_to_f16(65519.999999), 0x7bff);
    assert_int_equal(oq_f64_to_f16(65520), 0x7c00);
    assert_int_equal(oq_f64_to_f16(-1e300), 0xfc00);
    assert_int_equal(oq_f64_to_f16(5e-324), 0);
    assert_int_equal(oq_f64_to_f16(-5e-324), 0x8000);
}

static void arrays(void **state) {
    (void)state;
    static uint16_t in[65536 + 1];
    static float out[65536];
    for (uint32_t i = 0; i < 65536; i++)
        in[i + 1] = (uint16_t)i;
    for (size_t n = 0; n < 40; n++) { /* odd lengths and an odd start */
        memset(out, 0x55, sizeof out);
        oq_f16_to_f32_n(in + 1 + 0x3bf0, out, n);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(bits_of(out[i]), bits_of(oq_f16_to_f32((uint16_t)(0x3bf0 + i))));
        assert_int_equal(bits_of(out[n]), 0x55555555);
    }
    oq_f16_to_f32_n(in + 1, out, 65536);
    for (uint32_t i = 0; i < 65536; i++)
        assert_true(bits_of(out[i]) == bits_of(oq_f16_to_f32((uint16_t)i)));
    static uint16_t back[65536];
    oq_f32_to_f16_n(out, back, 65536);
    for (uint32_t i = 0; i < 65536; i++)
        assert_true(back[i] == i);
    oq_bf16_to_f32_n(in + 1, out, 65536);
    for (uint32_t i = 0; i < 65536; i++)
        assert_true(bits_of(out[i]) == i << 16);
}

static void small_integers(void **state) {
    (void)state;
    for (int v = 0; v < 256; v++) { /* element 1 of the first byte, element 0 of the second */
        const uint8_t p[] = {(uint8_t)v, (uint8_t)v};
        const int low = v & 15, high = v >> 4;
        assert_int_equal(oq_get_u4(p, 1), high);
        assert_int_equal(oq_get_u4(p, 2), low);
        assert_int_equal(oq_get_i4(p, 1), high >= 8 ? high - 16 : high);
        assert_int_equal(oq_get_i4(p, 2), low >= 8 ? low - 16 : low);
        for (size_t i = 0; i < 8; i++) {
            const int two = v >> (2 * (i % 4)) & 3;
            assert_int_equal(oq_get_u2(p, i), two);
            assert_int_equal(oq_get_i2(p, i), two >= 2 ? two - 4 : two);
        }
    }
}

/* ---- the filter for the parity test ---- */

static float dec_e8m0(uint32_t c) {
    return oq_e8m0_to_f32((uint8_t)c);
}
static float dec_e2m3(uint32_t c) {
    return oq_fp6_to_f32((uint8_t)c, false);
}
static float dec_e3m2(uint32_t c) {
    return oq_fp6_to_f32((uint8_t)c, true);
}

static const struct filter {
    const char *name;
    uint32_t (*encode)(float x);
    float (*decode)(uint32_t code);
} filters[] = {
    {"f16", enc_f16, NULL},           {"bf16", enc_bf16, NULL},
    {"e4m3fn", enc_e4m3fn, NULL},     {"e4m3fnuz", enc_e4m3fnuz, NULL},
    {"e5m2", enc_e5m2, NULL},         {"e5m2fnuz", enc_e5m2fnuz, NULL},
    {"e4m3fn_sat", sat_e4m3fn, NULL}, {"e4m3fnuz_sat", sat_e4m3fnuz, NULL},
    {"e5m2_sat", sat_e5m2, NULL},     {"e5m2fnuz_sat", sat_e5m2fnuz, NULL},
    {"f16_f32", NULL, dec_f16},       {"bf16_f32", NULL, dec_bf16},
    {"e4m3fn_f32", NULL, dec_e4m3fn}, {"e4m3fnuz_f32", NULL, dec_e4m3fnuz},
    {"e5m2_f32", NULL, dec_e5m2},     {"e5m2fnuz_f32", NULL, dec_e5m2fnuz},
    {"fp4_f32", NULL, dec_fp4},       {"e8m0_f32", NULL, dec_e8m0},
    {"e2m3_f32", NULL, dec_e2m3},     {"e3m2_f32", NULL, dec_e3m2},
};

static int run_filter(const char *name) {
    if (strcmp(name, "f64_f16") == 0) {
        for (double x; fread(&x, sizeof x, 1, stdin) == 1;) {
            const uint16_t code = oq_f64_to_f16(x);
            fwrite(&code, sizeof code, 1, stdout);
        }
        return ferror(stdout) != 0;
    }
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        const struct filter *f = &filters[i];
        if (strcmp(f->name, name) != 0)
            continue;
        float x;
        uint16_t code;
        while (f->encode != NULL ? fread(&x, sizeof x, 1, stdin) == 1
                                 : fread(&code, sizeof code, 1, stdin) == 1) {
            if (f->encode != NULL) {
                code = (uint16_t)f->encode(x);
                fwrite(&code, sizeof code, 1, stdout);
            } else {
                x = f->decode(code);
                fwrite(&x, sizeof x, 1, stdout);
            }
        }
        return ferror(stdout) != 0;
    }
    fprintf(stderr, "no conversion is called %s\n", name);
    return 2;
}

int main(int argc, char **argv) {
    if (argc == 2)
        return run_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_and_middle),
        cmocka_unit_test(random_floats),
        cmocka_unit_test(not_a_number),
        cmocka_unit_test(powers_of_two),
        cmocka_unit_test(four_bits),
        cmocka_unit_test(six_bits),
        cmocka_unit_test(halves_of_doubles),
        cmocka_unit_test(arrays),
        cmocka_unit_test(small_integers),
    };
    return cmocka_run_group_tests_name("real", tests, NULL, NULL);
}
