/*
 * spend.c — see spend.h.
 */
#include "tune/spend.h"

#include <math.h>

/* Before one of a kind was made: runs of float over the samples that calibrate. */
static const double guesses[OQ_WORKS] = {
    [OQ_WORK_FILE] = 0.5, [OQ_WORK_STATIC] = 1.5, [OQ_WORK_CHANNELS] = 2,  [OQ_WORK_RANGES] = 2,
    [OQ_WORK_ANEW] = 4,   [OQ_WORK_BIAS] = 6,     [OQ_WORK_ROUNDING] = 10,
};

static unsigned works_of_one(const oq_recipe *r) {
    static const struct {
        const char *option;
        oq_work work;
    } rows[] = {
        {"learned_rounding", OQ_WORK_ROUNDING}, {"actorder", OQ_WORK_ROUNDING},
        {"bias_correction", OQ_WORK_BIAS},      {"calibration_method", OQ_WORK_RANGES},
        {"equalize", OQ_WORK_CHANNELS},         {"channel_ranges", OQ_WORK_CHANNELS},
        {"outlier_channels", OQ_WORK_CHANNELS},
    };
    unsigned works = 1U << OQ_WORK_FILE;
    for (size_t i = 0; i < OQ_COUNT(rows); i++)
        if (oq_recipe_get(r, rows[i].option) != NULL)
            works |= 1U << rows[i].work;
    for (oq_method m = 0; m < OQ_METHODS; m++)
        if (oq_recipe_has_method(r, m) && oq_method_needs_samples(m))
            works |= 1U << OQ_WORK_CHANNELS;
    return works;
}

static unsigned works_of(const oq_recipe *r) {
    unsigned works = oq_recipe_calibrates(r) ? 1U << OQ_WORK_STATIC : 0;
    const unsigned anew = 1U << OQ_WORK_CHANNELS | 1U << OQ_WORK_RANGES;
    for (; r != NULL; r = r->after)
        works |= works_of_one(r);
    return (works & anew) == anew ? (works & ~anew) | 1U << OQ_WORK_ANEW : works;
}

static oq_work dearest(unsigned works) {
    oq_work w = OQ_WORKS - 1;
    while (w > 0 && !(works & 1U << w))
        w--;
    return w;
}

void oq_spending_see(oq_spending *s, double clock, double pace) {
    const double from = s->pace > 0 ? s->at : s->began;
    assert(pace >= 1);
    s->counted += (clock - from) / (s->pace > 0 ? (s->pace + pace) / 2 : pace);
    s->at = clock;
    s->pace = pace;
}

void oq_spending_reach(oq_spending *s, double clock, double spent) {
    const double more = spent - oq_spending_spent(s, clock);
    if (more > 0 && s->pace > 0)
        s->counted += more;
    else if (more > 0)
        s->began -= more;
}

double oq_spending_spent(const oq_spending *s, double clock) {
    return s->pace > 0 ? s->counted + (clock - s->at) / s->pace : clock - s->began;
}

void oq_spending_begin(oq_spending *s, double times, double bare, size_t n) {
    assert(n > 0);
    s->bare = bare;
    s->n = n;
    s->limit = times * fmax(bare, OQ_LEAST_BARE);
}

/* Where sizes do not say it, half of what rounding takes goes with the weights, and is the same for
 * any number of samples. */
#define FIXED_OF_ROUNDING 0.5

static double fixed_of_rounding(const oq_spending *s, double n) {
    const oq_paid *p = &s->rounding;
    return p->each > 0 ? p->fixed / (p->fixed + n * p->each) : FIXED_OF_ROUNDING;
}

/* Of one of so many makings, with n samples in all. Without samples it takes the same whatever their
 * number; else half of it at least goes with the samples. */
static oq_paid paid(const oq_spending *s, oq_work w, size_t times, size_t n, double seconds) {
    assert(times > 0);
    const double one = seconds / (double)times;
    const double each = (double)n / (double)times;
    const double least = w == OQ_WORK_ROUNDING ? fixed_of_rounding(s, each) * one : 0;
    if (w == OQ_WORK_FILE || n == 0)
        return (oq_paid){.fixed = one};
    const double fixed = fmax(least, fmin(s->fixed, one / 2));
    return (oq_paid){(one - fixed) * (double)times / (double)n, fixed};
}

static double cost_of(const oq_paid *p, size_t times, size_t n) {
    return (double)times * p->fixed + (double)n * p->each;
}

void oq_spending_add(oq_spending *s, const oq_recipe *r, size_t times, size_t n, double seconds) {
    const oq_work w = dearest(works_of(r));
    s->last[w] = paid(s, w, times, n, seconds);
    if (cost_of(&s->last[w], 1, s->n) > cost_of(&s->most[w], 1, s->n))
        s->most[w] = s->last[w];
}

#define SERVED 2 /* times what finding ranges takes, which is a part of it */

void oq_spending_serve(oq_spending *s) {
    const oq_paid *p = &s->last[OQ_WORK_STATIC];
    s->last[OQ_WORK_ROUNDING] = (oq_paid){SERVED * p->each, SERVED * p->fixed};
}

static double known(const oq_spending *s, const oq_paid *v, oq_work w, size_t times, size_t n) {
    oq_paid p = v[w];
    if (!(p.each > 0) && !(p.fixed > 0)) {
        const double guess = guesses[w] * s->bare / (double)s->n;
        p = w == OQ_WORK_FILE ? (oq_paid){.fixed = guess} : (oq_paid){guess, s->fixed};
        if (w == OQ_WORK_ROUNDING && s->rounding.each > 0)
            p = (oq_paid){s->rounding.each, s->fixed + s->rounding.fixed};
        else if (w == OQ_WORK_ROUNDING) /* the guess is of a fold, which has half of the samples */
            p = (oq_paid){(1 - FIXED_OF_ROUNDING) * guess,
                          s->fixed + FIXED_OF_ROUNDING * guess * (double)s->n / 2};
    }
    return cost_of(&p, times, n);
}

double oq_spending_next(const oq_spending *s, const oq_recipe *r, size_t n) {
    return known(s, s->last, dearest(works_of(r)), 1, n);
}

/* Of correcting biases, where what float makes of the samples is remembered. */
#define RECALLED_BIAS 0.7

static double at_most(const oq_spending *s, const oq_recipe *r, size_t times,
                      const oq_paid *so_far) {
    const unsigned works = works_of(r);
    const oq_work most = dearest(works);
    if (most == OQ_WORK_FILE) /* it is there */
        return 0;
    const oq_paid *v = s->recalls && most == OQ_WORK_STATIC ? s->last : s->most;
    const double part = s->recalls && most == OQ_WORK_BIAS ? RECALLED_BIAS : 1;
    double sum = part * fmax(known(s, v, most, times, s->n), cost_of(so_far, times, s->n));
    for (oq_work w = OQ_WORK_STATIC + 1; w < most; w++) /* ranges are a part of all the others */
        if (works & 1U << w)
            sum += known(s, s->most, w, times, s->n);
    return sum;
}

double oq_spending_answer(const oq_spending *s, const oq_recipe *r, size_t times) {
    const oq_paid nothing = {0, 0};
    return at_most(s, r, times, &nothing);
}

double oq_spending_after(const oq_spending *s, const oq_recipe *r, size_t times, size_t n,
                         double seconds) {
    const oq_paid so_far = paid(s, dearest(works_of(r)), times, n, seconds);
    return at_most(s, r, 1, &so_far);
}
