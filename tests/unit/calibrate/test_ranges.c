/*
 * test_ranges.c — the cache file: what the reference writes is read, what is read is written again
 * the same, and what is no cache is refused by name.
 */
#include "calibrate/ranges.h"

#include "flaky_alloc.h"
#include "flaky_io.h"
#include "scratch.h"
#include "testing.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* clang-format takes strings and macros in a row for one expression. */
/* clang-format off */
#define ARRAY(data, type) "{\"data\": " data ", \"dtype\": \"" type "\", \"CLS\": \"numpy.array\"}"
#define CACHE(data, method) \
    "{\"CLS\": \"TensorsData\", \"data\": {" data "}, \"calibration_method\": {\"CLS\": " \
    "\"CalibrationMethod\", \"value\": \"CalibrationMethod." method "\"}, \"smooth_quant\": false}"
#define LOWEST(data) "{\"lowest\": " ARRAY(data, "float32")
#define HIGHEST(data) ", \"highest\": " ARRAY(data, "float32")
#define END ", \"CLS\": \"TensorData\"}"

/* As save_tensors_data wrote them. */
static const char *const files[] = {
    CACHE("", "MinMax"),
    CACHE("\"x\": " LOWEST("[-6.949631214141846]") HIGHEST("[4.0]") END
          ", \"\\u00e4\\\"\\\\\\n\\ud83d\\ude00\": "
          LOWEST("[NaN, -Infinity, -0.0, 9.999999747378752e-06, 1.0000000272564224e+16]")
          HIGHEST("[Infinity, 3.4028234663852886e+38, 1.401298464324817e-45, 0.10000000149011612, "
                  "123456.0]") END,
          "MinMax"),
    CACHE("\"h\": {\"avg\": " ARRAY("-1.5", "float16")
          ", \"std\": " ARRAY("3.919853925704956", "float32")
          ", \"hist\": " ARRAY("[1, 0, 9007199254740993]", "int64")
          ", \"hist_edges\": " ARRAY("[-2.0, -1.0, 0.5, 2.0]", "float32")
          ", \"lowest\": " ARRAY("-2.0", "float32") HIGHEST("2.0") END,
          "Distribution"),
    CACHE("\"p\": " LOWEST("-1.0") HIGHEST("2.5") ", \"hist\": 163093, \"bins\": 87" END,
          "Percentile"),
    CACHE("\"e\": " LOWEST("-1.0") HIGHEST("2.5") ", \"hist\": " ARRAY("[3, 4]", "int64")
          ", \"bins\": " ARRAY("[-2.0, 0.0, 2.0]", "float32") END,
          "Entropy"),
};
/* clang-format on */

static onq_env *env;

static int setup(void **state) {
    static scratch s;
    scratch_init(&s);
    env = onq_env_new(NULL);
    *state = &s;
    return 0;
}

static int teardown(void **state) {
    flaky_io_disarm();
    onq_env_free(env);
    scratch_remove(*state);
    return 0;
}

static void both_ways(void **state) {
    scratch *s = *state;
    for (size_t i = 0; i < OQ_COUNT(files); i++) {
        onq_error err = ONQ_ERROR_INIT;
        oq_ranges r;
        const char *in = scratch_file(s, "in.json", files[i], strlen(files[i]));
        assert_ok(oq_ranges_load(&r, env, in, &err), err);
        const char *out = scratch_path(s, "out.json");
        assert_ok(oq_ranges_save(&r, env, out, &err), err);
        if (!file_holds(out, files[i], strlen(files[i])))
            fail_msg("%s is not as it was: %s", out, files[i]);
        oq_ranges_release(&r);
    }
}

static void values(void **state) {
    (void)state;
    onq_error err = ONQ_ERROR_INIT;
    oq_ranges r;
    assert_ok(oq_ranges_parse(&r, oq_alloc_default(), "x", oq_str_of(files[1]), &err), err);
    assert_int_equal(r.method, OQ_CAL_MINMAX);
    double lo = 0, hi = 0;
    assert_true(oq_range_pair(oq_ranges_find(&r, OQ_S("x")), &lo, &hi));
    assert_true(lo == (double)-6.949631214141846f && hi == 4.0);
    const oq_range *t = oq_ranges_find(&r, OQ_S("\xc3\xa4\"\\\n\xf0\x9f\x98\x80"));
    assert_non_null(t);
    assert_false(oq_range_pair(t, &lo, &hi));
    assert_int_equal(t->lowest.n, 5);
    assert_true(isnan(t->lowest.v[0]) && t->lowest.v[1] == -INFINITY && signbit(t->lowest.v[2]));
    assert_true(t->highest.v[3] == (double)0.1f);
    assert_null(oq_ranges_find(&r, OQ_S("y")));
    /* what the quantizer does with the input of a Relu */
    assert_true(oq_ranges_copy(&r, OQ_S("y"), oq_ranges_find(&r, OQ_S("x"))));
    assert_true(oq_range_pair(oq_ranges_find(&r, OQ_S("y")), &lo, &hi) && hi == 4.0);
    assert_int_equal(r.all.n, 3);
    oq_ranges_release(&r);
}

