/*
 * rewriting.h — `--rewrite`, for the commands that have it.
 */
#pragma once

#include "api/options/command.h"
#include "prepare/rewrite.h"

/* The sets that were asked for; ONQ_E_OPTION for a word that is none. */
onq_code oq_rewriting_sets(const oq_job *job, unsigned *sets, onq_error *err);
/* What was done, as lines and as JSON members of an array that has begun. */
void oq_rewriting_tell(oq_job *job, const oq_rewrite_report *r);
