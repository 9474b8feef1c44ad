/* test_activations.c — activations and searches with an engine that needs no runtime: the sums
 * against plain loops, pairs of one scale and others, failures of the engine, and what happens
 * when memory ends. */
#include "debug/search/search.h"

#include "build_model.h"
#include "callback_source.h"
#include "fake_engine.h"
#include "flaky_alloc.h"
#include "no_threads.h"
#include "testing.h"

#include <math.h>

#define COUNT   40
#define SAMPLES 5

static onq_error err;
static const float w[COUNT] = {0.5f, -0.25f, 1.0f, -1.0f, 0.75f, 0.1f, -0.6f, 0.33f, 0.9f, -0.8f};

static void float_model(bm *b, const onq_allocator *a) {
    bm_begin(b, a, 13);
    bm_input(b, "x", OQ_FLOAT, "40");
    bm_f32(b, "w", "40", w);
    bm_node(b, "Mul", "mul", "x w", "t", "");
    bm_node(b, "Relu", "relu", "t", "y", "");
    bm_output(b, "y", OQ_FLOAT, "40");
}

/* `twice`: the two nodes of t's pair have scales of their own, so its output must be observed. */
static void quantized_model(bm *b, const onq_allocator *a, bool twice) {
    int8_t q[COUNT];
    for (int i = 0; i < COUNT; i++)
        q[i] = (int8_t)lrintf(w[i] / 0.01f);
    bm_begin(b, a, 13);
    bm_input(b, "x", OQ_FLOAT, "40");
    bm_raw(b, "w_quantized", OQ_INT8, "40", q, sizeof q);
    bm_f32(b, "w_scale", "", (const float[]){0.01f});
    bm_raw(b, "w_zero_point", OQ_INT8, "", (const int8_t[]){0}, 1);
    bm_f32(b, "s", "", (const float[]){0.05f});
    bm_f32(b, "s2", "", (const float[]){0.05f});
    bm_raw(b, "z", OQ_UINT8, "", (const uint8_t[]){128}, 1);
    bm_node(b, "QuantizeLinear", "q1", "x s z", "x_QuantizeLinear_Output", "");
    bm_node(b, "DequantizeLinear", "d1", "x_QuantizeLinear_Output s z", "x_DequantizeLinear_Output",
            "");
    bm_node(b, "DequantizeLinear", "dw", "w_quantized w_scale w_zero_point",
            "w_DequantizeLinear_Output", "");
    bm_node(b, "Mul", "mul", "x_DequantizeLinear_Output w_DequantizeLinear_Output", "t", "");
    bm_node(b, "QuantizeLinear", "q2", "t s z", "t_QuantizeLinear_Output", "");
    bm_node(b, "DequantizeLinear", "d2",
            twice ? "t_QuantizeLinear_Output s2 z" : "t_QuantizeLinear_Output s z",
            "t_DequantizeLinear_Output", "");
    bm_node(b, "Relu", "relu", "t_DequantizeLinear_Output", "y", "");
    bm_output(b, "y", OQ_FLOAT, "40");
}

