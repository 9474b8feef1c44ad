/*
 * test_node_method.c — files of methods for single nodes: what they say, and what is refused.
 */
#include "quantize/choose/node_method.h"

#include "build_model.h"
#include "quantize/choose/qrun.h"
#include "quantize/rules.h"
#include "testing.h"

#include <stdio.h>
#include <unistd.h>

#define FILE_NAME "node_methods.json"

static onq_code load(bm *b, oq_node_methods *m, const char *text, onq_error *err) {
    FILE *f = fopen(FILE_NAME, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    oq_node_methods_init(m, b->a);
    const onq_code rc = oq_node_methods_load(m, &b->env->alloc, FILE_NAME, err);
    assert_int_equal(unlink(FILE_NAME), 0);
    return rc;
}

static void all_methods(void **state) {
    static const struct {
        const char *text;
        oq_method method;
        uint32_t channels;
    } cases[] = {
        {"float", OQ_METHOD_FLOAT, 0},   {"plain", OQ_METHOD_PLAIN, 0},
        {"in", OQ_METHOD_IN, 0},         {"out", OQ_METHOD_OUT, 0},
        {"both", OQ_METHOD_BOTH, 0},     {"outliers", OQ_METHOD_OUTLIERS, 8},
        {"double", OQ_METHOD_DOUBLE, 0}, {"outliers:3", OQ_METHOD_OUTLIERS, 3},
    };
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        oq_node_method m = {0};
        onq_error err = ONQ_ERROR_INIT;
        assert_ok(oq_method_parse(oq_str_of(cases[i].text), &m, &err), err);
        assert_int_equal(m.method, cases[i].method);
        assert_int_equal(m.channels, cases[i].channels);
        assert_int_equal(
            strncmp(cases[i].text, oq_method_name(m.method), strlen(oq_method_name(m.method))), 0);
    }
}

static void not_methods(void **state) {
    static const char *const cases[] = {"",
                                        "Float",
                                        "int8",
                                        "outliers:",
                                        "outliers:0",
                                        "outliers:-1",
                                        "outliers:1x",
                                        "float:2",
                                        ":",
                                        "outliers:99999999999999999999"};
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        oq_node_method m = {0};
        onq_error err = ONQ_ERROR_INIT;
        assert_fails(oq_method_parse(oq_str_of(cases[i]), &m, &err), ONQ_E_CONFIG, err,
                     "is not a method");
    }
}

static void files(void **state) {
    bm b;
    oq_node_methods m;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    bm_begin(&b, NULL, 13);
    oq_node *first = bm_node(&b, "Conv", "first", "x w", "y", "");
    oq_node *nameless = bm_node(&b, "Conv", "", "y w", "u", "");
    oq_node *other = bm_node(&b, "Conv", "other", "y w", "z", "");
    assert_ok(load(&b, &m,
                   "{\"first\": \"float\", \"u\": \"plain\", "
                   "\"firts\": \"outliers:2\"}",
                   &err),
              err);
    assert_int_equal(oq_node_methods_find(&m, first)->method, OQ_METHOD_FLOAT);
    assert_int_equal(oq_node_methods_find(&m, nameless)->method, OQ_METHOD_PLAIN);
    assert_null(oq_node_methods_find(&m, other));
    assert_fails(oq_node_methods_report(&m, b.env, b.g, true, &err), ONQ_E_INVALID, err,
                 "--node_methods: no node is called 'firts' (did you mean 'first'?)");
    assert_fails(load(&b, &m, "{\"first\": \"int4\"}", &err), ONQ_E_CONFIG, err,
                 "node 'first': 'int4' is not a method");
    assert_fails(load(&b, &m, "{\"first\": 8}", &err), ONQ_E_CONFIG, err, "is not a text");
    assert_fails(load(&b, &m, "[]", &err), ONQ_E_CONFIG, err, "a dictionary of nodes");
    bm_end(&b);
}

/* The file decides about the nodes that it names, the lists about the others. */
static void against_lists(void **state) {
    bm b;
    oq_qconfig c;
    oq_qrun run;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    bm_begin(&b, NULL, 13);
    const oq_node *one = bm_node(&b, "Conv", "one", "x w", "y", "");
    const oq_node *two = bm_node(&b, "Conv", "two", "y w", "z", "");
    const oq_node *three = bm_node(&b, "Conv", "three", "z w", "u", "");
    oq_qconfig_init(&c, b.a);
    oq_qrun_init(&run, &c);
    assert_ok(oq_pick_add(&c.nodes_to_exclude, OQ_S("re:^t"), &err), err);
    assert_ok(load(&b, &c.methods, "{\"one\": \"float\", \"two\": \"plain\"}", &err), err);
    assert_string_equal(oq_qrun_skip(&run, one, OQ_QMODE_QDQ), "float in node_methods");
    assert_null(oq_qrun_skip(&run, two, OQ_QMODE_QDQ));
    assert_string_equal(oq_qrun_skip(&run, three, OQ_QMODE_QDQ), "in nodes_to_exclude");
    bm_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_methods), cmocka_unit_test(not_methods),
                                       cmocka_unit_test(files), cmocka_unit_test(against_lists)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
