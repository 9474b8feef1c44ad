/* test_profile.c — work, sizes, what computes in integers, and the memory of activations. */
#include "build_model.h"
#include "quantize/cost/profile.h"
#include "testing.h"

typedef struct made {
    bm b;
    oq_arena arena;
    oq_profile p;
} made;

static void profile(made *m, const oq_unit_sizes *sizes) {
    onq_error err = ONQ_ERROR_INIT;
    oq_arena_init(&m->arena, &m->b.m->env->alloc);
    assert_ok(oq_profile_make(&m->p, &m->arena, m->b.m, sizes, &err), err);
}

static void end(made *m) {
    oq_arena_release(&m->arena);
    bm_end(&m->b);
}

static const oq_profile_node *node(const made *m, const char *name) {
    for (size_t i = 0; i < m->p.nodes.n; i++)
        if (oq_str_is(m->p.nodes.v[i].node->name, name))
            return &m->p.nodes.v[i];
    fail_msg("no node %s", name);
    return NULL;
}

static const oq_profile_value *value(const made *m, const char *name) {
    for (size_t i = 0; i < m->p.values.n; i++)
        if (oq_str_is(m->p.values.v[i].name, name))
            return &m->p.values.v[i];
    fail_msg("no value %s", name);
    return NULL;
}

static void same(double got, double wanted) {
    if (got != wanted)
        fail_msg("%g, not %g", got, wanted);
}

static void text(oq_str got, const char *wanted) {
    if (!oq_str_is(got, wanted))
        fail_msg("'%.*s', not '%s'", OQ_STR(got), wanted);
}

/* x [N,1,8,8] -> conv [N,4,6,6] -> relu -> flat -> mm [N,6] */
static void floats(void **state) {
    (void)state;
    made m;
    bm_begin(&m.b, NULL, 13);
    bm_input(&m.b, "x", OQ_FLOAT, "N,1,8,8");
    bm_weight(&m.b, "w", "4,1,3,3", 1);
    bm_weight(&m.b, "m", "144,6", 2);
    bm_node(&m.b, "Conv", "conv", "x w", "t", "");
    bm_node(&m.b, "Relu", "relu", "t", "r", "");
    bm_node(&m.b, "Flatten", "flat", "r", "f", "");
    bm_node(&m.b, "MatMul", "mm", "f m", "y", "");
    bm_output(&m.b, "y", OQ_FLOAT, "N,6");
    profile(&m, NULL);
    same(node(&m, "conv")->macs, 4 * 6 * 6 * 9);
    same(node(&m, "mm")->macs, 144 * 6);
    same(m.p.macs[OQ_COMPUTE_FLOAT], m.p.all_macs);
    same(node(&m, "conv")->weights, 36 * 4);
    text(value(&m, "t")->type, "FLOAT[N, 4, 6, 6]"); /* the symbol stays */
    text(value(&m, "t")->shape, "N, 4, 6, 6");
    same(value(&m, "t")->bytes, 4 * 144);
    assert_int_equal(m.p.dims.n, 1);
    assert_int_equal(m.p.dims.v[0].value, 1);
    same(m.p.peak, 2 * 4 * 144); /* conv's output and relu's; x is gone */
    text(m.p.peak_at, "relu");
    const oq_dim_fix three = {OQ_S("N"), 3};
    const oq_unit_sizes sizes = {.dims = &three, .n_dims = 1};
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_profile_make(&m.p, &m.arena, m.b.m, &sizes, &err), err);
    same(node(&m, "mm")->macs, 3 * 144 * 6);
    same(m.p.peak, 3 * 2 * 4 * 144);
    end(&m);
}

