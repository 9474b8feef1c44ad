/*
 * tune_refine.c — what refines the best of the whole models, and points of the curve: methods, ranges,
 * biases and rounding.
 */
#include "tune/tune.h"

#include <math.h>

#define CORRECTED    2 /* points */
#define CORRECTED_DB 8 /* that they may lack */
#define PRODUCTS_DB  2 /* the same without convolutions, whose biases are less of the noise */
#define ROUNDED_DB   2 /* the same after bias correction */
#define LEARNED_DB   6 /* that a model may lack of which rounding all weights is a part of the way */
#define RANGES_DB    10
#define CHANNELS_DB  7   /* the same after a method: large channels have their own ranges by then */
#define REFINE_SHARE 0.6 /* of what the search may cost: units are to have the rest */
#define REFINED      2   /* of the best candidates, at most */
#define LOST_DB      3   /* by a method: it is of no use here, and nor is another of its kind */
#define LITTLE_DB    0.3 /* that a refinement gained: it is not tried again */
#define LUCKY_DB     1   /* that it may gain elsewhere beyond that */
#define SAFE_PART    0.1 /* of the slack of a bound: to measure again would tell no more apart */

bool oq_tune_is_static(const oq_candidate *c) {
    return c->ok && c->recipe.command != NULL && strcmp(c->recipe.command, "static") == 0;
}

#define ABOUT_AS_FAST 1.3 /* times the fastest */

/* The n most accurate candidates of `static` into v, the best first; of those that are about as
 * fast as the fastest, unless accuracy is all that counts. */
static size_t most_accurate(const oq_tune *t, oq_candidate **v, size_t n) {
    size_t have = 0;
    double fastest = INFINITY;
    for (size_t i = 0; i < t->all.n; i++)
        if (oq_tune_is_static(t->all.v[i]))
            fastest = fmin(fastest, t->all.v[i]->ms);
    for (size_t i = 0; i < t->all.n; i++) {
        oq_candidate *c = t->all.v[i];
        if (!oq_tune_is_static(c) ||
            (t->prefer == OQ_PREFER_SPEED && c->ms > ABOUT_AS_FAST * fastest))
            continue;
        size_t at = have < n ? have++ : n;
        for (; at > 0 && v[at - 1]->score.objective < c->score.objective; at--)
            if (at < n)
                v[at] = v[at - 1];
        if (at < n)
            v[at] = c;
    }
    return have;
}

/* What leaves the graph as it is takes as long as before. */
static bool changes_numbers_only(const char *option) {
    static const char *const names[] = {"calibration_method", "bias_correction",
                                        "learned_rounding"};
    return oq_str_is_any(oq_str_of(option), names, OQ_COUNT(names));
}

static const struct {
    const char *what, *name, *value;
} refinements[] = {
    [OQ_REFINE_MSE] = {"mse ranges", "calibration_method", "mse"},
    [OQ_REFINE_PERCENTILE] = {"percentile ranges", "calibration_method", "percentile"},
    [OQ_REFINE_BIAS] = {"bias correction", "bias_correction", NULL},
    [OQ_REFINE_ROUNDING] = {"learned rounding", "learned_rounding", NULL},
};

/* A candidate with one more option. */
static onq_code refine(oq_tune *t, const oq_candidate *from, const char *what, const char *name,
                       const char *value, oq_candidate **out, onq_error *err) {
    oq_recipe r;
    *out = NULL;
    if (oq_recipe_get(&from->recipe, name) != NULL)
        return ONQ_OK;
    const oq_str label = oq_str_format(t->arena, "%s, %s", from->label, what);
    OQ_TRY_ALLOC(label.p != NULL, err);
    OQ_TRY(oq_recipe_copy(&from->recipe, t->arena, &r, err));
    OQ_TRY(oq_recipe_add(&r, t->arena, name, value, err));
    if (changes_numbers_only(name))
        OQ_TRY(oq_tune_time(t, err));
    t->as_fast_as = changes_numbers_only(name) ? from : NULL;
    const onq_code rc = oq_tune_try(t, &r, label.p, out, err);
    t->as_fast_as = NULL;
    return rc;
}

