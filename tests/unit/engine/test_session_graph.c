/*
 * test_session_graph.c — the graph a session is opened with: weights left where they are, observers
 * put in.
 */
#include "engine/session_graph.h"

#include "build_model.h"
#include "onnx/attr.h"
#include "onnx/codec/schema.h"
#include "scratch.h"
#include "testing.h"

#include <stdio.h>

static onq_error err;

static void build_small(bm *b) {
    bm_input(b, "x", OQ_FLOAT, "4,2048");
    bm_weight(b, "w", "2048,2", 1); /* 16 KB */
    bm_weight(b, "s", "2", 2);
    bm_node(b, "MatMul", "mm", "x w", "y", "");
    bm_node(b, "Add", "add", "y s", "z", "");
    bm_node(b, "Relu", "relu", "z", "r", "");
    bm_output(b, "z", OQ_FLOAT, "4,2");
    bm_output(b, "r", OQ_FLOAT, "4,2");
}

static const oq_tensor *find_init(const oq_session_graph *g, const char *name) {
    const oq_tensor *t = oq_graph_find_init(g->proto->graph, oq_str_of(name));
    assert_non_null(t);
    return t;
}

static oq_str entry(const oq_tensor *t, const char *key) {
    for (size_t i = 0; i < t->external_data.n; i++)
        if (oq_str_is(t->external_data.v[i]->key, key))
            return t->external_data.v[i]->value;
    fail_msg("no entry %s", key);
    return OQ_S("");
}

/* A model that only memory has: the large weight is handed over, the small one stays. */
static void test_memory(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 13);
    build_small(&b);
    oq_session_graph g;
    const oq_session_options o = {.model = b.m};
    assert_ok(oq_session_graph_init(&g, &o, false, &err), err);
    assert_int_equal(g.handed.n, 1);
    assert_string_equal(g.handed.v[0].name, "w");
    assert_int_equal(g.handed.v[0].data.n, 16384);
    assert_null(g.folder);
    assert_true(oq_tensor_is_external(find_init(&g, "w")));
    assert_false(oq_tensor_is_external(find_init(&g, "s")));
    assert_true(g.bytes.n < 2000);
    /* The model itself is as it was. */
    assert_false(oq_tensor_is_external(oq_graph_find_init(b.g, OQ_S("w"))));
    oq_session_graph_release(&g);
    /* For saving an optimised model everything stays inside. */
    assert_ok(oq_session_graph_init(&g, &o, true, &err), err);
    assert_int_equal(g.handed.n, 0);
    assert_true(g.bytes.n > 16384);
    oq_session_graph_release(&g);
    bm_end(&b);
}

/* A model in a file: the weight is named where it lies. */
static void test_file(void **state) {
    (void)state;
    scratch s;
    scratch_init(&s);
    bm b;
    bm_begin(&b, NULL, 13);
    build_small(&b);
    const char *path = scratch_path(&s, "m.onnx");
    assert_ok(oq_model_save(b.m, path, NULL, &err), err);
    const oq_payload want = oq_graph_find_init(b.g, OQ_S("w"))->raw_data;
    oq_model *m = NULL;
    assert_ok(oq_model_open(b.env, path, NULL, &m, &err), err);
    oq_session_graph g;
    const oq_session_options o = {.model = m};
    assert_ok(oq_session_graph_init(&g, &o, false, &err), err);
    assert_int_equal(g.handed.n, 0);
    assert_int_equal(g.files.n, 1);
    assert_non_null(g.folder);
    const oq_tensor *w = find_init(&g, "w");
    assert_true(oq_str_is(entry(w, "location"), "m.onnx"));
    assert_true(oq_str_is(entry(w, "length"), "16384"));
    int64_t offset = 0;
    assert_true(oq_str_to_i64(entry(w, "offset"), &offset));
    assert_memory_equal(m->file.p + offset, want.p, want.n);
    oq_session_graph_release(&g);
    oq_model_free(m);
    bm_end(&b);
    scratch_remove(&s);
}

