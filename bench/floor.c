/*
 * floor.c — what running the samples costs by itself: the runtime's session made from the file, and
 * bare Run calls, several at once. Nothing is observed and nothing is kept. bench_calibrate.py and
 * bench_state.py measure calibration against it.
 *
 *     floor MODEL DATA [LEVEL [IN_FLIGHT [THREADS [SPIN [GENERATE]]]]]
 *
 * LEVEL is the runtime's optimisation (0, the default: off; 99: all), IN_FLIGHT the runs at once
 * (default 1), THREADS those inside an operator (0, the default: as many as the runtime takes by
 * itself), SPIN whether they wait busily (1, the default, or 0). With GENERATE the model is a
 * decoder: after each sample come so many steps, each with the token that the model prefers. States
 * stay values of the runtime and are handed on as they are, which is the cheapest way.
 */
#include "engine/ort_private.h"
#include "engine/sweep.h"
#include "onnx/model.h"
#include "samples/agreement.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_VALUES 64 /* inputs or outputs */

typedef struct floor_job {
    ort_engine *engine;
    OrtSession *session;
    oq_walker walker; /* inputs, outputs, and which of them are states */
    const char **in_names, **out_names;
    unsigned in_flight;
    int generate;
} floor_job;

/* What a run leaves: outputs, and the values of inputs that were made for it. */
typedef struct step {
    oq_arena arena;
    ort_values made;
    OrtValue *out[MOST_VALUES];
} step;

static void begin(const floor_job *j, step *s) {
    *s = (step){0};
    oq_arena_init(&s->arena, &j->engine->base.env->alloc);
}

static void drop(const floor_job *j, step *s) {
    for (size_t i = 0; i < j->walker.out.n; i++)
        j->engine->api.ReleaseValue(s->out[i]);
    oq_ort_values_release(&j->engine->api, &s->made);
    oq_arena_release(&s->arena);
    begin(j, s);
}

/* Runs inputs; those that are states come from the step before, if there is one. */
static onq_code run_once(const floor_job *j, const oq_datum *inputs, const step *before, step *s,
                         onq_error *err) {
    const oq_ort_api *api = &j->engine->api;
    const OrtValue *in[MOST_VALUES] = {0};
    const oq_carry *c = &j->walker.roles.carry;
    for (size_t i = 0; before != NULL && i < c->n; i++)
        in[c->v[i].in] = before->out[c->v[i].out];
    for (size_t i = 0; i < j->walker.in.n; i++)
        if (in[i] == NULL)
            OQ_TRY(oq_ort_value_make(j->engine, &s->arena, &inputs[i], &j->walker.in.v[i], &s->made,
                                     &in[i], err));
    return oq_ort_check(api,
                        api->Run(j->session, NULL, j->in_names, in, j->walker.in.n, j->out_names,
                                 j->walker.out.n, s->out),
                        err, "run");
}

/* ---- decoding ---- */

static onq_code make_ints(oq_arena *a, int64_t n, int64_t from, int64_t by, oq_datum *out,
                          onq_error *err) {
    int64_t *data = OQ_NEW_ARRAY(a, int64_t, (size_t)n), *dims = OQ_NEW_ARRAY(a, int64_t, 2);
    OQ_TRY_ALLOC(data != NULL && dims != NULL, err);
    for (int64_t i = 0; i < n; i++)
        data[i] = from + i * by;
    dims[0] = 1;
    dims[1] = n;
    *out = (oq_datum){.kind = OQ_DATUM_TENSOR,
                      .dtype = OQ_INT64,
                      .rank = 2,
                      .dims = dims,
                      .count = (uint64_t)n,
                      .data = data,
                      .size_bytes = 8 * (uint64_t)n};
    return ONQ_OK;
}

/* The inputs of the next step but its states. */
static onq_code next_inputs(const floor_job *j, const step *before, int64_t past, oq_arena *a,
                            oq_datum *inputs, onq_error *err) {
    const oq_language *l = &j->walker.roles.language;
    oq_datum logits;
    ort_values made = {0};
    OQ_TRY(oq_ort_value_view(j->engine, a, before->out[l->logits], &made, &logits, err));
    const uint64_t n = (uint64_t)logits.dims[logits.rank - 1];
    const uint64_t top = oq_datum_top(&logits, logits.count - n, n);
    OQ_TRY(make_ints(a, 1, (int64_t)top, 0, &inputs[l->ids], err));
    if (l->mask != OQ_NOWHERE)
        OQ_TRY(make_ints(a, past + 1, 1, 0, &inputs[l->mask], err));
    if (l->positions != OQ_NOWHERE)
        OQ_TRY(make_ints(a, 1, past, 0, &inputs[l->positions], err));
    return ONQ_OK;
}

