/*
 * tune.c — the search: whole-model candidates, then what refines the best of them.
 */
#include "tune/tune.h"

#include "tune/units.h"

#include <math.h>
#include <time.h>

#define CLOCK_SECONDS 0.4 /* for one session */
#define PATIENCE      8   /* times float */
#define USUAL         20  /* candidates of a search, for the progress */
#define MIN_PATIENCE  40  /* seconds */

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

bool oq_tune_is_fatal(onq_code rc) {
    return rc == ONQ_E_NOMEM || rc == ONQ_E_CANCEL || rc == ONQ_E_WRITE;
}

static onq_code score_on(oq_tune *t, const char *path, const oq_trials *set, size_t n,
                         oq_score *out, onq_error *err) {
    oq_model *m = NULL;
    oq_session *s = NULL;
    onq_code rc = ONQ_OK;
    OQ_GO(oq_model_open(t->env, path, &t->open, &m, err));
    OQ_GO(open_session(t, m, OQ_THREADS_RUNTIME, &s, err));
    OQ_GO(oq_trials_score(set, s, m, n, out, err));
done:
    oq_session_close(s);
    oq_model_free(m);
    return rc;
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
    if (n > 1) {
        OQ_GO(oq_model_open(t->env, c->path, &t->open, &m, err));
        OQ_GO(open_session(t, m, t->n_threads, &s[1], err));
    }
    const oq_clocking clocking = {.sessions = s,
                                  .ms = ms,
                                  .halves = halves,
                                  .n = n,
                                  .own_time = t->n_threads == 1,
                                  .seconds = CLOCK_SECONDS};
    OQ_GO(oq_trials_clock(t->choose, &clocking, err));
    c->ms = n > 1 && t->truth->ms > 0 ? ms[1] / ms[0] * t->truth->ms : ms[n - 1];
    c->ms_noise = noise_of(halves, t->truth->ms);
done:
    oq_session_close(s[1]);
    oq_model_free(m);
    return rc;
}

static onq_code measure(oq_tune *t, oq_candidate *c, onq_error *err) {
    OQ_TRY(score_on(t, c->path, t->choose, SIZE_MAX, &c->score, err));
    if (t->evaluate != NULL)
        OQ_TRY(t->evaluate(t->ctx, c->path, &c->score.metric, err));
    return clock_one(t, c, err);
}

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

