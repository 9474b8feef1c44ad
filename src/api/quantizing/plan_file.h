/*
 * plan_file.h — plans as files: --plan writes one with the options that it was made with, and
 * --from_plan takes both from it.
 */
#pragma once

#include "api/options/command.h"
#include "quantize/plan_read.h"

/* Writes --plan; nothing when it is not given. */
onq_code oq_plan_file_write(oq_job *job, const oq_plan *plan, const char *format, onq_error *err);
/* Runs the command of the job. With --from_plan, job->given is that plan, and its options hold
 * where the job has none. */
onq_code oq_plan_file_run(oq_job *job, onq_error *err);
