/*
 * tune.c — what every stage of the search needs: a recipe is made, scored by folds, timed, and
 * added to the candidates.
 */
#include "tune/tune.h"

#include "tune/units/units.h"

#include <math.h>

#define FIRST_LOOK   4 /* samples */
#define SESSIONS     2 /* that making a candidate opens, or as much for its files */
#define SMALL_MODEL  ((uint64_t)256 << 20)
#define USUAL        20  /* candidates of a search, for the progress */
#define NEXT_LOOK    8   /* samples between looks at a deadline ... */
#define LOOK_SECONDS 1.0 /* ... or fewer, if they take longer */

/* ---- the deadline ---- */

double oq_tune_now(const oq_tune *t) {
    return t->now != NULL ? t->now(t->ctx) : oq_seconds();
}

/* A race of n beside float, as long as others took on this machine. */
double oq_tune_race_seconds(const oq_tune *t, size_t n) {
    const double least = t->flt != NULL ? oq_clock_least(t->flt->ms, t->flt->prefill_ms) : 0;
    const double each = fmax(least, oq_tune_clock_seconds(t));
    return (double)n * t->opened + (double)(n + 1) * fmax(each, t->raced);
}

/* What must be left for the answer: it is made with all samples and looked at, which takes about as
 * long as the slowest candidate did, and written, which takes about half as long as opening float;
 * and what has no time yet is timed. */
static double reserve(const oq_tune *t) {
    size_t n = t->as_fast_as != NULL ? 0 : 1; /* the next one */
    for (size_t i = 0; i < t->all.n; i++)
        n += t->all.v[i]->ok && !(t->all.v[i]->ms > 0);
    return t->slowest + t->opened / 2 +
           (t->clock == NULL && n > 0 ? oq_tune_race_seconds(t, n) : 0);
}

bool oq_tune_has_time(const oq_tune *t, double seconds) {
    return t->deadline <= 0 || oq_tune_now(t) + seconds + reserve(t) < t->deadline;
}

bool oq_tune_goes_on(oq_tune *t) {
    if (!oq_tune_has_time(t, t->opened)) /* a session that is opened cannot be given up */
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
    const double begin = oq_tune_now(t), spent = oq_tune_spent(t);
    const onq_code rc = oq_session_open(t->engine, &o, out, err);
    t->opened = fmax(t->opened, oq_tune_now(t) - begin);
    t->opening = fmax(t->opening, oq_tune_spent(t) - spent);
    t->spending.fixed = SESSIONS * t->opening;
    return rc;
}

/* Samples are scored by runs of one thread, several at once. A model so large that few runs fit into
 * memory side by side has all threads for each. */
static unsigned scoring_threads(const oq_tune *t) {
    return t->float_size < SMALL_MODEL ? 1 : OQ_THREADS_RUNTIME;
}

typedef struct scorer {
    oq_tune *t;
    const oq_trials *set;
    oq_scoring into;
    bool to_the_end; /* whatever is lost */
    bool hurries;    /* given up when there is no time left */
    bool lost;       /* the targets are */
    const char *path;
    oq_model *model;
    oq_session *session;
    bool keeps;          /* the session of the first model: it is to be timed */
    oq_tune_ready first; /* that one, once another is open */
} scorer;

static void close_scorer(scorer *x) {
    if (x->keeps && x->first.session == NULL && x->session != NULL) {
        x->first = (oq_tune_ready){.path = x->path, .model = x->model, .session = x->session};
    } else {
        oq_session_close(x->session);
        oq_model_free(x->model);
    }
    x->session = NULL;
    x->model = NULL;
    x->path = NULL;
}

static onq_code open_model(scorer *x, const char *path, onq_error *err) {
    if (x->path == path)
        return ONQ_OK;
    close_scorer(x);
    OQ_TRY(oq_model_open(x->t->env, path, &x->t->open, &x->model, err));
    OQ_TRY(oq_tune_session(x->t, x->model, scoring_threads(x->t), &x->session, err));
    x->path = path;
    return ONQ_OK;
}

/* The samples so far lost more than all of them may lose; or those of a whole part, which are of
 * every kind, so much that the others will not make it up. */
