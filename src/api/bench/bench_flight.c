/*
 * bench_flight.c — see bench_flight.h.
 */
#include "api/bench/bench_flight.h"

#include "base/pool.h"
#include "engine/sweep.h"
#include "onnx/operators.h"

#define MAX_SAMPLES 64
#define MAX_BYTES   ((uint64_t)64 << 20) /* of their inputs */

typedef struct measuring {
    oq_arena arena;
    oq_sample samples[MAX_SAMPLES];
    size_t n_samples;
    oq_session *lanes[OQ_FLIGHT_LANES];
    unsigned n_lanes;
} measuring;

onq_code oq_bench_flight_open(oq_bench_flight *f, oq_engine *e, const oq_session_options *how,
                              unsigned jobs, onq_error *err) {
    oq_session_options o = *how;
    bool random = false;
    OQ_TRY(oq_model_is_random(how->model, &random, err));
    o.no_spinning = true;
    f->jobs = random ? 1 : jobs > 0 ? jobs : oq_flight_lanes(e->env, 0, 0);
    return oq_session_open(e, &o, &f->session, err);
}

void oq_bench_flight_close(oq_bench_flight *f) {
    oq_session_close(f->session);
    f->session = NULL;
}

/* The samples that are run, in memory, so that reading is not timed. */
static onq_code load(measuring *m, oq_source *source, onq_error *err) {
    uint64_t bytes = 0;
    OQ_TRY(oq_source_seek(source, 0, err));
    while (m->n_samples < MAX_SAMPLES && bytes < MAX_BYTES) {
        const oq_sample *s = NULL;
        OQ_TRY(oq_source_next(source, &s, err));
        if (s == NULL)
            break;
        OQ_TRY(oq_sample_copy(&m->arena, s, &m->samples[m->n_samples++], err));
        bytes += oq_datums_bytes(s->inputs, s->n_inputs);
    }
    return m->n_samples > 0 ? ONQ_OK : oq_fail(err, ONQ_E_INVALID, "there are no samples to run");
}

static onq_code run_one(void *ctx, size_t i, unsigned worker, onq_error *err) {
    measuring *m = ctx;
    return oq_sample_run(m->lanes[worker], NULL, &m->samples[i % m->n_samples], NULL, err);
}

/* Runs per second of `lanes` at once; the best so far stays. */
static onq_code measure(measuring *m, const onq_env *env, unsigned lanes, uint64_t runs,
                        double *best, onq_error *err) {
    oq_pool *pool = NULL;
    onq_code rc = oq_pool_new_of(env, lanes, &pool, err);
    const double start = oq_seconds();
    if (rc == ONQ_OK)
        rc = oq_pool_run(pool, (size_t)runs, run_one, m, err);
    const double rate = (double)runs / (oq_seconds() - start);
    *best = rate > *best ? rate : *best;
    oq_pool_free(pool);
    return rc;
}

onq_code oq_bench_flight_round(oq_bench_flight *f, oq_source *source, uint64_t runs,
                               onq_error *err) {
    assert(f->session != NULL && runs > 0);
    measuring m = {.n_lanes = 1};
    const onq_env *env = f->session->engine->env;
    onq_code rc = ONQ_OK;
    oq_arena_init(&m.arena, &env->alloc);
    m.lanes[0] = f->session;
    f->runs = runs > f->jobs ? runs : f->jobs;
    OQ_GO(load(&m, source, err));
    for (; m.n_lanes < f->jobs && m.n_lanes < OQ_FLIGHT_LANES; m.n_lanes++)
        OQ_GO(oq_session_share(f->session, NULL, &m.lanes[m.n_lanes], err));
    for (unsigned i = 0; i < m.n_lanes; i++) /* each lane's first run is its slowest */
        OQ_GO(run_one(&m, i, i, err));
    OQ_GO(measure(&m, env, 1, f->runs, &f->one, err));
    OQ_GO(measure(&m, env, m.n_lanes, f->runs, &f->many, err));
done:
    while (m.n_lanes > 1)
        oq_session_close(m.lanes[--m.n_lanes]);
    oq_arena_release(&m.arena);
    return rc;
}

void oq_bench_flight_json(const oq_bench_flight *f, oq_jw *w) {
    oq_jw_begin_object(w, "in_flight");
    oq_jw_uint(w, "jobs", f->jobs);
    oq_jw_uint(w, "runs", f->runs);
    oq_jw_real(w, "throughput", f->many);
    oq_jw_real(w, "throughput_of_one", f->one);
    oq_jw_real(w, "scaling", f->many / f->one);
    oq_jw_end_object(w);
}

void oq_bench_flight_text(const oq_bench_flight *f, oq_buf *out) {
    oq_buf_addf(out, " %6u %12.1f %12.1f %8.2fx\n", f->jobs, f->one, f->many, f->many / f->one);
}
