/*
 * test_amplify.c — nodes that make noise grow, on measurements that the test writes, and weights
 * whose channels were scaled before they were quantized.
 */
#include "debug/amplify.h"
#include "debug/weights/weights.h"

#include "build_model.h"
#include "testing.h"

#include <math.h>

static onq_error err;

/* ---- amplifiers ---- */

/* x -> Relu -> a -> Log -> b -> Neg -> c, with quantizers at a and c. */
static void float_chain(bm *b) {
    bm_begin(b, NULL, 13);
    bm_input(b, "x", OQ_FLOAT, "4");
    bm_output(b, "y", OQ_FLOAT, "4");
    bm_node(b, "Relu", "relu", "x", "a", "");
    bm_node(b, "Log", "log", "a", "b", "");
    bm_node(b, "Neg", "neg", "b", "c", "");
    bm_node(b, "Relu", "last", "c", "y", "");
}

static void pair(bm *b, const char *from, const char *name) {
    char q[64], in[64], out[64];
    (void)snprintf(in, sizeof in, "%s s z", from);
    (void)snprintf(q, sizeof q, "%s_q", from);
    bm_node(b, "QuantizeLinear", q, in, q, "");
    (void)snprintf(in, sizeof in, "%s_q s z", from);
    (void)snprintf(out, sizeof out, "%s_DequantizeLinear_Output", from);
    bm_node(b, "DequantizeLinear", name, in, out, "");
}

static void quantized_chain(bm *b) {
    bm_begin(b, NULL, 13);
    bm_input(b, "x", OQ_FLOAT, "4");
    bm_output(b, "y", OQ_FLOAT, "4");
    bm_f32(b, "s", "", (const float[]){0.1f});
    bm_raw(b, "z", OQ_UINT8, "", (const uint8_t[]){0}, 1);
    bm_node(b, "Relu", "relu", "x", "a", "");
    pair(b, "a", "a_dq");
    bm_node(b, "Log", "log", "a_DequantizeLinear_Output", "b", "");
    bm_node(b, "Neg", "neg", "b", "c", "");
    pair(b, "c", "c_dq");
    bm_node(b, "Relu", "last", "c_DequantizeLinear_Output", "y", "");
}

/* As if it had been measured: dB against float, and of the quantizer alone. */
static void measured(oq_debug *d, const char *name, double cross, double local) {
    for (size_t i = 0; i < d->acts.n; i++)
        if (oq_str_is(d->acts.v[i].name, name)) {
            d->acts.v[i].cross.n = d->acts.v[i].local.n = 1;
            d->acts.v[i].xmodel_err = cross;
            d->acts.v[i].local_err = local;
            return;
        }
    fail();
}

static void find(double before, double after, oq_amplifier *first, size_t *n) {
    bm f, q;
    oq_debug d;
    oq_amplifiers all = {0};
    float_chain(&f);
    quantized_chain(&q);
    oq_debug_init(&d, q.env, f.m, q.m);
    assert_ok(oq_debug_match(&d, &err), err);
    measured(&d, "a", before, before);
    measured(&d, "c", after, 50);
    assert_ok(oq_debug_amplifiers(&d, &d.arena, &all, &err), err);
    *n = all.n;
    if (all.n > 0)
        *first = all.v[0];
    oq_debug_release(&d);
    bm_end(&f);
    bm_end(&q);
}

static void a_logarithm_that_loses_much_is_found(void **state) {
    oq_amplifier x = {0};
    size_t n = 0;
    (void)state;
    find(35, 5, &x, &n);
    assert_int_equal(n, 1);
    assert_int_equal(x.node, 1); /* Neg cannot have done it */
    assert_true(fabs(x.before - 35) < 0.1);
    assert_true(fabs(x.after - 5) < 0.1);
}

static void a_node_that_loses_little_is_not_blamed(void **state) {
    oq_amplifier x = {0};
    size_t n = 0;
    (void)state;
    find(30, 28, &x, &n);
    assert_int_equal(n, 0);
    find(60, 45, &x, &n); /* enough is left */
    assert_int_equal(n, 0);
}

/* The loss is 5 dB, and what is left is below 30 dB. */
static void amplifiers_begin_at_their_thresholds(void **state) {
    oq_amplifier x = {0};
    size_t n = 0;
    (void)state;
    find(25, 20.2, &x, &n);
    assert_int_equal(n, 0);
    find(25, 19.8, &x, &n);
    assert_int_equal(n, 1);
    find(40, 30.2, &x, &n);
    assert_int_equal(n, 0);
    find(40, 29.8, &x, &n);
    assert_int_equal(n, 1);
}

