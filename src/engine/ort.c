/*
 * ort.c — ONNX Runtime as an engine: opening it, and opening sessions.
 *
 * The runtime's own log goes nowhere: what went wrong comes back as a status, and its warnings are
 * no concern of onq's users. Its environment is shared by all engines of a process, so no pointer
 * of ours is left in it.
 */
#include "engine/ort_private.h"
#include "onnx/graph.h"

#include <strings.h>

static void drop_log(void *ctx OQ_UNUSED, int severity OQ_UNUSED, const char *category OQ_UNUSED,
                     const char *id OQ_UNUSED, const char *place OQ_UNUSED,
                     const char *text OQ_UNUSED) {
}

/* ---- options of a session ---- */

typedef struct provider_name {
    const char *name;  /* what users write, any case, with or without "ExecutionProvider" */
    const char *given; /* what the runtime wants */
} provider_name;

static const provider_name providers[] = {
    {"CPU", "CPU"},           {"CUDA", "CUDA"},
    {"TensorRT", "TensorRT"}, {"DML", "DML"},
    {"QNN", "QNN"},           {"OpenVINO", "OpenVINO"},
    {"XNNPACK", "XNNPACK"},   {"CoreML", "CoreML"},
    {"MIGraphX", "MIGraphX"}, {"VitisAI", "VitisAI"},
    {"WebGPU", "WebGPU"},     {"Azure", "AZURE"},
    {"SNPE", "SNPE"},         {"NvTensorRtRtx", "NvTensorRtRtx"},
};

/* The runtime's spelling of a provider; the user's own when it is not known here. */
static const char *provider_given(const char *name) {
    static const char tail[] = "ExecutionProvider";
    size_t n = strlen(name);
    if (n > sizeof tail - 1 && strcasecmp(name + n - (sizeof tail - 1), tail) == 0)
        n -= sizeof tail - 1;
    for (size_t i = 0; i < OQ_COUNT(providers); i++)
        if (strlen(providers[i].name) == n && strncasecmp(name, providers[i].name, n) == 0)
            return providers[i].given;
    return name;
}

static OrtStatus *append_cuda(const oq_ort_api *api, OrtSessionOptions *o) {
    OrtCUDAProviderOptionsV2 *cuda = NULL;
    OrtStatus *s = api->CreateCUDAProviderOptions(&cuda);
    if (s == NULL)
        s = api->SessionOptionsAppendExecutionProvider_CUDA_V2(o, cuda);
    if (cuda != NULL)
        api->ReleaseCUDAProviderOptions(cuda);
    return s;
}

static OrtStatus *append_tensorrt(const oq_ort_api *api, OrtSessionOptions *o) {
    OrtTensorRTProviderOptionsV2 *trt = NULL;
    OrtStatus *s = api->CreateTensorRTProviderOptions(&trt);
    if (s == NULL)
        s = api->SessionOptionsAppendExecutionProvider_TensorRT_V2(o, trt);
    if (trt != NULL)
        api->ReleaseTensorRTProviderOptions(trt);
    return s;
}

/* " (this runtime has CPU, Azure)" into text, or nothing. */
static void list_providers(const oq_ort_api *api, char *text, size_t cap) {
    char **names = NULL;
    int n = 0;
    text[0] = '\0';
    OrtStatus *s = api->GetAvailableProviders(&names, &n);
    if (s != NULL) {
        api->ReleaseStatus(s);
        return;
    }
    size_t used = (size_t)snprintf(text, cap, "this runtime has");
    for (int i = 0; i < n && used < cap; i++) {
        const char *tail = strstr(names[i], "ExecutionProvider");
        const size_t keep = tail != NULL ? (size_t)(tail - names[i]) : strlen(names[i]);
        used += (size_t)snprintf(text + used, cap - used, "%s%.*s", i == 0 ? " " : ", ", (int)keep,
                                 names[i]);
    }
    s = api->ReleaseAvailableProviders(names, n);
    if (s != NULL)
        api->ReleaseStatus(s);
}

