/*
 * spend.c — see spend.h.
 */
#include "tune/spend.h"

#include <math.h>

/* Before one of a kind was made: runs of float over the samples that calibrate. */
static const double guesses[OQ_WORKS] = {
    [OQ_WORK_FILE] = 0.5, [OQ_WORK_STATIC] = 1.5, [OQ_WORK_CHANNELS] = 2,
    [OQ_WORK_RANGES] = 2, [OQ_WORK_BIAS] = 9,     [OQ_WORK_ROUNDING] = 10,
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
    for (; r != NULL; r = r->after)
        works |= works_of_one(r);
    return works;
}

static oq_work dearest(unsigned works) {
    oq_work w = OQ_WORKS - 1;
    while (w > 0 && !(works & 1U << w))
        w--;
    return w;
}

void oq_spending_begin(oq_spending *s, double times, double bare, size_t n) {
    assert(n > 0);
    s->bare = bare;
    s->n = n;
    s->limit = times * fmax(bare, OQ_LEAST_BARE);
}

/* Without samples it takes the same whatever their number. */
static double part(oq_work w, size_t n) {
    return w == OQ_WORK_FILE || n == 0 ? 1 : (double)n;
}

/* Half of it at least goes with the samples. */
static double each(const oq_spending *s, oq_work w, size_t n, double seconds) {
    const double fixed = w == OQ_WORK_FILE ? 0 : fmin(s->fixed, seconds / 2);
    return (seconds - fixed) / part(w, n);
}

void oq_spending_add(oq_spending *s, const oq_recipe *r, size_t n, double seconds) {
    const oq_work w = dearest(works_of(r));
    s->last[w] = each(s, w, n, seconds);
    s->most[w] = fmax(s->most[w], s->last[w]);
}

static double known(const oq_spending *s, const double *paid, oq_work w, size_t n) {
    const double one = paid[w] > 0 ? paid[w] : guesses[w] * s->bare / (double)s->n;
    return one * part(w, n) + (w == OQ_WORK_FILE ? 0 : s->fixed);
}

double oq_spending_next(const oq_spending *s, const oq_recipe *r, size_t n) {
    return known(s, s->last, dearest(works_of(r)), n);
}

double oq_spending_answer(const oq_spending *s, const oq_recipe *r, double seconds, size_t n) {
    const unsigned works = works_of(r);
    const oq_work most = dearest(works);
    if (most == OQ_WORK_FILE) /* it is there */
        return 0;
    double sum = fmax(known(s, s->most, most, s->n),
                      s->fixed + each(s, most, n, seconds) * part(most, s->n));
    for (oq_work w = OQ_WORK_STATIC; w < most; w++)
        if (works & 1U << w)
            sum += known(s, s->most, w, s->n);
    return sum;
}
