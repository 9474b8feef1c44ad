/*
 * clock.c — see clock.h.
 */
#include "api/causes/clock.h"

#include "tune/trial.h"

#include <math.h>

#define CLOCKED 0.2 /* seconds for each model, about ... */
#define TURNS   8   /* ... in as many turns: a busy moment of the machine must not outlast them */

static bool same_inputs(const oq_session *a, const oq_session *b) {
    bool same = a->inputs.n == b->inputs.n;
    for (size_t i = 0; same && i < a->inputs.n; i++)
        same = oq_str_eq(a->inputs.v[i].name, b->inputs.v[i].name);
    return same;
}

bool oq_clock_is_clear(double halves[2][2]) {
    const double one = halves[1][0] / halves[0][0], other = halves[1][1] / halves[0][1];
    return fabs(one - other) <= fmax(OQ_CLOCK_NOISE, fabs((one + other) / 2 - 1));
}

static void keep_least(double halves[2][2], double turn[2][2]) {
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < 2; k++)
            halves[i][k] = fmin(halves[i][k], turn[i][k]);
}

static onq_code clock_sessions(oq_trials *t, const oq_sample *sample, oq_session **both, double *ms,
                               onq_error *err) {
    double halves[2][2] = {{INFINITY, INFINITY}, {INFINITY, INFINITY}}, turn[2][2], both_ms[2];
    const oq_clocking c = {
        .sessions = both, .ms = both_ms, .halves = turn, .n = 2, .seconds = CLOCKED / TURNS};
    const oq_trial_step one = {.sample = *sample};
    const double until = oq_seconds() + 2 * CLOCKED;
    if (!same_inputs(both[0], both[1]))
        return ONQ_OK;
    OQ_TRY_ALLOC(OQ_PUSH(&t->arena, &t->steps, one), err);
    for (size_t i = 0; i < TURNS && (i == 0 || oq_seconds() < until); i++) {
        OQ_TRY(oq_trials_clock(t, &c, err));
        keep_least(halves, turn);
    }
    for (size_t i = 0; i < 2 && oq_clock_is_clear(halves); i++)
        ms[i] = fmin(halves[i][0], halves[i][1]);
    return ONQ_OK;
}

onq_code oq_clock_two(oq_job *job, const oq_debug_run *run, const oq_sample *sample,
                      oq_model *const models[2], double ms[2], onq_error *err) {
    oq_session_options how = run->session;
    oq_session *both[2] = {NULL, NULL};
    oq_trials t;
    onq_code rc = ONQ_OK;
    oq_trials_init(&t, &job->env->alloc, NULL);
    how.level = OQ_OPT_ALL;
    ms[0] = ms[1] = NAN;
    for (size_t i = 0; i < 2 && rc == ONQ_OK; i++) {
        how.model = models[i];
        rc = oq_session_open(run->engine, &how, &both[i], err);
    }
    if (rc == ONQ_OK)
        rc = clock_sessions(&t, sample, both, ms, err);
    oq_session_close(both[0]);
    oq_session_close(both[1]);
    oq_trials_release(&t);
    if (rc == ONQ_E_RUNTIME) { /* what the runtime refuses has no time */
        oq_error_clear(err);
        rc = ONQ_OK;
    }
    return rc;
}
