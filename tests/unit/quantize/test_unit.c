/*
 * test_unit.c — units: what they are, how much they multiply, and which of them --op_set and
 * --heaviest leave.
 */
#include "quantize/cost/unit.h"

#include "build_model.h"
#include "quantize/choose/selection.h"
#include "quantize/rules.h"
#include "testing.h"

/* A stem, a depthwise and a pointwise convolution, squeeze-and-excite, an upsampling, two matrix
 * products (one of activations) and some arithmetic. H, W and N are symbols. */
static void network(bm *b) {
    const int64_t shape[] = {0, 8, -1};
    bm_input(b, "x", OQ_FLOAT, "N,3,H,W");
    bm_weight(b, "w0", "8,3,3,3", 1);
    bm_weight(b, "w1", "8,1,3,3", 2);
    bm_weight(b, "w2", "16,8,1,1", 3);
    bm_weight(b, "w3", "16,16,1,1", 4);
    bm_weight(b, "w4", "16,8,2,2", 5);
    bm_weight(b, "w5", "8,4", 6);
    bm_i64(b, "shape", "3", shape);
    bm_node(b, "Conv", "stem", "x w0", "t0", "pads=[1,1,1,1] strides=[2,2]");
    bm_node(b, "Relu", "stem_relu", "t0", "t1", "");
    bm_node(b, "Conv", "depth", "t1 w1", "t2", "pads=[1,1,1,1] group=8");
    bm_node(b, "Conv", "point", "t2 w2", "t3", "");
    bm_node(b, "GlobalAveragePool", "pool", "t3", "p", "");
    bm_node(b, "Conv", "squeeze", "p w3", "s", "");
    bm_node(b, "Mul", "excite", "t3 s", "t4", "");
    bm_node(b, "ConvTranspose", "up", "t4 w4", "t5", "strides=[2,2]");
    bm_node(b, "Reshape", "flat", "t5 shape", "t6", "");
    bm_node(b, "Transpose", "turn", "t6", "t7", "perm=[0,2,1]");
    bm_node(b, "MatMul", "linear", "t7 w5", "t8", "");
    bm_node(b, "MatMul", "attend", "t6 t8", "y", "");
    bm_output(b, "y", OQ_FLOAT, "N,8,4");
}

static const oq_unit *unit_of(const oq_units *u, const char *name) {
    for (size_t i = 0; i < u->all.n; i++)
        if (oq_str_is(u->all.v[i].node->name, name))
            return &u->all.v[i];
    fail_msg("no unit %s", name);
    return NULL;
}

static void sizes_and_kinds(void **state) {
    (void)state;
    static const struct {
        const char *name;
        oq_unit_kind kind;
        double macs;
    } wanted[] = {
        {"stem", OQ_UNIT_DENSE, 2.0 * 8 * 16 * 8 * 27},
        {"depth", OQ_UNIT_DEPTHWISE, 2.0 * 8 * 16 * 8 * 9},
        {"point", OQ_UNIT_DENSE, 2.0 * 16 * 16 * 8 * 8},
        {"squeeze", OQ_UNIT_POOLED, 2.0 * 16 * 16},
        {"up", OQ_UNIT_TRANSPOSE, 2.0 * 16 * 16 * 8 * 32},
        {"linear", OQ_UNIT_DENSE, 2.0 * 512 * 4 * 8},
        {"attend", OQ_UNIT_PAIR, 2.0 * 8 * 4 * 512},
    };
    const int64_t dims[] = {2, 3, 32, 16};
    const oq_datum x = {.kind = OQ_DATUM_TENSOR, .dtype = OQ_FLOAT, .rank = 4, .dims = dims};
    const oq_sample sample = {.inputs = &x, .n_inputs = 1};
    const oq_unit_sizes sizes = {.sample = &sample};
    bm b;
    oq_units u;
    double sum = 0;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    network(&b);
    oq_model_proto *const proto = b.m->proto;
    assert_ok(oq_units_find(&u, b.a, b.m, &sizes, &err), err);
    assert_ptr_equal(b.m->proto, proto);
    assert_int_equal(u.all.n, OQ_COUNT(wanted));
    for (size_t i = 0; i < OQ_COUNT(wanted); i++) {
        const oq_unit *one = unit_of(&u, wanted[i].name);
        assert_int_equal(one->kind, wanted[i].kind);
        assert_true(one->macs == wanted[i].macs);
        assert_false(one->guessed);
        sum += one->macs;
    }
    assert_true(u.macs == sum);
    assert_non_null(unit_of(&u, "stem")->act);
    assert_null(unit_of(&u, "point")->act);
    /* The model's own symbols are as they were. */
    assert_true(oq_str_is(b.g->input.v[0]->type->tensor_type->shape->dim.v[2]->dim_param, "H"));
    bm_end(&b);
}