/* A pair around a Conv, a MatMul that has a quantized weight only, and one that stays float. */
static void integers(void **state) {
    (void)state;
    static const float one[] = {0.5f}, four[] = {1, 2, 3, 4};
    static const uint8_t zero[4] = {0};
    static const int8_t q[36] = {1};
    made m;
    bm_begin(&m.b, NULL, 13);
    bm_input(&m.b, "x", OQ_FLOAT, "1,1,8,8");
    bm_f32(&m.b, "s", "", one);
    bm_raw(&m.b, "z", OQ_UINT8, "", zero, 1);
    bm_raw(&m.b, "wq", OQ_INT8, "4,1,3,3", q, sizeof q);
    bm_f32(&m.b, "ws", "4", four);
    bm_raw(&m.b, "wz", OQ_INT8, "4", zero, 4);
    bm_raw(&m.b, "vq", OQ_INT8, "6,6", q, sizeof q);
    bm_raw(&m.b, "vz", OQ_INT8, "", zero, 1);
    bm_weight(&m.b, "u", "6,6", 1);
    bm_node(&m.b, "QuantizeLinear", "q", "x s z", "xq", "");
    bm_node(&m.b, "DequantizeLinear", "d", "xq s z", "xd", "");
    bm_node(&m.b, "DequantizeLinear", "dw", "wq ws wz", "w", "axis=0");
    bm_node(&m.b, "Conv", "conv", "xd w", "t", "");
    bm_node(&m.b, "QuantizeLinear", "q2", "t s z", "tq", "");
    bm_node(&m.b, "DequantizeLinear", "d2", "tq s z", "td", "");
    bm_node(&m.b, "DequantizeLinear", "dv", "vq s vz", "v", "");
    bm_node(&m.b, "Abs", "abs", "td", "a", "");
    bm_node(&m.b, "MatMul", "few", "a v", "b", "");
    bm_node(&m.b, "MatMul", "left", "b u", "y", "");
    bm_output(&m.b, "y", OQ_FLOAT, NULL);
    profile(&m, NULL);
    assert_int_equal(node(&m, "conv")->compute, OQ_COMPUTE_QDQ);
    assert_int_equal(node(&m, "q")->compute, OQ_COMPUTE_CONVERT);
    assert_int_equal(node(&m, "few")->compute, OQ_COMPUTE_WEIGHT_ONLY);
    assert_int_equal(node(&m, "left")->compute, OQ_COMPUTE_FLOAT);
    same(m.p.macs[OQ_COMPUTE_QDQ], 4 * 36 * 9);
    same(m.p.macs[OQ_COMPUTE_FLOAT], 4 * 36 * 6);
    same(node(&m, "conv")->weights, 36); /* of the integers behind the pair */
    assert_int_equal(value(&m, "x")->quantized, OQ_UINT8);
    text(value(&m, "x")->scale, "0.5");
    text(value(&m, "x")->zero, "0");
    assert_int_equal(value(&m, "wq")->granularity, OQ_PER_CHANNEL);
    text(value(&m, "wq")->scale, "");
    assert_int_equal(value(&m, "y")->quantized, 0);
    /* `few` reads a and makes b, in float; what is around the Conv takes a byte an element. */
    same(m.p.peak, 2 * 4 * 144);
    end(&m);
}

/* What an inner graph reads counts as a use, and its nodes are of the graph's work. */
static void inner(void **state) {
    (void)state;
    made m;
    bm_begin(&m.b, NULL, 13);
    bm_input(&m.b, "c", OQ_BOOL, "");
    bm_input(&m.b, "x", OQ_FLOAT, "4,4");
    bm_weight(&m.b, "w", "4,4", 1);
    oq_node *choice = bm_node(&m.b, "If", "if", "c", "y", "");
    oq_graph *around = bm_enter(&m.b, choice, "then_branch");
    bm_node(&m.b, "MatMul", "mm", "x w", "t", "");
    bm_output(&m.b, "t", OQ_FLOAT, NULL);
    bm_leave(&m.b, around);
    around = bm_enter(&m.b, choice, "else_branch");
    bm_node(&m.b, "Abs", "abs", "x", "e", "");
    bm_output(&m.b, "e", OQ_FLOAT, NULL);
    bm_leave(&m.b, around);
    bm_output(&m.b, "y", OQ_FLOAT, "4,4");
    profile(&m, NULL);
    assert_int_equal(m.p.nodes.n, 3);
    same(node(&m, "mm")->macs, 64);
    assert_int_equal(node(&m, "mm")->owner, 0);
    assert_int_equal(node(&m, "mm")->graph, 1);
    assert_int_equal(node(&m, "abs")->graph, 2);
    assert_int_equal(value(&m, "x")->uses, 2);
    same(m.p.peak, 1 + 64 + 64); /* the condition, x, and the output of a branch */
    end(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(floats), cmocka_unit_test(integers),
                                       cmocka_unit_test(inner)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
