/*
 * test_plan.c — the table of decisions: its summary, and written as JSON and read back.
 */
#include "quantize/plan_read.h"

#include "build_model.h"
#include "nbits_rig.h"
#include "scratch.h"
#include "testing.h"

#define N_NODES 5

static void fill(oq_plan *p) {
    const oq_plan_node rows[N_NODES] = {
        {.name = OQ_S("r"),
         .op_type = OQ_S("Relu"),
         .output = OQ_S("y"),
         .fate = OQ_FATE_REMOVED,
         .by = OQ_BY_RULE,
         .why = "why not"},
        {.name = OQ_S("a"),
         .op_type = OQ_S("Conv"),
         .output = OQ_S("t1"),
         .fate = OQ_FATE_FLOAT,
         .by = OQ_BY_CHOICE,
         .why = "excluded"},
        {.name = OQ_S("b"),
         .op_type = OQ_S("Conv"),
         .output = OQ_S("t2"),
         .fate = OQ_FATE_QUANTIZED,
         .by = OQ_BY_RULE,
         .why = ""},
        {.name = OQ_S(""),
         .op_type = OQ_S("Conv"),
         .output = OQ_S("t3"),
         .fate = OQ_FATE_QUANTIZED,
         .by = OQ_BY_RULE,
         .why = ""},
        {.name = OQ_S("d"),
         .op_type = OQ_S("Conv"),
         .output = OQ_S("t4"),
         .fate = OQ_FATE_FLOAT,
         .by = OQ_BY_RULE,
         .why = "another"},
    };
    static const float scale[2] = {0.1f, 3.4e-5f};
    static const int32_t zero[2] = {7, -3};
    const oq_plan_tensor tensors[] = {
        {.name = OQ_S("x"), .type = OQ_UINT8, .axis = -1, .scale = scale, .zero = zero, .n = 1},
        {.name = OQ_S("x"),
         .type = OQ_UINT16,
         .axis = -1,
         .scale = scale + 1,
         .zero = zero,
         .n = 1,
         .converted = true},
        {.name = OQ_S("w"),
         .role = OQ_ROLE_WEIGHT,
         .type = OQ_INT8,
         .axis = 0,
         .scale = scale,
         .zero = zero,
         .n = 2},
        {.name = OQ_S("b"), .role = OQ_ROLE_BIAS, .axis = -1, .why = "left"},
        {.name = OQ_S("y"),
         .type = OQ_UINT8,
         .axis = -1,
         .scale = scale,
         .zero = zero,
         .n = 1,
         .same_as = OQ_S("x")},
    };
    for (size_t i = 0; i < N_NODES; i++)
        assert_true(oq_plan_add_node(p, rows[i]));
    for (size_t i = 0; i < OQ_COUNT(tensors); i++)
        assert_true(oq_plan_add_tensor(p, tensors[i]));
}

static void summary(void **state) {
    (void)state;
    oq_arena a;
    oq_plan p;
    oq_plan_counts counts;
    oq_buf text;
    onq_error err = ONQ_ERROR_INIT;
    oq_arena_init(&a, oq_alloc_default());
    oq_plan_init(&p, &a);
    oq_buf_init(&text, oq_alloc_default());
    assert_ok(oq_plan_summary(&p, &a, &counts, &err), err);
    oq_plan_text(&counts, &text);
    assert_int_equal(text.n, 0);
    fill(&p);
    assert_ok(oq_plan_summary(&p, &a, &counts, &err), err);
    oq_plan_text(&counts, &text);
    assert_string_equal(text.p,
                        "  Conv: 2 quantized; 1 left float (another); 1 left float (excluded)\n"
                        "  Relu: 1 removed (why not)\n");
    /* Operators that the mode does not know share a line when there are many. */
    static const char *const types[] = {"Abs", "Conv", "Neg", "Sin", "Tan"};
    for (size_t i = 0; i < 5; i++)
        assert_true(oq_plan_add_node(&p, (oq_plan_node){.name = OQ_S("n"),
                                                        .op_type = oq_str_of(types[i]),
                                                        .fate = OQ_FATE_FLOAT,
                                                        .why = OQ_WHY_MODE}));
    assert_ok(oq_plan_summary(&p, &a, &counts, &err), err);
    text.n = 0;
    oq_plan_text(&counts, &text);
    assert_string_equal(text.p, "  Conv: 2 quantized; 1 left float (another); 1 left float "
                                "(excluded); 1 left float (not supported in this mode)\n"
                                "  Relu: 1 removed (why not)\n"
                                "  4 other operators: 4 left float (not supported in this "
                                "mode)\n");
    oq_buf_release(&text);
    oq_arena_release(&a);
}

