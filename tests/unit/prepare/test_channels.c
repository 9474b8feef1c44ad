/*
 * test_channels.c — scales for channels and outliers: the model computes what it did, the range of
 * what is quantized is smaller, and running out of memory is an error. tests/parity/test_channels.py
 * has real models.
 */
#include "prepare/channels/channels.h"

#include "build_model.h"
#include "compute.h"
#include "fake_engine.h"
#include "onnx/edit.h"
#include "prepare/channels/channels_parts.h"
#include "testing.h"

#include <math.h>

static const float weights[12] = {1, -2, 3, 1, 1, -1, 0.5f, 2, 0.25f, -4, 1, 2};
static const float scales[4] = {1, 400, 0.5f, 2};
static const float shift[4] = {0.5f, 1, -1, 2};

/* y = (x * c + d) W, and z = x V. */
static void fill(bm *b) {
    bm_input(b, "x", OQ_FLOAT, "1,4");
    bm_f32(b, "w", "4,3", weights);
    bm_f32(b, "v", "4,3", weights);
    bm_f32(b, "c", "1,4", scales);
    bm_f32(b, "d", "1,4", shift);
    bm_node(b, "Mul", "scale", "x c", "t", "");
    bm_node(b, "Add", "shift", "t d", "u", "");
    bm_node(b, "MatMul", "product", "u w", "y", "");
    bm_node(b, "MatMul", "other", "x v", "z", "");
    bm_output(b, "y", OQ_FLOAT, "1,3");
    bm_output(b, "z", OQ_FLOAT, "1,3");
}

/* With what was seen before, if that is not NULL; *n_runs: of samples. */
static onq_code apply_with(bm *b, oq_channel_choice choice, oq_channel_memory *memory,
                           oq_channels *c, long *n_runs, onq_error *err) {
    fake_engine fake;
    oq_source *source = NULL;
    const oq_source_options so = {.spec = COMPUTE_SAMPLES, .model = b->m};
    fake_engine_init(&fake, b->env);
    OQ_TRY(oq_source_open(b->env, &so, &source, err));
    choice.node = b->g->node.v[2];
    *c = (oq_channels){.choices = &choice,
                       .n_choices = 1,
                       .per_channel = true,
                       .see = {.model = b->m,
                               .engine = &fake.base,
                               .source = source,
                               .what = "test",
                               .memory = memory}};
    const onq_code rc = oq_channels_apply(c, err);
    oq_source_close(source);
    c->choices = NULL;
    *n_runs = fake.n_runs;
    return rc;
}

static onq_code apply(bm *b, oq_channel_choice choice, oq_channels *c, onq_error *err) {
    long ignored = 0;
    return apply_with(b, choice, NULL, c, &ignored, err);
}

static float *values(bm *b, oq_str name) {
    float *v = NULL;
    onq_error err = ONQ_ERROR_INIT;
    oq_tensor *t = oq_graph_find_init(b->g, name);
    assert_non_null(t);
    assert_ok(oq_tensor_floats(b->m, t, b->a, &v, NULL, &err), err);
    return v;
}

/* The factors are in the constants of Mul and Add, and in the weight. */
static void into_constants(void **state) {
    bm b;
    computed before;
    oq_channels c;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    bm_begin(&b, NULL, 13);
    fill(&b);
    compute(&b, &before);
    assert_ok(apply(&b, (oq_channel_choice){.in = true}, &c, &err), err);
    assert_computes(&b, &before, 1e-6);
    computed_release(&before);
    assert_int_equal(c.n_in, 1);
    assert_int_equal(c.n_folded, 1);
    assert_int_equal(c.added.n, 0);
    assert_int_equal(b.g->node.n, 4);
    assert_true(oq_str_is(bm_find_node(&b, "other")->input.v[1], "v"));
    const float *w = values(&b, bm_find_node(&b, "product")->input.v[1]);
    assert_true(w[3] / weights[3] > 1.0f); /* the outlier moved into the weight */
    bm_end(&b);
}

/* Runs the changed model: a tensor that moved has the range that was said. */
static void assert_range(bm *b, const oq_channel_range *r, bool is_image, uint64_t n) {
    fake_engine fake;
    oq_source *source = NULL;
    onq_error err = ONQ_ERROR_INIT;
    const oq_source_options so = {.spec = COMPUTE_SAMPLES, .model = b->m};
    oq_channel_stats *seen = oq_channel_stats_new(b->a, r->tensor, is_image, n);
    float low = INFINITY, high = -INFINITY;
    assert_non_null(seen);
    fake_engine_init(&fake, b->env);
    assert_ok(oq_source_open(b->env, &so, &source, &err), err);
    const oq_channel_job job = {
        .model = b->m, .engine = &fake.base, .source = source, .what = "test"};
    assert_ok(oq_channel_stats_run(&job, &seen, 1, b->a, &err), err);
    oq_source_close(source);
    for (uint64_t i = 0; i < n; i++) {
        low = fminf(low, seen->low[i]);
        high = fmaxf(high, seen->high[i]);
    }
    assert_true(seen->count > 0 && low < high);
    assert_true(fabs((double)low - r->low) <= 1e-5 * fabs((double)high - (double)low));
    assert_true(fabs((double)high - r->high) <= 1e-5 * fabs((double)high - (double)low));
}

