/*
 * test_search.c — the search for nodes that cost accuracy, with an engine that needs no runtime:
 * every figure is that of plain loops over the same arithmetic, a planted bad layer is found, and
 * the set that is proposed is the smallest there is.
 */
#include "debug/search/search.h"

#include "build_model.h"
#include "callback_source.h"
#include "fake_engine.h"
#include "flaky_alloc.h"
#include "no_threads.h"
#include "testing.h"

#include <math.h>
#include <stdio.h>

enum { LAYERS = 6, COUNT = 10, SAMPLES = 4, INITS = 2 * LAYERS + 3 };

#define STEP 0.05f /* of activations */

/* Of the weights. Layer 3 is the worst, layer 5 comes next. */
static const float steps[LAYERS] = {0.0098f, 0.01f, 0.3f, 0.011f, 0.1f, 0.012f};

static onq_error err;

static float weight(int layer, int i) {
    return 0.9f + 0.25f * (float)sin(7 * layer + i);
}

static float input(uint64_t k, int i) {
    return (float)sin((double)(k * 100) + i) * 5;
}

static float quantize(float x, float step) {
    const float q = nearbyintf(x / step);
    return (q < -128 ? -128 : q > 127 ? 127 : q) * step;
}

/* ---- plain loops ---- */

/* How near the model is to float when the layers in the set are excluded. A tensor between two
 * layers is quantized as long as one of them is. */
static double sqnr_of(unsigned excluded) {
    oq_sums sums = {0};
    for (uint64_t k = 0; k < SAMPLES; k++) {
        float flt[COUNT], quantized[COUNT];
        for (int i = 0; i < COUNT; i++) {
            flt[i] = quantized[i] = input(k, i);
            for (int layer = 0; layer < LAYERS; layer++) {
                const bool on = (excluded >> layer & 1) == 0;
                const bool before = layer > 0 && (excluded >> (layer - 1) & 1) == 0;
                flt[i] *= weight(layer, i);
                if (on || before)
                    quantized[i] = quantize(quantized[i], STEP);
                quantized[i] *= on ? quantize(weight(layer, i), steps[layer]) : weight(layer, i);
            }
        }
        oq_sums one = {0};
        oq_sums_add(&one, flt, quantized, COUNT);
        oq_sums_join(&sums, &one);
    }
    return sums.ee > 0 ? oq_sums_sqnr(&sums) : INFINITY;
}

static unsigned all_but(int layer) {
    return ((1u << LAYERS) - 1) & ~(1u << layer);
}

static int size_of(unsigned set) {
    int n = 0;
    for (; set != 0; set &= set - 1)
        n++;
    return n;
}

/* ---- the same as models ---- */

static void float_model(bm *b, const onq_allocator *a) {
    bm_begin(b, a, 13);
    bm_input(b, "t0", OQ_FLOAT, "10");
    for (int k = 0; k < LAYERS; k++) {
        float w[COUNT];
        char name[16], in[32], out[16];
        for (int i = 0; i < COUNT; i++)
            w[i] = weight(k, i);
        snprintf(name, sizeof name, "w%d", k);
        bm_f32(b, name, "10", w);
        snprintf(in, sizeof in, "t%d w%d", k, k);
        snprintf(out, sizeof out, "t%d", k + 1);
        snprintf(name, sizeof name, "layer%d/mul", k + 1);
        bm_node(b, "Mul", name, in, out, "");
    }
    bm_output(b, "t6", OQ_FLOAT, "10");
}

