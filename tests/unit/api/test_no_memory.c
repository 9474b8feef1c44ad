/*
 * test_no_memory.c — the quantizing commands through the public interface with every allocation
 * failing in turn: they end well or with "out of memory", leak nothing and leave no litter behind.
 */
#include "onq/onq.h"

#include "build_model.h"
#include "flaky_alloc.h"
#include "scratch.h"
#include "testing.h"

#include <stdio.h>
#include <unistd.h>

static const char *folder;
static char model_path[600], trained_path[600], half_path[600], cache_path[600], out_path[600],
    over_path[600];
static char weights_path[sizeof half_path];

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* A fake-quantized MatMul: a pair on its input, a pair on its weight. */
static void make_trained(const char *path) {
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    const float scale = 0.02f;
    const uint8_t zero = 128;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "1,4");
    bm_weight(&b, "w", "4,3", 1);
    bm_f32(&b, "s", "", &scale);
    bm_raw(&b, "z", OQ_UINT8, "", &zero, 1);
    bm_node(&b, "QuantizeLinear", "q0", "x s z", "xq", "");
    bm_node(&b, "DequantizeLinear", "d0", "xq s z", "xd", "");
    bm_node(&b, "QuantizeLinear", "q1", "w s z", "wq", "");
    bm_node(&b, "DequantizeLinear", "d1", "wq s z", "wd", "");
    bm_node(&b, "MatMul", "mm", "xd wd", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "1,3");
    assert_ok(oq_model_save(b.m, path, NULL, &err), err);
    bm_end(&b);
}

/* float16: a Conv whose bias and output are cast, then a MatMul. */
static void make_half(const char *path) {
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    uint16_t ones[12];
    for (size_t i = 0; i < OQ_COUNT(ones); i++)
        ones[i] = (uint16_t)(0x3c00 + i);
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT16, "1,3,4,4");
    bm_raw(&b, "w", OQ_FLOAT16, "2,3,1,1", ones, 12);
    bm_raw(&b, "c", OQ_FLOAT16, "2", ones, 4);
    bm_raw(&b, "v", OQ_FLOAT16, "4,3", ones, 24);
    bm_node(&b, "Conv", "conv", "x w c", "t", "");
    bm_node(&b, "Relu", "relu", "t", "u", "");
    bm_node(&b, "MatMul", "mm", "u v", "y", "");
    bm_output(&b, "y", OQ_FLOAT16, "1,2,4,3");
    assert_ok(oq_model_save(b.m, path, NULL, &err), err);
    bm_end(&b);
}

/* Everything that weight-only quantization knows: a table that is the last layer too, a weight of
 * rank 3 with a unit dimension, a batch, a Gemm. */
static void make_weights(const char *path) {
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "ids", OQ_INT64, "n");
    bm_weight(&b, "table", "5,32", 1);
    bm_weight(&b, "unit", "1,32,7", 2);
    bm_weight(&b, "batch", "2,5,3", 3);
    bm_weight(&b, "last", "3,4", 4);
    bm_weight(&b, "bias", "4", 5);
    bm_node(&b, "Gather", "embed", "table ids", "x", "");
    bm_node(&b, "MatMul", "unit", "x unit", "u", "");
    bm_node(&b, "Transpose", "turn", "table", "t", "perm=[1,0]");
    bm_node(&b, "MatMul", "head", "x t", "h", "");
    bm_node(&b, "MatMul", "experts", "h batch", "e", "");
    bm_node(&b, "Flatten", "flat", "e", "f", "axis=2");
    bm_node(&b, "Gemm", "gemm", "f last bias", "y", "");
    bm_output(&b, "u", OQ_FLOAT, NULL);
    bm_output(&b, "y", OQ_FLOAT, NULL);
    assert_ok(oq_model_save(b.m, path, NULL, &err), err);
    bm_end(&b);
}

