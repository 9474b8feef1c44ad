/*
 * pattern.h — regular expressions of the user's, over names of a model.
 *
 * POSIX extended expressions with the classes of GNU (\w \W \s \S \b \B \< \>), over bytes. A match
 * takes time in proportion to the expression times the name, whatever they are. Back-references are
 * refused, and so is what takes too much room. Where a group could stand for several texts,
 * repetitions take as much as they can and the first alternative that leads to a match wins.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

#define OQ_PATTERN_GROUPS 11 /* the whole match and ten groups have places */

/* Compiled, in an arena; one thread at a time matches with it. */
typedef struct oq_regex oq_regex;

/* The place of a group in a name; `start` is SIZE_MAX where the group took no part. */
typedef struct oq_regex_group {
    size_t start, end;
} oq_regex_group;

/* ONQ_E_OPTION with what is wrong. */
onq_code oq_regex_compile(oq_arena *a, const char *text, oq_regex **out, onq_error *err);
/* Whether it is found in the name, up to the name's first NUL byte; names that are very long match
 * nothing. Places of groups go to `groups`, which may be NULL. */
bool oq_regex_match(oq_regex *re, oq_str name, oq_regex_group groups[OQ_PATTERN_GROUPS]);