/* Files in two folders: locations begin where both paths part. */
static void test_two_folders(void **state) {
    (void)state;
    scratch s;
    scratch_init(&s);
    bm b;
    bm_begin(&b, NULL, 13);
    build_small(&b);
    bm_weight(&b, "w2", "2048", 3);
    scratch_dir(&s, "a");
    scratch_dir(&s, "a/data");
    const char *path = scratch_path(&s, "a/m.onnx");
    const oq_save_options save = {.external = OQ_EXTERNAL_ONE, .location = "weights.bin"};
    assert_ok(oq_model_save(b.m, path, &save, &err), err);
    oq_model *m = NULL;
    assert_ok(oq_model_open(b.env, path, NULL, &m, &err), err);
    oq_session_graph g;
    const oq_session_options o = {.model = m};
    assert_ok(oq_session_graph_init(&g, &o, false, &err), err);
    assert_true(oq_str_is(entry(find_init(&g, "w"), "location"), "weights.bin"));
    /* What the runtime's inference may want to read comes into the graph. */
    assert_false(oq_tensor_is_external(find_init(&g, "s")));
    assert_int_equal(g.files.n, 1);
    oq_session_graph_release(&g);
    oq_model_free(m);
    bm_end(&b);
    scratch_remove(&s);
}

static void test_constants_become_initializers(void **state) {
    (void)state;
    static const float v[2048];
    bm b;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "2048");
    oq_node *n = bm_node(&b, "Constant", "c", "", "k", "");
    assert_true(oq_attr_set_tensor(b.a, n, OQ_S("value"),
                                   bm_tensor(&b, "t", OQ_FLOAT, "2048", v, sizeof v)));
    bm_node(&b, "Constant", "small", "", "j", "value_float=1.0");
    bm_node(&b, "Add", "add", "x k", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "2048");
    oq_session_graph g;
    const oq_session_options o = {.model = b.m};
    assert_ok(oq_session_graph_init(&g, &o, false, &err), err);
    char order[100];
    assert_string_equal(bm_order(g.proto->graph, order, sizeof order), "small add");
    assert_true(oq_tensor_is_external(find_init(&g, "k")));
    assert_string_equal(bm_order(b.g, order, sizeof order), "c small add");
    oq_session_graph_release(&g);
    bm_end(&b);
}

/* The runtime needs time with the square of those that nothing uses. */
static void test_unused_initializers(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 13);
    build_small(&b);
    for (int i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof name, "unused%d", i);
        bm_weight(&b, bm_str(&b, name).p, "3", 3);
    }
    bm_weight(&b, "may_be_fed", "3", 4);
    bm_input(&b, "may_be_fed", OQ_FLOAT, "3");
    bm_weight(&b, "given_back", "3", 5);
    bm_output(&b, "given_back", OQ_FLOAT, "3");
    oq_session_graph g;
    const oq_session_options o = {.model = b.m};
    assert_ok(oq_session_graph_init(&g, &o, false, &err), err);
    assert_null(oq_graph_find_init(g.proto->graph, OQ_S("unused7")));
    find_init(&g, "may_be_fed");
    find_init(&g, "given_back");
    assert_int_equal(g.proto->graph->initializer.n, 4);
    assert_int_equal(b.g->initializer.n, 1004);
    oq_session_graph_release(&g);
    bm_end(&b);
}

/* ---- observers ---- */

