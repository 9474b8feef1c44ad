/*
 * tune_noise.c — how much noise the targets allow: a first guess, by which candidates are chosen to be
 * made. Whether a target is reached, real errors say.
 */
#include "tune/tune.h"

#include <math.h>

/* Of rows, if so many percent of the answers are to keep all of theirs. */
static double percent_of_rows(double percent, size_t rows, size_t answers) {
    const double each = answers > 0 ? (double)rows / (double)answers : 1;
    return 100 * pow(percent / 100, 1 / fmax(each, 1));
}

/* Of one target; infinite where noise says nothing of it. */
static double allowed_by(const oq_tune *t, const oq_candidate *like, const oq_target *x) {
    const oq_trials *set = t->choose;
    const double apart = oq_score_of(&like->score, OQ_METRIC_SQNR) - like->score.objective;
    const double before = isfinite(apart) ? pow(10, apart / 10) : 1;
    const oq_margins *margins = &set->margins;
    double percent = x->value;
    switch (x->metric) {
    case OQ_METRIC_SQNR:
        return pow(10, -x->value / 10) * before;
    case OQ_METRIC_COSINE:
        return 2 * (1 - x->value) * before;
    case OQ_METRIC_KL: /* about half of the noise's power */
        return set->signal > 0 ? 2 * x->value / set->signal : INFINITY;
    case OQ_METRIC_PERPLEXITY_RISE:
        return set->signal > 0 ? 2 * log1p(x->value / 100) / set->signal : INFINITY;
    case OQ_METRIC_TEXT_AGREEMENT:
        margins = &set->text_margins;
        percent = percent_of_rows(x->value, margins->n, set->n_texts);
        break;
    case OQ_METRIC_SAMPLE_AGREEMENT:
        percent = percent_of_rows(x->value, margins->n, set->all.n);
        break;
    case OQ_METRIC_ACCURACY_DROP:
        percent = 100 - x->value;
        break;
    case OQ_METRIC_AGREEMENT:
        break;
    case OQ_METRIC_NEIGHBOURS:
    case OQ_METRIC_IOU:
    case OQ_METRIC_DETECTIONS:
    case OQ_METRIC_METRIC:
    case OQ_METRICS:
        return INFINITY;
    }
    const double deviation = oq_margins_allow(margins->v, margins->n, percent);
    return margins->n > 0 && set->signal > 0 ? deviation * deviation / set->signal : INFINITY;
}

#define USUAL_NOISE 1e-3 /* where no candidate says anything */

/* Where noise alone says nothing of the targets: the most that a candidate has which reaches them, or
 * what is left of the noise of the one that lacks least, without what it lacks. */
static double tolerated_noise(const oq_tune *t) {
    double most = 0, nearest = INFINITY, guess = USUAL_NOISE;
    for (size_t i = 0; i < t->all.n; i++) {
        const oq_candidate *c = t->all.v[i];
        const double noise = pow(10, -c->score.objective / 10);
        if (!c->ok || c->exact || c->doubted || !isfinite(noise))
            continue;
        const double lack = oq_tune_lack(t, c);
        if (oq_targets_hold(&t->targets, &c->score)) {
            most = fmax(most, noise);
        } else if (lack > 0 && lack < nearest) {
            nearest = lack;
            guess = noise * pow(10, -lack / 10);
        }
    }
    return fmax(most, guess);
}

double oq_tune_allowed_noise(const oq_tune *t, const oq_candidate *like) {
    double least = INFINITY;
    for (size_t i = 0; i < t->targets.n; i++)
        least = fmin(least, allowed_by(t, like, &t->targets.v[i]));
    return isfinite(least) ? least : tolerated_noise(t);
}
