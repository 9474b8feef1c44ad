/*
 * tune.c — what every stage of the search needs: a recipe is made, scored by folds, timed, and
 * added to the candidates.
 */
#include "tune/tune.h"

#include "tune/units.h"

#include <math.h>

#define MAX_CLOCK_SECONDS 0.3 /* for one session */
#define MIN_CLOCK_SECONDS 0.02
#define CLOCK_PART        0.15 /* of what float takes for all samples */
#define USUAL             20   /* candidates of a search, for the progress */
/* Of the longest time that a candidate took so far: what must be left for the answer. */
#define RESERVE 1.0

bool oq_tune_goes_on(oq_tune *t) {
    if (t->deadline > 0 && oq_seconds() + RESERVE * t->slowest >= t->deadline)
        t->stopped = true;
    return !t->stopped;
}

bool oq_tune_is_fatal(onq_code rc) {
    return rc == ONQ_E_NOMEM || rc == ONQ_E_CANCEL || rc == ONQ_E_WRITE;
}

/* ---- scores ---- */

onq_code oq_tune_session(oq_tune *t, oq_model *m, unsigned n_threads, oq_session **out,
                         onq_error *err) {
    oq_session_options o = t->session;
    o.model = m;
    o.level = OQ_OPT_ALL;
    o.n_threads = n_threads;
    o.no_spinning = true;
    return oq_session_open(t->engine, &o, out, err);
}

/* Adds what a model makes of some samples. */
static onq_code score_on(oq_tune *t, const char *path, const oq_trials *set, const size_t *places,
                         size_t n, oq_scoring *into, onq_error *err) {
    oq_model *m = NULL;
    oq_session *s = NULL;
    onq_code rc = ONQ_OK;
    OQ_GO(oq_model_open(t->env, path, &t->open, &m, err));
    OQ_GO(oq_tune_session(t, m, OQ_THREADS_RUNTIME, &s, err));
    OQ_GO(oq_trials_score(set, s, m, places, n, into, err));
done:
    oq_session_close(s);
    oq_model_free(m);
    return rc;
}

/* A model of its own for each fold, unless samples have no part in it. */
static onq_code score_folds(oq_tune *t, const oq_recipe *r, const oq_division *d, oq_scoring *s,
                            const char **first, uint64_t *size, onq_error *err) {
    const bool calibrates = oq_recipe_calibrates(r);
    onq_code rc = ONQ_OK;
    for (size_t i = 0; i < d->n && rc == ONQ_OK; i++) {
        const oq_fold *fold = &d->folds[i];
        const char *path = *first;
        uint64_t bytes = 0;
        if (i == 0 || calibrates)
            rc = t->make(t->ctx, r, fold, &path, &bytes, err);
        if (i == 0 && rc == ONQ_OK) {
            *first = path;
            *size = bytes;
        }
        s->fold = (unsigned)i;
        const size_t n = t->few > 0 && t->few < fold->n_judge ? t->few : fold->n_judge;
        if (rc == ONQ_OK)
            rc = score_on(t, path, t->choose, fold->judge, n, s, err);
        if (path != NULL && path != *first)
            t->drop(t->ctx, path);
    }
    return rc;
}

onq_code oq_tune_score(oq_tune *t, const oq_recipe *r, const oq_division *d, oq_score *out,
                       const char **path, uint64_t *size, onq_error *err) {
    oq_arena scratch;
    oq_scoring s;
    const char *first = NULL;
    oq_arena_init(&scratch, &t->env->alloc);
    onq_code rc = oq_scoring_init(&s, &scratch, t->choose->meaning, t->choose->n_outputs, err);
    if (rc == ONQ_OK)
        rc = score_folds(t, r, d, &s, &first, size, err);
    if (rc == ONQ_OK)
        rc = oq_scoring_end(&s, out, err);
    oq_arena_release(&scratch);
    if (first != NULL && (path == NULL || rc != ONQ_OK))
        t->drop(t->ctx, first);
    if (path != NULL)
        *path = rc == ONQ_OK ? first : NULL;
    return rc;
}

