/* test_data.c — results as data: what is refused, and memory that fails. What they hold is compared
 * with the reference in tests/parity. */
#include "build_model.h"
#include "flaky_alloc.h"
#include "testing.h"

#include <math.h>

static onq_error err;

static onq_tensor number(int32_t dtype, size_t rank, const int64_t *dims, const void *p, size_t n) {
    return (onq_tensor){.dtype = dtype, .rank = rank, .dims = dims, .data = p, .size = n};
}

static void ranges_refuse(void **state) {
    (void)state;
    static const int64_t two = 2;
    static const float v[2] = {-1, 1};
    static const double d = 1;
    onq_env *env = onq_env_new(NULL);
    onq_ranges *r = NULL;
    assert_fails(onq_ranges_new(env, "median", &r, &err), ONQ_E_OPTION, err, "median");
    assert_fails(onq_ranges_load(env, "/no/such/file", &r, &err), ONQ_E_MISSING, err, "No such");
    assert_null(r);
    assert_ok(onq_ranges_new(env, "minmax", &r, &err), err);
    assert_string_equal(onq_ranges_method(r), "MinMax");
    onq_range x = {.name = "t"};
    x.lowest = number(OQ_DOUBLE, 0, NULL, &d, sizeof d);
    assert_fails(onq_ranges_set(r, &x, &err), ONQ_E_INVALID, err, "lowest is not of float");
    x.lowest = number(OQ_FLOAT, 1, &two, v, 4);
    assert_fails(onq_ranges_set(r, &x, &err), ONQ_E_INVALID, err, "'t': lowest is not a number");
    x.lowest = number(OQ_FLOAT, 0, NULL, v, 4);
    x.highest = number(OQ_FLOAT, 0, NULL, v + 1, 4);
    x.bare = 1;
    assert_ok(onq_ranges_set(r, &x, &err), err);
    const onq_range *got = onq_ranges_find(r, "t");
    assert_non_null(got);
    assert_int_equal(got->bare, 1);
    assert_memory_equal(got->lowest.data, v, 4);
    assert_int_equal(got->hist.dtype, 0);
    x.lowest = number(OQ_FLOAT, 1, &two, v, 8);
    x.highest = x.lowest;
    assert_ok(onq_ranges_set(r, &x, &err), err); /* in its place */
    assert_int_equal(onq_ranges_count(r), 1);
    assert_int_equal(onq_ranges_at(r, 0)->lowest.size, 8);
    assert_null(onq_ranges_at(r, 1));
    assert_null(onq_ranges_find(r, "u"));
    x.name = "";
    assert_fails(onq_ranges_set(r, &x, &err), ONQ_E_INVALID, err, "without a name");
    onq_options *o = NULL;
    assert_ok(onq_options_new(env, "dynamic", &o, &err), err);
    assert_fails(onq_options_set_ranges(o, r, &err), ONQ_E_OPTION, err, "takes no ranges");
    onq_calibrator *c = NULL;
    assert_fails(onq_calibrator_new(env, o, &c, &err), ONQ_E_OPTION, err, "'calibrate'");
    onq_options_free(o);
    onq_env_free(env);
    onq_ranges_free(r); /* outlives the environment */
    onq_ranges_free(NULL);
    onq_calibrator_free(NULL);
    onq_model_free(NULL);
}

