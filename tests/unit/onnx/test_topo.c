/* test_topo.c — the stable order, the reference's order, cycles, long chains. */
#include "onnx/tidy.h"

#include "build_model.h"
#include "testing.h"

#include <stdio.h>
#include <time.h>

/* An empty model, and what a test makes of it. */
typedef struct topo {
    bm b;
    char text[256];
    onq_code rc;
    onq_error err;
} topo;

static int begin(void **state) {
    static topo t;
    t = (topo){.err = ONQ_ERROR_INIT};
    bm_begin(&t.b, NULL, 13);
    *state = &t;
    return 0;
}

static int end(void **state) {
    topo *t = *state;
    bm_end(&t->b);
    return 0;
}

/* The names of the nodes in topological order. */
static const char *stable_order(topo *t) {
    oq_index ix;
    uint32_t *order = NULL;
    t->text[0] = '\0';
    t->rc = oq_index_build(&ix, t->b.a, t->b.g, NULL, &t->err);
    if (t->rc == ONQ_OK)
        t->rc = oq_topo_order(&ix, t->b.a, &order, &t->err);
    if (t->rc != ONQ_OK)
        return t->text;
    oq_graph sorted = {0};
    for (size_t i = 0; i < t->b.g->node.n; i++)
        assert_true(OQ_PUSH(t->b.a, &sorted.node, t->b.g->node.v[order[i]]));
    return bm_order(&sorted, t->text, sizeof t->text);
}

static void a_sorted_graph_stays(void **state) {
    topo *t = *state;
    bm *b = &t->b;
    bm_input(b, "x", OQ_FLOAT, "1");
    bm_node(b, "Neg", "b", "x", "t", "");
    bm_node(b, "Abs", "a", "x", "u", "");
    bm_node(b, "Add", "c", "t u", "v", "");
    assert_string_equal(stable_order(t), "b a c");
}

static void ready_nodes_go_in_file_order(void **state) {
    topo *t = *state;
    bm *b = &t->b;
    bm_input(b, "x", OQ_FLOAT, "1");
    bm_node(b, "Add", "late", "t u", "v", "");
    bm_node(b, "Neg", "n1", "x", "t", "");
    bm_node(b, "Neg", "n2", "t", "u", "");
    bm_node(b, "Neg", "n3", "x", "w", "");
    assert_string_equal(stable_order(t), "n1 n2 late n3");
}

static void names_used_inside_count(void **state) {
    topo *t = *state;
    bm *b = &t->b;
    bm_input(b, "c", OQ_BOOL, "");
    oq_node *n = bm_node(b, "If", "if", "c", "r", "");
    oq_graph *around = bm_enter(b, n, "then_branch");
    bm_node(b, "Neg", "inner", "outer", "t", "");
    bm_output(b, "t", OQ_FLOAT, NULL);
    bm_leave(b, around);
    bm_node(b, "Cast", "maker", "c", "outer", "to=1");
    assert_string_equal(stable_order(t), "maker if");
    /* The reference does not look inside. */
    assert_int_equal(oq_topo_sort_reference(b->m, b->g, &t->err), ONQ_OK);
    assert_string_equal(bm_order(b->g, t->text, sizeof t->text), "if maker");
}

/* A sorted model is not touched; in another each graph is sorted, inner ones too. */
static void a_whole_model(void **state) {
    topo *t = *state;
    bm *b = &t->b;
    bm_input(b, "c", OQ_BOOL, "");
    bm_node(b, "Cast", "maker", "c", "outer", "to=1");
    oq_node *n = bm_node(b, "If", "if", "c", "r", "");
    oq_graph *around = bm_enter(b, n, "then_branch");
    oq_graph *inner = b->g;
    bm_node(b, "Neg", "first", "outer", "t", "");
    bm_node(b, "Neg", "second", "t", "u", "");
    bm_leave(b, around);
    b->m->touched = false;
    assert_int_equal(oq_model_sort_all(b->m, NULL, &t->err), ONQ_OK);
    assert_false(b->m->touched);
    for (size_t i = 0; i < 2; i++) {
        oq_graph *g = i == 0 ? inner : b->g;
        oq_node *last = g->node.v[1];
        g->node.v[1] = g->node.v[0];
        g->node.v[0] = last;
    }
    assert_int_equal(oq_model_sort_all(b->m, NULL, &t->err), ONQ_OK);
    assert_true(b->m->touched);
    assert_string_equal(bm_order(b->g, t->text, sizeof t->text), "maker if");
    assert_string_equal(bm_order(inner, t->text, sizeof t->text), "first second");
}

