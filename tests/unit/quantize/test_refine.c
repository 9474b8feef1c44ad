/*
 * test_refine.c — bias correction: the mean of every channel is the float model's afterwards, one
 * layer after the other, wherever the bias finds its place.
 */
#include "quantize/refine/refine.h"

#include "build_model.h"
#include "fake_engine.h"
#include "flaky_alloc.h"
#include "onnx/attr.h"
#include "onnx/codec/schema.h"
#include "onnx/tensor.h"
#include "quantize/refine/layers.h"
#include "quantize/refine/learn.h"
#include "testing.h"

#include <math.h>

static const float weights[12] = {0.9f,  -1.7f, 2.8f,   0.9f,  1.2f, -0.9f,
                                  0.45f, 1.8f,  0.275f, -3.6f, 1.1f, 1.85f};
static const int8_t coarse[12] = {1, -2, 3, 1, 1, -1, 0, 2, 0, -4, 1, 2};
static const float bias[3] = {1, 2, 3};

/* y = relu(x w) w2, with a constant added in between where `added`. */
static void build_float(bm *b, bool added) {
    bm_input(b, "x", OQ_FLOAT, "4,4");
    bm_f32(b, "w", "4,3", weights);
    bm_f32(b, "w2", "3,4", weights);
    bm_f32(b, "b", "3", bias);
    bm_node(b, "MatMul", "first", "x w", added ? "p" : "s", "");
    if (added)
        bm_node(b, "Add", "add", "p b", "s", "");
    bm_node(b, "Relu", "relu", "s", "r", "");
    bm_node(b, "MatMul", "second", "r w2", "y", "");
    bm_output(b, "y", OQ_FLOAT, "4,4");
}

/* The same with weights of few bits and a pair at x. */
static void build_quantized(bm *b, bool added) {
    const float one = 1, step = 0.01f;
    const int8_t zero = 0;
    const uint8_t middle = 128;
    bm_input(b, "x", OQ_FLOAT, "4,4");
    bm_f32(b, "b", "3", bias);
    bm_raw(b, "w_quantized", OQ_INT8, "4,3", coarse, 12);
    bm_raw(b, "w2_quantized", OQ_INT8, "3,4", coarse, 12);
    bm_f32(b, "scale", "", &one);
    bm_raw(b, "zero", OQ_INT8, "", &zero, 1);
    bm_f32(b, "step", "", &step);
    bm_raw(b, "middle", OQ_UINT8, "", &middle, 1);
    bm_node(b, "QuantizeLinear", "xq", "x step middle", "x_q", "");
    bm_node(b, "DequantizeLinear", "xd", "x_q step middle", "x_dq", "");
    bm_node(b, "DequantizeLinear", "wd", "w_quantized scale zero", "w_dq", "");
    bm_node(b, "DequantizeLinear", "w2d", "w2_quantized scale zero", "w2_dq", "");
    bm_node(b, "MatMul", "first", "x_dq w_dq", added ? "p" : "s", "");
    if (added)
        bm_node(b, "Add", "add", "p b", "s", "");
    bm_node(b, "Relu", "relu", "s", "r", "");
    bm_node(b, "MatMul", "second", "r w2_dq", "y", "");
    bm_output(b, "y", OQ_FLOAT, "4,4");
}

typedef struct fixture {
    bm flt, made;
    fake_engine engine;
    oq_source *source;
    oq_refine_job job;
} fixture;

static onq_code open_fixture(fixture *f, const onq_allocator *a, bool added, onq_error *err) {
    bm_begin(&f->flt, a, 13);
    bm_begin(&f->made, a, 13);
    if (f->flt.failed || f->made.failed)
        return oq_fail_nomem(err);
    build_float(&f->flt, added);
    build_quantized(&f->made, added);
    if (f->flt.failed || f->made.failed)
        return oq_fail_nomem(err);
    fake_engine_init(&f->engine, f->made.env);
    const oq_source_options so = {.spec = "random:6:1", .model = f->made.m};
    OQ_TRY(oq_source_open(f->made.env, &so, &f->source, err));
    f->job = (oq_refine_job){.model = f->made.m,
                             .flt = f->flt.m->proto,
                             .engine = &f->engine.base,
                             .source = f->source,
                             .memory = 1 << 20,
                             .correct_bias = true,
                             .compare = true};
    return ONQ_OK;
}

