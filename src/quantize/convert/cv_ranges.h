/*
 * cv_ranges.h — the parameters of a quantized model as ranges, for `static --calibration_cache`.
 */
#pragma once

#include "calibrate/ranges.h"
#include "quantize/plan.h"

typedef struct oq_convert_found {
    size_t n;         /* ranges */
    size_t n_inexact; /* from which another scale or zero point is computed */
    bool symmetric;   /* activations are symmetric: quantize them so again */
} oq_convert_found;

/* Adds the range of every activation of the plan to `out`, which the caller initialised. */
onq_code oq_convert_ranges(const oq_plan *p, oq_ranges *out, oq_convert_found *found,
                           onq_error *err);
