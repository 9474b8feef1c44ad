/*
 * nbits_level.h — `--accuracy_level auto`: whether MatMulNBits may compute in int8, by what that
 * gains on this machine and costs on the samples.
 */
#pragma once

#include "api/quantizing/quantization.h"
#include "quantize/nbits/nbits.h"

#define OQ_NB_LEVEL_AUTO (-1)

/* The result has level 4 so far; sets it back to 0 where that is better, in the graph, the plan and
 * the configuration, and says why. */
onq_code oq_nb_choose_level(oq_quant *q, oq_nb_config *c, const oq_nb_made *made, onq_error *err);
