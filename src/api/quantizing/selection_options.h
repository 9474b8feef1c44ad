/*
 * selection_options.h — --op_set, --heaviest and --unit_costs of a quantizing command, and the
 * units of a model with the sizes of its samples.
 */
#pragma once

#include "api/quantizing/quantization.h"
#include "quantize/choose/selection.h"

/* The options, as far as they do not depend on the model, into `s` and the configuration; `pairs`:
 * the result is in QDQ format. */
onq_code oq_selection_check(oq_selection *s, oq_quant *q, bool pairs, onq_error *err);
/* Chooses nodes of the model as it is now, unless a plan has done so. */
onq_code oq_selection_apply(const oq_selection *s, oq_quant *q, onq_error *err);
/* Warns of excluded nodes that the runtime quantizes all the same. */
void oq_selection_warn(const oq_quant *q);

/* The units of a model with the sizes of the first sample; without samples those of --dim. With
 * `strict`, samples that are asked for and cannot be read are an error. */
onq_code oq_job_units(oq_job *job, oq_model *m, bool strict, oq_units *out, onq_error *err);
