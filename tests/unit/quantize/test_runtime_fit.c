/*
 * test_runtime_fit.c — the table of what runtimes can run, and models that are rewritten for one:
 * opsets, forms of packed weights, what is refused, and running out of memory. What the runtimes
 * compute: tests/cli/older.sh and tools/check-runtimes.sh.
 */
#include "quantize/convert/runtime_fit.h"

#include "onnx/attr.h"

#include "build_model.h"
#include "testing.h"

static const oq_runtime *runtime(const char *version) {
    const oq_runtime *r = oq_runtime_find(version);
    assert_non_null(r);
    return r;
}

static void versions(void **state) {
    (void)state;
    assert_int_equal(runtime("1.20")->minor, 20);
    assert_ptr_equal(runtime("1.20.1"), runtime("1.20"));
    assert_null(oq_runtime_find("1.2"));
    assert_null(oq_runtime_find("1."));
    assert_null(oq_runtime_find("2.20"));
    assert_null(oq_runtime_find("1.20x"));
    assert_null(oq_runtime_find("1.999"));
    assert_int_equal(oq_runtime_oldest()->minor, 19);
    for (const oq_runtime *r = oq_runtime_oldest(); r < oq_runtime_newest(); r++) {
        assert_true(r[0].minor < r[1].minor);
        assert_true(r[0].opset >= 21 && r[0].opset <= r[1].opset && r[0].ir <= r[1].ir);
    }
    assert_int_equal(oq_runtime_since(OQ_CAN_pair_int8)->minor, 19);
    assert_true(oq_runtime_since(OQ_CAN_nbits8)->minor > 20);
    assert_null(oq_runtime_since(OQ_CAN_nbits4_block512));
}

/* y = x times a packed weight of 16 x 2. */
static void fill_bits(bm *b, int bits, bool real_zero) {
    static const uint8_t q[32] = {1, 2, 3, 4};
    static const float scales[2] = {0.5f, 0.25f};
    char attributes[64];
    snprintf(attributes, sizeof attributes, "K=16 N=2 block_size=16 bits=%d", bits);
    bm_input(b, "x", OQ_FLOAT, "1,16");
    bm_raw(b, "w", OQ_UINT8,
           bits == 8   ? "2,1,16"
           : bits == 4 ? "2,1,8"
                       : "2,1,4",
           q, (size_t)(4 * bits));
    bm_f32(b, "s", "2", scales);
    bm_f32(b, "z", "2", scales);
    oq_node *n = bm_node(b, "MatMulNBits", "n", real_zero ? "x w s z" : "x w s", "y", attributes);
    if (n != NULL)
        n->domain = OQ_S("com.microsoft");
    bm_output(b, "y", OQ_FLOAT, "1,2");
}

static onq_code fit(bm *b, const char *version, oq_runtime_fitted *f, onq_error *err) {
    return oq_runtime_fit(b->m, runtime(version), f, err);
}

static bool has(const bm *b, const char *type) {
    for (size_t i = 0; i < b->g->node.n; i++)
        if (oq_str_is(b->g->node.v[i]->op_type, type))
            return true;
    return false;
}

static void forms(void **state) {
    (void)state;
    static const struct {
        int bits;
        bool real_zero;
        const char *version, *left, *refused;
    } rows[] = {
        {4, false, "1.19", "MatMulNBits", NULL},
        {8, false, "1.20", "DequantizeLinear", NULL},
        {8, false, "1.31", "MatMulNBits", NULL},
        {4, true, "1.19", "MatMulNBits", NULL},
        {8, true, "1.20", NULL, "float zero points"},
        {2, false, "1.20", NULL, "MatMulNBits of 2 bits symmetric (1.24 and later can; what"},
        {2, false, "1.31", "MatMulNBits", NULL}};
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        bm b;
        oq_runtime_fitted f;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 17);
        fill_bits(&b, rows[i].bits, rows[i].real_zero);
        const onq_code rc = fit(&b, rows[i].version, &f, &err);
        if (rows[i].refused != NULL) {
            assert_int_equal(rc, ONQ_E_UNSUPPORTED);
            assert_non_null(strstr(err.text, "node 'n' (MatMulNBits): ONNX Runtime 1.20 cannot"));
            assert_non_null(strstr(err.text, rows[i].refused));
        } else {
            assert_ok(rc, err);
            assert_true(has(&b, rows[i].left));
            assert_int_equal(oq_runtime_fit_changed(&f), has(&b, "DequantizeLinear"));
        }
        bm_end(&b);
    }
}

