/*
 * debug_along.h — how errors of a model with states grow along sequences.
 */
#pragma once

#include "api/bench/bench_compare.h"
#include "debug/debug.h"

/* Runs both models through the sequences, the quantized one with its own states and once more with
 * those of float, as the runtime optimises them. Fills `tally`, and d->along if there is more than
 * one step. Nothing, if the float model has no states. */
onq_code oq_debug_along(oq_job *job, oq_debug *d, oq_engine *engine, oq_tally *tally,
                        onq_error *err);
