/*
 * pool.h — a deterministic worker pool.
 *
 * oq_pool_run calls fn(ctx, i, worker) once for every i below n, spread over the workers. What a
 * task writes must depend on i alone, so results never depend on the number of threads. The first
 * failing i (the lowest) decides the error. With one thread, or when a thread cannot be made, the
 * tasks run in the caller.
 *
 * The caller is worker 0 and works too; `worker` is below oq_pool_workers, so scratch can be kept
 * in an array. One job at a time: a task must not start another on the same pool.
 */
#pragma once

#include "base/env.h"

typedef struct oq_pool oq_pool;

typedef onq_code (*oq_task)(void *ctx, size_t i, unsigned worker, onq_error *err);

/* A pool of oq_env_threads(env) workers. */
onq_code oq_pool_new(const onq_env *env, oq_pool **out, onq_error *err);
/* A pool of n workers. */
onq_code oq_pool_new_of(const onq_env *env, unsigned n, oq_pool **out, onq_error *err);
void oq_pool_free(oq_pool *p);
unsigned oq_pool_workers(const oq_pool *p);
onq_code oq_pool_run(oq_pool *p, size_t n, oq_task fn, void *ctx, onq_error *err);

/* Ordered pipeline: make(i) runs on workers; take(i) runs in the caller in order of i, after
 * make(i). make(i) begins only when take(i - window) has ended, so `window` slots for results,
 * slot i % window for i, are enough. The error is the one that make(0), take(0), make(1), ... in
 * order would give. Used by the model writer: quantize tensor k+1.. while tensor k is written. */
onq_code oq_pool_pipeline(oq_pool *p, size_t n, size_t window, oq_task make, oq_task take,
                          void *ctx, onq_error *err);
