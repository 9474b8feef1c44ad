/*
 * tune.c — the search: whole-model candidates, then what refines the best of them.
 */
#include "tune/tune.h"

#include <math.h>

#define CLOCK_SECONDS 0.4 /* for one session */

bool oq_tune_goes_on(oq_tune *t) {
    if (t->deadline > 0 && oq_seconds() >= t->deadline)
        t->stopped = true;
    return !t->stopped;
}

/* ---- one candidate ---- */

static onq_code open_session(oq_tune *t, oq_model *m, unsigned n_threads, oq_session **out,
                             onq_error *err) {
    oq_session_options o = t->session;
    o.model = m;
    o.level = OQ_OPT_ALL;
    o.n_threads = n_threads;
    o.no_spinning = true;
    return oq_session_open(t->engine, &o, out, err);
}

static bool is_fatal(onq_code rc) {
    return rc == ONQ_E_NOMEM || rc == ONQ_E_CANCEL || rc == ONQ_E_WRITE;
}

static onq_code score_on(oq_tune *t, const char *path, const oq_trials *set, size_t n,
                         oq_score *out, onq_error *err) {
    oq_model *m = NULL;
    oq_session *s = NULL;
    onq_code rc = ONQ_OK;
    OQ_GO(oq_model_open(t->env, path, &t->open, &m, err));
    OQ_GO(open_session(t, m, OQ_THREADS_RUNTIME, &s, err));
    OQ_GO(oq_trials_score(set, s, n, out, err));
done:
    oq_session_close(s);
    oq_model_free(m);
    return rc;
}

/* Times a candidate beside float, so that its time can be set beside those of others. */
static onq_code clock_one(oq_tune *t, oq_candidate *c, onq_error *err) {
    oq_model *m[2] = {0};
    oq_session *s[2] = {0};
    double ms[2] = {0};
    const size_t n = c == t->truth ? 1 : 2;
    onq_code rc = ONQ_OK;
    OQ_GO(oq_model_open(t->env, t->float_path, &t->open, &m[0], err));
    OQ_GO(open_session(t, m[0], t->n_threads, &s[0], err));
    if (n > 1) {
        OQ_GO(oq_model_open(t->env, c->path, &t->open, &m[1], err));
        OQ_GO(open_session(t, m[1], t->n_threads, &s[1], err));
    }
    const oq_clocking clocking = {
        .sessions = s, .ms = ms, .n = n, .own_time = t->n_threads == 1, .seconds = CLOCK_SECONDS};
    OQ_GO(oq_trials_clock(t->choose, &clocking, err));
    c->ms = n > 1 && t->truth->ms > 0 ? ms[1] / ms[0] * t->truth->ms : ms[n - 1];
done:
    oq_session_close(s[0]);
    oq_session_close(s[1]);
    oq_model_free(m[0]);
    oq_model_free(m[1]);
    return rc;
}

static onq_code measure(oq_tune *t, oq_candidate *c, onq_error *err) {
    OQ_TRY(score_on(t, c->path, t->choose, SIZE_MAX, &c->score, err));
    if (t->evaluate != NULL)
        OQ_TRY(t->evaluate(t->ctx, c->path, &c->score.metric, err));
    return clock_one(t, c, err);
}

