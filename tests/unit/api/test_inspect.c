/* test_inspect.c — inspect and diff through the public interface: what they report, and what
 * happens when memory ends. */
#include "build_model.h"
#include "flaky_alloc.h"
#include "scratch.h"
#include "testing.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs a command with one or two operands (`no_names`: diff that ignores names); the result's
 * JSON is returned (free it). */
static onq_code run(const onq_allocator *alloc, const char *command, const char *a, const char *b,
                    bool no_names, char **json, onq_error *err) {
    onq_env *env = onq_env_new(alloc);
    if (env == NULL) {
        err->code = ONQ_E_NOMEM;
        snprintf(err->text, sizeof err->text, "out of memory");
        return ONQ_E_NOMEM;
    }
    onq_options *o = NULL;
    onq_result *r = NULL;
    onq_code rc = onq_options_new(env, command, &o, err);
    if (rc == ONQ_OK)
        rc = onq_options_set(o, "operand", a, err);
    if (rc == ONQ_OK && b != NULL)
        rc = onq_options_set(o, "operand", b, err);
    if (rc == ONQ_OK && no_names)
        rc = onq_options_set(o, "ignore", "names", err);
    if (rc == ONQ_OK)
        rc = onq_run(env, o, &r, err);
    if (rc == ONQ_OK && json != NULL)
        *json = strdup(onq_result_json(r));
    onq_result_free(r);
    onq_options_free(o);
    onq_env_free(env);
    return rc;
}

static json_t *inspect(const char *path) {
    onq_error err = ONQ_ERROR_INIT;
    char *text = NULL;
    assert_ok(run(NULL, "inspect", path, NULL, false, &text, &err), err);
    json_error_t e;
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &e);
    if (j == NULL)
        fail_msg("%s in:\n%s", e.text, text);
    free(text);
    return j;
}

static json_int_t number(json_t *j, const char *a, const char *b) {
    json_t *v = json_object_get(j, a);
    if (b != NULL)
        v = json_object_get(v, b);
    if (!json_is_integer(v))
        fail_msg("no number at %s.%s", a, b != NULL ? b : "");
    return json_integer_value(v);
}

/* "INT8 per channel 2; ..." of an array of counts. */
static void assert_counts(json_t *j, const char *key, const char *wanted) {
    char got[500] = "";
    size_t w = 0, i;
    json_t *v;
    json_array_foreach(json_object_get(json_object_get(j, "quantization"), key), i, v) w +=
        (size_t)snprintf(got + w, sizeof got - w, "%s %s %d; ",
                         json_string_value(json_object_get(v, "type")),
                         json_string_value(json_object_get(v, "granularity")),
                         (int)json_integer_value(json_object_get(v, "count")));
    assert_string_equal(got, wanted);
}

static const char *saved(bm *b, scratch *s, const char *name) {
    onq_error err = ONQ_ERROR_INIT;
    const char *path = scratch_path(s, name);
    assert_ok(oq_model_save(b->m, path, NULL, &err), err);
    bm_end(b);
    return path;
}

/* ---- models ---- */

static void float_model(bm *b) {
    bm_begin(b, NULL, 13);
    bm_input(b, "x", OQ_FLOAT, "N,1,8,8");
    bm_weight(b, "w", "4,1,3,3", 1);
    bm_weight(b, "m", "4,6", 2);
    bm_weight(b, "lonely", "10", 3);
    bm_node(b, "Conv", "conv", "x w", "t", "");
    bm_node(b, "GlobalAveragePool", "pool", "t", "p", "");
    bm_node(b, "Flatten", "flat", "p", "f", "");
    bm_node(b, "MatMul", "mm", "f m", "y", "");
    bm_node(b, "Abs", "dead", "y", "nobody", "");
    bm_output(b, "y", OQ_FLOAT, "N,6");
}

