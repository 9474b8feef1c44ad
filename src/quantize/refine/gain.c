/*
 * gain.c — see gain.h.
 */
#include "quantize/refine/gain.h"

#include "engine/sweep.h"
#include "samples/agreement.h"

#define MAX_SAMPLES 32
#define MAX_BYTES   ((uint64_t)256 << 20)
#define EQUAL       200.0 /* dB, of outputs that are the same */

void oq_gain_init(oq_gain *g, const oq_refine_job *job) {
    *g = (oq_gain){.job = job};
    oq_arena_init(&g->arena, &job->model->env->alloc);
}

void oq_gain_release(oq_gain *g) {
    oq_arena_release(&g->arena);
}

onq_code oq_gain_keep(oq_gain *g, const oq_outputs *out, onq_error *err) {
    oq_datum *row = NULL;
    g->bytes += oq_datums_bytes(out->v, out->n);
    if (g->flt.n >= MAX_SAMPLES || g->bytes > MAX_BYTES)
        return ONQ_OK;
    OQ_TRY(oq_datums_copy(&g->arena, out->v, out->n, &row, err));
    g->n_outputs = out->n;
    return OQ_PUSH(&g->arena, &g->flt, row) ? ONQ_OK : oq_fail_nomem(err);
}

static double decibel(const oq_agree *s) {
    const double noise = s->wrecked ? INFINITY : s->noise;
    if (!(noise > 0))
        return EQUAL;
    return s->aa > 0 ? fmin(oq_signal_to_noise(s->aa, noise), EQUAL) : -EQUAL;
}

typedef struct measuring {
    const oq_gain *g;
    oq_agree *sums; /* by output */
} measuring;

static bool is_kept(void *ctx, uint64_t at) {
    return at < ((const measuring *)ctx)->g->flt.n;
}

static onq_code add_outputs(void *ctx, const oq_turn *t, onq_error *err) {
    const measuring *m = ctx;
    const oq_outputs *out = &t->outputs[0];
    (void)err;
    for (size_t i = 0; i < out->n && i < m->g->n_outputs; i++) {
        const oq_datum *x = &m->g->flt.v[t->at][i], *y = &out->v[i];
        if (x->dtype == OQ_FLOAT && y->dtype == OQ_FLOAT)
            oq_agree_add(&m->sums[i], x, y);
    }
    return ONQ_OK;
}

static onq_code run_all(oq_gain *g, oq_session *session, oq_agree *sums, onq_error *err) {
    measuring m = {g, sums};
    const oq_sweep sweep = {.env = g->job->model->env,
                            .model = {.source = g->job->source, .session = session},
                            .ctx = &m,
                            .more = is_kept,
                            .take = add_outputs,
                            .what = "refining layers, comparing",
                            .total = g->flt.n};
    return oq_sweep_run(&sweep, err);
}

onq_code oq_gain_measure(oq_gain *g, bool *measured, double *sqnr, onq_error *err) {
    oq_session_options o = g->job->session;
    oq_session *session = NULL;
    *measured = false;
    *sqnr = EQUAL;
    oq_agree *sums = OQ_NEW_ARRAY(&g->arena, oq_agree, g->n_outputs + 1);
    OQ_TRY_ALLOC(sums != NULL, err);
    o.model = g->job->model;
    o.n_threads = OQ_THREADS_RUNTIME;
    o.level = OQ_OPT_ALL;
    o.no_spinning = true;
    OQ_TRY(oq_session_open(g->job->engine, &o, &session, err));
    const onq_code rc = run_all(g, session, sums, err);
    oq_session_close(session);
    for (size_t i = 0; i < g->n_outputs; i++) {
        if (sums[i].n == 0)
            continue;
        *measured = true;
        *sqnr = fmin(*sqnr, decibel(&sums[i]));
    }
    return rc;
}
