/*
 * pool.c — a deterministic worker pool. See pool.h.
 *
 * The caller is worker 0; the others are threads that sleep between jobs. Indices are handed out in
 * order under one lock (a task is a tensor or a block of one, so the lock is not felt). In order
 * means: when index i fails, every lower one has been handed out already and will finish, so the
 * lowest failure is always found and the error does not depend on timing.
 *
 * A run is a pipeline without takes: `limit` is how far indices may be handed out just now.
 */
#include "base/pool.h"

#include "base/os.h"

#include <pthread.h>

/* What became of a made index, in a ring of `window` of them. */
enum made { MADE_NOT, MADE_OK, MADE_BAD };

struct oq_pool {
    onq_allocator alloc;
    unsigned n_workers; /* the caller included */
    unsigned n_threads; /* n_workers - 1 of them run */
    pthread_t *threads;
    size_t threads_size;
    pthread_mutex_t lock;
    pthread_cond_t work; /* for the threads: something can be handed out, or it is over */
    pthread_cond_t done; /* for the caller: an index was made */
    bool ending;

    /* the job; fn is NULL between jobs */
    oq_task fn;
    void *ctx;
    size_t n;
    size_t next;    /* to be handed out */
    size_t limit;   /* none at or past this is handed out now */
    size_t running; /* handed out and not finished */
    enum made *ring;
    size_t window; /* length of the ring, 0 in a plain run */
    size_t failed; /* lowest failed index, n when none */
    onq_code code;
    onq_error err;
};

struct seat {
    oq_pool *pool;
    unsigned worker;
};

static bool can_hand_out(const oq_pool *p) {
    return p->fn != NULL && p->next < p->limit && p->failed == p->n;
}

/* Hands out one index and runs it. The lock is held on entry and on return. */
static void run_one(oq_pool *p, unsigned worker) {
    const size_t i = p->next++;
    const oq_task fn = p->fn;
    void *ctx = p->ctx;
    p->running++;
    pthread_mutex_unlock(&p->lock);

    onq_error err = ONQ_ERROR_INIT;
    const onq_code rc = fn(ctx, i, worker, &err);

    pthread_mutex_lock(&p->lock);
    p->running--;
    if (p->ring != NULL)
        p->ring[i % p->window] = rc == ONQ_OK ? MADE_OK : MADE_BAD;
    if (rc != ONQ_OK && i < p->failed) {
        p->failed = i;
        p->code = rc;
        p->err = err;
    }
    if (p->ring != NULL || p->running == 0)
        pthread_cond_signal(&p->done);
}

