/*
 * narrow.h — what the quantized model leaves float, as options that leave it float again.
 */
#pragma once

#include "api/causes/remedies.h"

/* Adds to the base recipe the nodes and outputs that the model which was made first quantizes, and
 * the given one does not. `*changed`: there were some. */
onq_code oq_narrow(oq_diagnosing *g, const oq_remade *first, bool *changed, onq_error *err);