static void round_trip(void **state) {
    (void)state;
    scratch folder;
    scratch_init(&folder);
    oq_arena a;
    oq_plan p;
    oq_given g;
    oq_buf text;
    oq_jw w;
    onq_error err = ONQ_ERROR_INIT;
    oq_arena_init(&a, oq_alloc_default());
    oq_plan_init(&p, &a);
    fill(&p);
    oq_buf_init(&text, oq_alloc_default());
    oq_jw_init(&w, &text, true);
    oq_jw_begin_object(&w, NULL);
    oq_jw_begin_object(&w, "options");
    oq_jw_cstr(&w, "per_channel", "true");
    oq_jw_end_object(&w);
    oq_plan_json(&p, &w);
    oq_jw_end_object(&w);
    assert_ok(oq_given_read(&g, &a, oq_alloc_default(),
                            scratch_file(&folder, "plan.json", text.p, text.n), &err),
              err);
    assert_int_equal(g.options.n, 2);
    assert_true(oq_str_is(g.options.v[1], "true"));
    assert_int_equal(g.plan.nodes.n, N_NODES);
    assert_int_equal(g.plan.nodes.v[1].by, OQ_BY_CHOICE);
    assert_int_equal(g.plan.nodes.v[4].by, OQ_BY_RULE);

    const oq_plan_tensor *x = oq_given_activation(&g, OQ_S("x"), false);
    assert_true(x != NULL && x->type == OQ_UINT8 && x->scale[0] == 0.1f && x->zero[0] == 7);
    const oq_plan_tensor *second = oq_given_activation(&g, OQ_S("x"), true);
    assert_true(second != NULL && second->type == OQ_UINT16 && second->scale[0] == 3.4e-5f);
    assert_null(oq_given_activation(&g, OQ_S("w"), false));
    const oq_plan_tensor *weight = oq_given_weight(&g, OQ_S("w"), OQ_ROLE_WEIGHT);
    assert_true(weight != NULL && weight->axis == 0 && weight->n == 2 && weight->zero[1] == -3);
    assert_null(oq_given_weight(&g, OQ_S("w"), OQ_ROLE_WEIGHT)); /* taken */
    assert_int_equal(oq_given_row(&g, OQ_S("b"), OQ_ROLE_BIAS), 3);
    assert_int_equal(oq_given_row(&g, OQ_S("z"), OQ_ROLE_BIAS), OQ_MAP_NONE);
    assert_true(oq_str_is(oq_given_activation(&g, OQ_S("y"), false)->same_as, "x"));

    bm b;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "1,3,8,8");
    oq_node *named = bm_node(&b, "Conv", "b", "x w", "t2", "");
    oq_node *nameless = bm_node(&b, "Conv", "", "x w", "t3", "");
    oq_node *other = bm_node(&b, "Conv", "new", "x w", "t9", "");
    assert_ok(oq_given_bind_nodes(&g, b.m, &err), err);
    assert_ptr_equal(oq_given_node(&g, named), &g.plan.nodes.v[2]);
    assert_ptr_equal(oq_given_node(&g, nameless), &g.plan.nodes.v[3]);
    assert_null(oq_given_node(&g, other));
    named->op_type = OQ_S("Gemm"); /* another model */
    assert_int_equal(oq_given_bind_nodes(&g, b.m, &err), ONQ_E_CONFIG);
    assert_non_null(strstr(err.text, "is a Conv in the plan, but a Gemm in the model"));
    bm_end(&b);
    oq_buf_release(&text);
    oq_arena_release(&a);
    scratch_remove(&folder);
}

/* How a node's weight of few bits is quantized, and what is computed as the model runs. */
static void few_bits(void **state) {
    (void)state;
    static const char text[] =
        "{\"command\": \"nbits\", \"nodes\": [{\"name\": \"a\", \"op_type\": \"MatMul\", "
        "\"output\": \"y\", \"treatment\": \"quantized\", \"bits\": 8, \"block_size\": -1, "
        "\"symmetric\": true, \"accuracy_level\": 4}, {\"name\": \"b\", \"op_type\": \"Add\", "
        "\"output\": \"z\", \"treatment\": \"removed\"}], "
        "\"tensors\": [{\"name\": \"x\", \"role\": \"activation\", \"computed\": true}]}";
    scratch folder;
    scratch_init(&folder);
    oq_arena a;
    oq_given g;
    onq_error err = ONQ_ERROR_INIT;
    oq_arena_init(&a, oq_alloc_default());
    assert_ok(oq_given_read(&g, &a, oq_alloc_default(),
                            scratch_file(&folder, "plan.json", text, sizeof text - 1), &err),
              err);
    const oq_plan_node *row = &g.plan.nodes.v[0];
    assert_true(oq_str_is(g.command, "nbits"));
    assert_true(row->bits == 8 && row->block == 0 && row->symmetric && row->accuracy_level == 4);
    assert_true(g.plan.tensors.v[0].computed);
    bm b;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "1,8");
    oq_node *mul = bm_node(&b, "MatMul", "a", "x w", "y", "");
    assert_false(g.bound); /* until then lists decide */
    assert_ok(oq_given_bind_nodes(&g, b.m, &err), err);
    assert_true(g.bound);
    assert_null(oq_given_skip(&g, mul));
    assert_int_equal(oq_given_refuse(&g, mul, "it is a test", &err), ONQ_E_CONFIG);
    assert_non_null(strstr(err.text, "quantizes it, but this cannot be: it is a test"));
    oq_node *add = bm_node(&b, "Add", "b", "y y", "z", "");
    assert_string_equal(oq_given_skip(&g, add), "not in the plan");
    assert_int_equal(oq_given_bind_nodes(&g, b.m, &err), ONQ_E_CONFIG);
    assert_non_null(strstr(err.text, "node 'b' (Add) is removed in the plan"));
    bm_end(&b);
    oq_arena_release(&a);
    scratch_remove(&folder);
}

