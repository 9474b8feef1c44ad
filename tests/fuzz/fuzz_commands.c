/*
 * fuzz_commands.c — any bytes as the model of a command that needs no runtime: refused with a
 * message and no output, or the output is a valid model. The first byte of the input chooses
 * command and options, the rest is the model.
 */
#include "fuzz.h"
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    const size_t job = data[0] % OQ_COUNT(jobs);
    onq_env *env = onq_env_new(NULL);
    onq_env_set_threads(env, 1);
    fuzz_write("in.onnx", data + 1, size - 1);
    onq_options *o = fuzz_options(env, jobs[job].command, jobs[job].options);
    fuzz_run(env, o);
    onq_options_free(o);
    onq_env_free(env);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    return mutate_model(data, size, max, seed, 1);
}