static onq_code add_provider(const oq_ort_api *api, OrtSessionOptions *o, const char *name,
                             onq_error *err) {
    if (name == NULL || name[0] == '\0')
        return ONQ_OK;
    const char *given = provider_given(name);
    OrtStatus *s = NULL;
    if (strcmp(given, "CPU") == 0)
        return ONQ_OK; /* always there */
    if (strcmp(given, "CUDA") == 0)
        s = append_cuda(api, o);
    else if (strcmp(given, "TensorRT") == 0)
        s = append_tensorrt(api, o);
    else
        s = api->SessionOptionsAppendExecutionProvider(o, given, NULL, NULL, 0);
    char have[256];
    list_providers(api, have, sizeof have);
    return oq_ort_check(api, s, err, "provider '%s' cannot be used, %s", name, have);
}

/* A path in the letters that the runtime takes on this system. */
typedef struct runtime_path {
    wchar_t room[OQ_PATH_MAX];
} runtime_path;

static onq_code to_runtime(const char *path, runtime_path *room, const void **out, onq_error *err) {
    *out = oq_os_runtime_path(path, room, sizeof *room);
    return *out != NULL ? ONQ_OK
                        : oq_fail(err, ONQ_E_PATH, "%s: ONNX Runtime cannot take this path", path);
}

static onq_code add_custom_ops(const oq_ort_api *api, OrtSessionOptions *o,
                               const oq_session_options *so, onq_error *err) {
    for (size_t i = 0; i < so->n_custom_ops; i++) {
        runtime_path room;
        const void *path = NULL;
        OQ_TRY(to_runtime(so->custom_ops[i], &room, &path, err));
        OQ_TRY(oq_ort_check(api, api->RegisterCustomOpsLibrary_V2(o, path), err,
                            "custom operators '%s'", so->custom_ops[i]));
    }
    return ONQ_OK;
}

/*
 * The runtime keeps one list of domains for the whole process, and two sessions that are opened at
 * once may both find that a new domain is not in it; the second to add it is refused. So a session
 * of nothing, opened under a lock, adds it before any other.
 */
static onq_code know_domain(ort_session *s, onq_error *err) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    /* A model: y = Identity(x), float. */
    static const uint8_t tiny[] = {
        0x08, 0x08,                                                                /* ir_version */
        0x3a, 0x2f,                                                                /* graph */
        0x0a, 0x10, 0x0a, 0x01, 'x',  0x12, 0x01, 'y',                             /* node */
        0x22, 0x08, 'I',  'd',  'e',  'n',  't',  'i',  't',  'y',                 /* op_type */
        0x12, 0x01, 'g',                                                           /* name */
        0x5a, 0x0b, 0x0a, 0x01, 'x',  0x12, 0x06, 0x0a, 0x04, 0x08, 1, 0x12, 0x00, /* input */
        0x62, 0x0b, 0x0a, 0x01, 'y',  0x12, 0x06, 0x0a, 0x04, 0x08, 1, 0x12, 0x00, /* output */
        0x42, 0x04, 0x0a, 0x00, 0x10, 0x0d,                                        /* opset 13 */
    };
    const oq_ort_api *api = &s->engine->api;
    OrtSessionOptions *o = NULL;
    OrtSession *handle = NULL;
    pthread_mutex_lock(&lock);
    OrtStatus *status = s->engine->domain_known ? NULL : api->CreateSessionOptions(&o);
    if (o != NULL) {
        status = api->SetIntraOpNumThreads(o, 1);
        if (status == NULL)
            status = api->AddCustomOpDomain(o, s->domain);
        if (status == NULL)
            status = api->CreateSessionFromArray(s->engine->ort_env, tiny, sizeof tiny, o, &handle);
        api->ReleaseSessionOptions(o);
    }
    if (handle != NULL)
        api->ReleaseSession(handle);
    s->engine->domain_known = status == NULL;
    pthread_mutex_unlock(&lock);
    return oq_ort_check(api, status, err, "observers");
}

static onq_code add_observer(ort_session *s, OrtSessionOptions *o, const oq_session_options *so,
                             onq_error *err) {
    const oq_ort_api *api = &s->engine->api;
    if (so->observer == NULL || so->observer->n_names == 0)
        return ONQ_OK;
    oq_ort_observe_init(&s->observe, api, &s->base.engine->env->alloc, so->observer);
    OQ_TRY(oq_ort_check(api, api->CreateCustomOpDomain(OQ_ENGINE_DOMAIN, &s->domain), err,
                        "observers"));
    const ort_observe_op *const ops[] = {&s->observe.any, &s->observe.half, &s->observe.group};
    for (size_t i = 0; i < OQ_COUNT(ops); i++)
        OQ_TRY(oq_ort_check(api, api->CustomOpDomain_Add(s->domain, &ops[i]->table), err,
                            "observers"));
    OQ_TRY(know_domain(s, err));
    return oq_ort_check(api, api->AddCustomOpDomain(o, s->domain), err, "observers");
}

