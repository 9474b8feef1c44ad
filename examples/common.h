/*
 * common.h — what the programs beside this share: a command of onq as one call, and whole files, which
 * onq does not see where a program gives it bytes.
 */
#pragma once

#include <onq/onq.h>
#include <stdio.h>
#include <stdlib.h>

/* Does a job that is all in its options; says what onq says. 1 when it is done. */
static inline int finish(onq_env *env, const onq_options *opts, onq_result **out) {
    onq_error err = ONQ_ERROR_INIT;
    const onq_code rc = onq_run(env, opts, out, &err);
    if (rc == ONQ_OK)
        fputs(onq_result_text(*out), stdout);
    else
        fprintf(stderr, "%s\n", err.text);
    return rc == ONQ_OK;
}

/* Options of a command from pairs of name and value, up to a NULL; NULL when one is wrong. */
static inline onq_options *options(onq_env *env, const char *command, const char *const *pairs) {
    onq_error err = ONQ_ERROR_INIT;
    onq_options *opts = NULL;
    onq_code rc = onq_options_new(env, command, &opts, &err);
    for (; rc == ONQ_OK && *pairs != NULL; pairs += 2)
        rc = onq_options_set(opts, pairs[0], pairs[1], &err);
    if (rc == ONQ_OK)
        return opts;
    fprintf(stderr, "%s: %s\n", command, err.text);
    onq_options_free(opts);
    return NULL;
}

/* A command with nothing but options: files in, files out. */
static inline int job(onq_env *env, const char *command, const char *const *pairs) {
    onq_result *result = NULL;
    onq_options *opts = options(env, command, pairs);
    const int done = opts != NULL && finish(env, opts, &result);
    onq_result_free(result);
    onq_options_free(opts);
    return done;
}

/* A command with a model in memory, whose output stays in memory: file 0 of the result, or NULL. */
static inline onq_result *job_in_memory(onq_env *env, const char *command, const onq_bytes *model,
                                        const char *const *pairs) {
    onq_error err = ONQ_ERROR_INIT;
    onq_result *result = NULL;
    onq_options *opts = options(env, command, pairs);
    if (opts == NULL)
        return NULL;
    if (onq_options_set_bytes(opts, "input", model, &err) != ONQ_OK ||
        onq_options_want_bytes(opts, "output", NULL, &err) != ONQ_OK)
        fprintf(stderr, "%s: %s\n", command, err.text);
    else
        finish(env, opts, &result);
    onq_options_free(opts);
    return result;
}

/* NULL, and a message, when it cannot be read. */
static inline void *read_file(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    unsigned char *p = NULL;
    long n = -1;
    if (f != NULL && fseek(f, 0, SEEK_END) == 0 && (n = ftell(f)) >= 0 &&
        fseek(f, 0, SEEK_SET) == 0)
        p = malloc((size_t)n + 1);
    if (p != NULL && fread(p, 1, (size_t)n, f) != (size_t)n) {
        free(p);
        p = NULL;
    }
    if (p == NULL)
        perror(path);
    if (f != NULL)
        fclose(f);
    *size = p != NULL ? (size_t)n : 0;
    return p;
}

static inline int write_file(const char *path, const onq_file *file) {
    FILE *f = fopen(path, "wb");
    if (f == NULL)
        return 0;
    const int done = fwrite(file->data, 1, file->size, f) == file->size;
    return fclose(f) == 0 && done;
}
