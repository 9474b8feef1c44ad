/*
 * test_upgrade.c — the opset upgrader without Python: names, order, refusals, memory, linear time.
 * What it makes is compared with onnx's converter in tests/parity/test_upgrade.py.
 */
#include "build_model.h"
#include "dump.h"
#include "onnx/check/check.h"
#include "onnx/upgrade/upgrade.h"
#include "testing.h"

#include <stdio.h>
#include <time.h>

static void dump_is(bm *b, const char *want) {
    oq_buf text;
    onq_error err = ONQ_ERROR_INIT;
    oq_buf_init(&text, oq_alloc_default());
    assert_ok(oq_dump_model(b->m, &text, &err), err);
    assert_string_equal(text.p, want);
    oq_buf_release(&text);
}

static void a_model_of_opset_nine(void **state) {
    (void)state;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 9);
    bm_input(&b, "x", OQ_FLOAT, "1,2,4");
    const float scales[] = {1, 1, 2};
    bm_f32(&b, "s", "3", scales);
    bm_node(&b, "Clip", "clip", "x", "a", "max=6.0");
    bm_node(&b, "Upsample", "up", "a s", "b", "mode='nearest'");
    bm_node(&b, "Softmax", "soft", "b", "c", "axis=1");
    bm_node(&b, "Squeeze", "sq", "c", "y", "axes=[0]");
    bm_info(&b, "b", OQ_FLOAT, "1,2,8");
    bm_info(&b, "s", OQ_FLOAT, "3");
    bm_output(&b, "y", OQ_FLOAT, NULL);
    b.m->touched = false;
    assert_ok(oq_model_upgrade(b.m, 13, &err), err);
    assert_true(b.m->touched);
    assert_ok(oq_model_check(b.m, &err), err);
    dump_is(&b, "ir_version 8\n"
                "opset ai.onnx 13\n"
                "graph test\n"
                "input x FLOAT[1,2,4]\n"
                "output y FLOAT\n"
                "info _v_8 FLOAT[1,2,8]\n"
                "init s FLOAT[3] = {1, 1, 2}\n"
                "node : Constant() -> (_v_9) {value=FLOAT[] = {-3.4028235e+38}}\n"
                "node : Constant() -> (_v_10) {value=FLOAT[] = {6}}\n"
                "node clip: Clip(x, _v_9, _v_10) -> (a)\n"
                "node : Constant() -> (_v_11) {value=FLOAT[0] = {}}\n"
                "node : Resize(a, _v_11, s) -> (_v_8) {mode=\"nearest\"}\n"
                "node : Shape(_v_8) -> (_v_12)\n"
                "node : Flatten(_v_8) -> (_v_13) {axis=1}\n"
                "node soft: Softmax(_v_13) -> (c_intermediate) {axis=-1}\n"
                "node : Reshape(c_intermediate, _v_12) -> (c)\n"
                "node : Constant() -> (_v_15) {value=INT64[1] = {0}}\n"
                "node sq: Squeeze(c, _v_15) -> (y)\n");
    bm_end(&b);
}

static void there_already(void **state) {
    (void)state;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "1");
    bm_node(&b, "Relu", "r", "x", "y", "");
    bm_info(&b, "x", OQ_FLOAT, "1");
    b.m->touched = false;
    assert_ok(oq_model_upgrade(b.m, 13, &err), err);
    assert_ok(oq_model_upgrade(b.m, 17, &err), err);
    assert_false(b.m->touched);
    assert_int_equal(b.g->value_info.n, 1);
    assert_fails(oq_model_upgrade(b.m, 29, &err), ONQ_E_UNSUPPORTED, err, "29");
    bm_end(&b);
}