static void close_fixture(fixture *f) {
    oq_source_close(f->source);
    bm_end(&f->flt);
    bm_end(&f->made);
}

/* Mean of each channel of y over the samples, less the float model's. */
static double largest_shift(fixture *f) {
    double sums[4] = {0};
    for (int side = 0; side < 2; side++) {
        oq_session_options o = {.model = side == 0 ? f->flt.m : f->made.m};
        oq_session *s = NULL;
        const oq_sample *sample = NULL;
        onq_error err = ONQ_ERROR_INIT;
        assert_ok(oq_session_open(&f->engine.base, &o, &s, &err), err);
        assert_ok(oq_source_seek(f->source, 0, &err), err);
        for (;;) {
            oq_outputs out;
            assert_ok(oq_source_next(f->source, &sample, &err), err);
            if (sample == NULL)
                break;
            assert_ok(oq_session_run(s, sample->inputs, 1, &out, &err), err);
            for (int i = 0; i < 16; i++)
                sums[i % 4] += (side == 0 ? -1 : 1) * (double)((const float *)out.v[0].data)[i];
        }
        oq_session_close(s);
    }
    double most = 0;
    for (int c = 0; c < 4; c++)
        most = fmax(most, fabs(sums[c]) / 24);
    return most;
}

static void mean_is_corrected(bool added, size_t n_sub) {
    fixture f = {0};
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(open_fixture(&f, NULL, added, &err), err);
    const double before = largest_shift(&f);
    assert_true(before > 0.01);
    assert_ok(oq_refine(&f.job, &err), err);
    assert_int_equal(f.job.n_layers, 2);
    assert_int_equal(f.job.n_samples, 6);
    assert_int_equal(f.job.n_unmatched + f.job.n_no_bias, 0);
    assert_true(largest_shift(&f) < 1e-4);
    assert_true(f.job.measured && f.job.n_compared == 6);
    assert_true(f.job.after > f.job.before);
    size_t subs = 0;
    for (size_t i = 0; i < f.made.g->node.n; i++)
        subs += oq_str_is(f.made.g->node.v[i]->op_type, "Sub");
    assert_int_equal(subs, n_sub);
    assert_int_equal(f.engine.n_open, 0);
    close_fixture(&f);
}

static void into_new_constants(void **state) {
    (void)state;
    mean_is_corrected(false, 2);
}

static void into_the_constant_that_follows(void **state) {
    (void)state;
    mean_is_corrected(true, 1);
}

/* Nobody asks what was gained: the same model, and no sample runs for it. */
static void nothing_is_compared_unasked(void **state) {
    long runs[2];
    double shift[2];
    (void)state;
    for (int compare = 0; compare < 2; compare++) {
        fixture f = {0};
        onq_error err = ONQ_ERROR_INIT;
        assert_ok(open_fixture(&f, NULL, true, &err), err);
        f.job.compare = compare == 1;
        assert_ok(oq_refine(&f.job, &err), err);
        assert_int_equal(f.job.measured, compare == 1);
        runs[compare] = f.engine.n_runs;
        shift[compare] = largest_shift(&f);
        close_fixture(&f);
    }
    assert_int_equal(runs[1] - runs[0], 12);
    assert_true(shift[0] == shift[1]);
}

/* What float makes of a sample is seen once: by one run or by several, over parts of the samples and
 * in another order. The correction is the same, and other layers are no reason to see it again. */
static void float_is_seen_once(void **state) {
    (void)state;
    static const uint64_t parts[][3] = {{4, 0, 2}, {5, 3, 1}};
    oq_mean_memory memory;
    double shift[2];
    long runs[2];
    oq_mean_memory_init(&memory, oq_alloc_default());
    for (size_t k = 0; k < 2; k++) {
        fixture f = {0};
        onq_error err = ONQ_ERROR_INIT;
        assert_ok(open_fixture(&f, NULL, true, &err), err);
        oq_source_close(f.source);
        const oq_source_options so = {
            .spec = "random:6:1", .model = f.made.m, .numbers = parts[k], .n_numbers = 3};
        assert_ok(oq_source_open(f.made.env, &so, &f.source, &err), err);
        f.job.source = f.source;
        f.job.numbers = parts[k];
        f.job.means = &memory;
        f.job.compare = false;
        assert_ok(oq_refine(&f.job, &err), err);
        close_fixture(&f);
    }
    for (int with = 0; with < 2; with++) {
        fixture f = {0};
        onq_error err = ONQ_ERROR_INIT;
        assert_ok(open_fixture(&f, NULL, true, &err), err);
        f.job.compare = false;
        f.job.means = with ? &memory : NULL;
        assert_ok(oq_refine(&f.job, &err), err);
        assert_int_equal(f.job.n_layers, 2);
        runs[with] = f.engine.n_runs;
        shift[with] = largest_shift(&f);
        close_fixture(&f);
    }
    assert_int_equal(runs[0] - runs[1], 6);
    assert_true(shift[0] == shift[1]);
    oq_mean_memory_release(&memory);
}