static onq_code see_losses(scorer *x, bool whole_part, onq_error *err) {
    oq_score so_far = oq_score_none();
    if (x->to_the_end)
        return ONQ_OK;
    if (whole_part)
        OQ_TRY(oq_scoring_end(&x->into, &so_far, err));
    x->lost = oq_targets_are_lost(&x->t->targets, &x->into, &x->t->whole) ||
              oq_targets_are_missed(&x->t->targets, &so_far) ||
              (whole_part && so_far.objective < x->t->least_db);
    return ONQ_OK;
}

/* Samples between looks at a deadline. */
static size_t next_look(const oq_trials *set) {
    const double each = set->all.n > 0 ? set->seconds / (double)set->all.n : 0;
    return each * NEXT_LOOK > LOOK_SECONDS ? (size_t)fmax(1, LOOK_SECONDS / each) : NEXT_LOOK;
}

/* Where a part of the samples ends that begins here. A few come first: where they lose so much that
 * the targets are lost, the others need not run. */
static size_t end_of_part(const scorer *x, size_t from, size_t n) {
    size_t most = x->hurries && x->t->deadline > 0 ? next_look(x->t->choose) : n;
    if (from == 0 && !x->to_the_end)
        most = most < FIRST_LOOK ? most : FIRST_LOOK;
    return most < n - from ? from + most : n;
}

/* Adds what a model makes of some samples. */
static onq_code judge(scorer *x, const char *path, const size_t *places, size_t n, onq_error *err) {
    OQ_TRY(open_model(x, path, err));
    for (size_t from = 0, to = 0; from < n && !x->lost; from = to) {
        to = end_of_part(x, from, n);
        if (x->hurries && !oq_tune_goes_on(x->t))
            return oq_fail(err, ONQ_E_RUNTIME, OQ_TUNE_NO_TIME);
        OQ_TRY(
            oq_trials_score(x->set, x->session, x->model, places + from, to - from, &x->into, err));
        OQ_TRY(see_losses(x, to == n, err));
    }
    return ONQ_OK;
}

/* What the models of a recipe cost adds up over its folds. */
typedef struct making {
    double seconds;
    size_t n, times; /* samples that calibrated, of all of them */
} making;

static onq_code make_for(oq_tune *t, const oq_recipe *r, const oq_fold *fold, making *cost,
                         const char **path, uint64_t *size, onq_error *err) {
    const double began = oq_tune_spent(t);
    t->making = r;
    t->making_began = began - cost->seconds;
    const onq_code rc = t->make(t->ctx, r, fold, path, size, err);
    t->making = NULL;
    cost->seconds += oq_tune_spent(t) - began;
    cost->n += fold->n_calibrate;
    cost->times++;
    return rc;
}

/* A model of its own for each fold, unless samples have no part in it. */
static onq_code score_folds(scorer *x, const oq_recipe *r, const oq_division *d, const char **first,
                            uint64_t *size, onq_error *err) {
    oq_tune *t = x->t;
    const bool calibrates = oq_recipe_calibrates(r);
    making cost = {0};
    onq_code rc = ONQ_OK;
    for (size_t i = 0; i < d->n && rc == ONQ_OK && !x->lost; i++) {
        const oq_fold *fold = &d->folds[i];
        const char *path = *first;
        uint64_t bytes = 0;
        if (i == 0 || calibrates)
            rc = make_for(t, r, fold, &cost, &path, &bytes, err);
        if (i == 0 && rc == ONQ_OK) {
            *first = path;
            *size = bytes;
        }
        x->into.fold = (unsigned)i;
        const size_t n = t->few > 0 && t->few < fold->n_judge ? t->few : fold->n_judge;
        if (rc == ONQ_OK)
            rc = judge(x, path, fold->judge, n, err);
        if (path != NULL && path != *first) {
            close_scorer(x);
            t->drop(t->ctx, path);
        }
    }
    /* What failed says nothing of others, unless it has cost more than they were to. */
    if (cost.n > 0 &&
        (rc == ONQ_OK || cost.seconds > (double)cost.times *
                                            oq_spending_next(&t->spending, r, cost.n / cost.times)))
        oq_spending_add(&t->spending, r, cost.times, cost.n, cost.seconds);
    oq_tune_set_cost(t, cost.seconds, cost.times, cost.n);
    return rc;
}

