/*
 * test_verify.c — the look at a quantized model over a fake engine, and the search for nodes that
 * keep it from being good over attempts that are made up.
 */
#include "debug/mend.h"
#include "debug/verify.h"

#include "build_model.h"
#include "fake_engine.h"
#include "flaky_alloc.h"
#include "testing.h"

#include <math.h>
#include <stdio.h>

/* ---- verify ---- */

/* y = x * w, z = -x, and two models that stand for float and quantized. */
typedef struct rig {
    bm b;
    fake_engine engine;
    oq_record record;
    oq_verdict v;
    onq_error err;
} rig;

static const int64_t four[] = {4};
static const float x[] = {1.0f, -2.0f, 3.0f, 4.0f};

static oq_datum floats(const float *p, const int64_t *dims) {
    return (oq_datum){.kind = OQ_DATUM_TENSOR,
                      .dtype = OQ_FLOAT,
                      .rank = 1,
                      .dims = dims,
                      .count = (uint64_t)dims[0],
                      .data = p,
                      .size_bytes = (uint64_t)dims[0] * sizeof *p};
}

static void rig_begin(rig *g, const onq_allocator *a, const char *op, float w) {
    memset(g, 0, sizeof *g);
    bm_begin(&g->b, a, 13);
    if (g->b.m == NULL)
        return;
    bm_input(&g->b, "x", OQ_FLOAT, "4");
    bm_f32(&g->b, "w", "", &w);
    bm_node(&g->b, op, "mul", "x w", "y", "");
    bm_node(&g->b, "Neg", "neg", "x", "z", "");
    bm_output(&g->b, "z", OQ_FLOAT, "4");
    bm_output(&g->b, "y", OQ_FLOAT, "4");
    fake_engine_init(&g->engine, g->b.env);
    oq_record_init(&g->record, &g->b.env->alloc, 2);
}

static void rig_end(rig *g) {
    assert_int_equal(g->engine.n_open, 0);
    if (g->b.m != NULL)
        oq_record_release(&g->record);
    bm_end(&g->b);
}

/* What float gave: z = -x, y = x times `w`. */
static onq_code keep(rig *g, float w, onq_error *err) {
    float y[4], z[4];
    for (size_t i = 0; i < 4; i++) {
        y[i] = x[i] * w;
        z[i] = -x[i];
    }
    const oq_datum in = floats(x, four), out[] = {floats(z, four), floats(y, four)};
    return oq_record_keep(&g->record, &in, 1, out, 2, err);
}

static onq_code look(rig *g, onq_error *err) {
    const oq_session_options how = {.model = g->b.m, .level = OQ_OPT_ALL};
    return oq_verify(&g->engine.base, &how, &g->record, &g->v, err);
}

static void measures(void **state) {
    (void)state;
    rig g;
    rig_begin(&g, NULL, "Mul", 2.0f);
    assert_ok(keep(&g, 2.0f, &g.err), g.err);
    assert_ok(look(&g, &g.err), g.err);
    assert_int_equal(g.v.end, OQ_VERIFY_GOOD);
    assert_true(g.v.ran && g.v.measured && g.v.sqnr == OQ_GRADE_EQUAL);
    assert_int_equal(g.v.n_outputs, 2);
    rig_end(&g);

    rig_begin(&g, NULL, "Mul", 2.2f); /* a tenth off: 20 dB; z is right */
    assert_ok(keep(&g, 2.0f, &g.err), g.err);
    assert_ok(look(&g, &g.err), g.err);
    assert_true(fabs(g.v.sqnr - 20.0) < 0.01);
    assert_true(oq_str_is(g.v.output, "y"));
    rig_end(&g);
}

