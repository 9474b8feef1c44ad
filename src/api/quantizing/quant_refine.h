/*
 * quant_refine.h — the stages after quantization that samples help with (quantize/refine).
 */
#pragma once

#include "api/quantizing/quantization.h"

/* True if an option asks for one of them. */
bool oq_quant_refines(const oq_quant *q);
/* Improves the result that q->model holds; `flt` is the model before. Says what it gained on the
 * samples, and warns where that is a loss. */
onq_code oq_quant_refine(oq_quant *q, oq_model_proto *flt, onq_error *err);
