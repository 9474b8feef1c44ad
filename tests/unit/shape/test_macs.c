/*
 * test_macs.c — multiply-accumulates of every operator that has them, with shapes that are known
 * and with shapes that a sample gives.
 */
#include "shape/macs.h"

#include "build_model.h"
#include "flaky_alloc.h"
#include "testing.h"

static void build(bm *b, const onq_allocator *alloc) {
    bm_begin(b, alloc, 17);
    if (b->m == NULL)
        return;
    bm_input(b, "x", OQ_FLOAT, "n,4,h,h");
    bm_input(b, "s", OQ_FLOAT, "5,n,6");
    bm_weight(b, "w", "8,2,3,3", 1);
    bm_node(b, "Conv", "conv", "x w", "a", "pads=[1,1,1,1] group=2");
    bm_weight(b, "v", "8,3,2,2", 2);
    bm_node(b, "ConvTranspose", "up", "a v", "b", "strides=[2,2]");
    bm_node(b, "Relu", "relu", "b", "c", "");
    bm_weight(b, "k", "1,28,6", 3);
    bm_weight(b, "r", "1,28,7", 4);
    bm_node(b, "LSTM", "lstm", "s k r", "d", "hidden_size=7");
    bm_weight(b, "m", "6,9", 5);
    bm_node(b, "MatMul", "mm", "s m", "e", "");
    bm_weight(b, "p", "10,9", 6);
    bm_weight(b, "q", "9,11", 7);
    bm_node(b, "Gemm", "gemm", "p q", "f", "");
    bm_node(b, "Gemm", "turned", "q p", "g", "transA=1 transB=1");
    bm_output(b, "c", OQ_FLOAT, NULL);
    bm_output(b, "d", OQ_FLOAT, NULL);
    bm_output(b, "e", OQ_FLOAT, NULL);
    bm_output(b, "f", OQ_FLOAT, NULL);
    bm_output(b, "g", OQ_FLOAT, NULL);
}

static const oq_shape_options symbolic = {.symbolic = true};

static void expect(bm *b, const double *macs) {
    oq_shapes *s = NULL;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_shapes_infer(b->m, &symbolic, &s, &err), err);
    for (size_t i = 0; i < b->g->node.n; i++)
        if (oq_node_macs(s, b->g, b->g->node.v[i]) != macs[i])
            fail_msg("%.*s: %g, not %g", OQ_STR(b->g->node.v[i]->name),
                     oq_node_macs(s, b->g, b->g->node.v[i]), macs[i]);
    oq_shapes_free(s);
}

static void counts(void **state) {
    (void)state;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    build(&b, NULL);
    /* n and h are 1 as far as it is known */
    const double open[] = {8 * 18, 8 * 12, 0, 5 * 28 * 13, 5 * 6 * 9, 10 * 9 * 11, 9 * 11 * 10};
    expect(&b, open);
    assert_ok(oq_input_fix(b.m, OQ_S("x"), (const int64_t[]){2, 4, 10, 10}, 4, &err), err);
    assert_ok(oq_input_fix(b.m, OQ_S("s"), (const int64_t[]){5, 3, 6}, 3, &err), err);
    assert_ok(oq_input_fix(b.m, OQ_S("x"), (const int64_t[]){2, 4}, 2, &err),
              err); /* no such rank */
    assert_ok(oq_input_fix(b.m, OQ_S("y"), (const int64_t[]){2, 4}, 2, &err), err);
    const double fixed[] = {1600 * 18,  1600 * 12,   0,          15 * 28 * 13,
                            15 * 6 * 9, 10 * 9 * 11, 9 * 11 * 10};
    expect(&b, fixed);
    bm_end(&b);
}

static void unknown_ranks(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, NULL);
    bm_weight(&b, "w", "8,2,3,3", 1);
    bm_node(&b, "Conv", "conv", "x w", "y", "");
    bm_node(&b, "MatMul", "mm", "x w", "z", "");
    bm_node(&b, "LSTM", "lstm", "x w w", "u", "");
    bm_output(&b, "y", OQ_FLOAT, NULL);
    expect(&b, (const double[]){0, 0, 0});
    bm_end(&b);
}

static onq_code fix(const onq_allocator *a, void *ctx, onq_error *err) {
    bm b;
    (void)ctx;
    build(&b, a);
    onq_code rc = b.m == NULL || b.failed ? oq_fail_nomem(err) : ONQ_OK;
    if (rc == ONQ_OK)
        rc = oq_input_fix(b.m, OQ_S("x"), (const int64_t[]){2, 4, 10, 10}, 4, err);
    bm_end(&b);
    return rc;
}

static void no_memory(void **state) {
    (void)state;
    assert_true(flaky_sweep(fix, NULL) > 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts),
        cmocka_unit_test(unknown_ranks),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
