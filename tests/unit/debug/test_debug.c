/*
 * test_debug.c — sums, matching, weights, ranking and the page, on small models made by hand; no
 * runtime is needed.
 */
#include "debug/debug.h"
#include "debug/search/search.h"
#include "debug/weights/weights.h"

#include "build_model.h"
#include "flaky_alloc.h"
#include "testing.h"

#include <math.h>

static onq_error err;

/* ---- sums ---- */

static void sums_are_the_reference(void **state) {
    (void)state;
    float x[1000], y[1000];
    double xx = 0, yy = 0, xy = 0, ee = 0, ab = 0, most = 0;
    for (int i = 0; i < 1000; i++) {
        x[i] = (float)sin(i) * 3;
        y[i] = roundf(x[i] * 20) / 20;
        const double d = (double)(x[i] - y[i]);
        xx += (double)x[i] * (double)x[i];
        yy += (double)y[i] * (double)y[i];
        xy += (double)x[i] * (double)y[i];
        ee += d * d;
        ab += fabs(d);
        most = fmax(most, fabs(d));
    }
    oq_sums s = {0}, t = {0}, u = {0};
    oq_sums_add(&s, x, y, 1000);
    oq_sums_add(&t, x, y, 37); /* in pieces, joined */
    oq_sums_add(&u, x + 37, y + 37, 963);
    oq_sums_join(&t, &u);
    assert_true(fabs(oq_sums_sqnr(&s) - 10 * log10(xx / ee)) < 1e-5);
    assert_true(fabs(oq_sums_sqnr(&t) - oq_sums_sqnr(&s)) < 1e-5);
    assert_true(fabs(oq_sums_cosine(&s) - xy / sqrt(xx * yy)) < 1e-6);
    assert_true(fabs(oq_sums_mean_error(&s) - ab / 1000) < 1e-6);
    assert_true(s.abs_max == most && t.n == 1000);
    oq_sums noise = {0};
    oq_sums_add_noise(&noise, x, y, 1000);
    assert_true(fabs(oq_sums_sqnr(&noise) - oq_sums_sqnr(&s)) < 1e-5);
}

static void sums_of_nothing(void **state) {
    (void)state;
    const float zero[4] = {0}, one[4] = {1, 1, 1, 1}, nan[1] = {NAN};
    oq_sums s = {0}, t = {0}, u = {0};
    oq_sums_add(&s, zero, zero, 4); /* epsilon over epsilon */
    assert_true(oq_sums_sqnr(&s) == 0 && oq_sums_cosine(&s) == 1);
    oq_sums_add(&t, one, one, 4);
    assert_true(fabs(oq_sums_sqnr(&t) - 20 * log10(2 / 2.220446049250313e-16)) < 1e-9);
    oq_sums_add(&u, nan, one, 1);
    assert_true(isnan(oq_sums_sqnr(&u)));
    float lo = INFINITY, hi = -INFINITY;
    oq_span_add(&lo, &hi, nan, 1);
    oq_span_add(&lo, &hi, one, 3);
    assert_true(lo == 1 && hi == 1);
}

/* ---- models ---- */

#define K 16
#define N 8

static void float_model(bm *b, const onq_allocator *a, const char *weight) {
    bm_begin(b, a, 13);
    bm_input(b, "x", OQ_FLOAT, "2,16");
    bm_output(b, "y", OQ_FLOAT, "2,8");
    bm_weight(b, weight, "16,8", 7);
    char inputs[64] = "x ";
    strcat(inputs, weight);
    bm_node(b, "MatMul", "mm", inputs, "t", "");
    bm_node(b, "Relu", "relu", "t", "y", "");
}

/* The values bm_weight gives, quantized per tensor or per column; `spoil` multiplies what is
 * written as scale. */
