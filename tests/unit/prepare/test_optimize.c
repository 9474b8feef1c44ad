/*
 * test_optimize.c — the built-in optimiser from inside: what it does to a graph, its limits, inner
 * graphs, time, failing allocations, and that the model computes what it did.
 * tests/parity/test_optimize.py has real models.
 */
#include "prepare/optimize.h"

#include "build_model.h"
#include "compute.h"
#include "testing.h"

#include <stdio.h>
#include <time.h>

static void fill(bm *b) {
    static const float one[] = {1, 1, 1, 1}, half = 0.5f, unit = 1, root = 1.41421356f;
    static const int64_t pads[] = {0, 0, 1, 1, 0, 0, 1, 1}, second = 1;
    bm_input(b, "x", OQ_FLOAT, "2,3,8,8");
    bm_weight(b, "w", "4,3,3,3", 1);
    for (const char *const *name = (const char *const[]){"s", "o", "m", "v", NULL}; *name; name++)
        bm_f32(b, *name, "4", one);
    bm_f32(b, "half", "", &half);
    bm_f32(b, "unit", "", &unit);
    bm_f32(b, "root", "", &root);
    bm_i64(b, "pads", "8", pads);
    bm_i64(b, "second", "", &second);
    bm_node(b, "Pad", "pad", "x pads", "p", "");
    bm_node(b, "Conv", "conv", "p w", "c", "");
    bm_node(b, "BatchNormalization", "bn", "c s o m v", "n", "");
    bm_node(b, "Identity", "id", "n", "i", "");
    bm_node(b, "Div", "div", "i root", "d", "");
    bm_node(b, "Erf", "erf", "d", "e", "");
    bm_node(b, "Add", "add", "e unit", "f", "");
    bm_node(b, "Mul", "mul", "i f", "g", "");
    bm_node(b, "Mul", "mul2", "g half", "h", "");
    bm_node(b, "Shape", "shape", "h", "sh", "");
    bm_node(b, "Gather", "gather", "sh second", "q", "");
    bm_node(b, "Reshape", "reshape", "h sh", "y", "");
    bm_node(b, "Neg", "neg", "q", "z", "");
    bm_output(b, "y", OQ_FLOAT, NULL);
    bm_output(b, "z", OQ_INT64, NULL);
}

static void rewrites(void **state) {
    (void)state;
    bm b;
    computed before;
    onq_error err = ONQ_ERROR_INIT;
    oq_opt_report r;
    char order[256];
    bm_begin(&b, NULL, 17);
    fill(&b);
    compute(&b, &before);
    assert_ok(oq_optimize(b.m, &r, &err), err);
    assert_computes(&b, &before, 1e-5);
    computed_release(&before);
    assert_string_equal(bm_order(b.g, order, sizeof order), "conv mul2 neg");
    assert_true(oq_str_is(b.g->node.v[1]->op_type, "Gelu"));
    assert_true(oq_str_is(b.g->node.v[1]->output.v[0], "y"));
    assert_int_equal(oq_model_opset(b.m, OQ_S("com.microsoft")), 1);
    assert_int_equal(r.counts[OQ_FUSE_batchnorm], 1);
    assert_int_equal(r.counts[OQ_FUSE_pad], 1);
    assert_int_equal(r.counts[OQ_FUSE_gelu], 1);
    /* The weights keep their name; a bias came along. */
    assert_non_null(oq_graph_find_init(b.g, OQ_S("w")));
    assert_non_null(oq_graph_find_init(b.g, OQ_S("w_bias")));
    assert_null(oq_graph_find_init(b.g, OQ_S("s")));
    /* Nothing is left to do. */
    assert_ok(oq_optimize(b.m, &r, &err), err);
    assert_int_equal(r.rounds, 1);
    bm_end(&b);
}

/* From IR version 4 on, an initializer that is an input too can be changed by whoever runs the
 * model. */
static void overridable(void **state) {
    (void)state;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    for (int64_t ir = 3; ir <= 8; ir += 5) {
        bm_begin(&b, NULL, 17);
        b.m->proto->ir_version = OQ_I64(ir);
        bm_input(&b, "a", OQ_FLOAT, "4");
        bm_weight(&b, "a", "4", 1);
        bm_weight(&b, "b", "4", 2);
        bm_node(&b, "Add", "add", "a b", "t", "");
        bm_node(&b, "Softmax", "soft", "t", "y", "");
        bm_output(&b, "y", OQ_FLOAT, NULL);
        assert_ok(oq_optimize(b.m, NULL, &err), err);
        assert_int_equal(b.g->node.n, ir < 4 ? 1 : 2);
        bm_end(&b);
    }
}

