/*
 * divide.h — which samples calibrate a candidate, and which judge it.
 *
 * Samples are put in the order of a hash of what they hold and cut into parts. In a fold one part
 * judges and the others calibrate. So the same set is divided in the same way whatever its order
 * and names, kinds of samples that alternate are mixed in every part, and samples of equal hashes
 * come into the same part, unless a part would then have none.
 */
#pragma once

#include "samples/source.h"

typedef struct oq_fold {
    const uint64_t *calibrate; /* numbers of samples in their source, in its order */
    size_t n_calibrate;
    const size_t
        *judge; /* places in the list that was divided, in the order of the hashes: the first
                          * few are of every kind, and the same ones whatever the list's order */
    size_t n_judge;
} oq_fold;

typedef struct oq_division {
    oq_fold *folds;
    size_t n;
    bool apart; /* what judges did not calibrate; false where there is one sample */
} oq_division;

/* Of kinds, types, shapes and values of a sample's inputs. */
uint64_t oq_sample_hash(const oq_sample *s);

/* Cuts n samples into n_parts (at most n) and makes a fold of each. `hashes` has one for each
 * sample; another salt gives another division. In the arena; ONQ_E_NOMEM. */
onq_code oq_divide(oq_arena *a, const uint64_t *hashes, const uint64_t *numbers, size_t n,
                   size_t n_parts, uint64_t salt, oq_division *out, onq_error *err);
