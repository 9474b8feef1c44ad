/*
 * test_number_text.c — numbers from text, and text of numbers against the C library's. Special cases
 * of the latter are in test_json.c.
 */
#include "base/text/number_text.h"

#include "testing.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void numbers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {{"0", 0},  {"1.5", 1.5},  {"-0.25", -0.25},      {"+3", 3},       {".5", 0.5},
                {"2.", 2}, {"1e3", 1000}, {"-1.25E-2", -0.0125}, {"1e308", 1e308}};
    static const char *const bad[] = {"",    " 1", "1 ", "1,5", "1.5x",  "0x10", "nan",
                                      "inf", ".",  "1e", "--1", "1e999", "1.2.3"};
    char text[400];
    double v = 0;
    for (size_t i = 0; i < OQ_COUNT(good); i++) {
        assert_true(oq_real_read(good[i].text, &v));
        assert_true(v == good[i].value);
    }
    for (size_t i = 0; i < OQ_COUNT(bad); i++)
        assert_false(oq_real_read(bad[i], &v));
    memset(text, '1', sizeof text - 1); /* longer than any number is written */
    text[sizeof text - 1] = '\0';
    assert_false(oq_real_read(text, &v));
}

/* The fewest digits that read back, by trying; not for powers of two. */
static void check_digits(double v, bool is_float) {
    char text[OQ_NUMBER_TEXT], want[OQ_NUMBER_TEXT], digits[2][OQ_NUMBER_TEXT] = {{0}};
    const size_t n = is_float ? oq_float_text(text, (float)v) : oq_real_text(text, v);
    int precision = 0;
    do {
        snprintf(want, sizeof want, "%.*e", precision++, v);
    } while (is_float ? strtof(want, NULL) != (float)v : strtod(want, NULL) != v);
    assert_true(n == strlen(text) && n < sizeof text);
    assert_true(is_float ? strtof(text, NULL) == (float)v : strtod(text, NULL) == v);
    const char *const both[] = {text, want};
    for (int k = 0; k < 2; k++) { /* digits alone, without zeros around them */
        size_t m = 0;
        for (const char *p = both[k]; *p != '\0' && *p != 'e'; p++)
            if (*p >= '0' && *p <= '9' && (m > 0 || *p != '0'))
                digits[k][m++] = *p;
        while (m > 0 && digits[k][m - 1] == '0')
            digits[k][--m] = '\0';
    }
    assert_string_equal(digits[0], digits[1]);
}

static void digits_are_the_fewest(void **state) {
    (void)state;
    uint64_t seed = 88172645463325252u;
    for (int i = 0; i < 60000; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        const double v = ldexp((double)(seed >> 11 | 1), -60 - (int)(seed % 61)); /* 1e-20 to 100 */
        check_digits(v, false);
        check_digits((double)(float)v, false);
        check_digits((double)(float)v, true);
        check_digits((double)(seed % 999983) / 1000, false); /* few digits */
        check_digits((double)(float)((double)(seed % 9973) / 1000), true);
    }
    for (int i = 1; i < 2048; i++) /* edges of a histogram */
        check_digits(-3.7 + 7.1 / 2048 * i, false);
    for (double v = 1e-12; v < 1e18; v *= 10) { /* where the number of digits changes */
        check_digits(nextafter(v, 0), false);
        check_digits(nextafter(v, INFINITY), false);
        check_digits((double)nextafterf((float)v, 0), true);
        check_digits((double)nextafterf((float)v, INFINITY), true);
    }
}

static void whole_numbers(void **state) {
    (void)state;
    static const int64_t all[] = {0,    1,      9,         10,        11,       99,
                                  100,  101,    INT64_MAX, -1,        -10,      -99,
                                  -100, -12345, 1000000,   INT64_MIN, INT32_MIN};
    char text[OQ_NUMBER_TEXT], want[OQ_NUMBER_TEXT];
    for (size_t i = 0; i < OQ_COUNT(all); i++) {
        snprintf(want, sizeof want, "%lld", (long long)all[i]);
        assert_true(oq_int_text(text, all[i]) == strlen(want));
        assert_string_equal(text, want);
        snprintf(want, sizeof want, "%llu", (unsigned long long)all[i]);
        assert_true(oq_uint_text(text, (uint64_t)all[i]) == strlen(want));
        assert_string_equal(text, want);
    }
    static const struct {
        double value;
        const char *text;
    } python[] = {{0, "0.0"},   {-0.0, "-0.0"},  {3, "3.0"},      {-120, "-120.0"},
                  {0.5, "0.5"}, {1e16, "1e+16"}, {1e-5, "1e-05"}, {1e15, "1000000000000000.0"}};
    for (size_t i = 0; i < OQ_COUNT(python); i++) {
        assert_true(oq_python_text(text, python[i].value) == strlen(python[i].text));
        assert_string_equal(text, python[i].text);
    }
}

/* A program may have set a locale with a decimal comma, where the machine has one. */
static void locale_does_not_matter(void **state) {
    (void)state;
    static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"};
    char text[OQ_NUMBER_TEXT];
    double v = 0;
    for (size_t i = 0; i < OQ_COUNT(locales); i++)
        if (setlocale(LC_NUMERIC, locales[i]) != NULL)
            break;
    oq_real_text(text, 0.1);
    const bool read = oq_real_read(text, &v);
    setlocale(LC_NUMERIC, "C");
    assert_string_equal(text, "0.1");
    assert_true(read && v == 0.1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers),
        cmocka_unit_test(digits_are_the_fewest),
        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(locale_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