static onq_code set_options(ort_session *s, OrtSessionOptions *o, const oq_session_options *so,
                            onq_error *err) {
    const oq_ort_api *api = &s->engine->api;
    unsigned threads = so->n_threads != 0 ? so->n_threads : oq_env_threads(s->base.engine->env);
    if (so->n_threads == OQ_THREADS_RUNTIME)
        threads = 0;
    OQ_TRY(oq_ort_check(api, api->SetSessionLogSeverityLevel(o, OQ_ORT_LOG_FATAL), err, "options"));
    OQ_TRY(oq_ort_check(api, api->SetIntraOpNumThreads(o, (int)threads), err, "options"));
    OQ_TRY(oq_ort_check(api, api->SetInterOpNumThreads(o, 1), err, "options"));
    OQ_TRY(oq_ort_check(api, api->SetSessionGraphOptimizationLevel(o, (int)so->level), err,
                        "optimisation level"));
    if (so->no_spinning)
        OQ_TRY(oq_ort_check(api,
                            api->AddSessionConfigEntry(o, "session.intra_op.allow_spinning", "0"),
                            err, "options"));
    if (so->no_memory_reuse) {
        OQ_TRY(oq_ort_check(api, api->DisableCpuMemArena(o), err, "options"));
        OQ_TRY(oq_ort_check(api, api->DisableMemPattern(o), err, "options"));
    }
    if (so->no_packing)
        OQ_TRY(oq_ort_check(api, api->AddSessionConfigEntry(o, "session.disable_prepacking", "1"),
                            err, "options"));
    if (so->keeps_pairs)
        OQ_TRY(oq_ort_check(api, api->AddSessionConfigEntry(o, "session.disable_quant_qdq", "1"),
                            err, "options"));
    /* Observers run on one thread. Without this the others would spin meanwhile, and take time from
     * threads that have work. */
    if (so->observer != NULL)
        OQ_TRY(oq_ort_check(api,
                            api->AddSessionConfigEntry(o, "session.intra_op.allow_spinning", "0"),
                            err, "options"));
    if (so->alone)
        OQ_TRY(oq_ort_workers_hold(&s->workers, api, &s->base.engine->env->alloc, o, err));
    if (so->save_optimized != NULL) {
        runtime_path room;
        const void *path = NULL;
        OQ_TRY(to_runtime(so->save_optimized, &room, &path, err));
        OQ_TRY(oq_ort_check(api, api->SetOptimizedModelFilePath(o, path), err,
                            "optimised model '%s'", so->save_optimized));
    }
    if (so->save_external != NULL)
        OQ_TRY(oq_ort_check(
            api,
            api->AddSessionConfigEntry(o, "session.optimized_model_external_initializers_file_name",
                                       so->save_external),
            err, "external data '%s'", so->save_external));
    OQ_TRY(add_provider(api, o, so->provider, err));
    OQ_TRY(add_custom_ops(api, o, so, err));
    return add_observer(s, o, so, err);
}

/* ---- the model ---- */

/* Initializers that only memory has: the runtime copies them, so ours can go once the session is
 * made. */
static onq_code hand_initializers(ort_session *s, OrtSessionOptions *o, oq_session_graph *g,
                                  ort_values *made, onq_error *err) {
    if (g->handed.n == 0)
        return ONQ_OK;
    const oq_ort_api *api = &s->engine->api;
    const char **names = OQ_NEW_ARRAY(&g->arena, const char *, g->handed.n);
    const OrtValue **values = OQ_NEW_ARRAY(&g->arena, const OrtValue *, g->handed.n);
    OQ_TRY_ALLOC(names != NULL && values != NULL, err);
    for (size_t i = 0; i < g->handed.n; i++) {
        const oq_handed *h = &g->handed.v[i];
        const oq_datum d = {.kind = OQ_DATUM_TENSOR,
                            .dtype = h->dtype,
                            .rank = h->rank,
                            .dims = h->dims,
                            .data = h->data.p,
                            .size_bytes = h->data.n};
        const oq_io io = {.name = oq_str_of(h->name)};
        OQ_TRY(oq_ort_value_make(s->engine, &g->arena, &d, &io, made, &values[i], err));
        names[i] = h->name;
    }
    return oq_ort_check(api, api->AddExternalInitializers(o, names, values, g->handed.n), err,
                        "initializers");
}

