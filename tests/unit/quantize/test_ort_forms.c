/*
 * test_ort_forms.c — forms that ONNX Runtime's optimisers leave alone. What the runtime makes of
 * them is in tests/parity/test_op_set.py.
 */
#include "quantize/ort/ort_forms.h"

#include "build_model.h"
#include "onnx/check/check.h"
#include "onnx/edit.h"
#include "testing.h"

#include <math.h>

static void pair_params(bm *b) {
    const float scale = 0.5f;
    const uint8_t zero = 128;
    bm_f32(b, "s", "", &scale);
    bm_raw(b, "z", OQ_UINT8, "", &zero, 1);
}

/* x -> DQ -> Conv -> Relu -> Q -> y; `link` is the node behind the Conv. */
static void chain(bm *b, const char *link) {
    bm_input(b, "x", OQ_UINT8, "1,3,4,4");
    pair_params(b);
    bm_weight(b, "w", "2,3,1,1", 1);
    bm_node(b, "DequantizeLinear", "dq", "x s z", "d", "");
    bm_node(b, "Conv", "conv", "d w", "t", "");
    bm_node(b, link, "act", "t", "r", "");
    bm_node(b, "QuantizeLinear", "q", "r s z", "y", "");
    bm_output(b, "y", OQ_UINT8, "1,2,4,4");
}

static size_t found(bm *b, double *sqnr) {
    oq_forms_hits hits = {0};
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_forms_find(b->m, b->a, &hits, &err), err);
    if (hits.n > 0)
        *sqnr = hits.v[0].sqnr;
    return hits.n;
}

static void protects(void **state) {
    (void)state;
    bm b;
    oq_fresh names;
    size_t n = 0;
    double sqnr = 0;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    chain(&b, "Relu");
    assert_int_equal(found(&b, &sqnr), 1);
    assert_true(sqnr > 30 && sqnr < 60);
    assert_ok(oq_fresh_init(&names, b.a, b.m, &err), err);
    assert_ok(oq_forms_protect(b.m, &names, &n, &err), err);
    assert_int_equal(n, 1);
    assert_ok(oq_topo_sort_reference(b.m, b.g, &err), err);
    assert_ok(oq_model_check(b.m, &err), err);
    const oq_node *max = bm_find_node(&b, "conv_kept");
    assert_true(oq_str_is(max->op_type, "Max"));
    assert_true(oq_str_is(max->input.v[0], "r"));
    assert_true(oq_str_eq(bm_find_node(&b, "q")->input.v[0], max->output.v[0]));
    assert_int_equal(found(&b, &sqnr), 0); /* and it is not done twice */
    bm_end(&b);
}

static void leaves_alone(void **state) {
    (void)state;
    bm b;
    double sqnr = 0;
    /* Behind a Sigmoid the runtime does not look. */
    bm_begin(&b, NULL, 13);
    chain(&b, "Sigmoid");
    assert_int_equal(found(&b, &sqnr), 0);
    bm_end(&b);
    /* Two readers. */
    bm_begin(&b, NULL, 13);
    chain(&b, "Relu");
    bm_node(&b, "Sigmoid", "other", "r", "o", "");
    bm_output(&b, "o", OQ_FLOAT, "1,2,4,4");
    assert_int_equal(found(&b, &sqnr), 0);
    bm_end(&b);
    /* The output leaves the graph. */
    bm_begin(&b, NULL, 13);
    chain(&b, "Relu");
    bm_output(&b, "r", OQ_FLOAT, "1,2,4,4");
    assert_int_equal(found(&b, &sqnr), 0);
    bm_end(&b);
    /* Quantized already. */
    bm_begin(&b, NULL, 13);
    chain(&b, "Relu");
    bm_node(&b, "DequantizeLinear", "dw", "x s z", "wd", "");
    bm_find_node(&b, "conv")->input.v[1] = OQ_S("wd");
    assert_int_equal(found(&b, &sqnr), 0);
    bm_end(&b);
}

/* ---- products ---- */

