/*
 * test_rules.c — the operator table: sorted, without duplicates, as complete as the three
 * registries of the reference, and consistent in itself.
 */
#include "quantize/rules.h"

#include "testing.h"

#include <string.h>

static void sorted(void **state) {
    (void)state;
    for (size_t i = 1; i < oq_operator_count; i++)
        assert_true(strcmp(oq_operators[i - 1].type, oq_operators[i].type) < 0);
    for (size_t i = 0; i < oq_operator_count; i++)
        assert_ptr_equal(oq_operator_find(oq_str_of(oq_operators[i].type)), &oq_operators[i]);
    assert_null(oq_operator_find(OQ_S("Convolution")));
    assert_null(oq_operator_find(OQ_S("")));
    assert_int_equal(oq_rules_modes(OQ_S("Convolution")), 0);
}

static void counts(void **state) {
    (void)state;
    size_t qdq = 0, qlinear = 0, integer = 0;
    for (size_t i = 0; i < oq_operator_count; i++) {
        const unsigned modes = oq_rules_modes(oq_str_of(oq_operators[i].type));
        qdq += (modes & OQ_QMODE_QDQ) != 0;
        qlinear += (modes & OQ_QMODE_QLINEAR) != 0;
        integer += (modes & OQ_QMODE_INTEGER) != 0;
    }
    assert_true(qdq >= 25);     /* len(QDQRegistry) */
    assert_true(qlinear >= 26); /* len(QLinearOpsRegistry) */
    assert_true(integer >= 7);  /* len(IntegerOpsRegistry) */
}

/* A quantized operator stands for a float one that has a row and computes the same way. */
static void twins(void **state) {
    (void)state;
    for (size_t i = 0; i < oq_operator_count; i++) {
        const oq_op_traits *t = &oq_operators[i].traits;
        const unsigned modes = oq_rules_modes(oq_str_of(oq_operators[i].type));
        if (t->form != OQ_FORM_FLOAT)
            assert_int_equal(modes, 0); /* it is quantized already */
        if (t->stands_for == NULL)
            continue;
        const oq_operator *of = oq_operator_find(oq_str_of(t->stands_for));
        assert_non_null(of);
        assert_true(t->form != OQ_FORM_FLOAT && of->traits.form == OQ_FORM_FLOAT);
        assert_true(t->product == OQ_NO_PRODUCT || t->product == of->traits.product);
        assert_true(t->bias == 0 || of->traits.bias != 0);
    }
}

static void weights(void **state) {
    (void)state;
    const oq_op_traits *matmul = oq_op_traits_of(OQ_S("MatMul"));
    const oq_op_traits *conv = oq_op_traits_of(OQ_S("Conv"));
    assert_true(oq_op_takes_weight(matmul, 0) && oq_op_takes_weight(matmul, 1));
    assert_true(!oq_op_takes_weight(conv, 0) && oq_op_takes_weight(conv, 1));
    assert_false(oq_op_takes_weight(conv, 2));
    assert_true(oq_op_takes_weight(oq_op_traits_of(OQ_S("LayerNormalization")), 1));
    assert_false(oq_op_takes_weight(oq_op_traits_of(OQ_S("Gather")), 0));
    assert_false(oq_op_takes_weight(oq_op_traits_of(OQ_S("QLinearConv")), 3));
}

/* Their kinds are found by the names that nodes are made with, and by domain. */
static void kinds(void **state) {
    (void)state;
    static const char *const names[] = {OQ_CONSTANT, OQ_QUANTIZE_LINEAR, OQ_DEQUANTIZE_LINEAR,
                                        OQ_DYNAMIC_QUANTIZE_LINEAR};
    static const char *const domains[] = {"", "ai.onnx", "com.microsoft", "their.domain"};
    for (size_t i = 0; i < OQ_COUNT(names); i++) {
        assert_int_equal(oq_op_traits_of(oq_str_of(names[i]))->kind, OQ_KIND_CONSTANT + i);
        for (size_t d = 0; d < OQ_COUNT(domains); d++) {
            const oq_node n = {.op_type = oq_str_of(names[i]), .domain = oq_str_of(domains[d])};
            assert_int_equal(oq_node_is_constant(&n), i == 0 && d < 2);
            assert_int_equal(oq_node_is_quantize(&n), i == 1 && d < 3);
            assert_int_equal(oq_node_is_dequantize(&n), i == 2 && d < 3);
            assert_int_equal(oq_node_is_pair(&n), (i == 1 || i == 2) && d < 3);
            assert_int_equal(oq_node_is(&n, names[i]), d < 2);
        }
    }
    assert_false(oq_node_is(NULL, "Conv") || oq_node_is_constant(NULL) || oq_node_is_pair(NULL));
    assert_null(oq_node_constant(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sorted), cmocka_unit_test(counts),
                                       cmocka_unit_test(twins), cmocka_unit_test(weights),
                                       cmocka_unit_test(kinds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