/* What a Conv rounds to 8 bits where float nodes read it is noise that a MatMul does not make. */
onq_code oq_tune_try_pointwise(oq_tune *t, onq_error *err) {
    oq_candidate *c = NULL;
    if (!t->allow_static || !t->has_pointwise)
        return ONQ_OK;
    OQ_TRY(oq_tune_time(t, err));
    const oq_candidate *base = oq_tune_fastest_set(t, t->base);
    return base != NULL
               ? refine(t, base, "Conv of 1 x 1 as MatMul", OQ_TUNE_POINTWISE, NULL, &c, err)
               : ONQ_OK;
}

onq_code oq_tune_refine(oq_tune *t, const oq_candidate *from, oq_refinement how, oq_candidate **out,
                        onq_error *err) {
    OQ_TRY(refine(t, from, refinements[how].what, refinements[how].name, refinements[how].value,
                  out, err));
    if (*out != NULL)
        t->gained[how] = fmax(t->gained[how], (*out)->score.objective - from->score.objective);
    return ONQ_OK;
}

/* After double activations the rounding of weights is most of what noise is left. */
static bool is_double(const oq_candidate *c) {
    return oq_recipe_get(&c->recipe, "double_activations") != NULL ||
           oq_recipe_has_method(&c->recipe, OQ_METHOD_DOUBLE);
}

double oq_tune_lack(const oq_tune *t, const oq_candidate *c) {
    size_t judged = 0;
    for (size_t i = 0; i < t->folds->n; i++)
        judged += t->folds->folds[i].n_judge;
    return oq_targets_lack(&t->targets, &c->score, judged);
}

/* Noise against margins says it before the link, its own figures and bounds with the errors as they
 * are. */
bool oq_tune_is_near(const oq_tune *t, const oq_candidate *c, double db) {
    return oq_tune_lack(t, c) <= db &&
           pow(10, -c->score.objective / 10) <= oq_tune_allowed_noise(t, c) * pow(10, db / 10);
}

bool oq_tune_may_gain(const oq_tune *t, const oq_candidate *c, oq_refinement how, double db) {
    const double gained = t->prefer == OQ_PREFER_ACCURACY ? NAN : t->gained[how];
    return isnan(gained) ? oq_tune_is_near(t, c, db)
                         : gained > LITTLE_DB && oq_tune_is_near(t, c, fmin(db, gained + LUCKY_DB));
}

static onq_code refine_best(oq_tune *t, double db, oq_refinement how, onq_error *err) {
    oq_candidate *best[REFINED], *c = NULL;
    const size_t n = most_accurate(t, best, REFINED);
    for (size_t i = 0; i < n; i++)
        if (oq_tune_may_gain(t, best[i], how, db))
            OQ_TRY(oq_tune_refine(t, best[i], how, &c, err));
    return ONQ_OK;
}

/* Ranges that leave out what is rare: for the fastest, and where they gain for the most accurate
 * that is about as fast. Percentiles leave out more than the least squared error does: where that
 * gains nothing, they gain less, and where they gain less for the one, they do for the other. */
static onq_code refine_ranges(oq_tune *t, const oq_candidate *fastest, onq_error *err) {
    oq_candidate *best = NULL, *c = NULL;
    const double *gained = t->gained;
    const bool accurate = t->prefer == OQ_PREFER_ACCURACY;
    if (most_accurate(t, &best, 1) == 0)
        return ONQ_OK;
    if (oq_tune_is_near(t, fastest, RANGES_DB))
        OQ_TRY(oq_tune_refine(t, fastest, OQ_REFINE_MSE, &c, err));
    if (best != fastest && oq_tune_may_gain(t, best, OQ_REFINE_MSE, CHANNELS_DB))
        OQ_TRY(oq_tune_refine(t, best, OQ_REFINE_MSE, &c, err));
    if (!accurate && gained[OQ_REFINE_MSE] < 0)
        return ONQ_OK;
    if (best != fastest && oq_tune_may_gain(t, best, OQ_REFINE_PERCENTILE, CHANNELS_DB))
        OQ_TRY(oq_tune_refine(t, best, OQ_REFINE_PERCENTILE, &c, err));
    if (!accurate && gained[OQ_REFINE_PERCENTILE] < gained[OQ_REFINE_MSE])
        return ONQ_OK;
    return oq_tune_is_near(t, fastest, RANGES_DB)
               ? oq_tune_refine(t, fastest, OQ_REFINE_PERCENTILE, &c, err)
               : ONQ_OK;
}