static void not_finite(void **state) {
    (void)state;
    rig g;
    rig_begin(&g, NULL, "Mul", NAN);
    assert_ok(keep(&g, 2.0f, &g.err), g.err);
    assert_ok(look(&g, &g.err), g.err);
    assert_int_equal(g.v.end, OQ_VERIFY_NOT_FINITE);
    assert_non_null(strstr(g.v.why.text, "'y'"));
    rig_end(&g);

    rig_begin(&g, NULL, "Mul", NAN); /* as in float: no fault of quantization, and no figure */
    assert_ok(keep(&g, NAN, &g.err), g.err);
    assert_ok(look(&g, &g.err), g.err);
    assert_int_equal(g.v.end, OQ_VERIFY_GOOD);
    assert_int_equal(g.v.n_outputs, 1); /* z */
    rig_end(&g);

    rig_begin(&g, NULL, "Mul", 1.0f); /* numbers where float has none */
    assert_ok(keep(&g, INFINITY, &g.err), g.err);
    assert_ok(look(&g, &g.err), g.err);
    assert_int_equal(g.v.end, OQ_VERIFY_GOOD);
    rig_end(&g);
}

static void refused(void **state) {
    (void)state;
    rig g;
    rig_begin(&g, NULL, "Frobnicate", 1.0f);
    assert_ok(look(&g, &g.err), g.err);
    assert_int_equal(g.v.end, OQ_VERIFY_NOT_LOADED);
    assert_non_null(strstr(g.v.why.text, "'mul'"));
    rig_end(&g);

    rig_begin(&g, NULL, "Mul", 1.0f);
    assert_ok(keep(&g, 1.0f, &g.err), g.err);
    g.engine.fail_at_run = 1;
    assert_ok(look(&g, &g.err), g.err);
    assert_int_equal(g.v.end, OQ_VERIFY_NOT_RUN);
    assert_false(g.v.ran);
    rig_end(&g);
}

static void without_a_sample(void **state) {
    (void)state;
    rig g;
    rig_begin(&g, NULL, "Mul", 1.0f);
    assert_ok(look(&g, &g.err), g.err);
    assert_int_equal(g.v.end, OQ_VERIFY_GOOD);
    assert_false(g.v.ran || g.v.measured);
    assert_int_equal(g.engine.n_runs, 0);
    rig_end(&g);

    /* A large run is not kept. */
    static const int64_t many[] = {(int64_t)(OQ_MAX_RECORD / 4) + 1};
    rig_begin(&g, NULL, "Mul", 1.0f);
    const oq_datum in = floats(x, many);
    assert_ok(oq_record_keep(&g.record, &in, 1, NULL, 0, &g.err), g.err);
    assert_int_equal(g.record.runs.n, 0);
    rig_end(&g);
}

/* Outputs whose size depends on their numbers cannot be compared, nor can integers and nothing. */
static void not_comparable(void **state) {
    (void)state;
    static const int64_t three[] = {3}, none[] = {0};
    static const int64_t numbers[] = {1, 2, 3, 4};
    rig g;
    rig_begin(&g, NULL, "Mul", 7.0f);
    oq_datum out[] = {floats(x, three), floats(x, four)};
    out[1].dtype = OQ_INT64;
    out[1].data = numbers;
    out[1].size_bytes = sizeof numbers;
    const oq_datum in = floats(x, four);
    assert_ok(oq_record_keep(&g.record, &in, 1, out, 2, &g.err), g.err);
    assert_ok(look(&g, &g.err), g.err);
    assert_int_equal(g.v.end, OQ_VERIFY_GOOD);
    assert_true(g.v.ran && !g.v.measured);
    rig_end(&g);

    rig_begin(&g, NULL, "Abs", 7.0f);
    const oq_datum empty = floats(x, none);
    assert_ok(oq_record_keep(&g.record, &empty, 1, &empty, 1, &g.err), g.err);
    assert_ok(look(&g, &g.err), g.err);
    assert_true(g.v.ran && !g.v.measured);
    rig_end(&g);

    /* Texts are copied and counted. */
    const oq_str words[] = {OQ_S("a"), OQ_S("bc"), OQ_S(""), OQ_S("d")};
    const oq_datum text = {.kind = OQ_DATUM_TENSOR,
                           .dtype = OQ_STRING,
                           .rank = 1,
                           .dims = four,
                           .count = 4,
                           .strings = words};
    rig_begin(&g, NULL, "Mul", 7.0f);
    assert_ok(oq_record_keep(&g.record, &in, 1, &text, 1, &g.err), g.err);
    assert_true(oq_str_is(g.record.runs.v[0].outputs[0].strings[1], "bc"));
    assert_ok(look(&g, &g.err), g.err);
    assert_true(g.v.ran && !g.v.measured);
    rig_end(&g);
}

