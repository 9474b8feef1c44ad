/*
 * debug_about.h — what the report of `onq debug` says of its run: sizes, times, options, samples,
 * and the command that makes such a model again.
 */
#pragma once

#include "api/options/command.h"
#include "debug/debug.h"
#include "debug/page/report.h"

/* Fills `about`, whose texts live in the job's arena. `run` is what the samples ran with, NULL when
 * there were none; with `clock` both models are timed on the first of them. */
onq_code oq_debug_describe(oq_job *job, const oq_debug *d, const oq_debug_run *run, bool clock,
                           oq_debug_about *about, onq_error *err);
