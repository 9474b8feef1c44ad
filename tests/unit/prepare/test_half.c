/*
 * test_half.c — float16, and float32 again, as text: which nodes are turned, where casts stand, and what happens when
 * memory runs out. The result computes what float computes, as far as float16 goes;
 * tests/parity/test_float16.py has the runtime.
 */
#include "prepare/half.h"
#include "prepare/single.h"

#include "build_model.h"
#include "compute.h"
#include "onnx/check/check.h"
#include "onnx/edit.h"
#include "testing.h"

static const float far[1] = {1e6f};
static const int64_t flat[2] = {0, -1};

/* Two products with something between that cannot be float16, and a branch that reads a float. */
static void fill(bm *b) {
    bm_input(b, "x", OQ_FLOAT, "2,16");
    bm_input(b, "yes", OQ_BOOL, "");
    bm_weight(b, "w", "16,32", 1);
    bm_weight(b, "v", "32,16", 2);
    bm_f32(b, "far", "", far);
    bm_i64(b, "flat", "2", flat);
    bm_node(b, "MatMul", "first", "x w", "a", "");
    bm_node(b, "Mul", "up", "a far", "b", "");
    bm_node(b, "Div", "down", "b far", "c", "");
    bm_node(b, "Reshape", "moves", "c flat", "d", "");
    bm_node(b, "MatMul", "second", "d v", "e", "");
    bm_node(b, "Relu", "relu", "e", "y", "");
    oq_node *n = bm_node(b, "If", "if", "yes", "z", "");
    static const char *const branches[] = {"then_branch", "else_branch"};
    for (size_t i = 0; i < OQ_COUNT(branches); i++) {
        oq_graph *around = bm_enter(b, n, branches[i]);
        bm_weight(b, i == 0 ? "t" : "u", "2,256", 3);
        bm_node(b, i == 0 ? "Neg" : "Abs", i == 0 ? "neg" : "abs", "e", i == 0 ? "z1" : "z2", "");
        bm_node(b, "Concat", i == 0 ? "cat1" : "cat2", i == 0 ? "z1 t" : "z2 u",
                i == 0 ? "o1" : "o2", "axis=1");
        bm_output(b, i == 0 ? "o1" : "o2", OQ_FLOAT, NULL);
        bm_leave(b, around);
    }
    bm_output(b, "y", OQ_FLOAT, "2,16");
    bm_output(b, "z", OQ_FLOAT, NULL);
}

static void order(oq_half how, const char *nodes, size_t n_weights, size_t n_nodes) {
    bm b;
    computed before;
    char text[512];
    oq_half_report r;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 17);
    fill(&b);
    compute(&b, &before);
    assert_ok(oq_half_make(b.m, how, &r, &err), err);
    /* A number of float16 has 11 bits. */
    assert_computes(&b, &before, how == OQ_HALF_NONE ? 0 : 0.002);
    computed_release(&before);
    assert_ok(oq_model_check(b.m, &err), err);
    assert_string_equal(bm_order(b.g, text, sizeof text), nodes);
    assert_int_equal(r.n_weights, n_weights);
    assert_int_equal(r.n_nodes, n_nodes);
    const oq_tensor *w = oq_graph_find_init(b.g, OQ_S("far"));
    assert_true(w != NULL && w->data_type.v == OQ_FLOAT);
    bm_end(&b);
}

static void turned(void **state) {
    (void)state;
    order(OQ_HALF_NONE, "first up down moves second relu if", 0, 0);
    /* In the branches too: two of them, and two outside. */
    order(OQ_HALF_WEIGHTS, "w_cast v_cast first up down moves second relu if", 4, 0);
    /* What only moves floats stays float; the If reads e as it did. */
    order(OQ_HALF_ALL,
          "x_float16_cast first a_cast up down moves d_float16_cast second e_cast relu y_cast if",
          4, 3);
}

static onq_code make_half(bm *b, void *ctx, onq_error *err) {
    const oq_half *how = ctx;
    oq_half_report r;
    return oq_half_make(b->m, *how, &r, err);
}

/* ---- and back ---- */