static void make_files(void) {
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    snprintf(trained_path, sizeof trained_path, "%s/t.onnx", folder);
    make_trained(trained_path);
    snprintf(half_path, sizeof half_path, "%s/h.onnx", folder);
    make_half(half_path);
    snprintf(weights_path, sizeof weights_path, "%s/w.onnx", folder);
    make_weights(weights_path);
    snprintf(model_path, sizeof model_path, "%s/m.onnx", folder);
    snprintf(cache_path, sizeof cache_path, "%s/c.json", folder);
    snprintf(out_path, sizeof out_path, "%s/o.onnx", folder);
    snprintf(over_path, sizeof over_path, "%s/v.json", folder);
    bm_begin(&b, NULL, 11);
    bm_input(&b, "x", OQ_FLOAT, "1,3,4,4");
    bm_weight(&b, "w", "2,3,1,1", 1);
    bm_weight(&b, "c", "2", 2);
    bm_node(&b, "Conv", "conv", "x w c", "t", "");
    bm_node(&b, "Relu", "relu", "t", "u", "");
    bm_node(&b, "Flatten", "flat", "u", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "1,32");
    assert_ok(oq_model_save(b.m, model_path, NULL, &err), err);
    bm_end(&b);
    write_text(over_path, "{\"w\": [{\"quant_type\": \"quint8\"}]}");
    char text[2000];
    int n = snprintf(text, sizeof text, "{\"CLS\": \"TensorsData\", \"data\": {");
    static const char *const names[] = {"x", "t", "u", "y"};
    for (size_t i = 0; i < 4; i++)
        n += snprintf(
            text + n, sizeof text - (size_t)n,
            "%s\"%s\": {\"lowest\": {\"data\": [-1.0], \"dtype\": \"float32\", \"CLS\": "
            "\"numpy.array\"}, \"highest\": {\"data\": [2.0], \"dtype\": \"float32\", \"CLS\": "
            "\"numpy.array\"}, \"CLS\": \"TensorData\"}",
            i > 0 ? ", " : "", names[i]);
    snprintf(text + n, sizeof text - (size_t)n,
             "}, \"calibration_method\": {\"CLS\": \"CalibrationMethod\", \"value\": "
             "\"CalibrationMethod.MinMax\"}, \"smooth_quant\": false}");
    write_text(cache_path, text);
}

/* A run: the command, its model, and pairs of name and value. */
typedef struct job {
    const char *command, *input;
    const char *options[9]; /* NULL at the end */
} job;

static onq_code run(const onq_allocator *a, void *ctx, onq_error *err) {
    const job *j = ctx;
    onq_env *env = onq_env_new(a);
    onq_options *o = NULL;
    onq_result *result = NULL;
    (void)unlink(out_path);
    if (env == NULL) {
        snprintf(err->text, sizeof err->text, "out of memory");
        return err->code = ONQ_E_NOMEM;
    }
    onq_env_set_threads(env, 1);
    onq_code rc = onq_options_new(env, j->command, &o, err);
    if (rc == ONQ_OK)
        rc = onq_options_set(o, "input", j->input, err);
    if (rc == ONQ_OK)
        rc = onq_options_set(o, "output", out_path, err);
    for (size_t i = 0; rc == ONQ_OK && j->options[i] != NULL; i += 2)
        rc = onq_options_set(o, j->options[i], j->options[i + 1], err);
    if (rc == ONQ_OK)
        rc = onq_run(env, o, &result, err);
    /* Four models, cache, overrides; the output, complete, if memory ran out after it. */
    if (entry_count(folder) != 6 + (size_t)(access(out_path, F_OK) == 0))
        fail_msg("something was left behind: %s", err->text);
    onq_result_free(result);
    onq_options_free(o);
    onq_env_free(env);
    return rc;
}

static void no_memory(void **state) {
    (void)state;
    const char *const cache = "calibration_cache";
    job jobs[] = {
        {"static", model_path, {cache, cache_path}},
        {"static",
         model_path,
         {cache, cache_path, "per_channel", "true", "nodes_to_exclude", "re:^flat",
          "tensor_quant_overrides", over_path}},
        {"static", model_path, {cache, cache_path, "preset", "qnn", "activation_type", "quint16"}},
        {"static", model_path, {cache, cache_path, "quant_format", "qoperator"}},
        {"dynamic", model_path, {"per_channel", "true"}},
        {"dynamic", half_path, {NULL}},
        {"nbits", weights_path, {"op_types_to_quantize", "all", "symmetric", "false"}},
        {"nbits", weights_path, {"quant_format", "QDQ", "op_types_to_quantize", "MatMul,Gemm"}},
        {"nbits", weights_path, {"quant_method", "k_quant", "all_weights", "true"}},
        {"nbits", weights_path, {"op_types_to_quantize", "all", "all_weights", "true"}},
        {"nbits", weights_path, {"quant_method", "hqq"}},
        {"nbits", weights_path, {"target_bits", "16"}},
        {"nbits", weights_path, {"mixed", "last"}},
        {"bnb4", weights_path, {NULL}},
        {"legacy", model_path, {NULL}},
        {"preprocess", model_path, {"optimizer", "builtin", "opset", "17"}},
        {"qat", trained_path, {NULL}},
        {"qat", trained_path, {"quant_format", "qdq"}},
        {"qat", trained_path, {"quant_format", "qoperator"}},
    };
    scratch s;
    scratch_init(&s);
    folder = s.dir;
    make_files();
    for (size_t i = 0; i < OQ_COUNT(jobs); i++)
        assert_true(flaky_sweep(run, &jobs[i]) > 20);
    scratch_remove(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