/* x -> DQ -> MatMul(DQ(w)) -> Add(bias), twice with one bias. */
static void products(bm *b, const char *rows) {
    const float bias[] = {1.5f, -2.0f};
    const uint8_t w[6] = {1, 2, 3, 4, 5, 6};
    bm_input(b, "x", OQ_UINT8, rows);
    pair_params(b);
    bm_raw(b, "wq", OQ_UINT8, "3,2", w, sizeof w);
    bm_f32(b, "bias", "2", bias);
    bm_node(b, "DequantizeLinear", "dq", "x s z", "d", "");
    bm_node(b, "DequantizeLinear", "dw", "wq s z", "w", "");
    bm_node(b, "MatMul", "m1", "d w", "t1", "");
    bm_node(b, "Add", "a1", "t1 bias", "y1", "");
    bm_node(b, "MatMul", "m2", "d w", "t2", "");
    bm_node(b, "Add", "a2", "bias t2", "y2", "");
    bm_output(b, "y1", OQ_FLOAT, NULL);
    bm_output(b, "y2", OQ_FLOAT, NULL);
}

static size_t guarded(bm *b) {
    oq_fresh names;
    oq_shapes *shapes = NULL;
    size_t n = 0;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_shapes_infer(b->m, NULL, &shapes, &err), err);
    assert_ok(oq_fresh_init(&names, b->a, b->m, &err), err);
    assert_ok(oq_forms_products(b->m, shapes, &names, &n, &err), err);
    assert_ok(oq_model_check(b->m, &err), err);
    oq_shapes_free(shapes);
    return n;
}

static void biases(void **state) {
    (void)state;
    static const struct {
        const char *rows;
        size_t n;
    } wanted[] = {{"4,3", 2}, {"N,3", 2}, {"2,4,3", 2}, {"N,4,3", 0}, {"N,M,3", 0}};
    for (size_t i = 0; i < OQ_COUNT(wanted); i++) {
        bm b;
        float *v;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 13);
        products(&b, wanted[i].rows);
        assert_int_equal(guarded(&b), wanted[i].n);
        const oq_node *add = bm_find_node(&b, "a2");
        assert_true(oq_str_is(add->op_type, wanted[i].n > 0 ? "Sub" : "Add"));
        if (wanted[i].n > 0) {
            assert_true(oq_str_is(add->input.v[0], "t2"));
            assert_true(oq_str_eq(add->input.v[1], bm_find_node(&b, "a1")->input.v[1]));
            oq_tensor *t = oq_graph_find_init(b.g, add->input.v[1]);
            assert_ok(oq_tensor_floats(b.m, t, b.a, &v, NULL, &err), err);
            assert_true(v[0] == -1.5f && v[1] == 2.0f);
        }
        bm_end(&b);
    }
}

static void fill_chain(bm *b) {
    chain(b, "Relu");
}

static void fill_products(bm *b) {
    products(b, "4,3");
}

static onq_code work(bm *b, void *ctx, onq_error *err) {
    oq_fresh names;
    oq_shapes *shapes = NULL;
    oq_forms_hits hits = {0};
    size_t n;
    (void)ctx;
    onq_code rc = oq_shapes_infer(b->m, NULL, &shapes, err);
    if (rc == ONQ_OK)
        rc = oq_fresh_init(&names, b->a, b->m, err);
    if (rc == ONQ_OK)
        rc = oq_forms_find(b->m, b->a, &hits, err);
    if (rc == ONQ_OK)
        rc = oq_forms_protect(b->m, &names, &n, err);
    if (rc == ONQ_OK)
        rc = oq_forms_products(b->m, shapes, &names, &n, err);
    oq_shapes_free(shapes);
    return rc;
}

static void out_of_memory(void **state) {
    (void)state;
    assert_true(bm_sweep(13, fill_chain, work, NULL) > 3);
    assert_true(bm_sweep(13, fill_products, work, NULL) > 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(protects),
        cmocka_unit_test(leaves_alone),
        cmocka_unit_test(biases),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