/* Float itself needs no run. */
onq_code oq_tune_report(oq_tune *t, const char *path, const oq_trials *set, size_t n, oq_score *out,
                        onq_error *err) {
    oq_arena scratch;
    oq_scoring s;
    n = n < set->all.n ? n : set->all.n;
    oq_arena_init(&scratch, &t->env->alloc);
    size_t *places = OQ_NEW_ARRAY(&scratch, size_t, n + 1);
    onq_code rc = oq_scoring_init(&s, &scratch, set->meaning, set->n_outputs, err);
    if (rc == ONQ_OK && places == NULL)
        rc = oq_fail_nomem(err);
    for (size_t i = 0; i < n && rc == ONQ_OK; i++) {
        const oq_trial *x = &set->all.v[i * set->all.n / n];
        const oq_pair self = {.number = x->sample.number,
                              .truth = x->outputs,
                              .made = x->outputs,
                              .n_made = set->n_outputs,
                              .inputs = x->sample.inputs,
                              .batch = oq_trial_batch(x),
                              .labels = x->labels};
        places[i] = i * set->all.n / n;
        if (path == NULL)
            rc = oq_scoring_add(&s, &self, err);
    }
    if (rc == ONQ_OK && path != NULL)
        rc = score_on(t, path, set, places, n, &s, err);
    if (rc == ONQ_OK)
        rc = oq_scoring_end(&s, out, err);
    oq_arena_release(&scratch);
    return rc;
}

/* ---- times ---- */

double oq_tune_clock_seconds(const oq_tune *t) {
    return fmin(MAX_CLOCK_SECONDS, fmax(MIN_CLOCK_SECONDS, CLOCK_PART * t->choose->seconds));
}

/* What the two halves of a measurement differ by, as a time beside float's. */
static double noise_of(double halves[2][2], double truth_ms) {
    for (size_t i = 0; i < 2; i++)
        if (halves[i][0] <= 0 || halves[i][1] <= 0)
            return 0;
    return fabs(halves[1][0] / halves[0][0] - halves[1][1] / halves[0][1]) * truth_ms;
}

/* Times a candidate beside float, so that its time can be set beside those of others. */
static onq_code clock_one(oq_tune *t, oq_candidate *c, onq_error *err) {
    oq_model *m = NULL;
    oq_session *s[2] = {t->beside};
    double ms[2] = {0}, halves[2][2] = {{0}};
    const size_t n = c == t->truth ? 1 : 2;
    onq_code rc = ONQ_OK;
    if (t->clock != NULL || t->known_ms > 0) {
        c->ms = t->clock != NULL ? t->clock(t->ctx, c) : t->known_ms;
        c->ms_noise = t->clock != NULL ? 0 : OQ_NOISE_PART * t->known_ms;
        return ONQ_OK;
    }
    if (n > 1) {
        OQ_GO(oq_model_open(t->env, c->path, &t->open, &m, err));
        OQ_GO(oq_tune_session(t, m, t->n_threads, &s[1], err));
    }
    const oq_clocking clocking = {.sessions = s,
                                  .ms = ms,
                                  .halves = halves,
                                  .n = n,
                                  .own_time = t->n_threads == 1,
                                  .seconds = oq_tune_clock_seconds(t)};
    OQ_GO(oq_trials_clock(t->choose, &clocking, err));
    c->ms = n > 1 && t->truth->ms > 0 ? ms[1] / ms[0] * t->truth->ms : ms[n - 1];
    c->ms_noise = noise_of(halves, t->truth->ms);
done:
    oq_session_close(s[1]);
    oq_model_free(m);
    return rc;
}

/* ---- one candidate ---- */

/* The text by which a measurement is found again. */
static const char *key_of(oq_tune *t, const oq_recipe *r, size_t n_samples) {
    oq_buf b;
    oq_buf_init(&b, &t->env->alloc);
    if (n_samples != SIZE_MAX)
        oq_buf_addf(&b, "%zu samples: ", n_samples);
    for (const oq_recipe *x = r; x != NULL; x = x->after) {
        oq_recipe_text(x, "IN", "OUT", &b);
        oq_buf_adds(&b, x->after != NULL ? " after " : "");
    }
    const char *key = b.failed ? NULL : oq_arena_strdup(t->arena, b.p, b.n);
    oq_buf_release(&b);
    return key;
}

static onq_code set_metric(oq_tune *t, const char *path, oq_score *s, onq_error *err) {
    double metric = NAN;
    if (t->evaluate == NULL)
        return ONQ_OK;
    OQ_TRY(t->evaluate(t->ctx, path, &metric, err));
    s->figures[OQ_METRIC_METRIC] = (oq_figure){metric, metric};
    return ONQ_OK;
}

