/*
 * gain.c — see gain.h.
 */
#include "quantize/refine/gain.h"

#include "engine/sweep.h"

#include <math.h>

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
    for (size_t i = 0; i < out->n; i++)
        if (!oq_add(g->bytes, out->v[i].size_bytes, &g->bytes))
            return oq_fail_nomem(err);
    if (g->truth.n >= MAX_SAMPLES || g->bytes > MAX_BYTES)
        return ONQ_OK;
    oq_datum *row = OQ_NEW_ARRAY(&g->arena, oq_datum, out->n + 1);
    if (row == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < out->n; i++)
        if (out->v[i].kind == OQ_DATUM_TENSOR)
            OQ_TRY(oq_datum_copy(&g->arena, &out->v[i], &row[i], err));
    g->n_outputs = out->n;
    return OQ_PUSH(&g->arena, &g->truth, row) ? ONQ_OK : oq_fail_nomem(err);
}

typedef struct energy {
    double signal, noise;
    bool any;
} energy;

static void add_output(energy *e, const oq_datum *x, const oq_datum *y) {
    if (x->kind != OQ_DATUM_TENSOR || y->kind != OQ_DATUM_TENSOR || x->dtype != OQ_FLOAT ||
        y->dtype != OQ_FLOAT || x->count != y->count)
        return;
    const float *a = x->data, *b = y->data;
    for (uint64_t i = 0; i < x->count; i++) {
        const double difference = (double)a[i] - (double)b[i];
        if (!isfinite(a[i])) /* of the float model's own making */
            continue;
        e->signal += (double)a[i] * (double)a[i];
        e->noise += isfinite(difference) ? difference * difference : INFINITY;
        e->any = true;
    }
}

static double decibel(const energy *e) {
    if (!(e->noise > 0))
        return EQUAL;
    return e->signal > 0 ? fmin(10 * log10(e->signal / e->noise), EQUAL) : -EQUAL;
}

typedef struct measuring {
    const oq_gain *g;
    energy *energies; /* by output */
} measuring;

static bool is_kept(void *ctx, uint64_t at) {
    return at < ((const measuring *)ctx)->g->truth.n;
}

static onq_code add_outputs(void *ctx, const oq_turn *t, onq_error *err) {
    const measuring *m = ctx;
    const oq_outputs *out = &t->outputs[0];
    (void)err;
    for (size_t i = 0; i < out->n && i < m->g->n_outputs; i++)
        add_output(&m->energies[i], &m->g->truth.v[t->at][i], &out->v[i]);
    return ONQ_OK;
}

static onq_code run_all(oq_gain *g, oq_session *session, energy *energies, onq_error *err) {
    measuring m = {g, energies};
    const oq_sweep sweep = {.env = g->job->model->env,
                            .model = {.source = g->job->source, .session = session},
                            .ctx = &m,
                            .more = is_kept,
                            .take = add_outputs,
                            .what = "refining layers, comparing",
                            .total = g->truth.n};
    return oq_sweep_run(&sweep, err);
}

onq_code oq_gain_measure(oq_gain *g, bool *measured, double *sqnr, onq_error *err) {
    oq_session_options o = g->job->session;
    oq_session *session = NULL;
    *measured = false;
    *sqnr = EQUAL;
    energy *energies = OQ_NEW_ARRAY(&g->arena, energy, g->n_outputs + 1);
    if (energies == NULL)
        return oq_fail_nomem(err);
    o.model = g->job->model;
    o.n_threads = OQ_THREADS_RUNTIME;
    o.level = OQ_OPT_ALL;
    o.no_spinning = true;
    OQ_TRY(oq_session_open(g->job->engine, &o, &session, err));
    const onq_code rc = run_all(g, session, energies, err);
    oq_session_close(session);
    for (size_t i = 0; i < g->n_outputs; i++) {
        if (!energies[i].any)
            continue;
        *measured = true;
        *sqnr = fmin(*sqnr, decibel(&energies[i]));
    }
    return rc;
}
