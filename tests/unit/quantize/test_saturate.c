/*
 * test_saturate.c — sums of two products within 16 bits, checked by the arithmetic of vpmaddubsw.
 */
#include "quantize/number/saturate.h"

#include "build_model.h"
#include "testing.h"

typedef struct weight {
    oq_qweight w;
    oq_qparams params;
    float *first; /* scales as they were */
    int8_t *q;
} weight;

static onq_code quantized(bm *b, weight *x, const oq_node *n, oq_tensor *t, int64_t axis,
                          bool *narrowed, onq_error *err) {
    const oq_qspec spec = {.type = OQ_INT8, .symmetric = true};
    OQ_TRY(oq_qweight_init(&x->w, b->m, t, axis >= 0 ? OQ_QGROUP_CHANNEL : OQ_QGROUP_TENSOR, axis,
                           0, err));
    OQ_TRY(oq_qparams_init(&x->params, b->a, x->w.n_params, err));
    OQ_TRY(oq_qweight_params(&x->w, &spec, NULL, &b->m->env->alloc, &x->params, err));
    x->first = OQ_NEW_ARRAY(b->a, float, x->params.n);
    x->q = oq_arena_alloc(b->a, x->w.count);
    if (x->first == NULL || x->q == NULL)
        return oq_fail_nomem(err);
    memcpy(x->first, x->params.scale, x->params.n * sizeof(float));
    OQ_TRY(oq_saturate_narrow(n, &x->w, &x->params, &b->m->env->alloc, narrowed, err));
    return oq_qweight_quantize(&x->w, OQ_INT8, &x->params, (uint8_t *)x->q, err);
}

/* Two products added and clipped to 16 bits. */
static bool is_clipped(int8_t a, int8_t b) {
    static const int inputs[] = {0, 1, 127, 254, 255};
    for (size_t i = 0; i < OQ_COUNT(inputs); i++)
        for (size_t k = 0; k < OQ_COUNT(inputs); k++) {
            const int sum = inputs[i] * a + inputs[k] * b;
            if (sum > INT16_MAX || sum < INT16_MIN)
                return true;
        }
    return false;
}

/* A row of weights in the order of the sum: every pair fits, and what was raised was needed. */
static void matmul_rows(void **state) {
    (void)state;
    enum { K = 8, N = 4 };
    /* Columns: large ones apart; large ones together; of other signs; an odd pair that does not
     * meet. */
    static const float columns[N][K] = {{1, 0, 1, 0, 1, 0, 0.005f, 1},
                                        {1, 1, 0.1f, 0, 0, 0, 0, 0},
                                        {1, -1, 1, -1, 1, -1, 1, -1},
                                        {0.5f, 0.5f, 0, 1, 0.9f, 0, 0, 0}};
    float v[K * N];
    bm b;
    weight x;
    bool narrowed = false;
    onq_error err = ONQ_ERROR_INIT;
    for (size_t k = 0; k < K; k++)
        for (size_t n = 0; n < N; n++)
            v[k * N + n] = columns[n][k];
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "2,8");
    oq_node *node = bm_node(&b, "MatMul", "m", "x w", "y", "");
    assert_ok(quantized(&b, &x, node, bm_f32(&b, "w", "8,4", v), 1, &narrowed, &err), err);
    assert_true(narrowed);
    for (size_t n = 0; n < N; n++) {
        assert_int_equal(x.params.scale[n] > x.first[n], n == 1);
        for (size_t k = 0; k < K; k += 2)
            assert_false(is_clipped(x.q[k * N + n], x.q[(k + 1) * N + n]));
    }
    /* As little as it takes: seven bits would be a factor of 2. */
    assert_true(x.params.scale[1] < 2.0f * x.first[1]);
    assert_int_equal(x.q[1] + x.q[N + 1], OQ_MAX_PAIR);
    bm_end(&b);
}

