/*
 * debug_along.c — see debug_along.h.
 */
#include "api/debug/debug_along.h"

#include "api/samples.h"

#include <math.h>

static onq_code open_contender(oq_bench *b, oq_bench_contender *c, onq_error *err) {
    oq_session_options o;
    OQ_TRY(oq_job_raw_source(b->job, c->model, &c->source, &c->walker, err));
    OQ_TRY(oq_job_session(b->job, &o, err));
    o.model = c->model;
    o.level = OQ_OPT_ALL;
    o.no_spinning = true;
    return oq_session_open(b->engine, &o, &c->session, err);
}

/* The answer that has lost most over all places. */
static size_t worst_output(const oq_tally *t) {
    size_t worst = 0;
    double least = (double)INFINITY;
    for (size_t k = 0; k < t->n_outputs; k++) {
        const double db = oq_agree_sqnr(&t->outputs[k]);
        if (t->roles->states[k] || t->outputs[k].n == 0 || db >= least)
            continue;
        worst = k;
        least = db;
    }
    return worst;
}

static onq_code compare(oq_bench *b, oq_debug *d, oq_tally *tally, onq_error *err) {
    for (size_t i = 0; i < b->n; i++)
        OQ_TRY_IN(open_contender(b, &b->v[i], err), err, "%s", b->v[i].path);
    b->roles = b->v[0].walker->roles;
    OQ_TRY(oq_bench_compare(b, err));
    *tally = b->v[1].tally;
    b->v[1].tally = (oq_tally){0};
    oq_roles *roles = OQ_NEW(&b->job->arena, oq_roles);
    OQ_TRY_ALLOC(roles != NULL, err);
    *roles = b->roles;
    tally->roles = roles;
    if (tally->seen < 2)
        return ONQ_OK;
    const size_t k = worst_output(tally);
    d->along.tally = tally;
    d->along.output = k;
    const oq_str name = b->v[0].session->outputs.v[k].name;
    d->along.name = oq_str_copy(&d->arena, name);
    return d->along.name.p != NULL ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_debug_along(oq_job *job, oq_debug *d, oq_engine *engine, oq_tally *tally,
                        onq_error *err) {
    oq_bench_contender v[2] = {{.path = d->flt->path, .model = d->flt},
                               {.path = d->quantized->path, .model = d->quantized}};
    oq_bench b = {.job = job, .engine = engine, .v = v, .n = OQ_COUNT(v)};
    const oq_walker *walker = NULL;
    OQ_TRY(oq_job_walker(job, d->flt, &walker, err));
    if (walker == NULL || walker->roles.carry.n == 0)
        return ONQ_OK;
    const onq_code rc = compare(&b, d, tally, err);
    for (size_t i = 0; i < b.n; i++) {
        oq_bench_compare_close(&v[i]);
        oq_session_close(v[i].session);
        oq_source_close(v[i].source);
    }
    return rc;
}
