/*
 * test_qdq.c — the QDQ driver on graphs that are awkward: names that are taken, tensors quantized
 * already, readers inside subgraphs, long chains, no memory. What is equal to the reference is
 * tested in tests/parity.
 */
#include "quantize/qdq/qdq.h"

#include "build_model.h"
#include "flaky_alloc.h"
#include "onnx/check.h"
#include "onnx/edit.h"
#include "testing.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

typedef struct fix {
    oq_arena arena;
    oq_qconfig config;
    oq_ranges ranges;
    oq_plan plan;
    oq_shapes *shapes;
} fix;

static void fix_init(fix *f, const onq_allocator *a) {
    *f = (fix){0};
    oq_arena_init(&f->arena, a);
    oq_qconfig_init(&f->config, &f->arena);
    f->config.activation_type = OQ_UINT8;
    oq_ranges_init(&f->ranges, a, OQ_CAL_MINMAX);
    oq_plan_init(&f->plan, &f->arena);
}

static void fix_release(fix *f) {
    oq_shapes_free(f->shapes);
    oq_ranges_release(&f->ranges);
    oq_qconfig_release(&f->config);
    oq_arena_release(&f->arena);
}

static bool range(fix *f, const char *name, double lo, double hi) {
    oq_range *r = oq_ranges_add(&f->ranges, oq_str_of(name));
    return r != NULL && oq_num_make_one(&f->ranges.arena, &r->lowest, OQ_FLOAT, true, lo) &&
           oq_num_make_one(&f->ranges.arena, &r->highest, OQ_FLOAT, true, hi);
}

static onq_code quantize(fix *f, bm *b, onq_error *err) {
    OQ_TRY(oq_shapes_infer(b->m, NULL, &f->shapes, err));
    const oq_qdq_job job = {.model = b->m,
                            .config = &f->config,
                            .ranges = &f->ranges,
                            .shapes = f->shapes,
                            .plan = &f->plan};
    OQ_TRY(oq_qdq_run(&job, err));
    return oq_model_check(b->m, err);
}

static oq_node *find_node(bm *b, const char *name) {
    for (size_t i = 0; i < b->g->node.n; i++)
        if (oq_str_is(b->g->node.v[i]->name, name))
            return b->g->node.v[i];
    return NULL;
}

/* x -> Conv -> t -> Relu -> y */
static void conv_relu(bm *b) {
    bm_input(b, "x", OQ_FLOAT, "1,3,4,4");
    bm_weight(b, "w", "2,3,1,1", 1);
    bm_weight(b, "c", "2", 2);
    bm_node(b, "Conv", "conv", "x w c", "t", "");
    bm_node(b, "Relu", "relu", "t", "y", "");
    bm_output(b, "y", OQ_FLOAT, "1,2,4,4");
}

static void ranges_of_conv(fix *f) {
    range(f, "x", -1, 1);
    range(f, "t", -2, 2);
    range(f, "y", 0, 2);
}

static void plain(void **state) {
    (void)state;
    bm b;
    fix f;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    fix_init(&f, oq_alloc_default());
    conv_relu(&b);
    ranges_of_conv(&f);
    assert_ok(quantize(&f, &b, &err), err);
    assert_null(find_node(&b, "relu")); /* its work is done by the range of y */
    const oq_node *conv = find_node(&b, "conv");
    assert_true(oq_str_is(conv->input.v[0], "x_DequantizeLinear_Output"));
    assert_true(oq_str_is(conv->input.v[2], "c"));
    assert_true(oq_str_is(conv->output.v[0], "y_QuantizeLinear_Input"));
    assert_true(oq_str_is(find_node(&b, "y_DequantizeLinear")->output.v[0], "y"));
    assert_non_null(find_node(&b, "c_DequantizeLinear"));
    assert_int_equal(f.plan.nodes.n, 2);
    assert_int_equal(f.plan.nodes.v[1].fate, OQ_FATE_REMOVED);
    fix_release(&f);
    bm_end(&b);
}