/* Methods for all products of a kind at once; they exclude each other. */
static const struct {
    bool for_matmul, for_conv;
    const char *label, *name, *value;
} methods[] = {
    {true, false, "outliers float", "outlier_channels", "8"},
    {true, false, "double activations", "double_activations", NULL},
    {true, true, "equalised", "equalize", NULL},
    {false, true, "channel ranges", "channel_ranges", "both"},
};

bool oq_tune_is_done(const oq_tune *t, const oq_candidate *fastest) {
    for (size_t i = 0; i < t->all.n; i++) {
        const oq_candidate *c = t->all.v[i];
        if (c->ok && !c->exact && !c->doubted && c->ms > 0 &&
            (oq_is_as_fast(c, fastest) || c->ms <= fastest->ms + OQ_WORTH_TIME * t->flt->ms) &&
            c->prefill_ms <= OQ_MAX_PREFILL * t->flt->prefill_ms &&
            oq_targets_hold(&t->targets, &c->score))
            return true;
    }
    return false;
}

/* Methods and corrections make nothing faster: where the set is slower than float, or something
 * about as fast reaches the targets, they have nothing to give but accuracy. */
static bool needs_methods(const oq_tune *t, const oq_candidate *base) {
    return t->prefer != OQ_PREFER_SPEED ||
           (!oq_tune_is_done(t, base) && oq_is_as_fast(base, t->flt));
}

/* What rounding gains on the whole model says what points of the curve may lack, and the integers of
 * its weights serve them. So it is tried where that alone is not enough, too. */
static onq_code learn_double(oq_tune *t, onq_error *err) {
    oq_candidate *c = NULL;
    for (size_t i = 0, n = t->all.n; i < n; i++) {
        const oq_candidate *x = t->all.v[i];
        oq_recipe r;
        if (!x->ok || !is_double(x) || !oq_tune_may_gain(t, x, OQ_REFINE_ROUNDING, LEARNED_DB) ||
            oq_targets_hold(&t->targets, &x->score))
            continue;
        OQ_TRY(oq_recipe_copy(&x->recipe, t->arena, &r, err));
        OQ_TRY(oq_recipe_add(&r, t->arena, refinements[OQ_REFINE_ROUNDING].name, NULL, err));
        bool may = oq_tune_affords_rounding(t, &r);
        OQ_TRY(oq_tune_decide(t, &may, err));
        if (!may)
            continue;
        OQ_TRY(oq_tune_refine(t, x, OQ_REFINE_ROUNDING, &c, err));
        if (c != NULL)
            oq_spending_serve(&t->spending);
    }
    return ONQ_OK;
}

static onq_code refine_sets(oq_tune *t, const oq_candidate *base, onq_error *err) {
    if (needs_methods(t, base))
        OQ_TRY(refine_ranges(t, base, err));
    if (needs_methods(t, base)) {
        const double share = t->share;
        t->share = 0; /* it is work for units, too */
        const onq_code rc = learn_double(t, err);
        t->share = share;
        OQ_TRY(rc);
    }
    return needs_methods(t, base)
               ? refine_best(t, t->has_conv ? CORRECTED_DB : PRODUCTS_DB, OQ_REFINE_BIAS, err)
               : ONQ_OK;
}

/* Biases are the same in every sample and turn the same answers again and again: of these they make
 * more than noise of their power would. So the answers say whether to correct them. */
static bool may_correct(const oq_tune *t, const oq_candidate *c) {
    bool answers = t->targets.n > 0 && isnan(t->gained[OQ_REFINE_BIAS]);
    for (size_t i = 0; i < t->targets.n; i++) {
        const oq_metric m = t->targets.v[i].metric;
        answers &= m == OQ_METRIC_AGREEMENT || m == OQ_METRIC_SAMPLE_AGREEMENT ||
                   m == OQ_METRIC_TEXT_AGREEMENT;
    }
    return answers ? oq_tune_lack(t, c) <= CORRECTED_DB
                   : oq_tune_may_gain(t, c, OQ_REFINE_BIAS, CORRECTED_DB);
}

/* Biases make most of the noise of many convolutions, and correcting them makes nothing slower: where
 * that may be enough, nothing else need be tried. What rounding gains or loses then is small. */
