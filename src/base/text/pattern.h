/*
 * pattern.h — regular expressions of the user's, over names of a model.
 *
 * Extended expressions of the C library. What would take it gigabytes or hours is refused, and so
 * are back-references.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <regex.h>

/* regfree releases it. ONQ_E_OPTION with what is wrong. */
onq_code oq_pattern_compile(regex_t *out, const char *text, onq_error *err);
/* Whether it is found in the name, up to the name's first NUL byte; names that are very long match
 * nothing. Places of the n first groups go to `groups`, which may be NULL. */
bool oq_pattern_match(const regex_t *re, oq_str name, regmatch_t *groups, size_t n);
