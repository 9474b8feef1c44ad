/*
 * outputs.h — checks what a job will write before it begins.
 *
 * A calibration takes minutes; that its result cannot be written is known before. Every option that
 * names a file or folder to write is a row of the table in outputs.c.
 */
#pragma once

#include "api/options/options.h"
#include "calibrate/ranges.h"
#include "onnx/model.h"

/* ONQ_E_OPTION when an output is a file that is read too (--force lets the model be replaced) or
 * another output, ONQ_E_WRITE when it cannot be written. Leaves nothing behind. */
onq_code oq_outputs_check(const onq_options *o, const onq_allocator *alloc, onq_error *err);

/* ONQ_E_WRITE when an output is a file that holds external data of the model. */
onq_code oq_outputs_check_data(const onq_options *o, oq_model *m, onq_error *err);

/* The folder in which output i of what the options name is written, in the arena, or NULL past the
 * last. What is read where it exists counts too. */
const char *oq_outputs_folder(const onq_options *o, size_t i, oq_arena *a);

/* Ranges that took a calibration and could not be written, nor the model made of them: when `rc` is
 * ONQ_E_WRITE they are put into a file in the temporary folder, and the error says where. Gives rc
 * back. */
onq_code oq_outputs_rescue(const onq_env *env, const oq_ranges *r, onq_code rc, onq_error *err);
