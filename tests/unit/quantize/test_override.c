/*
 * test_override.c — overrides: what is refused, in which words, and what is read.
 */
#include "quantize/override/override_check.h"

#include "build_model.h"
#include "testing.h"

#include <stdio.h>
#include <string.h>

/* Activations x and y; weights w (Gemm's) and t (Conv's, square); constants c and s. */
static void make_model(bm *b) {
    bm_begin(b, NULL, 13);
    bm_input(b, "x", OQ_FLOAT, "1,4");
    bm_weight(b, "w", "4,3", 1);
    bm_weight(b, "c", "4,3", 2);
    bm_weight(b, "s", "2,2", 3);
    bm_weight(b, "t", "2,2", 4);
    bm_node(b, "Gemm", "n", "x w", "y", "");
    bm_node(b, "Conv", "k", "y t", "z", "");
    bm_node(b, "Add", "a", "c c", "u", "");
    bm_node(b, "Add", "a2", "s s", "v", "");
}

static onq_code check(oq_overrides *o, oq_arena *a, onq_error *err) {
    bm b;
    oq_qconfig config;
    oq_shapes *shapes = NULL;
    oq_reach reach;
    make_model(&b);
    oq_qconfig_init(&config, a);
    assert_ok(oq_shapes_infer(b.m, NULL, &shapes, err), *err);
    assert_ok(oq_reach_init(&reach, a, b.m, shapes, &config, err), *err);
    const oq_override_check with = {&reach, OQ_UINT8, OQ_INT8};
    oq_overrides_find_axes(o, &reach);
    const onq_code rc = oq_overrides_check(o, &with, err);
    oq_shapes_free(shapes);
    bm_end(&b);
    return rc;
}

/* Reads and checks a text; the error, if any, is in err. */
static onq_code load(const char *text, onq_error *err) {
    json_t *root = NULL;
    oq_arena a;
    oq_overrides o;
    oq_buf quoted;
    oq_buf_init(&quoted, oq_alloc_default());
    onq_code rc = oq_json_quote_words(&quoted, oq_str_of(text), err);
    if (rc == ONQ_OK)
        rc = oq_json_parse("f.json", (oq_str){quoted.p, quoted.n}, &root, err);
    oq_buf_release(&quoted);
    oq_arena_init(&a, oq_alloc_default());
    oq_overrides_init(&o, &a);
    if (rc == ONQ_OK)
        rc = oq_overrides_parse(&o, "f.json", root, err);
    if (rc == ONQ_OK)
        rc = check(&o, &a, err);
    json_decref(root);
    oq_arena_release(&a);
    return rc;
}

