/*
 * ranges_handle.h — ranges in the hands of a caller: onq_ranges of onq.h around oq_ranges.
 */
#pragma once

#include "api/options/command.h"
#include "calibrate/ranges.h"

/* Takes the ranges, also when it fails. What is made outlives the environment. */
onq_code oq_ranges_hand_over(const onq_env *env, oq_ranges *r, onq_ranges **out, onq_error *err);
/* Makes them the ranges of the job's result. Takes them, also when it fails. */
onq_code oq_job_give_ranges(oq_job *job, oq_ranges *r, onq_error *err);
const oq_ranges *oq_ranges_inside(const onq_ranges *ranges);