/* A name that a split Softmax would take is taken already. */
static void names_are_not_captured(void **state) {
    (void)state;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 12);
    bm_input(&b, "x", OQ_FLOAT, "2,3,4");
    bm_node(&b, "Softmax", "soft", "x", "y", "axis=1");
    bm_node(&b, "Neg", "neg", "x", "y_intermediate", "");
    bm_output(&b, "y", OQ_FLOAT, NULL);
    bm_output(&b, "y_intermediate", OQ_FLOAT, NULL);
    assert_ok(oq_model_upgrade(b.m, 13, &err), err);
    assert_ok(oq_model_check(b.m, &err), err);
    bm_end(&b);
}

static void an_attribute_of_a_function(void **state) {
    (void)state;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 11);
    oq_function *f = OQ_NEW(b.a, oq_function);
    oq_opset *o = OQ_NEW(b.a, oq_opset);
    oq_node *n = bm_node(&b, "Squeeze", "sq", "a", "b", "axes=[0]");
    b.g->node.n = 0;
    f->name = OQ_S("F");
    o->version = OQ_I64(11);
    n->attribute.v[0]->ref_attr_name = OQ_S("outer");
    assert_true(OQ_PUSH(b.a, &f->node, n) && OQ_PUSH(b.a, &f->opset_import, o) &&
                OQ_PUSH(b.a, &f->input, OQ_S("a")) && OQ_PUSH(b.a, &f->output, OQ_S("b")) &&
                OQ_PUSH(b.a, &b.m->proto->functions, f));
    assert_fails(oq_model_upgrade(b.m, 13, &err), ONQ_E_UNSUPPORTED, err, "function 'F'");
    assert_non_null(strstr(err.text, "'outer'"));
    bm_end(&b);
}

/* ---- memory and time ---- */

static void fill(bm *b) {
    bm_input(b, "x", OQ_FLOAT, "1,2,4");
    bm_weight(b, "s", "3", 1);
    bm_node(b, "Pad", "pad", "x", "p", "pads=[0,0,0,0,0,0]");
    bm_node(b, "Upsample", "up", "p s", "u", "");
    oq_node *n = bm_node(b, "If", "if", "x", "r", "");
    oq_graph *around = bm_enter(b, n, "then_branch");
    bm_node(b, "ReduceMean", "m", "u", "v", "axes=[1]");
    bm_output(b, "v", OQ_FLOAT, NULL);
    bm_leave(b, around);
    bm_node(b, "Softmax", "soft", "r", "y", "axis=1");
    bm_output(b, "y", OQ_FLOAT, NULL);
}

static onq_code upgrade(bm *b, void *ctx, onq_error *err) {
    (void)ctx;
    return oq_model_upgrade(b->m, 21, err);
}

static void out_of_memory(void **state) {
    (void)state;
    assert_true(bm_sweep(9, fill, upgrade, NULL) > 5);
}

/* 50,000 nodes, every one of which changes, and names that collide with the numbers. */
static void linear_time(void **state) {
    (void)state;
    enum { CHAIN = 50000 };
    bm b;
    char in[32], out[32];
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 9);
    bm_input(&b, "_v_60000", OQ_FLOAT, "1,2");
    bm_weight(&b, "s", "2", 1);
    for (int i = 0; i < CHAIN; i++) {
        static const char *const ops[] = {"Upsample", "Softmax", "Clip", "Unsqueeze"};
        static const char *const attributes[] = {"", "axis=0", "min=0.0", "axes=[0]"};
        snprintf(in, sizeof in, i % 4 == 0 ? "_v_%d s" : "_v_%d", 60000 + i);
        snprintf(out, sizeof out, "_v_%d", 60001 + i);
        bm_node(&b, ops[i % 4], out, in, out, attributes[i % 4]);
    }
    bm_output(&b, out, OQ_FLOAT, NULL);
    const clock_t start = clock();
    assert_ok(oq_model_upgrade(b.m, 21, &err), err);
    assert_cpu_seconds(start, 5.0);
    assert_ok(oq_model_check(b.m, &err), err);
    bm_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_of_opset_nine),  cmocka_unit_test(there_already),
        cmocka_unit_test(names_are_not_captured), cmocka_unit_test(an_attribute_of_a_function),
        cmocka_unit_test(out_of_memory),          cmocka_unit_test(linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