/* Without a sample: --dim, else 1 and 256. */
static void sizes_without_sample(void **state) {
    (void)state;
    const oq_dim_fix fix = {OQ_S("H"), 10};
    const oq_unit_sizes sizes = {.dims = &fix, .n_dims = 1};
    bm b;
    oq_units u;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    network(&b);
    assert_ok(oq_units_find(&u, b.a, b.m, &sizes, &err), err);
    assert_true(unit_of(&u, "stem")->macs == 8 * 5 * (OQ_UNIT_AXIS / 2) * 27);
    assert_ok(oq_units_find(&u, b.a, b.m, NULL, &err), err);
    assert_true(unit_of(&u, "stem")->macs == 8 * (OQ_UNIT_AXIS / 2) * (OQ_UNIT_AXIS / 2) * 27);
    bm_end(&b);
}

/* A Relu that is not alone, or whose input leaves the graph, is no part of the unit; what is not
 * known counts as 1. */
static void loose_ends(void **state) {
    (void)state;
    bm b;
    oq_units u;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, NULL);
    bm_weight(&b, "w", "4,3,1,1", 1);
    bm_node(&b, "Conv", "a", "x w", "t", "");
    bm_node(&b, "Relu", "r1", "t", "r", "");
    bm_node(&b, "Relu", "r2", "t", "y", "");
    bm_node(&b, "Conv", "b", "x w", "z", "");
    bm_node(&b, "Relu", "r3", "z", "v", "");
    bm_output(&b, "y", OQ_FLOAT, NULL);
    bm_output(&b, "z", OQ_FLOAT, NULL);
    assert_ok(oq_units_find(&u, b.a, b.m, NULL, &err), err);
    assert_null(unit_of(&u, "a")->act);
    assert_null(unit_of(&u, "b")->act);
    assert_true(unit_of(&u, "a")->guessed);
    bm_end(&b);
}

/* ---- choosing ---- */

static onq_code choose(bm *b, oq_qrun *r, oq_op_set set, uint64_t heaviest, onq_error *err) {
    oq_units u;
    oq_selection s = {.set = set, .heaviest = heaviest, .modes = OQ_QMODE_QDQ | OQ_QMODE_QLINEAR};
    OQ_TRY(oq_units_find(&u, b->a, b->m, NULL, err));
    s.units = &u;
    OQ_TRY(oq_selection_choose_outputs(r->config, &s, err));
    return oq_selection_choose_nodes(r, b->m, &s, err);
}

/* The names of the nodes that are left, of those that QDQ would take. */
static void expect(oq_op_set set, uint64_t heaviest, const char *exclude, const char *wanted) {
    bm b;
    oq_qconfig c;
    oq_qrun r;
    char text[256] = "";
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    network(&b);
    oq_qconfig_init(&c, b.a);
    oq_qrun_init(&r, &c);
    if (exclude != NULL)
        assert_ok(oq_pick_add(&c.nodes_to_exclude, oq_str_of(exclude), &err), err);
    assert_ok(choose(&b, &r, set, heaviest, &err), err);
    for (size_t i = 0; i < b.g->node.n; i++) {
        const oq_node *n = b.g->node.v[i];
        const unsigned modes = OQ_QMODE_QDQ | OQ_QMODE_QLINEAR;
        if ((oq_rules_modes(n->op_type) & modes) != 0 && oq_qrun_skip(&r, n, modes) == NULL) {
            strcat(text, oq_str_cstr(b.a, n->name));
            strcat(text, " ");
        }
    }
    assert_string_equal(text, wanted);
    bm_end(&b);
}

