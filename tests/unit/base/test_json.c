/*
 * test_json.c — reading with limits, the writer, and the shortest text of numbers.
 *
 *     unit_base_test_json numbers      float64 from standard input, their texts to standard output
 *     unit_base_test_json floats       the same for float32
 *
 * The last two serve the parity test, which compares with Python.
 */
#include "base/text/json.h"

#include "base/text/number_text.h"
#include "flaky_alloc.h"
#include "scratch.h"
#include "testing.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void reads(void **state) {
    (void)state;
    json_t *root = NULL;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(
        oq_json_parse("x", OQ_S("{\"a\": [1, 2.5, \"t\", null, true], \"b\": {}}"), &root, &err),
        err);
    assert_int_equal(json_array_size(json_object_get(root, "a")), 5);
    json_decref(root);
    assert_ok(oq_json_parse("x", OQ_S(" 7 "), &root, &err), err);
    assert_int_equal(json_integer_value(root), 7);
    json_decref(root);
}

static void refuses(void **state) {
    (void)state;
    const struct {
        oq_str text;
        const char *says;
    } cases[] = {
        {{NULL, 0}, "line 1, column 1"},
        {OQ_S("   "), "line 1, column"},
        {OQ_S("{\"a\": 1,\n \"b\": }"), "line 2, column 7"},
        {OQ_S("{\"a\": 1, \"a\": 2}"), "duplicate"},
        {OQ_S("{\"a\": {\"b\": 1, \"b\": 2}}"), "duplicate"},
        {OQ_S("[1, 2"), "line 1"},
        {OQ_S("[1] x"), "line 1, column 5"},
        {OQ_S("[NaN]"), "line 1, column 2"},
        {OQ_S("[Infinity]"), "not valid JSON"},
        {OQ_S("[1e999]"), "overflow"},
        {OQ_S("[99999999999999999999]"), "too big"},
        {OQ_S("[01]"), "not valid JSON"},
        {OQ_S("{'a': 1}"), "not valid JSON"},
        {OQ_S("{a: 1}"), "not valid JSON"},
        {OQ_S("[1,]"), "not valid JSON"},
        {OQ_S("// no\n1"), "not valid JSON"},
        {OQ_S("\"\xff\""), "0xff"},
        {OQ_S("\"\n\""), "not valid JSON"},
        {OQ_S("\"\\u0000\""), "not valid JSON"},
        {{"1\0", 2}, "column 2: not valid JSON: a NUL byte"},
        {OQ_S("\xef\xbb\xbf{}"), "not valid JSON"},
    };
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        json_t *root = (json_t *)1;
        onq_error err = ONQ_ERROR_INIT;
        assert_fails(oq_json_parse("f.json", cases[i].text, &root, &err), ONQ_E_CONFIG, err,
                     cases[i].says);
        assert_memory_equal(err.text, "f.json: line ", 13);
        assert_null(root);
        assert_true(err.offset >= 0 && (size_t)err.offset <= cases[i].text.n);
    }
    assert_int_equal(oq_json_parse("x", OQ_S("["), &(json_t *){NULL}, NULL), ONQ_E_CONFIG);
}

/* Text of n opening brackets and as many closing ones. */
static oq_str nested(oq_buf *b, size_t n, const char *open, const char *close) {
    oq_buf_release(b);
    for (size_t i = 0; i < n; i++)
        oq_buf_adds(b, open);
    oq_buf_adds(b, "1");
    for (size_t i = 0; i < n; i++)
        oq_buf_adds(b, close);
    return (oq_str){b->p, b->n};
}

