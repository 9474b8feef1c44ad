/*
 * test_sizes.c — sizes of tensors: what the model declares, what a sample adds, what stays unknown.
 */
#include "calibrate/sizes.h"

#include "build_model.h"
#include "testing.h"

static onq_error err;

static void build(bm *b) {
    bm_input(b, "x", OQ_FLOAT, "n,?");
    bm_input(b, "h", OQ_FLOAT16, "4,3");
    bm_node(b, "Relu", "n0", "x", "y", "");
    bm_node(b, "Relu", "n1", "h", "g", "");
    bm_node(b, "Add", "n2", "y y", "z", "");
    bm_node(b, "NonZero", "n3", "z", "open", "");
    bm_output(b, "z", OQ_FLOAT, "n,?");
}

static const oq_str names[] = {{"x", 1}, {"y", 1}, {"g", 1}, {"z", 1}, {"open", 4}};

static onq_code sizes_of(bm *b, uint64_t *bytes, onq_error *e) {
    const oq_datum in[] = {
        {.kind = OQ_DATUM_TENSOR, .dtype = OQ_FLOAT, .rank = 2, .dims = (const int64_t[]){2, 5}},
        {.kind = OQ_DATUM_TENSOR, .dtype = OQ_FLOAT16, .rank = 2, .dims = (const int64_t[]){4, 3}}};
    const oq_sample sample = {.inputs = in, .n_inputs = 2};
    return oq_sizes_like(b->m, &sample, names, 5, bytes, e);
}

static void test_declared(void **state) {
    (void)state;
    bm b;
    oq_shapes *s = NULL;
    bm_begin(&b, NULL, 17);
    build(&b);
    assert_ok(oq_shapes_infer(b.m, NULL, &s, &err), err);
    static const uint64_t wanted[] = {0, 0, 24, 0, 0};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(oq_tensor_size(s, NULL, names[i]), wanted[i]);
    assert_int_equal(oq_tensor_size(s, NULL, OQ_S("nothing")), 0);
    oq_shapes_free(s);
    bm_end(&b);
}

/* What is known already stays. */
static void test_like_a_sample(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 17);
    build(&b);
    uint64_t bytes[5] = {0, 7, 0, 0, 0};
    static const uint64_t wanted[] = {40, 7, 24, 40, 0};
    assert_ok(sizes_of(&b, bytes, &err), err);
    assert_memory_equal(bytes, wanted, sizeof wanted);
    bm_end(&b);
}

/* Dims whose product no tensor has. */
static void test_too_large(void **state) {
    (void)state;
    bm b;
    oq_shapes *s = NULL;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "4611686018427387904,4");
    bm_input(&b, "y", OQ_FLOAT, "4611686018427387904");
    assert_ok(oq_shapes_infer(b.m, NULL, &s, &err), err);
    assert_int_equal(oq_tensor_size(s, NULL, OQ_S("x")), 0);
    assert_int_equal(oq_tensor_size(s, NULL, OQ_S("y")), 0);
    oq_shapes_free(s);
    bm_end(&b);
}

static onq_code work(bm *b, void *ctx, onq_error *e) {
    uint64_t bytes[5] = {0};
    (void)ctx;
    return sizes_of(b, bytes, e);
}

static void test_oom(void **state) {
    (void)state;
    assert_true(bm_sweep(17, build, work, NULL) > 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_declared),
        cmocka_unit_test(test_like_a_sample),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
