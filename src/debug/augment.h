/*
 * augment.h — a model that gives out its tensors: the reference's
 * modify_model_output_intermediate_tensors and get_augment_model.
 */
#pragma once

#include "calibrate/calibrate.h"

#define OQ_DEBUG_SAVED "_ReshapedSavedOutput"

/* Types and shapes go into the model; every float and float16 tensor X at its nodes (of the
 * operators named, or of all) gets a Reshape to one axis whose result X_ReshapedSavedOutput is an
 * output. ONQ_E_INVALID when the model has a tensor of such a name already. */
onq_code oq_debug_augment(oq_model *m, const oq_str *op_types, size_t n_op_types, onq_error *err);
/* The same for the outputs by which the reference's calibrator of this method collects:
 * X_ReduceMin and X_ReduceMax of each tensor that it calibrates, or the tensors themselves
 * (augment_ranges.c). */
onq_code oq_debug_augment_ranges(oq_model *m, const oq_cal_options *o, onq_error *err);