static onq_code correct_first(oq_tune *t, const oq_candidate *base, onq_error *err) {
    oq_candidate *c = NULL, *rounded = NULL;
    if (!t->has_conv || !may_correct(t, base))
        return ONQ_OK;
    OQ_TRY(oq_tune_refine(t, base, OQ_REFINE_BIAS, &c, err));
    return c != NULL && needs_methods(t, base) && oq_tune_is_near(t, c, ROUNDED_DB)
               ? oq_tune_refine(t, c, OQ_REFINE_ROUNDING, &rounded, err)
               : ONQ_OK;
}

/* A method takes time where it runs: what is less accurate than the set as it is can be no answer.
 * Ranges of channels and equalised ones scale the same channels: where the one loses much, so does
 * the other. */
static onq_code try_each_method(oq_tune *t, const oq_candidate *base, onq_error *err) {
    for (size_t i = 0; i < OQ_COUNT(methods); i++) {
        oq_candidate *c = NULL;
        if (!(t->has_matmul && methods[i].for_matmul) && !(t->has_conv && methods[i].for_conv))
            continue;
        if (t->channels_lose && strcmp(methods[i].name, "channel_ranges") == 0)
            continue;
        t->least_db = t->prefer == OQ_PREFER_SPEED ? base->score.objective - LOST_DB : -INFINITY;
        const onq_code rc =
            refine(t, base, methods[i].label, methods[i].name, methods[i].value, &c, err);
        t->least_db = -INFINITY;
        OQ_TRY(rc);
        t->channels_lose |= c != NULL && strcmp(methods[i].name, "equalize") == 0 &&
                            c->score.objective < base->score.objective - LOST_DB;
    }
    return ONQ_OK;
}

onq_code oq_tune_try_methods(oq_tune *t, onq_error *err) {
    OQ_TRY(oq_tune_time(t, err));
    const oq_candidate *base = oq_tune_fastest_set(t, t->base);
    if (base == NULL || !needs_methods(t, base))
        return ONQ_OK;
    OQ_TRY(correct_first(t, base, err));
    if (!needs_methods(t, base))
        return ONQ_OK;
    OQ_TRY(try_each_method(t, base, err));
    OQ_TRY(oq_tune_time(t, err));
    t->share = REFINE_SHARE;
    const onq_code rc = refine_sets(t, base, err);
    t->share = 0;
    return rc;
}

bool oq_tune_is_safe(const oq_tune *t, const oq_score *s) {
    for (size_t i = 0; i < t->targets.n; i++) {
        const oq_target *x = &t->targets.v[i];
        const oq_metric_info *m = oq_metric_of(x->metric);
        const double bound = s->figures[x->metric].bound, little = SAFE_PART * m->slack;
        if (m->less ? !(bound <= x->value + little) : !(bound >= x->value - little))
            return false;
    }
    return true;
}

/* Bias correction and learned rounding take away some dB of noise at no cost in time, but cost much
 * to find: for what is chosen so far if it needs them, and for what is faster and lacks little. */
onq_code oq_tune_correct_points(oq_tune *t, onq_error *err) {
    bool reached = false;
    OQ_TRY(oq_tune_time(t, err));
    const oq_candidate *chosen = oq_choose(&t->all, &t->targets, t->prefer, &reached);
    const size_t n = t->all.n;
    size_t tried = 0;
    oq_candidate *c = NULL;
    if (!reached)
        chosen = oq_choose_nearest(&t->all, &t->targets);
    for (size_t i = n; i-- > 0 && tried < CORRECTED;) {
        const oq_candidate *x = t->all.v[i];
        const oq_refinement how = is_double(x) ? OQ_REFINE_ROUNDING : OQ_REFINE_BIAS;
        const double most = chosen != NULL && reached ? chosen->ms - OQ_WORTH_TIME * t->flt->ms
                            : chosen != NULL          ? chosen->ms
                                                      : 0;
        const bool near = x->ms < most && oq_tune_may_gain(t, x, how, CORRECTED_DB);
        /* Measuring it again (tune_settle.c) costs less than rounding, and may do. */
        const bool enough = reached && (how == OQ_REFINE_ROUNDING || oq_tune_is_safe(t, &x->score));
        if (!oq_tune_is_static(x) || (x != chosen && (x->reached || !near || is_double(x))) ||
            (x == chosen && (enough || !oq_tune_may_gain(t, x, how, INFINITY))))
            continue;
        OQ_TRY(oq_tune_refine(t, x, how, &c, err));
        tried += c != NULL;
    }
    return ONQ_OK;
}
