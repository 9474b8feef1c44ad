/*
 * test_rewrite.c — the rewrites of `--rewrite`: each is found, the model computes what it did, and
 * running out of memory is an error. tests/parity/test_rewrite.py has the runtime.
 */
#include "prepare/rewrite.h"

#include "build_model.h"
#include "compute.h"
#include "testing.h"

static const float two[1] = {2}, three[1] = {3}, zero[1] = {0}, six[1] = {6};
static const float gelu[4] = {0.044715f, 0.7978846f, 1, 0.5f};
static const float w[24] = {1, 2, 3, 4, 5, 6};
static const int32_t count[3] = {0, 1, 2};

static void fill(bm *b) {
    bm_input(b, "x", OQ_FLOAT, "1,2,6");
    bm_input(b, "ids", OQ_INT32, "4,1");
    bm_f32(b, "two", "", two);
    bm_f32(b, "three", "", three);
    bm_f32(b, "zero", "", zero);
    bm_f32(b, "six", "", six);
    bm_f32(b, "w", "3,2,4", w);
    bm_f32(b, "b", "3", w);
    bm_f32(b, "table", "3,2", w);
    bm_f32(b, "v", "6,2", w);
    bm_f32(b, "k", "", gelu);
    bm_f32(b, "r", "", gelu + 1);
    bm_f32(b, "one", "", gelu + 2);
    bm_f32(b, "half", "", gelu + 3);
    bm_raw(b, "count", OQ_INT32, "1,3", count, sizeof count);
    bm_node(b, "Conv", "conv", "x w b", "c", "pads=[2,0] strides=[2]");
    bm_node(b, "Add", "add", "c three", "d", "");
    bm_node(b, "Clip", "clip", "d zero six", "e", "");
    bm_node(b, "Mul", "mul", "c e", "f", "");
    bm_node(b, "Div", "div", "f six", "y", "");
    bm_node(b, "Equal", "equal", "ids count", "g", "");
    bm_node(b, "Cast", "cast", "g", "h", "to=1");
    bm_node(b, "MatMul", "matmul", "h table", "z", "");
    bm_node(b, "MatMul", "product", "x v", "i", "");
    bm_node(b, "Mul", "twice", "i two", "v2", "");
    bm_node(b, "Mul", "g1", "x k", "g1", "");
    bm_node(b, "Mul", "g2", "g1 x", "g2", "");
    bm_node(b, "Mul", "g3", "g2 x", "g3", "");
    bm_node(b, "Add", "g4", "x g3", "g4", "");
    bm_node(b, "Mul", "g5", "g4 r", "g5", "");
    bm_node(b, "Tanh", "g6", "g5", "g6", "");
    bm_node(b, "Add", "g7", "g6 one", "g7", "");
    bm_node(b, "Mul", "g8", "g7 half", "g8", "");
    bm_node(b, "Mul", "g9", "g8 x", "u", "");
    bm_output(b, "y", OQ_FLOAT, NULL);
    bm_output(b, "z", OQ_FLOAT, NULL);
    bm_output(b, "v2", OQ_FLOAT, NULL);
    bm_output(b, "u", OQ_FLOAT, NULL);
}

static void all(void **state) {
    bm b;
    computed before;
    oq_rewrite_report r;
    unsigned sets;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    bm_begin(&b, NULL, 17);
    fill(&b);
    compute(&b, &before);
    assert_true(oq_rewrite_word(OQ_S("all"), &sets));
    assert_ok(oq_rewrite(b.m, sets, &r, &err), err);
    assert_computes(&b, &before, 1e-6);
    computed_release(&before);
    assert_int_equal(r.counts[OQ_REWRITE_ROW_conv1d], 1);
    assert_int_equal(r.counts[OQ_REWRITE_ROW_hardswish], 1);
    assert_int_equal(r.counts[OQ_REWRITE_ROW_onehot], 1);
    assert_int_equal(r.counts[OQ_REWRITE_ROW_fastgelu], 1);
    assert_int_equal(r.counts[OQ_REWRITE_ROW_product_mul], 1);
    bm_end(&b);
}

static void words(void **state) {
    unsigned one, other, sets;
    (void)state;
    assert_true(oq_rewrite_word(OQ_S("none"), &sets) && sets == 0);
    assert_true(oq_rewrite_word(OQ_S("constants"), &one) && one != 0);
    assert_true(oq_rewrite_word(OQ_S("conv1d"), &other) && (one & other) == 0);
    assert_false(oq_rewrite_word(OQ_S("Conv1d"), &sets));
    assert_false(oq_rewrite_word(OQ_S(""), &sets));
}

static onq_code rewrite(bm *b, void *ctx, onq_error *err) {
    oq_rewrite_report r;
    (void)ctx;
    return oq_rewrite(b->m, ~0u, &r, err);
}

static void oom(void **state) {
    (void)state;
    bm_sweep(17, fill, rewrite, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all), cmocka_unit_test(words),
                                       cmocka_unit_test(oom)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
