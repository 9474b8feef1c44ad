/*
 * tune_spend.c — what the search may spend of the processor: each step is asked for before it is
 * made, with the answer that may follow from it.
 */
#include "base/keyed.h"
#include "tune/tune.h"

#include <math.h>
#include <stdlib.h>

#define CLOSE_TIMES 1.05 /* of the fastest: it may be the one that is taken */
#define LOOKED_AT   4    /* samples that the answer runs on */

#define QUIET      1.05 /* times the least: what runs differ by on a quiet machine */
#define PACE_EVERY 2    /* runs of float over all samples, until the pace is seen again ... */
#define PACE_RUNS  3    /* ... by so many of one sample, of which the middle one counts */
#define MAX_PACE   3

static double processor(const oq_tune *t) {
    return t->cpu != NULL ? t->cpu(t->ctx) : oq_cpu_seconds();
}

double oq_tune_cpu(const oq_tune *t) {
    return processor(t) - t->spending.began;
}

double oq_tune_spent(const oq_tune *t) {
    return oq_spending_spent(&t->spending, processor(t));
}

void oq_tune_see_pace(oq_tune *t, double slow) {
    oq_spending_see(&t->spending, processor(t), fmin(MAX_PACE, fmax(1, slow / QUIET)));
}

void oq_tune_recall_cost(oq_tune *t, const oq_recipe *r, const oq_noted *noted) {
    const double bare = t->spending.bare;
    t->cost = *noted;
    if (!(bare > 0) || !(noted->spent > 0))
        return; /* float comes before the limit, in every run */
    oq_spending_reach(&t->spending, processor(t), noted->spent * bare);
    if (r != NULL && noted->times > 0)
        oq_spending_add(&t->spending, r, (size_t)noted->times, (size_t)noted->samples,
                        noted->made * bare);
}

void oq_tune_set_cost(oq_tune *t, double seconds, size_t times, size_t samples) {
    const double bare = t->spending.bare;
    t->cost = (oq_noted){
        .made = bare > 0 ? seconds / bare : 0, .times = (double)times, .samples = (double)samples};
}

oq_noted oq_tune_noted(const oq_tune *t) {
    oq_noted now = t->cost;
    now.spent = t->spending.bare > 0 ? oq_tune_spent(t) / t->spending.bare : 0;
    return now;
}

onq_code oq_tune_look_at_pace(oq_tune *t, onq_error *err) {
    const double ago = processor(t) - t->spending.at;
    double v[PACE_RUNS];
    if (t->spending.limit <= 0 || ago < PACE_EVERY * t->spending.bare * t->spending.pace)
        return ONQ_OK;
    if (t->slowness != NULL) {
        oq_tune_see_pace(t, t->slowness(t->ctx));
        return ONQ_OK;
    }
    if (!(t->least_run > 0))
        return ONQ_OK;
    for (int i = 0; i < PACE_RUNS; i++)
        OQ_TRY(oq_trials_run_steps(t->choose, t->beside, 1, &v[i], err));
    qsort(v, PACE_RUNS, sizeof *v, oq_by_double);
    t->least_run = fmin(t->least_run, v[0]);
    oq_tune_see_pace(t, v[PACE_RUNS / 2] / t->least_run);
    return ONQ_OK;
}

bool oq_tune_times_alone(const oq_tune *t) {
    return t->choose->decoding.length == 0 && t->n_threads == 1 && t->deadline <= 0;
}

#define FLOAT_RUN   1.5  /* times what the runtime takes: a run that shows the inputs of layers */
#define SLOW_ROWS   1    /* the same of the products of rows, by a general library */
#define SLOW_STEPS  4    /* the same of factors and of rounding, which go column by column */
#define MAX_ROWS    8192 /* of a Hessian, about: more samples add no more */
#define MAX_ROUNDED 8192 /* inputs of a layer: larger ones are not rounded */

static bool is_first_with_input(const oq_units *u, size_t at) {
    for (size_t i = 0; i < at; i++)
        if (oq_str_eq(oq_node_input(u->all.v[i].node, 0), oq_node_input(u->all.v[at].node, 0)))
            return false;
    return true;
}

