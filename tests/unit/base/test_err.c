/*
 * test_err.c — errors: context in front, nothing unprintable, never past the buffer.
 */
#include "base/err.h"
#include "testing.h"

#include <errno.h>
#include <string.h>

static void fail_sets_all(void **state) {
    (void)state;
    onq_error err = ONQ_ERROR_INIT;
    assert_int_equal(oq_fail(&err, ONQ_E_INVALID, "weight '%s' has %d bytes", "w", 7),
                     ONQ_E_INVALID);
    assert_int_equal(err.code, ONQ_E_INVALID);
    assert_int_equal(err.offset, -1);
    assert_string_equal(err.text, "weight 'w' has 7 bytes");

    assert_int_equal(oq_fail_at(&err, ONQ_E_MALFORMED, 42, "varint too long"), ONQ_E_MALFORMED);
    assert_int_equal(err.offset, 42);
    assert_string_equal(err.text, "varint too long (at byte 42)");

    assert_int_equal(oq_fail_errno(&err, ONQ_E_OPEN, ENOENT, "a.onnx"), ONQ_E_MISSING);
    assert_int_equal(oq_fail_errno(NULL, ONQ_E_OPEN, ENOENT, "a.onnx"), ONQ_E_MISSING);
    assert_int_equal(oq_fail_errno(NULL, ONQ_E_OPEN, EACCES, "a.onnx"), ONQ_E_OPEN);
    assert_string_equal(err.text, "a.onnx: No such file or directory");
    assert_int_equal(err.offset, -1);

    assert_int_equal(oq_fail_nomem(&err), ONQ_E_NOMEM);
    assert_string_equal(err.text, "out of memory");

    oq_error_clear(&err);
    assert_int_equal(err.code, ONQ_OK);
    assert_int_equal(err.offset, -1);
    assert_string_equal(err.text, "");
}

static void context_goes_in_front(void **state) {
    (void)state;
    onq_error err = ONQ_ERROR_INIT;
    oq_fail_at(&err, ONQ_E_INVALID, 9, "too short");
    assert_int_equal(oq_error_in(&err, ONQ_E_INVALID, "node '%s' (%s)", "c1", "Conv"),
                     ONQ_E_INVALID);
    oq_error_in(&err, ONQ_E_INVALID, "%s", "m.onnx");
    assert_string_equal(err.text, "m.onnx: node 'c1' (Conv): too short (at byte 9)");
    assert_int_equal(err.offset, 9);
}

static void null_is_allowed(void **state) {
    (void)state;
    assert_int_equal(oq_fail(NULL, ONQ_E_READ, "x"), ONQ_E_READ);
    assert_int_equal(oq_fail_at(NULL, ONQ_E_READ, 1, "x"), ONQ_E_READ);
    assert_int_equal(oq_fail_errno(NULL, ONQ_E_READ, EIO, "x"), ONQ_E_READ);
    assert_int_equal(oq_error_in(NULL, ONQ_E_READ, "x"), ONQ_E_READ);
    assert_int_equal(oq_fail_nomem(NULL), ONQ_E_NOMEM);
    oq_error_clear(NULL);
}

static void text_is_printable(void **state) {
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain ~ text", "plain ~ text"},
        {"\x1b[31m", "\\x1b[31m"},
        {"a\nb\tc\x7f", "a\\x0ab\\x09c\\x7f"},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
         "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xff\xc3", "\\xff\\xc3"},                   /* not UTF-8 */
        {"\xc0\x80", "\\xc0\\x80"},                   /* overlong */
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},          /* surrogate */
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, /* past U+10FFFF */
        {"\xc2\x9b"
         "31m",
         "\\xc2\\x9b"
         "31m"},                             /* C1 control */
        {"\xe2\x80\xae", "\\xe2\\x80\\xae"}, /* right-to-left override */
        {"\xe2\x80\xa8", "\\xe2\\x80\\xa8"}, /* line separator */
        {"\xe2\x81\xa6", "\\xe2\\x81\\xa6"}, /* isolate */
        {"C:\\x", "C:\\x"},
    };
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        onq_error err = ONQ_ERROR_INIT;
        oq_fail(&err, ONQ_E_READ, "%s", cases[i].in);
        assert_string_equal(err.text, cases[i].out);
        oq_fail(&err, ONQ_E_READ, "m");
        oq_error_in(&err, ONQ_E_READ, "%s", cases[i].in);
        assert_memory_equal(err.text, cases[i].out, strlen(cases[i].out));
    }
}

/* Texts of every length around the buffer's, plain and full of bytes that grow fourfold. */
static void long_texts_are_cut(void **state) {
    (void)state;
    static char in[3000];
    for (int kind = 0; kind < 3; kind++) {
        for (size_t n = 200; n<sizeof in; n += n> 1000 && n < 1040 ? 1 : 13) {
            memset(in, kind == 0 ? 'a' : kind == 1 ? 1 : '\xe2', n);
            in[n] = '\0';
            onq_error err = ONQ_ERROR_INIT;
            oq_fail(&err, ONQ_E_READ, "%s", in);
            const size_t whole = kind == 0 ? n : n * 4;
            assert_true(memchr(err.text, '\0', sizeof err.text) != NULL);
            if (whole < sizeof err.text)
                assert_int_equal(strlen(err.text), whole);
            else
                assert_string_equal(err.text + strlen(err.text) - 3, "...");

            /* The offset survives. */
            oq_fail_at(&err, ONQ_E_READ, UINT64_MAX, "%s", in);
            assert_non_null(strstr(err.text, " (at byte 18446744073709551615)"));
            assert_int_equal(err.offset, INT64_MAX);
            /* So does the reason. */
            oq_fail_errno(&err, ONQ_E_READ, EIO, "%s", in);
            assert_non_null(strstr(err.text, ": Input/output error"));
            /* A long context leaves half to the message. */
            oq_fail(&err, ONQ_E_READ, "the message");
            oq_error_in(&err, ONQ_E_READ, "%s", in);
            assert_non_null(strstr(err.text, ": the message"));
            assert_true(strlen(err.text) < sizeof err.text);
            for (int k = 0; k < 5; k++)
                oq_error_in(&err, ONQ_E_READ, "%s", in);
            assert_true(strlen(err.text) < sizeof err.text);
        }
    }
}

static void escape_fits_any_buffer(void **state) {
    (void)state;
    static const char in[] = "ab\x01"
                             "cd\xe2\x82\xac"
                             "ef";
    static const char whole[] = "ab\\x01"
                                "cd\xe2\x82\xac"
                                "ef";
    for (size_t cap = 8; cap < 40; cap++) {
        char out[48];
        memset(out, '#', sizeof out);
        const size_t n = oq_text_escape(out, cap, in, sizeof in - 1);
        assert_true(n < cap);
        assert_int_equal(strlen(out), n);
        for (size_t i = n + 1; i < sizeof out; i++)
            assert_int_equal(out[i], '#');
        if (cap >= sizeof whole)
            assert_string_equal(out, whole);
        else
            assert_string_equal(out + n - 3, "...");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_sets_all),      cmocka_unit_test(context_goes_in_front),
        cmocka_unit_test(null_is_allowed),    cmocka_unit_test(text_is_printable),
        cmocka_unit_test(long_texts_are_cut), cmocka_unit_test(escape_fits_any_buffer),
    };
    return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
