/*
 * run.c TRAINED OUT — the integer models that the scales of a trained one describe, in all three
 * formats. The model is read once; no samples and no runtime are needed.
 */
#include "../common.h"

int main(int argc, char **argv) {
    static const char *const formats[] = {"integer", "qdq", "qoperator"};
    if (argc != 3) {
        fprintf(stderr, "usage: run TRAINED OUT\n");
        return 1;
    }
    onq_env *env = onq_env_new(NULL);
    onq_bytes trained = {.label = argv[1]};
    void *bytes = read_file(argv[1], &trained.size);
    int done = env != NULL && bytes != NULL;
    trained.data = bytes;
    for (int i = 0; i < 3 && done; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s.onnx", argv[2], formats[i]);
        const char *const options[] = {"quant_format", formats[i], "verify", "false", NULL};
        onq_result *result = job_in_memory(env, "qat", &trained, options);
        done = result != NULL && write_file(path, onq_result_file(result, 0));
        onq_result_free(result);
    }
    free(bytes);
    onq_env_free(env);
    return done ? 0 : 1;
}
