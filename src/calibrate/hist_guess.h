/*
 * hist_guess.h — bins of many float32 values at once, right or one off (histogram.c corrects them).
 */
#ifndef OQ_CALIBRATE_HIST_GUESS_H
#define OQ_CALIBRATE_HIST_GUESS_H

#include "calibrate/histogram.h"

/* Values that are guessed in one go; they and their bins stay in the first-level cache. */
#define OQ_HIST_PORTION 512
/* Set in a bin whose value lies so near an edge that rounding could have put it on the wrong side. */
#define OQ_HIST_UNSURE INT32_MIN

typedef struct oq_hist_guessed {
    bool odd;      /* a value is not in the range, or NaN: the bins are not to be used */
    size_t unsure; /* how many are marked */
} oq_hist_guessed;

typedef oq_hist_guessed (*oq_hist_guess_fn)(const oq_hist *h, const float *v, size_t n,
                                            int32_t bin[OQ_HIST_PORTION]);

/* The fastest the machine has. */
oq_hist_guess_fn oq_hist_guess_best(void);
/* The same for tests: number i of those the machine has, or NULL. */
oq_hist_guess_fn oq_hist_guess_at(size_t i);

#endif
