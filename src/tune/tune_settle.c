/*
 * tune_settle.c — which candidate is taken in the end: those that are about as fast are timed side
 * by side, and the one that is taken is measured by another division of the samples. If it does not
 * reach the targets there, it is not taken, and safer points of the curve are tried.
 */
#include "tune/tune.h"
#include "tune/units/units.h"

#include <math.h>

#define CLOSE_TIMES  1.1 /* of the fastest: timed again */
#define MAX_TIMED    4
#define MAX_DOUBTS   5
#define CLOCK_LONGER 2 /* times what a candidate alone is timed */

/* Up to MAX_TIMED that reach the targets and are about as fast as the fastest of them. */
static size_t find_close(const oq_tune *t, oq_candidate **v) {
    double fastest = INFINITY;
    size_t n = 0;
    for (size_t i = 0; i < t->all.n; i++)
        if (t->all.v[i]->reached && t->all.v[i]->ms > 0)
            fastest = fmin(fastest, t->all.v[i]->ms);
    for (size_t i = 0; i < t->all.n; i++) {
        oq_candidate *c = t->all.v[i];
        if (!c->reached || c == t->flt || !(c->ms > 0) || c->ms > CLOSE_TIMES * fastest)
            continue;
        size_t at = n < MAX_TIMED ? n++ : MAX_TIMED;
        for (; at > 0 && v[at - 1]->ms > c->ms; at--)
            if (at < MAX_TIMED)
                v[at] = v[at - 1];
        if (at < MAX_TIMED)
            v[at] = c;
    }
    return n;
}

/* In one race the noise is the same for all of them. */
static onq_code time_again(oq_tune *t, onq_error *err) {
    oq_candidate *v[MAX_TIMED];
    const size_t n = find_close(t, v);
    if (n < 2 || t->clock != NULL || t->beside == NULL || !oq_tune_goes_on(t) ||
        !oq_tune_has_time(t, CLOCK_LONGER * oq_tune_race_seconds(t, n)) ||
        !oq_tune_affords_seconds(t, CLOCK_LONGER * (double)(n + 1) * oq_tune_clock_seconds(t)))
        return ONQ_OK;
    return oq_tune_race(t, v, n, CLOCK_LONGER * oq_tune_clock_seconds(t), err);
}

/* Measures the one that is to be taken once more, with ranges of other samples, unless its bounds
 * reach the targets without the slack that they have. */
static onq_code confirm(oq_tune *t, oq_candidate *c, onq_error *err) {
    onq_error why = ONQ_ERROR_INIT;
    const oq_figure metric = c->score.figures[OQ_METRIC_METRIC];
    c->report = c->score;
    if (c->exact || t->again == NULL || !oq_recipe_calibrates(&c->recipe) ||
        oq_tune_is_safe(t, &c->score) || !oq_tune_goes_on(t))
        return ONQ_OK;
    /* What cannot be paid is as good as lost: the next one needs no slack, or is measured. */
    bool may = oq_tune_affords_again(t, c);
    OQ_TRY(oq_tune_decide(t, &may, err));
    c->doubted = !may;
    if (c->doubted)
        return oq_tune_leave_out(t, c->label, err);
    OQ_TRY(oq_progress(t->env, "confirming", 0, 1, err));
    const onq_code rc = oq_tune_score(t, &c->recipe, t->again, &c->report, &why);
    if (oq_tune_is_fatal(rc))
        return oq_error_give(err, rc, &why);
    c->report.figures[OQ_METRIC_METRIC] = metric;
    /* What there was no time for says nothing against it. */
    c->doubted = rc != ONQ_OK ? !t->stopped : !oq_targets_hold(&t->targets, &c->report);
    if (rc != ONQ_OK)
        c->report = c->score;
    return ONQ_OK;
}

/* What is no more accurate than one that failed would fail as well. */
static void doubt_others(const oq_tune *t, const oq_candidate *c) {
    for (size_t i = 0; i < t->all.n; i++) {
        oq_candidate *x = t->all.v[i];
        x->doubted |= x->ok && !x->exact && oq_recipe_calibrates(&x->recipe) &&
                      !oq_is_more_accurate(&t->targets, x, c);
    }
}

onq_code oq_tune_settle(oq_tune *t, oq_candidate **chosen, bool *reached, onq_error *err) {
    OQ_TRY(oq_tune_time(t, err));
    *chosen = oq_choose(&t->all, &t->targets, t->prefer, reached);
    if (t->prefer == OQ_PREFER_SPEED)
        OQ_TRY(time_again(t, err));
    for (size_t i = 0;; i++) {
        *chosen = oq_choose(&t->all, &t->targets, t->prefer, reached);
        if (*chosen == NULL)
            return ONQ_OK;
        OQ_TRY(confirm(t, *chosen, err));
        if (!(*chosen)->doubted)
            return ONQ_OK;
        oq_info(t->env, "%s: does not reach the target when it is measured again, or cannot be",
                (*chosen)->label);
        doubt_others(t, *chosen);
        if (i < MAX_DOUBTS)
            OQ_TRY(oq_tune_safer(t, *chosen, err));
        OQ_TRY(oq_tune_time(t, err));
    }
}