static double elements(const oq_unit_shape *w) {
    double n = 1;
    for (size_t i = 0; i < w->rank; i++)
        n *= (double)w->dims[i];
    return n;
}

/* What rounding all weights is likely to take (quantize/rounding), by their sizes and by how fast
 * float computes: for each input of several layers the products of its rows and a factor, and for each
 * weight its rounding. */
static void guess_rounding(oq_tune *t) {
    const double n = (double)t->choose->steps.n, run = t->spending.bare / n;
    double each = 0, fixed = 0;
    for (size_t i = 0; i < t->units.all.n; i++) {
        const oq_unit *u = &t->units.all.v[i];
        const double k = u->depth, size = elements(&u->weight);
        if (u->kind == OQ_UNIT_PAIR || u->kind == OQ_UNIT_TRANSPOSE || !(k > 0) ||
            k > MAX_ROUNDED || !(size > 0) || u->weight.rank < 2)
            continue;
        fixed += size * k / 2;
        if (!is_first_with_input(&t->units, i))
            continue;
        each += fmin(u->macs / size, MAX_ROWS / n) * k * k / 2;
        fixed += k * k * k / 6;
    }
    if (t->units.macs > 0 && !t->language)
        t->spending.rounding = (oq_paid){FLOAT_RUN * run + SLOW_ROWS * each / t->units.macs * run,
                                         SLOW_STEPS * fixed / t->units.macs * run};
}

void oq_tune_set_limit(oq_tune *t) {
    const oq_trials *set = t->choose;
    /* A decoder is timed by tokens, threads of a session by the wall. */
    const bool timed = set->decoding.length == 0 && t->n_threads == 1 && t->flt->ms > 0;
    const double bare = t->bare > 0 ? t->bare
                        : timed     ? t->flt->ms * (double)set->steps.n / 1e3
                                    : set->cpu;
    oq_spending_begin(&t->spending, t->effort, bare, set->steps.n);
    guess_rounding(t);
    if (t->slowness != NULL)
        oq_tune_see_pace(t, t->slowness(t->ctx));
}

static size_t calibrating(const oq_division *d) {
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++)
        n += d->folds[i].n_calibrate;
    return n;
}

static double scoring(const oq_tune *t, const oq_division *d) {
    return (double)d->n * t->opening + t->spending.bare;
}

static double confirming(const oq_tune *t, const oq_recipe *r) {
    return oq_spending_answer(&t->spending, r, t->again->n) + scoring(t, t->again);
}

/* Most that reach the targets do so with the slack of their bounds, and are measured again. What
 * rounds weights is made where its bound is to reach them without: to round them again for other
 * folds would take what most searches have. */
static bool needs_confirming(const oq_tune *t, const oq_recipe *r) {
    return t->again != NULL && oq_recipe_calibrates(r) &&
           oq_recipe_get(r, "learned_rounding") == NULL;
}

static bool has_doubts(const oq_tune *t, const oq_candidate *c) {
    return t->again != NULL && oq_recipe_calibrates(&c->recipe) && c->report.samples == 0 &&
           !oq_tune_is_safe(t, &c->score);
}

/* Making it with all samples; and if its bounds leave doubts, measuring it again. */
static double answering(const oq_tune *t, const oq_candidate *c) {
    const double made = oq_spending_answer(&t->spending, &c->recipe, 1);
    return made + (has_doubts(t, c) ? confirming(t, &c->recipe) : 0);
}

static bool may_be_taken(const oq_tune *t, const oq_candidate *c) {
    return c->ok && !c->exact && !c->doubted &&
           (t->takes_nearest || oq_targets_hold(&t->targets, &c->score));
}

static double clocking(const oq_tune *t) {
    return t->clock == NULL ? oq_tune_clock_seconds(t) : 0;
}

/* What cannot be paid any more is lost: nothing need be kept for it. Nor is anything kept for measuring
 * rounded weights again, which takes what a safer point takes. */
