/*
 * test_str.c — text views and the growable text buffer.
 */
#include "base/os.h"
#include "base/str.h"

#include "base/err.h"
#include "flaky_alloc.h"
#include "testing.h"

static void views_compare(void **state) {
    (void)state;
    const oq_str empty = {NULL, 0}, a = OQ_S("abc"), nul = {"a\0b", 3};
    assert_true(oq_str_eq(empty, OQ_S("")));
    assert_true(oq_str_eq(empty, oq_str_of(NULL)));
    assert_true(oq_str_is(a, "abc"));
    assert_false(oq_str_is(a, "abd"));
    assert_false(oq_str_is(nul, "a"));
    assert_true(oq_str_starts(a, OQ_S("ab")));
    assert_true(oq_str_starts(a, empty));
    assert_false(oq_str_starts(OQ_S("ab"), a));
    assert_true(oq_str_ends(a, OQ_S("bc")));
    assert_true(oq_str_ends(empty, empty));
    assert_false(oq_str_ends(a, OQ_S("ab")));
    assert_false(oq_str_ends(OQ_S("c"), OQ_S("bc")));
    assert_true(oq_str_cmp(a, a) == 0 && oq_str_cmp(empty, empty) == 0);
    assert_true(oq_str_cmp(OQ_S("ab"), a) < 0 && oq_str_cmp(a, OQ_S("ab")) > 0);
    assert_true(oq_str_cmp(OQ_S("\x7f"), OQ_S("\x80")) < 0); /* bytes are unsigned */
    assert_true(oq_str_cmp(empty, a) < 0);
}

static void views_are_made(void **state) {
    (void)state;
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    assert_true(oq_str_is(oq_str_format(&a, "%s_%d", "x", 7), "x_7"));
    const oq_str both = oq_str_cat(&a, OQ_S("ab"), (oq_str){"c\0d", 3});
    assert_int_equal(both.n, 5);
    assert_memory_equal(both.p, "abc\0d", 6);
    assert_int_equal(oq_str_cat(&a, (oq_str){NULL, 0}, (oq_str){NULL, 0}).n, 0);
    assert_non_null(oq_str_cat(&a, (oq_str){NULL, 0}, (oq_str){NULL, 0}).p);
    const oq_str copy = oq_str_copy(&a, both);
    assert_true(oq_str_eq(copy, both) && copy.p != both.p);
    assert_string_equal(oq_str_cstr(&a, OQ_S("xyz")), "xyz");
    assert_string_equal(oq_str_cstr(&a, (oq_str){NULL, 0}), "");
    assert_null(oq_str_cat(&a, (oq_str){"", SIZE_MAX}, OQ_S("x")).p);
    a.limit = 1;
    static const char big[400000];
    assert_null(oq_str_copy(&a, (oq_str){big, sizeof big}).p);
    assert_null(oq_str_format(&a, "%400000d", 1).p);
    oq_arena_release(&a);
}

static void distance(void **state) {
    (void)state;
    static const struct {
        const char *a, *b;
        size_t n;
    } cases[] = {
        {"", "", 0},
        {"a", "", 1},
        {"kitten", "sitting", 3},
        {"per_channel", "per_chanel", 1},
        {"input", "inptu", 2},
        {"abcdef", "ghijkl", 5},
        {"a", "abcdefghij", 5},
    };
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        assert_int_equal(oq_str_distance(oq_str_of(cases[i].a), oq_str_of(cases[i].b), 5),
                         cases[i].n);
        assert_int_equal(oq_str_distance(oq_str_of(cases[i].b), oq_str_of(cases[i].a), 5),
                         cases[i].n);
    }
    static char big[1000];
    memset(big, 'x', sizeof big);
    assert_int_equal(oq_str_distance((oq_str){big, 1000}, (oq_str){big, 1000}, 9), 9);
    assert_int_equal(oq_str_distance((oq_str){big, 64}, (oq_str){big, 64}, 9), 0);
}

