/* test_edit.c — adding, removing, renaming, unique names, walks, and what nothing uses. */
#include "build_model.h"
#include "testing.h"

#include <stdio.h>

static void make_and_remove(void **state) {
    (void)state;
    bm b;
    char text[64];
    bm_begin(&b, NULL, 13);
    const oq_str in[] = {OQ_S("x"), {NULL, 0}}, out[] = {OQ_S("y")};
    oq_node *n = oq_node_make(b.a, "Clip", OQ_S("clip"), in, 2, out, 1);
    assert_true(oq_graph_add_node(b.a, b.g, oq_node_new(b.a, "A", OQ_S("first"))));
    assert_true(oq_graph_add_node(b.a, b.g, oq_node_new(b.a, "B", OQ_S("second"))));
    assert_true(oq_graph_add_node(b.a, b.g, n));
    assert_true(oq_graph_add_node(b.a, b.g, oq_node_new(b.a, "C", OQ_S("last"))));
    assert_string_equal(bm_order(b.g, text, sizeof text), "first second clip last");
    assert_true(n->input.n == 2 && n->input.v[1].p != NULL && n->input.v[1].n == 0);
    const bool drop[] = {true, false, true, false};
    oq_graph_remove_nodes(b.g, drop);
    assert_string_equal(bm_order(b.g, text, sizeof text), "second last");
    bm_end(&b);
}

static void initializers_and_infos(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 13);
    bm_weight(&b, "w1", "2", 1);
    oq_tensor *w2 = bm_weight(&b, "w2", "2", 2);
    bm_input(&b, "x", OQ_FLOAT, "N,?,3");
    bm_info(&b, "t", OQ_INT8, NULL);
    assert_ptr_equal(oq_graph_find_init(b.g, OQ_S("w2")), w2);
    assert_true(oq_graph_remove_init(b.g, OQ_S("w1")));
    assert_false(oq_graph_remove_init(b.g, OQ_S("w1")));
    assert_int_equal(b.g->initializer.n, 1);
    const oq_shape *s = b.g->input.v[0]->type->tensor_type->shape;
    assert_int_equal(s->dim.n, 3);
    assert_true(oq_str_is(s->dim.v[0]->dim_param, "N"));
    assert_true(!s->dim.v[1]->dim_value.has && s->dim.v[1]->dim_param.p == NULL);
    assert_int_equal(s->dim.v[2]->dim_value.v, 3);
    assert_null(b.g->value_info.v[0]->type->tensor_type->shape);
    bm_end(&b);
}

/* An If whose branches use `t`: one takes it from outside, one has its own. */
static oq_node *add_branches(bm *b, oq_graph **then, oq_graph **otherwise) {
    oq_node *n = bm_node(b, "If", "if", "c", "r", "");
    oq_graph *around = bm_enter(b, n, "then_branch");
    bm_node(b, "Neg", "in_then", "t", "u1", "");
    bm_output(b, "u1", OQ_FLOAT, NULL);
    bm_output(b, "t", OQ_FLOAT, NULL);
    *then = b->g;
    bm_leave(b, around);
    bm_enter(b, n, "else_branch");
    bm_weight(b, "t", "1", 1);
    bm_node(b, "Neg", "in_else", "t", "u2", "");
    bm_output(b, "u2", OQ_FLOAT, NULL);
    *otherwise = b->g;
    bm_leave(b, around);
    return n;
}

static void replacing_uses(void **state) {
    (void)state;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    oq_graph *then, *otherwise;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "c", OQ_BOOL, "");
    bm_node(&b, "Neg", "maker", "x", "t", "");
    bm_node(&b, "Add", "add", "t t", "s", "");
    add_branches(&b, &then, &otherwise);
    bm_output(&b, "t", OQ_FLOAT, NULL);
    oq_map one, map;
    oq_map_init(&one, b.a);
    const oq_str t2 = OQ_S("t2");
    assert_true(oq_map_put(&one, OQ_S("t"), 0));
    assert_int_equal(oq_graph_replace_many(b.m, b.g, &one, &t2, &err), ONQ_OK);
    assert_true(oq_str_is(b.g->node.v[1]->input.v[0], "t2"));
    assert_true(oq_str_is(b.g->node.v[1]->input.v[1], "t2"));
    assert_true(oq_str_is(b.g->node.v[0]->output.v[0], "t"));
    assert_true(oq_str_is(b.g->output.v[0]->name, "t"));
    assert_true(oq_str_is(then->node.v[0]->input.v[0], "t2"));
    assert_true(oq_str_is(then->output.v[1]->name, "t2"));
    assert_true(oq_str_is(otherwise->node.v[0]->input.v[0], "t"));

    oq_map_init(&map, b.a);
    const oq_str to[] = {OQ_S("t3"), OQ_S("c2")};
    assert_true(oq_map_put(&map, OQ_S("t2"), 0) && oq_map_put(&map, OQ_S("c"), 1));
    assert_int_equal(oq_graph_replace_many(b.m, b.g, &map, to, &err), ONQ_OK);
    assert_true(oq_str_is(b.g->node.v[1]->input.v[1], "t3"));
    assert_true(oq_str_is(b.g->node.v[2]->input.v[0], "c2"));
    assert_true(oq_str_is(then->node.v[0]->input.v[0], "t3"));
    assert_true(oq_str_is(then->output.v[1]->name, "t3"));
    assert_true(oq_str_is(otherwise->node.v[0]->input.v[0], "t"));
    bm_end(&b);
}

