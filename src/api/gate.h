/*
 * gate.h — --target as a gate: a result that is farther from float than the user allows ends the
 * job with status 1.
 *
 * For every command that measures how near a model is to float and does not search: the quantizing
 * ones and `bench`. (`auto` searches until its targets hold.)
 */
#pragma once

#include "api/options/command.h"
#include "tune/choose.h"

/* Reads --target. `labels`: the command measures accuracy. ONQ_E_OPTION for a metric that the
 * command does not measure. */
onq_code oq_gate_read(oq_job *job, bool labels, oq_targets *out, onq_error *err);
/* ONQ_E_CONFIG if a target asks for a figure that was not found: outputs without classes have no
 * agreement. */
onq_code oq_gate_check(const oq_targets *t, const oq_score *s, onq_error *err);
/* Adds the key "targets" to the open object, and sets the status of the job. */
void oq_gate_json(oq_job *job, const oq_targets *t, const oq_score *s);
/* Says of each target whether it is reached: in the text of the result, or, where it is not, as a
 * warning that --quiet does not hide. `who` is before it, or NULL. */
void oq_gate_tell(oq_job *job, const oq_targets *t, const oq_score *s, const char *who);
/* ONQ_E_UNSUPPORTED with the first target that is not reached. */
onq_code oq_gate_refuse(const oq_job *job, const oq_targets *t, const oq_score *s, onq_error *err);