static onq_code decode(const floor_job *j, oq_datum *inputs, onq_error *err) {
    step steps[2];
    begin(j, &steps[0]);
    begin(j, &steps[1]);
    int64_t past = inputs[j->walker.roles.language.ids].dims[1];
    onq_code rc = run_once(j, inputs, NULL, &steps[0], err);
    for (int k = 0; k < j->generate && rc == ONQ_OK; k++) {
        step *before = &steps[k % 2], *now = &steps[(k + 1) % 2];
        drop(j, now);
        rc = next_inputs(j, before, past++, &now->arena, inputs, err);
        if (rc == ONQ_OK)
            rc = run_once(j, inputs, before, now, err);
    }
    drop(j, &steps[0]);
    drop(j, &steps[1]);
    return rc;
}

static onq_code run(void *ctx, const oq_turn *t, onq_error *err) {
    const floor_job *j = ctx;
    const onq_allocator *alloc = &j->engine->base.env->alloc;
    step s;
    onq_code rc = ONQ_OK;
    begin(j, &s);
    if (j->generate > 0) {
        oq_walk walk;
        oq_sample full;
        oq_walk_init(&walk, &j->walker, alloc);
        rc = oq_walk_fill(&walk, t->samples, &s.arena, &full, err);
        if (rc == ONQ_OK)
            rc = decode(j, (oq_datum *)(uintptr_t)full.inputs, err);
        oq_walk_release(&walk);
    } else {
        rc = run_once(j, t->samples->inputs, NULL, &s, err);
    }
    drop(j, &s);
    return rc;
}

/* ---- the job ---- */

static onq_code ask_lanes(void *ctx, uint64_t at, unsigned *n, onq_error *err) {
    const floor_job *j = ctx;
    (void)at;
    (void)err;
    *n = j->in_flight;
    return ONQ_OK;
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
    OQ_TRY_ALLOC(*out != NULL, err);
    for (size_t i = 0; i < ios->n; i++)
        (*out)[i] = oq_str_cstr(a, ios->v[i].name);
    return ONQ_OK;
}

static onq_code describe(floor_job *j, const oq_model *m, oq_arena *a, onq_error *err) {
    oq_walker *w = &j->walker;
    OQ_TRY(oq_model_inputs(m, a, &w->in, err));
    OQ_TRY(oq_model_outputs(m, a, &w->out, err));
    OQ_TRY(oq_roles_find(a, &w->in, &w->out, &w->roles, err));
    if (j->generate > 0 && !(w->roles.language.is && w->roles.carry.n > 0))
        return oq_fail(err, ONQ_E_OPTION, "GENERATE is for decoders");
    OQ_TRY(name_all(a, &w->in, &j->in_names, err));
    return name_all(a, &w->out, &j->out_names, err);
}

static int argument(int argc, char **argv, int i, int otherwise) {
    return argc > i ? atoi(argv[i]) : otherwise;
}

static onq_code measure(onq_env *env, int argc, char **argv, oq_arena *a, onq_error *err) {
    oq_engine *engine = NULL;
    oq_model *model = NULL;
    oq_source *source = NULL;
    const int in_flight = argument(argc, argv, 4, 1);
    floor_job j = {.generate = argument(argc, argv, 7, 0),
                   .in_flight = in_flight > 0 && in_flight < OQ_FLIGHT_LANES ? (unsigned)in_flight
                                                                             : OQ_FLIGHT_LANES};
    onq_code rc = ONQ_OK;
    bool may_lack[MOST_VALUES] = {0};
    OQ_GO(oq_ort_open(env, NULL, &engine, err));
    j.engine = (ort_engine *)engine;
    OQ_GO(oq_model_open(env, argv[1], NULL, &model, err));
    OQ_GO(describe(&j, model, a, err));
    if (j.generate > 0)
        oq_walker_may_lack(&j.walker, may_lack);
    const oq_source_options so = {.spec = argv[2], .model = model, .may_lack = may_lack};
    OQ_GO(oq_source_open(env, &so, &source, err));
    OQ_GO(open_session(&j, argv[1], argument(argc, argv, 3, 0), argument(argc, argv, 5, 0),
                       argument(argc, argv, 6, 1) != 0, err));
    const oq_sweep sweep = {
        .env = env, .model = {.source = source}, .ctx = &j, .run = run, .lanes = ask_lanes};
    rc = oq_sweep_run(&sweep, err);
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
        fprintf(stderr,
                "usage: floor MODEL DATA [LEVEL [IN_FLIGHT [THREADS [SPIN [GENERATE]]]]]\n");
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
