/*
 * clock.h — how long models take for one sample, side by side in default sessions.
 */
#pragma once

#include "api/options/command.h"
#include "debug/debug.h"

#define OQ_CLOCK_SECONDS                                                                           \
    0.8 /* CPU seconds that this takes beside loading, about; few models more */

/* Fills ms[2]: of one run of each, the fastest of several on the sample; NAN where the models have
 * other inputs, the runtime refuses one, or the runs do not say which is faster. */
onq_code oq_clock_two(oq_job *job, const oq_debug_run *run, const oq_sample *sample,
                      oq_model *const models[2], double ms[2], onq_error *err);
/* True if the times of two models say the same in both halves of their runs: the ratios of the halves
 * differ by no more than their mean differs from 1, or by OQ_CLOCK_NOISE at most. */
#define OQ_CLOCK_NOISE 0.1
bool oq_clock_is_clear(double halves[2][2]);