static void limits(void **state) {
    (void)state;
    oq_buf b;
    json_t *root;
    onq_error err = ONQ_ERROR_INIT;
    oq_buf_init(&b, oq_alloc_default());
    assert_ok(oq_json_parse("x", nested(&b, OQ_MAX_JSON_DEPTH, "[", "]"), &root, &err), err);
    json_decref(root);
    assert_ok(oq_json_parse("x", nested(&b, OQ_MAX_JSON_DEPTH, "{\"a\":", "}"), &root, &err), err);
    json_decref(root);
    assert_fails(oq_json_parse("x", nested(&b, OQ_MAX_JSON_DEPTH + 1, "[", "]"), &root, &err),
                 ONQ_E_LIMIT, err, "line 1, column 65");
    assert_fails(oq_json_parse("x", nested(&b, 100000, "[\n", "]"), &root, &err), ONQ_E_LIMIT, err,
                 "line 65, column 1");
    assert_fails(oq_json_parse("x", nested(&b, 100000, "{\"a\":", "}"), &root, &err), ONQ_E_LIMIT,
                 err, "64 deep");
    /* Brackets in texts are no nesting, escaped quotes or not. */
    oq_buf_release(&b);
    oq_buf_adds(&b, "[\"\\\"");
    for (int i = 0; i < 1000; i++)
        oq_buf_adds(&b, "[{");
    oq_buf_adds(&b, "\\\\\"]");
    assert_ok(oq_json_parse("x", (oq_str){b.p, b.n}, &root, &err), err);
    json_decref(root);
    /* Few bytes of text, much of a tree; what is honest fits. */
    static const struct {
        const char *unit;
        size_t n, most; /* thousands */
    } trees[] = {{"{},", 10, 2000},
                 {"[],", 50, 6000},
                 {"1,", 200, 12000},
                 {"\"\",", 100, 9000},
                 {"{\"a\":1},", 10, 3000}};
    for (size_t i = 0; i < OQ_COUNT(trees); i++) {
        oq_buf thousand;
        oq_buf_init(&thousand, oq_alloc_default());
        for (size_t k = 0; k < 1000; k++)
            oq_buf_adds(&thousand, trees[i].unit);
        for (int over = 0; over < 2; over++) {
            oq_buf_release(&b);
            oq_buf_adds(&b, "[");
            for (size_t k = over ? trees[i].most : trees[i].n; k > 0; k--)
                oq_buf_add(&b, thousand.p, thousand.n);
            oq_buf_adds(&b, "1]");
            const onq_code rc = oq_json_parse("x", (oq_str){b.p, b.n}, &root, &err);
            if (over)
                assert_fails(rc, ONQ_E_LIMIT, err, "memory");
            else
                assert_ok(rc, err);
            json_decref(root);
        }
        oq_buf_release(&thousand);
    }
    const oq_str big = {"[", (size_t)OQ_MAX_JSON + 1};
    assert_fails(oq_json_parse("x", big, &root, &err), ONQ_E_LIMIT, err, "limit of 67108864");
    oq_buf_release(&b);
}

static void reads_files(void **state) {
    (void)state;
    scratch s;
    scratch_init(&s);
    json_t *root;
    onq_error err = ONQ_ERROR_INIT;
    const onq_allocator *a = oq_alloc_default();
    assert_ok(oq_json_read(a, scratch_file(&s, "a.json", "[1]\n", 4), &root, &err), err);
    json_decref(root);
    const char *bad = scratch_file(&s, "b.json", "[1\n", 3);
    assert_fails(oq_json_read(a, bad, &root, &err), ONQ_E_CONFIG, err, bad);
    assert_fails(oq_json_read(a, scratch_path(&s, "c"), &root, &err), ONQ_E_MISSING, err,
                 "No such");
    /* The text itself in place of a file. */
    assert_ok(oq_json_read(a, " {\"x\": [128, 0.5]}", &root, &err), err);
    assert_int_equal(json_array_size(json_object_get(root, "x")), 2);
    json_decref(root);
    assert_fails(oq_json_read(a, "{\"x\": ", &root, &err), ONQ_E_CONFIG, err, "JSON text");
    assert_fails(oq_json_read(a, scratch_file(&s, "d", NULL, (size_t)1 << 30), &root, &err),
                 ONQ_E_LIMIT, err, "more than the limit");
    scratch_remove(&s);
}

/* ---- the writer ---- */

static void write_sample(oq_jw *w) {
    oq_jw_begin_object(w, NULL);
    oq_jw_cstr(w, "name", "a\"b");
    oq_jw_int(w, "min", INT64_MIN);
    oq_jw_uint(w, "max", UINT64_MAX);
    oq_jw_begin_array(w, "dims");
    oq_jw_int(w, NULL, 1);
    oq_jw_int(w, NULL, -1);
    oq_jw_end_array(w);
    oq_jw_begin_array(w, "none");
    oq_jw_end_array(w);
    oq_jw_begin_object(w, "empty");
    oq_jw_end_object(w);
    oq_jw_key(w, OQ_S("k\n"));
    oq_jw_begin_array(w, NULL);
    oq_jw_begin_object(w, NULL);
    oq_jw_real(w, "x", 0.1);
    oq_jw_float(w, "y", 0.1f);
    oq_jw_end_object(w);
    oq_jw_begin_object(w, NULL);
    oq_jw_bool(w, "t", true);
    oq_jw_null(w, "n");
    oq_jw_end_object(w);
    oq_jw_end_array(w);
    oq_jw_real(w, "inf", (double)INFINITY);
    oq_jw_float(w, "nan", NAN);
    oq_jw_key(w, OQ_S("s"));
    oq_jw_str(w, NULL, (oq_str){NULL, 0});
    oq_jw_end_object(w);
}