/* *path, if not NULL, becomes the model of the first fold, which is kept. *partly, if not NULL,
 * says whether the scoring ended early. */
static onq_code score(oq_tune *t, const oq_recipe *r, const oq_division *d, oq_score *out,
                      bool *partly, const char **path, uint64_t *size, onq_error *err) {
    oq_arena scratch;
    scorer x = {.t = t,
                .set = t->choose,
                .to_the_end = partly == NULL || t->rival != NULL,
                .hurries = true,
                .keeps = path != NULL && t->clock == NULL && t->as_fast_as == NULL &&
                         t->n_threads == scoring_threads(t)};
    const char *first = NULL;
    oq_arena_init(&scratch, &t->env->alloc);
    onq_code rc = oq_scoring_init(&x.into, &scratch, t->choose->meaning, t->choose->n_outputs, err);
    if (rc == ONQ_OK)
        rc = score_folds(&x, r, d, &first, size, err);
    if (rc == ONQ_OK)
        rc = oq_scoring_end(&x.into, out, err);
    close_scorer(&x);
    x.first.size = *size;
    oq_tune_keep_ready(t, &x.first, rc == ONQ_OK);
    oq_arena_release(&scratch);
    if (partly != NULL)
        *partly = x.lost;
    if (first != NULL && (path == NULL || rc != ONQ_OK))
        t->drop(t->ctx, first);
    if (path != NULL)
        *path = rc == ONQ_OK ? first : NULL;
    return rc;
}

onq_code oq_tune_score(oq_tune *t, const oq_recipe *r, const oq_division *d, oq_score *out,
                       onq_error *err) {
    uint64_t size = 0;
    return score(t, r, d, out, NULL, NULL, &size, err);
}

/* One pass over samples with a model that is there; NULL: float itself, which needs no run. */
static onq_code add_set(oq_tune *t, const char *path, const oq_trials *set, const size_t *places,
                        size_t n, oq_scoring *into, onq_error *err) {
    scorer x = {.t = t, .set = set, .into = *into, .to_the_end = true};
    const onq_code rc = path != NULL ? judge(&x, path, places, n, err)
                                     : oq_trials_score(set, NULL, NULL, places, n, &x.into, err);
    *into = x.into;
    close_scorer(&x);
    return rc;
}

/* n of the places of a set, spread over it. */
static size_t *spread(oq_arena *a, size_t n, size_t of) {
    size_t *places = OQ_NEW_ARRAY(a, size_t, n + 1);
    for (size_t i = 0; i < n && places != NULL; i++)
        places[i] = i * of / n;
    return places;
}

onq_code oq_tune_report(oq_tune *t, const char *path, const oq_trials *set, size_t n, oq_score *out,
                        onq_error *err) {
    oq_arena scratch;
    oq_scoring s;
    n = n < set->all.n ? n : set->all.n;
    oq_arena_init(&scratch, &t->env->alloc);
    const size_t *places = spread(&scratch, n, set->all.n);
    onq_code rc = oq_scoring_init(&s, &scratch, set->meaning, set->n_outputs, err);
    if (rc == ONQ_OK)
        rc = places != NULL ? add_set(t, path, set, places, n, &s, err) : oq_fail_nomem(err);
    if (rc == ONQ_OK)
        rc = oq_scoring_end(&s, out, err);
    oq_arena_release(&scratch);
    return rc;
}

/* Float beside itself, by which losses are judged. */
static onq_code find_whole(oq_tune *t, onq_error *err) {
    const size_t n = t->choose->all.n, *places = spread(t->arena, n, n);
    OQ_TRY_ALLOC(places != NULL, err);
    OQ_TRY(oq_scoring_init(&t->whole, t->arena, t->choose->meaning, t->choose->n_outputs, err));
    OQ_TRY(add_set(t, NULL, t->choose, places, n, &t->whole, err));
    return oq_scoring_find_close(&t->whole, err);
}

/* ---- one candidate ---- */