/* Those that lie in a file of the model: their pages come back from there if they are needed again,
 * and else would pile up, session after session. */
static void drop_handed(const oq_model *m, const oq_session_graph *g) {
    for (size_t i = 0; i < g->handed.n; i++) {
        const oq_span data = g->handed.v[i].data;
        const oq_file *file = oq_model_file_of(m, data.p);
        if (file != NULL)
            oq_file_drop(file, (uint64_t)(data.p - file->p), data.n);
    }
}

/* A file that changed under us would give the runtime other bytes than those checked. */
static onq_code check_files(const oq_session_graph *g, onq_error *err) {
    for (size_t i = 0; i < g->files.n; i++)
        OQ_TRY(oq_file_check(g->files.v[i], err));
    return ONQ_OK;
}

static onq_code create_from_graph(ort_session *s, OrtSessionOptions *o,
                                  const oq_session_options *so, onq_error *err) {
    const oq_ort_api *api = &s->engine->api;
    oq_session_graph g;
    const bool inline_all = (so->save_optimized != NULL && so->save_external == NULL) ||
                            (api->minor >= 0 && api->minor < OQ_ORT_FOLDER_FROM);
    OQ_TRY(oq_session_graph_init(&g, so, inline_all, err));
    ort_values made = {0};
    onq_code rc = ONQ_OK;
    if (g.folder != NULL)
        rc = oq_ort_check(api,
                          api->AddSessionConfigEntry(
                              o, "session.model_external_initializers_file_folder_path", g.folder),
                          err, "options");
    if (rc == ONQ_OK)
        rc = hand_initializers(s, o, &g, &made, err);
    if (rc == ONQ_OK)
        rc = oq_ort_check(
            api,
            api->CreateSessionFromArray(s->engine->ort_env, g.bytes.p, g.bytes.n, o, &s->handle),
            err, "the model was refused");
    if (rc == ONQ_OK)
        rc = check_files(&g, err);
    oq_ort_values_release(api, &made);
    drop_handed(so->model, &g);
    oq_session_graph_release(&g);
    return rc;
}

static onq_code note_external(void *ctx, oq_tensor *t, bool in_attribute OQ_UNUSED,
                              onq_error *err OQ_UNUSED) {
    *(bool *)ctx |= oq_tensor_is_external(t);
    return ONQ_OK;
}

/* True if the runtime can read the file itself, which it does when it saves the optimised model. It
 * cannot with external data: the saved model would name paths that are wrong where it is saved. */
static bool is_plain_file(const oq_session_options *so) {
    bool external = false;
    if (so->save_optimized == NULL ||
        oq_walk_tensors(so->model, note_external, &external, NULL) != ONQ_OK)
        return false;
    return !external && so->save_external == NULL && !so->model->touched &&
           so->model->file.p != NULL && so->observer == NULL;
}

static onq_code create_session(ort_session *s, const oq_session_options *so, onq_error *err) {
    const oq_ort_api *api = &s->engine->api;
    OrtSessionOptions *o = NULL;
    OQ_TRY(oq_ort_check(api, api->CreateSessionOptions(&o), err, "options"));
    onq_code rc = set_options(s, o, so, err);
    if (rc == ONQ_OK && is_plain_file(so)) {
        rc = oq_session_check_functions(so->model, err);
        runtime_path room;
        const void *path = NULL;
        if (rc == ONQ_OK)
            rc = to_runtime(so->model->path, &room, &path, err);
        if (rc == ONQ_OK)
            rc = oq_ort_check(api, api->CreateSession(s->engine->ort_env, path, o, &s->handle), err,
                              "the model was refused");
    } else if (rc == ONQ_OK) {
        rc = create_from_graph(s, o, so, err);
    }
    api->ReleaseSessionOptions(o);
    return rc;
}

/* ---- names, and room for a run ---- */