static onq_code measure(oq_tune *t, oq_candidate *c, onq_error *err) {
    const double begin = oq_seconds();
    OQ_TRY(oq_tune_score(t, &c->recipe, t->folds, &c->score, &c->path, &c->size, err));
    if (t->max_float_units != SIZE_MAX)
        OQ_TRY(oq_tune_check_units(t, c->path, err));
    OQ_TRY(set_metric(t, c->path, &c->score, err));
    OQ_TRY(clock_one(t, c, err));
    t->slowest = fmax(t->slowest, oq_seconds() - begin);
    return ONQ_OK;
}

/* Adds what was tried; the reason why it is none is kept. */
static onq_code keep(oq_tune *t, oq_candidate *c, onq_code rc, const onq_error *why,
                     onq_error *err) {
    if (oq_tune_is_fatal(rc))
        return oq_error_give(err, rc, why);
    c->ok = rc == ONQ_OK;
    if (rc != ONQ_OK) {
        if (c->path != NULL)
            t->drop(t->ctx, c->path);
        c->path = NULL;
        c->why_not = oq_arena_strdup(t->arena, why->text, strlen(why->text));
        OQ_TRY_ALLOC(c->why_not != NULL, err);
        oq_log(t->env, ONQ_LOG_DEBUG, "%s: %s", c->label, c->why_not);
    }
    return OQ_PUSH(t->arena, &t->all, c) ? ONQ_OK : oq_fail_nomem(err);
}