/* A bare number of a float attribute is a float32 array when it comes back, as in from_dict. */
static void bare_numbers(void **state) {
    (void)state;
    onq_error err = ONQ_ERROR_INIT;
    oq_ranges r;
    const char *text =
        CACHE("\"e\": {\"lowest\": -1, \"highest\": 0.1, \"hist\": 3, \"bins\": 4}", "Entropy");
    assert_ok(oq_ranges_parse(&r, oq_alloc_default(), "x", oq_str_of(text), &err), err);
    const oq_range *t = oq_ranges_find(&r, OQ_S("e"));
    assert_int_equal(t->lowest.type, OQ_FLOAT);
    assert_true(t->lowest.scalar && !t->lowest.bare && t->highest.v[0] == (double)0.1f);
    assert_true(t->hist.bare && t->hist.type == OQ_INT64 && t->hist.i[0] == 3);
    oq_ranges_release(&r);
}

static void refused(void **state) {
    (void)state;
    static const struct {
        const char *text;
        onq_code code;
        const char *says;
    } bad[] = {
        {"", ONQ_E_MALFORMED, "an object was expected"},
        {"[]", ONQ_E_MALFORMED, "an object was expected"},
        {"{}", ONQ_E_INVALID, "no 'data'"},
        {"{\"data\": {}}", ONQ_E_INVALID, "no 'calibration_method'"},
        {"{\"data\": {}, \"calibration_method\": \"Best\"}", ONQ_E_INVALID, "'Best'"},
        {"{\"data\": {\"x\": {", ONQ_E_MALFORMED, "ends in the middle"},
        {"{\"data", ONQ_E_MALFORMED, "text without end"},
        {"{\"data\" {}}", ONQ_E_MALFORMED, "colon"},
        {"{\"data\": }", ONQ_E_MALFORMED, "value is missing"},
        {CACHE("", "MinMax") " {}", ONQ_E_MALFORMED, "after its end"},
        {CACHE("\"x\": {}, \"x\": {}", "MinMax"), ONQ_E_INVALID, "'x': occurs twice"},
        {CACHE("\"x\": 3", "MinMax"), ONQ_E_INVALID, "'x': is not an object"},
        {CACHE("\"x\": {\"height\": 3}", "MinMax"), ONQ_E_INVALID, "'height' is not known"},
        {CACHE("\"x\": {\"lowest\": \"low\"}", "MinMax"), ONQ_E_INVALID,
         "'lowest' is not a number"},
        {CACHE("\"x\": {\"lowest\": {}}", "MinMax"), ONQ_E_INVALID, "numpy.array"},
        {CACHE("\"x\": {\"lowest\": " ARRAY("[1.0]", "float64") "}", "MinMax"), ONQ_E_INVALID,
         "float64"},
        {CACHE("\"x\": {\"lowest\": " ARRAY("[1]", "int64") "}", "MinMax"), ONQ_E_INVALID, "int64"},
        {CACHE("\"x\": {\"lowest\": " ARRAY("[]", "float32") "}", "MinMax"), ONQ_E_INVALID,
         "is empty"},
        {CACHE("\"x\": {\"lowest\": " ARRAY("[[1.0]]", "float32") "}", "MinMax"), ONQ_E_INVALID,
         "not a number"},
        {CACHE("\"x\": {\"hist\": " ARRAY("[1.5]", "int64") "}", "Entropy"), ONQ_E_INVALID,
         "not a number"},
        {CACHE("\"x\": {\"lowest\": nan}", "MinMax"), ONQ_E_CONFIG, "tensor 'x'"},
    };
    for (size_t i = 0; i < OQ_COUNT(bad); i++) {
        onq_error err = ONQ_ERROR_INIT;
        oq_ranges r;
        assert_fails(
            oq_ranges_parse(&r, oq_alloc_default(), "c.json", oq_str_of(bad[i].text), &err),
            bad[i].code, err, bad[i].says);
        assert_non_null(strstr(err.text, "c.json"));
    }
}

static onq_code load_and_copy(const onq_allocator *a, void *ctx, onq_error *err) {
    (void)ctx;
    oq_ranges r;
    OQ_TRY(oq_ranges_parse(&r, a, "x", oq_str_of(files[2]), err));
    const bool ok = oq_ranges_copy(&r, OQ_S("other"), r.all.v[0]);
    oq_ranges_release(&r);
    return ok ? ONQ_OK : oq_fail_nomem(err);
}

static void no_memory(void **state) {
    (void)state;
    assert_true(flaky_sweep(load_and_copy, NULL) >= 2);
}

/* A full disk: an error, the file that was there stays, nothing is left beside it. */
static void disk_full(void **state) {
    scratch *s = *state;
    onq_error err = ONQ_ERROR_INIT;
    oq_ranges r;
    const char *dir = scratch_dir(s, "full");
    const char *path = scratch_file(s, "full/cache.json", "old", 3);
    assert_ok(oq_ranges_parse(&r, oq_alloc_default(), "x", oq_str_of(files[2]), &err), err);
    for (long n = 0;; n++) {
        onq_error why = ONQ_ERROR_INIT;
        flaky_io_arm(IO_WRITE, n, ENOSPC, true);
        const onq_code rc = oq_ranges_save(&r, env, path, &why);
        if (!flaky_io_disarm()) {
            assert_int_equal(rc, ONQ_OK);
            break;
        }
        assert_int_equal(rc, ONQ_E_WRITE);
        assert_true(file_holds(path, "old", 3));
        assert_int_equal(entry_count(dir), 1);
    }
    assert_true(file_holds(path, files[2], strlen(files[2])));
    oq_ranges_release(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(both_ways, setup, teardown),
        cmocka_unit_test(values),
        cmocka_unit_test(bare_numbers),
        cmocka_unit_test(refused),
        cmocka_unit_test(no_memory),
        cmocka_unit_test_setup_teardown(disk_full, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
