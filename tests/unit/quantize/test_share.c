/*
 * test_share.c — what part of a model is in integers, by weights and by work.
 */
#include "quantize/cost/share.h"

#include "build_model.h"
#include "flaky_alloc.h"
#include "testing.h"

#include <math.h>

/* Two products; the second has three times the weights and the work. */
static void build(bm *b, const onq_allocator *alloc) {
    bm_begin(b, alloc, 17);
    if (b->m == NULL)
        return;
    bm_input(b, "x", OQ_FLOAT, "2,10");
    bm_weight(b, "w", "10,10", 1);
    bm_weight(b, "v", "10,30", 2);
    bm_node(b, "MatMul", "first", "x w", "a", "");
    bm_node(b, "MatMul", "second", "a v", "y", "");
    bm_output(b, "y", OQ_FLOAT, "2,30");
}

/* What became of it: the first in integers; `v` is float, or quantized as the model runs. */
static void build_result(bm *b, const onq_allocator *alloc, bool pair) {
    bm_begin(b, alloc, 17);
    if (b->m == NULL)
        return;
    bm_input(b, "x", OQ_FLOAT, "2,10");
    bm_weight(b, "v", "10,30", 2);
    bm_weight(b, "w_scale", "", 3);
    if (pair)
        bm_node(b, "QuantizeLinear", "q", "v w_scale", "vq", "");
    bm_node(b, pair ? "DequantizeLinear" : "MatMul", "second", pair ? "vq w_scale" : "x v", "y",
            "");
    bm_output(b, "y", OQ_FLOAT, "2,30");
}

static onq_code find(bm *from, bm *to, oq_plan_fate second, oq_share *out, onq_error *err) {
    oq_shapes *shapes = NULL;
    oq_arena a;
    oq_plan p;
    oq_arena_init(&a, &from->env->alloc);
    oq_plan_init(&p, &a);
    const oq_plan_node rows[] = {{.name = OQ_S("first"),
                                  .op_type = OQ_S("MatMul"),
                                  .output = OQ_S("a"),
                                  .fate = OQ_FATE_QUANTIZED,
                                  .why = ""},
                                 {.name = OQ_S("second"),
                                  .op_type = OQ_S("MatMul"),
                                  .output = OQ_S("y"),
                                  .fate = second,
                                  .why = ""}};
    onq_code rc = oq_shapes_infer(from->m, NULL, &shapes, err);
    for (size_t i = 0; rc == ONQ_OK && i < OQ_COUNT(rows); i++)
        if (!oq_plan_add_node(&p, rows[i]))
            rc = oq_fail_nomem(err);
    if (rc == ONQ_OK)
        rc = oq_share_find(out, &a, from->g, shapes, &p, to != NULL ? to->g : NULL, err);
    oq_shapes_free(shapes);
    oq_arena_release(&a);
    return rc;
}

static void shares(void **state) {
    (void)state;
    bm from, to;
    oq_share s;
    onq_error err = ONQ_ERROR_INIT;
    build(&from, NULL);
    build_result(&to, NULL, false);
    assert_ok(find(&from, &to, OQ_FATE_FLOAT, &s, &err), err);
    assert_true(fabs(s.macs - 0.25) < 1e-9 && fabs(s.weights - 0.25) < 1e-9);
    assert_ok(find(&from, NULL, OQ_FATE_QUANTIZED, &s, &err), err);
    assert_true(s.macs == 1 && isnan(s.weights));
    bm_end(&to);
    build_result(&to, NULL, true);
    assert_ok(find(&from, &to, OQ_FATE_QUANTIZED, &s, &err), err);
    assert_true(s.macs == 1 && s.weights == 1);
    bm_end(&to);
    bm_end(&from);
}

/* What was in integers before counts: a third product, in integers already, with as many weights
 * and as much work as the first. */
static void integers_of_the_source(void **state) {
    (void)state;
    bm from, to;
    oq_share s;
    onq_error err = ONQ_ERROR_INIT;
    static const int8_t w[100];
    static const uint8_t zero[10];
    bm_begin(&from, NULL, 17);
    bm_input(&from, "x", OQ_FLOAT, "2,10");
    bm_input(&from, "q", OQ_UINT8, "2,10");
    bm_weight(&from, "w", "10,10", 1);
    bm_weight(&from, "v", "10,30", 2);
    bm_raw(&from, "u", OQ_INT8, "10,10", w, sizeof w);
    bm_raw(&from, "u_zero", OQ_INT8, "10", zero, sizeof zero);
    bm_raw(&from, "q_zero", OQ_UINT8, "", zero, 1);
    bm_node(&from, "MatMul", "first", "x w", "a", "");
    bm_node(&from, "MatMul", "second", "a v", "y", "");
    bm_node(&from, "MatMulInteger", "third", "q u q_zero u_zero", "z", "");
    bm_output(&from, "y", OQ_FLOAT, "2,30");
    bm_output(&from, "z", OQ_INT32, "2,10");
    build_result(&to, NULL, false);
    assert_ok(find(&from, &to, OQ_FATE_FLOAT, &s, &err), err);
    assert_true(fabs(s.macs - 0.4) < 1e-9 && fabs(s.weights - 0.4) < 1e-9 && s.elements == 500);
    bm_end(&to);
    bm_end(&from);
}

static void nothing_to_share(void **state) {
    (void)state;
    bm b;
    oq_share s;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "2");
    bm_node(&b, "Relu", "r", "x", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "2");
    assert_ok(find(&b, &b, OQ_FATE_FLOAT, &s, &err), err);
    assert_true(isnan(s.macs) && isnan(s.weights));
    bm_end(&b);
}

static onq_code whole(const onq_allocator *a, void *ctx, onq_error *err) {
    bm from, to;
    oq_share s;
    (void)ctx;
    build(&from, a);
    build_result(&to, a, false);
    const bool failed = from.m == NULL || from.failed || to.m == NULL || to.failed;
    const onq_code rc = failed ? oq_fail_nomem(err) : find(&from, &to, OQ_FATE_FLOAT, &s, err);
    bm_end(&from);
    bm_end(&to);
    return rc;
}

static void no_memory(void **state) {
    (void)state;
    assert_true(flaky_sweep(whole, NULL) > 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares),
        cmocka_unit_test(integers_of_the_source),
        cmocka_unit_test(nothing_to_share),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