/* All runs count as one long vector, the worst output is the figure; no more runs than are
 * wanted. */
static void several_runs(void **state) {
    (void)state;
    rig g;
    rig_begin(&g, NULL, "Mul", 2.2f);
    assert_true(oq_record_wants(&g.record, 0) && !oq_record_wants(&g.record, 1));
    assert_ok(keep(&g, 2.2f, &g.err), g.err); /* no noise, signal 2.2^2 */
    assert_true(oq_record_wants(&g.record, 1));
    assert_ok(keep(&g, 2.0f, &g.err), g.err); /* noise 0.2^2, signal 2^2 */
    assert_ok(keep(&g, 9.0f, &g.err), g.err); /* one too many */
    assert_int_equal(g.record.runs.n, 2);
    assert_ok(look(&g, &g.err), g.err);
    assert_int_equal(g.v.n_runs, 2);
    assert_int_equal(g.engine.n_runs, 2);
    assert_true(fabs(g.v.sqnr - 10 * log10((2.2 * 2.2 + 4) / 0.04)) < 0.01);
    assert_int_equal(g.v.rows, 2); /* z is the first, and right */
    assert_int_equal(g.v.same, 2);
    rig_end(&g);
}

/* The word for a verdict is that for its figures. */
static void graded(void **state) {
    (void)state;
    oq_verdict v = {.measured = true, .sqnr = 25, .rows = 10, .same = 9};
    oq_graded g = oq_verify_graded(&v, oq_grade_floor(8));
    assert_int_equal(oq_grade_of(&g), OQ_GRADE_GOOD);
    v.speaks = true;
    v.text = (oq_lm_score){.rows = 10, .same = 9, .kl = 10 * 0.5};
    g = oq_verify_graded(&v, oq_grade_floor(8));
    assert_int_equal(oq_grade_of(&g), OQ_GRADE_POOR);
    v = (oq_verdict){.measured = false};
    g = oq_verify_graded(&v, oq_grade_floor(8));
    assert_int_equal(oq_grade_of(&g), OQ_GRADE_POOR);
}

static int stop(void *ctx, const char *what, uint64_t done, uint64_t total) {
    (void)ctx;
    (void)done;
    (void)total;
    return strcmp(what, "verifying") == 0;
}

static void cancelled(void **state) {
    (void)state;
    rig g;
    rig_begin(&g, NULL, "Mul", 1.0f);
    onq_env_set_progress(g.b.env, stop, NULL);
    assert_fails(look(&g, &g.err), ONQ_E_CANCEL, g.err, "verifying");
    rig_end(&g);
}

static onq_code whole_look(const onq_allocator *a, void *ctx, onq_error *err) {
    rig g;
    (void)ctx;
    rig_begin(&g, a, "Mul", 2.0f);
    if (g.b.m == NULL || g.b.failed) {
        bm_end(&g.b);
        return oq_fail_nomem(err);
    }
    onq_code rc = keep(&g, 2.0f, err);
    if (rc == ONQ_OK)
        rc = look(&g, err);
    rig_end(&g);
    return rc;
}

static void no_memory(void **state) {
    (void)state;
    assert_true(flaky_sweep(whole_look, NULL) > 4);
}

/* ---- mend ---- */

#define NODES 40

/* A chain of nodes, some of which keep the result from loading or running. */
typedef struct chain {
    bm b;
    oq_arena arena;
    oq_mend m;
    bool at_fault[NODES];
    bool nameless;  /* the message names nothing */
    bool all_wrong; /* nothing helps */
    int blame;      /* the message names this node, whoever is at fault; -1: the right one */
    oq_verify_end end;
} chain;

static bool holds(const oq_mend_nodes *left, const oq_node *n) {
    for (size_t i = 0; i < left->n; i++)
        if (left->v[i] == n)
            return true;
    return false;
}

