/*
 * cause_choice.c — see cause_choice.h.
 */
#include "api/causes/cause_choice.h"

#include <math.h>

double oq_gain_over(double from, double sqnr) {
    const double before = isnan(from) || from < OQ_LOWEST_SQNR ? OQ_LOWEST_SQNR : from;
    return isnan(sqnr) ? -INFINITY : fmin(sqnr, OQ_BEST_SQNR) - before;
}

bool oq_is_good_enough(const oq_diagnosing *g) {
    return g->current.sqnr >= (g->out->now.sqnr >= OQ_GOOD ? OQ_GOOD : OQ_AIM);
}

bool oq_is_quantized_enough(const oq_diagnosing *g, const oq_remade *m) {
    return isnan(g->again.macs) || isnan(m->macs) || m->macs >= OQ_MIN_MACS * g->again.macs;
}

static const oq_remedy *remedy_of(const oq_try *t) {
    return t->row < oq_remedy_count ? &oq_remedies[t->row] : NULL;
}

static bool is_sure(const oq_diagnosing *g, const oq_remedy *r) {
    return r->is_sure != NULL && r->is_sure(g);
}

/* What costs nothing is worth having where the model is poor, and so is what leaves nothing float
 * and is beyond doubt or comes on top of a cause. */
static bool is_small_gain_enough(const oq_diagnosing *g, const oq_remedy *r) {
    return r != NULL && g->current.sqnr < OQ_GOOD && !r->leaves_float &&
           (r->is_free || is_sure(g, r) || g->out->causes.n > 0);
}

/* dB that a try must gain. A model that was made by a method that the model does not show differs
 * from one without it, which is no fault of a good one. */
static double least_gain(const oq_diagnosing *g, const oq_try *t) {
    const oq_remedy *r = remedy_of(t);
    if (r == NULL && g->rescaled && g->current.sqnr >= OQ_GOOD)
        return INFINITY;
    if (is_small_gain_enough(g, r))
        return OQ_SMALL_GAIN;
    return r != NULL && !r->is_free && oq_is_good_enough(g) ? OQ_GOOD_GAIN : OQ_MIN_GAIN;
}

bool oq_is_cause(const oq_diagnosing *g, const oq_try *t) {
    return !t->dismissed && oq_is_quantized_enough(g, &t->made) &&
           oq_gain_over(g->current.sqnr, t->made.sqnr) >= least_gain(g, t);
}

bool oq_fits_samples(const oq_diagnosing *g, const oq_try *t) {
    const oq_remedy *r = remedy_of(t);
    return r != NULL && !r->same_ranges && !r->is_free && !is_sure(g, r) &&
           oq_recipe_calibrates(&g->base.recipe) &&
           oq_recipe_get(&g->base.recipe, "hold_out") == NULL;
}

bool oq_is_overfit(const oq_diagnosing *g, double gain_apart) {
    const bool good = g->current.sqnr >= OQ_GOOD;
    return isnan(gain_apart) ? good : gain_apart < (good ? OQ_APART_GAIN : OQ_APART_LEAST);
}

double oq_share_needed(const oq_diagnosing *g, const oq_try *t) {
    const oq_remedy *r = remedy_of(t);
    if (r == NULL)
        return OQ_NEARLY;
    return is_sure(g, r) ? 0 : r->is_free || r->is_local ? OQ_FREE : OQ_NEARLY;
}

oq_try *oq_choose_cause(const oq_diagnosing *g, size_t first) {
    assert(first <= g->out->tries.n);
    const oq_diagnosis *x = g->out;
    double best = 0;
    for (size_t i = first; i < x->tries.n; i++)
        if (oq_is_cause(g, &x->tries.v[i]))
            best = fmax(best, oq_gain_over(g->current.sqnr, x->tries.v[i].made.sqnr));
    oq_try *chosen = NULL;
    for (size_t i = first; i < x->tries.n; i++) {
        oq_try *t = &x->tries.v[i];
        if (oq_is_cause(g, t) && (chosen == NULL || t->row < chosen->row) &&
            oq_gain_over(g->current.sqnr, t->made.sqnr) >= oq_share_needed(g, t) * best)
            chosen = t;
    }
    return chosen;
}
