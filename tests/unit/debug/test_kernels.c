/* test_kernels.c — loss by the runtime's kernels separated from quantization: which layers can pass
 * 16 bits, counted by hand, and what is said for every kind of CPU and gap. The CPU and the gap
 * are made up: the machine that runs this has VNNI or not. */
#include "debug/debug.h"

#include "build_model.h"
#include "testing.h"

#include <math.h>

static onq_error err;

typedef struct layer {
    const char *op, *shape, *attributes;
    int8_t q[8];
    uint64_t pairs, hot;
} layer;

/* Sums of two weights of one output beyond 128 either way. Inputs of a Conv lie along axis 1. */
static const layer layers[] = {
    {"MatMul",
     "4,2",
     "",
     {127, 1, 2, 1, 100, -100, 28, -29},
     4,
     2}, /* 127+2, -100-29; 100+28 is 128 */
    {"MatMul", "4,2", "", {63, 64, 64, 63, -64, -64, -64, -64}, 4, 0}, /* reduce_range */
    {"Gemm", "2,4", "transB=1", {127, 2, 1, 1, -128, -1, 127, 127}, 4, 3},
    {"Gemm", "4,2", "", {127, -128, 2, -1, 1, 127, 1, 127}, 4, 3},
    {"Conv", "1,4,2,1", "", {127, 1, 2, 1, 100, -100, 28, -29}, 4, 2}, /* channels are innermost */
    {"Conv",
     "2,1,4,1",
     "",
     {127, 2, 1, 1, -128, -1, 127, 127},
     4,
     3}, /* one channel: along the window */
    {"MatMul", "1,8", "", {127, 127, 127, 127, 127, 127, 127, 127}, 0, 0}, /* one product: no sum */
};

typedef struct both {
    bm f, q;
    oq_debug d;
} both;

/* A float model of one layer whose weight is q / 100, and its QDQ twin. */
static void begin(both *b, const layer *l, const char *name) {
    float v[8];
    for (int i = 0; i < 8; i++)
        v[i] = (float)l->q[i] / 100;
    bm_begin(&b->f, NULL, 13);
    bm_input(&b->f, "x", OQ_FLOAT, NULL);
    bm_f32(&b->f, "w", l->shape, v);
    bm_node(&b->f, l->op, name, "x w", "y", l->attributes);
    bm_output(&b->f, "y", OQ_FLOAT, NULL);
    bm_begin(&b->q, NULL, 13);
    bm_input(&b->q, "x", OQ_FLOAT, NULL);
    bm_raw(&b->q, "w_quantized", OQ_INT8, l->shape, l->q, sizeof l->q);
    bm_f32(&b->q, "w_scale", "", (const float[]){0.01f});
    bm_raw(&b->q, "w_zero_point", OQ_INT8, "", (const int8_t[]){0}, 1);
    bm_node(&b->q, "DequantizeLinear", "dq", "w_quantized w_scale w_zero_point", "wd", "");
    bm_node(&b->q, l->op, name, "x wd", "y", l->attributes);
    bm_output(&b->q, "y", OQ_FLOAT, NULL);
    oq_debug_init(&b->d, b->q.env, b->f.m, b->q.m);
    assert_ok(oq_debug_match(&b->d, &err), err);
    assert_ok(oq_debug_weights(&b->d, &err), err);
    assert_ok(oq_debug_rank(&b->d, &err), err);
}

static void end(both *b) {
    oq_debug_release(&b->d);
    bm_end(&b->f);
    bm_end(&b->q);
}

static void pairs_are_counted(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        both b;
        begin(&b, &layers[i], "node");
        assert_int_equal(b.d.weights.n, 1);
        const oq_debug_weight *w = &b.d.weights.v[0];
        if (w->pairs != layers[i].pairs || w->hot_pairs != layers[i].hot)
            fail_msg("layer %zu: %llu of %llu", i, (unsigned long long)w->hot_pairs,
                     (unsigned long long)w->pairs);
        end(&b);
    }
}

/* An output that keeps `plain` dB without and `fast` dB with optimisation. */
static void pretend(both *b, double plain, double fast) {
    oq_debug_output o = {.name = OQ_S("y"), .rows = 4, .same_plain = 4};
    o.plain = (oq_sums){.xx = 1, .yy = 1, .ee = pow(10, -plain / 10), .n = 8};
    o.optimised = (oq_sums){.xx = 1, .yy = 1, .ee = pow(10, -fast / 10), .n = 8};
    b->d.has_kernel = true;
    b->d.n_kernel = b->d.n_samples = 4;
    assert_true(OQ_PUSH(&b->d.arena, &b->d.outputs, o));
}