/* x -> Log -> a -> Add -> y, both with a loss: 40 dB before, 0.6 dB between, `after` dB in the end. */
static uint32_t blamed(double between, double after) {
    bm f, q;
    oq_debug d;
    oq_amplifiers all = {0};
    bm *both[] = {&f, &q};
    for (int i = 0; i < 2; i++) {
        const bool quantized = i == 1;
        bm_begin(both[i], NULL, 13);
        bm_input(both[i], "x", OQ_FLOAT, "4");
        bm_output(both[i], "y", OQ_FLOAT, "4");
        bm_f32(both[i], "s", "", (const float[]){0.1f});
        bm_raw(both[i], "z", OQ_UINT8, "", (const uint8_t[]){0}, 1);
        if (quantized)
            pair(both[i], "x", "x_dq");
        bm_node(both[i], "Log", "log", quantized ? "x_DequantizeLinear_Output" : "x", "a", "");
        if (quantized)
            pair(both[i], "a", "a_dq");
        bm_node(both[i], "Add", "add", quantized ? "a_DequantizeLinear_Output s" : "a s", "c", "");
        if (quantized)
            pair(both[i], "c", "c_dq");
        bm_node(both[i], "Relu", "last", quantized ? "c_DequantizeLinear_Output" : "c", "y", "");
    }
    oq_debug_init(&d, q.env, f.m, q.m);
    assert_ok(oq_debug_match(&d, &err), err);
    measured(&d, "x", 40, 40);
    measured(&d, "a", between, 50);
    measured(&d, "c", after, 50);
    assert_ok(oq_debug_amplifiers(&d, &d.arena, &all, &err), err);
    assert_true(all.n > 0);
    const uint32_t node = all.v[0].node;
    oq_debug_release(&d);
    bm_end(&f);
    bm_end(&q);
    return node;
}

/* Where noise is as large as the values, nothing is left to lose. */
static void the_node_that_lost_the_values_is_blamed(void **state) {
    (void)state;
    assert_int_equal(blamed(0.6, -6.7), 0); /* Log */
    assert_int_equal(blamed(20, 3), 1);     /* Add */
}

/* ---- scaled weights ---- */

#define K 16
#define N 8

/* The weight of bm_weight, times a factor for each row and column, in 8 bits with a scale for each
 * column; `noise` shifts integers. */
static void scaled_models(bm *f, bm *q, bool scaled, int noise) {
    float scale[N], w[K * N];
    int8_t ints[K * N], zero[N] = {0};
    float *v = NULL;
    oq_arena a;
    bm_begin(f, NULL, 13);
    bm_input(f, "x", OQ_FLOAT, "2,16");
    bm_output(f, "y", OQ_FLOAT, "2,8");
    oq_tensor *t = bm_weight(f, "w", "16,8", 7);
    bm_node(f, "MatMul", "mm", "x w", "y", "");
    oq_arena_init(&a, oq_alloc_default());
    assert_ok(oq_tensor_floats(f->m, t, &a, &v, NULL, &err), err);
    for (int i = 0; i < K * N; i++)
        w[i] = v[i] * (scaled ? (float)(1 + i / N) * (i % N % 2 == 0 ? 0.1f : 3.0f) : 1);
    oq_arena_release(&a);
    for (int n = 0; n < N; n++) {
        scale[n] = 0;
        for (int k = 0; k < K; k++)
            scale[n] = fmaxf(scale[n], fabsf(w[k * N + n]) / 127);
    }
    for (int i = 0; i < K * N; i++)
        ints[i] = (int8_t)((int)lrintf(w[i] / scale[i % N]) / (noise > 0 ? noise : 1) *
                           (noise > 0 ? noise : 1));
    bm_begin(q, NULL, 13);
    bm_input(q, "x", OQ_FLOAT, "2,16");
    bm_output(q, "y", OQ_FLOAT, "2,8");
    bm_raw(q, "w_quantized", OQ_INT8, "16,8", ints, sizeof ints);
    bm_f32(q, "w_scale", "8", scale);
    bm_raw(q, "w_zero_point", OQ_INT8, "8", zero, N);
    bm_node(q, "DequantizeLinear", "wdq", "w_quantized w_scale w_zero_point",
            "w_DequantizeLinear_Output", "axis=1");
    bm_node(q, "MatMul", "mm", "x w_DequantizeLinear_Output", "y", "");
}

static oq_debug_weight judged(bool scaled, int noise) {
    bm f, q;
    oq_debug d;
    scaled_models(&f, &q, scaled, noise);
    oq_debug_init(&d, q.env, f.m, q.m);
    assert_ok(oq_debug_match(&d, &err), err);
    assert_ok(oq_debug_weights(&d, &err), err);
    assert_ok(oq_debug_rank(&d, &err), err);
    assert_int_equal(d.weights.n, 1);
    const oq_debug_weight w = d.weights.v[0];
    oq_debug_release(&d);
    bm_end(&f);
    bm_end(&q);
    return w;
}

static void a_scaled_weight_is_judged_by_what_is_left(void **state) {
    (void)state;
    const oq_debug_weight w = judged(true, 0);
    assert_true(w.sqnr < 10);
    assert_true(w.rescaled > 35 && w.verdict.own == w.rescaled);
    assert_int_equal(w.verdict.reason, OQ_DEBUG_FINE);
}

static void other_weights_are_judged_as_they_are(void **state) {
    (void)state;
    const oq_debug_weight fine = judged(false, 0), coarse = judged(false, 100);
    assert_true(isnan(fine.rescaled) && fine.sqnr > 35);
    assert_true(isnan(coarse.rescaled) && coarse.verdict.own == coarse.sqnr);
    assert_true(coarse.sqnr < 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_logarithm_that_loses_much_is_found),
        cmocka_unit_test(a_node_that_loses_little_is_not_blamed),
        cmocka_unit_test(amplifiers_begin_at_their_thresholds),
        cmocka_unit_test(the_node_that_lost_the_values_is_blamed),
        cmocka_unit_test(a_scaled_weight_is_judged_by_what_is_left),
        cmocka_unit_test(other_weights_are_judged_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
