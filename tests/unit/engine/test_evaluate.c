/*
 * test_evaluate.c — the operators of the tests' own evaluator, on numbers worked out by hand: other
 * tests believe it.
 */
#include "build_model.h"
#include "fake_engine.h"
#include "onnx/tensor.h"
#include "testing.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double none = 1e300; /* ends a list */

/* Runs one node whose inputs are initializers of `b`; its output has these dims and numbers. */
static void check_node(bm *b, const char *op_type, const char *inputs, const char *attributes,
                       const char *shape, const double *want) {
    onq_error err = ONQ_ERROR_INIT;
    fake_engine fake;
    oq_session *s = NULL;
    oq_outputs out;
    char dims[100] = "";
    bm_node(b, op_type, "node", inputs, "y", attributes);
    bm_output(b, "y", OQ_FLOAT, NULL);
    fake_engine_init(&fake, b->env);
    const oq_session_options o = {.model = b->m};
    assert_ok(oq_session_open(&fake.base, &o, &s, &err), err);
    assert_ok(oq_session_run(s, NULL, 0, &out, &err), err);
    const oq_datum *d = &out.v[0];
    for (size_t i = 0; i < d->rank; i++) {
        const size_t at = strlen(dims);
        snprintf(dims + at, sizeof dims - at, "%s%lld", i > 0 ? "," : "", (long long)d->dims[i]);
    }
    assert_string_equal(dims, shape);
    size_t n = 0;
    for (; want[n] != none; n++) {
        assert_true(n < d->count);
        const double got = oq_dtype_is_float(d->dtype)
                               ? oq_raw_get_real(d->dtype, d->data, n)
                               : (double)oq_raw_get_int(d->dtype, d->data, n);
        if (!(fabs(got - want[n]) <= 1e-6 * fmax(1, fabs(want[n]))))
            fail_msg("%s, number %zu: %.9g, wanted %.9g", op_type, n, got, want[n]);
    }
    assert_int_equal(d->count, n);
    oq_session_close(s);
    bm_end(b);
}

#define CHECK(b, op_type, inputs, attributes, shape, ...)                                          \
    check_node(b, op_type, inputs, attributes, shape, (const double[]){__VA_ARGS__, none})

/* x = 1 .. 6 as [2, 3], row = 10 20 30, i = 1 0, and others that cases name. */
static bm *begin(bm *b) {
    static const float six[] = {1, 2, 3, 4, 5, 6}, row[] = {10, 20, 30}, signs[] = {-2, 0, 0.5f, 8};
    static const int64_t ids[] = {1, 0}, flat[] = {3, -1}, pads[] = {0, 1, 1, 0}, one = 1, two = 2;
    bm_begin(b, NULL, 21);
    bm_f32(b, "x", "2,3", six);
    bm_f32(b, "row", "3", row);
    bm_f32(b, "column", "2,1", row);
    bm_f32(b, "signs", "4", signs);
    bm_f32(b, "high", "", &row[0]);
    bm_f32(b, "low", "", &six[1]);
    bm_f32(b, "turned", "3,2", six);
    bm_f32(b, "signal", "1,1,6", six);
    bm_f32(b, "image", "1,2,1,3", six);
    bm_f32(b, "taps", "1,1,2", row);
    bm_f32(b, "each", "2,1,1,1", row);
    bm_i64(b, "ids", "2", ids);
    bm_i64(b, "flat", "2", flat);
    bm_i64(b, "pads", "4", pads);
    bm_i64(b, "one", "1", &one);
    bm_i64(b, "two", "1", &two);
    return b;
}

static void numbers(void **state) {
    (void)state;
    bm b;
    CHECK(begin(&b), "Relu", "signs", "", "4", 0, 0, 0.5, 8);
    CHECK(begin(&b), "HardSwish", "signs", "", "4", -2.0 / 6, 0, 0.5 * 3.5 / 6, 8);
    CHECK(begin(&b), "HardSigmoid", "signs", "alpha=0.5 beta=0.25", "4", 0, 0.25, 0.5, 1);
    CHECK(begin(&b), "Clip", "signs _ low", "", "4", -2, 0, 0.5, 2);
    CHECK(begin(&b), "Gelu", "signs", "", "4", -0.0455003, 0, 0.3457312, 8);
    CHECK(begin(&b), "FastGelu", "signs", "", "4", -0.0454023, 0, 0.3457140, 8);
    CHECK(begin(&b), "Cast", "signs", "to=7", "4", -2, 0, 0, 8);
    CHECK(begin(&b), "Sub", "x row", "", "2,3", -9, -18, -27, -6, -15, -24);
    CHECK(begin(&b), "Div", "row column", "", "2,3", 1, 2, 3, 0.5, 1, 1.5);
    CHECK(begin(&b), "Equal", "ids one", "", "2", 1, 0);
}

static void products(void **state) {
    (void)state;
    bm b;
    CHECK(begin(&b), "MatMul", "x turned", "", "2,2", 22, 28, 49, 64);
    /* a batch of two rows by one matrix */
    CHECK(begin(&b), "MatMul", "image turned", "", "1,2,1,2", 22, 28, 49, 64);
    CHECK(begin(&b), "Gemm", "x x column", "transB=1 alpha=2.0 beta=0.5", "2,2", 33, 69, 74, 164);
    CHECK(begin(&b), "Conv", "signal taps", "pads=[1,0] strides=[2]", "1,1,3", 20, 80, 140);
    CHECK(begin(&b), "Conv", "signal taps", "dilations=[3]", "1,1,3", 90, 120, 150);
    CHECK(begin(&b), "Conv", "image each", "group=2", "1,2,1,3", 10, 20, 30, 80, 100, 120);
}

