/* test_dtype.c — the table of element types. */
#include "onnx/dtype.h"
#include "testing.h"

static void every_number_has_a_row(void **state) {
    (void)state;
    assert_null(oq_dtype_find(0));
    assert_null(oq_dtype_find(-1));
    assert_null(oq_dtype_find(OQ_DTYPE_COUNT));
    assert_null(oq_dtype_find(INT64_MAX));
    for (int i = 1; i < OQ_DTYPE_COUNT; i++) {
        const oq_dtype_info *info = oq_dtype_find(i);
        assert_non_null(info);
        assert_non_null(info->name);
        assert_true(info->cls != OQ_CLASS_NONE);
        assert_true((info->bits == 0) == (info->cls == OQ_CLASS_STRING));
    }
}

static void names(void **state) {
    (void)state;
    assert_string_equal(oq_dtype_name(OQ_FLOAT), "FLOAT");
    assert_string_equal(oq_dtype_name(OQ_FLOAT8E4M3FN), "FLOAT8E4M3FN");
    assert_string_equal(oq_dtype_name(0), "UNDEFINED");
    assert_string_equal(oq_dtype_name(77), "unknown type");
    assert_string_equal(oq_dtype_name(INT64_MIN), "unknown type");
}

static void floats(void **state) {
    (void)state;
    assert_true(oq_dtype_is_float(OQ_FLOAT) && oq_dtype_is_float(OQ_FLOAT16));
    assert_true(oq_dtype_is_float(OQ_BFLOAT16) && oq_dtype_is_float(OQ_DOUBLE));
    assert_false(oq_dtype_is_float(OQ_FLOAT8E5M2) || oq_dtype_is_float(OQ_INT8) ||
                 oq_dtype_is_float(0));
}

static void bytes(void **state) {
    (void)state;
    const struct {
        int type;
        uint64_t count, want;
    } rows[] = {
        {OQ_FLOAT, 3, 12},     {OQ_BOOL, 3, 3},       {OQ_COMPLEX128, 2, 32}, {OQ_INT4, 0, 0},
        {OQ_INT4, 1, 1},       {OQ_UINT4, 2, 1},      {OQ_UINT4, 3, 2},       {OQ_FLOAT4E2M1, 5, 3},
        {OQ_UINT2, 4, 1},      {OQ_INT2, 5, 2},       {OQ_FLOAT16, 7, 14},    {OQ_DOUBLE, 1, 8},
        {OQ_FLOAT8E8M0, 9, 9}, {OQ_FLOAT6E2M3, 4, 3}, {OQ_FLOAT6E3M2, 5, 4},
    };
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        uint64_t got = 99;
        assert_true(oq_dtype_bytes(rows[i].type, rows[i].count, &got));
        assert_int_equal(got, rows[i].want);
    }
    uint64_t got = 0;
    assert_false(oq_dtype_bytes(OQ_STRING, 1, &got));
    assert_false(oq_dtype_bytes(77, 1, &got));
    assert_false(oq_dtype_bytes(OQ_FLOAT, UINT64_MAX / 4 + 1, &got));
    assert_true(oq_dtype_bytes(OQ_FLOAT, UINT64_MAX / 4, &got));
    assert_true(oq_dtype_bytes(OQ_INT4, UINT64_MAX, &got));
    assert_int_equal(got, (uint64_t)1 << 63);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_has_a_row),
        cmocka_unit_test(names),
        cmocka_unit_test(floats),
        cmocka_unit_test(bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
