/*
 * test_pointwise.c — Conv of one element as MatMul on a small QDQ graph: what is written, what is
 * left alone, and running out of memory. What the runtime makes of it: tests/parity/test_methods.py.
 */
#include "quantize/ort/pointwise.h"

#include "build_model.h"
#include "onnx/check/check.h"
#include "testing.h"

static const float one[1] = {0.5f}, scales[2] = {0.5f, 0.25f}, sum_scales[2] = {0.25f, 0.125f};
static const uint8_t zero[1] = {10};
static const int8_t none[2] = {0, 0}, w[6] = {1, 2, 3, 4, 5, 6};
static const int32_t bias[2] = {8, -16}, no_sums[2] = {0, 0};

/* x -> pair -> Conv -> y, with a bias of int32. */
static void fill_as(bm *b, const char *attributes, oq_dtype zero_type) {
    static const uint16_t wide[1] = {10};
    bm_input(b, "x", OQ_FLOAT, "1,3,2,2");
    bm_f32(b, "s", "", one);
    bm_raw(b, "z", (int)zero_type, "", zero_type == OQ_UINT16 ? (const void *)wide : zero,
           zero_type == OQ_UINT16 ? 2 : 1);
    bm_raw(b, "w", OQ_INT8, "2,3,1,1", w, 6);
    bm_f32(b, "sw", "2", scales);
    bm_raw(b, "zw", OQ_INT8, "2", none, 2);
    bm_raw(b, "b", OQ_INT32, "2", bias, sizeof bias);
    bm_f32(b, "sb", "2", sum_scales);
    bm_raw(b, "zb", OQ_INT32, "2", no_sums, sizeof no_sums);
    bm_node(b, "QuantizeLinear", "q", "x s z", "xq", "");
    bm_node(b, "DequantizeLinear", "dq", "xq s z", "xd", "");
    bm_node(b, "DequantizeLinear", "dw", "w sw zw", "wd", "axis=0");
    bm_node(b, "DequantizeLinear", "db", "b sb zb", "bd", "axis=0");
    bm_node(b, "Conv", "conv", "xd wd bd", "y", attributes);
    bm_output(b, "y", OQ_FLOAT, NULL);
}

static void fill(bm *b) {
    fill_as(b, "", OQ_UINT8);
}

static onq_code apply(bm *b, size_t *n, onq_error *err) {
    oq_map chosen;
    oq_map_init(&chosen, b->a);
    OQ_TRY_ALLOC(oq_map_put(&chosen, OQ_S("y"), 0), err);
    return oq_pointwise_apply(b->m, &chosen, n, err);
}

static oq_tensor *constant(const bm *b, oq_str name) {
    for (size_t i = 0; i < b->g->initializer.n; i++)
        if (oq_str_eq(b->g->initializer.v[i]->name, name))
            return b->g->initializer.v[i];
    fail_msg("no constant %.*s", OQ_STR(name));
    return NULL;
}

static void writes(void **state) {
    static const int8_t matrix[6] = {1, 4, 2, 5, 3, 6};
    static const float negated[2] = {-2.0f, 2.0f};
    static const char *const ops[] = {"QuantizeLinear",   "Transpose", "DequantizeLinear",
                                      "DequantizeLinear", "MatMul",    "Sub",
                                      "Transpose"};
    bm b;
    size_t n = 0;
    oq_span raw;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    bm_begin(&b, NULL, 13);
    fill(&b);
    assert_ok(apply(&b, &n, &err), err);
    assert_int_equal(n, 1);
    assert_ok(oq_model_check(b.m, &err), err);
    assert_int_equal(b.g->node.n, OQ_COUNT(ops));
    for (size_t i = 0; i < OQ_COUNT(ops); i++)
        assert_true(oq_str_is(b.g->node.v[i]->op_type, ops[i]));
    const oq_node *product = b.g->node.v[4], *sub = b.g->node.v[5], *last = b.g->node.v[6];
    assert_true(oq_str_is(product->name, "conv"));
    assert_true(oq_str_is(last->output.v[0], "y"));
    oq_tensor *v = constant(&b, b.g->node.v[3]->input.v[0]);
    assert_int_equal(oq_attr_int(b.g->node.v[3], "axis", -1), 1);
    assert_ok(oq_model_data(b.m, v, &raw, &err), err);
    assert_memory_equal(raw.p, matrix, sizeof matrix);
    assert_ok(oq_model_data(b.m, constant(&b, sub->input.v[1]), &raw, &err), err);
    assert_memory_equal(raw.p, negated, sizeof negated);
    bm_end(&b);
}

static void leaves(void **state) {
    static const struct {
        const char *attributes;
        oq_dtype zero_type;
        bool chosen;
    } rows[] = {{"strides=[2,2]", OQ_UINT8, true},
                {"pads=[0,1,0,0]", OQ_UINT8, true},
                {"group=3", OQ_UINT8, true},
                {"", OQ_UINT16, true},
                {"", OQ_UINT8, false}};
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        bm b;
        size_t n = 1;
        oq_map nothing;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 13);
        fill_as(&b, rows[i].attributes, rows[i].zero_type);
        oq_map_init(&nothing, b.a);
        assert_ok(rows[i].chosen ? apply(&b, &n, &err)
                                 : oq_pointwise_apply(b.m, &nothing, &n, &err),
                  err);
        assert_int_equal(n, 0);
        assert_int_equal(b.g->node.n, 5);
        assert_true(oq_str_is(b.g->node.v[4]->op_type, "Conv"));
        bm_end(&b);
    }
}

static onq_code work(bm *b, void *ctx, onq_error *err) {
    size_t n;
    (void)ctx;
    return apply(b, &n, err);
}

static void oom(void **state) {
    (void)state;
    bm_sweep(13, fill, work, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(writes), cmocka_unit_test(leaves),
                                       cmocka_unit_test(oom)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