static bool says(const both *b, bool json, const char *part) {
    oq_buf text;
    oq_jw w;
    oq_buf_init(&text, oq_alloc_default());
    oq_jw_init(&w, &text, true);
    if (json) {
        oq_jw_begin_object(&w, NULL);
        oq_debug_json(&b->d, &w);
        oq_jw_end_object(&w);
    } else {
        oq_debug_text(&b->d, 5, &text);
    }
    const bool found = strstr(text.p, part) != NULL;
    oq_buf_release(&text);
    return found;
}

static bool page_says(const both *b, const char *part) {
    oq_buf page;
    oq_buf_init(&page, oq_alloc_default());
    assert_ok(oq_debug_report(&b->d, &page, &err), err);
    const bool found = strstr(page.p, part) != NULL;
    oq_buf_release(&page);
    return found;
}

/* The case of digits_cnn on a CPU with AVX2 alone: 18.6 dB fused, 30.8 dB in float. */
static void saturation_is_told(void **state) {
    (void)state;
    both b;
    begin(&b, &layers[0], "first\x07layer");
    pretend(&b, 30.8, 18.6);
    b.d.cpu_saturates = true;
    assert_non_null(oq_debug_kernel_loss(&b.d));
    assert_true(says(&b, false, "SQNR is 18.6 dB, in float 30.8 dB"));
    assert_true(says(&b, false, "not quantization") && says(&b, false, "without VNNI"));
    assert_true(says(&b, false, "reduce_range avoids it"));
    assert_true(says(&b, false, "first\\x07layer  50.00 % of the pairs"));
    assert_true(says(&b, true, "\"kernel_saturation\": true"));
    assert_true(says(&b, true, "first\\u0007layer") && says(&b, true, "\"cpu_saturates\": true"));
    assert_true(page_says(&b, "\"kernel_loss\":true"));
    end(&b);
}

/* The same gap elsewhere is not blamed on it, but the layers are named for other CPUs. */
static void other_gaps_are_not_blamed_on_it(void **state) {
    (void)state;
    both b;
    begin(&b, &layers[0], "layer");
    pretend(&b, 30.8, 18.6);
    b.d.cpu_saturates = false;
    assert_null(oq_debug_kernel_loss(&b.d));
    assert_non_null(oq_debug_kernel_gap(&b.d));
    assert_true(says(&b, false, "SQNR is 18.6 dB, without it 30.8 dB"));
    assert_true(says(&b, false, "this CPU has none"));
    assert_true(says(&b, false, "can pass 16 bits in:\n  layer  50.00 %"));
    assert_true(says(&b, true, "\"kernel_saturation\": false"));
    assert_true(page_says(&b, "\"kernel_loss\":false"));
    end(&b);
    begin(&b, &layers[1], "layer"); /* weights of a reduced range */
    pretend(&b, 30.8, 18.6);
    b.d.cpu_saturates = true;
    assert_null(oq_debug_kernel_loss(&b.d));
    assert_true(says(&b, false, "no weights reach them") && !says(&b, false, "can pass 16"));
    end(&b);
    begin(&b, &layers[0], "layer"); /* no gap */
    pretend(&b, 30.8, 30.1);
    b.d.cpu_saturates = true;
    assert_null(oq_debug_kernel_loss(&b.d));
    assert_null(oq_debug_kernel_gap(&b.d));
    assert_true(says(&b, false, "lose nothing more on this machine"));
    end(&b);
}

/* 3 dB between both runs are worth a word. */
static void a_gap_begins_at_its_threshold(void **state) {
    (void)state;
    both b;
    begin(&b, &layers[0], "layer");
    pretend(&b, 30.8, 27.9);
    assert_null(oq_debug_kernel_gap(&b.d));
    b.d.outputs.n = 0;
    pretend(&b, 30.8, 27.7);
    assert_non_null(oq_debug_kernel_gap(&b.d));
    end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_counted),
        cmocka_unit_test(saturation_is_told),
        cmocka_unit_test(other_gaps_are_not_blamed_on_it),
        cmocka_unit_test(a_gap_begins_at_its_threshold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