static float input(uint64_t k, int i) {
    return (float)sin((double)(k * 100) + i) * 7; /* some are clipped at 6.35 */
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

typedef struct both {
    bm f, q;
    oq_debug d;
    fake_engine engine;
    oq_debug_run run;
} both;

static onq_code open_both(both *b, const onq_allocator *a, bool twice, onq_error *e) {
    *b = (both){0};
    float_model(&b->f, a);
    quantized_model(&b->q, a, twice);
    if (b->f.failed || b->q.failed)
        return oq_fail_nomem(e);
    onq_env_set_threads(b->q.env, 1);
    fake_engine_init(&b->engine, b->q.env);
    b->run.engine = &b->engine.base;
    b->run.kernel = true;
    oq_source_options o = {.model = b->f.m};
    OQ_TRY(callback_source_open(b->q.env, &o, sample, NULL, SAMPLES, &b->run.float_source, e));
    o.model = b->q.m;
    OQ_TRY(callback_source_open(b->q.env, &o, sample, NULL, SAMPLES, &b->run.quantized_source, e));
    oq_debug_init(&b->d, b->q.env, b->f.m, b->q.m);
    b->d.histograms = true;
    OQ_TRY(oq_debug_match(&b->d, e));
    return oq_debug_weights(&b->d, e);
}

static void close_both(both *b) {
    if (b->d.env != NULL)
        oq_debug_release(&b->d);
    oq_source_close(b->run.float_source);
    oq_source_close(b->run.quantized_source);
    bm_end(&b->f);
    bm_end(&b->q);
}

static double quantized(double v) {
    return fmin(fmax(nearbyint((double)((float)v / 0.05f)), -128), 127) * (double)0.05f;
}

static double db(double signal, double noise) {
    return 10 * log10(signal / noise);
}

static void sums_are_those_of_plain_loops(void **state) {
    (void)state;
    double xx = 0, xe = 0, tt = 0, te = 0, tc = 0, pp = 0;
    uint64_t clipped = 0;
    for (uint64_t k = 0; k < SAMPLES; k++)
        for (int i = 0; i < COUNT; i++) {
            const double x = (double)input(k, i), y = quantized(x);
            const double wq = nearbyint((double)(w[i] / 0.01f)) * (double)0.01f;
            const double t = x * (double)w[i], pre = (double)((float)y * (float)wq);
            xx += x * x;
            xe += (x - y) * (x - y);
            clipped += x < -6.45 || x > 6.4;
            tt += t * t;
            pp += pre * pre;
            te += (pre - quantized(pre)) * (pre - quantized(pre));
            tc += (t - quantized(pre)) * (t - quantized(pre));
        }
    for (int twice = 0; twice < 2; twice++) {
        both b;
        assert_ok(open_both(&b, NULL, twice != 0, &err), err);
        assert_ok(oq_debug_activations(&b.d, &b.run, &err), err);
        assert_ok(oq_debug_rank(&b.d, &err), err);
        assert_int_equal(b.d.acts.n, 2);
        const oq_debug_act *x = &b.d.acts.v[0], *t = &b.d.acts.v[1];
        assert_true(oq_str_is(x->name, "x") && oq_str_is(t->name, "t"));
        assert_int_equal(t->plain_pair, !twice);
        assert_true(fabs(x->qdq_err - db(xx, xe)) < 1e-3);
        assert_true(fabs(x->xmodel_err - db(xx, xe)) < 1e-3);
        assert_int_equal(x->clipped, clipped);
        assert_true(clipped > 0);
        assert_true(fabs(t->qdq_err - db(pp, te)) < 1e-3);
        assert_true(fabs(t->xmodel_err - db(tt, tc)) < 1e-3);
        assert_int_equal(b.d.n_samples, SAMPLES);
        assert_int_equal(b.d.n_kernel, SAMPLES);
        assert_int_equal(b.d.outputs.n, 1);
        assert_true(b.d.outputs.v[0].plain.ee > 0 &&
                    b.d.outputs.v[0].plain.ee == b.d.outputs.v[0].optimised.ee);
        uint64_t n = 0, m = 0;
        for (int i = 0; i < OQ_DEBUG_BINS; i++) {
            n += t->hist.flt[i];
            m += t->hist.quantized[i];
        }
        assert_true(n == COUNT * SAMPLES && m == COUNT * SAMPLES);
        assert_int_equal(b.engine.n_open, 0);
        close_both(&b);
    }
}

/* One sample at a time and several give the same bits. */
static void jobs_do_not_matter(void **state) {
    (void)state;
    static const unsigned jobs[] = {1, 2, 7};
    for (int twice = 0; twice < 2; twice++) {
        both b[OQ_COUNT(jobs)];
        for (size_t k = 0; k < OQ_COUNT(jobs); k++) {
            assert_ok(open_both(&b[k], NULL, twice != 0, &err), err);
            onq_env_set_threads(b[k].q.env, 2);
            b[k].run.jobs = jobs[k];
            no_threads(false);
            assert_ok(oq_debug_activations(&b[k].d, &b[k].run, &err), err);
            no_threads(true);
            assert_int_equal(b[k].d.n_samples, SAMPLES);
            assert_int_equal(b[k].d.n_kernel, SAMPLES);
            for (size_t i = 0; i < b[0].d.acts.n; i++) {
                const oq_debug_act *x = &b[0].d.acts.v[i], *y = &b[k].d.acts.v[i];
                assert_memory_equal(&x->qdq, &y->qdq, sizeof x->qdq);
                assert_memory_equal(&x->cross, &y->cross, sizeof x->cross);
                assert_memory_equal(&x->local, &y->local, sizeof x->local);
                assert_int_equal(x->clipped, y->clipped);
                for (int n = 0; n < OQ_DEBUG_BINS; n++)
                    assert_true(x->hist.flt[n] == y->hist.flt[n] &&
                                x->hist.quantized[n] == y->hist.quantized[n]);
            }
            assert_memory_equal(&b[0].d.outputs.v[0].plain, &b[k].d.outputs.v[0].plain,
                                sizeof(oq_sums));
            assert_int_equal(b[k].d.worst.n, SAMPLES);
            for (size_t i = 0; i < SAMPLES; i++) {
                const oq_debug_sample *x = &b[0].d.worst.v[i], *y = &b[k].d.worst.v[i];
                assert_true(x->number == y->number && x->sqnr == y->sqnr && y->sqnr > 0);
                assert_string_equal(x->name, y->name);
            }
        }
        for (size_t k = 0; k < OQ_COUNT(jobs); k++)
            close_both(&b[k]);
    }
}

/* Tries and samples that run at once give the same scores and the same set. */
static void searches_do_not_depend_on_jobs(void **state) {
    (void)state;
    static const unsigned jobs[] = {1, 2, 7};
    both b[OQ_COUNT(jobs)];
    oq_debug_search s[OQ_COUNT(jobs)];
    const oq_debug_target t = {
        .bisect = true, .sqnr = 30, .agreement = NAN, .most_samples = 4, .memory = 1 << 20};
    for (size_t k = 0; k < OQ_COUNT(jobs); k++) {
        assert_ok(open_both(&b[k], NULL, false, &err), err);
        onq_env_set_threads(b[k].q.env, 2);
        b[k].run.jobs = jobs[k];
        no_threads(false);
        assert_ok(oq_debug_activations(&b[k].d, &b[k].run, &err), err);
        assert_ok(oq_debug_run_search(&b[k].d, &b[k].run, &t, &s[k], &err), err);
        no_threads(true);
        assert_true(s[0].units.n > 0);
        assert_int_equal(s[k].units.n, s[0].units.n);
        assert_int_equal(s[k].n_measured, s[0].units.n);
        assert_int_equal(s[k].n_excluded, s[0].n_excluded);
        for (size_t i = 0; i < s[0].units.n; i++) {
            assert_true(oq_str_eq(s[k].units.v[i].name, s[0].units.v[i].name));
            assert_memory_equal(&s[k].units.v[i].sqnr, &s[0].units.v[i].sqnr, sizeof(double));
        }
        assert_memory_equal(&s[k].whole_sqnr, &s[0].whole_sqnr, sizeof(double));
        assert_memory_equal(&s[k].found_sqnr, &s[0].found_sqnr, sizeof(double));
        assert_int_equal(b[k].engine.n_open, 0);
    }
    for (size_t k = 0; k < OQ_COUNT(jobs); k++)
        close_both(&b[k]);
}

/* A failure in the middle ends it, however many samples run at once. */
static void a_sample_of_many_fails(void **state) {
    (void)state;
    for (long run = 1; run <= 3 * SAMPLES; run += 2) {
        both b;
        assert_ok(open_both(&b, NULL, false, &err), err);
        onq_env_set_threads(b.q.env, 2);
        b.run.jobs = 3;
        b.engine.fail_at_run = run;
        no_threads(false);
        const onq_code rc = oq_debug_activations(&b.d, &b.run, &err);
        no_threads(true);
        if (rc != ONQ_OK)
            assert_fails(rc, ONQ_E_RUNTIME, err, "told to fail");
        else
            assert_false(b.d.has_kernel); /* it was the optimised model */
        assert_int_equal(b.engine.n_open, 0);
        close_both(&b);
    }
}

static void engine_failures_come_back(void **state) {
    (void)state;
    for (long run = 1; run <= 3 * SAMPLES; run++) {
        both b;
        assert_ok(open_both(&b, NULL, false, &err), err);
        b.engine.fail_at_run = run;
        const onq_code rc = oq_debug_activations(&b.d, &b.run, &err);
        if (run % 3 == 0) { /* the optimised model: measured without it */
            assert_ok(rc, err);
            assert_false(b.d.has_kernel);
            assert_int_equal(b.d.outputs.v[0].optimised.n, 0);
        } else {
            assert_fails(rc, ONQ_E_RUNTIME, err, "told to fail");
        }
        assert_int_equal(b.engine.n_open, 0);
        close_both(&b);
    }
}

/* The float model gives another size at that place. */
static void other_sizes_are_told(void **state) {
    (void)state;
    both b;
    assert_ok(open_both(&b, NULL, false, &err), err);
    b.d.acts.v[1].flt = OQ_S("one");
    bm_f32(&b.f, "one", "", (const float[]){1.0f});
    b.run.kernel = false;
    assert_ok(oq_debug_activations(&b.d, &b.run, &err), err);
    assert_int_equal(b.d.acts.n, 1);
    assert_int_equal(b.d.unmatched.n, 1);
    assert_true(oq_str_is(b.d.unmatched.v[0].name, "t") &&
                strstr(b.d.unmatched.v[0].why, "size") != NULL);
    close_both(&b);
}

static onq_code all_steps(const onq_allocator *a, void *ctx, onq_error *e) {
    both b;
    oq_debug_search s;
    const oq_str group = OQ_S("op_type");
    const oq_debug_target t = {.bisect = true,
                               .sqnr = 200,
                               .agreement = NAN,
                               .most_samples = 2,
                               .memory = 1 << 20,
                               .overrides = true,
                               .groups = &group,
                               .n_groups = 1};
    oq_buf out;
    oq_jw w_out;
    onq_code rc = open_both(&b, a, ctx != NULL, e);
    if (rc == ONQ_OK)
        rc = oq_debug_activations(&b.d, &b.run, e);
    if (rc == ONQ_OK)
        rc = oq_debug_run_search(&b.d, &b.run, &t, &s, e);
    b.d.search = rc == ONQ_OK ? &s : NULL;
    if (rc == ONQ_OK)
        rc = oq_debug_rank(&b.d, e);
    if (rc == ONQ_OK) {
        oq_buf_init(&out, a);
        oq_jw_init(&w_out, &out, true);
        oq_jw_begin_object(&w_out, NULL);
        oq_debug_json(&b.d, &w_out);
        oq_debug_search_json(&s, &w_out);
        oq_jw_end_object(&w_out);
        oq_debug_text(&b.d, 0, &out);
        oq_debug_search_text(&s, 0, NULL, &out);
        rc = out.failed ? oq_fail_nomem(e) : oq_debug_report(&b.d, &out, e);
        if (rc == ONQ_OK)
            flaky_give(a, out.p, out.n);
        oq_buf_release(&out);
    }
    close_both(&b);
    return rc;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    int twice = 1;
    assert_true(flaky_sweep(all_steps, NULL) > 50);
    assert_true(flaky_sweep(all_steps, &twice) > 50);
}

int main(void) {
    no_threads(true); /* allocations in one order */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_plain_loops),  cmocka_unit_test(jobs_do_not_matter),
        cmocka_unit_test(searches_do_not_depend_on_jobs), cmocka_unit_test(a_sample_of_many_fails),
        cmocka_unit_test(engine_failures_come_back),      cmocka_unit_test(other_sizes_are_told),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