static void quantized_model(bm *b, const onq_allocator *a) {
    bm_begin(b, a, 13);
    bm_input(b, "t0", OQ_FLOAT, "10");
    bm_f32(b, "s", "", (const float[]){STEP});
    bm_raw(b, "z", OQ_UINT8, "", (const uint8_t[]){128}, 1);
    bm_raw(b, "w_zero", OQ_INT8, "", (const int8_t[]){0}, 1);
    for (int k = 0; k < LAYERS; k++) {
        int8_t w[COUNT];
        char name[32], in[96], out[32];
        for (int i = 0; i < COUNT; i++)
            w[i] = (int8_t)lrintf(quantize(weight(k, i), steps[k]) / steps[k]);
        snprintf(name, sizeof name, "w%d_quantized", k);
        bm_raw(b, name, OQ_INT8, "10", w, sizeof w);
        snprintf(name, sizeof name, "w%d_scale", k);
        bm_f32(b, name, "", &steps[k]);
        snprintf(in, sizeof in, "t%d s z", k);
        snprintf(out, sizeof out, "t%d_QuantizeLinear_Output", k);
        bm_node(b, "QuantizeLinear", "", in, out, "");
        snprintf(in, sizeof in, "t%d_QuantizeLinear_Output s z", k);
        snprintf(out, sizeof out, "t%d_DequantizeLinear_Output", k);
        bm_node(b, "DequantizeLinear", "", in, out, "");
        snprintf(in, sizeof in, "w%d_quantized w%d_scale w_zero", k, k);
        snprintf(out, sizeof out, "w%d_DequantizeLinear_Output", k);
        bm_node(b, "DequantizeLinear", "", in, out, "");
        snprintf(name, sizeof name, "layer%d/mul", k + 1);
        snprintf(in, sizeof in, "t%d_DequantizeLinear_Output w%d_DequantizeLinear_Output", k, k);
        snprintf(out, sizeof out, "t%d", k + 1);
        bm_node(b, "Mul", name, in, out, "");
    }
    bm_output(b, "t6", OQ_FLOAT, "10");
}

static onq_code sample(void *ctx, uint64_t k, oq_arena *a, oq_datum *inputs, onq_error *e) {
    static const int64_t dims[1] = {COUNT};
    float *v = OQ_NEW_ARRAY(a, float, COUNT);
    (void)ctx;
    if (v == NULL)
        return oq_fail_nomem(e);
    for (int i = 0; i < COUNT; i++)
        v[i] = input(k, i);
    inputs[0] = (oq_datum){.kind = OQ_DATUM_TENSOR,
                           .dtype = OQ_FLOAT,
                           .rank = 1,
                           .dims = dims,
                           .count = COUNT,
                           .data = v,
                           .size_bytes = sizeof(float) * COUNT};
    return ONQ_OK;
}

typedef struct fixture {
    bm f, q;
    oq_debug d;
    fake_engine engine;
    oq_debug_run run;
    oq_debug_search s;
} fixture;

static const oq_debug_target plain = {
    .sqnr = NAN, .agreement = NAN, .most_samples = SAMPLES, .memory = 1 << 20};

static onq_code open_fixture(fixture *x, const onq_allocator *a, onq_error *e) {
    *x = (fixture){0};
    float_model(&x->f, a);
    quantized_model(&x->q, a);
    if (x->f.failed || x->q.failed)
        return oq_fail_nomem(e);
    onq_env_set_threads(x->q.env, 1);
    fake_engine_init(&x->engine, x->q.env);
    x->run.engine = &x->engine.base;
    oq_source_options o = {.model = x->f.m};
    OQ_TRY(callback_source_open(x->q.env, &o, sample, NULL, SAMPLES, &x->run.float_source, e));
    o.model = x->q.m;
    OQ_TRY(callback_source_open(x->q.env, &o, sample, NULL, SAMPLES, &x->run.quantized_source, e));
    oq_debug_init(&x->d, x->q.env, x->f.m, x->q.m);
    OQ_TRY(oq_debug_match(&x->d, e));
    return oq_debug_weights(&x->d, e);
}

static void close_fixture(fixture *x) {
    if (x->d.env != NULL)
        oq_debug_release(&x->d);
    oq_source_close(x->run.float_source);
    oq_source_close(x->run.quantized_source);
    bm_end(&x->f);
    bm_end(&x->q);
}

static onq_code search(fixture *x, const oq_debug_target *t, onq_error *e) {
    return oq_debug_run_search(&x->d, &x->run, t, &x->s, e);
}