static void opsets(void **state) {
    (void)state;
    for (int attribute = 0; attribute < 2; attribute++) {
        bm b;
        oq_runtime_fitted f;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 28);
        b.m->proto->ir_version.v = 13;
        bm_input(&b, "x", OQ_FLOAT, "1,16");
        bm_node(&b, "Range", "c", "x x x", "y", attribute ? "stash_type=1" : "");
        bm_output(&b, "y", OQ_FLOAT, "1,16");
        const onq_code rc = fit(&b, "1.20", &f, &err);
        if (attribute) {
            assert_int_equal(rc, ONQ_E_UNSUPPORTED);
            assert_string_equal(err.text, "node 'c' (Range) needs opset 27, and ONNX Runtime 1.20 "
                                          "runs opset 21 at most");
            assert_int_equal(oq_model_opset(b.m, OQ_S("")), 28);
        } else {
            assert_ok(rc, err);
            assert_int_equal(f.opset_was, 28);
            assert_int_equal(oq_model_opset(b.m, OQ_S("")), 21);
            assert_int_equal(b.m->proto->ir_version.v, 10);
        }
        bm_end(&b);
    }
}

/* y = the integer convolution of x with a weight of int8, with a zero point or without. */
static void fill_conv(bm *b, bool zero) {
    static const int8_t w[4] = {-128, -1, 0, 127}, z = -3;
    bm_input(b, "x", OQ_UINT8, "1,2,3,3");
    bm_raw(b, "w", OQ_INT8, "2,2,1,1", w, sizeof w);
    bm_raw(b, "z", OQ_INT8, "", &z, 1);
    bm_node(b, "ConvInteger", "c", zero ? "x w  z" : "x w", "y", "");
    bm_output(b, "y", OQ_INT32, "1,2,3,3");
}

static void has_bytes(bm *b, oq_str name, const uint8_t *want, size_t n) {
    oq_span data;
    onq_error err = ONQ_ERROR_INIT;
    oq_tensor *t = NULL;
    for (size_t i = 0; i < b->g->initializer.n; i++)
        if (oq_str_eq(b->g->initializer.v[i]->name, name))
            t = b->g->initializer.v[i];
    assert_non_null(t);
    assert_int_equal(t->data_type.v, OQ_UINT8);
    assert_ok(oq_model_data(b->m, t, &data, &err), err);
    assert_int_equal(data.n, n);
    assert_memory_equal(data.p, want, n);
}

static void conv_weights(void **state) {
    static const uint8_t shifted[4] = {0, 127, 128, 255};
    (void)state;
    for (int i = 0; i < 4; i++) {
        const bool zero = (i & 1) != 0, old = i < 2;
        const uint8_t point = zero ? 125 : 128;
        bm b;
        oq_runtime_fitted f;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 17);
        fill_conv(&b, zero);
        assert_ok(fit(&b, old ? "1.23" : "1.24", &f, &err), err);
        assert_int_equal(oq_runtime_fit_changed(&f), old);
        if (old) {
            const oq_node *n = b.g->node.v[0];
            assert_string_equal(f.form, "uint8 instead of int8");
            assert_int_equal(f.n_form, 1);
            assert_int_equal(n->input.n, 4);
            has_bytes(&b, n->input.v[1], shifted, sizeof shifted);
            has_bytes(&b, n->input.v[3], &point, 1);
        }
        bm_end(&b);
    }
}

/* A weight that is no constant cannot be shifted; DynamicQuantizeLinear makes uint8. */
static void conv_computed(void **state) {
    (void)state;
    for (int dynamic = 0; dynamic < 2; dynamic++) {
        bm b;
        oq_runtime_fitted f;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 17);
        bm_input(&b, "x", OQ_UINT8, "1,2,3,3");
        bm_input(&b, "v", dynamic ? OQ_FLOAT : OQ_INT8, "2,2,1,1");
        if (dynamic)
            bm_node(&b, "DynamicQuantizeLinear", "d", "v", "w s z", "");
        bm_node(&b, "ConvInteger", "c", dynamic ? "x w" : "x v", "y", "");
        bm_output(&b, "y", OQ_INT32, "1,2,3,3");
        const onq_code rc = fit(&b, "1.23", &f, &err);
        if (dynamic) {
            assert_ok(rc, err);
            assert_false(oq_runtime_fit_changed(&f));
        } else {
            assert_int_equal(rc, ONQ_E_UNSUPPORTED);
            assert_string_equal(err.text, "node 'c' (ConvInteger): ONNX Runtime 1.23 cannot run "
                                          "ConvInteger with an int8 weight (1.24 and later can)");
        }
        bm_end(&b);
    }
}

static void fill_conv_zero(bm *b) {
    fill_conv(b, true);
}

static void fill8(bm *b) {
    fill_bits(b, 8, false);
}

static onq_code work(bm *b, void *ctx, onq_error *err) {
    oq_runtime_fitted f;
    (void)ctx;
    return fit(b, "1.20", &f, err);
}

static void oom(void **state) {
    (void)state;
    bm_sweep(21, fill8, work, NULL);
    bm_sweep(21, fill_conv_zero, work, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions),     cmocka_unit_test(forms),         cmocka_unit_test(opsets),
        cmocka_unit_test(conv_weights), cmocka_unit_test(conv_computed), cmocka_unit_test(oom)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
