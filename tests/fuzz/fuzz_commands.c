/*
 * fuzz_commands.c — any bytes as the model of a command that needs no runtime: refused with a
 * message and no output, or the output is a valid model. The first byte of the input chooses
 * command and options, the rest is the model.
 */
#include "onnx/check.h"
#include "onnx/model.h"
#include "onq/onq.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "message_walk.h"
#include "model_mutator.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Names and values of options, NULL at the end. */
static const struct {
    const char *command;
    const char *options[7];
} jobs[] = {
    {"dynamic", {NULL}},
    {"dynamic", {"per_channel", "true", "enable_subgraph", "true", "lift_constants", "true"}},
    {"dynamic",
     {"weight_type", "quint8", "reduce_range", "true", "op_types_to_quantize", "Conv,GRU"}},
    {"legacy", {NULL}},
    {"legacy", {"asymmetric_input_types", "true", "opset", "13"}},
    {"qat", {NULL}},
    {"qat", {"quant_format", "qdq", "per_channel", "true"}},
    {"qat", {"quant_format", "qoperator"}},
    {"preprocess", {"optimizer", "builtin"}},
    {"preprocess", {"optimizer", "builtin", "opset", "21", "auto_merge", "true"}},
    {"preprocess", {"skip_optimization", "true", "guess_output_rank", "true"}},
    {"nbits", {NULL}},
    {"nbits", {"op_types_to_quantize", "all", "all_weights", "true", "symmetric", "false"}},
    {"nbits", {"quant_format", "QDQ", "op_types_to_quantize", "MatMul,Gemm", "block_size", "-1"}},
    {"nbits", {"quant_method", "k_quant", "all_weights", "true"}},
    {"bnb4", {NULL}},
};

/* In memory where the system has such a place: every output is synchronised to its disk. */
static char folder[32];
static char in_path[64], out_path[64];

static void remove_folder(void) {
    (void)unlink(in_path);
    (void)unlink(out_path);
    (void)rmdir(folder);
}

static void make_folder(void) {
    if (in_path[0] != '\0')
        return;
    snprintf(folder, sizeof folder, "%s/onq-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    MUST(mkdtemp(folder) != NULL);
    snprintf(in_path, sizeof in_path, "%s/in.onnx", folder);
    snprintf(out_path, sizeof out_path, "%s/out.onnx", folder);
    atexit(remove_folder);
}

static void check_output(onq_env *env) {
    oq_model *m = NULL;
    onq_error err = ONQ_ERROR_INIT;
    const bool valid =
        oq_model_open(env, out_path, NULL, &m, &err) == ONQ_OK && oq_model_check(m, &err) == ONQ_OK;
    if (!valid)
        fprintf(stderr, "%s\n", err.text);
    MUST(valid);
    oq_model_free(m);
}

static void run(onq_env *env, size_t job) {
    onq_options *o = NULL;
    onq_result *result = NULL;
    onq_error err = ONQ_ERROR_INIT;
    const char *const *pairs = jobs[job].options;
    MUST(onq_options_new(env, jobs[job].command, &o, &err) == ONQ_OK);
    MUST(onq_options_set(o, "input", in_path, &err) == ONQ_OK);
    MUST(onq_options_set(o, "output", out_path, &err) == ONQ_OK);
    for (size_t i = 0; pairs[i] != NULL; i += 2)
        MUST(onq_options_set(o, pairs[i], pairs[i + 1], &err) == ONQ_OK);
    (void)unlink(out_path);
    const onq_code rc = onq_run(env, o, &result, &err);
    if (rc == ONQ_OK) {
        check_output(env);
    } else {
        MUST(err.code == rc && err.text[0] != '\0' && rc != ONQ_E_INTERNAL);
        MUST(access(out_path, F_OK) != 0);
    }
    onq_result_free(result);
    onq_options_free(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    make_folder();
    FILE *f = fopen(in_path, "wb");
    MUST(f != NULL && fwrite(data + 1, 1, size - 1, f) == size - 1);
    MUST(fclose(f) == 0);
    onq_env *env = onq_env_new(NULL);
    onq_env_set_threads(env, 1);
    run(env, data[0] % (sizeof jobs / sizeof jobs[0]));
    onq_env_free(env);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    return mutate_model(data, size, max, seed, 1);
}
