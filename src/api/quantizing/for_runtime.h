/*
 * for_runtime.h — --for_runtime VERSION: the result is written as that version of ONNX Runtime can
 * run it, or not at all.
 */
#pragma once

#include "api/options/command.h"
#include "quantize/convert/runtime_fit.h"

/* Reads the option; *out is NULL where it was not given. ONQ_E_OPTION for a version that was not
 * measured. Called before any work. */
onq_code oq_for_runtime_read(const oq_job *job, const oq_runtime **out, onq_error *err);
/* Rewrites the model, where the option was given. */
onq_code oq_for_runtime_fit(const oq_job *job, oq_model *m, oq_runtime_fitted *out, onq_error *err);
/* Adds a line to the summary, and the key "for_runtime" to the result. */
void oq_for_runtime_tell(oq_job *job, const oq_runtime_fitted *f);
