/*
 * floor.c — what running the samples costs by itself: the runtime's session made from the file, and
 * bare Run calls, several at once. Nothing is observed and nothing is kept. bench_calibrate.py
 * measures calibration against it.
 *
 *     floor MODEL DATA [LEVEL [IN_FLIGHT [THREADS [SPIN]]]]
 *
 * LEVEL is the runtime's optimisation (0, the default: off; 99: all), IN_FLIGHT the runs at once
 * (default 1), THREADS those inside an operator (0, the default: as many as the runtime takes by
 * itself), SPIN whether they wait busily (1, the default, or 0).
 */
#include "engine/flight.h"
#include "engine/ort_private.h"
#include "onnx/model.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_RUNS   16
#define MOST_VALUES 64 /* inputs or outputs */

typedef struct floor_job {
    ort_engine *engine;
    OrtSession *session;
    oq_ios inputs, outputs;
    const char **in_names, **out_names;
} floor_job;

static onq_code run(void *ctx, unsigned lane, const oq_sample *s, onq_error *err) {
    const floor_job *j = ctx;
    const oq_ort_api *api = &j->engine->api;
    const OrtValue *in[MOST_VALUES] = {0};
    OrtValue *out[MOST_VALUES] = {0};
    ort_values made = {0};
    oq_arena arena;
    (void)lane;
    oq_arena_init(&arena, &j->engine->base.env->alloc);
    onq_code rc = ONQ_OK;
    for (size_t i = 0; rc == ONQ_OK && i < s->n_inputs; i++)
        rc = oq_ort_value_make(j->engine, &arena, &s->inputs[i], &j->inputs.v[i], &made, &in[i],
                               err);
    if (rc == ONQ_OK)
        rc = oq_ort_check(api,
                          api->Run(j->session, NULL, j->in_names, in, s->n_inputs, j->out_names,
                                   j->outputs.n, out),
                          err, "run");
    for (size_t i = 0; i < j->outputs.n; i++)
        api->ReleaseValue(out[i]);
    oq_ort_values_release(api, &made);
    oq_arena_release(&arena);
    return rc;
}

static onq_code open_session(floor_job *j, const char *path, int level, int threads, bool spin,
                             onq_error *err) {
    const oq_ort_api *api = &j->engine->api;
    OrtSessionOptions *o = NULL;
    OQ_TRY(oq_ort_check(api, api->CreateSessionOptions(&o), err, "options"));
    OrtStatus *s = api->SetSessionGraphOptimizationLevel(o, level);
    if (s == NULL)
        s = api->SetIntraOpNumThreads(o, threads);
    if (s == NULL && !spin)
        s = api->AddSessionConfigEntry(o, "session.intra_op.allow_spinning", "0");
    if (s == NULL)
        s = api->CreateSession(j->engine->ort_env, path, o, &j->session);
    api->ReleaseSessionOptions(o);
    return oq_ort_check(api, s, err, "%s", path);
}

static onq_code name_all(oq_arena *a, const oq_ios *ios, const char ***out, onq_error *err) {
    if (ios->n > MOST_VALUES)
        return oq_fail(err, ONQ_E_LIMIT, "more than %d inputs or outputs", MOST_VALUES);
    *out = OQ_NEW_ARRAY(a, const char *, ios->n + 1);
    if (*out == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < ios->n; i++)
        (*out)[i] = oq_str_cstr(a, ios->v[i].name);
    return ONQ_OK;
}

static onq_code measure(onq_env *env, int argc, char **argv, oq_arena *a, onq_error *err) {
    const int level = argc > 3 ? atoi(argv[3]) : 0, threads = argc > 5 ? atoi(argv[5]) : 0;
    const int in_flight = argc > 4 ? atoi(argv[4]) : 1;
    const bool spin = argc <= 6 || atoi(argv[6]) != 0;
    oq_engine *engine = NULL;
    oq_model *model = NULL;
    oq_source *source = NULL;
    floor_job j = {0};
    onq_code rc = ONQ_OK;
    OQ_GO(oq_ort_open(env, NULL, &engine, err));
    j.engine = (ort_engine *)engine;
    OQ_GO(oq_model_open(env, argv[1], NULL, &model, err));
    OQ_GO(oq_model_inputs(model, a, &j.inputs, err));
    OQ_GO(oq_model_outputs(model, a, &j.outputs, err));
    OQ_GO(name_all(a, &j.inputs, &j.in_names, err));
    OQ_GO(name_all(a, &j.outputs, &j.out_names, err));
    OQ_GO(oq_source_open(env, &(oq_source_options){.spec = argv[2], .model = model}, &source, err));
    OQ_GO(open_session(&j, argv[1], level, threads, spin, err));
    const oq_flight f = {.env = env,
                         .source = source,
                         .n_lanes = in_flight > 0 && in_flight < MOST_RUNS ? (unsigned)in_flight
                                                                           : MOST_RUNS,
                         .run = run,
                         .ctx = &j};
    rc = oq_flight_run(&f, OQ_FLIGHT_ALL, "running", 0, 0, err);
done:
    if (j.session != NULL)
        j.engine->api.ReleaseSession(j.session);
    oq_source_close(source);
    oq_model_free(model);
    oq_engine_close(engine);
    return rc;
}

int main(int argc, char **argv) {
    onq_error err = ONQ_ERROR_INIT;
    onq_env *env = onq_env_new(NULL);
    oq_arena a;
    if (argc < 3 || env == NULL) {
        fprintf(stderr, "usage: floor MODEL DATA [LEVEL [IN_FLIGHT [THREADS [SPIN]]]]\n");
        return 2;
    }
    oq_arena_init(&a, &env->alloc);
    const onq_code rc = measure(env, argc, argv, &a, &err);
    oq_arena_release(&a);
    if (rc != ONQ_OK)
        fprintf(stderr, "floor: %s\n", err.text);
    onq_env_free(env);
    return rc == ONQ_OK ? 0 : 1;
}