/* A few bytes must not become gigabytes. */
static void limits(void **state) {
    (void)state;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    static const int64_t huge[] = {INT64_MAX, 4}, large[] = {1000, 1000}, small[] = {10, 10};
    bm_begin(&b, NULL, 17);
    bm_i64(&b, "huge", "2", huge);
    bm_i64(&b, "large", "2", large);
    bm_i64(&b, "small", "2", small);
    bm_node(&b, "ConstantOfShape", "h", "huge", "a", "");
    bm_node(&b, "ConstantOfShape", "l", "large", "b", "");
    bm_node(&b, "ConstantOfShape", "s", "small", "c", "");
    bm_node(&b, "Softmax", "x", "a", "x", "");
    bm_node(&b, "Softmax", "y", "b", "y", "");
    bm_node(&b, "Softmax", "z", "c", "z", "");
    for (const char *const *name = (const char *const[]){"x", "y", "z", NULL}; *name; name++)
        bm_output(&b, *name, OQ_FLOAT, NULL);
    assert_ok(oq_optimize(b.m, NULL, &err), err);
    char order[64];
    assert_string_equal(bm_order(b.g, order, sizeof order), "h l x y z");
    bm_end(&b);
}

static void inner_graphs(void **state) {
    (void)state;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    char order[64];
    bm_begin(&b, NULL, 17);
    bm_input(&b, "c", OQ_BOOL, "");
    bm_input(&b, "x", OQ_FLOAT, "4");
    bm_node(&b, "Identity", "id", "x", "a", "");
    oq_node *n = bm_node(&b, "If", "if", "c", "y", "");
    for (int k = 0; k < 2; k++) {
        oq_graph *around = bm_enter(&b, n, k == 0 ? "then_branch" : "else_branch");
        bm_node(&b, "Identity", "inner_id", "a", k == 0 ? "t1" : "e1", "");
        bm_node(&b, "Neg", "inner_neg", k == 0 ? "t1" : "e1", k == 0 ? "t" : "e", "");
        bm_output(&b, k == 0 ? "t" : "e", OQ_FLOAT, NULL);
        bm_leave(&b, around);
    }
    bm_output(&b, "y", OQ_FLOAT, NULL);
    assert_ok(oq_optimize(b.m, NULL, &err), err);
    assert_string_equal(bm_order(b.g, order, sizeof order), "if");
    const oq_graph *then = b.g->node.v[0]->attribute.v[0]->g;
    assert_string_equal(bm_order(then, order, sizeof order), "inner_neg");
    assert_true(oq_str_is(then->node.v[0]->input.v[0], "x"));
    bm_end(&b);
}

/* Seconds for a chain of n nodes that all go but a few. */
static double chain(size_t n) {
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    oq_opt_report r;
    char in[32] = "x", out[32];
    struct timespec t0, t1;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "N,4");
    for (size_t i = 0; i < n; i++) {
        snprintf(out, sizeof out, "t%zu", i);
        bm_node(&b, i % 2 == 0 ? "Identity" : "Sigmoid", out, in, out, "");
        memcpy(in, out, sizeof in);
    }
    bm_output(&b, in, OQ_FLOAT, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t0);
    assert_ok(oq_optimize(b.m, &r, &err), err);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1);
    assert_int_equal(b.g->node.n, n / 2);
    assert_true(r.rounds <= 3);
    bm_end(&b);
    return (double)(t1.tv_sec - t0.tv_sec) + 1e-9 * (double)(t1.tv_nsec - t0.tv_nsec);
}

static void linear_time(void **state) {
    (void)state;
    const double small = chain(4000), large = chain(40000);
    assert_true(large < 40 * small + 0.5); /* a square would be 100 times */
}

static onq_code optimize(bm *b, void *ctx, onq_error *err) {
    (void)ctx;
    return oq_optimize(b->m, NULL, err);
}

static void oom(void **state) {
    (void)state;
    bm_sweep(17, fill, optimize, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rewrites),     cmocka_unit_test(overridable), cmocka_unit_test(limits),
        cmocka_unit_test(inner_graphs), cmocka_unit_test(linear_time), cmocka_unit_test(oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