/* What one run needs for itself. */
static onq_code make_room(ort_session *s, onq_error *err) {
    s->fed_names = OQ_NEW_ARRAY(&s->arena, const char *, s->base.inputs.n + 1);
    s->in_values = OQ_NEW_ARRAY(&s->arena, const OrtValue *, s->base.inputs.n + 1);
    s->out_values = OQ_NEW_ARRAY(&s->arena, OrtValue *, s->n_fetch + 1);
    s->out_data = OQ_NEW_ARRAY(&s->arena, oq_datum, s->base.outputs.n + 1);
    return s->fed_names != NULL && s->in_values != NULL && s->out_values != NULL &&
                   s->out_data != NULL
               ? ONQ_OK
               : oq_fail_nomem(err);
}

static onq_code name_outputs(ort_session *s, const oq_session_options *so, onq_error *err) {
    oq_ios *all = &s->base.outputs;
    OQ_TRY(oq_model_outputs(so->model, &s->arena, all, err));
    const size_t n = all->n;
    s->fetch = OQ_NEW_ARRAY(&s->arena, size_t, n + 1);
    s->out_names = OQ_NEW_ARRAY(&s->arena, const char *, n + 1);
    oq_map seen;
    oq_map_init(&seen, &s->arena);
    OQ_TRY_ALLOC(s->fetch != NULL && s->out_names != NULL, err);
    for (size_t i = 0; i < n; i++) {
        const oq_str name = all->v[i].name;
        const uint32_t at = oq_map_find(&seen, name);
        s->fetch[i] = at != OQ_MAP_NONE ? at : s->n_fetch;
        if (at != OQ_MAP_NONE)
            continue;
        s->out_names[s->n_fetch] = oq_str_cstr(&s->arena, name);
        if (s->out_names[s->n_fetch] == NULL || !oq_map_put(&seen, name, (uint32_t)s->n_fetch))
            return oq_fail_nomem(err);
        s->n_fetch++;
    }
    return ONQ_OK;
}

static onq_code name_inputs(ort_session *s, const oq_session_options *so, onq_error *err) {
    OQ_TRY(oq_model_inputs(so->model, &s->arena, &s->base.inputs, err));
    const size_t n = s->base.inputs.n;
    s->in_names = OQ_NEW_ARRAY(&s->arena, const char *, n + 1);
    OQ_TRY_ALLOC(s->in_names != NULL, err);
    for (size_t i = 0; i < n; i++) {
        s->in_names[i] = oq_str_cstr(&s->arena, s->base.inputs.v[i].name);
        OQ_TRY_ALLOC(s->in_names[i] != NULL, err);
    }
    return ONQ_OK;
}

/* ---- the verbs ---- */

static void session_close(oq_session *base) {
    ort_session *s = (ort_session *)base;
    const oq_ort_api *api = &s->engine->api;
    oq_ort_run_release(s);
    if (s->handle != NULL && !s->shared)
        api->ReleaseSession(s->handle);
    oq_ort_workers_release(&s->workers);
    if (s->domain != NULL)
        api->ReleaseCustomOpDomain(s->domain);
    oq_arena_release(&s->arena);
    oq_free(&base->engine->env->alloc, s, sizeof *s);
}