static void numbers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t v;
    } good[] = {{"0", 0},
                {"-0", 0},
                {"007", 7},
                {"9223372036854775807", INT64_MAX},
                {"-9223372036854775808", INT64_MIN}};
    static const char *const bad[] = {"",
                                      "-",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1.0",
                                      "0x1",
                                      "1e3",
                                      "--1",
                                      "9223372036854775808",
                                      "1-",
                                      "a",
                                      "-9223372036854775809",
                                      "99999999999999999999"};
    int64_t v = 0;
    for (size_t i = 0; i < OQ_COUNT(good); i++) {
        assert_true(oq_str_to_i64(oq_str_of(good[i].text), &v));
        assert_int_equal(v, good[i].v);
    }
    for (size_t i = 0; i < OQ_COUNT(bad); i++)
        assert_false(oq_str_to_i64(oq_str_of(bad[i]), &v));
    assert_false(oq_str_to_i64((oq_str){"1\0", 2}, &v));
}

/* Every lead byte with every second byte, against the table of the Unicode standard (3-7). */
static void utf8(void **state) {
    (void)state;
    for (unsigned lead = 0; lead < 256; lead++) {
        for (unsigned second = 0; second < 256; second++) {
            const char text[4] = {(char)lead, (char)second, '\x80', '\xbf'};
            size_t wanted = 0;
            if (lead < 0x80)
                wanted = 1;
            else if (lead >= 0xc2 && lead <= 0xdf)
                wanted = second >= 0x80 && second <= 0xbf ? 2 : 0;
            else if (lead == 0xe0)
                wanted = second >= 0xa0 && second <= 0xbf ? 3 : 0;
            else if (lead == 0xed)
                wanted = second >= 0x80 && second <= 0x9f ? 3 : 0;
            else if (lead >= 0xe1 && lead <= 0xef)
                wanted = second >= 0x80 && second <= 0xbf ? 3 : 0;
            else if (lead == 0xf0)
                wanted = second >= 0x90 && second <= 0xbf ? 4 : 0;
            else if (lead >= 0xf1 && lead <= 0xf3)
                wanted = second >= 0x80 && second <= 0xbf ? 4 : 0;
            else if (lead == 0xf4)
                wanted = second >= 0x80 && second <= 0x8f ? 4 : 0;
            assert_int_equal(oq_utf8_len(text, 4), wanted);
            for (size_t n = 0; n < 4; n++)
                assert_int_equal(oq_utf8_len(text, n), n >= wanted ? wanted : 0);
        }
    }
    assert_int_equal(oq_utf8_len("\xe2\x82\x41", 3), 0);
    assert_int_equal(oq_utf8_len("\xf0\x9f\x98\x41", 4), 0);
}

static void buffer_grows(void **state) {
    (void)state;
    oq_buf b;
    oq_buf_init(&b, oq_alloc_default());
    for (int i = 0; i < 1000; i++)
        oq_buf_addf(&b, "%d,", i);
    assert_false(b.failed);
    assert_int_equal(b.n, 10 * 2 + 90 * 3 + 900 * 4);
    assert_int_equal(strlen(b.p), b.n);
    assert_memory_equal(b.p + b.n - 8, "998,999,", 9);
    oq_buf_release(&b);
    assert_null(b.p);
    oq_buf_addc(&b, 'x');
    oq_buf_adds(&b, "yz");
    oq_buf_add_str(&b, (oq_str){NULL, 0});
    oq_buf_add(&b, "\0q", 2);
    assert_int_equal(b.n, 5);
    assert_memory_equal(b.p, "xyz\0q", 6);
    oq_buf_add(&b, "", SIZE_MAX - 2);
    assert_true(b.failed);
    oq_buf_addc(&b, 'x');
    assert_int_equal(b.n, 5);
    oq_buf_release(&b);
    oq_buf_release(&b);
}

static void json_text(void **state) {
    (void)state;
    const struct {
        oq_str in;
        const char *out;
    } cases[] = {
        {{NULL, 0}, "\"\""},
        {OQ_S("plain"), "\"plain\""},
        {OQ_S("q\"b\\"), "\"q\\\"b\\\\\""},
        {OQ_S("a\nb\tc\x01\x7f"), "\"a\\nb\\u0009c\\u0001\\u007f\""},
        {{"a\0b", 3}, "\"a\\u0000b\""},
        {OQ_S("\xc3\xbc\xf0\x9f\x98\x80"), "\"\xc3\xbc\xf0\x9f\x98\x80\""},
        {OQ_S("\xc2\x85"
              "a\xc2\x9b\xc2\xa0"),
         "\"\\u0085a\\u009b\xc2\xa0\""},
        {OQ_S("\xe2\x80\xae\xe2\x81\xa9\xe2\x82\xac"), "\"\\u202e\\u2069\xe2\x82\xac\""},
        {OQ_S("x\xff\xc3"), "\"x\xef\xbf\xbd\xef\xbf\xbd\""},
    };
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        oq_buf b;
        oq_buf_init(&b, oq_alloc_default());
        oq_buf_add_json(&b, cases[i].in);
        assert_string_equal(b.p, cases[i].out);
        oq_buf_release(&b);
    }
}