/* Each node as "op(in,in)->out", observers with their index, separated by blanks. */
static void describe(const oq_graph *g, oq_buf *out) {
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        oq_buf_addf(out, "%s%.*s", i > 0 ? " " : "", OQ_STR(n->op_type));
        const oq_i64s *index = oq_attr_ints(n, "i");
        for (size_t k = 0; index != NULL && k < index->n; k++)
            oq_buf_addf(out, "%s%d", k > 0 ? "," : "", (int)index->v[k]);
        oq_buf_addc(out, '(');
        for (size_t k = 0; k < n->input.n; k++)
            oq_buf_addf(out, "%s%.*s", k > 0 ? "," : "", OQ_STR(n->input.v[k]));
        oq_buf_adds(out, ")->");
        for (size_t k = 0; k < n->output.n; k++)
            oq_buf_addf(out, "%s%.*s", k > 0 ? "," : "", OQ_STR(n->output.v[k]));
        for (size_t k = 0; k < n->attribute.n; k++)
            if (n->attribute.v[k]->g != NULL) {
                oq_buf_adds(out, "{");
                describe(n->attribute.v[k]->g, out);
                oq_buf_adds(out, "}");
            }
    }
}

/* Products read large constants where they lie instead of a turned copy, in inner graphs too; a small
 * one, one that is not constant and a session that was not asked to keep the Transpose. */
static void test_turned_weights(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "4,512");
    bm_input(&b, "c", OQ_BOOL, "");
    bm_weight(&b, "w", "600,512", 1);
    bm_weight(&b, "only", "600,512", 1);
    bm_weight(&b, "s", "8,512", 2);
    bm_node(&b, "Transpose", "t1", "w", "wt", "");
    bm_node(&b, "Transpose", "t2", "s", "st", "perm=1,0");
    bm_node(&b, "Transpose", "t3", "x", "xt", "");
    bm_node(&b, "Transpose", "t4", "only", "ot", "");
    bm_node(&b, "MatMul", "m1", "x wt", "y", "");
    bm_node(&b, "MatMul", "m4", "x ot", "o", "");
    bm_node(&b, "MatMul", "m2", "x st", "z", "");
    bm_node(&b, "MatMul", "m3", "x xt", "u", "");
    oq_node *n = bm_node(&b, "If", "if", "c", "v", "");
    for (int i = 0; i < 2; i++) {
        oq_graph *around = bm_enter(&b, n, i == 0 ? "then_branch" : "else_branch");
        bm_node(&b, i == 0 ? "MatMul" : "Gemm", "in", "x wt", i == 0 ? "a" : "b", "");
        bm_output(&b, i == 0 ? "a" : "b", OQ_FLOAT, "4,600");
        bm_leave(&b, around);
    }
    bm_output(&b, "y", OQ_FLOAT, "4,600");
    const char *const wanted[] = {
        "Transpose(w)->wt Transpose(s)->st Transpose(x)->xt Transpose(only)->ot MatMul(x,wt)->y "
        "MatMul(x,ot)->o MatMul(x,st)->z "
        "MatMul(x,xt)->u If(c)->v{MatMul(x,wt)->a}{Gemm(x,wt)->b}",
        "Transpose(w)->wt Transpose(s)->st Transpose(x)->xt FusedMatMul(x,w)->y "
        "FusedMatMul(x,only)->o MatMul(x,st)->z "
        "MatMul(x,xt)->u If(c)->v{FusedMatMul(x,w)->a}{Gemm(x,wt)->b}"};
    for (int i = 0; i < 2; i++) {
        oq_session_graph g;
        oq_buf text;
        const oq_session_options o = {.model = b.m, .no_turning = i == 1};
        oq_buf_init(&text, oq_alloc_default());
        assert_ok(oq_session_graph_init(&g, &o, false, &err), err);
        describe(g.proto->graph, &text);
        assert_string_equal(text.p, wanted[i]);
        assert_int_equal(g.proto->opset_import.n, 1 + i);
        oq_buf_release(&text);
        oq_session_graph_release(&g);
    }
    bm_end(&b);
}

static onq_code never(void *ctx, size_t index, const oq_datum *t, onq_error *e) {
    (void)ctx;
    (void)index;
    (void)t;
    (void)e;
    return ONQ_OK;
}

