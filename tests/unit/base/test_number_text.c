/*
 * test_number_text.c — numbers from text. How they are written is in test_json.c.
 */
#include "base/number_text.h"

#include "testing.h"

#include <locale.h>
#include <stdio.h>
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

/* A program may have set a locale with a decimal comma, where the machine has one. */
static void locale_does_not_matter(void **state) {
    (void)state;
    static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"};
    char text[32];
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
        cmocka_unit_test(locale_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