/* Memory of other tensors or samples says nothing, and no more is kept than may be. */
static void memory_is_about_what_was_seen(void **state) {
    (void)state;
    const oq_str names[2] = {OQ_S("a"), OQ_S("b")};
    const uint64_t numbers[2] = {3, 1};
    float mean[2][4] = {{1, 2, 3, 4}, {5, 6}}, got[2][4] = {{0}};
    uint64_t count[2][2] = {{9, 8}, {7, 6}}, counted[2][2] = {{0}};
    const oq_means all[2] = {{2, mean[0], count[0]}, {1, mean[1], count[1]}};
    oq_means out[2] = {{2, got[0], counted[0]}, {1, got[1], counted[1]}};
    onq_error err = ONQ_ERROR_INIT;
    oq_mean_memory m;
    oq_mean_memory_init(&m, oq_alloc_default());
    assert_false(oq_mean_memory_recall(&m, names, out, 2, numbers, 2));
    assert_ok(oq_mean_memory_keep(&m, names, all, 2, numbers, 2, UINT64_MAX, &err), err);
    assert_ok(oq_mean_memory_keep(&m, names, all, 1, numbers, 1, UINT64_MAX, &err), err);
    assert_true(oq_mean_memory_recall(&m, names, out, 2, (const uint64_t[]){1, 3}, 2));
    assert_true(got[0][0] == 3 && got[0][1] == 4 && got[0][2] == 1 && got[0][3] == 2);
    assert_true(got[1][0] == 6 && got[1][1] == 5 && counted[0][0] == 8 && counted[1][1] == 7);
    assert_true(oq_mean_memory_recall(&m, names, out, 1, numbers, 1));
    assert_false(oq_mean_memory_recall(&m, names, out, 1, numbers, 2));
    assert_false(oq_mean_memory_recall(&m, names, out, 2, (const uint64_t[]){2}, 1));
    assert_false(oq_mean_memory_recall(&m, names, out, 2, (const uint64_t[]){4}, 1));
    assert_false(
        oq_mean_memory_recall(&m, (const oq_str[]){names[1], names[0]}, out, 2, numbers, 1));
    assert_ok(oq_mean_memory_keep(&m, names + 1, all + 1, 1, numbers, 2, 0, &err), err);
    assert_false(oq_mean_memory_recall(&m, names + 1, out + 1, 1, numbers, 1));
    oq_mean_memory_release(&m);
}

/* Weights that compensate for each other, and the mean on top. */
static void weights_are_learned(void **state) {
    (void)state;
    for (int learn = 0; learn < 2; learn++) {
        fixture f = {0};
        onq_error err = ONQ_ERROR_INIT;
        assert_ok(open_fixture(&f, NULL, true, &err), err);
        f.job.learn_rounding = learn == 1;
        assert_ok(oq_refine(&f.job, &err), err);
        assert_int_equal(f.job.n_learned, learn == 1 ? 2 : 0);
        assert_true(f.job.after > f.job.before);
        assert_true(largest_shift(&f) < 1e-4);
        close_fixture(&f);
    }
}

