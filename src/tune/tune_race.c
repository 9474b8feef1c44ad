/*
 * tune_race.c — the times of candidates: side by side with float, in sessions that were kept since
 * they were scored.
 */
#include "tune/tune.h"

#include <math.h>

#define MAX_CLOCK_SECONDS 0.3 /* for one session */
#define MIN_CLOCK_SECONDS 0.02
#define CLOCK_PART        0.15  /* of what float takes for all samples */
#define BARE_SAMPLES      32    /* that float is timed with, for what all of them take */
#define MIN_NOISE         0.005 /* of a time */
#define RACE_BYTES        ((uint64_t)512 << 20) /* of models that are timed side by side */

/* ---- sessions that are kept until they are timed ---- */

static void close_ready(const oq_tune_ready *x) {
    oq_session_close(x->session);
    oq_model_free(x->model);
}

/* Takes over the session of a candidate, or closes it where it is not wanted or has no room. */
void oq_tune_keep_ready(oq_tune *t, const oq_tune_ready *x, bool wanted) {
    uint64_t bytes = x->size;
    for (size_t i = 0; i < t->n_ready; i++)
        bytes += t->ready[i].size;
    if (wanted && x->session != NULL && t->n_ready < OQ_RACE && bytes <= RACE_BYTES)
        t->ready[t->n_ready++] = *x;
    else
        close_ready(x);
}

/* False: there is none. */
static bool take_ready(oq_tune *t, const char *path, oq_model **m, oq_session **s) {
    for (size_t i = 0; i < t->n_ready; i++)
        if (t->ready[i].path == path) {
            *m = t->ready[i].model;
            *s = t->ready[i].session;
            t->ready[i] = t->ready[--t->n_ready];
            return true;
        }
    return false;
}

void oq_tune_close_ready(oq_tune *t) {
    while (t->n_ready > 0)
        close_ready(&t->ready[--t->n_ready]);
}

/* A recipe while it is scored: its models have sessions one after the other. */
/* ---- times ---- */

double oq_tune_clock_seconds(const oq_tune *t) {
    const double all = t->bare > 0 ? t->bare : t->choose->seconds;
    return fmin(MAX_CLOCK_SECONDS, fmax(MIN_CLOCK_SECONDS, CLOCK_PART * all));
}

/* What two halves of a measurement differ by, as a time beside float's; at least what two sessions of
 * one and the same model do, which the halves of one do not show. */
static double noise_of(const double own[2], const double floats[2], double float_ms) {
    double part = 0;
    if (own[0] > 0 && own[1] > 0 && floats[0] > 0 && floats[1] > 0)
        part = fmax(fabs(own[0] / floats[0] - own[1] / floats[1]),
                    MIN_NOISE * fmin(own[0] / floats[0], own[1] / floats[1]));
    return part * float_ms;
}

typedef struct race {
    oq_model *models[OQ_RACE];
    oq_session *sessions[OQ_RACE + 1]; /* the first is float's */
    double ms[OQ_RACE + 1], prefill_ms[OQ_RACE + 1], halves[OQ_RACE + 1][2];
} race;

static onq_code run_race(oq_tune *t, oq_candidate *const *v, size_t n, double seconds, race *r,
                         onq_error *err) {
    double slow = 1;
    r->sessions[0] = t->beside;
    for (size_t i = 0; i < n; i++) {
        OQ_TRY(oq_tune_ensure(t, v[i], err));
        if (take_ready(t, v[i]->path, &r->models[i], &r->sessions[i + 1]))
            continue;
        OQ_TRY(oq_model_open(t->env, v[i]->path, &t->open, &r->models[i], err));
        OQ_TRY(oq_tune_session(t, r->models[i], t->n_threads, &r->sessions[i + 1], err));
    }
    const oq_clocking clocking = {.sessions = r->sessions,
                                  .ms = r->ms,
                                  .prefill_ms = r->prefill_ms,
                                  .halves = r->halves,
                                  .n = n + 1,
                                  .own_time = t->n_threads == 1,
                                  .until = t->deadline > 0 ? t->deadline - t->opened : 0,
                                  .seconds = seconds,
                                  .each = t->bare / (double)t->choose->steps.n,
                                  .slow = &slow};
    const double begin = oq_tune_now(t), longer = fmax(1, seconds / oq_tune_clock_seconds(t));
    OQ_TRY(oq_trials_clock(t->choose, &clocking, err));
    if (t->bare > 0)
        oq_tune_see_pace(t, slow);
    t->raced = fmax(t->raced, (oq_tune_now(t) - begin) / ((double)(n + 1) * longer));
    return ONQ_OK;
}

