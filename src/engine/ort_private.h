/*
 * ort_private.h — what the files ort*.c share: the engine and its sessions.
 */
#pragma once

#include "engine/ort_api.h"
#include "engine/session_graph.h"

#include <pthread.h>

typedef struct ort_engine {
    oq_engine base; /* first: an oq_engine is one of these */
    oq_arena arena;
    oq_ort_api api;
    OrtEnv *ort_env;
    OrtMemoryInfo *cpu;
    OrtAllocator *allocator; /* the runtime's own; not to be released */
    bool domain_known;       /* of the observers, to the runtime */
} ort_engine;

/* An operator of ours: the table, and whose it is. */
typedef struct ort_observe_op {
    oq_ort_custom_op table; /* first: the runtime hands it back */
    struct ort_observe *owner;
} ort_observe_op;

/* The operators of one session that observe, and whom they call. Kernels belong to the session that
 * loaded the model, but call the observer of the session that runs on their thread. */
typedef struct ort_observe {
    ort_observe_op any, half, group;
    const oq_ort_api *api;
    const onq_allocator *alloc;
    const oq_observer *observer;
    onq_code code; /* of the callback that failed in the current run */
    onq_error error;
    bool failed;
} ort_observe;

/* The threads of a session's pool, which the runtime has us make. */
typedef struct ort_worker {
    struct ort_workers *of;
    void (*work)(void *);
    void *param;
    pthread_t thread;
    bool started, ended;
    struct ort_worker *next;
} ort_worker;

typedef struct ort_workers {
    oq_arena arena;
    ort_worker *first;
    bool awake; /* they start as they are made */
} ort_workers;

typedef OQ_VEC(OrtValue *) ort_values;

typedef struct ort_session {
    oq_session base;
    oq_arena arena; /* names, ios */
    ort_engine *engine;
    OrtSession *handle;
    bool shared; /* handle, names and ios are another session's */
    OrtCustomOpDomain *domain;
    ort_observe observe;
    ort_workers workers;
    unsigned most_seconds;              /* of a run; 0: any */
    const char **in_names, **out_names; /* C strings, as Run wants them */
    size_t n_fetch;                     /* distinct outputs */
    size_t *fetch;                      /* for each output, its place among them */
    const char **fed_names;             /* of the inputs that have a value in this run */
    const OrtValue **in_values;
    OrtValue **out_values;
    ort_values out_items; /* values made to look into sequences and maps */
    oq_datum *out_data;
    oq_arena run_arena; /* texts, dims and items of the last run's outputs */
} ort_session;

/* ort_observe.c: prepares the tables; the domain is added to the session's options by the
 * caller. */
void oq_ort_observe_init(ort_observe *o, const oq_ort_api *api, const onq_allocator *alloc,
                         const oq_observer *observer);
/* What runs on this thread from now on; NULL: nothing. */
void oq_ort_observe_begin(ort_observe *o);

/* ort_value.c: a value for a datum (its elements are borrowed, not copied), and a datum of a value
 * (a view of it; dims, texts and items in the arena; values made on the way are kept in `made`). */
onq_code oq_ort_value_make(ort_engine *e, oq_arena *a, const oq_datum *d, const oq_io *io,
                           ort_values *made, const OrtValue **out, onq_error *err);
onq_code oq_ort_value_view(ort_engine *e, oq_arena *a, OrtValue *v, ort_values *made, oq_datum *out,
                           onq_error *err);
/* ort_empty.c: a sequence of tensors without items. */
onq_code oq_ort_value_empty(ort_engine *e, oq_arena *a, oq_dtype dt, OrtValue **out,
                            onq_error *err);
void oq_ort_values_release(const oq_ort_api *api, ort_values *v);

/* ort_workers.c: the pool's threads are held back until they are woken, or the session ends. */
onq_code oq_ort_workers_hold(ort_workers *w, const oq_ort_api *api, const onq_allocator *alloc,
                             OrtSessionOptions *o, onq_error *err);
void oq_ort_workers_wake(ort_workers *w);
/* After the session has ended. */
void oq_ort_workers_release(ort_workers *w);

/* ort_run.c: a run, and letting go of what the last one left. */
onq_code oq_ort_run(oq_session *s, const oq_datum *inputs, size_t n_inputs, oq_outputs *out,
                    onq_error *err);
void oq_ort_run_release(ort_session *s);
