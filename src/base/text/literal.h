/*
 * literal.h — turns values as Python writes them into JSON.
 *
 * JSON passes unchanged. Beyond it: 'single quotes', True, False and None, tuples and sets (which
 * become lists), a comma after the last item, bare names such as QuantType.QInt8 (which become
 * texts), and numpy's wrappers: np.array(0.5, dtype=np.float32) is its first argument.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

/* Appends the value to `out` as JSON; ONQ_E_CONFIG says at which character the text stops being a
 * value. The result need not be valid JSON where a string is not valid UTF-8: parse it. */
onq_code oq_literal_json(oq_buf *out, oq_str text, onq_error *err);