static void wrong_plans(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{}", "'nodes' or 'tensors' is missing"},
        {"{\"nodes\": [{\"name\": \"n\", \"treatment\": \"halved\"}], \"tensors\": []}",
         "node 'n': 'treatment' is not one of quantized, removed, float"},
        {"{\"nodes\": [], \"tensors\": [{\"name\": \"x\", \"role\": \"guest\"}]}",
         "tensor 'x': 'role' is not one of"},
        {"{\"nodes\": [], \"tensors\": [{\"name\": \"x\", \"role\": \"weight\", \"type\": "
         "\"int7\"}]}",
         "type 'int7' is not one of"},
        {"{\"nodes\": [], \"tensors\": [{\"name\": \"x\", \"role\": \"weight\", \"scale\": 1}]}",
         "it has a scale but no type"},
        {"{\"nodes\": [], \"tensors\": [{\"name\": \"x\", \"role\": \"weight\", \"type\": "
         "\"INT8\", "
         "\"scale\": 0, \"zero_point\": 0}]}",
         "a scale is not a positive float"},
        {"{\"nodes\": [], \"tensors\": [{\"name\": \"x\", \"role\": \"weight\", \"type\": "
         "\"INT8\", "
         "\"scale\": 1, \"zero_point\": 200}]}",
         "a zero_point is not a value of its type"},
        {"{\"nodes\": [], \"tensors\": [{\"name\": \"x\", \"role\": \"weight\", \"type\": "
         "\"INT8\", "
         "\"scale\": [1, 2], \"zero_point\": [0]}]}",
         "two lists of one length"},
        {"{\"nodes\": [{\"name\": \"n\", \"treatment\": \"quantized\", \"bits\": 4, "
         "\"block_size\": 0}], \"tensors\": []}",
         "node 'n': 'bits', 'block_size'"},
        {"{\"nodes\": [], \"tensors\": [], \"options\": {\"limit\": 3}}",
         "option 'limit' is not a text"},
    };
    scratch folder;
    scratch_init(&folder);
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        oq_arena a;
        oq_given g;
        onq_error err = ONQ_ERROR_INIT;
        oq_arena_init(&a, oq_alloc_default());
        assert_int_equal(
            oq_given_read(&g, &a, oq_alloc_default(),
                          scratch_file(&folder, "p.json", cases[i].text, strlen(cases[i].text)),
                          &err),
            ONQ_E_CONFIG);
        if (strstr(err.text, cases[i].says) == NULL)
            fail_msg("'%s' does not say '%s'", err.text, cases[i].says);
        oq_arena_release(&a);
    }
    scratch_remove(&folder);
}

/* Weight-only quantization decides first: a dry run has the rows, the weights that would be made,
 * and the model as it was. */
static void nbits_decides_first(void **state) {
    (void)state;
    static const float w[32 * 4] = {1.0f, -2.0f, 3.0f};
    nbits_rig r;
    onq_error err = ONQ_ERROR_INIT;
    nbits_rig_begin(&r, NULL, "default", 4, 32, true);
    nbits_rig_product(&r, "32,4", w);
    const oq_graph *g = r.q.b.m->proto->graph;
    const oq_nb_job job = {.model = r.q.b.m,
                           .config = &r.config,
                           .plan = &r.q.plan,
                           .made = &r.made,
                           .decide_only = true};
    assert_ok(oq_nb_run(&job, &err), err);
    assert_int_equal(r.q.plan.nodes.n, 1);
    assert_int_equal(r.q.plan.nodes.v[0].fate, OQ_FATE_QUANTIZED);
    assert_int_equal(r.q.plan.tensors.n, 1);
    assert_true(oq_str_is(r.q.plan.tensors.v[0].name, "w"));
    assert_int_equal(r.made.all.n, 1);
    assert_int_equal(g->node.n, 1);
    assert_true(oq_str_is(g->node.v[0]->op_type, "MatMul"));
    assert_int_equal(g->initializer.n, 1);
    assert_ok(nbits_rig_run(&r, &err), err);
    assert_true(oq_str_is(g->node.v[0]->op_type, "MatMulNBits"));
    nbits_rig_end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(summary), cmocka_unit_test(round_trip),
                                       cmocka_unit_test(few_bits), cmocka_unit_test(wrong_plans),
                                       cmocka_unit_test(nbits_decides_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
