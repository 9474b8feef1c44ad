/*
 * nearest.h — "did you mean": the known names nearest to one that is not known.
 *
 * Near is a small edit distance for the length of the name, or the one being part of the other.
 * Case and - or _ do not count. Names that are not near are not suggested.
 */
#pragma once

#include "base/str.h"

typedef struct oq_nearest {
    oq_str wanted;
    oq_str best[3]; /* views of what was offered */
    size_t rank[3];
    size_t n;
} oq_nearest;

void oq_nearest_init(oq_nearest *s, oq_str wanted);
void oq_nearest_offer(oq_nearest *s, oq_str candidate);
/* " (did you mean --a or --b?)" with `prefix` before each; "" when nothing is near. */
void oq_nearest_text(const oq_nearest *s, const char *prefix, char *out, size_t out_size);