static void quantized_model(bm *b, const onq_allocator *a, bool columns, float spoil) {
    float scale[N];
    int8_t q[K * N], zero[N] = {0};
    bm w;
    oq_arena arena;
    float *v = NULL;
    bm_begin(&w, NULL, 13);
    oq_arena_init(&arena, oq_alloc_default());
    oq_tensor *t = bm_weight(&w, "w", "16,8", 7);
    assert_ok(oq_tensor_floats(w.m, t, &arena, &v, NULL, &err), err);
    for (int n = 0; n < N; n++) {
        float top = 0;
        for (int i = 0; i < K * N; i++)
            if (!columns || i % N == n)
                top = fmaxf(top, fabsf(v[i]));
        scale[n] = top / 127;
    }
    for (int i = 0; i < K * N; i++)
        q[i] = (int8_t)lrintf(v[i] / scale[i % N]);
    oq_arena_release(&arena);
    bm_end(&w);
    for (int n = 0; n < N; n++)
        scale[n] *= spoil;
    bm_begin(b, a, 13);
    bm_input(b, "x", OQ_FLOAT, "2,16");
    bm_output(b, "y", OQ_FLOAT, "2,8");
    bm_raw(b, "w_quantized", OQ_INT8, "16,8", q, sizeof q);
    bm_f32(b, "w_scale", columns ? "8" : "", scale);
    bm_raw(b, "w_zero_point", OQ_INT8, columns ? "8" : "", zero, columns ? N : 1);
    bm_f32(b, "xs", "", (const float[]){0.1f});
    bm_raw(b, "xz", OQ_UINT8, "", (const uint8_t[]){128}, 1);
    bm_node(b, "QuantizeLinear", "q", "x xs xz", "x_QuantizeLinear_Output", "");
    bm_node(b, "DequantizeLinear", "dq", "x_QuantizeLinear_Output xs xz",
            "x_DequantizeLinear_Output", "");
    bm_node(b, "DequantizeLinear", "wdq", "w_quantized w_scale w_zero_point",
            "w_DequantizeLinear_Output", columns ? "axis=1" : "");
    bm_node(b, "MatMul", "mm", "x_DequantizeLinear_Output w_DequantizeLinear_Output", "t", "");
    bm_node(b, "Relu", "relu", "t", "y", "");
}

typedef struct both {
    bm f, q;
    oq_debug d;
} both;

static void begin(both *b, const char *weight, bool columns, float spoil) {
    float_model(&b->f, NULL, weight);
    quantized_model(&b->q, NULL, columns, spoil);
    oq_debug_init(&b->d, b->q.env, b->f.m, b->q.m);
    b->d.histograms = true;
    assert_ok(oq_debug_match(&b->d, &err), err);
    assert_ok(oq_debug_weights(&b->d, &err), err);
    assert_ok(oq_debug_rank(&b->d, &err), err);
}

static void end(both *b) {
    oq_debug_release(&b->d);
    bm_end(&b->f);
    bm_end(&b->q);
}

static void weights_are_matched(void **state) {
    (void)state;
    for (int columns = 0; columns < 2; columns++) {
        both b;
        begin(&b, "w", columns != 0, 1);
        assert_int_equal(b.d.weights.n, 1);
        assert_int_equal(b.d.unmatched.n, 0);
        const oq_debug_weight *w = &b.d.weights.v[0];
        assert_true(oq_str_is(w->name, "w") && oq_str_is(w->op, "MatMul") &&
                    oq_str_is(w->node, "mm"));
        assert_true(w->sqnr > 35 && w->sqnr < 60 && w->saturated == 0);
        assert_true(w->verdict.excess < 3 && w->verdict.reason == OQ_DEBUG_FINE);
        assert_int_equal(w->n_channels, N);
        assert_int_equal(w->per_channel, columns);
        assert_int_equal(b.d.acts.n, 1);
        assert_true(oq_str_is(b.d.acts.v[0].name, "x") && oq_str_is(b.d.acts.v[0].flt, "x"));
        assert_true(fabs(b.d.acts.v[0].q_lo + 12.8) < 1e-5 &&
                    fabs(b.d.acts.v[0].q_hi - 12.7) < 1e-5);
        end(&b);
    }
}