static const struct {
    const char *text, *part;
} bad[] = {
    {"[]", "it must be a dictionary of tensors"},
    {"{\"x\": 3}", "tensor 'x': its value must be a list of dictionaries"},
    {"{\"x\": [3]}", "tensor 'x': every item must be a dictionary"},
    {"{\"x\": [{\"scale\": 0.1}]}", "Must provide both 'scale' and 'zero_point'"},
    {"{\"x\": [{\"zero_point\": 1}]}", "Must provide both"},
    {"{\"x\": [{\"scale\": 0, \"zero_point\": 1}]}", "'x': scale 0 is not a positive float"},
    {"{\"x\": [{\"scale\": -1, \"zero_point\": 1}]}", "is not a positive float"},
    {"{\"x\": [{\"scale\": 1e300, \"zero_point\": 1}]}", "is not a positive float"},
    {"{\"x\": [{\"scale\": 1e-60, \"zero_point\": 1}]}", "is not a positive float"},
    {"{\"x\": [{\"scale\": NaN, \"zero_point\": 1}]}", "'x': 'scale' is nan, which is not finite"},
    {"{\"x\": [{\"scale\": Infinity, \"zero_point\": 1}]}", "'scale' is inf, which"},
    {"{\"x\": [{\"scale\": 1e400, \"zero_point\": 1}]}", "'scale' is inf, which"},
    {"{\"x\": [{\"rmin\": -Infinity}]}", "'rmin' is -inf, which"},
    {"{\"w\": [{\"scale\": 1, \"zero_point\": 200}]}", "zero_point 200 is outside of -128 to 127"},
    {"{\"x\": [{\"scale\": \"a\", \"zero_point\": 1}]}", "'scale' is not a number"},
    {"{\"x\": [{\"scale\": null, \"zero_point\": 1}]}", "'scale' is not a number"},
    {"{\"x\": [{\"scale\": 1, \"zero_point\": 1.5}]}", "'zero_point' is not a whole number"},
    {"{\"x\": [{\"scale\": 1, \"zero_point\": true}]}", "'zero_point' is not a whole number"},
    {"{\"x\": [{\"scale\": 1, \"zero_point\": 300}]}", "zero_point 300 is outside of 0 to 255"},
    {"{\"x\": [{\"scale\": 1, \"zero_point\": -1}]}", "zero_point -1 is outside"},
    {"{\"x\": [{\"quant_type\": \"int7\"}]}", "quant_type 'int7' is not one of"},
    {"{\"x\": [{\"quant_type\": 3}]}", "'quant_type' is not a text"},
    {"{\"x\": [{\"quant_type\": {\"name\": \"qint8\"}}]}", "'quant_type' is not a text"},
    {"{\"x\": [{\"scale\": 0}]}", "Must provide both 'scale' and 'zero_point'"},
    {"{\"x\": [{\"scale\": 0, \"zero_point\": 0, \"rmax\": 10}]}",
     "option(s) [rmax] are invalid with 'scale' and 'zero_point'"},
    {"{\"x\": [{\"scale\": 0, \"zero_point\": 0, \"symmetric\": true}]}",
     "option(s) [symmetric] are invalid with"},
    {"{\"x\": [{\"scale\": 0, \"zero_point\": 0, \"rmin\": 1, \"reduce_range\": true}]}",
     "option(s) [reduce_range, rmin] are invalid with"},
    {"{\"x\": [{\"quant_type\": \"qint8\", \"scale\": 1, \"zero_point\": 0, \"rmin\": 1}]}",
     "option(s) [rmin] are invalid with"},
    {"{\"x\": [{\"symmetric\": 1}]}", "'symmetric' is not true or false"},
    {"{\"x\": [{\"reduce_range\": true}]}", "'reduce_range' is only supported for initializers"},
    {"{\"x\": [{\"rmin\": 2, \"rmax\": 1}]}", "rmin 2 is above rmax 1"},
    {"{\"x\": [{\"scale\": 1, \"zero_point\": 0, \"rmin\": 1}]}", "are invalid with 'scale'"},
    {"{\"x\": [{\"colour\": 1}]}", "key 'colour' is unknown"},
    {"{\"x\": [{\"axis\": 0}]}", "overrides per channel are for initializers"},
    {"{\"x\": [{\"convert\": {}}]}", "must specify a 'quant_type'"},
    {"{\"x\": [{\"convert\": {\"quant_type\": \"quint8\"}}]}", "must differ from the original"},
    {"{\"x\": [{\"convert\": {\"quant_type\": \"qint8\", \"convert\": {}}}]}",
     "unknown in convert"},
    {"{\"x\": [{\"convert\": {\"quant_type\": \"qint8\", \"recv_nodes\": 1}}]}",
     "list of node names"},
    {"{\"x\": [{\"convert\": {\"quant_type\": \"qint8\", \"scale\": 1, \"zero_point\": 200}}]}",
     "zero_point 200 is outside of -128"},
    {"{\"w\": [{\"convert\": {\"quant_type\": \"quint8\"}}]}", "not for initializers"},
    {"{\"w\": [{}, {}]}", "'axis' is missing"},
    {"{\"w\": [{\"axis\": 2}]}", "axis 2 is out of range for rank 2"},
    {"{\"w\": [{\"axis\": 0}, {}, {}]}", "3 channels are given, axis 0 has 4"},
    {"{\"w\": [{\"axis\": 1, \"quant_type\": \"qint8\"}, {\"quant_type\": \"quint8\"}, {}]}",
     "channel 1: quant_type differs"},
    {"{\"w\": [{\"axis\": 1, \"scale\": 1, \"zero_point\": 0}, {}, {}]}",
     "for all channels or for none"},
    {"{\"w\": [{\"axis\": 1, \"rmin\": 0, \"rmax\": 1}, {\"rmin\": 0}, {}]}",
     "channel 1: rmin and rmax must be given for all channels"},
    {"{\"w\": [{\"axis\": 1, \"rmin\": 0}]}", "Must provide both 'rmin' and 'rmax'"},
    {"{\"s\": [{}, {}]}", "'axis' is missing"}, /* both axes have two */
    {"{\"nobody\": [{\"symmetric\": true}]}", "tensor 'nobody': it is not present in the model"},
    {"{\"x\": [{\"symmetric\": true}], \"a\": [{}], \"b\": [{}]}",
     "2 overrides are wrong; the first"},
};

