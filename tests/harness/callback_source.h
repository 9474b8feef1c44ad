/*
 * callback_source.h — samples that a function of a test gives.
 */
#pragma once

#include "samples/source.h"

/* Fills one datum for each of the model's inputs (in the arena, or views that live until the next
 * call). Called with k = 0, 1, ... count-1, on any thread, one at a time. */
typedef onq_code (*callback_source_fn)(void *ctx, uint64_t k, oq_arena *a, oq_datum *inputs,
                                       onq_error *err);
onq_code callback_source_open(onq_env *env, const oq_source_options *o, callback_source_fn fn,
                              void *ctx, uint64_t count, oq_source **out, onq_error *err);
/* The same as steps of sequences, each of so many steps. */
onq_code callback_source_open_steps(onq_env *env, const oq_source_options *o, callback_source_fn fn,
                                    void *ctx, uint64_t count, uint64_t each, oq_source **out,
                                    onq_error *err);
