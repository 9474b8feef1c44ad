/*
 * ort_run.c — one run of a session: values in, Run, views out.
 */
#include "engine/ort_private.h"

#include "base/os_wait.h"

/* Values and names of the inputs; an optional without a value is not fed at all. */
static onq_code make_inputs(ort_session *s, const oq_datum *inputs, ort_values *made, size_t *n,
                            onq_error *err) {
    *n = 0;
    for (size_t i = 0; i < s->base.inputs.n; i++) {
        if (inputs[i].kind == OQ_DATUM_NONE)
            continue;
        s->fed_names[*n] = s->in_names[i];
        OQ_TRY(oq_ort_value_make(s->engine, &s->run_arena, &inputs[i], &s->base.inputs.v[i], made,
                                 &s->in_values[*n], err));
        (*n)++;
    }
    return ONQ_OK;
}

/* The values of the last run, and what was made to look at them. */
static void drop_outputs(ort_session *s) {
    const oq_ort_api *api = &s->engine->api;
    for (size_t i = 0; i < s->n_fetch; i++) {
        if (s->out_values[i] != NULL)
            api->ReleaseValue(s->out_values[i]);
        s->out_values[i] = NULL;
    }
    oq_ort_values_release(api, &s->out_items);
    s->out_items = (ort_values){0};
    oq_arena_release(&s->run_arena);
    oq_arena_init(&s->run_arena, &s->base.engine->env->alloc);
}

static onq_code view_outputs(ort_session *s, oq_outputs *out, onq_error *err) {
    for (size_t i = 0; i < s->base.outputs.n; i++) {
        OQ_TRY_IN(oq_ort_value_view(s->engine, &s->run_arena, s->out_values[s->fetch[i]],
                                    &s->out_items, &s->out_data[i], err),
                  err, "output '%.*s'", OQ_STR(s->base.outputs.v[i].name));
    }
    *out = (oq_outputs){s->out_data, s->base.outputs.n};
    return ONQ_OK;
}

/* ---- runs that may not take for ever ---- */

/* A thread that ends a run once its time is over. */
typedef struct watch {
    const oq_ort_api *api;
    OrtRunOptions *options; /* NULL: nobody watches */
    double until;           /* on the clock of oq_seconds */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool done; /* the run has ended */
    bool late;
    pthread_t thread;
} watch;

static void *wait_for_end(void *ctx) {
    watch *w = ctx;
    pthread_mutex_lock(&w->lock);
    while (!w->done && oq_os_cond_wait(&w->wake, &w->lock, w->until))
        continue;
    if (!w->done) {
        w->late = true;
        OrtStatus *status = w->api->RunOptionsSetTerminate(w->options);
        if (status != NULL)
            w->api->ReleaseStatus(status);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Where there is no thread to be had the run takes what it takes. */
static onq_code watch_begin(watch *w, const ort_session *s, onq_error *err) {
    *w = (watch){.api = &s->engine->api};
    if (s->most_seconds == 0)
        return ONQ_OK;
    OQ_TRY(oq_ort_check(w->api, w->api->CreateRunOptions(&w->options), err, "options of a run"));
    pthread_mutex_init(&w->lock, NULL);
    oq_os_cond_init(&w->wake);
    w->until = oq_seconds() + s->most_seconds;
    if (pthread_create(&w->thread, NULL, wait_for_end, w) != 0) {
        w->api->ReleaseRunOptions(w->options);
        w->options = NULL;
    }
    return ONQ_OK;
}

/* True if the run was ended. */
static bool watch_end(watch *w) {
    if (w->options == NULL)
        return false;
    pthread_mutex_lock(&w->lock);
    w->done = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    w->api->ReleaseRunOptions(w->options);
    return w->late;
}

static onq_code run_watched(ort_session *s, size_t n_fed, onq_error *err) {
    const oq_ort_api *api = &s->engine->api;
    watch w;
    OQ_TRY(watch_begin(&w, s, err));
    oq_ort_observe_begin(&s->observe);
    OrtStatus *status = api->Run(s->handle, w.options, s->fed_names, s->in_values, n_fed,
                                 s->out_names, s->n_fetch, s->out_values);
    oq_ort_observe_begin(NULL);
    const bool late = watch_end(&w);
    const onq_code rc = oq_ort_check(api, status, err, "run");
    if (rc == ONQ_OK || !late)
        return rc;
    return oq_fail(err, ONQ_E_LIMIT, "run: it takes longer than %u seconds", s->most_seconds);
}

onq_code oq_ort_run(oq_session *base, const oq_datum *inputs, size_t n_inputs, oq_outputs *out,
                    onq_error *err) {
    ort_session *s = (ort_session *)base;
    drop_outputs(s);
    if (out != NULL)
        *out = (oq_outputs){0};
    if (n_inputs != s->base.inputs.n)
        return oq_fail(err, ONQ_E_INTERNAL, "%zu inputs given, the model has %zu", n_inputs,
                       s->base.inputs.n);
    ort_values made = {0};
    s->observe.failed = false;
    size_t n_fed = 0;
    onq_code rc = make_inputs(s, inputs, &made, &n_fed, err);
    if (rc == ONQ_OK)
        rc = run_watched(s, n_fed, err);
    if (rc != ONQ_OK && s->observe.failed)
        rc = oq_error_give(err, s->observe.code, &s->observe.error);
    if (rc == ONQ_OK && out != NULL)
        rc = view_outputs(s, out, err);
    oq_ort_values_release(&s->engine->api, &made);
    return rc;
}

void oq_ort_run_release(ort_session *s) {
    if (s->out_values != NULL)
        drop_outputs(s);
    oq_arena_release(&s->run_arena);
}