/* The same products with a scale for each output. */
static void build_channels(bm *b, float scale) {
    const float scales[4] = {scale, 0.4f, 0.6f, 0.5f};
    const int8_t zeros[4] = {0};
    bm_input(b, "x", OQ_FLOAT, "4,4");
    bm_raw(b, "w_quantized", OQ_INT8, "4,3", coarse, 12);
    bm_raw(b, "w2_quantized", OQ_INT8, "3,4", coarse, 12);
    bm_f32(b, "scale", "3", scales);
    bm_raw(b, "zero", OQ_INT8, "3", zeros, 3);
    bm_f32(b, "scale2", "4", scales);
    bm_raw(b, "zero2", OQ_INT8, "4", zeros, 4);
    bm_node(b, "DequantizeLinear", "wd", "w_quantized scale zero", "w_dq", "");
    bm_node(b, "DequantizeLinear", "w2d", "w2_quantized scale2 zero2", "w2_dq", "");
    bm_node(b, "MatMul", "first", "x w_dq", "s", "");
    bm_node(b, "Relu", "relu", "s", "r", "");
    bm_node(b, "MatMul", "second", "r w2_dq", "y", "");
    bm_output(b, "y", OQ_FLOAT, "4,4");
}

static onq_code learn_channels(const onq_allocator *a, float scale, oq_learn_memory *memory,
                               int8_t *out, long *runs, onq_error *err) {
    fixture f = {0};
    oq_span bytes = {0};
    bm_begin(&f.flt, a, 13);
    bm_begin(&f.made, a, 13);
    onq_code rc = f.flt.failed || f.made.failed ? oq_fail_nomem(err) : ONQ_OK;
    if (rc == ONQ_OK) {
        build_float(&f.flt, false);
        build_channels(&f.made, scale);
        rc = f.flt.failed || f.made.failed ? oq_fail_nomem(err) : ONQ_OK;
    }
    const oq_source_options so = {.spec = "random:6:1", .model = f.made.m};
    if (rc == ONQ_OK)
        fake_engine_init(&f.engine, f.made.env);
    if (rc == ONQ_OK)
        rc = oq_source_open(f.made.env, &so, &f.source, err);
    f.job = (oq_refine_job){.model = f.made.m,
                            .engine = &f.engine.base,
                            .source = f.source,
                            .memory = 1 << 20,
                            .learn_rounding = true,
                            .learned = memory};
    if (rc == ONQ_OK) {
        f.job.flt = f.flt.m->proto;
        rc = oq_refine(&f.job, err);
    }
    if (rc == ONQ_OK) {
        oq_tensor *w = oq_graph_find_init(f.made.m->proto->graph, OQ_S("w_quantized"));
        assert_int_equal(f.job.n_learned, 2);
        rc = oq_model_data(f.made.m, w, &bytes, err);
    }
    if (rc == ONQ_OK)
        memcpy(out, bytes.p, 12);
    if (a != NULL && rc == ONQ_OK)
        flaky_give(a, out, 12);
    *runs = f.engine.n_runs;
    close_fixture(&f);
    return rc;
}

/* With a scale for each output a layer is rounded for float's inputs: the model that is quantized
 * is not run, and another one with the same grid has the same integers without any run. */
static void integers_are_remembered(void **state) {
    (void)state;
    onq_error err = ONQ_ERROR_INIT;
    oq_learn_memory memory;
    int8_t alone[12], first[12], second[12], other[12];
    long runs = 0;
    oq_learn_memory_init(&memory, oq_alloc_default());
    assert_ok(learn_channels(NULL, 0.3f, NULL, alone, &runs, &err), err);
    assert_int_equal(runs, 6);
    assert_ok(learn_channels(NULL, 0.3f, &memory, first, &runs, &err), err);
    assert_int_equal(runs, 6);
    assert_ok(learn_channels(NULL, 0.3f, &memory, second, &runs, &err), err);
    assert_int_equal(runs, 0);
    assert_memory_equal(first, alone, 12);
    assert_memory_equal(second, alone, 12);
    assert_ok(learn_channels(NULL, 0.2f, &memory, other, &runs, &err), err);
    assert_int_equal(runs, 6);
    assert_memory_not_equal(other, alone, 12);
    oq_learn_memory_release(&memory);
}

static onq_code channels_body(const onq_allocator *a, void *ctx, onq_error *err) {
    oq_learn_memory memory;
    int8_t out[12];
    long runs = 0;
    (void)ctx;
    oq_learn_memory_init(&memory, a);
    onq_code rc = learn_channels(a, 0.3f, &memory, out, &runs, err);
    if (rc == ONQ_OK)
        rc = learn_channels(a, 0.3f, &memory, out, &runs, err);
    oq_learn_memory_release(&memory);
    return rc;
}

