/*
 * run.c MODEL IMAGES OUT — a classifier of images in three parts: prepare the float model, quantize it
 * with a folder of images, and find where the accuracy goes. Options have the names of the command
 * line; OUT is a folder that exists.
 */
#include <onq/onq.h>
#include <stdio.h>

/* Runs a command with pairs of option and value, up to a NULL, and prints what it says. */
static int run(onq_env *env, const char *command, const char *const *pairs) {
    onq_error err = ONQ_ERROR_INIT;
    onq_options *opts = NULL;
    onq_result *result = NULL;
    onq_code rc = onq_options_new(env, command, &opts, &err);
    for (; rc == ONQ_OK && *pairs != NULL; pairs += 2)
        rc = onq_options_set(opts, pairs[0], pairs[1], &err);
    if (rc == ONQ_OK)
        rc = onq_run(env, opts, &result, &err);
    if (rc == ONQ_OK)
        printf("%s:\n%s\n", command, onq_result_text(result));
    else
        fprintf(stderr, "%s: %s\n", command, err.text);
    onq_result_free(result);
    onq_options_free(opts);
    return rc == ONQ_OK;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: run MODEL IMAGES OUT\n");
        return 1;
    }
    char infer[4096], quant[4096], report[4096];
    snprintf(infer, sizeof infer, "%s/infer.onnx", argv[3]);
    snprintf(quant, sizeof quant, "%s/quant.onnx", argv[3]);
    snprintf(report, sizeof report, "%s/report.html", argv[3]);

    /* Pixels from 0 to 1 are what this model was trained on. */
    const char *const prepare[] = {"input", argv[1], "output", infer, NULL};
    const char *const quantize[] = {"input",     infer,  "output", quant,        "per_channel",
                                    "true",      "data", argv[2],  "image-mean", "0",
                                    "image-std", "1",    NULL};
    const char *const look[] = {"float_model", infer,        "qdq_model", quant,       "data",
                                argv[2],       "image-mean", "0",         "image-std", "1",
                                "output",      report,       NULL};
    onq_env *env = onq_env_new(NULL);
    const int done = env != NULL && run(env, "preprocess", prepare) &&
                     run(env, "static", quantize) && run(env, "debug", look);
    onq_env_free(env);
    return done ? 0 : 1;
}
