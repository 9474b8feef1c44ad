/* test_attr.c — attributes by name. */
#include "onnx/attr.h"
#include "testing.h"

static oq_arena arena;

static int set_up(void **state) {
    (void)state;
    oq_arena_init(&arena, oq_alloc_default());
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    oq_arena_release(&arena);
    return 0;
}

static void absent_gives_the_fallback(void **state) {
    (void)state;
    const oq_node n = {0};
    assert_null(oq_attr_find(&n, "axis"));
    assert_int_equal(oq_attr_int(&n, "axis", -7), -7);
    assert_true(oq_attr_float(&n, "alpha", 0.5f) == 0.5f);
    assert_true(oq_str_is(oq_attr_str(&n, "mode", "constant"), "constant"));
    assert_null(oq_attr_ints(&n, "pads"));
}

static void set_then_read(void **state) {
    (void)state;
    oq_node n = {0};
    const int64_t pads[] = {1, 2};
    assert_true(oq_attr_set_int(&arena, &n, OQ_S("axis"), 3));
    assert_true(oq_attr_set_float(&arena, &n, OQ_S("alpha"), 0.25f));
    assert_true(oq_attr_set_str(&arena, &n, OQ_S("mode"), OQ_S("edge")));
    assert_true(oq_attr_set_ints(&arena, &n, OQ_S("pads"), pads, 2));
    assert_int_equal(n.attribute.n, 4);
    assert_int_equal(oq_attr_int(&n, "axis", 0), 3);
    assert_true(oq_attr_float(&n, "alpha", 0) == 0.25f);
    assert_true(oq_str_is(oq_attr_str(&n, "mode", ""), "edge"));
    const oq_i64s *got = oq_attr_ints(&n, "pads");
    assert_true(got->n == 2 && got->v[0] == 1 && got->v[1] == 2);
    /* Of another type: the fallback. */
    assert_int_equal(oq_attr_int(&n, "alpha", 9), 9);
    assert_null(oq_attr_ints(&n, "axis"));
}

static void set_again_keeps_the_place_and_drops_the_old_value(void **state) {
    (void)state;
    oq_node n = {0};
    assert_true(oq_attr_set_int(&arena, &n, OQ_S("a"), 1));
    assert_true(oq_attr_set_int(&arena, &n, OQ_S("b"), 2));
    n.attribute.v[0]->doc_string = OQ_S("kept");
    assert_true(oq_attr_set_str(&arena, &n, OQ_S("a"), OQ_S("x")));
    assert_int_equal(n.attribute.n, 2);
    const oq_attribute *a = n.attribute.v[0];
    assert_true(oq_str_is(a->name, "a") && oq_str_is(a->s, "x"));
    assert_false(a->i.has);
    assert_int_equal(a->type.v, OQ_ATTR_STRING);
    assert_true(oq_str_is(a->doc_string, "kept"));
}

static void ints_from_itself(void **state) {
    (void)state;
    oq_node n = {0};
    const int64_t v[] = {4, 5, 6};
    assert_true(oq_attr_set_ints(&arena, &n, OQ_S("axes"), v, 3));
    const oq_i64s *old = oq_attr_ints(&n, "axes");
    assert_true(oq_attr_set_ints(&arena, &n, OQ_S("axes"), old->v + 1, 2));
    const oq_i64s *got = oq_attr_ints(&n, "axes");
    assert_true(got->n == 2 && got->v[0] == 5 && got->v[1] == 6);
}

static void without_a_type_the_field_decides(void **state) {
    (void)state;
    oq_node n = {0};
    assert_true(oq_attr_set_int(&arena, &n, OQ_S("axis"), 3));
    n.attribute.v[0]->type = (oq_opt_i32){0};
    assert_int_equal(oq_attr_int(&n, "axis", 0), 3);
    assert_true(oq_attr_float(&n, "axis", 1.5f) == 1.5f);
}

static void a_reference_has_no_value(void **state) {
    (void)state;
    oq_node n = {0};
    assert_true(oq_attr_set_int(&arena, &n, OQ_S("axis"), 3));
    n.attribute.v[0]->ref_attr_name = OQ_S("outer_axis");
    assert_int_equal(oq_attr_int(&n, "axis", -1), -1);
}

static void removing(void **state) {
    (void)state;
    oq_node n = {0};
    assert_true(oq_attr_set_int(&arena, &n, OQ_S("a"), 1));
    assert_true(oq_attr_set_int(&arena, &n, OQ_S("b"), 2));
    assert_true(oq_attr_remove(&n, "a"));
    assert_false(oq_attr_remove(&n, "a"));
    assert_int_equal(n.attribute.n, 1);
    assert_int_equal(oq_attr_int(&n, "b", 0), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_gives_the_fallback),
        cmocka_unit_test(set_then_read),
        cmocka_unit_test(set_again_keeps_the_place_and_drops_the_old_value),
        cmocka_unit_test(ints_from_itself),
        cmocka_unit_test(without_a_type_the_field_decides),
        cmocka_unit_test(a_reference_has_no_value),
        cmocka_unit_test(removing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
