/*
 * ort_workers.c — the threads of a session's pool, held back.
 *
 * The runtime cuts the work of an operator into pieces by the number of threads that its pool has,
 * and the last digits of a result can depend on the cut. Whoever finds a piece undone does it: the
 * thread that calls Run does all of them when no other comes. So a pool whose threads never start
 * gives the same bits as one whose threads do, and several runs at once, each on its own thread, do
 * not wake and disturb each other.
 *
 * A thread owns what the runtime gave it to start with. Those that never worked start when the
 * session ends, find that there is nothing to do, and free it.
 */
#include "engine/ort_private.h"

static void *thread_main(void *p) {
    const ort_worker *k = p;
    k->work(k->param);
    return NULL;
}

/* If a thread cannot be created, the others do its work. */
static void start(ort_worker *k) {
    if (!k->started && !k->ended)
        k->started = pthread_create(&k->thread, NULL, thread_main, k) == 0;
}

void oq_ort_workers_wake(ort_workers *w) {
    w->awake = true;
    for (ort_worker *k = w->first; k != NULL; k = k->next)
        start(k);
}

static const OrtCustomHandleType *create_thread(void *ctx, void (*work)(void *), void *param) {
    ort_workers *w = ctx;
    ort_worker *k = oq_arena_alloc(&w->arena, sizeof *k);
    if (k == NULL)
        return NULL; /* the runtime refuses to make the session */
    *k = (ort_worker){.of = w, .work = work, .param = param, .next = w->first};
    w->first = k;
    if (w->awake)
        start(k);
    return (const OrtCustomHandleType *)k;
}

/* The pool ends. In some releases its threads leave only when all of them are there. */
static void join_thread(const OrtCustomHandleType *thread) {
    ort_worker *k = NULL;
    memcpy(&k, &thread, sizeof k); /* ours, which the runtime handed on as constant */
    oq_ort_workers_wake(k->of);
    if (k->started)
        pthread_join(k->thread, NULL);
    k->ended = true;
}

onq_code oq_ort_workers_hold(ort_workers *w, const oq_ort_api *api, const onq_allocator *alloc,
                             OrtSessionOptions *o, onq_error *err) {
    *w = (ort_workers){0};
    oq_arena_init(&w->arena, alloc);
    OQ_TRY(oq_ort_check(api, api->SessionOptionsSetCustomCreateThreadFn(o, create_thread), err,
                        "threads"));
    OQ_TRY(
        oq_ort_check(api, api->SessionOptionsSetCustomThreadCreationOptions(o, w), err, "threads"));
    return oq_ort_check(api, api->SessionOptionsSetCustomJoinThreadFn(o, join_thread), err,
                        "threads");
}

void oq_ort_workers_release(ort_workers *w) {
    if (w->arena.alloc != NULL)
        oq_arena_release(&w->arena);
    *w = (ort_workers){0};
}
