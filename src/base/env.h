/*
 * env.h — the environment handle: allocator, messages, progress, threads.
 *
 * Everything a job needs from outside travels in it; there are no globals.
 */
#pragma once

#include "base/alloc.h"
#include "base/err.h"

struct onq_env {
    onq_allocator alloc;
    void (*log_fn)(void *ctx, onq_log_level level, const char *text);
    void *log_ctx;
    int (*progress_fn)(void *ctx, const char *what, uint64_t done, uint64_t total);
    void *progress_ctx;
    unsigned n_threads; /* 0: one for each core */
    bool silent;        /* nobody gets messages: oq_env_silence */
    bool isolated;      /* a worker (api/isolate/isolate.h): its files go to the temporary folder */
};

/* A message for the user. Text is escaped like error text and cut at 8,000 bytes. */
void oq_log(const onq_env *env, onq_log_level level, const char *fmt, ...) OQ_PRINTF(3, 4);
#define oq_warn(env, ...)  oq_log((env), ONQ_LOG_WARNING, __VA_ARGS__)
#define oq_alert(env, ...) oq_log((env), ONQ_LOG_ALERT, __VA_ARGS__)
#define oq_info(env, ...)  oq_log((env), ONQ_LOG_INFO, __VA_ARGS__)
#define oq_note(env, ...)  oq_log((env), ONQ_LOG_NOTE, __VA_ARGS__)

/* Whether anybody gets messages: ask before computing what only a message says. */
bool oq_listens(const onq_env *env);
/* Turns messages off for what is tried and is not the user's, or on again. Returns what it was, so
 * that the caller can restore it. */
bool oq_env_silence(onq_env *env, bool silent);

/* Reports progress; ONQ_E_CANCEL when the caller wants to stop. */
onq_code oq_progress(const onq_env *env, const char *what, uint64_t done, uint64_t total,
                     onq_error *err);
/* Seconds on a clock that only goes forward. */
double oq_seconds(void);
/* The CPU time that the process has taken. */
double oq_cpu_seconds(void);
/* Bytes that may be kept where the caller has not said how many: a quarter of the machine's. */
uint64_t oq_memory_share(void);
/* Threads to use, at least 1. */
unsigned oq_env_threads(const onq_env *env);