static void qdq_model(bm *b) {
    static const float one[] = {0.5f}, four[] = {1, 2, 3, 4};
    static const uint8_t zero[4] = {0};
    static const int8_t q[4 * 9] = {1};
    bm_begin(b, NULL, 13);
    bm_input(b, "x", OQ_FLOAT, "N,1,8,8");
    bm_f32(b, "s", "", one);
    bm_raw(b, "z", OQ_UINT8, "", zero, 1);
    bm_raw(b, "wq", OQ_INT8, "4,1,3,3", q, sizeof q);
    bm_f32(b, "ws", "4", four);
    bm_raw(b, "wz", OQ_INT8, "4", zero, 4);
    bm_node(b, "QuantizeLinear", "q", "x s z", "xq", "");
    bm_node(b, "DequantizeLinear", "d", "xq s z", "xd", "");
    bm_node(b, "DequantizeLinear", "dw", "wq ws wz", "w", "axis=0");
    bm_node(b, "Conv", "conv", "xd w", "t", "");
    bm_node(b, "QuantizeLinear", "q2", "t s", "tq", ""); /* no zero point: UINT8 */
    bm_node(b, "DequantizeLinear", "d2", "tq s", "y", "");
    bm_output(b, "y", OQ_FLOAT, NULL);
}

static void mixed_model(bm *b) {
    static const float one[] = {0.5f};
    static const uint8_t zero[64] = {0};
    bm_begin(b, NULL, 13);
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_model_set_opset(b->m, OQ_S("com.microsoft"), 1, &err), err);
    bm_input(b, "x", OQ_FLOAT, "N,8");
    bm_f32(b, "s", "", one);
    bm_raw(b, "z", OQ_UINT8, "", zero, 1);
    bm_raw(b, "w", OQ_UINT8, "8,8", zero, 64);
    bm_raw(b, "packed", OQ_UINT8, "8,1,4", zero, 32);
    bm_f32(b, "scales", "1", one);
    bm_node(b, "DynamicQuantizeLinear", "dq", "x", "xq xs xz", "");
    bm_node(b, "MatMulInteger", "mi", "xq w xz z", "i", "");
    bm_node(b, "QLinearMatMul", "ql", "xq xs xz w s z s z", "j", "");
    oq_node *n =
        bm_node(b, "MatMulNBits", "nb", "x packed scales", "k", "K=8 N=8 bits=4 block_size=16");
    n->domain = OQ_S("com.microsoft");
    bm_output(b, "i", OQ_INT32, NULL);
    bm_output(b, "j", OQ_UINT8, NULL);
    bm_output(b, "k", OQ_FLOAT, NULL);
}

/* ---- what inspect reports ---- */

static void a_float_model(void **state) {
    (void)state;
    scratch s;
    scratch_init(&s);
    bm b;
    float_model(&b);
    json_t *j = inspect(saved(&b, &s, "f.onnx"));
    assert_int_equal(number(j, "nodes", NULL), 5);
    assert_int_equal(number(j, "tensors", NULL), 3);
    assert_int_equal(number(j, "parameters", NULL), 36 + 24 + 10);
    assert_int_equal(number(j, "bytes", NULL), 4 * (36 + 24 + 10));
    assert_int_equal(number(j, "storage", "raw"), 4 * (36 + 24 + 10));
    assert_int_equal(
        json_array_size(json_object_get(json_object_get(j, "quantization"), "formats")), 0);
    json_t *can = json_object_get(j, "quantizable");
    assert_int_equal(number(can, "static", "nodes"), 4); /* Abs is not one of them */
    assert_int_equal(number(can, "static", "weight_bytes"), 4 * (36 + 24));
    assert_int_equal(number(can, "dynamic", "nodes"), 2);
    assert_int_equal(number(can, "nbits", "nodes"), 1);
    assert_int_equal(number(can, "nbits", "weight_bytes"), 4 * 24);
    char *notes = json_dumps(json_object_get(j, "notes"), 0);
    assert_non_null(strstr(notes, "1 initializers are not used (first: 'lonely')"));
    assert_non_null(strstr(notes, "1 nodes compute nothing that is used (first: 'dead')"));
    free(notes);
    json_decref(j);
    scratch_remove(&s);
}

static void a_qdq_model(void **state) {
    (void)state;
    scratch s;
    scratch_init(&s);
    bm b;
    qdq_model(&b);
    json_t *j = inspect(saved(&b, &s, "q.onnx"));
    assert_string_equal(json_string_value(json_array_get(
                            json_object_get(json_object_get(j, "quantization"), "formats"), 0)),
                        "QDQ");
    assert_int_equal(number(j, "quantization", "quantize_linear"), 2);
    assert_int_equal(number(j, "quantization", "dequantize_linear"), 3);
    assert_counts(j, "weights", "INT8 per channel 1; ");
    assert_counts(j, "activations", "UINT8 per tensor 2; ");
    assert_int_equal(number(json_object_get(j, "quantizable"), "static", "nodes"), 0);
    json_decref(j);
    scratch_remove(&s);
}