static void writes(void **state) {
    (void)state;
    static const char flat[] =
        "{\"name\":\"a\\\"b\",\"min\":-9223372036854775808,\"max\":18446744073709551615,"
        "\"dims\":[1,-1],\"none\":[],\"empty\":{},\"k\\n\":[{\"x\":0.1,\"y\":0.1},"
        "{\"t\":true,\"n\":null}],\"inf\":null,\"nan\":null,\"s\":\"\"}";
    static const char pretty[] = "{\n"
                                 "  \"name\": \"a\\\"b\",\n"
                                 "  \"min\": -9223372036854775808,\n"
                                 "  \"max\": 18446744073709551615,\n"
                                 "  \"dims\": [1, -1],\n"
                                 "  \"none\": [],\n"
                                 "  \"empty\": {},\n"
                                 "  \"k\\n\": [\n"
                                 "    {\n"
                                 "      \"x\": 0.1,\n"
                                 "      \"y\": 0.1\n"
                                 "    },\n"
                                 "    {\n"
                                 "      \"t\": true,\n"
                                 "      \"n\": null\n"
                                 "    }\n"
                                 "  ],\n"
                                 "  \"inf\": null,\n"
                                 "  \"nan\": null,\n"
                                 "  \"s\": \"\"\n"
                                 "}";
    for (int p = 0; p < 2; p++) {
        oq_buf b;
        oq_jw w;
        oq_buf_init(&b, oq_alloc_default());
        oq_jw_init(&w, &b, p == 1);
        write_sample(&w);
        assert_string_equal(b.p, p == 1 ? pretty : flat);
        oq_buf_release(&b);
    }
}

static onq_code write_it(const onq_allocator *a, void *ctx, onq_error *err) {
    (void)ctx;
    oq_buf b;
    oq_jw w;
    oq_buf_init(&b, a);
    oq_jw_init(&w, &b, true);
    oq_jw_begin_array(&w, NULL);
    for (int i = 0; i < 20; i++)
        write_sample(&w);
    oq_jw_end_array(&w);
    const bool failed = b.failed;
    oq_buf_release(&b);
    return failed ? oq_fail_nomem(err) : ONQ_OK;
}

static void sweep(void **state) {
    (void)state;
    assert_true(flaky_sweep(write_it, NULL) > 3);
}

/* ---- numbers ---- */

/* Elements that are written elsewhere and joined are those that are written in their order. */
static void forks(void **state) {
    (void)state;
    for (int pretty = 0; pretty < 2; pretty++) {
        oq_buf texts[4];
        oq_jw w[2], parts[2];
        for (size_t i = 0; i < OQ_COUNT(texts); i++)
            oq_buf_init(&texts[i], oq_alloc_default());
        for (size_t i = 0; i < 2; i++) {
            oq_jw_init(&w[i], &texts[i], pretty == 1);
            oq_jw_begin_array(&w[i], NULL);
            oq_jw_int(&w[i], NULL, 1);
        }
        for (size_t i = 0; i < 2; i++)
            parts[i] = oq_jw_fork(&w[1], &texts[2 + i]);
        for (int k = 1; k >= 0; k--) { /* the second first */
            oq_jw_begin_object(&parts[k], NULL);
            oq_jw_int(&parts[k], "a", k);
            oq_jw_end_object(&parts[k]);
        }
        for (int k = 0; k < 2; k++) {
            oq_jw_begin_object(&w[0], NULL);
            oq_jw_int(&w[0], "a", k);
            oq_jw_end_object(&w[0]);
            oq_jw_join(&w[1], &parts[k]);
        }
        for (size_t i = 0; i < 2; i++) {
            oq_jw_int(&w[i], NULL, 2);
            oq_jw_end_array(&w[i]);
        }
        assert_string_equal(texts[0].p, texts[1].p);
        for (size_t i = 0; i < OQ_COUNT(texts); i++)
            oq_buf_release(&texts[i]);
    }
}

