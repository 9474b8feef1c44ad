/*
 * test_cost.c — costs of units: keys, files, and which units integers pay for.
 */
#include "quantize/cost/cost.h"

#include "build_model.h"
#include "testing.h"

#include <math.h>

/* a -> depthwise -> c, a Sigmoid, d: three convolutions in a row and one apart. */
static void network(bm *b) {
    bm_input(b, "x", OQ_FLOAT, "1,64,16,16");
    bm_weight(b, "w1", "64,64,1,1", 1);
    bm_weight(b, "w2", "64,1,3,3", 2);
    bm_weight(b, "w3", "64,64,1,1", 3);
    bm_weight(b, "w4", "64,1,3,3", 4);
    bm_node(b, "Conv", "a", "x w1", "t1", "");
    bm_node(b, "Relu", "ar", "t1", "r1", "");
    bm_node(b, "Conv", "depth", "r1 w2", "t2", "group=64 pads=[1,1,1,1]");
    bm_node(b, "Conv", "c", "t2 w3", "t3", "");
    bm_node(b, "Sigmoid", "s", "t3", "t4", "");
    bm_node(b, "Conv", "d", "t4 w4", "y", "group=64 pads=[1,1,1,1]");
    bm_output(b, "y", OQ_FLOAT, NULL);
}

static void keys(void **state) {
    (void)state;
    bm b;
    oq_units u;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    network(&b);
    assert_ok(oq_units_find(&u, b.a, b.m, NULL, &err), err);
    assert_true(oq_str_is(oq_unit_key(&u.all.v[0], b.a), "Conv 1x64x16x16 64x64x1x1 Relu"));
    assert_true(
        oq_str_is(oq_unit_key(&u.all.v[1], b.a), "Conv 1x64x16x16 64x1x3x3 group=64 pads=1,1,1,1"));
    bm_end(&b);
}

/* Between units that pay the depthwise one pays too; next to a Sigmoid it does not. */
static void pays_by_rates(void **state) {
    (void)state;
    const bool wanted[] = {true, true, true, false};
    bm b;
    oq_units u;
    bool *pays = NULL;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    network(&b);
    assert_ok(oq_units_find(&u, b.a, b.m, NULL, &err), err);
    assert_ok(oq_units_pay(&u, NULL, b.a, &pays, &err), err);
    assert_memory_equal(pays, wanted, sizeof wanted);
    bm_end(&b);
}

static const char file[] =
    "{\"units\": [{\"unit\": \"Conv 1x64x16x16 64x64x1x1 Relu\", \"float_ms\": 1, \"integer_ms\": "
    "2, \"alone_ms\": 3}, {\"unit\": \"Conv 1x64x16x16 64x1x3x3 group=64 pads=1,1,1,1\", "
    "\"float_ms\": 1, \"integer_ms\": 0.5, \"alone_ms\": 0.7}, {\"unit\": \"other\", \"float_ms\": "
    "1, \"integer_ms\": null}]}";

static void pays_by_file(void **state) {
    (void)state;
    const bool wanted[] = {false, true, true, true};
    bm b;
    oq_units u;
    oq_unit_costs c;
    bool *pays = NULL;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    network(&b);
    assert_ok(oq_unit_costs_load(&c, b.a, oq_alloc_default(), file, &err), err);
    assert_ok(oq_units_find(&u, b.a, b.m, NULL, &err), err);
    assert_ok(oq_units_pay(&u, &c, b.a, &pays, &err), err);
    assert_memory_equal(pays, wanted, sizeof wanted);
    const oq_unit_cost other = oq_unit_cost_of(&u.all.v[0], &c, OQ_S("other"));
    assert_true(other.real == 1 && isinf(other.inner) && !oq_cost_pays_inside(&other));
    bm_end(&b);
}

static void bad_files(void **state) {
    (void)state;
    static const char *const texts[][2] = {
        {"{}", "has no list \"units\""},
        {"{\"units\": 3}", "has no list \"units\""},
        {"{\"units\": [3]}", "a row has no \"unit\""},
        {"{\"units\": [{\"unit\": \"a\", \"float_ms\": \"b\"}]}", "unit 'a': \"float_ms\""},
        {"{\"units\": [{\"unit\": \"a\", \"alone_ms\": -1}]}", "\"alone_ms\" is not a time"},
    };
    bm b;
    oq_unit_costs c;
    bm_begin(&b, NULL, 13);
    for (size_t i = 0; i < OQ_COUNT(texts); i++) {
        onq_error err = ONQ_ERROR_INIT;
        assert_fails(oq_unit_costs_load(&c, b.a, oq_alloc_default(), texts[i][0], &err),
                     ONQ_E_CONFIG, err, texts[i][1]);
    }
    bm_end(&b);
}

static onq_code work(bm *b, void *ctx, onq_error *err) {
    oq_units u;
    oq_unit_costs c;
    bool *pays = NULL;
    (void)ctx;
    OQ_TRY(oq_units_find(&u, b->a, b->m, NULL, err));
    OQ_TRY(oq_unit_costs_load(&c, b->a, &b->env->alloc, file, err));
    return oq_units_pay(&u, &c, b->a, &pays, err);
}

static void out_of_memory(void **state) {
    (void)state;
    assert_true(bm_sweep(13, network, work, NULL) > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys),          cmocka_unit_test(pays_by_rates),
        cmocka_unit_test(pays_by_file),  cmocka_unit_test(bad_files),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
