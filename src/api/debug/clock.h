/*
 * clock.h — how long models take for one sample, side by side in default sessions.
 */
#pragma once

#include "api/options/command.h"
#include "debug/debug.h"

/* Fills ms[2]: of one run of each, the fastest of several on the sample; NAN where the models have
 * other inputs or the runtime refuses one. */
onq_code oq_clock_two(oq_job *job, const oq_debug_run *run, const oq_sample *sample,
                      oq_model *const models[2], double ms[2], onq_error *err);