/* `more` has observed_types and the like; or NULL. */
static void observe_with(bm *b, const oq_session_options *more, const char *names,
                         const char *wanted) {
    oq_str list[16];
    size_t n = 0;
    for (const char *p = names; *p != '\0';) {
        const size_t len = strcspn(p, " ");
        list[n++] = (oq_str){p, len};
        p += len + strspn(p + len, " ");
    }
    const oq_observer ob = {list, n, never, NULL};
    oq_session_options o = more != NULL ? *more : (oq_session_options){0};
    o.model = b->m;
    o.observer = &ob;
    oq_session_graph g;
    oq_buf text;
    oq_buf_init(&text, oq_alloc_default());
    assert_ok(oq_session_graph_init(&g, &o, false, &err), err);
    describe(g.proto->graph, &text);
    assert_string_equal(text.p, wanted);
    oq_buf_release(&text);
    oq_session_graph_release(&g);
}

static void observe(bm *b, const char *names, const char *wanted) {
    observe_with(b, NULL, names, wanted);
}

#define T "__onq_observed"

static void test_observers(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 13);
    build_small(&b);
    /* Between two nodes: the producer's output is renamed, nobody else changes. */
    observe(&b, "y", "MatMul(x,w)->y" T " Observe0(y" T ")->y Add(y,s)->z Relu(z)->r");
    /* A graph output keeps its name; the node after it reads the observer. */
    observe(&b, "z", "MatMul(x,w)->y Add(y,s)->z Observe0(z)->z" T " Relu(z" T ")->r");
    /* One that nothing uses. */
    observe(&b, "r", "MatMul(x,w)->y Add(y,s)->z Relu(z)->r Observe0(r)->r" T);
    /* Input and initializer come first. */
    observe(&b, "s x",
            "Observe1(x)->x" T " Observe0(s)->s" T " MatMul(x" T ",w)->y Add(y,s" T
            ")->z Relu(z)->r");
    const oq_str missing = OQ_S("nothing");
    const oq_observer ob = {&missing, 1, never, NULL};
    const oq_session_options o = {.model = b.m, .observer = &ob};
    oq_session_graph g;
    assert_fails(oq_session_graph_init(&g, &o, false, &err), ONQ_E_INVALID, err, "'nothing'");
    bm_end(&b);
}

/* A name that the new ones would take is avoided. */
static void test_taken_names(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "2");
    bm_node(&b, "Relu", "n1", "x", "y", "");
    bm_node(&b, "Relu", "n2", "y", "y" T, "");
    bm_output(&b, "y" T, OQ_FLOAT, "2");
    observe(&b, "y", "Relu(x)->y" T "_1 Observe0(y" T "_1)->y Relu(y)->y" T);
    bm_end(&b);
}

static void build_branches(bm *b) {
    bm_input(b, "x", OQ_FLOAT, "2");
    bm_input(b, "c", OQ_BOOL, "");
    bm_node(b, "Relu", "n1", "x", "y", "");
    oq_node *n = bm_node(b, "If", "if", "c", "z", "");
    oq_graph *around = bm_enter(b, n, "then_branch");
    bm_node(b, "Add", "t1", "x y", "t", "");
    bm_node(b, "Relu", "t2", "t", "tt", "");
    bm_output(b, "tt", OQ_FLOAT, "2");
    bm_leave(b, around);
    around = bm_enter(b, n, "else_branch");
    bm_node(b, "Identity", "e1", "y", "x2", "");
    bm_output(b, "x2", OQ_FLOAT, "2");
    bm_leave(b, around);
    bm_output(b, "z", OQ_FLOAT, "2");
}

static void test_subgraphs(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 13);
    build_branches(&b);
    /* Of the outside, used inside; inside; an output of a subgraph. */
    observe(&b, "y x t x2",
            "Observe1(x)->x" T " Relu(x" T ")->y" T " Observe0(y" T ")->y "
            "If(c)->z{Add(x" T ",y)->t" T " Observe2(t" T ")->t Relu(t)->tt}"
            "{Identity(y)->x2 Observe3(x2)->x2" T "}");
    bm_end(&b);
}