/* A weight that two nodes read cannot suit both. */
static void shared_weights_stay(void **state) {
    (void)state;
    fixture f = {0};
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(open_fixture(&f, NULL, false, &err), err);
    bm_node(&f.made, "Identity", "other", "w_dq", "z", "");
    bm_output(&f.made, "z", OQ_FLOAT, "4,3");
    f.job.learn_rounding = true;
    f.job.correct_bias = false;
    assert_ok(oq_refine(&f.job, &err), err);
    assert_int_equal(f.job.n_learned, 1);
    assert_int_equal(f.job.n_unable, 1);
    assert_int_equal(f.job.n_layers, 0);
    close_fixture(&f);
}

/* Samples that do not fit are let go, from the end, and at least one stays. */
static void little_memory(void **state) {
    (void)state;
    fixture f = {0};
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(open_fixture(&f, NULL, false, &err), err);
    f.job.memory = 1;
    assert_ok(oq_refine(&f.job, &err), err);
    assert_int_equal(f.job.n_samples, 1);
    assert_int_equal(f.job.n_layers, 2);
    close_fixture(&f);
}

static void failed_run(void **state) {
    (void)state;
    for (long at = 1; at < 40; at++) {
        fixture f = {0};
        onq_error err = ONQ_ERROR_INIT;
        assert_ok(open_fixture(&f, NULL, false, &err), err);
        f.engine.fail_at_run = at;
        const onq_code rc = oq_refine(&f.job, &err);
        assert_true(rc != ONQ_OK || at > f.engine.n_runs);
        assert_int_equal(f.engine.n_open, 0);
        close_fixture(&f);
    }
}

static onq_code sweep_body(const onq_allocator *a, void *ctx, onq_error *err) {
    fixture f = {0};
    onq_code rc = open_fixture(&f, a, true, err);
    oq_mean_memory memory;
    oq_mean_memory_init(&memory, a);
    f.job.means = &memory;
    f.job.learn_rounding = ctx != NULL;
    if (rc == ONQ_OK)
        rc = oq_refine(&f.job, err);
    oq_mean_memory_release(&memory);
    close_fixture(&f);
    return rc;
}

static void every_allocation_fails(void **state) {
    (void)state;
    int learning = 1;
    assert_true(flaky_sweep(sweep_body, NULL) > 20);
    assert_true(flaky_sweep(sweep_body, &learning) > 20);
    assert_true(flaky_sweep(channels_body, NULL) > 20);
}

/* ---- where a bias goes ---- */

typedef struct placed {
    bm b;
    oq_arena arena;
    oq_layers layers;
} placed;

/* A Conv between pairs with the given bias input, as the quantizers write it. */
static void begin_conv(placed *p, const char *inputs, bool float_bias) {
    const float scales[2] = {0.5f, 0.25f}, scale = 0.5f;
    const int32_t zeros[2] = {0, 0}, ints[2] = {10, 20};
    const int8_t w[2] = {1, 2}, z[2] = {0, 0};
    const uint8_t zero = 0;
    const float reals[2] = {1, 2};
    *p = (placed){0};
    bm_begin(&p->b, NULL, 13);
    bm_input(&p->b, "x_q", OQ_UINT8, "1,1,2,2");
    bm_raw(&p->b, "w_quantized", OQ_INT8, "2,1,1,1", w, 2);
    bm_f32(&p->b, "scale", "", &scale);
    bm_raw(&p->b, "zero", OQ_UINT8, "", &zero, 1);
    bm_f32(&p->b, "ws", "2", scales);
    bm_raw(&p->b, "wz", OQ_INT8, "2", z, 2);
    bm_raw(&p->b, "b_quantized", OQ_INT32, "2", ints, 8);
    bm_raw(&p->b, "bz", OQ_INT32, "2", zeros, 8);
    bm_f32(&p->b, "fb", "2", reals);
    bm_node(&p->b, "DequantizeLinear", "xd", "x_q scale zero", "x", "");
    bm_node(&p->b, "DequantizeLinear", "wd", "w_quantized ws wz", "w", "axis=0");
    bm_node(&p->b, "DequantizeLinear", "bd", "b_quantized ws bz", "b", "axis=0");
    bm_node(&p->b, "Conv", "conv", inputs, "y", "");
    bm_output(&p->b, "y", OQ_FLOAT, "1,2,2,2");
    oq_arena_init(&p->arena, &p->b.env->alloc);
    p->layers = (oq_layers){
        .model = p->b.m, .flt = p->b.m->proto, .float_bias = float_bias, .arena = &p->arena};
}