/* The model in float16, its inputs and outputs too. */
static void fill_half(bm *b) {
    static const uint16_t two[2] = {0x4000, 0x3c00};
    bm_input(b, "x", OQ_FLOAT16, "2");
    bm_raw(b, "w", OQ_FLOAT16, "2", two, sizeof two);
    bm_node(b, "Mul", "mul", "x w", "a", "");
    bm_node(b, "Cast", "up", "a", "f", "to=1");
    bm_node(b, "Neg", "neg", "f", "g", "");
    bm_node(b, "Cast", "down", "g", "h", "to=10");
    bm_node(b, "Abs", "abs", "h", "y", "");
    bm_output(b, "y", OQ_FLOAT16, "2");
}

static onq_code make_single(bm *b, void *ctx, onq_error *err) {
    oq_single_report r;
    (void)ctx;
    return oq_single_make(b->m, true, &r, err);
}

static void single(void **state) {
    (void)state;
    bm b;
    char text[256];
    oq_single_report r;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 17);
    fill_half(&b);
    assert_ok(oq_single_make(b.m, false, &r, &err), err);
    assert_int_equal(r.n_weights + r.n_casts + r.n_ends, 0); /* there is no bfloat16 */
    assert_ok(oq_single_make(b.m, true, &r, &err), err);
    assert_ok(oq_model_check(b.m, &err), err);
    assert_int_equal(r.n_weights, 1);
    assert_int_equal(r.n_casts, 2);
    assert_int_equal(r.n_ends, 2);
    assert_string_equal(bm_order(b.g, text, sizeof text), "x_float32_cast mul neg abs y_cast");
    assert_int_equal(b.g->input.v[0]->type->tensor_type->elem_type.v, OQ_FLOAT16);
    oq_tensor *w = oq_graph_find_init(b.g, OQ_S("w"));
    oq_span raw;
    assert_int_equal(w->data_type.v, OQ_FLOAT);
    assert_ok(oq_model_data(b.m, w, &raw, &err), err);
    static const float want[2] = {2.0f, 1.0f};
    assert_memory_equal(raw.p, want, sizeof want);
    bm_end(&b);
}

static void out_of_memory(void **state) {
    oq_half how = OQ_HALF_WEIGHTS;
    (void)state;
    assert_true(bm_sweep(17, fill, make_half, &how) > 10);
    how = OQ_HALF_ALL;
    assert_true(bm_sweep(17, fill, make_half, &how) > 10);
    assert_true(bm_sweep(17, fill_half, make_single, NULL) > 10);
}

/* Before opset 6 the type of a Cast was a text. */
/* A Cast whose output has no name makes nothing that could be kept. */
static void cast_to_nothing(void **state) {
    (void)state;
    bm b;
    oq_single_report r;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT16, "2");
    bm_node(&b, "Cast", "lost", "x", "_", "to=1");
    bm_node(&b, "Relu", "relu", "x", "y", "");
    bm_output(&b, "y", OQ_FLOAT16, "2");
    assert_ok(oq_model_check(b.m, &err), err);
    assert_ok(oq_single_make(b.m, true, &r, &err), err);
    assert_ok(oq_model_check(b.m, &err), err);
    assert_int_equal(r.n_casts, 0);
    bm_end(&b);
}

static void too_old(void **state) {
    (void)state;
    for (int64_t opset = 5; opset <= 6; opset++) {
        bm b;
        oq_half_report r;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, opset);
        bm_input(&b, "x", OQ_FLOAT, "2,16");
        bm_weight(&b, "w", "16,32", 1);
        bm_node(&b, "MatMul", "product", "x w", "y", "");
        bm_output(&b, "y", OQ_FLOAT, "2,32");
        const onq_code rc = oq_half_make(b.m, OQ_HALF_ALL, &r, &err);
        assert_int_equal(rc, opset < 6 ? ONQ_E_UNSUPPORTED : ONQ_OK);
        assert_true(opset >= 6 || strstr(err.text, "opset 5 is too old") != NULL);
        bm_end(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(turned), cmocka_unit_test(single),
                                       cmocka_unit_test(cast_to_nothing), cmocka_unit_test(too_old),
                                       cmocka_unit_test(out_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