static void number_texts(void **state) {
    (void)state;
    static const struct {
        double v;
        const char *text;
    } cases[] = {
        {0.0, "0"},
        {-0.0, "-0.0"},
        {1, "1"},
        {-12345, "-12345"},
        {0.1, "0.1"},
        {1.0 / 3, "0.3333333333333333"},
        {0.0001, "0.0001"},
        {0.00001, "1e-05"},
        {0.000123456, "0.000123456"},
        {1e15, "1000000000000000"},
        {1e16, "1e+16"},
        {123456789012345678.0, "1.2345678901234568e+17"},
        {9007199254740993.0, "9007199254740992"},
        {5e-324, "5e-324"},
        {DBL_MIN, "2.2250738585072014e-308"},
        {DBL_MAX, "1.7976931348623157e+308"},
        {0x1p-44, "5.684341886080802e-14"}, /* the nearest 16 digits would not read back */
        {9.5e-5, "9.5e-05"},
        {99999.5, "99999.5"},
        {(double)INFINITY, "inf"},
        {-(double)INFINITY, "-inf"},
        {(double)NAN, "nan"},
    };
    char b[OQ_NUMBER_TEXT];
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        oq_real_text(b, cases[i].v);
        assert_string_equal(b, cases[i].text);
    }
    static const struct {
        float v;
        const char *text;
    } floats[] = {
        {0.1f, "0.1"},
        {1.0f / 3, "0.33333334"},
        {16777216.0f, "16777216"},
        {1e-45f, "1e-45"},
        {FLT_MIN, "1.1754944e-38"},
        {FLT_MAX, "3.4028235e+38"},
        {0x1p87f, "1.5474251e+26"},
        {-0.0f, "-0.0"},
    };
    for (size_t i = 0; i < OQ_COUNT(floats); i++) {
        oq_float_text(b, floats[i].v);
        assert_string_equal(b, floats[i].text);
    }
}

/* Every text reads back as the number, and fewer digits would not. */
static void numbers_read_back(void **state) {
    (void)state;
    uint64_t rng = 7;
    for (int i = 0; i < 40000; i++) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        uint64_t bits = rng ^ (rng >> 31);
        double v;
        memcpy(&v, &bits, sizeof v);
        char b[OQ_NUMBER_TEXT];
        memset(b, '#', sizeof b);
        if (isfinite(v)) {
            oq_real_text(b, v);
            assert_true(strtod(b, NULL) == v);
            assert_true(memchr(b, '\0', sizeof b) != NULL);
            char shorter[40];
            int digits = 0, all = 0; /* up to the last one that is not 0, and all */
            for (const char *p = b; *p != '\0' && *p != 'e'; p++) {
                all += *p >= '0' && *p <= '9' && (all != 0 || *p != '0');
                if (*p >= '1' && *p <= '9')
                    digits = all;
            }
            if (digits > 1) {
                snprintf(shorter, sizeof shorter, "%.*e", digits - 2, v);
                assert_true(strtod(shorter, NULL) != v);
            }
        }
        const uint32_t low = (uint32_t)(bits >> 16);
        float f;
        memcpy(&f, &low, sizeof f);
        if (isfinite(f)) {
            oq_float_text(b, f);
            assert_true(strtof(b, NULL) == f);
        }
    }
}

/* A program may have set a locale with a decimal comma. */
static void locale_does_not_matter(void **state) {
    (void)state;
    static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8",
                                          "fa_IR.UTF-8"};
    char b[OQ_NUMBER_TEXT];
    for (size_t i = 0; i < OQ_COUNT(locales); i++) {
        if (setlocale(LC_NUMERIC, locales[i]) == NULL)
            continue;
        oq_real_text(b, 0.15625);
        json_t *root = NULL;
        const onq_code rc = oq_json_parse("x", OQ_S("1.5"), &root, NULL);
        const double v = json_real_value(root);
        json_decref(root);
        setlocale(LC_NUMERIC, "C");
        assert_string_equal(b, "0.15625");
        assert_int_equal(rc, ONQ_OK);
        assert_true(v == 1.5);
        return;
    }
    skip();
}

static int print_numbers(bool floats) {
    char b[OQ_NUMBER_TEXT];
    double v;
    float f;
    while (floats ? fread(&f, sizeof f, 1, stdin) == 1 : fread(&v, sizeof v, 1, stdin) == 1) {
        if (floats)
            oq_float_text(b, f);
        else
            oq_real_text(b, v);
        puts(b);
    }
    return ferror(stdout) != 0;
}

int main(int argc, char **argv) {
    if (argc == 2)
        return print_numbers(strcmp(argv[1], "floats") == 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads),
        cmocka_unit_test(refuses),
        cmocka_unit_test(limits),
        cmocka_unit_test(reads_files),
        cmocka_unit_test(writes),
        cmocka_unit_test(forks),
        cmocka_unit_test(sweep),
        cmocka_unit_test(number_texts),
        cmocka_unit_test(numbers_read_back),
        cmocka_unit_test(locale_does_not_matter),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