/* A candidate that an earlier run measured. */
static onq_code recall(oq_tune *t, oq_candidate *c, const oq_state_row *row, onq_error *err) {
    c->ok = row->why_not == NULL;
    c->score = row->score;
    c->ms = row->ms;
    c->ms_noise = row->ms_noise;
    c->size = row->size;
    if (!c->ok) {
        c->why_not = oq_arena_strdup(t->arena, row->why_not, strlen(row->why_not));
        OQ_TRY_ALLOC(c->why_not != NULL, err);
    }
    return OQ_PUSH(t->arena, &t->all, c) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code find_or_measure(oq_tune *t, oq_candidate *c, onq_error *err) {
    onq_error why = ONQ_ERROR_INIT;
    const char *key = key_of(t, &c->recipe, SIZE_MAX);
    oq_state_row row;
    OQ_TRY_ALLOC(key != NULL, err);
    if (oq_state_find(&t->state, key, &row))
        return recall(t, c, &row, err);
    const onq_code rc = measure(t, c, &why);
    OQ_TRY(keep(t, c, rc, &why, err));
    if (t->stopped) /* what had no time may have some in another run */
        return ONQ_OK;
    row = (oq_state_row){.score = c->score,
                         .ms = c->ms,
                         .ms_noise = c->ms_noise,
                         .size = c->size,
                         .why_not = c->why_not};
    return oq_state_put(&t->state, key, &row, err);
}

onq_code oq_tune_try(oq_tune *t, const oq_recipe *r, const char *label, oq_candidate **out,
                     onq_error *err) {
    *out = NULL;
    for (size_t i = 0; i < t->all.n; i++)
        if (oq_recipe_equal(&t->all.v[i]->recipe, r)) {
            *out = t->all.v[i]->ok ? t->all.v[i] : NULL;
            return ONQ_OK;
        }
    if (!oq_tune_goes_on(t))
        return ONQ_OK;
    oq_candidate *c = OQ_NEW(t->arena, oq_candidate);
    OQ_TRY_ALLOC(c != NULL, err);
    *c = (oq_candidate){.recipe = *r, .predicted = NAN};
    c->label = oq_arena_strdup(t->arena, label, strlen(label));
    OQ_TRY_ALLOC(c->label != NULL, err);
    const size_t tried = ++t->n_tried;
    OQ_TRY(oq_progress(t->env, label, tried, tried > USUAL ? tried : USUAL, err));
    OQ_TRY(find_or_measure(t, c, err));
    *out = c->ok ? c : NULL;
    if (c->ok)
        oq_info(t->env, "%s: %.1f dB, %.3f ms", c->label, oq_score_of(&c->score, OQ_METRIC_SQNR),
                c->ms);
    return ONQ_OK;
}

onq_code oq_tune_ensure(oq_tune *t, oq_candidate *c, onq_error *err) {
    return c->path != NULL ? ONQ_OK : t->make(t->ctx, &c->recipe, NULL, &c->path, &c->size, err);
}

onq_code oq_tune_add_model(oq_tune *t, const oq_candidate *like, oq_candidate **out,
                           onq_error *err) {
    oq_candidate *c = OQ_NEW(t->arena, oq_candidate);
    OQ_TRY_ALLOC(c != NULL, err);
    *c = *like;
    c->predicted = NAN;
    if (t->truth == NULL)
        t->truth = c;
    OQ_TRY(oq_tune_report(t, c == t->truth ? NULL : c->path, t->choose, SIZE_MAX, &c->score, err));
    OQ_TRY(set_metric(t, c->path, &c->score, err));
    OQ_TRY(clock_one(t, c, err));
    c->ok = true;
    *out = c;
    return OQ_PUSH(t->arena, &t->all, c) ? ONQ_OK : oq_fail_nomem(err);
}

/* Of the samples that the first fold leaves to judge. */
static onq_code probe_once(oq_tune *t, const oq_recipe *r, size_t n, oq_score *out,
                           onq_error *err) {
    const oq_fold *first = &t->folds->folds[0];
    oq_fold some = {.calibrate = first->calibrate,
                    .n_calibrate = first->n_calibrate,
                    .n_judge = n < first->n_judge ? n : first->n_judge};
    size_t *judge = OQ_NEW_ARRAY(t->arena, size_t, some.n_judge + 1);
    uint64_t size = 0;
    const char *path = NULL;
    oq_arena scratch;
    oq_scoring s;
    OQ_TRY_ALLOC(judge != NULL, err);
    for (size_t i = 0; i < some.n_judge; i++)
        judge[i] = first->judge[i * first->n_judge / some.n_judge];
    OQ_TRY(t->make(t->ctx, r, first, &path, &size, err));
    oq_arena_init(&scratch, &t->env->alloc);
    onq_code rc = oq_scoring_init(&s, &scratch, t->choose->meaning, t->choose->n_outputs, err);
    if (rc == ONQ_OK)
        rc = score_on(t, path, t->choose, judge, some.n_judge, &s, err);
    if (rc == ONQ_OK)
        rc = oq_scoring_end(&s, out, err);
    oq_arena_release(&scratch);
    t->drop(t->ctx, path);
    return rc;
}

onq_code oq_tune_probe(oq_tune *t, const oq_recipe *r, size_t n_samples, oq_score *out, bool *made,
                       onq_error *err) {
    onq_error why = ONQ_ERROR_INIT;
    const char *key = key_of(t, r, n_samples);
    oq_state_row row;
    OQ_TRY_ALLOC(key != NULL, err);
    if (oq_state_find(&t->state, key, &row)) {
        *out = row.score;
        *made = row.why_not == NULL;
        return ONQ_OK;
    }
    const onq_code rc = probe_once(t, r, n_samples, out, &why);
    *made = rc == ONQ_OK;
    if (oq_tune_is_fatal(rc))
        return oq_error_give(err, rc, &why);
    if (rc != ONQ_OK)
        oq_log(t->env, ONQ_LOG_DEBUG, "%s", why.text);
    row = (oq_state_row){.why_not = *made ? NULL : why.text};
    if (*made)
        row.score = *out;
    return oq_state_put(&t->state, key, &row, err);
}

/* ---- noise that targets allow ---- */

/* Of one target; infinite where noise says nothing of it. */
static double allowed_by(const oq_tune *t, const oq_candidate *like, const oq_target *x) {
    const oq_trials *set = t->choose;
    const double apart = oq_score_of(&like->score, OQ_METRIC_SQNR) - like->score.objective;
    const double before = isfinite(apart) ? pow(10, apart / 10) : 1;
    const double rows = (double)set->margins.n / (double)set->all.n;
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
    case OQ_METRIC_SAMPLE_AGREEMENT:
        percent = 100 * pow(x->value / 100, 1 / fmax(rows, 1));
        break;
    case OQ_METRIC_ACCURACY_DROP:
        percent = 100 - x->value;
        break;
    case OQ_METRIC_AGREEMENT:
        break;
    case OQ_METRIC_IOU:
    case OQ_METRIC_METRIC:
    case OQ_METRICS:
        return INFINITY;
    }
    const double deviation = oq_margins_allow(set->margins.v, set->margins.n, percent);
    return set->margins.n > 0 && set->signal > 0 ? deviation * deviation / set->signal : INFINITY;
}

double oq_tune_allowed_noise(const oq_tune *t, const oq_candidate *like) {
    double least = INFINITY;
    for (size_t i = 0; i < t->targets.n; i++)
        least = fmin(least, allowed_by(t, like, &t->targets.v[i]));
    return isfinite(least) ? least : 1e-3;
}