static void ranges_that_moved(void **state) {
    (void)state;
    for (int outlier = 0; outlier < 2; outlier++) {
        bm b;
        oq_channels c;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 13);
        fill(&b);
        const oq_channel_choice choice = {.in = !outlier, .outliers = outlier ? 1 : 0};
        assert_ok(apply(&b, choice, &c, &err), err);
        assert_int_equal(c.moved.n, 1);
        assert_range(&b, &c.moved.v[0], false, 4);
        /* Before the Add it is scaled too, and nobody saw its channels. */
        assert_int_equal(c.moved_more.n, outlier ? 0 : 1);
        assert_true(outlier || oq_str_is(c.moved_more.v[0], "t"));
        bm_end(&b);
    }
}

/* Of the output of a Conv, before and after its Relu. */
static void ranges_of_an_output(void **state) {
    static const float kernel[8] = {1, -2, 300, 100, 0.5f, 2, -40, 30};
    bm b;
    oq_channels c;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "1,2,3,3");
    bm_f32(&b, "k", "4,2,1,1", kernel);
    bm_node(&b, "Identity", "same", "x", "s", "");
    bm_node(&b, "Identity", "again", "s", "t", "");
    bm_node(&b, "Conv", "conv", "t k", "u", "");
    bm_node(&b, "Relu", "relu", "u", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "1,4,3,3");
    assert_ok(apply(&b, (oq_channel_choice){.out = true}, &c, &err), err);
    assert_int_equal(c.n_out, 1);
    assert_int_equal(c.moved.n, 2);
    assert_int_equal(c.moved_more.n, 0);
    assert_range(&b, &c.moved.v[0], true, 4);
    assert_range(&b, &c.moved.v[1], true, 4);
    assert_true(c.moved.v[0].low < 0 && c.moved.v[1].low == 0);
    bm_end(&b);
}

/* A second model of the same kind runs no sample, and has the same weights. */
static void seen_once(void **state) {
    oq_channel_memory memory;
    float first[12];
    (void)state;
    oq_channel_memory_init(&memory, oq_alloc_default());
    for (int round = 0; round < 3; round++) {
        bm b;
        oq_channels c;
        onq_error err = ONQ_ERROR_INIT;
        long runs = 0;
        bm_begin(&b, NULL, 13);
        fill(&b);
        /* The last asks for nothing that was not seen, in another way. */
        const oq_channel_choice choice = {.in = round < 2, .outliers = round < 2 ? 0 : 1};
        assert_ok(apply_with(&b, choice, &memory, &c, &runs, &err), err);
        assert_int_equal(runs, round == 0 ? 3 : 0);
        const float *w = values(&b, bm_find_node(&b, "product")->input.v[1]);
        if (round == 0)
            memcpy(first, w, sizeof first);
        if (round < 2)
            assert_memory_equal(first, w, sizeof first);
        assert_int_equal(round == 2 ? c.n_outliers : c.n_in, 1);
        bm_end(&b);
    }
    oq_channel_memory_release(&memory);
}

static void outliers(void **state) {
    bm b;
    computed before;
    oq_channels c;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    bm_begin(&b, NULL, 13);
    fill(&b);
    compute(&b, &before);
    assert_ok(apply(&b, (oq_channel_choice){.outliers = 1}, &c, &err), err);
    assert_computes(&b, &before, 1e-6);
    computed_release(&before);
    assert_int_equal(c.n_outliers, 1);
    assert_int_equal(c.added.n, 4); /* Clip, Gather, MatMul, Sub */
    assert_int_equal(c.float_outputs.n, 1);
    const oq_node *n = bm_find_node(&b, "product");
    const float *w = values(&b, n->input.v[1]);
    for (int k = 0; k < 12; k++)
        assert_true(w[k] == (k / 3 == 1 ? 0.0f : weights[k]));
    assert_true(oq_str_eq(n->output.v[0], c.float_outputs.v[0]));
    bm_end(&b);
}

static void steps(void **state) {
    const double low[2] = {-1, 0}, high[2] = {3, 2};
    double step[3] = {1, 0.001, 0};
    (void)state;
    const int z = oq_channel_zero(low, high, NULL, 2);
    assert_in_range(z, 40, 70);
    assert_true(oq_channel_step(-1, 0, 0) == INFINITY && oq_channel_step(0, 1, 255) == INFINITY);
    assert_true(fabs(oq_channel_step(-1, 3, z) * (255 - z)) >= 3 - 1e-9);
    oq_channel_floor(step, 3, 0.5);
    assert_true(step[0] == 1 && step[1] == 0.5 && step[2] == 0.5);
}

static onq_code work(bm *b, void *ctx, onq_error *err) {
    const oq_channel_choice *choice = ctx;
    oq_channels c;
    oq_channel_memory memory;
    long runs = 0;
    oq_channel_memory_init(&memory, &b->env->alloc);
    const onq_code rc = apply_with(b, *choice, &memory, &c, &runs, err);
    oq_channel_memory_release(&memory);
    return rc;
}

static void oom(void **state) {
    oq_channel_choice in = {.in = true}, out = {.outliers = 2};
    (void)state;
    bm_sweep(13, fill, work, &in);
    bm_sweep(13, fill, work, &out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(into_constants),
                                       cmocka_unit_test(ranges_that_moved),
                                       cmocka_unit_test(ranges_of_an_output),
                                       cmocka_unit_test(seen_once),
                                       cmocka_unit_test(outliers),
                                       cmocka_unit_test(steps),
                                       cmocka_unit_test(oom)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