/* The quantized model is as it was, and no session is open. */
static void assert_put_back(const fixture *x) {
    static const char *const ops[] = {"QuantizeLinear", "DequantizeLinear", "DequantizeLinear",
                                      "Mul"};
    assert_int_equal(x->engine.n_open, 0);
    assert_int_equal(x->q.g->initializer.n, INITS);
    assert_int_equal(x->q.g->node.n, 4 * LAYERS);
    for (size_t i = 0; i < x->q.g->node.n; i++)
        assert_true(oq_str_is(x->q.g->node.v[i]->op_type, ops[i % 4]));
}

static int layer_of(oq_str name) {
    return name.p[strlen("layer")] - '1';
}

static unsigned excluded_set(const oq_debug_search *s) {
    unsigned set = 0;
    for (size_t i = 0; i < s->units.n; i++)
        if (s->units.v[i].excluded)
            set |= 1u << layer_of(s->units.v[i].name);
    return set;
}

static void assert_near(double x, double y) {
    assert_true(fabs(x - y) < 1e-9);
}

/* ---- each alone ---- */

static void planted_layer_is_found(void **state) {
    (void)state;
    fixture x;
    assert_ok(open_fixture(&x, NULL, &err), err);
    assert_ok(search(&x, &plain, &err), err);
    assert_int_equal(x.s.units.n, LAYERS);
    assert_int_equal(x.s.n_measured, LAYERS);
    assert_int_equal(x.s.n_samples, SAMPLES);
    assert_near(x.s.whole_sqnr, sqnr_of(0));
    assert_int_equal(layer_of(x.s.units.v[0].name), 2);
    assert_int_equal(layer_of(x.s.units.v[1].name), 4);
    for (size_t i = 0; i < LAYERS; i++) {
        const oq_debug_unit *u = &x.s.units.v[i];
        assert_near(u->sqnr, sqnr_of(all_but(layer_of(u->name))));
        assert_true(i == 0 || u->sqnr >= x.s.units.v[i - 1].sqnr);
    }
    assert_false(x.s.bisected);
    assert_near(x.s.quantized_sqnr, sqnr_of(1u << 2)); /* the worst unit float */
    assert_int_equal(x.s.quantized_samples, SAMPLES);
    assert_put_back(&x);
    close_fixture(&x);
}

/* What is kept decides how much runs, not what comes out. */
static void memory_decides_time_only(void **state) {
    (void)state;
    long nodes[2];
    for (int little = 0; little < 2; little++) {
        fixture x;
        oq_debug_target t = plain;
        t.memory = little ? 0 : 1 << 20;
        assert_ok(open_fixture(&x, NULL, &err), err);
        assert_ok(search(&x, &t, &err), err);
        for (size_t i = 0; i < LAYERS; i++)
            assert_near(x.s.units.v[i].sqnr, sqnr_of(all_but(layer_of(x.s.units.v[i].name))));
        nodes[little] = x.engine.n_nodes;
        assert_put_back(&x);
        close_fixture(&x);
    }
    assert_true(nodes[1] > nodes[0]);
}

static void groups_are_tried_as_one(void **state) {
    (void)state;
    fixture x;
    oq_debug_target t = plain;
    const oq_str groups[] = {OQ_S("re:^layer[12]/"), OQ_S("layer5/mul")};
    t.groups = groups;
    t.n_groups = 2;
    assert_ok(open_fixture(&x, NULL, &err), err);
    assert_ok(search(&x, &t, &err), err);
    assert_true(x.s.grouped);
    assert_int_equal(x.s.units.n, 2);
    assert_true(oq_str_is(x.s.units.v[0].name, "layer5/mul"));
    assert_near(x.s.units.v[0].sqnr, sqnr_of(all_but(4)));
    assert_int_equal(x.s.units.v[1].nodes.n, 2);
    assert_near(x.s.units.v[1].sqnr, sqnr_of(all_but(0) & all_but(1)));
    close_fixture(&x);
}

static void time_that_is_over_leaves_units_out(void **state) {
    (void)state;
    fixture x;
    oq_debug_target t = plain;
    t.seconds = 1e-9;
    assert_ok(open_fixture(&x, NULL, &err), err);
    assert_ok(search(&x, &t, &err), err);
    assert_true(x.s.late);
    assert_int_equal(x.s.n_measured, 0);
    assert_true(isnan(x.s.units.v[0].sqnr));
    assert_put_back(&x);
    close_fixture(&x);
}