static bool any_node(void *ctx, const oq_node *n) {
    (void)ctx;
    return !oq_str_is(n->op_type, "Shape");
}

static onq_code attempt(void *ctx, const oq_mend_nodes *left, oq_verdict *v, oq_graph **result,
                        onq_error *err) {
    chain *c = ctx;
    (void)err;
    *v = (oq_verdict){.end = OQ_VERIFY_GOOD};
    *result = c->b.g;
    for (size_t i = 0; i < NODES && v->end == OQ_VERIFY_GOOD; i++) {
        const oq_node *n = c->b.g->node.v[i];
        if (!c->all_wrong && (!c->at_fault[i] || holds(left, n)))
            continue;
        v->end = c->end;
        if (c->nameless)
            snprintf(v->why.text, sizeof v->why.text, "Exception during initialization");
        else
            snprintf(v->why.text, sizeof v->why.text, "In Node, (\"%.*s\", Conv) : refused",
                     OQ_STR((c->blame >= 0 ? c->b.g->node.v[c->blame] : n)->name));
    }
    return ONQ_OK;
}

static void chain_begin(chain *c) {
    memset(c, 0, sizeof *c);
    bm_begin(&c->b, NULL, 13);
    bm_input(&c->b, "t0", OQ_FLOAT, "4");
    for (int i = 0; i < NODES; i++) {
        char name[32], in[32], out[32];
        snprintf(name, sizeof name, "node_%d", i);
        snprintf(in, sizeof in, "t%d", i);
        snprintf(out, sizeof out, "t%d", i + 1);
        bm_node(&c->b, i % 4 == 1 ? "Concat" : i % 4 == 2 ? "Shape" : "Conv", name, in, out, "");
    }
    oq_arena_init(&c->arena, &c->b.env->alloc);
    c->blame = -1;
    c->end = OQ_VERIFY_NOT_LOADED;
    c->m = (oq_mend){
        .arena = &c->arena, .source = c->b.g, .can_leave = any_node, .attempt = attempt, .ctx = c};
}

static void chain_end(chain *c) {
    oq_arena_release(&c->arena);
    bm_end(&c->b);
}

/* Mends, and gives the names of what is left. */
static const char *mended(chain *c, bool good) {
    static char names[2000];
    onq_error err = ONQ_ERROR_INIT;
    oq_verdict v;
    oq_graph *result = NULL;
    const oq_mend_nodes none = {0};
    size_t n = 0;
    assert_ok(attempt(c, &none, &v, &result, &err), err);
    assert_int_not_equal(v.end, OQ_VERIFY_GOOD);
    assert_ok(oq_mend_run(&c->m, &v, result, &err), err);
    assert_int_equal(v.end == OQ_VERIFY_GOOD, good);
    assert_true(c->m.n_tries <= OQ_MEND_TRIES);
    names[0] = '\0';
    for (size_t i = 0; i < c->m.left.n; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%.*s", i > 0 ? " " : "",
                              OQ_STR(c->m.left.v[i]->name));
    return names;
}

static void named(void **state) {
    (void)state;
    chain c;
    chain_begin(&c);
    c.at_fault[11] = c.at_fault[20] = true;
    assert_string_equal(mended(&c, true), "node_11 node_20");
    assert_int_equal(c.m.n_tries, 2);
    chain_end(&c);
}

/* The message names nothing, or a node that is not at fault: halving finds it. */
static void halved(void **state) {
    (void)state;
    chain c;
    for (int i = 0; i < NODES; i++) {
        if (i % 4 == 2)
            continue; /* Shape: stays as it is anyway */
        chain_begin(&c);
        c.at_fault[i] = true;
        c.nameless = i % 2 == 0;
        c.blame = i == 5 ? 7 : 5;
        c.end = i % 3 == 0 ? OQ_VERIFY_NOT_RUN : OQ_VERIFY_NOT_FINITE;
        char name[32];
        snprintf(name, sizeof name, "node_%d", i);
        assert_string_equal(mended(&c, true), name);
        assert_true(c.m.n_tries < 10);
        chain_end(&c);
    }
    chain_begin(&c);
    c.at_fault[3] = c.at_fault[36] = true;
    c.nameless = true;
    /* Halving finds the last at fault first: with all before it float it is alone. */
    assert_string_equal(mended(&c, true), "node_36 node_3");
    chain_end(&c);
}