/* Small tensors get one observer at the end; a large one, one of unknown size and a float16 one keep
 * their own. */
static void test_groups(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 13);
    build_small(&b);
    static const uint64_t small[] = {8, 8, 8, 8, 8}, mixed[] = {8, 8, 0, 1 << 20},
                          many[] = {12000, 16384, 16384, 16384, 16384};
    oq_session_options o = {.observed_bytes = small};
    observe_with(&b, &o, "x s y z r",
                 "MatMul(x,w)->y Add(y,s)->z Relu(z)->r "
                 "ObserveGroup0,1,2,3,4(x,s,y,z,r)->onq_observed");
    o.observed_bytes = mixed;
    observe_with(&b, &o, "x r y z",
                 "MatMul(x,w)->y" T " Observe2(y" T ")->y Add(y,s)->z Observe3(z)->z" T " Relu(z" T
                 ")->r ObserveGroup0,1(x,r)->onq_observed");
    /* More than a cache holds: the second group reads what the first gives out. */
    o.observed_bytes = many;
    observe_with(&b, &o, "x s y z r",
                 "MatMul(x,w)->y Add(y,s)->z Relu(z)->r "
                 "ObserveGroup0,1,2,3(x,s,y,z)->onq_observed "
                 "ObserveGroup4(r,onq_observed)->onq_observed_1");
    static const oq_dtype types[] = {OQ_FLOAT, OQ_FLOAT16};
    o = (oq_session_options){.observed_bytes = small, .observed_types = types};
    observe_with(&b, &o, "y r",
                 "MatMul(x,w)->y Add(y,s)->z Relu(z)->r ObserveHalf1(r)->r" T
                 " ObserveGroup0(y)->onq_observed");
    o.observe_beside = true;
    observe_with(&b, &o, "y r",
                 "MatMul(x,w)->y Add(y,s)->z Relu(z)->r ObserveHalf1(r)->r" T " Observe0(y)->y" T);
    bm_end(&b);
}

/* A group is of one graph. */
static void test_groups_in_subgraphs(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 13);
    build_branches(&b);
    static const uint64_t small[] = {8, 8, 8, 8};
    observe_with(&b, &(oq_session_options){.observed_bytes = small}, "y x t x2",
                 "Relu(x)->y If(c)->z"
                 "{Add(x,y)->t Relu(t)->tt ObserveGroup2(t)->onq_observed_1}"
                 "{Identity(y)->x2 ObserveGroup3(x2)->onq_observed_2} "
                 "ObserveGroup1,0(x,y)->onq_observed");
    bm_end(&b);
}

static onq_code make_graph(bm *b, void *ctx, onq_error *e) {
    const oq_str names[] = {OQ_S("x"), OQ_S("y"), OQ_S("z")};
    static const uint64_t bytes[] = {0, 8, 8};
    const oq_observer ob = {names, 3, never, NULL};
    const oq_session_options o = {.model = b->m, .observer = &ob, .observed_bytes = bytes};
    oq_session_graph g;
    (void)ctx;
    OQ_TRY(oq_session_graph_init(&g, &o, false, e));
    oq_session_graph_release(&g);
    return ONQ_OK;
}

static void test_oom(void **state) {
    (void)state;
    assert_true(bm_sweep(13, build_small, make_graph, NULL) > 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_two_folders),
        cmocka_unit_test(test_constants_become_initializers),
        cmocka_unit_test(test_unused_initializers),
        cmocka_unit_test(test_turned_weights),
        cmocka_unit_test(test_observers),
        cmocka_unit_test(test_taken_names),
        cmocka_unit_test(test_subgraphs),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_groups_in_subgraphs),
        cmocka_unit_test(test_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