static void a_mixed_model(void **state) {
    (void)state;
    scratch s;
    scratch_init(&s);
    bm b;
    mixed_model(&b);
    json_t *j = inspect(saved(&b, &s, "m.onnx"));
    char *formats =
        json_dumps(json_object_get(json_object_get(j, "quantization"), "formats"), JSON_COMPACT);
    assert_string_equal(formats, "[\"QOperator\",\"integer\",\"weight-only\"]");
    free(formats);
    assert_int_equal(number(j, "quantization", "qlinear"), 1);
    assert_int_equal(number(j, "quantization", "integer"), 2);
    assert_counts(j, "weights", "UINT8 per tensor 2; ");
    json_t *only =
        json_array_get(json_object_get(json_object_get(j, "quantization"), "weight_only"), 0);
    assert_int_equal(number(only, "bits", NULL), 4);
    assert_int_equal(number(only, "block_size", NULL), 16);
    assert_int_equal(number(only, "count", NULL), 1);
    json_decref(j);
    scratch_remove(&s);
}

/* A Reshape of a shape computes no floats: nothing to quantize. */
static void only_floats_can_be_quantized(void **state) {
    (void)state;
    static const int64_t one[] = {1};
    scratch s;
    scratch_init(&s);
    bm b;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "N,8");
    bm_i64(&b, "one", "1", one);
    bm_node(&b, "Shape", "shape", "x", "s", "");
    bm_node(&b, "Reshape", "ints", "s one", "r", "");
    bm_node(&b, "Reshape", "floats", "x s", "y", "");
    bm_output(&b, "y", OQ_FLOAT, NULL);
    bm_output(&b, "r", OQ_INT64, NULL);
    json_t *j = inspect(saved(&b, &s, "i.onnx"));
    assert_int_equal(number(json_object_get(j, "quantizable"), "static", "nodes"), 1);
    json_decref(j);
    scratch_remove(&s);
}

static void a_bad_model_is_refused(void **state) {
    (void)state;
    scratch s;
    scratch_init(&s);
    bm b;
    float_model(&b);
    b.g->node.v[1]->input.v[0] = OQ_S("nowhere");
    const char *path = saved(&b, &s, "bad.onnx");
    onq_error err = ONQ_ERROR_INIT;
    assert_fails(run(NULL, "inspect", path, NULL, false, NULL, &err), ONQ_E_INVALID, err,
                 "nowhere");
    /* The file once, at the front. */
    assert_ptr_equal(strstr(err.text, "bad.onnx"), err.text + strlen(path) - strlen("bad.onnx"));
    assert_null(strstr(strstr(err.text, "bad.onnx") + 1, "bad.onnx"));
    scratch_remove(&s);
}

/* ---- memory that ends ---- */

typedef struct sweep {
    const char *command, *a, *b;
    bool no_names;
} sweep;

static onq_code body(const onq_allocator *a, void *ctx, onq_error *err) {
    const sweep *s = ctx;
    char *json = NULL;
    const onq_code rc = run(a, s->command, s->a, s->b, s->no_names, &json, err);
    if (rc == ONQ_OK)
        flaky_give(a, json, strlen(json));
    free(json);
    return rc;
}

static void out_of_memory(void **state) {
    (void)state;
    scratch s;
    scratch_init(&s);
    bm b;
    float_model(&b);
    const char *f = saved(&b, &s, "f.onnx");
    mixed_model(&b);
    const char *m = saved(&b, &s, "m.onnx");
    assert_true(flaky_sweep(body, &(sweep){"inspect", m, NULL, false}) > 10);
    assert_true(flaky_sweep(body, &(sweep){"diff", f, m, false}) > 10);
    assert_true(flaky_sweep(body, &(sweep){"diff", f, m, true}) > 10);
    scratch_remove(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_float_model),          cmocka_unit_test(a_qdq_model),
        cmocka_unit_test(a_mixed_model),          cmocka_unit_test(only_floats_can_be_quantized),
        cmocka_unit_test(a_bad_model_is_refused), cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