/* Many nodes of one operator: after some the operator is at fault, not the node. */
static void by_operator(void **state) {
    (void)state;
    chain c;
    chain_begin(&c);
    for (int i = 1; i < NODES; i += 4)
        c.at_fault[i] = true;
    (void)mended(&c, true);
    assert_int_equal(c.m.left.n, NODES / 4);
    assert_int_equal(c.m.n_tries, 3);
    chain_end(&c);
}

static void hopeless(void **state) {
    (void)state;
    chain c;
    chain_begin(&c);
    c.all_wrong = true;
    (void)mended(&c, false);
    chain_end(&c);

    chain_begin(&c); /* too many for so few tries */
    for (int i = 0; i < NODES; i++)
        c.at_fault[i] = i % 2 == 0;
    c.nameless = true;
    c.end = OQ_VERIFY_NOT_FINITE;
    (void)mended(&c, c.m.left.n > 0);
    chain_end(&c);
}

/* Nodes that quantization made lead to those around them; words of a sentence are not names. */
static void suspects(void **state) {
    (void)state;
    static const struct {
        const char *text, *nodes;
    } rows[] = {
        {"Node (conv1) Op (Conv) [ShapeInferenceError]", "conv1"},
        {"node 'a' (Add): wrong", "a"},
        {"a message that names no node", ""},
        {"Node: pool before conv1", "pool conv1"},
        {"In Node, (\"t_QuantizeLinear\", QuantizeLinear, \"\", -1)", "pool conv1"},
        {"Type of 't_QuantizeLinear_Output' is wrong", "pool conv1"},
        {"Could not find an implementation for X(1) node with name 'conv1_extra'", ""},
        {"shape: node 's' (Shape)", ""},
    };
    bm b, q;
    oq_arena arena;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "4");
    bm_node(&b, "Conv", "conv1", "x w", "t", "");
    bm_node(&b, "MaxPool", "pool", "t", "p", "");
    bm_node(&b, "Add", "a", "p p", "y", "");
    bm_node(&b, "Shape", "s", "y", "n", "");
    bm_begin(&q, NULL, 13);
    bm_node(&q, "Conv", "conv1", "x w", "t", "");
    bm_node(&q, "QuantizeLinear", "t_QuantizeLinear", "t s0 z0", "t_QuantizeLinear_Output", "");
    bm_node(&q, "DequantizeLinear", "t_DequantizeLinear", "t_QuantizeLinear_Output s0 z0", "t_dq",
            "");
    bm_node(&q, "MaxPool", "pool", "t_dq", "p", "");
    bm_node(&q, "Add", "a", "p p", "y", "");
    oq_arena_init(&arena, &b.env->alloc);
    oq_mend m = {.arena = &arena, .source = b.g, .can_leave = any_node};
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        oq_mend_nodes found;
        char names[200] = "";
        size_t n = 0;
        assert_ok(oq_mend_suspects(&m, q.g, rows[i].text, &found, &err), err);
        for (size_t k = 0; k < found.n; k++)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%.*s", k > 0 ? " " : "",
                                  OQ_STR(found.v[k]->name));
        assert_string_equal(names, rows[i].nodes);
    }
    oq_arena_release(&arena);
    bm_end(&q);
    bm_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measures),       cmocka_unit_test(several_runs),
        cmocka_unit_test(graded),         cmocka_unit_test(not_finite),
        cmocka_unit_test(refused),        cmocka_unit_test(without_a_sample),
        cmocka_unit_test(not_comparable), cmocka_unit_test(cancelled),
        cmocka_unit_test(no_memory),      cmocka_unit_test(named),
        cmocka_unit_test(halved),         cmocka_unit_test(by_operator),
        cmocka_unit_test(hopeless),       cmocka_unit_test(suspects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