/* Long texts pass in pieces: no character may be cut, whatever is where. */
static void safe_text(void **state) {
    (void)state;
    static const char unit[] = "\xe2\x82\xac"
                               "a\x1b\xf0\x9f\x98\x80\xc3";
    for (size_t shift = 0; shift < 60; shift++) {
        oq_buf in, wanted, got;
        oq_buf_init(&in, oq_alloc_default());
        oq_buf_init(&wanted, oq_alloc_default());
        oq_buf_init(&got, oq_alloc_default());
        for (size_t i = 0; i < shift; i++) {
            oq_buf_addc(&in, '.');
            oq_buf_addc(&wanted, '.');
        }
        for (int i = 0; i < 40; i++) {
            oq_buf_adds(&in, unit);
            oq_buf_adds(&wanted, "\xe2\x82\xac"
                                 "a\\x1b\xf0\x9f\x98\x80\\xc3");
        }
        oq_buf_add_safe(&got, (oq_str){in.p, in.n});
        assert_string_equal(got.p, wanted.p);
        oq_buf_release(&in);
        oq_buf_release(&wanted);
        oq_buf_release(&got);
    }
}

/* Words for a shell: quoted where they need it, to be shown or to be run. */
static void words(void **state) {
    static const struct {
        const char *word, *shown, *run;
    } cases[] = {{"a/b-c.onnx", "a/b-c.onnx", "a/b-c.onnx"},
                 {"", "''", "''"},
                 {"a b", "'a b'", "'a b'"},
                 {"it's", "'it'\\''s'", "'it'\\''s'"},
                 {"\xc3\xbc b", "'\xc3\xbc b'", "'\xc3\xbc b'"},
                 {"$(x)", "'$(x)'", "'$(x)'"},
                 {"a\nb", "'a\\x0ab'", "'a\nb'"}};
    (void)state;
    if (oq_os_shell.quote != '\'')
        skip(); /* the words of another system's shell */
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        oq_buf shown, run;
        oq_buf_init(&shown, oq_alloc_default());
        oq_buf_init(&run, oq_alloc_default());
        oq_buf_add_word(&shown, oq_str_of(cases[i].word));
        oq_buf_add_exact_word(&run, oq_str_of(cases[i].word));
        assert_string_equal(shown.p, cases[i].shown);
        assert_string_equal(run.p, cases[i].run);
        oq_buf_release(&shown);
        oq_buf_release(&run);
    }
}

static onq_code use_buffer(const onq_allocator *a, void *ctx, onq_error *err) {
    (void)ctx;
    oq_buf b;
    oq_buf_init(&b, a);
    for (int i = 0; i < 500; i++) {
        oq_buf_add_json(&b, OQ_S("some text\n"));
        oq_buf_add_safe(&b, OQ_S("\x01"));
        oq_buf_addf(&b, "%d", i);
    }
    const bool failed = b.failed;
    oq_buf_release(&b);
    return failed ? oq_fail_nomem(err) : ONQ_OK;
}

static void sweep(void **state) {
    (void)state;
    assert_true(flaky_sweep(use_buffer, NULL) > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_compare), cmocka_unit_test(views_are_made),
        cmocka_unit_test(distance),      cmocka_unit_test(numbers),
        cmocka_unit_test(utf8),          cmocka_unit_test(buffer_grows),
        cmocka_unit_test(json_text),     cmocka_unit_test(safe_text),
        cmocka_unit_test(words),         cmocka_unit_test(sweep),
    };
    return cmocka_run_group_tests_name("str", tests, NULL, NULL);
}