static ort_session *session_new(oq_engine *e) {
    ort_session *s = oq_calloc(&e->env->alloc, 1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->engine = (ort_engine *)e;
    s->base.engine = e;
    oq_arena_init(&s->arena, &e->env->alloc);
    oq_arena_init(&s->run_arena, &e->env->alloc);
    return s;
}

static onq_code session_open(oq_engine *e, const oq_session_options *so, oq_session **out,
                             onq_error *err) {
    ort_session *s = session_new(e);
    OQ_TRY_ALLOC(s != NULL, err);
    s->most_seconds = so->most_seconds;
    onq_code rc = name_inputs(s, so, err);
    if (rc == ONQ_OK)
        rc = name_outputs(s, so, err);
    if (rc == ONQ_OK)
        rc = make_room(s, err);
    if (rc == ONQ_OK)
        rc = create_session(s, so, err);
    if (rc != ONQ_OK) {
        session_close(&s->base);
        return oq_error_in(err, rc, "%s", so->model->path);
    }
    *out = &s->base;
    return ONQ_OK;
}

static onq_code session_share(oq_session *base, const oq_observer *observer, oq_session **out,
                              onq_error *err) {
    const ort_session *of = (const ort_session *)base;
    ort_session *s = session_new(base->engine);
    OQ_TRY_ALLOC(s != NULL, err);
    s->shared = true;
    s->handle = of->handle;
    s->most_seconds = of->most_seconds;
    s->base.inputs = base->inputs;
    s->base.outputs = base->outputs;
    s->in_names = of->in_names;
    s->out_names = of->out_names;
    s->n_fetch = of->n_fetch;
    s->fetch = of->fetch;
    if (observer != NULL)
        oq_ort_observe_init(&s->observe, &s->engine->api, &base->engine->env->alloc, observer);
    const onq_code rc = make_room(s, err);
    if (rc == ONQ_OK)
        *out = &s->base;
    else
        session_close(&s->base);
    return rc;
}

static void session_wake(oq_session *base) {
    oq_ort_workers_wake(&((ort_session *)base)->workers);
}

/*
 * The runtime counts the users of its environment, but takes it down after the last one outside of
 * its lock: a thread that asks for one meanwhile is refused. So engines start and end one at a
 * time.
 */
static pthread_mutex_t environment = PTHREAD_MUTEX_INITIALIZER;

static OrtStatus *take_environment(ort_engine *e) {
    pthread_mutex_lock(&environment);
    OrtStatus *s =
        e->api.CreateEnvWithCustomLogger(drop_log, NULL, OQ_ORT_LOG_FATAL, "onq", &e->ort_env);
    pthread_mutex_unlock(&environment);
    return s;
}

static void give_environment_back(ort_engine *e) {
    pthread_mutex_lock(&environment);
    e->api.ReleaseEnv(e->ort_env);
    pthread_mutex_unlock(&environment);
}

static void engine_end(oq_engine *base) {
    ort_engine *e = (ort_engine *)base;
    if (e->cpu != NULL)
        e->api.ReleaseMemoryInfo(e->cpu);
    if (e->ort_env != NULL)
        give_environment_back(e);
    oq_arena_release(&e->arena);
    oq_free(&base->env->alloc, e, sizeof *e);
}

static const oq_engine_ops ort_ops = {
    .open = session_open,
    .run = oq_ort_run,
    .share = session_share,
    .wake = session_wake,
    .close = session_close,
    .end = engine_end,
};

static onq_code start(ort_engine *e, const char *path, onq_error *err) {
    const oq_ort_api *api = &e->api;
    OQ_TRY(oq_ort_load(&e->arena, path, &e->api, err));
    OQ_TRY(oq_ort_check(api, take_environment(e), err, "ONNX Runtime cannot start"));
    OQ_TRY(oq_ort_check(api, api->DisableTelemetryEvents(e->ort_env), err, "telemetry"));
    OQ_TRY(oq_ort_check(
        api, api->CreateCpuMemoryInfo(OQ_ORT_DEVICE_ALLOCATOR, OQ_ORT_MEM_DEFAULT, &e->cpu), err,
        "memory"));
    OQ_TRY(oq_ort_check(api, api->GetAllocatorWithDefaultOptions(&e->allocator), err, "memory"));
    e->base.name = oq_str_format(&e->arena, "ONNX Runtime %s (%s)", e->api.version, e->api.path).p;
    return e->base.name != NULL ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_ort_open(onq_env *env, const char *path, oq_engine **out, onq_error *err) {
    *out = NULL;
    ort_engine *e = oq_calloc(&env->alloc, 1, sizeof *e);
    OQ_TRY_ALLOC(e != NULL, err);
    e->base.ops = &ort_ops;
    e->base.env = env;
    oq_arena_init(&e->arena, &env->alloc);
    onq_code rc = start(e, path, err);
    if (rc != ONQ_OK) {
        engine_end(&e->base);
        return rc;
    }
    *out = &e->base;
    return ONQ_OK;
}

onq_code oq_engine_verify(oq_engine *e, oq_model *m, onq_error *err) {
    oq_session *s = NULL;
    OQ_TRY(oq_session_open(
        e, &(oq_session_options){.model = m, .level = OQ_OPT_ALL, .n_threads = 1}, &s, err));
    oq_session_close(s);
    return ONQ_OK;
}
