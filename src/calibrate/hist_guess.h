/*
 * hist_guess.h — bins of many float32 values at once, right or one off (histogram.c corrects them).
 */
#ifndef OQ_CALIBRATE_HIST_GUESS_H
#define OQ_CALIBRATE_HIST_GUESS_H

#include "calibrate/histogram.h"

/* Values that are guessed in one go; they and their bins stay in the first-level cache. */
#define OQ_HIST_PORTION 512
/* Set in a bin whose value lies so near an edge that rounding could have put it on the wrong
 * side, or outside the range, or is NaN. The bin itself is then right or one off, or means
 * nothing. */
#define OQ_HIST_UNSURE INT32_MIN

/* Fills the bins of n values (OQ_HIST_PORTION at most; bins after the n-th may be written too).
 * Returns how many are marked. */
typedef size_t (*oq_hist_guess_fn)(const oq_hist *h, const float *v, size_t n,
                                   int32_t bin[OQ_HIST_PORTION]);

/* Number i of those the machine has, the fastest first; NULL after the last. */
oq_hist_guess_fn oq_hist_guess_at(size_t i);

#endif
