/*
 * neighbours.h — embeddings: which other one is the nearest, by the cosine.
 *
 * What people do with embeddings is to look for the nearest. Those of all samples are kept; for each
 * of them the cosines with all others are a row of scores, whose best one is its answer.
 */
#pragma once

#include "base/vec.h"
#include "samples/datum.h"
#include "tune/judge/bound.h"

typedef OQ_VEC(float) oq_embeddings; /* one after the other, of length 1 each */

typedef struct oq_neighbours {
    oq_arena *arena;
    size_t width; /* of an embedding; 0: there is none yet */
    oq_embeddings flt, quantized;
} oq_neighbours;

/* Adds the embeddings of one sample's output in float and in the candidate: [N, C], or [N, T, C],
 * whose mean over T counts. *n is how many; 0: it has none, or none of the same width. */
onq_code oq_neighbours_add(oq_neighbours *x, const oq_datum *flt, const oq_datum *quantized,
                           uint64_t *n, onq_error *err);
/* Margins and errors of the cosines of each embedding, in the arena; n 0: there are fewer than
 * three. */
onq_code oq_neighbours_end(const oq_neighbours *x, oq_arena *a, oq_flips *out, onq_error *err);
