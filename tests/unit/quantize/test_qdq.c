/*
 * test_qdq.c — the QDQ driver on graphs that are awkward: names that are taken, tensors quantized
 * already, readers inside subgraphs, long chains, no memory. What is equal to the reference is
 * tested in tests/parity.
 */
#include "quantize/qdq/qdq.h"

#include "flaky_alloc.h"
#include "onnx/check/check.h"
#include "onnx/edit.h"
#include "quant_rig.h"
#include "testing.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

static onq_code quantize_or_decide(quant_rig *r, bool decide_only, onq_error *err) {
    OQ_TRY(oq_shapes_infer(r->b.m, NULL, &r->shapes, err));
    const oq_qdq_job job = {.model = r->b.m,
                            .run = &r->run,
                            .ranges = &r->ranges,
                            .shapes = r->shapes,
                            .plan = &r->plan,
                            .decide_only = decide_only};
    OQ_TRY(oq_qdq_run(&job, err));
    return oq_model_check(r->b.m, err);
}

static onq_code quantize(quant_rig *r, onq_error *err) {
    return quantize_or_decide(r, false, err);
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

static bool ranges_of_conv(quant_rig *r) {
    return quant_rig_range(r, "x", -1, 1) && quant_rig_range(r, "t", -2, 2) &&
           quant_rig_range(r, "y", 0, 2);
}

static void plain(void **state) {
    quant_rig *r = *state;
    bm *b = &r->b;
    conv_relu(b);
    ranges_of_conv(r);
    assert_ok(quantize(r, &r->err), r->err);
    assert_null(bm_find_node(b, "relu")); /* its work is done by the range of y */
    const oq_node *conv = bm_find_node(b, "conv");
    assert_true(oq_str_is(conv->input.v[0], "x_DequantizeLinear_Output"));
    assert_true(oq_str_is(conv->input.v[2], "c"));
    assert_true(oq_str_is(conv->output.v[0], "y_QuantizeLinear_Input"));
    assert_true(oq_str_is(bm_find_node(b, "y_DequantizeLinear")->output.v[0], "y"));
    assert_non_null(bm_find_node(b, "c_DequantizeLinear"));
    assert_int_equal(r->plan.nodes.n, 2);
    assert_int_equal(r->plan.nodes.v[1].fate, OQ_FATE_REMOVED);
}

/* Tensors and nodes that are called as the new ones would be. */
static void taken_names(void **state) {
    quant_rig *r = *state;
    bm *b = &r->b;
    conv_relu(b);
    bm_weight(b, "x_scale", "1", 9);
    bm_weight(b, "w_quantized", "1", 9);
    bm_node(b, "Add", "x_QuantizeLinear", "x_scale w_quantized", "x_DequantizeLinear_Output", "");
    bm_output(b, "x_DequantizeLinear_Output", OQ_FLOAT, "1");
    ranges_of_conv(r);
    assert_ok(oq_pick_add(&r->config.nodes_to_exclude, OQ_S("x_QuantizeLinear"), &r->err), r->err);
    assert_ok(quantize(r, &r->err), r->err);
    const oq_node *conv = bm_find_node(b, "conv");
    assert_true(oq_str_is(conv->input.v[0], "x_DequantizeLinear_Output_1"));
    const oq_node *q = bm_find_node(b, "x_QuantizeLinear_1");
    assert_non_null(q);
    assert_true(oq_str_is(q->input.v[1], "x_scale_1") && oq_str_is(q->input.v[2], "x_zero_point"));
    assert_non_null(oq_graph_find_init(b->g, OQ_S("w_quantized_1")));
}

/* An If body reads the input of a Relu: the Relu stays. */
static void read_inside(void **state) {
    quant_rig *r = *state;
    bm *b = &r->b;
    conv_relu(b);
    bm_input(b, "cond", OQ_BOOL, "");
    oq_node *n = bm_node(b, "If", "if", "cond", "z", "");
    static const char *const branches[] = {"then_branch", "else_branch"};
    for (size_t i = 0; i < 2; i++) {
        oq_graph *around = bm_enter(b, n, branches[i]);
        bm_node(b, "Neg", "", "t", i == 0 ? "z1" : "z2", "");
        bm_output(b, i == 0 ? "z1" : "z2", OQ_FLOAT, NULL);
        bm_leave(b, around);
    }
    bm_output(b, "z", OQ_FLOAT, NULL);
    ranges_of_conv(r);
    assert_ok(quantize(r, &r->err), r->err);
    assert_non_null(bm_find_node(b, "relu"));
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

static bool ranges_of_conv_if(quant_rig *r) {
    return quant_rig_range(r, "x", -1, 1) && quant_rig_range(r, "t", -2, 2) &&
           quant_rig_range(r, "o1", -3, 3) && quant_rig_range(r, "r1", 0, 3);
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
        quant_rig r;
        quant_rig_begin(&r, NULL);
        conv_if(&r.b);
        r.config.enable_subgraph = true;
        assert_true(ranges_of_conv_if(&r));
        assert_ok(quantize_or_decide(&r, dry == 1, &r.err), r.err);
        assert_int_equal(r.plan.n_not_run, 2);
        assert_int_equal(r.plan.nodes.n, 6);
        if (dry == 0) {
            oq_graph_cursor at = {0};
            const oq_node *n = bm_find_node(&r.b, "if");
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
            assert_non_null(oq_graph_find_init(r.b.g, oq_str_of("w_quantized")));
            assert_null(oq_graph_find_init(one, oq_str_of("w_quantized")));
            assert_null(oq_graph_find_init(one, oq_str_of("w_scale")));
            assert_non_null(oq_graph_find_init(r.b.g, oq_str_of("w"))); /* branch two reads it */
        }
        quant_rig_end(&r);
    }
}

/* A weight that is quantized in the input model, and a Reshape that shares its parameters. */
static void quantized_already(void **state) {
    quant_rig *r = *state;
    bm *b = &r->b;
    static const int8_t ints[4] = {1, -2, 3, -4}, zero = 0;
    static const float scale = 0.5f;
    static const int64_t shape[2] = {2, 2};
    bm_input(b, "x", OQ_FLOAT, "3,2");
    bm_raw(b, "q", OQ_INT8, "4", ints, 4);
    bm_f32(b, "s", "", &scale);
    bm_raw(b, "z", OQ_INT8, "", &zero, 1);
    bm_i64(b, "shape", "2", shape);
    bm_node(b, "DequantizeLinear", "dq", "q s z", "w", "");
    bm_node(b, "Reshape", "reshape", "w shape", "r", "");
    bm_node(b, "MatMul", "matmul", "x r", "y", "");
    bm_output(b, "y", OQ_FLOAT, "3,2");
    quant_rig_range(r, "x", -1, 1);
    quant_rig_range(r, "y", -1, 1);
    quant_rig_range(r, "w", -2, 2);
    quant_rig_range(r, "r", -2, 2);
    r->config.force_quantize_no_input_check = true;
    assert_ok(quantize(r, &r->err), r->err);
    const oq_node *q = bm_find_node(b, "r_QuantizeLinear");
    assert_non_null(q);
    assert_true(oq_str_is(q->input.v[1], "s") && oq_str_is(q->input.v[2], "z"));
}

/* A graph input that is a graph output too keeps its name, and so do its other readers. */
static void input_is_output(void **state) {
    quant_rig *r = *state;
    bm *b = &r->b;
    conv_relu(b);
    bm_output(b, "x", OQ_FLOAT, "1,3,4,4");
    ranges_of_conv(r);
    assert_ok(quantize(r, &r->err), r->err);
    assert_true(oq_str_is(bm_find_node(b, "conv")->input.v[0], "x_DequantizeLinear_Output"));
}

static void no_range(void **state) {
    quant_rig *r = *state;
    bm *b = &r->b;
    conv_relu(b);
    quant_rig_range(r, "t", -2, 2);
    quant_rig_range(r, "y", 0, 2);
    assert_fails(quantize(r, &r->err), ONQ_E_INVALID, r->err, "no range for tensor 'x'");
}

static void nan_range(void **state) {
    quant_rig *r = *state;
    bm *b = &r->b;
    conv_relu(b);
    ranges_of_conv(r);
    oq_ranges_find(&r->ranges, OQ_S("x"))->lowest.v[0] = (double)NAN;
    assert_fails(quantize(r, &r->err), ONQ_E_INVALID, r->err, "tensor 'x'");
}

/* CPU seconds that a chain of n nodes takes, in or against the order of the file. */
static double chain_seconds(int n, bool reverse) {
    quant_rig r;
    char in[24], out[24];
    quant_rig_begin(&r, NULL);
    r.config.force_quantize_no_input_check = true;
    bm_input(&r.b, "t0", OQ_FLOAT, "4,4");
    for (int i = 0; i < n; i++) {
        const int at = reverse ? n - 1 - i : i;
        snprintf(in, sizeof in, "t%d", at);
        snprintf(out, sizeof out, "t%d", at + 1);
        bm_node(&r.b, "Transpose", out, in, out, "");
        bm_info(&r.b, out, OQ_FLOAT, "4,4");
    }
    snprintf(out, sizeof out, "t%d", n);
    bm_output(&r.b, out, OQ_FLOAT, "4,4");
    quant_rig_range(&r, "t0", -1, 1);
    const clock_t begin = clock();
    assert_ok(quantize(&r, &r.err), r.err);
    const double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    assert_int_equal(r.b.g->node.n, 3 * n + 2);
    quant_rig_end(&r);
    return seconds;
}

/* Eight times the nodes take about eight times as long, and 64 times as long if anything walks all
 * nodes for each. The least CPU time counts; a busy machine gets more tries. */
static void long_chain(void **state) {
    (void)state;
    enum { N = 4000, TRIES = 30 };
    for (int reverse = 0; reverse < 2; reverse++) {
        double small = INFINITY, large = INFINITY;
        bool linear = false;
        for (int i = 0; i < TRIES && !linear; i++) {
            small = fmin(small, chain_seconds(N, reverse != 0));
            large = fmin(large, chain_seconds(8 * N, reverse != 0));
            linear = large <= 20.0 * small + 0.05;
        }
        if (!linear)
            fail_msg("%d nodes took %.3f s, and %d took %.3f s", N, small, 8 * N, large);
    }
}

typedef struct sweep {
    bm_fill *fill;
    bool (*ranges)(quant_rig *r);
    bool dedicated; /* pairs, and scales per channel */
} sweep;

static onq_code sweep_body(const onq_allocator *a, void *ctx, onq_error *err) {
    const sweep *s = ctx;
    quant_rig r;
    quant_rig_begin(&r, a);
    if (!r.b.failed)
        s->fill(&r.b);
    r.config.enable_subgraph = true;
    r.config.dedicated_qdq_pair = s->dedicated;
    r.config.per_channel = s->dedicated;
    const bool made = !r.b.failed && s->ranges(&r);
    onq_code rc = made ? quantize(&r, err) : oq_fail_nomem(err);
    oq_buf bytes;
    oq_buf_init(&bytes, a);
    if (rc == ONQ_OK)
        rc = oq_model_encode(r.b.m, &bytes, err);
    if (rc == ONQ_OK)
        flaky_give(a, bytes.p, bytes.n);
    oq_buf_release(&bytes);
    quant_rig_end(&r);
    return rc;
}

static void out_of_memory(void **state) {
    (void)state;
    sweep sweeps[] = {{conv_relu, ranges_of_conv, false},
                      {conv_relu, ranges_of_conv, true},
                      {conv_if, ranges_of_conv_if, false}};
    for (size_t i = 0; i < OQ_COUNT(sweeps); i++)
        assert_true(flaky_sweep(sweep_body, &sweeps[i]) > 10);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, quant_rig_setup, quant_rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(plain),
        TEST(taken_names),
        TEST(read_inside),
        TEST(quantized_already),
        TEST(input_is_output),
        TEST(no_range),
        TEST(nan_range),
        cmocka_unit_test(long_chain),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(inner_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