static void unique_names(void **state) {
    (void)state;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    oq_graph *then, *otherwise;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "1");
    bm_weight(&b, "w", "1", 1);
    bm_weight(&b, "w_2", "1", 1);
    bm_info(&b, "info", OQ_FLOAT, NULL);
    add_branches(&b, &then, &otherwise);
    oq_names names;
    assert_int_equal(oq_names_collect(&names, b.a, b.m, &err), ONQ_OK);
    const char *const taken[] = {"x", "w", "info", "if", "c", "r", "in_then", "t", "u1", "u2"};
    for (size_t i = 0; i < OQ_COUNT(taken); i++)
        assert_true(oq_names_has(&names, oq_str_of(taken[i])));
    assert_false(oq_names_has(&names, OQ_S("fresh")));
    assert_true(oq_str_is(oq_names_unique(&names, OQ_S("fresh")), "fresh"));
    assert_true(oq_str_is(oq_names_unique(&names, OQ_S("fresh")), "fresh_1"));
    assert_true(oq_str_is(oq_names_unique(&names, OQ_S("w")), "w_1"));
    assert_true(oq_str_is(oq_names_unique(&names, OQ_S("w")), "w_3"));
    assert_true(oq_str_is(oq_names_unique(&names, OQ_S("w")), "w_4"));
    assert_true(oq_str_is(oq_names_unique(&names, OQ_S("w_3")), "w_3_1"));
    bm_end(&b);
}

static void assert_inits(const oq_graph *g, const char *const *names, size_t n) {
    assert_int_equal(g->initializer.n, n);
    for (size_t i = 0; i < n; i++)
        assert_true(oq_str_is(g->initializer.v[i]->name, names[i]));
}

static void pruning(void **state) {
    (void)state;
    bm b;
    char text[128];
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "1");
    bm_input(&b, "idle", OQ_FLOAT, "1");
    bm_weight(&b, "idle", "1", 1); /* the default of an input that nothing uses */
    bm_weight(&b, "used", "1", 1);
    bm_weight(&b, "inner", "1", 1);
    bm_weight(&b, "unused", "1", 1);
    bm_weight(&b, "dead_w", "1", 1);
    bm_weight(&b, "out_w", "1", 1);
    bm_info(&b, "dead_t", OQ_FLOAT, NULL);
    bm_info(&b, "y", OQ_FLOAT, NULL);
    bm_node(&b, "Add", "live", "x used", "y", "");
    bm_node(&b, "Add", "dead1", "y dead_w", "dead_t", "");
    bm_node(&b, "Neg", "dead2", "dead_t", "dead_u", "");
    oq_node *n = bm_node(&b, "If", "if", "x", "r", "");
    oq_graph *around = bm_enter(&b, n, "then_branch");
    bm_node(&b, "Add", "in", "y inner", "u", "");
    bm_output(&b, "u", OQ_FLOAT, NULL);
    bm_leave(&b, around);
    bm_output(&b, "r", OQ_FLOAT, NULL);
    bm_output(&b, "out_w", OQ_FLOAT, NULL);
    b.m->touched = false;
    assert_int_equal(oq_graph_prune(b.m, b.g, &err), ONQ_OK);
    assert_true(b.m->touched);
    assert_string_equal(bm_order(b.g, text, sizeof text), "live if");
    const char *const kept[] = {"idle", "used", "inner", "out_w"};
    assert_inits(b.g, kept, OQ_COUNT(kept));
    assert_int_equal(b.g->value_info.n, 1);
    assert_int_equal(b.g->input.n, 2);
    bm_end(&b);
}

static void pruning_initializers_as_the_reference(void **state) {
    (void)state;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "1");
    bm_input(&b, "idle", OQ_FLOAT, "1");
    bm_weight(&b, "idle", "1", 1);
    bm_weight(&b, "used", "1", 1);
    bm_weight(&b, "used", "1", 2); /* a second one of the name */
    bm_weight(&b, "for_dead", "1", 1);
    bm_weight(&b, "out", "1", 1);
    bm_weight(&b, "hidden", "1", 1);
    bm_node(&b, "Add", "n", "x used", "y", "");
    bm_node(&b, "Add", "dead", "y for_dead", "z", "");
    bm_node(&b, "Neg", "hides", "x", "hidden", "");
    bm_node(&b, "Neg", "reads", "hidden", "v", "");
    oq_node *branch = bm_node(&b, "If", "if", "x", "r", "");
    oq_graph *around = bm_enter(&b, branch, "then_branch");
    oq_graph *then = b.g;
    bm_weight(&b, "inner_idle", "1", 1);
    bm_node(&b, "Neg", "in", "x", "u", "");
    bm_leave(&b, around);
    bm_output(&b, "out", OQ_FLOAT, NULL);
    assert_int_equal(oq_graph_prune_inits(b.m, b.g, &err), ONQ_OK);
    const char *const kept[] = {"used", "for_dead", "out"};
    assert_inits(b.g, kept, OQ_COUNT(kept));
    assert_int_equal(b.g->input.n, 1); /* the input goes with its initializer */
    assert_int_equal(b.g->node.n, 5);
    assert_int_equal(then->initializer.n, 0);
    bm_end(&b);
}