static void refused(void **state) {
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(bad); i++) {
        onq_error err = ONQ_ERROR_INIT;
        const onq_code rc = load(bad[i].text, &err);
        if (rc != ONQ_E_CONFIG || strstr(err.text, bad[i].part) == NULL)
            fail_msg("%s: %d '%s', wanted '%s'", bad[i].text, (int)rc, err.text, bad[i].part);
    }
}

static void accepted(void **state) {
    (void)state;
    static const char *const good[] = {
        "{}",
        "{\"x\": []}",
        "{\"x\": [{}]}",
        "{\"x\": {\"scale\": 0.5, \"zero_point\": 3.0}}",
        "{\"w\": [{\"axis\": -1, \"scale\": 0.5, \"zero_point\": -128}]}",
        "{\"c\": [{\"scale\": 0.5, \"zero_point\": 255}]}", /* as an activation it would be uint8 */
        /* as get_qnn_qdq_config writes it */
        ("{\"x\": [{\"quant_type\": \"quint16\", \"symmetric\": true, \"scale\": 0.5, "
         "\"zero_point\": 0}]}"),
        "{\"w\": [{\"axis\": 1}, {\"rmin\": 0, \"rmax\": 1}, {\"rmin\": 0}]}",
        "{\"w\": [{}, {}, {}]}", /* only axis 1 has three */
        "{\"t\": [{}, {}]}",     /* its operator has channels along axis 0 */
        "{\"y\": [{\"quant_type\": \"Int16\", \"convert\": {\"quant_type\": \"quint8\"}}]}",
    };
    for (size_t i = 0; i < OQ_COUNT(good); i++) {
        onq_error err = ONQ_ERROR_INIT;
        const onq_code rc = load(good[i], &err);
        if (rc != ONQ_OK)
            fail_msg("%s: %s", good[i], err.text);
    }
}

static void read_back(void **state) {
    (void)state;
    json_t *root = NULL;
    onq_error err = ONQ_ERROR_INIT;
    oq_arena a;
    oq_overrides o;
    oq_arena_init(&a, oq_alloc_default());
    oq_overrides_init(&o, &a);
    assert_ok(
        oq_json_parse("t",
                      oq_str_of("{\"x\": [{\"symmetric\": false, \"convert\": {\"quant_type\": "
                                "\"quint16\", \"recv_nodes\": [\"a\", \"b\"]}}], \"w\": "
                                "[{\"axis\": 0, \"rmin\": -1.5, \"rmax\": 2}]}"),
                      &root, &err),
        err);
    assert_ok(oq_overrides_parse(&o, "t", root, &err), err);
    json_decref(root);
    const oq_override *x = oq_overrides_tensor(&o, OQ_S("x"));
    assert_non_null(x);
    assert_int_equal(x->symmetric, OQ_NO);
    assert_true(x->convert != NULL && x->convert->has_recv && x->convert->recv_nodes.n == 2);
    assert_true(oq_overrides_any_type(&o, oq_qtype_is_16bit));
    assert_false(oq_overrides_any_type(&o, oq_qtype_is_4bit));
    assert_null(oq_overrides_tensor(&o, OQ_S("w"))); /* per channel */
    const oq_tensor_override *w = oq_overrides_find(&o, OQ_S("w"));
    assert_true(oq_override_is_channel(w) && oq_override_channel(w, 3)->rmax == 2.0);
    assert_null(oq_overrides_find(&o, OQ_S("z")));
    oq_arena_release(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused), cmocka_unit_test(accepted),
                                       cmocka_unit_test(read_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