static void spoiled_scale_is_told(void **state) {
    (void)state;
    both b;
    begin(&b, "w", false, 4);
    const oq_debug_weight *w = &b.d.weights.v[0];
    assert_true(fabs(w->sqnr + 20 * log10(3)) < 0.1); /* w against 4 w */
    assert_true(w->verdict.excess > 30 && w->verdict.reason == OQ_DEBUG_SCALE_WRONG);
    end(&b);
}

/* A bias of `value` with int32 numbers of step 0.01, written as `scale`. */
static oq_debug_verdict judge_bias(float value, float scale) {
    both b;
    float bias[N];
    int32_t q[N];
    for (int i = 0; i < N; i++) {
        bias[i] = value * (float)(i + 1);
        q[i] = (int32_t)lrintf(bias[i] / 0.01f);
    }
    float_model(&b.f, NULL, "w");
    quantized_model(&b.q, NULL, false, 1);
    bm_f32(&b.f, "c", "8", bias);
    bm_node(&b.f, "Add", "add", "t c", "u", "");
    bm_raw(&b.q, "c_quantized", OQ_INT32, "8", q, sizeof q);
    bm_f32(&b.q, "c_scale", "", &scale);
    bm_raw(&b.q, "c_zero_point", OQ_INT32, "", (const int32_t[]){0}, 4);
    bm_node(&b.q, "DequantizeLinear", "cdq", "c_quantized c_scale c_zero_point", "cd", "");
    bm_node(&b.q, "Add", "add", "t cd", "u", "");
    oq_debug_init(&b.d, b.q.env, b.f.m, b.q.m);
    assert_ok(oq_debug_match(&b.d, &err), err);
    assert_ok(oq_debug_weights(&b.d, &err), err);
    assert_ok(oq_debug_rank(&b.d, &err), err);
    assert_int_equal(b.d.weights.n, 2);
    assert_true(oq_str_is(b.d.weights.v[1].name, "c"));
    const oq_debug_verdict v = b.d.weights.v[1].verdict;
    end(&b);
    return v;
}

static void small_biases_are_harmless(void **state) {
    (void)state;
    oq_debug_verdict v = judge_bias(0.0005f, 0.01f); /* all become 0 */
    assert_true(v.own == 0 && v.reason == OQ_DEBUG_BELOW_STEP && v.rank == 2);
    v = judge_bias(5, 0.01f);
    assert_true(v.own > 60 && v.reason == OQ_DEBUG_FINE);
    v = judge_bias(5, 0.04f); /* another scale than it was made with */
    assert_true(v.own < 0 && v.reason == OQ_DEBUG_SCALE_WRONG && v.rank == 1);
}

static void other_names_are_found_by_place(void **state) {
    (void)state;
    both b;
    begin(&b, "another_name", true, 1);
    assert_int_equal(b.d.weights.n, 1);
    assert_true(oq_str_is(b.d.weights.v[0].name, "another_name"));
    end(&b);
}

/* ---- what preprocessing folded ---- */

static const float kernel[2] = {0.5f, -0.8f}, own_bias[2] = {0.5f, -0.5f}, gamma_[2] = {2, 3},
                   beta[2] = {0.1f, 0.2f}, mean[2] = {1, -1}, var[2] = {4, 16};

