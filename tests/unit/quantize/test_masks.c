/*
 * test_masks.c — how far the range of a masked tensor may be clamped. What that does to a model is
 * in tests/parity/test_masks.py.
 */
#include "quantize/masks.h"

#include "build_model.h"
#include "flaky_alloc.h"
#include "quantize/op_set.h"
#include "testing.h"

#include <math.h>

typedef struct fix {
    oq_arena arena;
    oq_qconfig config;
    oq_ranges ranges;
    oq_extremes extremes;
    oq_overrides overrides;
} fix;

static void fix_init(fix *f, const onq_allocator *a) {
    *f = (fix){0};
    oq_arena_init(&f->arena, a);
    oq_qconfig_init(&f->config, &f->arena);
    f->config.activation_type = OQ_UINT8;
    oq_ranges_init(&f->ranges, a, OQ_CAL_MINMAX);
    f->extremes.arena = &f->arena;
}

static void fix_release(fix *f) {
    oq_ranges_release(&f->ranges);
    oq_qconfig_release(&f->config);
    oq_arena_release(&f->arena);
}

static bool range(fix *f, const char *name, double lo, double hi) {
    oq_range *r = oq_ranges_add(&f->ranges, oq_str_of(name));
    return r != NULL && oq_num_make_one(&f->ranges.arena, &r->lowest, OQ_FLOAT, true, lo) &&
           oq_num_make_one(&f->ranges.arena, &r->highest, OQ_FLOAT, true, hi);
}

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

static bool ranges_of_network(fix *f) {
    return range(f, "s", -3, 5) && range(f, "m", -1e9, 1) && range(f, "u", -1e9, 1) &&
           range(f, "t", -1e9, 6) && range(f, "w", -1e9, 5);
}

static onq_code settle(fix *f, bm *b, oq_masks how, onq_error *err) {
    OQ_TRY(oq_extremes_find(&f->extremes, b->g, &f->ranges, &f->config, &f->overrides, err));
    return oq_masks_settle(&f->extremes, 0, how, b->g, &f->ranges, &f->config, err);
}

static double lowest(const fix *f, const char *name) {
    return oq_ranges_find(&f->ranges, oq_str_of(name))->lowest.v[0];
}

static bool is_left(const fix *f, const bm *b, const char *name) {
    for (size_t i = 0; i < b->g->node.n; i++)
        if (oq_str_is(b->g->node.v[i]->name, name))
            return oq_left_why(&f->config, b->g->node.v[i]) != NULL;
    return false;
}

static void clamps(void **state) {
    (void)state;
    bm b;
    fix f;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    fix_init(&f, oq_alloc_default());
    network(&b, "Softmax");
    ranges_of_network(&f);
    assert_ok(settle(&f, &b, OQ_MASKS_CLAMP, &err), err);
    assert_int_equal(f.extremes.n_clamped, 4);
    assert_int_equal(f.extremes.all.n, 0);
    assert_true(lowest(&f, "t") == -3 - 17.5); /* below the lowest score */
    assert_true(lowest(&f, "w") == -3 - 17.5);
    /* As a summand it must bring every score below that; through the Unsqueeze as well. */
    assert_true(lowest(&f, "u") == -8 - 17.5 && lowest(&f, "m") == -8 - 17.5);
    assert_false(is_left(&f, &b, "add"));
    fix_release(&f);
    bm_end(&b);
}

/* Somebody else reads a masked tensor: it keeps its values, and so does what it is made of. */
static void not_for_others(void **state) {
    (void)state;
    static const char *const others[] = {"Sigmoid", "LogSoftmax"};
    for (size_t i = 0; i < OQ_COUNT(others); i++) {
        bm b;
        fix f;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 13);
        fix_init(&f, oq_alloc_default());
        network(&b, others[i]);
        ranges_of_network(&f);
        assert_ok(settle(&f, &b, OQ_MASKS_CLAMP, &err), err);
        assert_int_equal(f.extremes.n_clamped, 1);
        assert_true(lowest(&f, "t") == -3 - 17.5);
        assert_true(lowest(&f, "w") == -1e9 && lowest(&f, "u") == -1e9 && lowest(&f, "m") == -1e9);
        assert_true(is_left(&f, &b, "where") && is_left(&f, &b, "last") && is_left(&f, &b, "move"));
        fix_release(&f);
        bm_end(&b);
    }
}

static void leaves_and_keeps(void **state) {
    (void)state;
    for (int how = OQ_MASKS_KEEP; how <= OQ_MASKS_FLOAT; how++) {
        bm b;
        fix f;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 13);
        fix_init(&f, oq_alloc_default());
        network(&b, "Softmax");
        ranges_of_network(&f);
        assert_ok(settle(&f, &b, (oq_masks)how, &err), err);
        assert_int_equal(f.extremes.all.n, how == OQ_MASKS_KEEP ? 4 : 0);
        assert_int_equal(f.extremes.n_left, how == OQ_MASKS_KEEP ? 0 : 4);
        assert_true(lowest(&f, "t") == -1e9);
        assert_int_equal(is_left(&f, &b, "softmax"), how == OQ_MASKS_FLOAT);
        fix_release(&f);
        bm_end(&b);
    }
}

static onq_code sweep_body(const onq_allocator *a, void *ctx, onq_error *err) {
    bm b;
    fix f;
    bm_begin(&b, a, 13);
    fix_init(&f, a);
    if (b.m != NULL)
        network(&b, ctx != NULL ? "Sigmoid" : "Softmax");
    onq_code rc = ONQ_OK;
    if (b.failed || !ranges_of_network(&f))
        rc = oq_fail_nomem(err);
    else
        rc = settle(&f, &b, OQ_MASKS_CLAMP, err);
    fix_release(&f);
    bm_end(&b);
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
