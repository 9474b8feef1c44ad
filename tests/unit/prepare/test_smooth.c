/*
 * test_smooth.c — SmoothQuant: the model computes what it did, outliers have moved, and the factors
 * are where they should be: in a new Mul, or in the constant of the node before.
 */
#include "prepare/channels/smooth.h"

#include "build_model.h"
#include "compute.h"
#include "fake_engine.h"
#include "flaky_alloc.h"
#include "onnx/tensor.h"
#include "testing.h"

#include <math.h>
#include <stdio.h>

static const float weights[12] = {1, -2, 3, 1, 1, -1, 0.5f, 2, 0.25f, -4, 1, 2};
static const float scales[4] = {1, 40, 0.5f, 2};

/* y = (x * c) W, or x W; the second channel of what W meets is an outlier where c is there. */
static void make(bm *b, bool scaled) {
    bm_begin(b, NULL, 13);
    bm_input(b, "x", OQ_FLOAT, "1,4");
    bm_f32(b, "w", "4,3", weights);
    if (scaled) {
        bm_f32(b, "c", "1,4", scales);
        bm_node(b, "Mul", "scale", "x c", "t", "");
    }
    bm_node(b, "MatMul", "product", scaled ? "t w" : "x w", "y", "");
    bm_output(b, "y", OQ_FLOAT, "1,3");
}

/* Smooths the model and checks that its outputs are what they were. */
static oq_smooth_job smooth(bm *b, bool folding) {
    computed before;
    fake_engine fake;
    onq_error err = ONQ_ERROR_INIT;
    fake_engine_init(&fake, b->env);
    compute(b, &before);
    oq_source *source = NULL;
    const oq_source_options so = {.spec = COMPUTE_SAMPLES, .model = b->m};
    assert_ok(oq_source_open(b->env, &so, &source, &err), err);
    oq_smooth_job job = {
        .model = b->m, .engine = &fake.base, .source = source, .alpha = 0.5, .folding = folding};
    assert_ok(oq_smooth(&job, &err), err);
    oq_source_close(source);
    assert_computes(b, &before, 1e-5);
    computed_release(&before);
    return job;
}

static void in_front(void **state) {
    (void)state;
    bm b;
    make(&b, false);
    const oq_smooth_job job = smooth(&b, true); /* nothing makes x: there is nothing to fold into */
    assert_int_equal(job.n_tensors, 1);
    assert_int_equal(job.n_folded, 0);
    assert_int_equal(job.added.n, 1);
    assert_int_equal(b.g->node.n, 2);
    assert_true(oq_str_is(b.g->node.v[0]->op_type, "Mul"));
    assert_true(oq_str_eq(b.g->node.v[0]->name, job.added.v[0]));
    assert_true(oq_str_eq(b.g->node.v[1]->input.v[0], b.g->node.v[0]->output.v[0]));
    bm_end(&b);
}

static void into_the_node_before(void **state) {
    (void)state;
    bm b;
    make(&b, true);
    const oq_smooth_job job = smooth(&b, true);
    assert_int_equal(job.n_tensors, 1);
    assert_int_equal(job.n_folded, 1);
    assert_int_equal(job.added.n, 0);
    assert_int_equal(b.g->node.n, 2);
    oq_tensor *c = oq_graph_find_init(b.g, b.g->node.v[0]->input.v[1]);
    float *v;
    size_t n;
    assert_non_null(c);
    assert_int_equal(oq_tensor_floats(b.m, c, &b.m->arena, &v, &n, NULL), ONQ_OK);
    assert_true(v[1] / v[0] < 40.0f / 2); /* the outlier has moved into the weight */
    bm_end(&b);
}

static void not_folded(void **state) {
    (void)state;
    bm b;
    make(&b, true);
    const oq_smooth_job job = smooth(&b, false);
    assert_int_equal(job.n_folded, 0);
    assert_int_equal(b.g->node.n, 3);
    bm_end(&b);
}

/* The most bytes that a chain of n products needs. */
static size_t peak_of(int n) {
    static const float w[16] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
    flaky f;
    fake_engine fake;
    bm b;
    oq_source *source = NULL;
    onq_error err = ONQ_ERROR_INIT;
    flaky_init(&f, -1);
    bm_begin(&b, &f.alloc, 13);
    bm_input(&b, "t0", OQ_FLOAT, "1,4");
    for (int i = 0; i < n; i++) {
        char weight[16], inputs[32], output[16];
        snprintf(weight, sizeof weight, "w%d", i);
        snprintf(inputs, sizeof inputs, "t%d w%d", i, i);
        snprintf(output, sizeof output, "t%d", i + 1);
        bm_f32(&b, weight, "4,4", w);
        bm_node(&b, "MatMul", "", inputs, output, "");
        if (i == n - 1)
            bm_output(&b, output, OQ_FLOAT, "1,4");
    }
    fake_engine_init(&fake, b.env);
    const oq_source_options so = {.spec = "random:2:1", .model = b.m};
    assert_ok(oq_source_open(b.env, &so, &source, &err), err);
    oq_smooth_job job = {
        .model = b.m, .engine = &fake.base, .source = source, .alpha = 0.5, .folding = true};
    assert_ok(oq_smooth(&job, &err), err);
    assert_int_equal(job.n_tensors, n);
    oq_source_close(source);
    bm_end(&b);
    return atomic_load(&f.peak);
}

/* What one product needs is given back before the next. */
static void many(void **state) {
    (void)state;
    assert_true(peak_of(400) < 6 * peak_of(100));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_front),
                                       cmocka_unit_test(into_the_node_before),
                                       cmocka_unit_test(not_folded), cmocka_unit_test(many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
