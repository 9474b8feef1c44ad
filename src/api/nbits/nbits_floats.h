/*
 * nbits_floats.h — which constants of a result of weight-only quantization are still float, how
 * much of the file they are, and why.
 */
#pragma once

#include "api/quantizing/quantization.h"
#include "quantize/nbits/nbits.h"

/* A line for the summary where they are a large part; figures for the JSON always. After the result
 * was written. */
onq_code oq_nb_tell_floats(oq_quant *q, const oq_nb_config *c, const oq_nb_made *made,
                           onq_error *err);