/* Conv, BatchNormalization and Relu; and a Conv with both in its weights, in QDQ. */
static void folded_models(bm *f, bm *q, const onq_allocator *a, float want[4]) {
    int8_t k[2];
    int32_t b[2];
    for (int c = 0; c < 2; c++) {
        const float by = gamma_[c] / sqrtf(var[c] + 1e-5f);
        want[c] = kernel[c] * by;
        want[2 + c] = (own_bias[c] - mean[c]) * by + beta[c];
        k[c] = (int8_t)lrintf(want[c] / 0.01f);
        b[c] = (int32_t)lrintf(want[2 + c] / 0.001f);
    }
    bm_begin(f, a, 13);
    bm_input(f, "x", OQ_FLOAT, "1,1,4,4");
    bm_f32(f, "k", "2,1,1,1", kernel);
    bm_f32(f, "kb", "2", own_bias);
    bm_f32(f, "g", "2", gamma_);
    bm_f32(f, "b", "2", beta);
    bm_f32(f, "m", "2", mean);
    bm_f32(f, "v", "2", var);
    bm_node(f, "Conv", "conv", "x k kb", "c", "");
    bm_node(f, "BatchNormalization", "bn", "c g b m v", "n", "");
    bm_node(f, "Relu", "relu", "n", "y", "");
    bm_output(f, "y", OQ_FLOAT, "1,2,4,4");
    bm_begin(q, a, 13);
    bm_input(q, "x", OQ_FLOAT, "1,1,4,4");
    bm_raw(q, "Fused_W_quantized", OQ_INT8, "2,1,1,1", k, sizeof k);
    bm_raw(q, "Fused_B_quantized", OQ_INT32, "2", b, sizeof b);
    bm_f32(q, "ks", "", (const float[]){0.01f});
    bm_f32(q, "bs", "", (const float[]){0.001f});
    bm_raw(q, "kz", OQ_INT8, "", (const int8_t[]){0}, 1);
    bm_raw(q, "bz", OQ_INT32, "", (const int32_t[]){0}, 4);
    bm_node(q, "DequantizeLinear", "kdq", "Fused_W_quantized ks kz", "kd", "");
    bm_node(q, "DequantizeLinear", "bdq", "Fused_B_quantized bs bz", "bd", "");
    bm_node(q, "Conv", "conv", "x kd bd", "n", "");
    bm_node(q, "Relu", "relu", "n", "y", "");
    bm_output(q, "y", OQ_FLOAT, "1,2,4,4");
}

static void folded_weights_are_compared(void **state) {
    (void)state;
    both b;
    float want[4];
    folded_models(&b.f, &b.q, NULL, want);
    oq_debug_init(&b.d, b.q.env, b.f.m, b.q.m);
    assert_ok(oq_debug_match(&b.d, &err), err);
    assert_ok(oq_debug_weights(&b.d, &err), err);
    assert_int_equal(b.d.unmatched.n, 0);
    assert_int_equal(b.d.weights.n, 2);
    for (int i = 0; i < 2; i++) {
        oq_debug_weight *w = &b.d.weights.v[i];
        oq_debug_values v;
        assert_true(oq_str_is(w->name, i == 0 ? "k" : "b") && w->sqnr > 35);
        assert_ok(oq_debug_weight_values(&b.d, w, false, &b.d.arena, &v, &err), err);
        for (int c = 0; c < 2; c++)
            assert_true(fabsf(((const float *)v.flt)[c] - want[2 * i + c]) < 1e-6f);
    }
    end(&b);
}

/* ---- the page and the words ---- */

static bool has(const oq_buf *b, const char *part) {
    return b->p != NULL && strstr(b->p, part) != NULL;
}

static void page_keeps_names_as_text(void **state) {
    (void)state;
    both b;
    oq_buf page, text;
    oq_jw w;
    begin(&b, "w", false, 1);
    b.d.weights.v[0].name = OQ_S("</script><b>&\"\x01");
    oq_buf_init(&page, oq_alloc_default());
    oq_buf_init(&text, oq_alloc_default());
    assert_ok(oq_debug_report(&b.d, &page, &err), err);
    assert_true(has(&page, "\\u003c/script>\\u003cb>") && !has(&page, "</script><b>"));
    assert_false(has(&page, "/*DATA*/"));
    assert_string_equal(page.p + page.n - 8, "</html>\n");
    oq_debug_text(&b.d, 5, &text);
    assert_true(has(&text, "1 weights") && !has(&text, "\x01"));
    oq_jw_init(&w, &text, true);
    oq_jw_begin_object(&w, NULL);
    oq_debug_json(&b.d, &w);
    oq_jw_end_object(&w);
    assert_true(has(&text, "\"sqnr\"") && has(&text, "\"unmatched\""));
    oq_buf_release(&page);
    oq_buf_release(&text);
    end(&b);
}