static void op_sets(void **state) {
    (void)state;
    expect(OQ_SET_ALL, 0, NULL,
           "stem stem_relu depth point pool squeeze excite up flat turn linear attend ");
    expect(OQ_SET_LINEAR, 0, NULL, "stem stem_relu depth point squeeze flat turn linear attend ");
    expect(OQ_SET_NOOUT, 0, "depth", "stem stem_relu point squeeze flat turn linear attend ");
    expect(OQ_SET_ALL, 1, NULL, "stem stem_relu ");
    expect(OQ_SET_ALL, 2, NULL, "stem stem_relu point ");
    expect(OQ_SET_ALL, 2, "stem", "point linear ");
    expect(OQ_SET_NOOUT, 99, NULL, "stem stem_relu point linear ");
}

static void what_goes_with_a_set(void **state) {
    (void)state;
    static const struct {
        oq_op_set set;
        uint64_t heaviest;
        bool off, floats, products;
    } wanted[] = {{OQ_SET_ALL, 0, false, false, false},
                  {OQ_SET_LINEAR, 0, false, true, false},
                  {OQ_SET_ALL, 3, false, true, false},
                  {OQ_SET_NOOUT, 0, true, true, true},
                  {OQ_SET_PAYS, 0, true, true, true}};
    for (size_t i = 0; i < OQ_COUNT(wanted); i++) {
        bm b;
        oq_qconfig c;
        oq_qrun r;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 13);
        network(&b);
        oq_qconfig_init(&c, b.a);
        oq_qrun_init(&r, &c);
        assert_ok(choose(&b, &r, wanted[i].set, wanted[i].heaviest, &err), err);
        assert_int_equal(oq_pick_has(&c.exclude_output_ops, OQ_S("MatMul")), wanted[i].off);
        assert_int_equal(c.keep_excluded_float, wanted[i].floats);
        assert_int_equal(c.keep_products, wanted[i].products);
        bm_end(&b);
    }
}

/* Attention, squeeze-and-excite and ConvTranspose never pay. */
static void reasons(void **state) {
    (void)state;
    static const char *const wanted[][2] = {{"attend", "two activations"},
                                            {"squeeze", "one place"},
                                            {"up", "no integer ConvTranspose"},
                                            {"excite", "neither a product"}};
    bm b;
    oq_qconfig c;
    oq_qrun r;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    network(&b);
    oq_qconfig_init(&c, b.a);
    oq_qrun_init(&r, &c);
    assert_ok(choose(&b, &r, OQ_SET_PAYS, 0, &err), err);
    for (size_t i = 0; i < OQ_COUNT(wanted); i++) {
        const char *why = oq_qrun_left_why(&r, bm_find_node(&b, wanted[i][0]));
        assert_non_null(why);
        assert_non_null(strstr(why, wanted[i][1]));
    }
    bm_end(&b);
}

static onq_code work(bm *b, void *ctx, onq_error *err) {
    oq_qconfig c;
    oq_qrun r;
    oq_units u;
    (void)ctx;
    oq_qconfig_init(&c, b->a);
    oq_qrun_init(&r, &c);
    oq_selection s = {.set = OQ_SET_PAYS, .heaviest = 2, .units = &u, .modes = OQ_QMODE_QDQ};
    onq_code rc = oq_units_find(&u, b->a, b->m, NULL, err);
    if (rc == ONQ_OK)
        rc = oq_selection_choose_outputs(&c, &s, err);
    if (rc == ONQ_OK)
        rc = oq_selection_choose_nodes(&r, b->m, &s, err);
    return rc;
}

static void out_of_memory(void **state) {
    (void)state;
    assert_true(bm_sweep(13, network, work, NULL) > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_and_kinds),      cmocka_unit_test(sizes_without_sample),
        cmocka_unit_test(loose_ends),           cmocka_unit_test(op_sets),
        cmocka_unit_test(what_goes_with_a_set), cmocka_unit_test(reasons),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
