/*
 * test_product_forms.c — double activations, float readers and early pairs on a small QDQ graph,
 * and running out of memory. What the runtime makes of it: tests/parity/test_methods.py.
 */
#include "quantize/ort/product_forms.h"

#include "build_model.h"
#include "testing.h"

static const float one[1] = {0.5f};
static const uint8_t zero[1] = {10};
static const int8_t none[1] = {0}, w[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static const int64_t pads[6] = {0, 1, 0, 0, 0, 0}, from[2] = {0, 1}, to[2] = {-1, INT64_MAX};
static const int64_t axis[1] = {1};

/* x -> Pad -> two Slices -> Concat -> pair -> MatMul -> y, and the pair is read by a Neg. */
static void fill(bm *b) {
    bm_input(b, "x", OQ_FLOAT, "1,3,2");
    bm_f32(b, "s", "", one);
    bm_raw(b, "z", OQ_UINT8, "", zero, 1);
    bm_raw(b, "zw", OQ_INT8, "", none, 1);
    bm_raw(b, "w", OQ_INT8, "4,2", w, 8);
    bm_i64(b, "pads", "6", pads);
    bm_i64(b, "from0", "1", from);
    bm_i64(b, "from1", "1", from + 1);
    bm_i64(b, "to0", "1", to);
    bm_i64(b, "to1", "1", to + 1);
    bm_i64(b, "axis", "1", axis);
    bm_node(b, "Pad", "pad", "x pads", "p", "");
    bm_node(b, "Slice", "cut0", "p from0 to0 axis", "c0", "");
    bm_node(b, "Slice", "cut1", "p from1 to1 axis", "c1", "");
    bm_node(b, "Concat", "join", "c0 c1", "j", "axis=2");
    bm_node(b, "QuantizeLinear", "q", "j s z", "jq", "");
    bm_node(b, "DequantizeLinear", "dq", "jq s z", "jd", "");
    bm_node(b, "DequantizeLinear", "dw", "w s zw", "wd", "");
    bm_node(b, "MatMul", "product", "jd wd", "y", "");
    bm_node(b, "QuantizeLinear", "q2", "x s z", "xq", "");
    bm_node(b, "DequantizeLinear", "dq2", "xq s z", "xd", "");
    bm_node(b, "Neg", "neg", "xd", "n", "");
    bm_output(b, "y", OQ_FLOAT, NULL);
    bm_output(b, "n", OQ_FLOAT, NULL);
}

static onq_code apply(bm *b, size_t *n, onq_error *err) {
    oq_fresh names;
    oq_map doubled, made, read;
    oq_product_forms p = {
        .m = b->m, .names = &names, .doubled = &doubled, .made = &made, .read = &read};
    oq_map_init(&doubled, b->a);
    oq_map_init(&made, b->a);
    oq_map_init(&read, b->a);
    if (!oq_map_put(&doubled, OQ_S("y"), 0) || !oq_map_put(&made, OQ_S("n"), 0) ||
        !oq_map_put(&read, OQ_S("n"), 0))
        return oq_fail_nomem(err);
    OQ_TRY(oq_fresh_init(&names, b->a, b->m, err));
    OQ_TRY(oq_product_forms_apply(&p, err));
    *n = p.n_doubled;
    return ONQ_OK;
}

static size_t count(const oq_graph *g, const char *type) {
    size_t n = 0;
    for (size_t i = 0; i < g->node.n; i++)
        n += oq_str_is(g->node.v[i]->op_type, type);
    return n;
}

static void all(void **state) {
    bm b;
    size_t n = 0;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    bm_begin(&b, NULL, 13);
    fill(&b);
    assert_ok(apply(&b, &n, &err), err);
    assert_int_equal(n, 1);
    assert_int_equal(count(b.g, "MatMul"), 2);
    assert_int_equal(count(b.g, "QuantizeLinear"), 2); /* of x and of the residual */
    assert_int_equal(count(b.g, "Pad"), 2);
    assert_int_equal(count(b.g, "Slice"), 4);
    for (size_t i = 0; i < b.g->node.n; i++) {
        const oq_node *node = b.g->node.v[i];
        if (oq_str_is(node->name, "neg"))
            assert_true(oq_str_is(node->input.v[0], "x"));
        if (oq_str_is(node->name, "pad"))
            assert_true(node->input.n == 3 && oq_str_is(node->input.v[2], "z"));
    }
    bm_end(&b);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(all), cmocka_unit_test(oom)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
