/*
 * override_check.h — overrides against the model that they are for.
 */
#pragma once

#include "quantize/choose/reach.h"
#include "quantize/override/override.h"

typedef struct oq_override_check {
    const oq_reach *reach;
    oq_dtype activation_type, weight_type; /* of tensors whose override has none */
} oq_override_check;

/* Gives an axis to lists of several dictionaries that name none, where it is clear which. */
void oq_overrides_find_axes(oq_overrides *o, const oq_reach *reach);
/* Validates all against the model. One error, naming the first tensor that is wrong and how many
 * more are. */
onq_code oq_overrides_check(const oq_overrides *o, const oq_override_check *m, onq_error *err);
