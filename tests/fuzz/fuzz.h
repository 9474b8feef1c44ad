/*
 * fuzz.h — what fuzz targets share: properties that must hold, files, whole jobs, pairs of models.
 *
 * Header only, for the fuzz targets, which are compiled one by one.
 */
#pragma once

#include "onnx/check/check.h"
#include "onnx/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A broken property ends the run, in every build type. */
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* A refusal says why. */
#define MUST_EXPLAIN(rc, err) MUST((rc) == ONQ_OK || ((err).code == (rc) && (err).text[0] != '\0'))

/* ---- files ---- */

/* In memory where the system has such a place: every output is synchronised to its disk. */
static inline const char *fuzz_top(void) {
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

/* The files of a target. Their folder is made with the first of them and removed at the end. */
OQ_UNUSED static char fuzz_folder[32], fuzz_paths[4][64];
OQ_UNUSED static size_t fuzz_n_paths;

OQ_UNUSED static void fuzz_remove_files(void) {
    for (size_t i = 0; i < fuzz_n_paths; i++)
        (void)unlink(fuzz_paths[i]);
    (void)rmdir(fuzz_folder);
}

/* The path of a file with this name, which is one of a few that the target uses. */
OQ_UNUSED static const char *fuzz_path(const char *name) {
    if (fuzz_n_paths == 0) {
        snprintf(fuzz_folder, sizeof fuzz_folder, "%s/onq-fuzz-XXXXXX", fuzz_top());
        MUST(mkdtemp(fuzz_folder) != NULL);
        atexit(fuzz_remove_files);
    }
    const size_t head = strlen(fuzz_folder) + 1;
    for (size_t i = 0; i < fuzz_n_paths; i++)
        if (strcmp(fuzz_paths[i] + head, name) == 0)
            return fuzz_paths[i];
    MUST(fuzz_n_paths < OQ_COUNT(fuzz_paths));
    char *path = fuzz_paths[fuzz_n_paths++];
    snprintf(path, sizeof fuzz_paths[0], "%s/%s", fuzz_folder, name);
    return path;
}

OQ_UNUSED static void fuzz_write(const char *name, const uint8_t *p, size_t n) {
    FILE *f = fopen(fuzz_path(name), "wb");
    MUST(f != NULL && fwrite(p, 1, n, f) == n);
    MUST(fclose(f) == 0);
}

/* ---- jobs: in.onnx becomes out.onnx ---- */

/* Options for the command with the two files and the pairs of names and values, NULL last. */
OQ_UNUSED static onq_options *fuzz_options(onq_env *env, const char *command,
                                           const char *const *pairs) {
    onq_options *o = NULL;
    onq_error err = ONQ_ERROR_INIT;
    MUST(onq_options_new(env, command, &o, &err) == ONQ_OK);
    MUST(onq_options_set(o, "input", fuzz_path("in.onnx"), &err) == ONQ_OK);
    MUST(onq_options_set(o, "output", fuzz_path("out.onnx"), &err) == ONQ_OK);
    for (size_t i = 0; pairs[i] != NULL; i += 2)
        if (onq_options_set(o, pairs[i], pairs[i + 1], &err) != ONQ_OK) {
            fprintf(stderr, "%s\n", err.text);
            abort();
        }
    return o;
}

/* Runs it: the output is a valid model, or there is a reason and no output. */
OQ_UNUSED static void fuzz_run(onq_env *env, const onq_options *o) {
    const char *out = fuzz_path("out.onnx");
    onq_result *result = NULL;
    oq_model *m = NULL;
    onq_error err = ONQ_ERROR_INIT;
    (void)unlink(out);
    onq_code rc = onq_run(env, o, &result, &err);
    onq_result_free(result);
    if (rc != ONQ_OK) {
        MUST_EXPLAIN(rc, err);
        if (rc == ONQ_E_INTERNAL)
            fprintf(stderr, "%s\n", err.text);
        MUST(rc != ONQ_E_INTERNAL && access(out, F_OK) != 0);
        return;
    }
    rc = oq_model_open(env, out, NULL, &m, &err);
    if (rc == ONQ_OK)
        rc = oq_model_check(m, &err);
    if (rc != ONQ_OK)
        fprintf(stderr, "%s\n", err.text);
    MUST(rc == ONQ_OK);
    oq_model_free(m);
}

/* ---- two models: the first two bytes are the length of the first, the rest is the second ---- */

typedef void fuzz_use_two(onq_env *env, oq_model *first, oq_model *second);

OQ_UNUSED static void fuzz_two(const uint8_t *data, size_t size, fuzz_use_two *use) {
    onq_error err = ONQ_ERROR_INIT;
    oq_model *a = NULL, *b = NULL;
    if (size < 2)
        return;
    onq_env *env = onq_env_new(NULL);
    size_t n = (size_t)data[0] | ((size_t)data[1] << 8);
    n = n > size - 2 ? size - 2 : n;
    if (oq_model_open_memory(env, data + 2, n, NULL, &a, &err) == ONQ_OK &&
        oq_model_open_memory(env, data + 2 + n, size - 2 - n, NULL, &b, &err) == ONQ_OK)
        use(env, a, b);
    oq_model_free(a);
    oq_model_free(b);
    onq_env_free(env);
}