/* The targets that ended the scoring of a candidate early: with others more samples may judge it. */
static void add_targets(const oq_tune *t, oq_buf *b) {
    for (size_t i = 0; i < t->targets.n; i++)
        oq_buf_addf(b, "%s%s=%.17g", i > 0 ? ", " : "", oq_metric_of(t->targets.v[i].metric)->name,
                    t->targets.v[i].value);
    oq_buf_adds(b, " missed: ");
}

/* The text by which a measurement is found again. */
static const char *key_of(oq_tune *t, const oq_recipe *r, size_t n_samples, bool partly) {
    oq_buf b;
    oq_buf_init(&b, &t->env->alloc);
    if (n_samples != SIZE_MAX)
        oq_buf_addf(&b, "%zu samples: ", n_samples);
    if (partly)
        add_targets(t, &b);
    for (const oq_recipe *x = r; x != NULL; x = x->after) {
        oq_recipe_text(x, "IN", "OUT", &b);
        oq_buf_adds(&b, x->after != NULL ? " after " : "");
    }
    const char *key = b.failed ? NULL : oq_arena_strdup(t->arena, b.p, b.n);
    oq_buf_release(&b);
    return key;
}

static onq_code put_decision(oq_tune *t, size_t at, bool *yes, bool again, onq_error *err) {
    oq_buf b;
    oq_state_row row;
    oq_buf_init(&b, &t->env->alloc);
    oq_buf_addf(&b, "decision %zu with effort %.17g, prefer %d, ", at, t->effort, (int)t->prefer);
    add_targets(t, &b);
    onq_code rc = b.failed ? oq_fail_nomem(err) : ONQ_OK;
    if (rc == ONQ_OK && again && oq_state_find(&t->state, b.p, &row)) {
        *yes = row.size == 1;
    } else if (rc == ONQ_OK) {
        row = (oq_state_row){.score = oq_score_none(), .size = *yes};
        rc = oq_state_put(&t->state, b.p, &row, err);
    }
    oq_buf_release(&b);
    return rc;
}

onq_code oq_tune_decide(oq_tune *t, bool *yes, onq_error *err) {
    return put_decision(t, t->n_decisions++, yes, true, err);
}

onq_code oq_tune_decide_no(oq_tune *t, onq_error *err) {
    bool no = false;
    assert(t->n_decisions > 0);
    return put_decision(t, t->n_decisions - 1, &no, false, err);
}

static onq_code set_metric(oq_tune *t, const char *path, oq_score *s, onq_error *err) {
    double metric = NAN;
    if (t->evaluate == NULL)
        return ONQ_OK;
    OQ_TRY(t->evaluate(t->ctx, path, &metric, err));
    oq_score_set(s, OQ_METRIC_METRIC, metric);
    return ONQ_OK;
}

/* What is known of its time without a clock. */
static void set_known_time(const oq_tune *t, oq_candidate *c) {
    if (t->clock != NULL) {
        c->ms = t->clock(t->ctx, c);
    } else if (t->as_fast_as != NULL) {
        c->ms = t->as_fast_as->ms;
        c->prefill_ms = t->as_fast_as->prefill_ms;
        c->ms_noise = OQ_NOISE_PART * c->ms;
    }
}

/* How many times as many samples calibrate the answer as did all models of the folds. */
static double all_samples(const oq_tune *t) {
    size_t n = 0;
    for (size_t i = 0; i < t->folds->n; i++)
        n += t->folds->folds[i].n_calibrate;
    return n > 0 ? fmax(1, (double)t->choose->steps.n / (double)n) : 1;
}

static onq_code measure(oq_tune *t, oq_candidate *c, onq_error *err) {
    const double begin = oq_tune_now(t);
    OQ_TRY(score(t, &c->recipe, t->folds, &c->score, &c->partly, &c->path, &c->size, err));
    if (t->max_float_units != SIZE_MAX)
        OQ_TRY(oq_tune_check_units(t, c->path, err));
    if (!c->partly)
        OQ_TRY(set_metric(t, c->path, &c->score, err));
    set_known_time(t, c);
    if (oq_recipe_calibrates(&c->recipe)) /* else the answer is there */
        t->slowest = fmax(t->slowest, (oq_tune_now(t) - begin) * all_samples(t));
    return ONQ_OK;
}