/* Adds what was tried; the reason why it is none is kept. */
static onq_code settle(oq_tune *t, oq_candidate *c, onq_code rc, const onq_error *why,
                       onq_error *err) {
    if (oq_tune_is_fatal(rc))
        return oq_error_give(err, rc, why);
    c->ok = rc == ONQ_OK;
    if (rc != ONQ_OK) {
        c->path = NULL;
        c->why_not = oq_arena_strdup(t->arena, why->text, strlen(why->text));
        if (c->why_not == NULL)
            return oq_fail_nomem(err);
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
        if (c->why_not == NULL)
            return oq_fail_nomem(err);
    }
    return OQ_PUSH(t->arena, &t->all, c) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_tune_ensure(oq_tune *t, oq_candidate *c, onq_error *err) {
    return c->path != NULL ? ONQ_OK : t->make(t->ctx, &c->recipe, &c->path, &c->size, err);
}

onq_code oq_tune_try(oq_tune *t, const oq_recipe *r, const char *label, oq_candidate **out,
                     onq_error *err) {
    onq_error why = ONQ_ERROR_INIT;
    *out = NULL;
    for (size_t i = 0; i < t->all.n; i++)
        if (oq_recipe_equal(&t->all.v[i]->recipe, r)) {
            *out = t->all.v[i]->ok ? t->all.v[i] : NULL;
            return ONQ_OK;
        }
    if (!oq_tune_goes_on(t))
        return ONQ_OK;
    oq_candidate *c = OQ_NEW(t->arena, oq_candidate);
    if (c == NULL)
        return oq_fail_nomem(err);
    *c = (oq_candidate){.recipe = *r, .predicted = NAN};
    c->label = oq_arena_strdup(t->arena, label, strlen(label));
    if (c->label == NULL)
        return oq_fail_nomem(err);
    const size_t tried = ++t->n_tried;
    OQ_TRY(oq_progress(t->env, label, tried, tried > USUAL ? tried : USUAL, err));
    const char *key = key_of(t, r, SIZE_MAX);
    oq_state_row row;
    if (key == NULL)
        return oq_fail_nomem(err);
    if (oq_state_find(&t->state, key, &row)) {
        OQ_TRY(recall(t, c, &row, err));
    } else {
        onq_code rc = t->make(t->ctx, r, &c->path, &c->size, &why);
        if (rc == ONQ_OK && t->max_float_units != SIZE_MAX)
            rc = oq_tune_check_units(t, c->path, &why);
        if (rc == ONQ_OK)
            rc = measure(t, c, &why);
        OQ_TRY(settle(t, c, rc, &why, err));
        row = (oq_state_row){.score = c->score,
                             .ms = c->ms,
                             .ms_noise = c->ms_noise,
                             .size = c->size,
                             .why_not = c->why_not};
        OQ_TRY(oq_state_put(&t->state, key, &row, err));
    }
    *out = c->ok ? c : NULL;
    return ONQ_OK;
}

onq_code oq_tune_probe(oq_tune *t, const oq_recipe *r, size_t n_samples, oq_score *out, bool *made,
                       onq_error *err) {
    onq_error why = ONQ_ERROR_INIT;
    const char *path = NULL, *key = key_of(t, r, n_samples);
    uint64_t size = 0;
    oq_state_row row;
    if (key == NULL)
        return oq_fail_nomem(err);
    if (oq_state_find(&t->state, key, &row)) {
        *out = row.score;
        *made = row.why_not == NULL;
        return ONQ_OK;
    }
    onq_code rc = t->make(t->ctx, r, &path, &size, &why);
    if (rc == ONQ_OK)
        rc = score_on(t, path, t->choose, n_samples, out, &why);
    if (path != NULL)
        t->drop(t->ctx, path);
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

double oq_tune_seconds(void) {
    struct timespec t;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) != 0)
        return oq_seconds();
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double oq_tune_patience(const oq_tune *t) {
    return fmax(MIN_PATIENCE, PATIENCE * t->choose->seconds);
}

/* Of one target; infinite where noise says nothing of it. */
static double allowed_by(const oq_tune *t, const oq_candidate *like, const oq_target *x) {
    const oq_trials *set = t->choose;
    const double apart = like->score.sqnr - like->score.objective;
    const double before = isfinite(apart) ? pow(10, apart / 10) : 1;
    double deviation = 0;
    switch (x->metric) {
    case OQ_METRIC_SQNR:
        return pow(10, -x->value / 10) * before;
    case OQ_METRIC_COSINE:
        return 2 * (1 - x->value) * before;
    case OQ_METRIC_AGREEMENT:
    case OQ_METRIC_ACCURACY_DROP:
        deviation = oq_margins_allow(set->margins.v, set->margins.n,
                                     x->metric == OQ_METRIC_AGREEMENT ? x->value : 100 - x->value);
        return set->margins.n > 0 && set->signal > 0 ? deviation * deviation / set->signal
                                                     : INFINITY;
    case OQ_METRIC_METRIC:
    case OQ_METRICS:
        break;
    }
    return INFINITY;
}

double oq_tune_allowed_noise(const oq_tune *t, const oq_candidate *like) {
    double least = INFINITY;
    for (size_t i = 0; i < t->targets.all.n; i++)
        least = fmin(least, allowed_by(t, like, &t->targets.all.v[i]));
    return isfinite(least) ? least : 1e-3;
}

onq_code oq_tune_report(oq_tune *t, oq_candidate *c, const oq_trials *set, onq_error *err) {
    OQ_TRY(oq_tune_ensure(t, c, err));
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
    *c = (oq_candidate){.label = label, .ok = true, .path = path, .size = size, .predicted = NAN};
    *out = c;
    return ONQ_OK;
}

static onq_code try_float(oq_tune *t, onq_error *err) {
    oq_candidate *prepared = NULL;
    OQ_TRY(new_float(t, "float", t->float_path, t->float_size, &t->truth, err));
    OQ_TRY(open_session(t, t->model, t->n_threads, &t->beside, err));
    OQ_TRY(measure(t, t->truth, err));
    t->targets.float_accuracy = t->truth->score.accuracy;
    if (t->prepared == NULL || t->max_float_units < t->units.all.n)
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
    {"linear operators", "noout"},
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
    /* Convolutions of integers whose ranges are found while they run take several times as long as
     * float ones. */
    if (!t->allow_dynamic || (t->mostly_conv && t->allow_static))
        return ONQ_OK;
    OQ_TRY(oq_recipe_add(&r, t->arena, "per_channel", NULL, err));
    if (t->inner)
        OQ_TRY(oq_recipe_add(&r, t->arena, "enable_subgraph", NULL, err));
    return oq_tune_try(t, &r, "dynamic", &c, err);
}

static onq_code try_qoperator(oq_tune *t, onq_error *err) {
    oq_candidate *c = NULL;
    oq_recipe r;
    if (!t->allow_qoperator)
        return ONQ_OK;
    OQ_TRY(oq_tune_static(t, &r, err));
    OQ_TRY(oq_recipe_add(&r, t->arena, "quant_format", "qoperator", err));
    return oq_tune_try(t, &r, "integer operators", &c, err);
}

/* Weights only; the products are computed in float, or by integers as the runtime likes. */
static onq_code try_nbits(oq_tune *t, onq_error *err) {
    static const char *const bits[] = {"4", "8"};
    for (size_t i = 0; i < OQ_COUNT(bits) && t->allow_nbits; i++) {
        oq_candidate *c = NULL;
        oq_recipe r = {.command = "nbits"};
        const oq_str label = oq_str_format(t->arena, "weights of %s bits", bits[i]);
        if (label.p == NULL)
            return oq_fail_nomem(err);
        OQ_TRY(oq_recipe_add(&r, t->arena, "bits", bits[i], err));
        OQ_TRY(oq_recipe_add(&r, t->arena, "accuracy_level", "4", err));
        OQ_TRY(oq_tune_try(t, &r, label.p, &c, err));
    }
    return ONQ_OK;
}

/* Preprocessing that does this and nothing else. */
static onq_code half_recipe(oq_tune *t, oq_recipe *r, const char *what, onq_error *err) {
    *r = (oq_recipe){.command = "preprocess"};
    OQ_TRY(oq_recipe_add(r, t->arena, "float16", what, err));
    OQ_TRY(oq_recipe_add(r, t->arena, "skip_optimization", NULL, err));
    OQ_TRY(oq_recipe_add(r, t->arena, "skip_symbolic_shape", NULL, err));
    return oq_recipe_add(r, t->arena, "skip_onnx_shape", NULL, err);
}

/* Weights alone take half of the file at float's speed; computing in float16 pays where the
 * provider has kernels for it. `after` has some of the model in integers; NULL: none. */
static onq_code try_float16(oq_tune *t, const oq_candidate *after, onq_error *err) {
    static const char *const ways[][2] = {{"weights", "weights in float16"}, {"all", "float16"}};
    for (size_t i = 0; i < OQ_COUNT(ways) && t->allow_float16; i++) {
        oq_candidate *c = NULL;
        oq_recipe r;
        OQ_TRY(half_recipe(t, &r, ways[i][0], err));
        r.after = after != NULL ? &after->recipe : NULL;
        const oq_str label =
            after != NULL ? oq_str_format(t->arena, "%s, the rest: %s", after->label, ways[i][1])
                          : oq_str_of(ways[i][1]);
        if (label.p == NULL)
            return oq_fail_nomem(err);
        OQ_TRY(oq_tune_try(t, &r, label.p, &c, err));
    }
    return ONQ_OK;
}

/* ---- refining ---- */

#define ABOUT_AS_FAST 1.3 /* times the fastest */

static bool is_static(const oq_candidate *c) {
    return c->ok && c->recipe.command != NULL && strcmp(c->recipe.command, "static") == 0;
}

/* The n most accurate candidates of `static` into v, the best first; of those that are about as
 * fast as the fastest, unless accuracy is all that counts. */
static size_t most_accurate(const oq_tune *t, oq_candidate **v, size_t n) {
    size_t have = 0;
    double fastest = INFINITY;
    for (size_t i = 0; i < t->all.n; i++)
        if (is_static(t->all.v[i]))
            fastest = fmin(fastest, t->all.v[i]->ms);
    for (size_t i = 0; i < t->all.n; i++) {
        oq_candidate *c = t->all.v[i];
        if (!is_static(c) || (t->prefer == OQ_PREFER_SPEED && c->ms > ABOUT_AS_FAST * fastest))
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

#define CORRECTED    3 /* points */
#define CORRECTED_DB 4 /* that they may lack */
#define REFINED      2 /* of the best candidates, by each method */

/* After double activations the rounding of weights is most of what noise is left. */
static bool is_double(const oq_candidate *c) {
    return oq_recipe_get(&c->recipe, "double_activations") != NULL ||
           oq_recipe_has_method(&c->recipe, OQ_METHOD_DOUBLE);
}

static onq_code refine_best(oq_tune *t, const char *what, const char *name, const char *value,
                            onq_error *err) {
    oq_candidate *best[REFINED], *c = NULL;
    const size_t n = most_accurate(t, best, REFINED);
    for (size_t i = 0; i < n; i++)
        OQ_TRY(refine(t, best[i], what, name, value, &c, err));
    return ONQ_OK;
}

/* Of `static` with this set of operators and no method yet, or NULL. */
static const oq_candidate *find_plain(const oq_tune *t, const char *op_set) {
    for (size_t i = 0; i < t->all.n; i++) {
        const char *set = oq_recipe_get(&t->all.v[i]->recipe, "op_set");
        if (t->all.v[i]->ok && set != NULL && strcmp(set, op_set) == 0)
            return t->all.v[i];
    }
    return NULL;
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

static onq_code try_methods(oq_tune *t, onq_error *err) {
    const oq_candidate *base = find_plain(t, "pays");
    oq_candidate *c = NULL;
    if (base == NULL)
        base = find_plain(t, "noout");
    for (size_t i = 0; i < OQ_COUNT(methods) && base != NULL; i++)
        if ((t->has_matmul && methods[i].for_matmul) || (t->has_conv && methods[i].for_conv))
            OQ_TRY(refine(t, base, methods[i].label, methods[i].name, methods[i].value, &c, err));
    OQ_TRY(refine_best(t, "mse ranges", "calibration_method", "mse", err));
    for (size_t i = 0, n = t->all.n; i < n; i++)
        if (t->all.v[i]->ok && is_double(t->all.v[i]))
            OQ_TRY(refine(t, t->all.v[i], "learned rounding", "learned_rounding", NULL, &c, err));
    return refine_best(t, "bias correction", "bias_correction", NULL, err);
}

/* Bias correction and learned rounding take away some dB of noise at no cost in time: for what is
 * chosen so far, and for what is faster and lacks little. */
static onq_code correct_points(oq_tune *t, onq_error *err) {
    bool reached = false;
    const oq_candidate *chosen = oq_choose(&t->all, &t->targets, t->prefer, &reached);
    const size_t n = t->all.n;
    size_t tried = 0;
    oq_candidate *c = NULL;
    const double allowed =
        chosen != NULL ? oq_tune_allowed_noise(t, chosen) * pow(10, CORRECTED_DB / 10.0) : 0;
    for (size_t i = n; i-- > 0 && tried < CORRECTED;) {
        const oq_candidate *x = t->all.v[i];
        const bool near =
            pow(10, -x->score.objective / 10) <= allowed && chosen != NULL && x->ms < chosen->ms;
        if (!x->ok || x->recipe.command == NULL || (x != chosen && (x->reached || !near)) ||
            strcmp(x->recipe.command, "static") != 0)
            continue;
        OQ_TRY(is_double(x) ? refine(t, x, "learned rounding", "learned_rounding", NULL, &c, err)
                            : refine(t, x, "bias correction", "bias_correction", NULL, &c, err));
        tried += c != NULL;
    }
    return ONQ_OK;
}

/* What is float in the model that is chosen so far. */
static onq_code halve_rest(oq_tune *t, onq_error *err) {
    bool reached = false;
    const oq_candidate *chosen = oq_choose(&t->all, &t->targets, t->prefer, &reached);
    const bool some = chosen != NULL && chosen->recipe.command != NULL &&
                      oq_recipe_get(&chosen->recipe, "float16") == NULL;
    return some ? try_float16(t, chosen, err) : ONQ_OK;
}

static onq_code search(oq_tune *t, oq_model *m, onq_error *err) {
    OQ_TRY(oq_tune_find_units(t, m, err));
    OQ_TRY(try_float(t, err));
    OQ_TRY(try_op_sets(t, err));
    OQ_TRY(try_dynamic(t, err));
    OQ_TRY(try_qoperator(t, err));
    OQ_TRY(try_nbits(t, err));
    OQ_TRY(try_float16(t, NULL, err));
    OQ_TRY(try_methods(t, err));
    OQ_TRY(oq_tune_units(t, err));
    OQ_TRY(correct_points(t, err));
    return halve_rest(t, err);
}

onq_code oq_tune_search(oq_tune *t, onq_error *err) {
    oq_model *m = NULL;
    OQ_TRY(oq_model_open(t->env, t->prepared != NULL ? t->prepared : t->float_path, &t->open, &m,
                         err));
    const onq_code rc = search(t, m, err);
    t->units = (oq_units){0}; /* its names went with the model */
    oq_session_close(t->beside);
    t->beside = NULL;
    oq_model_free(m);
    return rc;
}