/* Adds what was tried; the reason why it is none is kept. */
static onq_code settle(oq_tune *t, oq_candidate *c, onq_code rc, const onq_error *why,
                       onq_error *err) {
    if (is_fatal(rc)) {
        *err = *why;
        return rc;
    }
    if (rc != ONQ_OK) {
        c->path = NULL;
        c->why_not = oq_arena_strdup(t->arena, why->text, strlen(why->text));
        if (c->why_not == NULL)
            return oq_fail_nomem(err);
        oq_log(t->env, ONQ_LOG_DEBUG, "%s: %s", c->label, c->why_not);
    }
    return OQ_PUSH(t->arena, &t->all, c) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_tune_try(oq_tune *t, const oq_recipe *r, const char *label, oq_candidate **out,
                     onq_error *err) {
    onq_error why = ONQ_ERROR_INIT;
    *out = NULL;
    if (!oq_tune_goes_on(t))
        return ONQ_OK;
    oq_candidate *c = OQ_NEW(t->arena, oq_candidate);
    if (c == NULL)
        return oq_fail_nomem(err);
    *c = (oq_candidate){.recipe = *r, .predicted = NAN};
    c->label = oq_arena_strdup(t->arena, label, strlen(label));
    if (c->label == NULL)
        return oq_fail_nomem(err);
    OQ_TRY(oq_progress(t->env, label, ++t->n_tried, 0, err));
    onq_code rc = t->make(t->ctx, r, &c->path, &c->size, &why);
    if (rc == ONQ_OK)
        rc = measure(t, c, &why);
    OQ_TRY(settle(t, c, rc, &why, err));
    *out = c->path != NULL ? c : NULL;
    return ONQ_OK;
}

onq_code oq_tune_report(oq_tune *t, oq_candidate *c, const oq_trials *set, onq_error *err) {
    OQ_TRY(score_on(t, c->path, set, SIZE_MAX, &c->report, err));
    c->report.metric = c->score.metric; /* the program has samples of its own */
    return ONQ_OK;
}

/* ---- float ---- */

static onq_code new_float(oq_tune *t, const char *label, const char *path, uint64_t size,
                          oq_candidate **out, onq_error *err) {
    oq_candidate *c = OQ_NEW(t->arena, oq_candidate);
    if (c == NULL)
        return oq_fail_nomem(err);
    *c = (oq_candidate){.label = label, .path = path, .size = size, .predicted = NAN};
    *out = c;
    return ONQ_OK;
}

static onq_code try_float(oq_tune *t, onq_error *err) {
    oq_candidate *prepared = NULL;
    OQ_TRY(new_float(t, "float", t->float_path, t->float_size, &t->truth, err));
    OQ_TRY(measure(t, t->truth, err));
    t->targets.float_accuracy = t->truth->score.accuracy;
    if (t->prepared == NULL)
        return ONQ_OK;
    OQ_TRY(new_float(t, "float, prepared", t->prepared, t->prepared_size, &prepared, err));
    OQ_TRY(measure(t, prepared, err));
    return OQ_PUSH(t->arena, &t->all, prepared) ? ONQ_OK : oq_fail_nomem(err);
}

/* ---- whole models ---- */

onq_code oq_tune_static(oq_tune *t, oq_recipe *r, onq_error *err) {
    *r = (oq_recipe){.command = "static"};
    OQ_TRY(oq_recipe_add(r, t->arena, "per_channel", NULL, err));
    if (t->inner)
        OQ_TRY(oq_recipe_add(r, t->arena, "enable_subgraph", NULL, err));
    for (size_t i = 0; i < t->n_samples; i++)
        OQ_TRY(oq_recipe_add(r, t->arena, t->samples[i].name, t->samples[i].value, err));
    return ONQ_OK;
}

/* Which operators are quantized at all: of all choices the one with the largest effect. */
static const struct {
    const char *label, *op_set;
} op_sets[] = {
    {"all operators", NULL},
    {"linear operators", "linear"},
    {"linear operators, their outputs float", "noout"},
    {"where integers pay", "pays"},
};

static onq_code try_op_sets(oq_tune *t, onq_error *err) {
    for (size_t i = 0; i < OQ_COUNT(op_sets) && t->allow_static; i++) {
        oq_recipe r;
        oq_candidate *c = NULL;
        OQ_TRY(oq_tune_static(t, &r, err));
        if (op_sets[i].op_set != NULL)
            OQ_TRY(oq_recipe_add(&r, t->arena, "op_set", op_sets[i].op_set, err));
        OQ_TRY(oq_tune_try(t, &r, op_sets[i].label, &c, err));
    }
    return ONQ_OK;
}

static onq_code try_dynamic(oq_tune *t, onq_error *err) {
    oq_candidate *c = NULL;
    oq_recipe r = {.command = "dynamic"};
    if (!t->allow_dynamic)
        return ONQ_OK;
    OQ_TRY(oq_recipe_add(&r, t->arena, "per_channel", NULL, err));
    if (t->inner)
        OQ_TRY(oq_recipe_add(&r, t->arena, "enable_subgraph", NULL, err));
    return oq_tune_try(t, &r, "dynamic", &c, err);
}

/* ---- refining ---- */

/* The n most accurate candidates of `static` into v, the best first. */
static size_t most_accurate(const oq_tune *t, oq_candidate **v, size_t n) {
    size_t have = 0;
    for (size_t i = 0; i < t->all.n; i++) {
        oq_candidate *c = t->all.v[i];
        if (c->path == NULL || c->recipe.command == NULL ||
            strcmp(c->recipe.command, "static") != 0)
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

/* A candidate with one more option. */
static onq_code refine(oq_tune *t, const oq_candidate *from, const char *what, const char *name,
                       const char *value, oq_candidate **out, onq_error *err) {
    oq_recipe r;
    *out = NULL;
    if (oq_recipe_get(&from->recipe, name) != NULL)
        return ONQ_OK;
    const oq_str label = oq_str_format(t->arena, "%s, %s", from->label, what);
    if (label.p == NULL)
        return oq_fail_nomem(err);
    OQ_TRY(oq_recipe_copy(&from->recipe, t->arena, &r, err));
    OQ_TRY(oq_recipe_add(&r, t->arena, name, value, err));
    return oq_tune_try(t, &r, label.p, out, err);
}

#define REFINED 2 /* of the best candidates, by each method */

static onq_code refine_best(oq_tune *t, const char *what, const char *name, const char *value,
                            onq_error *err) {
    oq_candidate *best[REFINED], *c = NULL;
    const size_t n = most_accurate(t, best, REFINED);
    for (size_t i = 0; i < n; i++)
        OQ_TRY(refine(t, best[i], what, name, value, &c, err));
    return ONQ_OK;
}

onq_code oq_tune_search(oq_tune *t, onq_error *err) {
    OQ_TRY(try_float(t, err));
    OQ_TRY(try_op_sets(t, err));
    OQ_TRY(try_dynamic(t, err));
    OQ_TRY(refine_best(t, "equalised", "equalize", NULL, err));
    OQ_TRY(refine_best(t, "mse ranges", "calibration_method", "mse", err));
    return refine_best(t, "bias correction", "bias_correction", NULL, err);
}
