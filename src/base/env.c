/*
 * env.c — the environment handle, the version and the names of codes. See env.h and onq.h.
 */
#include "base/env.h"

#include "base/os.h"

#include <stdarg.h>
#include <time.h>

#define TEXT_OF(x)    #x
#define NUMBER_OF(x)  TEXT_OF(x)
#define MAX_LOG       8000
#define THREADS_LIMIT 1024

const char *onq_version(void) {
    return NUMBER_OF(ONQ_VERSION_MAJOR) "." NUMBER_OF(ONQ_VERSION_MINOR) "." NUMBER_OF(
        ONQ_VERSION_PATCH);
}

const char *onq_code_name(onq_code code) {
    switch (code) {
    case ONQ_OK:
        return "ok";
    case ONQ_E_NOMEM:
        return "nomem";
    case ONQ_E_LIMIT:
        return "limit";
    case ONQ_E_CANCEL:
        return "cancel";
    case ONQ_E_OPEN:
        return "open";
    case ONQ_E_READ:
        return "read";
    case ONQ_E_WRITE:
        return "write";
    case ONQ_E_PATH:
        return "path";
    case ONQ_E_MISSING:
        return "missing";
    case ONQ_E_MALFORMED:
        return "malformed";
    case ONQ_E_INVALID:
        return "invalid";
    case ONQ_E_UNSUPPORTED:
        return "unsupported";
    case ONQ_E_OPTION:
        return "option";
    case ONQ_E_CONFIG:
        return "config";
    case ONQ_E_RUNTIME:
        return "runtime";
    case ONQ_E_INTERNAL:
        return "internal";
    }
    return "unknown";
}

onq_env *onq_env_new(const onq_allocator *alloc) {
    if (alloc == NULL)
        alloc = oq_alloc_default();
    onq_env *env = oq_calloc(alloc, 1, sizeof *env);
    if (env != NULL)
        env->alloc = *alloc;
    return env;
}

void onq_env_free(onq_env *env) {
    if (env == NULL)
        return;
    const onq_allocator alloc = env->alloc;
    oq_free(&alloc, env, sizeof *env);
}

void onq_env_set_log(onq_env *env, void (*fn)(void *ctx, onq_log_level level, const char *text),
                     void *ctx) {
    env->log_fn = fn;
    env->log_ctx = ctx;
}

void onq_env_set_progress(onq_env *env,
                          int (*fn)(void *ctx, const char *what, uint64_t done, uint64_t total),
                          void *ctx) {
    env->progress_fn = fn;
    env->progress_ctx = ctx;
}

void onq_env_set_threads(onq_env *env, unsigned n_threads) {
    env->n_threads = n_threads;
}

bool oq_listens(const onq_env *env) {
    return env != NULL && env->log_fn != NULL && !env->silent;
}

bool oq_env_silence(onq_env *env, bool silent) {
    const bool was = env->silent;
    env->silent = silent;
    return was;
}

void oq_log(const onq_env *env, onq_log_level level, const char *fmt, ...) {
    if (!oq_listens(env))
        return;
    char raw[MAX_LOG + 1], text[MAX_LOG + 1];
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(raw, sizeof raw, fmt, args);
    va_end(args);
    if (n < 0)
        return;
    /* A text that vsnprintf cut is given one byte too long, so that the dots say so. */
    oq_text_escape(text, sizeof text, raw, (size_t)n < sizeof raw ? (size_t)n : sizeof raw);
    env->log_fn(env->log_ctx, level, text);
}

onq_code oq_progress(const onq_env *env, const char *what, uint64_t done, uint64_t total,
                     onq_error *err) {
    if (env == NULL || env->progress_fn == NULL ||
        env->progress_fn(env->progress_ctx, what, done, total) == 0)
        return ONQ_OK;
    return oq_fail(err, ONQ_E_CANCEL, "%s: cancelled", what);
}

static unsigned cores(void) {
    const unsigned n = oq_os_cores();
    return n > 0 && n <= THREADS_LIMIT ? n : 1;
}

unsigned oq_env_threads(const onq_env *env) {
    const unsigned n = env != NULL && env->n_threads != 0 ? env->n_threads : cores();
    return n < THREADS_LIMIT ? n : THREADS_LIMIT;
}

uint64_t oq_memory_share(void) {
    const uint64_t all = oq_os_memory();
    return all > 0 ? all / 4 : (uint64_t)1 << 30;
}

double oq_cpu_seconds(void) {
    struct timespec t = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double oq_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