static void a_cycle_is_named(void **state) {
    topo *t = *state;
    bm *b = &t->b;
    bm_input(b, "x", OQ_FLOAT, "1");
    bm_node(b, "Neg", "before", "x", "a", "");
    bm_node(b, "Neg", "behind", "q", "z", "");
    bm_node(b, "Add", "p", "a q", "r", "");
    bm_node(b, "Neg", "s", "r", "q", "");
    stable_order(t);
    assert_int_equal(t->rc, ONQ_E_INVALID);
    assert_true(strstr(t->err.text, "'p'") != NULL || strstr(t->err.text, "'s'") != NULL);
    assert_int_equal(oq_topo_sort_reference(b->m, b->g, &t->err), ONQ_E_INVALID);
}

static void a_node_that_feeds_itself(void **state) {
    topo *t = *state;
    bm *b = &t->b;
    bm_node(b, "Neg", "self", "t", "t", "");
    stable_order(t);
    assert_int_equal(t->rc, ONQ_E_INVALID);
    assert_non_null(strstr(t->err.text, "'self'"));
}

/* Nodes without inputs first, then by the sorted names of what is given, then breadth first. */
static void the_reference_order(void **state) {
    topo *t = *state;
    bm *b = &t->b;
    bm_input(b, "z_in", OQ_FLOAT, "1");
    bm_input(b, "a_in", OQ_FLOAT, "1");
    bm_weight(b, "m_w", "1", 1);
    bm_node(b, "Neg", "nz", "z_in", "t1", "");
    bm_node(b, "Neg", "na", "a_in", "t2", "");
    bm_node(b, "Mul", "nm", "m_w m_w", "t3", "");
    bm_node(b, "Add", "sum", "t1 t2", "t4", "");
    bm_node(b, "Clip", "clip", "t3 _ _", "t5", "");
    bm_node(b, "Constant", "k", "", "t6", "");
    assert_int_equal(oq_topo_sort_reference(b->m, b->g, &t->err), ONQ_OK);
    assert_string_equal(bm_order(b->g, t->text, sizeof t->text), "k na nm nz clip sum");
    assert_true(b->m->touched);
}

/* A name that an initializer and a node both provide releases its users early: two for one. */
static void provided_twice(void **state) {
    topo *t = *state;
    bm *b = &t->b;
    bm_input(b, "x", OQ_FLOAT, "1");
    bm_weight(b, "d", "1", 1);
    bm_node(b, "Add", "user", "d missing", "u", "");
    bm_node(b, "Neg", "maker", "x", "d", "");
    assert_int_equal(oq_topo_sort_reference(b->m, b->g, &t->err), ONQ_OK);
    assert_string_equal(bm_order(b->g, t->text, sizeof t->text), "maker user");
}

static void a_missing_input_fails(void **state) {
    topo *t = *state;
    bm *b = &t->b;
    bm_node(b, "Neg", "n", "nowhere", "t", "");
    assert_int_equal(oq_topo_sort_reference(b->m, b->g, &t->err), ONQ_E_INVALID);
    assert_non_null(strstr(t->err.text, "'n'"));
}

/* A chain of 50,000 nodes, in reverse, and 5,000 users of one tensor: linear time. */
static void long_chains_and_wide_fans(void **state) {
    topo *t = *state;
    bm *b = &t->b;
    enum { CHAIN = 50000, FAN = 5000 };
    char in[32], out[32];
    bm_input(b, "t0", OQ_FLOAT, "1");
    for (int i = CHAIN; i > 0; i--) {
        snprintf(in, sizeof in, "t%d", i - 1);
        snprintf(out, sizeof out, "t%d", i);
        bm_node(b, "Neg", out, in, out, "");
    }
    for (int i = 0; i < FAN; i++) {
        snprintf(out, sizeof out, "f%d", i);
        bm_node(b, "Neg", out, "t50000", out, "");
    }
    const clock_t start = clock();
    oq_index ix;
    uint32_t *order = NULL;
    assert_int_equal(oq_index_build(&ix, b->a, b->g, NULL, &t->err), ONQ_OK);
    assert_int_equal(oq_topo_order(&ix, b->a, &order, &t->err), ONQ_OK);
    for (uint32_t i = 0; i < CHAIN; i++)
        assert_int_equal(order[i], CHAIN - 1 - i);
    for (uint32_t i = CHAIN; i < CHAIN + FAN; i++)
        assert_int_equal(order[i], i);
    assert_int_equal(oq_topo_sort_reference(b->m, b->g, &t->err), ONQ_OK);
    assert_int_equal(oq_graph_prune(b->m, b->g, &t->err), ONQ_OK);
    assert_int_equal(b->g->node.n, 0); /* there is no output */
    assert_cpu_seconds(start, 5.0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_sorted_graph_stays),    TEST(ready_nodes_go_in_file_order),
        TEST(names_used_inside_count), TEST(a_whole_model),
        TEST(a_cycle_is_named),        TEST(a_node_that_feeds_itself),
        TEST(the_reference_order),     TEST(provided_twice),
        TEST(a_missing_input_fails),   TEST(long_chains_and_wide_fans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