/* ---- the least set ---- */

/* Between the best that sets of this size reach and the best of those that are one smaller. */
static double target_of_size(int size) {
    double best[LAYERS + 1];
    for (int i = 0; i <= LAYERS; i++)
        best[i] = -INFINITY;
    for (unsigned set = 0; set < 1u << LAYERS; set++)
        best[size_of(set)] = fmax(best[size_of(set)], sqnr_of(set));
    assert_true(best[size] > best[size - 1]);
    return isinf(best[size]) ? best[size - 1] + 1 : (best[size] + best[size - 1]) / 2;
}

static void smallest_set_is_found(void **state) {
    (void)state;
    for (int size = 1; size <= LAYERS; size++) {
        fixture x;
        oq_debug_target t = plain;
        t.bisect = true;
        t.sqnr = target_of_size(size);
        assert_ok(open_fixture(&x, NULL, &err), err);
        assert_ok(search(&x, &t, &err), err);
        const unsigned set = excluded_set(&x.s);
        assert_true(x.s.bisected && x.s.reached);
        assert_int_equal(x.s.n_excluded, size);
        assert_int_equal(size_of(set), size);
        assert_true(sqnr_of(set) >= t.sqnr);
        if (set == (1u << LAYERS) - 1)
            assert_true(isinf(x.s.found_sqnr));
        else
            assert_near(x.s.found_sqnr, sqnr_of(set));
        if (size <= 2)
            assert_int_equal(set, size == 1 ? 1u << 2 : 1u << 2 | 1u << 4);
        assert_put_back(&x);
        close_fixture(&x);
    }
}

static void nothing_is_excluded_where_the_target_is_met(void **state) {
    (void)state;
    fixture x;
    oq_debug_target t = plain;
    t.bisect = true;
    t.sqnr = sqnr_of(0) - 1;
    assert_ok(open_fixture(&x, NULL, &err), err);
    assert_ok(search(&x, &t, &err), err);
    assert_true(x.s.reached);
    assert_int_equal(x.s.n_excluded, 0);
    assert_int_equal(excluded_set(&x.s), 0);
    close_fixture(&x);
}

/* ---- failures ---- */

/* Whichever run fails: the error comes back, or the search does without the figure. */
static void failed_runs_leave_the_model_whole(void **state) {
    (void)state;
    size_t failures = 0;
    for (long at = 1; at < 100; at++) {
        fixture x;
        assert_ok(open_fixture(&x, NULL, &err), err);
        x.engine.fail_at_run = at;
        const onq_code rc = search(&x, &plain, &err);
        assert_true(rc == ONQ_OK || rc == ONQ_E_RUNTIME);
        failures += rc != ONQ_OK;
        assert_put_back(&x);
        const bool all = x.engine.n_runs < at;
        close_fixture(&x);
        if (all)
            break;
    }
    assert_true(failures > SAMPLES);
}

static onq_code body(const onq_allocator *a, void *ctx, onq_error *e) {
    fixture x;
    oq_debug_target t = plain;
    (void)ctx;
    t.bisect = true;
    t.sqnr = 20;
    onq_code rc = open_fixture(&x, a, e);
    if (rc == ONQ_OK) {
        rc = search(&x, &t, e);
        assert_put_back(&x);
    }
    close_fixture(&x);
    return rc;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    assert_true(flaky_sweep(body, NULL) > 100);
}

int main(void) {
    no_threads(true); /* allocations in one order */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_layer_is_found),
        cmocka_unit_test(memory_decides_time_only),
        cmocka_unit_test(groups_are_tried_as_one),
        cmocka_unit_test(time_that_is_over_leaves_units_out),
        cmocka_unit_test(smallest_set_is_found),
        cmocka_unit_test(nothing_is_excluded_where_the_target_is_met),
        cmocka_unit_test(failed_runs_leave_the_model_whole),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
