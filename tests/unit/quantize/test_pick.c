/*
 * test_pick.c — lists of names and patterns, and new names.
 */
#include "quantize/choose/pick.h"

#include "build_model.h"
#include "onnx/names.h"
#include "testing.h"

#include <stdio.h>

static char said[4][300];
static size_t n_said;

static void listen(void *ctx, onq_log_level level, const char *text) {
    (void)ctx;
    (void)level;
    if (n_said < 4)
        snprintf(said[n_said++], sizeof said[0], "%s", text);
}

static void names_and_patterns(void **state) {
    (void)state;
    bm b;
    oq_pick p;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    bm_node(&b, "Relu", "/layer1/relu", "x", "y", "");
    bm_node(&b, "Relu", "/layer2/relu", "y", "z", "");
    oq_pick_init(&p, b.a);
    assert_true(oq_pick_is_empty(&p));
    assert_ok(oq_pick_add(&p, OQ_S("/layer1/relu"), &err), err);
    assert_ok(oq_pick_add(&p, OQ_S("/layer1/relu"), &err), err); /* once is enough */
    assert_ok(oq_pick_add(&p, OQ_S("re:^/layer2/"), &err), err);
    assert_ok(oq_pick_add(&p, OQ_S("/layer1/rela"), &err), err);
    assert_ok(oq_pick_add(&p, OQ_S("re:nothing$"), &err), err);
    assert_int_equal(p.entries.n, 4);
    assert_fails(oq_pick_add(&p, OQ_S("re:["), &err), ONQ_E_OPTION, err, "pattern 're:['");
    assert_true(oq_pick_has(&p, OQ_S("/layer1/relu")));
    assert_true(oq_pick_has(&p, OQ_S("/layer2/relu")));
    assert_false(oq_pick_has(&p, OQ_S("/layer3/relu")));
    assert_false(oq_pick_has(&p, OQ_S("")));

    n_said = 0;
    onq_env_set_log(b.env, listen, NULL);
    assert_ok(oq_pick_report(&p, b.env, b.g, "--list", false, &err), err);
    assert_int_equal(n_said, 2);
    assert_non_null(strstr(said[0], "'/layer1/rela'; the nearest is '/layer1/relu'"));
    assert_non_null(strstr(said[1], "pattern 're:nothing$'"));
    assert_fails(oq_pick_report(&p, b.env, b.g, "--list", true, &err), ONQ_E_INVALID, err,
                 "did you mean '/layer1/relu'");
    bm_end(&b);
}

/* Patterns that take too much room, and those that do not. */
static void expensive_patterns(void **state) {
    (void)state;
    static const char *const bad[] = {
        "re:((a{1,200}){1,200}){1,200}",
        "re:((((a{99}){99}){99}){99})",
        "re:a{4001}",
        "re:(a*)\\1\\1x",
        "re:[[:alpha:]]{5000,}",
    };
    static const char *const good[] = {
        "re:^/layer[0-9]{1,3}/(attn|mlp)/.*$",
        "re:[]^{]{9}",
        "re:a{10,200}b+c*",
        "re:\\{9999\\}",
        "re:[[:digit:]{9999]",
        "re:(x{20}){20}",
        "re:(((((((((((((a+)+)+)+)+)+)+)+)+)+)+)+)+)",
    };
    char name[1100];
    bm b;
    oq_pick p;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    oq_pick_init(&p, b.a);
    for (size_t i = 0; i < OQ_COUNT(bad); i++)
        assert_fails(oq_pick_add(&p, oq_str_of(bad[i]), &err), ONQ_E_OPTION, err, "pattern 're:");
    for (size_t i = 0; i < OQ_COUNT(good); i++)
        assert_ok(oq_pick_add(&p, oq_str_of(good[i]), &err), err);
    assert_ok(oq_pick_add(&p, OQ_S("re:n+"), &err), err);
    memset(name, 'n', sizeof name);
    assert_true(oq_pick_has(&p, (oq_str){name, 1024}));
    assert_false(oq_pick_has(&p, (oq_str){name, sizeof name}));
    assert_ok(oq_pick_add_name(&p, OQ_S("re:x"), &err), err);
    assert_true(oq_pick_has(&p, OQ_S("re:x")));
    assert_false(oq_pick_has(&p, OQ_S("x")));
    bm_end(&b);
}

static void new_names(void **state) {
    (void)state;
    bm b;
    oq_fresh s;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "1");
    bm_weight(&b, "x_scale", "1", 1);
    oq_node *n = bm_node(&b, "If", "x_node", "x", "y", "");
    oq_graph *around = bm_enter(&b, n, "then_branch");
    bm_node(&b, "Relu", "inner", "x", "x_scale_1", "");
    bm_leave(&b, around);
    assert_ok(oq_fresh_init(&s, b.a, b.m, &err), err);
    assert_true(oq_str_is(oq_fresh_tensor(&s, OQ_S("x"), "_zero_point"), "x_zero_point"));
    assert_true(oq_str_is(oq_fresh_tensor(&s, OQ_S("x"), "_zero_point"), "x_zero_point_1"));
    /* x_scale is an initializer, x_scale_1 a tensor of the subgraph. */
    assert_true(oq_str_is(oq_fresh_tensor(&s, OQ_S("x"), "_scale"), "x_scale_2"));
    assert_true(oq_str_is(oq_fresh_tensor(&s, OQ_S("x"), "_scale"), "x_scale_3"));
    /* Nodes and tensors do not share names. */
    assert_true(oq_str_is(oq_fresh_tensor(&s, OQ_S("x"), "_node"), "x_node"));
    assert_true(oq_str_is(oq_fresh_node(&s, OQ_S("x"), "_node"), "x_node_1"));
    bm_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_and_patterns),
                                       cmocka_unit_test(expensive_patterns),
                                       cmocka_unit_test(new_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
