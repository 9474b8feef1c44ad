/*
 * faults.h — which parameters in a quantized model do not fit, found by comparing them with those
 * that the same options give over the samples at hand.
 */
#pragma once

#include "api/causes/remedies.h"

/* Names the worst tensor whose parameters differ in the model that `t` made, and gives its row (as
 * oq_remedy.say does); without one, says that they differ as a whole. */
onq_code oq_fault_say(const oq_diagnosing *g, const oq_try *t, oq_buf *out, uint32_t *row,
                      onq_error *err);
/* *yes: nearly all parameters are those of the model that `t` made, and few tensors have others that
 * lose much. Then they are at fault, whether or not the outputs of these samples suffer. */
onq_code oq_fault_stands_out(const oq_diagnosing *g, const oq_try *t, bool *yes, onq_error *err);