static void end_placed(placed *p) {
    oq_arena_release(&p->arena);
    bm_end(&p->b);
}

static const oq_layer *only_layer(placed *p) {
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_layers_find(&p->layers, true, &err), err);
    assert_int_equal(p->layers.all.n, 1);
    return &p->layers.all.v[0];
}

static void change(placed *p, const oq_layer *l, double a, double b) {
    const double delta[2] = {a, b};
    size_t clipped = 0;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_layer_add_bias(&p->layers, l, delta, &clipped, &err), err);
    assert_int_equal(clipped, 0);
}

static void int32_bias_moves_by_its_scale(void **state) {
    (void)state;
    placed p;
    int64_t *v;
    begin_conv(&p, "x w b", false);
    const oq_layer *l = only_layer(&p);
    change(&p, l, 1.0, -1.0);
    assert_true(oq_str_is(l->bias.tensor->name, "b_quantized"));
    assert_ok(oq_tensor_i64s(p.b.m, l->bias.tensor, &p.arena, &v, NULL, NULL), (onq_error){0});
    assert_int_equal(v[0], 12);
    assert_int_equal(v[1], 16);
    end_placed(&p);
}

/* Another node reads the same bias: it keeps its own. */
static void shared_bias_is_copied(void **state) {
    (void)state;
    placed p;
    begin_conv(&p, "x w b", false);
    bm_node(&p.b, "Identity", "other", "b", "z", "");
    bm_output(&p.b, "z", OQ_FLOAT, "2");
    const oq_layer *l = only_layer(&p);
    assert_false(oq_str_is(l->bias.tensor->name, "b_quantized"));
    assert_false(oq_str_is(l->node->input.v[2], "b"));
    assert_true(oq_str_is(p.b.g->node.v[p.b.g->node.n - 1]->input.v[0], "b"));
    end_placed(&p);
}

static void missing_bias_is_added(void **state) {
    (void)state;
    placed p;
    begin_conv(&p, "x w", false);
    const oq_layer *l = only_layer(&p);
    assert_int_equal(l->bias.tensor->data_type.v, OQ_INT32);
    assert_int_equal(l->bias.n_scale, 2);
    assert_true(l->bias.scale[0] == 0.25f && l->bias.scale[1] == 0.125f);
    assert_int_equal(l->node->input.n, 3);
    end_placed(&p);
    begin_conv(&p, "x w", true);
    l = only_layer(&p);
    assert_int_equal(l->bias.tensor->data_type.v, OQ_FLOAT);
    assert_true(oq_str_eq(l->node->input.v[2], l->bias.tensor->name));
    end_placed(&p);
}

static void float_bias_stays_float(void **state) {
    (void)state;
    placed p;
    float *v;
    begin_conv(&p, "x w fb", false);
    const oq_layer *l = only_layer(&p);
    change(&p, l, 0.5, 0.25);
    assert_ok(oq_tensor_floats(p.b.m, l->bias.tensor, &p.arena, &v, NULL, NULL), (onq_error){0});
    assert_true(v[0] == 1.5f && v[1] == 2.25f);
    end_placed(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(into_new_constants),
                                       cmocka_unit_test(into_the_constant_that_follows),
                                       cmocka_unit_test(nothing_is_compared_unasked),
                                       cmocka_unit_test(float_is_seen_once),
                                       cmocka_unit_test(memory_is_about_what_was_seen),
                                       cmocka_unit_test(weights_are_learned),
                                       cmocka_unit_test(integers_are_remembered),
                                       cmocka_unit_test(shared_weights_stay),
                                       cmocka_unit_test(little_memory),
                                       cmocka_unit_test(failed_run),
                                       cmocka_unit_test(every_allocation_fails),
                                       cmocka_unit_test(int32_bias_moves_by_its_scale),
                                       cmocka_unit_test(shared_bias_is_copied),
                                       cmocka_unit_test(missing_bias_is_added),
                                       cmocka_unit_test(float_bias_stays_float)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
