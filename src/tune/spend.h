/*
 * spend.h — what a search may spend of the processor, and what its steps are likely to take.
 *
 * The limit is a multiple of running float once over the samples. What a step takes is known from
 * those of its kind that were paid; before the first it is a guess. A step that cannot be paid
 * together with the answer is left out, and one that takes more than was foreseen is given up when
 * no more is left than the answer takes. So the limit holds whatever the guesses are worth.
 */
#pragma once

#include "tune/recipe.h"

/* What making a recipe may consist of; the dearest last. */
typedef enum oq_work {
    OQ_WORK_FILE,     /* no samples */
    OQ_WORK_STATIC,   /* ranges */
    OQ_WORK_CHANNELS, /* statistics of channels */
    OQ_WORK_RANGES,   /* histograms */
    OQ_WORK_ANEW,     /* the same of a graph whose channels are scaled, which nothing serves */
    OQ_WORK_BIAS,
    OQ_WORK_ROUNDING,
    OQ_WORKS
} oq_work;

/* What one making took: for each sample that calibrated, and whatever their number. */
typedef struct oq_paid {
    double each, fixed; /* both 0: it is not known */
} oq_paid;

/* Of a measurement, in runs of float over all samples: what had been spent by then, and what making
 * its models took, so many times with so many samples in all. All 0: it is not known. */
typedef struct oq_noted {
    double spent, made, times, samples;
} oq_noted;

/* All in seconds of the processor, as a quiet machine takes them. What making takes is known for each
 * dearest work. */
typedef struct oq_spending {
    double began;       /* by the clock of the processor */
    double pace;        /* times as long as on a quiet machine, at `at`; 0: it is not known yet */
    double at, counted; /* the clock when the pace was seen last, and what was spent by then */
    double limit;       /* 0: none */
    double bare;        /* float over all samples, once */
    size_t n;           /* samples in all */
    bool recalls;       /* what float has of all samples is remembered: ranges, means of layers */
    double fixed;       /* part of each making, whatever the samples: sessions, files */
    oq_paid rounding;   /* what rounding is likely to take, by the sizes of the weights */
    oq_paid last[OQ_WORKS];
    oq_paid most[OQ_WORKS];
} oq_spending;

/* A small model has what one has that takes so long: opening its sessions takes longer than its
 * samples do. */
#define OQ_LEAST_BARE 0.2

/* Other programs make everything take longer, float too: float's time now, as a multiple of its
 * least, says by how much. What was spent since the pace was seen before is counted with the mean of
 * both. */
void oq_spending_see(oq_spending *s, double clock, double pace);
/* What was spent when the clock of the processor shows this. */
double oq_spending_spent(const oq_spending *s, double clock);
/* So much at least was spent, by an earlier run. */
void oq_spending_reach(oq_spending *s, double clock, double spent);
/* The limit for so many times float (0: none). */
void oq_spending_begin(oq_spending *s, double times, double bare, size_t n);
/* A recipe was made so many times, for `n` samples in all that calibrated it, and took so long. */
void oq_spending_add(oq_spending *s, const oq_recipe *r, size_t times, size_t n, double seconds);
/* The integers that were found for the folds serve what is rounded next. */
void oq_spending_serve(oq_spending *s);
/* What making it once is likely to take, calibrated with n samples; what others found serves it. */
double oq_spending_next(const oq_spending *s, const oq_recipe *r, size_t n);
/* What making it so many times takes at most, calibrated with all samples in all, where nothing
 * serves it. */
double oq_spending_answer(const oq_spending *s, const oq_recipe *r, size_t times);
/* The same for once, by what it took so far for n samples in all. */
double oq_spending_after(const oq_spending *s, const oq_recipe *r, size_t times, size_t n,
                         double seconds);
