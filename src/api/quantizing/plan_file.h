/*
 * plan_file.h — plans as files: --plan writes one with the options that it was made with, and
 * --from_plan takes both from it.
 */
#pragma once

#include "api/options/command.h"
#include "quantize/plan_read.h"

/* Writes --plan; nothing when it is not given. */
onq_code oq_plan_file_write(oq_job *job, const oq_plan *plan, const char *format, onq_error *err);
/* Runs a command: with --from_plan by the decisions of that plan, and with its options where the
 * job has none; else `given` is NULL. */
onq_code oq_plan_file_run(oq_job *job,
                          onq_code (*run)(oq_job *job, oq_given *given, onq_error *err),
                          onq_error *err);
