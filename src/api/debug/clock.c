/*
 * clock.c — see clock.h.
 */
#include "api/debug/clock.h"

#include "tune/trial.h"

#include <math.h>

#define CLOCKED 0.2 /* seconds for each model */

static bool same_inputs(const oq_session *a, const oq_session *b) {
    bool same = a->inputs.n == b->inputs.n;
    for (size_t i = 0; same && i < a->inputs.n; i++)
        same = oq_str_eq(a->inputs.v[i].name, b->inputs.v[i].name);
    return same;
}

static onq_code clock_sessions(oq_trials *t, const oq_sample *sample, oq_session **both, double *ms,
                               onq_error *err) {
    const oq_clocking c = {.sessions = both, .ms = ms, .n = 2, .seconds = CLOCKED};
    const oq_trial_step one = {.sample = *sample};
    if (!same_inputs(both[0], both[1]))
        return ONQ_OK;
    OQ_TRY_ALLOC(OQ_PUSH(&t->arena, &t->steps, one), err);
    return oq_trials_clock(t, &c, err);
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
