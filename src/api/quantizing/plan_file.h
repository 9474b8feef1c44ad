/*
 * plan_file.h — plans as files: --plan writes one with the options that it was made with, and
 * --from_plan takes both from it.
 */
#ifndef OQ_API_PLAN_FILE_H
#define OQ_API_PLAN_FILE_H

#include "api/options/command.h"
#include "quantize/plan_read.h"

/* Writes --plan; nothing when it is not given. */
onq_code oq_plan_file_write(oq_job *job, const oq_plan *plan, const char *format, onq_error *err);
/* Reads --from_plan into *given, and into *options the job's options with those of the plan where
 * the job has none. The caller frees them (onq_options_free). Both are NULL when there is no plan.
 */
onq_code oq_plan_file_read(oq_job *job, oq_given **given, onq_options **options, onq_error *err);

#endif
