/*
 * nbits_forecast.h — a line about the speed of the result: MatMulNBits is slower than float for
 * some sizes and settings.
 */
#pragma once

#include "api/quantizing/quantization.h"
#include "quantize/nbits/nbits.h"

/* With --verify a few sizes of the model are timed; else what was measured elsewhere speaks. */
onq_code oq_nb_forecast(oq_quant *q, const oq_nb_config *c, const oq_nb_made *made, onq_error *err);