/* Adds the candidate; one that failed keeps the reason. */
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
    c->prefill_ms = row->prefill_ms;
    c->size = row->size;
    c->partly = row->partly;
    if (!c->ok) {
        c->why_not = oq_arena_strdup(t->arena, row->why_not, strlen(row->why_not));
        OQ_TRY_ALLOC(c->why_not != NULL, err);
    }
    return OQ_PUSH(t->arena, &t->all, c) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_tune_remember(oq_tune *t, const oq_candidate *c, onq_error *err) {
    const char *key = key_of(t, &c->recipe, SIZE_MAX, c->partly);
    const oq_state_row row = {.score = c->score,
                              .ms = c->ms,
                              .ms_noise = c->ms_noise,
                              .prefill_ms = c->prefill_ms,
                              .size = c->size,
                              .partly = c->partly,
                              .noted = c->noted,
                              .why_not = c->why_not};
    OQ_TRY_ALLOC(key != NULL, err);
    return oq_state_put(&t->state, key, &row, err);
}

static bool is_given_up(const oq_candidate *c) {
    return c->why_not != NULL && strcmp(c->why_not, OQ_TUNE_NO_EFFORT) == 0;
}

static onq_code find_or_measure(oq_tune *t, oq_candidate *c, onq_error *err) {
    onq_error why = ONQ_ERROR_INIT;
    const char *whole = key_of(t, &c->recipe, SIZE_MAX, false),
               *partly = key_of(t, &c->recipe, SIZE_MAX, true);
    oq_state_row row;
    OQ_TRY_ALLOC(whole != NULL && partly != NULL, err);
    const bool found =
        oq_state_find(&t->state, whole, &row) || oq_state_find(&t->state, partly, &row);
    bool may = found || oq_tune_affords(t, &c->recipe);
    OQ_TRY(oq_tune_decide(t, &may, err));
    if (!may)
        return oq_tune_leave_out(t, c->label, err);
    if (found) {
        t->turned |= 1U << oq_recipe_way(&c->recipe);
        oq_tune_recall_cost(t, &c->recipe, &row.noted);
        c->noted = row.noted;
        return recall(t, c, &row, err);
    }
    const double began = oq_tune_spent(t);
    const onq_code rc = measure(t, c, &why);
    oq_log(t->env, ONQ_LOG_DEBUG, "%s: %.3f s of the processor, %.3f in all", c->label,
           oq_tune_spent(t) - began, oq_tune_spent(t));
    OQ_TRY(keep(t, c, rc, &why, err));
    c->noted = oq_tune_noted(t);
    OQ_TRY(oq_tune_look_at_pace(t, err));
    if (is_given_up(c)) {
        OQ_TRY(oq_tune_decide_no(t, err));
        OQ_TRY(oq_tune_leave_out(t, c->label, err));
    }
    *(t->stopped && rc != ONQ_OK ? &t->missed : &t->turned) |= 1U << oq_recipe_way(&c->recipe);
    /* What had no time, or cost too much, may have some in another run. */
    return t->stopped || is_given_up(c) ? ONQ_OK : oq_tune_remember(t, c, err);
}

onq_code oq_tune_try(oq_tune *t, const oq_recipe *asked, const char *label, oq_candidate **out,
                     onq_error *err) {
    oq_recipe own = *asked;
    const oq_recipe *r = &own;
    own.drops_shapes |= t->drops_shapes;
    *out = NULL;
    for (size_t i = 0; i < t->all.n; i++)
        if (oq_recipe_equal(&t->all.v[i]->recipe, r)) {
            *out = t->all.v[i]->ok ? t->all.v[i] : NULL;
            return ONQ_OK;
        }
    if (!oq_tune_goes_on(t)) {
        t->missed |= 1U << oq_recipe_way(r);
        return ONQ_OK;
    }
    oq_candidate *c = OQ_NEW(t->arena, oq_candidate);
    OQ_TRY_ALLOC(c != NULL, err);
    *c = (oq_candidate){.recipe = *r, .predicted = NAN};
    c->label = oq_arena_strdup(t->arena, label, strlen(label));
    OQ_TRY_ALLOC(c->label != NULL, err);
    const size_t tried = ++t->n_tried;
    OQ_TRY(oq_progress(t->env, label, tried, tried > USUAL ? tried : USUAL, err));
    OQ_TRY(find_or_measure(t, c, err));
    *out = c->ok ? c : NULL;
    if (c->ok && c->ms > 0)
        oq_tune_tell(t, c);
    return ONQ_OK;
}