/* Tensors and nodes that are called as the new ones would be. */
static void taken_names(void **state) {
    (void)state;
    bm b;
    fix f;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    fix_init(&f, oq_alloc_default());
    conv_relu(&b);
    bm_weight(&b, "x_scale", "1", 9);
    bm_weight(&b, "w_quantized", "1", 9);
    bm_node(&b, "Add", "x_QuantizeLinear", "x_scale w_quantized", "x_DequantizeLinear_Output", "");
    bm_output(&b, "x_DequantizeLinear_Output", OQ_FLOAT, "1");
    ranges_of_conv(&f);
    assert_ok(oq_pick_add(&f.config.nodes_to_exclude, OQ_S("x_QuantizeLinear"), &err), err);
    assert_ok(quantize(&f, &b, &err), err);
    const oq_node *conv = find_node(&b, "conv");
    assert_true(oq_str_is(conv->input.v[0], "x_DequantizeLinear_Output_1"));
    const oq_node *q = find_node(&b, "x_QuantizeLinear_1");
    assert_non_null(q);
    assert_true(oq_str_is(q->input.v[1], "x_scale_1") && oq_str_is(q->input.v[2], "x_zero_point"));
    assert_non_null(oq_graph_find_init(b.g, OQ_S("w_quantized_1")));
    fix_release(&f);
    bm_end(&b);
}

/* An If body reads the input of a Relu: the Relu stays. */
static void read_inside(void **state) {
    (void)state;
    bm b;
    fix f;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    fix_init(&f, oq_alloc_default());
    conv_relu(&b);
    bm_input(&b, "cond", OQ_BOOL, "");
    oq_node *n = bm_node(&b, "If", "if", "cond", "z", "");
    static const char *const branches[] = {"then_branch", "else_branch"};
    for (size_t i = 0; i < 2; i++) {
        oq_graph *around = bm_enter(&b, n, branches[i]);
        bm_node(&b, "Neg", "", "t", i == 0 ? "z1" : "z2", "");
        bm_output(&b, i == 0 ? "z1" : "z2", OQ_FLOAT, NULL);
        bm_leave(&b, around);
    }
    bm_output(&b, "z", OQ_FLOAT, NULL);
    ranges_of_conv(&f);
    assert_ok(quantize(&f, &b, &err), err);
    assert_non_null(find_node(&b, "relu"));
    fix_release(&f);
    bm_end(&b);
}

/* x -> Conv -> t -> If; both branches: t -> Conv (weight and bias of the main graph) -> o ->
 * Relu */
static void conv_if(bm *b) {
    bm_input(b, "x", OQ_FLOAT, "1,3,4,4");
    bm_input(b, "cond", OQ_BOOL, "");
    bm_weight(b, "w", "3,3,1,1", 1);
    bm_weight(b, "c", "3", 2);
    bm_node(b, "Conv", "conv", "x w c", "t", "");
    oq_node *n = bm_node(b, "If", "if", "cond", "z", "");
    for (size_t i = 0; i < 2; i++) {
        oq_graph *around = bm_enter(b, n, i == 0 ? "then_branch" : "else_branch");
        bm_node(b, "Conv", i == 0 ? "conv_1" : "conv_2", "t w c", i == 0 ? "o1" : "o2", "");
        bm_node(b, "Relu", i == 0 ? "relu_1" : "relu_2", i == 0 ? "o1" : "o2", i == 0 ? "r1" : "r2",
                "");
        bm_output(b, i == 0 ? "r1" : "r2", OQ_FLOAT, "1,3,4,4");
        bm_leave(b, around);
    }
    bm_output(b, "z", OQ_FLOAT, NULL);
}

static size_t count_ops(const oq_graph *g, const char *op) {
    size_t n = 0;
    for (size_t i = 0; i < g->node.n; i++)
        n += oq_str_is(g->node.v[i]->op_type, op);
    return n;
}