static void numbers_refuse(void **state) {
    (void)state;
    static const int64_t dims[2] = {2, 3};
    static const float x[6] = {1, 2, 3, 4, 5, NAN}, s[3] = {1, 1, 1};
    int8_t out[6];
    double scale, zero;
    const onq_tensor tx = number(OQ_FLOAT, 2, dims, x, sizeof x);
    const onq_tensor one = number(OQ_FLOAT, 0, NULL, s, 4),
                     three = number(OQ_FLOAT, 1, dims + 1, s, 12);
    const onq_tensor whole = number(OQ_INT64, 0, NULL, dims, 8),
                     cut = number(OQ_FLOAT, 2, dims, x, 20);
    const struct {
        const onq_tensor *x, *scale;
        int64_t axis, block;
        int32_t dtype;
        size_t size;
        onq_code code;
        const char *says;
    } cases[] = {
        {&tx, &one, 0, 0, OQ_FLOAT, 6, ONQ_E_UNSUPPORTED, "type 1"},
        {&tx, &one, 0, 0, OQ_INT8, 5, ONQ_E_INVALID, "5 bytes do not hold"},
        {&tx, &three, 0, 0, OQ_INT8, 6, ONQ_E_INVALID, "3 scales"},
        {&tx, &three, 2, 0, OQ_INT8, 6, ONQ_E_INVALID, "no axis 2"},
        {&tx, &three, 1, 2, OQ_INT8, 6, ONQ_E_INVALID, "where 4 are needed"},
        {&tx, &one, 0, -5, OQ_INT8, 6, ONQ_E_INVALID, "a block of -5 values"},
        {&cut, &one, 0, 0, OQ_INT8, 6, ONQ_E_INVALID, "20 bytes"},
        {&whole, &one, 0, 0, OQ_INT8, 6, ONQ_E_INVALID, "float16 or double"},
        {&tx, &one, 0, 0, OQ_INT8, 6, ONQ_E_INVALID, "element 5 is NaN"},
    };
    for (size_t i = 0; i < OQ_COUNT(cases); i++)
        assert_fails(onq_quantize(cases[i].x, cases[i].scale, NULL, cases[i].axis, cases[i].block,
                                  NAN, NAN, cases[i].dtype, out, cases[i].size, &err),
                     cases[i].code, err, cases[i].says);
    static const double bounds[][2] = {{300, 400}, {-400, -300}, {20, 10}};
    for (size_t i = 0; i < OQ_COUNT(bounds); i++)
        assert_fails(onq_quantize(&tx, &one, NULL, 0, 0, bounds[i][0], bounds[i][1], OQ_UINT8, out,
                                  sizeof out, &err),
                     ONQ_E_INVALID, err, "no value between low");
    assert_fails(onq_scale_zero_point(NAN, 1, OQ_FLOAT, 0, 255, 0, NULL, &scale, &zero, &err),
                 ONQ_E_INVALID, err, "NaN");
    assert_fails(onq_scale_zero_point(0, 1, OQ_INT8, 0, 255, 0, NULL, &scale, &zero, &err),
                 ONQ_E_INVALID, err, "type 3");
    assert_ok(onq_scale_zero_point(-1, 3, OQ_DOUBLE, 0, 255, 0, NULL, &scale, &zero, &err), err);
    assert_true(scale == 4.0 / 255 && zero == 64);
}

/* ---- memory ---- */

static onq_code sweep(const onq_allocator *a, void *ctx, onq_error *e) {
    static const int64_t two = 2;
    static const float v[2] = {-1, 1};
    onq_env *env = onq_env_new(a);
    onq_ranges *r = NULL;
    onq_model *m = NULL;
    onq_tensor t;
    onq_code rc = ONQ_OK;
    if (env == NULL)
        return oq_fail_nomem(e);
    const onq_range x = {.name = "t",
                         .lowest = number(OQ_FLOAT, 1, &two, v, 8),
                         .highest = number(OQ_FLOAT, 1, &two, v, 8)};
    OQ_GO(onq_ranges_new(env, "Entropy", &r, e));
    OQ_GO(onq_ranges_set(r, &x, e));
    if (onq_ranges_at(r, 0) == NULL)
        OQ_GO(oq_fail_nomem(e));
    OQ_GO(onq_model_open(env, NULL, ctx, &m, e));
    for (size_t i = 0; onq_model_value(m, i) != NULL; i++)
        if (onq_model_value(m, i)->kind == ONQ_VALUE_INITIALIZER)
            OQ_GO(onq_model_data(m, i, &t, e));
done:
    onq_model_free(m);
    onq_ranges_free(r);
    onq_env_free(env);
    return rc;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    bm b;
    oq_buf bytes;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "N,4");
    bm_weight(&b, "w", "4,4", 1);
    bm_f32(&b, "s", "", (const float[]){0.1f});
    bm_node(&b, "MatMul", "mm", "x w", "t", "");
    bm_node(&b, "QuantizeLinear", "q", "t s", "y", "");
    bm_output(&b, "y", OQ_UINT8, "N,4");
    oq_buf_init(&bytes, oq_alloc_default());
    assert_ok(oq_model_encode(b.m, &bytes, &err), err);
    onq_bytes given = {.data = bytes.p, .size = bytes.n};
    assert_true(flaky_sweep(sweep, &given) > 10);
    oq_buf_release(&bytes);
    bm_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_refuse),
        cmocka_unit_test(numbers_refuse),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