onq_code oq_tune_complete(oq_tune *t, oq_candidate *c, onq_error *err) {
    oq_score whole;
    onq_error why = ONQ_ERROR_INIT;
    if (!c->partly || t->stopped)
        return ONQ_OK;
    bool may = oq_tune_affords(t, &c->recipe);
    OQ_TRY(oq_tune_decide(t, &may, err));
    if (!may)
        return ONQ_OK;
    const onq_code rc = oq_tune_score(t, &c->recipe, t->folds, &whole, &why);
    if (oq_tune_is_fatal(rc))
        return oq_error_give(err, rc, &why);
    if (rc != ONQ_OK)
        return ONQ_OK; /* some samples still say what it is */
    c->score = whole;
    c->partly = false;
    return oq_tune_remember(t, c, err);
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
    const bool first = t->flt == NULL;
    if (first) {
        t->flt = c;
        OQ_TRY(find_whole(t, err));
        OQ_TRY(oq_scoring_end(&t->whole, &c->score, err));
    } else {
        OQ_TRY(oq_tune_report(t, c->path, t->choose, SIZE_MAX, &c->score, err));
    }
    OQ_TRY(set_metric(t, c->path, &c->score, err));
    set_known_time(t, c);
    if (first && c->ms <= 0)
        OQ_TRY(oq_tune_clock_float(t, err));
    c->ok = true;
    *out = c;
    return OQ_PUSH(t->arena, &t->all, c) ? ONQ_OK : oq_fail_nomem(err);
}

/* Of the samples that the first fold leaves to judge. */
static onq_code probe_once(oq_tune *t, const oq_recipe *r, size_t n, oq_score *out,
                           onq_error *err) {
    const oq_fold *first = &t->folds->folds[0];
    oq_arena scratch;
    oq_scoring s;
    uint64_t size = 0;
    const char *path = NULL;
    n = n < first->n_judge ? n : first->n_judge;
    making cost = {0};
    OQ_TRY(make_for(t, r, first, &cost, &path, &size, err));
    oq_arena_init(&scratch, &t->env->alloc);
    size_t *places = spread(&scratch, n, first->n_judge);
    for (size_t i = 0; i < n && places != NULL; i++)
        places[i] = first->judge[places[i]];
    onq_code rc = oq_scoring_init(&s, &scratch, t->choose->meaning, t->choose->n_outputs, err);
    if (rc == ONQ_OK)
        rc = places != NULL ? add_set(t, path, t->choose, places, n, &s, err) : oq_fail_nomem(err);
    if (rc == ONQ_OK)
        rc = oq_scoring_end(&s, out, err);
    oq_arena_release(&scratch);
    t->drop(t->ctx, path);
    return rc;
}

onq_code oq_tune_probe(oq_tune *t, const oq_recipe *r, size_t n_samples, oq_score *out, bool *made,
                       onq_error *err) {
    onq_error why = ONQ_ERROR_INIT;
    const char *key = key_of(t, r, n_samples, false);
    oq_state_row row;
    OQ_TRY_ALLOC(key != NULL, err);
    if (oq_state_find(&t->state, key, &row)) {
        oq_tune_recall_cost(t, NULL, &row.noted);
        *out = row.score;
        *made = row.why_not == NULL;
        return ONQ_OK;
    }
    const double began = oq_tune_spent(t);
    const onq_code rc = probe_once(t, r, n_samples, out, &why);
    oq_tune_set_cost(t, oq_tune_spent(t) - began, 1, 0);
    *made = rc == ONQ_OK;
    if (oq_tune_is_fatal(rc))
        return oq_error_give(err, rc, &why);
    if (rc != ONQ_OK)
        oq_log(t->env, ONQ_LOG_DEBUG, "%s", why.text);
    row = (oq_state_row){.why_not = *made ? NULL : why.text};
    if (*made)
        row.score = *out;
    row.noted = oq_tune_noted(t);
    return oq_state_put(&t->state, key, &row, err);
}
