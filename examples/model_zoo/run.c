/*
 * run.c OUT FOLDER... — quantizes folders as the model zoo has them, model.onnx beside test_data_set_*,
 * with 8-bit and with 16-bit activations, and measures both. One environment serves all jobs; a folder
 * that fails does not stop the others.
 */
#include "../common.h"

#include <string.h>

static int quantize(onq_env *env, const char *out, const char *folder) {
    const char *slash = strrchr(folder, '/'), *name = slash != NULL ? slash + 1 : folder;
    char model[4096], infer[4096], a8[4096], a16[4096];
    snprintf(model, sizeof model, "%s/model.onnx", folder);
    snprintf(infer, sizeof infer, "%s/%s-infer.onnx", out, name);
    snprintf(a8, sizeof a8, "%s/%s-a8w8.onnx", out, name);
    snprintf(a16, sizeof a16, "%s/%s-a16w8.onnx", out, name);

    const char *const prepare[] = {"input", model, "output", infer, NULL};
    const char *const eight[] = {"input", infer,         "output", a8,  "data",
                                 folder,  "per_channel", "true",   NULL};
    const char *const sixteen[] = {
        "input",       infer,  "output",          a16,       "data", folder,
        "per_channel", "true", "activation_type", "quint16", NULL};
    const char *const compare[] = {"operand", infer,  "operand", a8,  "operand", a16,
                                   "data",    folder, "runs",    "3", NULL};
    return job(env, "preprocess", prepare) && job(env, "static", eight) &&
           job(env, "static", sixteen) && job(env, "bench", compare);
}

int main(int argc, char **argv) {
    onq_env *env = onq_env_new(NULL);
    int status = env == NULL;
    if (argc < 3) {
        fprintf(stderr, "usage: run OUT FOLDER...\n");
        status = 1;
    }
    for (int i = 2; env != NULL && i < argc; i++)
        if (!quantize(env, argv[1], argv[i])) {
            fprintf(stderr, "%s: left out\n", argv[i]);
            status = 1;
        }
    onq_env_free(env);
    return status;
}
