/*
 * seq_text.h — a text of any length for a decoder, made of the tokens of a sample: to time it.
 */
#pragma once

#include "samples/sequence/seq_walk.h"

/* True if the sample has tokens to make a text of. */
bool oq_walk_has_text(const oq_walker *w, const oq_sample *like);
/* One sequence of `length` tokens: those of the sample, over and over. States, and what follows from
 * lengths, are left for a walk to fill in; all else is the sample's. In the arena. */
onq_code oq_walk_text(const oq_walker *w, const oq_sample *like, uint64_t length, oq_arena *a,
                      oq_sample *out, onq_error *err);