/* ---- groups ---- */

static void blocks_are_found_in_names(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"/encoder/layer.0/attention/MatMul", "/encoder/layer.0"},
        {"/encoder/layer.11/MatMul_3", "/encoder/layer.11"},
        {"/features/conv/Conv_2", "/features/conv"}, /* the last part never counts */
        {"/Conv_2", "/Conv_2"},
        {"model.layers.3.mlp.MatMul", "model.layers.3"},
        {"model.layers.0.self_attn.q_proj/out/MatMul", "model.layers.0"},
        {"model.layers.0/qk/MatMul", "model.layers.0"},
        {"model/block1a/dw", "model/block1a"},
        {"Conv_12", "Conv_12"},
        {"", ""},
        {"//3/x", "//3"},
        {"a/", "a"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const oq_str b = oq_debug_block_of(oq_str_of(names[i][0]));
        if (!oq_str_is(b, names[i][1]))
            fail_msg("'%s' gives '%.*s'", names[i][0], (int)b.n, b.p);
    }
}

/* ---- parts ---- */

#define ROWS    2200 /* with COLUMNS more than two parts, and not a whole number of them */
#define COLUMNS 1023

/* A large weight by plain loops: parts and threads change nothing. */
static void parts_are_added_up(void **state) {
    static const unsigned threads[] = {1, 2, 7};
    const size_t n = (size_t)ROWS * COLUMNS;
    float *x = test_calloc(n, sizeof *x), scale[COLUMNS];
    int8_t *q = test_calloc(n, sizeof *q), zero[COLUMNS];
    double ee[COLUMNS] = {0}, all = 0, sqnr[3], hist[3];
    uint64_t hot = 0, clipped = 0;
    (void)state;
    for (size_t c = 0; c < COLUMNS; c++) {
        scale[c] = 0.001f * (float)(c % 7 + 1);
        zero[c] = (int8_t)(c % 3);
    }
    for (size_t i = 0; i < n; i++) {
        q[i] = (int8_t)(i * 2654435761u >> 13);
        x[i] = ((float)q[i] - (float)zero[i % COLUMNS]) * scale[i % COLUMNS] +
               scale[i % COLUMNS] * (q[i] == 127 && i % 5 == 0 ? 1.0f : 0.25f);
        const double e =
            (double)x[i] - (double)(((float)q[i] - (float)zero[i % COLUMNS]) * scale[i % COLUMNS]);
        ee[i % COLUMNS] += e * e;
        all += e * e;
        clipped += q[i] == 127 && i % 5 == 0;
    }
    for (size_t i = 0; i + COLUMNS < n; i += i % COLUMNS == COLUMNS - 1 ? COLUMNS + 1 : 1)
        hot += q[i] + q[i + COLUMNS] > 128 || q[i] + q[i + COLUMNS] < -128;
    for (size_t t = 0; t < OQ_COUNT(threads); t++) {
        both b;
        bm_begin(&b.f, NULL, 13);
        bm_input(&b.f, "x", OQ_FLOAT, "1,2200");
        bm_output(&b.f, "y", OQ_FLOAT, "1,1023");
        bm_f32(&b.f, "w", "2200,1023", x);
        bm_node(&b.f, "MatMul", "mm", "x w", "y", "");
        bm_begin(&b.q, NULL, 13);
        bm_input(&b.q, "x", OQ_FLOAT, "1,2200");
        bm_output(&b.q, "y", OQ_FLOAT, "1,1023");
        bm_raw(&b.q, "w_quantized", OQ_INT8, "2200,1023", q, n);
        bm_f32(&b.q, "w_scale", "1023", scale);
        bm_raw(&b.q, "w_zero_point", OQ_INT8, "1023", zero, sizeof zero);
        bm_node(&b.q, "DequantizeLinear", "wdq", "w_quantized w_scale w_zero_point",
                "w_DequantizeLinear_Output", "axis=1");
        bm_node(&b.q, "MatMul", "mm", "x w_DequantizeLinear_Output", "y", "");
        b.q.env->n_threads = threads[t];
        oq_debug_init(&b.d, b.q.env, b.f.m, b.q.m);
        b.d.histograms = true;
        assert_ok(oq_debug_match(&b.d, &err), err);
        assert_ok(oq_debug_weights(&b.d, &err), err);
        assert_int_equal(b.d.weights.n, 1);
        const oq_debug_weight *w = &b.d.weights.v[0];
        assert_int_equal(w->sums.n, n);
        assert_true(fabs(w->sums.ee / all - 1) < 1e-5);
        assert_int_equal(w->n_channels, COLUMNS);
        for (size_t c = 0; c < COLUMNS; c++) {
            double xx = 0;
            for (size_t i = c; i < n; i += COLUMNS)
                xx += (double)x[i] * (double)x[i];
            assert_true(fabs(w->channel_sqnr[c] - 10 * log10(xx / ee[c])) < 1e-6);
        }
        assert_int_equal(w->pairs, n / 2);
        assert_int_equal(w->hot_pairs, hot);
        assert_true(fabs(w->saturated * (double)n - (double)clipped) < 0.5);
        assert_true(isfinite(w->reference_sqnr)); /* zero points: its integers wrap around */
        sqnr[t] = w->sqnr + w->reference_sqnr + w->ideal + w->channel_sqnr[COLUMNS / 2];
        hist[t] = 0;
        for (size_t k = 0; k < OQ_DEBUG_BINS; k++)
            hist[t] += (double)k * w->hist.flt[k] + (double)(k * k) * w->hist.quantized[k];
        assert_true(hist[t] > 0);
        assert_memory_equal(&sqnr[t], &sqnr[0], sizeof *sqnr);
        assert_memory_equal(&hist[t], &hist[0], sizeof *hist);
        end(&b);
    }
    test_free(x);
    test_free(q);
}