/* The first branch has ranges, the second was never run. */
static void inner_graphs(void **state) {
    (void)state;
    for (int dry = 0; dry < 2; dry++) {
        bm b;
        fix f;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 13);
        fix_init(&f, oq_alloc_default());
        conv_if(&b);
        f.config.enable_subgraph = true;
        assert_true(range(&f, "x", -1, 1) && range(&f, "t", -2, 2) && range(&f, "o1", -3, 3) &&
                    range(&f, "r1", 0, 3));
        assert_ok(oq_shapes_infer(b.m, NULL, &f.shapes, &err), err);
        const oq_qdq_job job = {.model = b.m,
                                .config = &f.config,
                                .ranges = &f.ranges,
                                .shapes = f.shapes,
                                .plan = &f.plan,
                                .decide_only = dry == 1};
        assert_ok(oq_qdq_run(&job, &err), err);
        assert_int_equal(f.plan.n_not_run, 2);
        assert_int_equal(f.plan.nodes.n, 6);
        if (dry == 0) {
            assert_ok(oq_model_check(b.m, &err), err);
            oq_graph_cursor at = {0};
            const oq_node *n = find_node(&b, "if");
            const oq_graph *one = oq_node_next_graph(n, &at), *two = oq_node_next_graph(n, &at);
            if (count_ops(one, "Relu") > 0) { /* attributes were sorted */
                const oq_graph *other = one;
                one = two;
                two = other;
            }
            /* t, w and c dequantized, and r1, which is the Conv's now. */
            assert_int_equal(count_ops(one, "DequantizeLinear"), 4);
            assert_int_equal(count_ops(one, "Relu"), 0);
            assert_int_equal(two->node.n, 2);
            assert_non_null(oq_graph_find_init(b.g, oq_str_of("w_quantized")));
            assert_null(oq_graph_find_init(one, oq_str_of("w_quantized")));
            assert_null(oq_graph_find_init(one, oq_str_of("w_scale")));
            assert_non_null(oq_graph_find_init(b.g, oq_str_of("w"))); /* branch two reads it */
        }
        fix_release(&f);
        bm_end(&b);
    }
}

/* A weight that is quantized in the input model, and a Reshape that shares its parameters. */
static void quantized_already(void **state) {
    (void)state;
    static const int8_t ints[4] = {1, -2, 3, -4}, zero = 0;
    static const float scale = 0.5f;
    static const int64_t shape[2] = {2, 2};
    bm b;
    fix f;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    fix_init(&f, oq_alloc_default());
    bm_input(&b, "x", OQ_FLOAT, "3,2");
    bm_raw(&b, "q", OQ_INT8, "4", ints, 4);
    bm_f32(&b, "s", "", &scale);
    bm_raw(&b, "z", OQ_INT8, "", &zero, 1);
    bm_i64(&b, "shape", "2", shape);
    bm_node(&b, "DequantizeLinear", "dq", "q s z", "w", "");
    bm_node(&b, "Reshape", "reshape", "w shape", "r", "");
    bm_node(&b, "MatMul", "matmul", "x r", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "3,2");
    range(&f, "x", -1, 1);
    range(&f, "y", -1, 1);
    range(&f, "w", -2, 2);
    range(&f, "r", -2, 2);
    f.config.force_quantize_no_input_check = true;
    assert_ok(quantize(&f, &b, &err), err);
    const oq_node *q = find_node(&b, "r_QuantizeLinear");
    assert_non_null(q);
    assert_true(oq_str_is(q->input.v[1], "s") && oq_str_is(q->input.v[2], "z"));
    fix_release(&f);
    bm_end(&b);
}

/* A graph input that is a graph output too keeps its name, and so do its other readers. */
static void input_is_output(void **state) {
    (void)state;
    bm b;
    fix f;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    fix_init(&f, oq_alloc_default());
    conv_relu(&b);
    bm_output(&b, "x", OQ_FLOAT, "1,3,4,4");
    ranges_of_conv(&f);
    assert_ok(quantize(&f, &b, &err), err);
    assert_true(oq_str_is(find_node(&b, "conv")->input.v[0], "x_DequantizeLinear_Output"));
    fix_release(&f);
    bm_end(&b);
}

static void no_range(void **state) {
    (void)state;
    bm b;
    fix f;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    fix_init(&f, oq_alloc_default());
    conv_relu(&b);
    range(&f, "t", -2, 2);
    range(&f, "y", 0, 2);
    assert_fails(quantize(&f, &b, &err), ONQ_E_INVALID, err, "no range for tensor 'x'");
    fix_release(&f);
    bm_end(&b);
}

static void nan_range(void **state) {
    (void)state;
    bm b;
    fix f;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    fix_init(&f, oq_alloc_default());
    conv_relu(&b);
    ranges_of_conv(&f);
    oq_ranges_find(&f.ranges, OQ_S("x"))->lowest.v[0] = (double)NAN;
    assert_fails(quantize(&f, &b, &err), ONQ_E_INVALID, err, "tensor 'x'");
    fix_release(&f);
    bm_end(&b);
}