static bool is_lost(const oq_tune *t, const oq_candidate *c) {
    const bool unsafe = has_doubts(t, c) && !needs_confirming(t, &c->recipe);
    return t->spending.limit > 0 &&
           (unsafe || oq_tune_spent(t) + answering(t, c) > t->spending.limit);
}

/* The answer runs once it is made. */
static double looking(const oq_tune *t) {
    return t->opening + fmin(1, LOOKED_AT / (double)t->spending.n) * t->spending.bare;
}

/* What must be left: what has no time is timed, and what may be taken is made. */
static double reserve(const oq_tune *t) {
    double fastest = INFINITY, most = 0;
    size_t untimed = 0;
    for (size_t i = 0; i < t->all.n; i++) {
        const oq_candidate *c = t->all.v[i];
        untimed += c->ok && !(c->ms > 0);
        if (may_be_taken(t, c) && c->ms > 0 && !is_lost(t, c))
            fastest = fmin(fastest, c->ms);
    }
    for (size_t i = 0; i < t->all.n; i++) {
        const oq_candidate *c = t->all.v[i];
        if (may_be_taken(t, c) && !is_lost(t, c) &&
            (t->prefer != OQ_PREFER_SPEED || c->ms <= CLOSE_TIMES * fastest))
            most = fmax(most, answering(t, c));
    }
    return most + looking(t) + (untimed > 0 ? (double)(untimed + 1) * clocking(t) : 0);
}

static bool fits(const oq_tune *t, double cost, double after) {
    const double share = t->share > 0 ? t->share : 1, spent = oq_tune_spent(t);
    return t->spending.limit <= 0 ||
           (spent + cost + after <= t->spending.limit && spent + cost <= share * t->spending.limit);
}

bool oq_tune_affords(const oq_tune *t, const oq_recipe *r) {
    /* Where the first fold shows that it is no good, it is the only one. */
    const double made = oq_spending_next(&t->spending, r, t->folds->folds[0].n_calibrate);
    const double answer =
        oq_spending_answer(&t->spending, r, 1) + (needs_confirming(t, r) ? confirming(t, r) : 0);
    return fits(t, made + scoring(t, t->folds) + clocking(t),
                fmax(reserve(t), answer + looking(t)));
}

bool oq_tune_affords_again(const oq_tune *t, const oq_candidate *c) {
    return fits(t, confirming(t, &c->recipe),
                oq_spending_answer(&t->spending, &c->recipe, 1) + looking(t));
}

bool oq_tune_affords_rounding(const oq_tune *t, const oq_recipe *r) {
    const double n = (double)t->folds->n, scored = n * t->opening + t->spending.bare;
    const double folds = n * oq_spending_next(&t->spending, r, t->folds->folds[0].n_calibrate);
    return oq_tune_affords_seconds(t, folds + 2 * scored + oq_spending_answer(&t->spending, r, 1));
}

bool oq_tune_affords_seconds(const oq_tune *t, double seconds) {
    return fits(t, seconds, reserve(t));
}

bool oq_tune_overspends(const oq_tune *t) {
    if (t->spending.limit <= 0 || t->making == NULL)
        return false;
    const double so_far = oq_tune_spent(t) - t->making_began;
    const double answer =
        oq_spending_after(&t->spending, t->making, t->folds->n, calibrating(t->folds), so_far);
    return oq_tune_spent(t) + fmax(reserve(t), answer) > t->spending.limit;
}

onq_code oq_tune_leave_out(oq_tune *t, const char *label, onq_error *err) {
    for (size_t i = 0; i < t->left_out.n; i++)
        if (strcmp(t->left_out.v[i], label) == 0)
            return ONQ_OK;
    const char *own = oq_arena_strdup(t->arena, label, strlen(label));
    OQ_TRY_ALLOC(own != NULL, err);
    oq_log(t->env, ONQ_LOG_DEBUG, "%s: left out, it would cost too much (--effort)", label);
    return OQ_PUSH(t->arena, &t->left_out, own) ? ONQ_OK : oq_fail_nomem(err);
}