/* Times of one race can be set beside those of another, for float is in both. */
onq_code oq_tune_race(oq_tune *t, oq_candidate *const *v, size_t n, double seconds,
                      onq_error *err) {
    race r = {.ms = {0}};
    assert(n <= OQ_RACE);
    const onq_code rc = run_race(t, v, n, seconds, &r, err);
    for (size_t i = 0; i < n && rc == ONQ_OK; i++) {
        v[i]->ms = r.ms[i + 1] / r.ms[0] * t->flt->ms;
        v[i]->prefill_ms =
            r.prefill_ms[0] > 0 ? r.prefill_ms[i + 1] / r.prefill_ms[0] * t->flt->prefill_ms : 0;
        v[i]->ms_noise = noise_of(r.halves[i + 1], r.halves[0], t->flt->ms);
    }
    for (size_t i = 0; i < n; i++) {
        oq_session_close(r.sessions[i + 1]);
        oq_model_free(r.models[i]);
    }
    return rc;
}

/* What all samples take, from some of them, by the least of each of two runs. */
static onq_code run_float(oq_tune *t, onq_error *err) {
    const size_t all = t->choose->steps.n, n = all < BARE_SAMPLES ? all : BARE_SAMPLES;
    double first[BARE_SAMPLES], second[BARE_SAMPLES], sum = 0;
    if (!oq_tune_times_alone(t))
        return ONQ_OK;
    OQ_TRY(oq_trials_run_steps(t->choose, t->beside, n, first, err));
    OQ_TRY(oq_trials_run_steps(t->choose, t->beside, n, second, err));
    for (size_t i = 0; i < n; i++)
        sum += fmin(first[i], second[i]);
    t->bare = sum * (double)all / (double)n;
    OQ_TRY(oq_trials_run_steps(t->choose, t->beside, 1, first, err));
    t->least_run = first[0];
    return ONQ_OK;
}

onq_code oq_tune_clock_float(oq_tune *t, onq_error *err) {
    double slow = 1;
    OQ_TRY(run_float(t, err));
    const double begin = oq_tune_now(t);
    double halves[1][2] = {{0}};
    const oq_clocking clocking = {.sessions = &t->beside,
                                  .ms = &t->flt->ms,
                                  .prefill_ms = &t->flt->prefill_ms,
                                  .halves = halves,
                                  .n = 1,
                                  .own_time = t->n_threads == 1,
                                  .seconds = oq_tune_clock_seconds(t),
                                  .each = t->bare / (double)t->choose->steps.n,
                                  .slow = &slow};
    OQ_TRY(oq_trials_clock(t->choose, &clocking, err));
    if (t->bare > 0)
        oq_tune_see_pace(t, slow);
    t->raced = (oq_tune_now(t) - begin) / OQ_CLOCK_ROUNDS; /* one round will do */
    return ONQ_OK;
}

void oq_tune_tell(const oq_tune *t, const oq_candidate *c) {
    oq_info(t->env, "%s: %.1f dB, %.3f ms", c->label, oq_score_of(&c->score, OQ_METRIC_SQNR),
            c->ms);
}

/* Those that can be run and have no time, as many as may be open at once. */
static size_t find_untimed(const oq_tune *t, oq_candidate **v) {
    size_t n = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < t->all.n && n < OQ_RACE; i++) {
        oq_candidate *c = t->all.v[i];
        if (!c->ok || c->ms > 0)
            continue;
        bytes += c->size;
        if (n > 0 && bytes > RACE_BYTES)
            break;
        v[n++] = c;
    }
    return n;
}

onq_code oq_tune_time(oq_tune *t, onq_error *err) {
    oq_candidate *v[OQ_RACE];
    for (size_t n = find_untimed(t, v); n > 0; n = find_untimed(t, v)) {
        onq_error why = ONQ_ERROR_INIT;
        const onq_code rc = oq_tune_race(t, v, n, oq_tune_clock_seconds(t), &why);
        if (oq_tune_is_fatal(rc))
            return oq_error_give(err, rc, &why);
        for (size_t i = 0; i < n; i++) {
            if (rc != ONQ_OK || v[i]->ms <= 0) {
                v[i]->ok = false;
                v[i]->why_not = oq_arena_strdup(t->arena, why.text, strlen(why.text));
                OQ_TRY_ALLOC(v[i]->why_not != NULL, err);
            }
            if (v[i]->ok)
                oq_tune_tell(t, v[i]);
            OQ_TRY(oq_tune_remember(t, v[i], err));
        }
    }
    oq_tune_close_ready(t);
    return ONQ_OK;
}
