/*
 * run.c MODEL IMAGES OUT — a classifier of images in three parts: prepare the float model, quantize it
 * with a folder of images, and find where the accuracy goes. Options have the names of the command
 * line; OUT is a folder that exists.
 */
#include "../common.h"

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
    const int done = env != NULL && job(env, "preprocess", prepare) &&
                     job(env, "static", quantize) && job(env, "debug", look);
    onq_env_free(env);
    return done ? 0 : 1;
}
