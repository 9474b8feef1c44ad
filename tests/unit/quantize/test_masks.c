/*
 * test_masks.c — how far the range of a masked tensor may be clamped. What that does to a model is
 * in tests/parity/test_masks.py.
 */
#include "quantize/choose/masks.h"

#include "flaky_alloc.h"
#include "quant_rig.h"
#include "quantize/choose/selection.h"
#include "testing.h"

#include <math.h>

/* m -> Unsqueeze -> u; s + u -> t -> Softmax -> p; Where(c, s, u) -> w -> `last` -> y */
static void network(bm *b, const char *last) {
    const int64_t axis = 0;
    bm_input(b, "m", OQ_FLOAT, "4");
    bm_input(b, "s", OQ_FLOAT, "4,4");
    bm_input(b, "c", OQ_BOOL, "4,4");
    bm_i64(b, "axis", "1", &axis);
    bm_node(b, "Unsqueeze", "move", "m axis", "u", "");
    bm_node(b, "Add", "add", "s u", "t", "");
    bm_node(b, "Softmax", "softmax", "t", "p", "");
    bm_node(b, "Where", "where", "c s u", "w", "");
    bm_node(b, last, "last", "w", "y", "");
    bm_output(b, "p", OQ_FLOAT, "4,4");
    bm_output(b, "y", OQ_FLOAT, "4,4");
}

static bool ranges_of_network(quant_rig *r) {
    return quant_rig_range(r, "s", -3, 5) && quant_rig_range(r, "m", -1e9, 1) &&
           quant_rig_range(r, "u", -1e9, 1) && quant_rig_range(r, "t", -1e9, 6) &&
           quant_rig_range(r, "w", -1e9, 5);
}

static onq_code settle(quant_rig *r, oq_masks how, onq_error *err) {
    OQ_TRY(oq_extremes_find(&r->extremes, r->b.g, &r->ranges, &r->config, &r->overrides, err));
    return oq_masks_settle(&r->extremes, 0, how, r->b.g, &r->ranges, &r->run, err);
}

static double lowest(const quant_rig *r, const char *name) {
    return oq_ranges_find(&r->ranges, oq_str_of(name))->lowest.v[0];
}

static bool is_left(const quant_rig *r, const char *name) {
    return oq_qrun_left_why(&r->run, bm_find_node(&r->b, name)) != NULL;
}

static void clamps(void **state) {
    (void)state;
    quant_rig r;
    quant_rig_begin(&r, NULL);
    network(&r.b, "Softmax");
    ranges_of_network(&r);
    assert_ok(settle(&r, OQ_MASKS_CLAMP, &r.err), r.err);
    assert_int_equal(r.extremes.n_clamped, 4);
    assert_int_equal(r.extremes.all.n, 0);
    assert_true(lowest(&r, "t") == -3 - 17.5); /* below the lowest score */
    assert_true(lowest(&r, "w") == -3 - 17.5);
    /* As a summand it must bring every score below that; through the Unsqueeze as well. */
    assert_true(lowest(&r, "u") == -8 - 17.5 && lowest(&r, "m") == -8 - 17.5);
    assert_false(is_left(&r, "add"));
    quant_rig_end(&r);
}

/* Somebody else reads a masked tensor: it keeps its values, and so does what it is made of. */
static void not_for_others(void **state) {
    (void)state;
    static const char *const others[] = {"Sigmoid", "LogSoftmax"};
    for (size_t i = 0; i < OQ_COUNT(others); i++) {
        quant_rig r;
        quant_rig_begin(&r, NULL);
        network(&r.b, others[i]);
        ranges_of_network(&r);
        assert_ok(settle(&r, OQ_MASKS_CLAMP, &r.err), r.err);
        assert_int_equal(r.extremes.n_clamped, 1);
        assert_true(lowest(&r, "t") == -3 - 17.5);
        assert_true(lowest(&r, "w") == -1e9 && lowest(&r, "u") == -1e9 && lowest(&r, "m") == -1e9);
        assert_true(is_left(&r, "where") && is_left(&r, "last") && is_left(&r, "move"));
        quant_rig_end(&r);
    }
}

static void leaves_and_keeps(void **state) {
    (void)state;
    for (int how = OQ_MASKS_KEEP; how <= OQ_MASKS_FLOAT; how++) {
        quant_rig r;
        quant_rig_begin(&r, NULL);
        network(&r.b, "Softmax");
        ranges_of_network(&r);
        assert_ok(settle(&r, (oq_masks)how, &r.err), r.err);
        assert_int_equal(r.extremes.all.n, how == OQ_MASKS_KEEP ? 4 : 0);
        assert_int_equal(r.extremes.n_left, how == OQ_MASKS_KEEP ? 0 : 4);
        assert_true(lowest(&r, "t") == -1e9);
        assert_int_equal(is_left(&r, "softmax"), how == OQ_MASKS_FLOAT);
        quant_rig_end(&r);
    }
}

static onq_code sweep_body(const onq_allocator *a, void *ctx, onq_error *err) {
    quant_rig r;
    quant_rig_begin(&r, a);
    if (!r.b.failed)
        network(&r.b, ctx != NULL ? "Sigmoid" : "Softmax");
    const bool made = !r.b.failed && ranges_of_network(&r);
    const onq_code rc = made ? settle(&r, OQ_MASKS_CLAMP, err) : oq_fail_nomem(err);
    quant_rig_end(&r);
    return rc;
}

static void out_of_memory(void **state) {
    (void)state;
    int other = 1;
    assert_true(flaky_sweep(sweep_body, NULL) > 3);
    assert_true(flaky_sweep(sweep_body, &other) > 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clamps),
        cmocka_unit_test(not_for_others),
        cmocka_unit_test(leaves_and_keeps),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
