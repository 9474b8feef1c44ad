/*
 * cause_choice.h — which of the remedies that were tried names the cause.
 */
#pragma once

#include "api/causes/remedies.h"

#define OQ_MIN_GAIN    2.5   /* dB that a remedy must gain to be a cause ... */
#define OQ_SMALL_GAIN  1.5   /* ... or, of a poor model, if it costs nothing; ... */
#define OQ_GOOD_GAIN   6.0   /* ... of a model that is good already, which has */
#define OQ_GOOD        20.0  /* dB */
#define OQ_APART_LEAST 1.0   /* dB that what fits samples must gain on others, and ... */
#define OQ_APART_GAIN  3.0   /* ... that it must gain there, of a good model */
#define OQ_AIM         30.0  /* dB that remedies are put together for, where a model is not good */
#define OQ_NEARLY      0.8   /* of the best gain: a remedy that comes earlier is taken */
#define OQ_FREE        0.5   /* the same of one that costs nothing or is about few nodes */
#define OQ_MIN_MACS    0.4   /* of what is in integers now: a model with less is no answer */
#define OQ_LOWEST_SQNR -20.0 /* dB: outputs have nothing to do with float; less is not worse */
#define OQ_BEST_SQNR   60.0  /* dB: more is not better */

/* dB that a model gains over one with `from` dB; -INFINITY if NaN comes out of it. */
double oq_gain_over(double from, double sqnr);
/* True if what was taken so far makes a model good enough that only large gains count. */
bool oq_is_good_enough(const oq_diagnosing *g);
/* True if the model keeps enough multiply-accumulates in integers. */
bool oq_is_quantized_enough(const oq_diagnosing *g, const oq_remade *m);
/* True if the try gains enough over what was taken so far to be a cause. */
bool oq_is_cause(const oq_diagnosing *g, const oq_try *t);
/* True if what the try changes follows the samples that calibrate: it may fit only these. */
bool oq_fits_samples(const oq_diagnosing *g, const oq_try *t);
/* True if that is no cause, by the dB gained on samples that did not calibrate; NAN: not known. */
bool oq_is_overfit(const oq_diagnosing *g, double gain_apart);
/* The share of the best gain that a try needs to be taken before those that come after it. */
double oq_share_needed(const oq_diagnosing *g, const oq_try *t);
/* Of the tries from `first` on that are causes and have their share of the best gain of those, the
 * one whose row comes first in the table; NULL: none is a cause. */
oq_try *oq_choose_cause(const oq_diagnosing *g, size_t first);