/* CPU seconds that a chain of n nodes takes, in or against the order of the file. */
static double chain_seconds(int n, bool reverse) {
    bm b;
    fix f;
    char in[24], out[24];
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    fix_init(&f, oq_alloc_default());
    f.config.force_quantize_no_input_check = true;
    bm_input(&b, "t0", OQ_FLOAT, "4,4");
    for (int i = 0; i < n; i++) {
        const int at = reverse ? n - 1 - i : i;
        snprintf(in, sizeof in, "t%d", at);
        snprintf(out, sizeof out, "t%d", at + 1);
        bm_node(&b, "Transpose", out, in, out, "");
        bm_info(&b, out, OQ_FLOAT, "4,4");
    }
    snprintf(out, sizeof out, "t%d", n);
    bm_output(&b, out, OQ_FLOAT, "4,4");
    range(&f, "t0", -1, 1);
    const clock_t begin = clock();
    assert_ok(quantize(&f, &b, &err), err);
    const double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    assert_int_equal(b.g->node.n, 3 * n + 2);
    fix_release(&f);
    bm_end(&b);
    return seconds;
}

/* Eight times the nodes take about eight times as long, and 64 times as long if anything walks all
 * nodes for each: the least of three runs is compared, in CPU time, with a wide margin. */
static void long_chain(void **state) {
    (void)state;
    enum { N = 4000 };
    for (int reverse = 0; reverse < 2; reverse++) {
        double small = INFINITY, large = INFINITY;
        for (int i = 0; i < 3; i++) {
            small = fmin(small, chain_seconds(N, reverse != 0));
            large = fmin(large, chain_seconds(8 * N, reverse != 0));
        }
        if (large > 20.0 * small + 0.05)
            fail_msg("%d nodes took %.3f s, and %d took %.3f s", N, small, 8 * N, large);
    }
}

static onq_code sweep_body(const onq_allocator *a, void *ctx, onq_error *err) {
    bm b;
    fix f;
    const bool dedicated = *(const bool *)ctx;
    bm_begin(&b, a, 13);
    fix_init(&f, a);
    if (b.m != NULL)
        conv_relu(&b);
    f.config.dedicated_qdq_pair = dedicated;
    f.config.per_channel = dedicated;
    onq_code rc = ONQ_OK;
    if (b.failed || !range(&f, "x", -1, 1) || !range(&f, "t", -2, 2) || !range(&f, "y", 0, 2))
        rc = oq_fail_nomem(err);
    else
        rc = quantize(&f, &b, err);
    fix_release(&f);
    bm_end(&b);
    return rc;
}

static onq_code sweep_inner(const onq_allocator *a, void *ctx, onq_error *err) {
    bm b;
    fix f;
    (void)ctx;
    bm_begin(&b, a, 13);
    fix_init(&f, a);
    if (b.m != NULL)
        conv_if(&b);
    f.config.enable_subgraph = true;
    onq_code rc = ONQ_OK;
    if (b.failed || !range(&f, "x", -1, 1) || !range(&f, "t", -2, 2) || !range(&f, "o1", -3, 3) ||
        !range(&f, "r1", 0, 3))
        rc = oq_fail_nomem(err);
    else
        rc = quantize(&f, &b, err);
    fix_release(&f);
    bm_end(&b);
    return rc;
}

static void out_of_memory(void **state) {
    (void)state;
    bool dedicated = false;
    assert_true(flaky_sweep(sweep_body, &dedicated) > 10);
    dedicated = true;
    assert_true(flaky_sweep(sweep_body, &dedicated) > 10);
    assert_true(flaky_sweep(sweep_inner, NULL) > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),           cmocka_unit_test(taken_names),
        cmocka_unit_test(read_inside),     cmocka_unit_test(quantized_already),
        cmocka_unit_test(input_is_output), cmocka_unit_test(no_range),
        cmocka_unit_test(nan_range),       cmocka_unit_test(long_chain),
        cmocka_unit_test(out_of_memory),   cmocka_unit_test(inner_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
