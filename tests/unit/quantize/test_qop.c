/*
 * test_qop.c — the operator table: sorted, without duplicates, and as complete as the three
 * registries of the reference.
 */
#include "quantize/operators.h"

#include "testing.h"

#include <string.h>

static void sorted(void **state) {
    (void)state;
    for (size_t i = 1; i < oq_qop_count(); i++)
        assert_true(strcmp(oq_qop_at(i - 1)->type, oq_qop_at(i)->type) < 0);
    assert_null(oq_qop_at(oq_qop_count()));
    for (size_t i = 0; i < oq_qop_count(); i++)
        assert_ptr_equal(oq_qop_find(oq_str_of(oq_qop_at(i)->type)), oq_qop_at(i));
    assert_null(oq_qop_find(OQ_S("Convolution")));
    assert_null(oq_qop_find(OQ_S("")));
}

static void counts(void **state) {
    (void)state;
    size_t qdq = 0, qlinear = 0, integer = 0;
    for (size_t i = 0; i < oq_qop_count(); i++) {
        const oq_qop_row *r = oq_qop_at(i);
        qdq += (r->modes & OQ_QMODE_QDQ) != 0;
        qlinear += (r->modes & OQ_QMODE_QLINEAR) != 0;
        integer += (r->modes & OQ_QMODE_INTEGER) != 0;
        assert_true((r->modes & OQ_QMODE_QDQ) == 0 || r->rule->qdq != NULL);
    }
    assert_int_equal(qdq, 25);     /* len(QDQRegistry) */
    assert_int_equal(qlinear, 26); /* len(QLinearOpsRegistry) */
    assert_int_equal(integer, 7);  /* len(IntegerOpsRegistry) */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sorted), cmocka_unit_test(counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