static void moves(void **state) {
    (void)state;
    bm b;
    CHECK(begin(&b), "Transpose", "x", "perm=[1,0]", "3,2", 1, 4, 2, 5, 3, 6);
    CHECK(begin(&b), "Reshape", "x flat", "", "3,2", 1, 2, 3, 4, 5, 6);
    CHECK(begin(&b), "Flatten", "image", "axis=2", "2,3", 1, 2, 3, 4, 5, 6);
    CHECK(begin(&b), "Unsqueeze", "row one", "", "3,1", 10, 20, 30);
    CHECK(begin(&b), "Squeeze", "column one", "", "2", 10, 20);
    CHECK(begin(&b), "Gather", "x ids", "", "2,3", 4, 5, 6, 1, 2, 3);
    CHECK(begin(&b), "Gather", "x ids", "axis=1", "2,2", 2, 1, 5, 4);
    CHECK(begin(&b), "Concat", "x column", "axis=1", "2,4", 1, 2, 3, 10, 4, 5, 6, 20);
    CHECK(begin(&b), "Pad", "x pads", "", "3,4", 0, 1, 2, 3, 0, 4, 5, 6, 0, 0, 0, 0);
    CHECK(begin(&b), "Slice", "row one two", "", "1", 20);
    CHECK(begin(&b), "Shape", "image", "", "4", 1, 2, 1, 3);
}

/* One scale, one for each column, one for each block of two rows. */
static void pairs(void **state) {
    (void)state;
    static const float scale = 0.5f, each[] = {1, 2, 4}, blocks[] = {1, 2, 3, 4};
    static const uint8_t zero = 128, zeros[] = {0, 1, 2}, packed[] = {0x21, 0x43};
    bm b;
    begin(&b);
    bm_f32(&b, "scale", "", &scale);
    bm_raw(&b, "zero", OQ_UINT8, "", &zero, 1);
    /* -4, 0, 1 and 16 steps from 128 */
    CHECK(&b, "QuantizeLinear", "signs scale zero", "", "4", 124, 128, 129, 144);
    begin(&b);
    bm_f32(&b, "each", "3", each);
    bm_raw(&b, "zeros", OQ_UINT8, "3", zeros, 3);
    /* 2.5 and 1.5 go to 2: halves to even, before the zero point is added */
    CHECK(&b, "QuantizeLinear", "x each zeros", "axis=1", "2,3", 1, 2, 3, 4, 3, 4);
    begin(&b);
    bm_f32(&b, "blocks", "2,2", blocks);
    bm_raw(&b, "q", OQ_UINT4, "2,2", packed, 2); /* 1 2 3 4 */
    CHECK(&b, "DequantizeLinear", "q blocks", "axis=0 block_size=1", "2,2", 1, 4, 9, 16);
}

static void norms(void **state) {
    (void)state;
    static const float two[] = {2, 3}, bias[] = {10, 20}, mean[] = {1, 4}, variance[] = {4, 9};
    bm b;
    begin(&b);
    bm_f32(&b, "s", "2", two);
    bm_f32(&b, "o", "2", bias);
    bm_f32(&b, "m", "2", mean);
    bm_f32(&b, "v", "2", variance);
    CHECK(&b, "BatchNormalization", "image s o m v", "epsilon=0.0", "1,2,1,3", 10, 11, 12, 20, 21,
          22);
    CHECK(begin(&b), "ReduceMean", "image", "axes=[-1] keepdims=1", "1,2,1,1", 2, 5);
}

/* What is not known is refused, not guessed. */
static void refused(void **state) {
    (void)state;
    static const char *const cases[][4] = {
        {"Softmax", "x", "", "no such operator"},
        {"Add", "x turned", "", "cannot join"},
        {"MatMul", "x x", "", "matrices that fit"},
        {"Conv", "signal taps", "auto_pad='VALID'", "auto_pad"},
        {"Gather", "x two", "", "not there"},
        {"Reshape", "signs flat", "", "another size"},
    };
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        bm b;
        onq_error err = ONQ_ERROR_INIT;
        fake_engine fake;
        oq_session *s = NULL;
        oq_outputs out;
        begin(&b);
        bm_node(&b, cases[i][0], "node", cases[i][1], "y", cases[i][2]);
        bm_output(&b, "y", OQ_FLOAT, NULL);
        fake_engine_init(&fake, b.env);
        const oq_session_options o = {.model = b.m};
        onq_code rc = oq_session_open(&fake.base, &o, &s, &err);
        if (rc == ONQ_OK)
            rc = oq_session_run(s, NULL, 0, &out, &err);
        assert_fails(rc, ONQ_E_RUNTIME, err, cases[i][3]);
        oq_session_close(s);
        bm_end(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers), cmocka_unit_test(products), cmocka_unit_test(moves),
        cmocka_unit_test(pairs),   cmocka_unit_test(norms),    cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