/* ---- memory ---- */

static onq_code all_steps(const onq_allocator *a, void *ctx, onq_error *e) {
    bm f = {0}, q = {0};
    oq_debug d = {0};
    oq_buf page;
    onq_code rc = ONQ_E_NOMEM;
    float want[4];
    if (ctx != NULL) {
        folded_models(&f, &q, a, want);
    } else {
        float_model(&f, a, "w");
        quantized_model(&q, a, true, 1);
    }
    oq_buf_init(&page, a);
    if (f.failed || q.failed) {
        oq_fail_nomem(e);
        goto done;
    }
    oq_debug_init(&d, q.env, f.m, q.m);
    d.histograms = true;
    OQ_GO(oq_debug_match(&d, e));
    OQ_GO(oq_debug_weights(&d, e));
    OQ_GO(oq_debug_rank(&d, e));
    OQ_GO(oq_debug_report(&d, &page, e));
done:
    oq_buf_release(&page);
    if (d.env != NULL)
        oq_debug_release(&d);
    bm_end(&f);
    bm_end(&q);
    return rc;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    int folded = 1;
    assert_true(flaky_sweep(all_steps, NULL) > 10);
    assert_true(flaky_sweep(all_steps, &folded) > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_the_reference),
        cmocka_unit_test(sums_of_nothing),
        cmocka_unit_test(weights_are_matched),
        cmocka_unit_test(parts_are_added_up),
        cmocka_unit_test(spoiled_scale_is_told),
        cmocka_unit_test(small_biases_are_harmless),
        cmocka_unit_test(other_names_are_found_by_place),
        cmocka_unit_test(folded_weights_are_compared),
        cmocka_unit_test(page_keeps_names_as_text),
        cmocka_unit_test(blocks_are_found_in_names),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
