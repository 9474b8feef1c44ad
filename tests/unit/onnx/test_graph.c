/* test_graph.c — the index: producers, consumers, initializers, outer names. */
#include "build_model.h"
#include "onnx/operators.h"
#include "testing.h"

static oq_index index_of(bm *b, const oq_index *parent, oq_graph *g) {
    oq_index ix;
    onq_error err = ONQ_ERROR_INIT;
    assert_int_equal(oq_index_build(&ix, b->a, g, parent, &err), ONQ_OK);
    return ix;
}

static oq_value *find(const oq_index *ix, const char *name) {
    return oq_index_find(ix, oq_str_of(name));
}

static void producers_and_consumers(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "N,3");
    bm_weight(&b, "w", "3,3", 1);
    bm_node(&b, "MatMul", "mm", "x w", "y", "");
    bm_node(&b, "Add", "add", "y y", "z", "");
    bm_node(&b, "Clip", "clip", "z _ w", "out", "");
    bm_output(&b, "out", OQ_FLOAT, NULL);
    bm_info(&b, "y", OQ_FLOAT, "N,3");
    const oq_index ix = index_of(&b, NULL, b.g);

    const oq_value *x = find(&ix, "x");
    assert_true(x->is_input && !x->is_output && x->producer == OQ_NO_NODE && x->info != NULL);
    assert_int_equal(x->uses.n, 1);
    const oq_value *w = find(&ix, "w");
    assert_true(w->init != NULL && !w->is_input);
    assert_int_equal(w->uses.n, 2);
    assert_true(w->uses.v[1].node == 2 && w->uses.v[1].slot == 2);
    const oq_value *y = find(&ix, "y");
    assert_true(y->producer == 0 && y->producer_slot == 0 && y->info == b.g->value_info.v[0]);
    assert_true(y->uses.n == 2 && y->uses.v[0].slot == 0 && y->uses.v[1].slot == 1);
    assert_true(find(&ix, "out")->is_output);
    assert_null(find(&ix, "nothing"));
    assert_null(find(&ix, ""));
    assert_ptr_equal(oq_index_producer(&ix, OQ_S("z")), b.g->node.v[1]);
    assert_null(oq_index_producer(&ix, OQ_S("x")));
    assert_ptr_equal(oq_index_init(&ix, OQ_S("w")), b.g->initializer.v[0]);
    assert_null(oq_index_init(&ix, OQ_S("y")));
    bm_end(&b);
}

static void first_producer_wins(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 13);
    bm_node(&b, "Constant", "one", "", "t", "");
    bm_node(&b, "Constant", "two", "", "t t", "");
    const oq_index ix = index_of(&b, NULL, b.g);
    assert_int_equal(find(&ix, "t")->producer, 0);
    bm_end(&b);
}

static void names_from_outside(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "c", OQ_BOOL, "");
    bm_weight(&b, "w", "2", 1);
    bm_weight(&b, "shadowed", "2", 1);
    bm_node(&b, "Neg", "neg", "w", "outer", "");
    oq_node *branch = bm_node(&b, "If", "if", "c", "r", "");
    oq_graph *around = bm_enter(&b, branch, "then_branch");
    bm_weight(&b, "shadowed", "2", 2);
    bm_node(&b, "Add", "add", "outer shadowed", "t1", "");
    bm_node(&b, "Mul", "mul", "outer w", "t2", "");
    oq_graph *then = b.g;
    bm_output(&b, "t1", OQ_FLOAT, NULL);
    bm_leave(&b, around);
    bm_enter(&b, branch, "else_branch");
    oq_graph *otherwise = b.g;
    bm_output(&b, "outer", OQ_FLOAT, NULL); /* an outer name that only the output mentions */
    bm_leave(&b, around);

    const oq_index ix = index_of(&b, NULL, b.g);
    const oq_value *outer = find(&ix, "outer");
    assert_int_equal(outer->uses.n, 1);
    assert_true(outer->uses.v[0].node == 1 && outer->uses.v[0].slot == OQ_SLOT_INNER);
    assert_int_equal(find(&ix, "w")->uses.n, 2);
    assert_int_equal(find(&ix, "shadowed")->uses.n, 0);
    assert_null(find(&ix, "t1"));

    const oq_index inner = index_of(&b, &ix, then);
    assert_non_null(find(&inner, "outer"));
    assert_false(oq_value_is_defined(find(&inner, "outer")));
    assert_int_equal(find(&inner, "outer")->uses.n, 2);
    assert_ptr_equal(oq_index_lookup(&inner, OQ_S("outer")), outer);
    assert_null(oq_index_producer(&inner, OQ_S("outer")));
    assert_ptr_equal(oq_index_init(&inner, OQ_S("w")), b.g->initializer.v[0]);
    assert_ptr_equal(oq_index_init(&inner, OQ_S("shadowed")), then->initializer.v[0]);
    assert_null(oq_index_lookup(&inner, OQ_S("nowhere")));

    const oq_index third = index_of(&b, &ix, otherwise);
    assert_true(find(&third, "outer")->is_output);
    assert_ptr_equal(oq_index_lookup(&third, OQ_S("outer")), outer);
    bm_end(&b);
}

static void an_inner_name_hides_an_initializer(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 13);
    bm_weight(&b, "w", "2", 1);
    oq_node *loop = bm_node(&b, "Loop", "loop", "w", "r", "");
    oq_graph *around = bm_enter(&b, loop, "body");
    bm_input(&b, "w", OQ_FLOAT, "2");
    oq_graph *body = b.g;
    bm_leave(&b, around);
    const oq_index ix = index_of(&b, NULL, b.g);
    const oq_index inner = index_of(&b, &ix, body);
    assert_null(oq_index_init(&inner, OQ_S("w")));
    assert_non_null(oq_index_init(&ix, OQ_S("w")));
    bm_end(&b);
}

/* An initializer and a Constant node, seen from an inner graph; the domain counts. */
static void constants(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "3");
    bm_weight(&b, "w", "3", 1);
    oq_tensor *value = b.g->initializer.v[0];
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"c", "theirs", "plain"};
        oq_node *n = bm_node(&b, OQ_CONSTANT, names[i], "", names[i], "");
        if (i < 2)
            assert_true(oq_attr_set_tensor(b.a, n, OQ_S("value"), value));
        else
            assert_true(oq_attr_set_float(b.a, n, OQ_S("value_float"), 1.0f));
        n->domain = i == 1 ? OQ_S("their.domain") : OQ_S("ai.onnx");
    }
    bm_node(&b, "Add", "add", "x c", "y", "");
    oq_graph *inside = OQ_NEW(b.a, oq_graph);
    const oq_index ix = index_of(&b, NULL, b.g), inner = index_of(&b, &ix, inside);
    assert_ptr_equal(oq_index_constant(&ix, OQ_S("w")), value);
    assert_ptr_equal(oq_index_constant(&inner, OQ_S("w")), value);
    assert_ptr_equal(oq_index_constant(&inner, OQ_S("c")), value);
    static const char *const others[] = {"x", "y", "theirs", "plain", "nowhere", ""};
    for (size_t i = 0; i < OQ_COUNT(others); i++)
        assert_null(oq_index_constant(&inner, oq_str_of(others[i])));
    bm_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(producers_and_consumers),
        cmocka_unit_test(first_producer_wins),
        cmocka_unit_test(names_from_outside),
        cmocka_unit_test(an_inner_name_hides_an_initializer),
        cmocka_unit_test(constants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