/* ---- walks ---- */

typedef struct seen {
    char text[256];
} seen;

static void see(seen *s, oq_str name, const char *mark) {
    const size_t n = strlen(s->text);
    snprintf(s->text + n, sizeof s->text - n, "%.*s%s ", OQ_STR(name), mark);
}

static onq_code see_graph(void *ctx, oq_graph *g, onq_error *err) {
    (void)err;
    see(ctx, g->name, "");
    return ONQ_OK;
}

static onq_code see_tensor(void *ctx, oq_tensor *t, bool in_attribute, onq_error *err) {
    (void)err;
    see(ctx, t->name, in_attribute ? "@" : "");
    return ONQ_OK;
}

static onq_code refuse(void *ctx, oq_tensor *t, bool in_attribute, onq_error *err) {
    (void)ctx;
    (void)t;
    (void)in_attribute;
    return oq_fail(err, ONQ_E_CANCEL, "enough");
}

static void walks(void **state) {
    (void)state;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    oq_graph *then, *otherwise;
    bm_begin(&b, NULL, 13);
    bm_weight(&b, "w", "1", 1);
    oq_node *c = bm_node(&b, "Constant", "k", "", "kt", "");
    const float one = 1;
    assert_true(oq_attr_set_tensor(b.a, c, OQ_S("value"),
                                   bm_tensor(&b, "v", OQ_FLOAT, "1", &one, sizeof one)));
    add_branches(&b, &then, &otherwise);
    oq_sparse *sparse = OQ_NEW(b.a, oq_sparse);
    sparse->values = bm_tensor(&b, "sv", OQ_FLOAT, "1", &one, sizeof one);
    const int64_t zero = 0;
    sparse->indices = bm_tensor(&b, "si", OQ_INT64, "1", &zero, sizeof zero);
    assert_true(OQ_PUSH(b.a, &b.g->sparse_initializer, sparse));
    oq_function *f = OQ_NEW(b.a, oq_function);
    oq_node *in_f = oq_node_new(b.a, "Constant", OQ_S("fk"));
    assert_true(oq_attr_set_tensor(b.a, in_f, OQ_S("value"),
                                   bm_tensor(&b, "fv", OQ_FLOAT, "1", &one, sizeof one)));
    assert_true(OQ_PUSH(b.a, &f->node, in_f) && OQ_PUSH(b.a, &b.m->proto->functions, f));
    oq_training *t = OQ_NEW(b.a, oq_training);
    t->algorithm = OQ_NEW(b.a, oq_graph);
    assert_true(OQ_PUSH(b.a, &t->algorithm->initializer,
                        bm_tensor(&b, "tw", OQ_FLOAT, "1", &one, sizeof one)));
    assert_true(OQ_PUSH(b.a, &b.m->proto->training_info, t));

    seen graphs = {{0}}, tensors = {{0}};
    assert_int_equal(oq_walk_graphs(b.g, see_graph, &graphs, &err), ONQ_OK);
    assert_string_equal(graphs.text, "test then_branch else_branch ");
    assert_int_equal(oq_walk_tensors(b.m, see_tensor, &tensors, &err), ONQ_OK);
    assert_string_equal(tensors.text, "w sv si v@ t fv@ tw ");
    assert_int_equal(oq_walk_tensors(b.m, refuse, NULL, &err), ONQ_E_CANCEL);
    bm_end(&b);
}

static void nesting_has_a_limit(void **state) {
    (void)state;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    oq_graph *top = b.g;
    for (int i = 0; i < OQ_MAX_GRAPH_DEPTH + 1; i++)
        bm_enter(&b, bm_node(&b, "If", "if", "outside", "r", ""), "then_branch");
    b.g = top;
    seen s = {{0}};
    assert_int_equal(oq_walk_graphs(top, see_graph, &s, &err), ONQ_E_LIMIT);
    oq_index ix;
    assert_int_equal(oq_index_build(&ix, b.a, top, NULL, &err), ONQ_E_LIMIT);
    oq_map map;
    oq_map_init(&map, b.a);
    assert_int_equal(oq_graph_replace_many(b.m, top, &map, NULL, &err), ONQ_E_LIMIT);
    bm_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(make_and_remove), cmocka_unit_test(initializers_and_infos),
        cmocka_unit_test(replacing_uses),  cmocka_unit_test(unique_names),
        cmocka_unit_test(pruning),         cmocka_unit_test(pruning_initializers_as_the_reference),
        cmocka_unit_test(walks),           cmocka_unit_test(nesting_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