/* The order in which a Conv adds: channels first, at each place. */
static void conv_places(void **state) {
    (void)state;
    /* [1, 2, 1, 2]: channel 0 has 1, 1; channel 1 has 0, 0. Each place has one large weight. */
    const float apart[] = {1, 1, 0, 0}, together[] = {1, 0, 1, 0};
    for (int meet = 0; meet < 2; meet++) {
        bm b;
        weight x;
        bool narrowed = false;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 13);
        bm_input(&b, "x", OQ_FLOAT, "1,2,4,4");
        oq_node *node = bm_node(&b, "Conv", "c", "x w", "y", "");
        oq_tensor *t = bm_f32(&b, "w", "1,2,1,2", meet ? together : apart);
        assert_ok(quantized(&b, &x, node, t, 0, &narrowed, &err), err);
        assert_int_equal(narrowed, meet);
        bm_end(&b);
    }
}

static void others(void **state) {
    (void)state;
    const float all[] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const struct {
        const char *op, *shape, *attributes;
        int64_t axis;
        bool narrowed;
    } cases[] = {{"Conv", "2,1,2,2", "group=2", 0, false}, /* depthwise */
                 {"Conv", "4,1,2,1", "group=2", 0, true},  /* two outputs for each input */
                 {"Conv", "2,4,1,1", "", -1, true},        /* one scale for all */
                 {"Gemm", "2,4", "transB=1", 0, true},
                 {"Gemm", "8,1", "transB=1", 0, false}, /* sums of one */
                 {"MatMul", "2,2,2", "", -1, true},
                 {"ConvTranspose", "2,4,1,1", "", 0, false}};
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        bm b;
        weight x;
        bool narrowed = false;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 13);
        bm_input(&b, "x", OQ_FLOAT, NULL);
        oq_node *node = bm_node(&b, cases[i].op, "n", "x w", "y", cases[i].attributes);
        oq_tensor *t = bm_f32(&b, "w", cases[i].shape, all);
        assert_ok(quantized(&b, &x, node, t, cases[i].axis, &narrowed, &err), err);
        if (narrowed != cases[i].narrowed)
            fail_msg("%s %s", cases[i].op, cases[i].shape);
        bm_end(&b);
    }
}

/* Weights as they are in models: no pair is clipped, and the scales stay below those of seven
 * bits. */
static void many(void **state) {
    (void)state;
    for (unsigned seed = 1; seed < 6; seed++) {
        bm b;
        weight x;
        bool narrowed = false;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 13);
        bm_input(&b, "x", OQ_FLOAT, NULL);
        oq_node *node = bm_node(&b, "Gemm", "n", "x w", "y", "transB=1");
        assert_ok(quantized(&b, &x, node, bm_weight(&b, "w", "32,65", seed), 0, &narrowed, &err),
                  err);
        assert_true(narrowed);
        for (size_t n = 0; n < 32; n++) {
            assert_true(x.params.scale[n] <= 2.0f * x.first[n]);
            for (size_t k = 0; k + 1 < 65; k += 2)
                assert_false(is_clipped(x.q[n * 65 + k], x.q[n * 65 + k + 1]));
        }
        bm_end(&b);
    }
}

static void fill(bm *b) {
    bm_input(b, "x", OQ_FLOAT, NULL);
    bm_node(b, "Gemm", "n", "x w", "y", "transB=1");
    bm_weight(b, "w", "32,65", 3);
}

static onq_code work(bm *b, void *ctx, onq_error *err) {
    weight x;
    bool narrowed = false;
    (void)ctx;
    return quantized(b, &x, b->g->node.v[0], b->g->initializer.v[0], 0, &narrowed, err);
}

static void out_of_memory(void **state) {
    (void)state;
    assert_true(bm_sweep(13, fill, work, NULL) > 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_rows), cmocka_unit_test(conv_places),   cmocka_unit_test(others),
        cmocka_unit_test(many),        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