static void *thread_main(void *arg) {
    const struct seat *seat = arg;
    oq_pool *p = seat->pool;
    pthread_mutex_lock(&p->lock);
    while (!p->ending)
        if (can_hand_out(p))
            run_one(p, seat->worker);
        else
            pthread_cond_wait(&p->work, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* The threads and their arguments share one allocation. */
static struct seat *seats_of(const oq_pool *p) {
    return (struct seat *)(void *)(p->threads + (p->n_workers - 1));
}

static void start_threads(oq_pool *p) {
    oq_signals was;
    oq_os_quiet(&was); /* signals go to the caller's thread */
    for (unsigned i = 0; i + 1 < p->n_workers; i++) {
        struct seat *seat = &seats_of(p)[i];
        *seat = (struct seat){p, i + 1};
        if (pthread_create(&p->threads[i], NULL, thread_main, seat) != 0)
            break; /* fewer threads do the same work */
        p->n_threads++;
    }
    oq_os_loud(&was);
}

onq_code oq_pool_new(const onq_env *env, oq_pool **out, onq_error *err) {
    return oq_pool_new_of(env, oq_env_threads(env), out, err);
}

onq_code oq_pool_new_of(const onq_env *env, unsigned n, oq_pool **out, onq_error *err) {
    assert(n > 0);
    *out = NULL;
    const onq_allocator *a = env != NULL ? &env->alloc : oq_alloc_default();
    oq_pool *p = oq_calloc(a, 1, sizeof *p);
    OQ_TRY_ALLOC(p != NULL, err);
    p->alloc = *a;
    p->n_workers = n;
    p->threads_size = (p->n_workers - 1) * (sizeof *p->threads + sizeof(struct seat));
    static_assert(sizeof(pthread_t) % _Alignof(struct seat) == 0, "seats follow threads");
    p->threads = oq_calloc(a, 1, p->threads_size);
    if (p->threads == NULL) {
        oq_free(a, p, sizeof *p);
        return oq_fail_nomem(err);
    }
    if (pthread_mutex_init(&p->lock, NULL) != 0 || pthread_cond_init(&p->work, NULL) != 0 ||
        pthread_cond_init(&p->done, NULL) != 0) {
        oq_free(a, p->threads, p->threads_size);
        oq_free(a, p, sizeof *p);
        return oq_fail_nomem(err);
    }
    start_threads(p);
    *out = p;
    return ONQ_OK;
}

void oq_pool_free(oq_pool *p) {
    if (p == NULL)
        return;
    pthread_mutex_lock(&p->lock);
    assert(p->fn == NULL);
    p->ending = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->n_threads; i++)
        pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    const onq_allocator alloc = p->alloc;
    oq_free(&alloc, p->threads, p->threads_size);
    oq_free(&alloc, p, sizeof *p);
}

unsigned oq_pool_workers(const oq_pool *p) {
    return p->n_workers;
}

/* Begins a job; takes the lock. */
static void job_begin(oq_pool *p, size_t n, oq_task fn, void *ctx) {
    pthread_mutex_lock(&p->lock);
    assert(p->fn == NULL); /* one job at a time, and none from inside a task */
    p->fn = fn;
    p->ctx = ctx;
    p->n = p->failed = p->limit = n;
    p->next = p->running = 0;
    p->ring = NULL;
    p->window = 0;
}

/* Waits for what is still running and ends the job; gives the lock back. */
static void job_end(oq_pool *p) {
    p->limit = 0;
    while (p->running != 0)
        pthread_cond_wait(&p->done, &p->lock);
    p->fn = NULL;
    p->ring = NULL;
    pthread_mutex_unlock(&p->lock);
}

static onq_code job_error(const oq_pool *p, onq_error *err) {
    return oq_error_give(err, p->code, &p->err);
}

onq_code oq_pool_run(oq_pool *p, size_t n, oq_task fn, void *ctx, onq_error *err) {
    if (n == 0)
        return ONQ_OK;
    job_begin(p, n, fn, ctx);
    if (n > 1)
        pthread_cond_broadcast(&p->work);
    while (can_hand_out(p))
        run_one(p, 0);
    job_end(p);
    return p->failed == n ? ONQ_OK : job_error(p, err);
}

/* Waits until index i is made, making it or another one meanwhile if there is one to be made.
 * The lock is held. */
static enum made await(oq_pool *p, size_t i) {
    enum made *slot = &p->ring[i % p->window];
    while (*slot == MADE_NOT)
        if (can_hand_out(p))
            run_one(p, 0);
        else
            pthread_cond_wait(&p->done, &p->lock);
    const enum made result = *slot;
    *slot = MADE_NOT;
    return result;
}

onq_code oq_pool_pipeline(oq_pool *p, size_t n, size_t window, oq_task make, oq_task take,
                          void *ctx, onq_error *err) {
    if (n == 0)
        return ONQ_OK;
    if (window == 0)
        window = 1;
    if (window > n)
        window = n;
    enum made *ring = oq_calloc(&p->alloc, window, sizeof *ring);
    OQ_TRY_ALLOC(ring != NULL, err);
    onq_code rc = ONQ_OK;
    job_begin(p, n, make, ctx);
    p->ring = ring;
    p->window = window;
    p->limit = window;
    pthread_cond_broadcast(&p->work);
    for (size_t i = 0; i < n && rc == ONQ_OK; i++) {
        if (await(p, i) == MADE_BAD) {
            rc = job_error(p, err);
            break;
        }
        pthread_mutex_unlock(&p->lock);
        rc = take(ctx, i, 0, err);
        pthread_mutex_lock(&p->lock);
        if (rc == ONQ_OK && p->limit < n) {
            p->limit++; /* the place of i in the ring and with the maker is free */
            pthread_cond_signal(&p->work);
        }
    }
    job_end(p);
    oq_free(&p->alloc, ring, window * sizeof *ring);
    return rc;
}
