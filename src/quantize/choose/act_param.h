/*
 * act_param.h — parameters of an activation: from its calibrated range, or from an override.
 */
#pragma once

#include "calibrate/ranges.h"
#include "onnx/tensor.h"
#include "quantize/choose/config.h"
#include "quantize/number/qparam.h"
#include "quantize/override/override.h"

/* Scale and zero point of `type`, computed in `real`; `o` may be NULL. Errors say what the range
 * lacks. */
onq_code oq_act_param(const oq_qconfig *c, const oq_range *r, const oq_override *o, oq_dtype type,
                      oq_dtype real, oq_qparam *out, onq_error *err);

/* True if the override gives all parameters, whatever the range is. */
bool oq_act_is_given(const oq_override *o);

/* True if the range, or a constant, holds an infinity (an attention mask) that no override
 * replaces. Such a tensor has no scale and stays float. A large constant is a table, not a mask,
 * and is not looked at. */
bool oq_act_is_infinite(const oq_range *r, const oq_override *o);
onq_code oq_const_is_infinite(oq_model *m, oq_tensor *t, const oq_override *o, bool *out,
                              onq_error *err);
/* Says that such a tensor stays float; `r` is NULL for a constant. No value at all, as in the past
 * of a decoder that only ever began, is a range from infinity down, and is called what it is. */
void oq_act_warn_infinite(const onq_env *env, oq_str name, const oq_range *r);
