/*
 * test_static.c — `static` through the public interface with every allocation failing in turn: it ends well or with "out of
 * memory", leaks nothing and leaves no litter behind.
 */
#include "onq/onq.h"

#include "build_model.h"
#include "flaky_alloc.h"
#include "scratch.h"
#include "testing.h"

#include <stdio.h>
#include <unistd.h>

static const char *folder;
static char model_path[600], cache_path[600], out_path[600], over_path[600];

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void make_files(void) {
    bm b;
    onq_error err = ONQ_ERROR_INIT;
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

/* Options of a run: pairs of name and value, NULL at the end. */
static onq_code run(const onq_allocator *a, void *ctx, onq_error *err) {
    const char *const *options = ctx;
    onq_env *env = onq_env_new(a);
    onq_options *o = NULL;
    onq_result *result = NULL;
    (void)unlink(out_path);
    if (env == NULL) {
        snprintf(err->text, sizeof err->text, "out of memory");
        return err->code = ONQ_E_NOMEM;
    }
    onq_env_set_threads(env, 1);
    onq_code rc = onq_options_new(env, "static", &o, err);
    if (rc == ONQ_OK)
        rc = onq_options_set(o, "input", model_path, err);
    if (rc == ONQ_OK)
        rc = onq_options_set(o, "output", out_path, err);
    if (rc == ONQ_OK)
        rc = onq_options_set(o, "calibration_cache", cache_path, err);
    for (size_t i = 0; rc == ONQ_OK && options[i] != NULL; i += 2)
        rc = onq_options_set(o, options[i], options[i + 1], err);
    if (rc == ONQ_OK)
        rc = onq_run(env, o, &result, err);
    /* Model, cache, overrides; the output, complete, if memory ran out behind it. */
    if (entry_count(folder) != 3 + (size_t)(access(out_path, F_OK) == 0))
        fail_msg("something was left behind: %s", err->text);
    onq_result_free(result);
    onq_options_free(o);
    onq_env_free(env);
    return rc;
}

static void no_memory(void **state) {
    (void)state;
    static const char *const plain[] = {NULL};
    static const char *const much[] = {
        "per_channel", "true", "nodes_to_exclude", "re:^flat", "tensor_quant_overrides",
        over_path,     NULL};
    static const char *const preset[] = {"preset", "qnn", "activation_type", "quint16", NULL};
    const char *const *all[] = {plain, much, preset};
    scratch s;
    scratch_init(&s);
    folder = s.dir;
    make_files();
    for (size_t i = 0; i < OQ_COUNT(all); i++)
        assert_true(flaky_sweep(run, (void *)(uintptr_t)all[i]) > 20);
    scratch_remove(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
