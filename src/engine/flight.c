/*
 * flight.c — see flight.h. Samples are taken from the source under a lock, copied, and run outside
 * of it.
 */
#include "engine/flight.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

/* More lanes than this share the memory of one machine badly. */
#define MAX_LANES 16

typedef struct flight {
    const oq_flight *f;
    uint64_t n, taken; /* samples of this flight */
    const char *what;
    uint64_t done, total;
    pthread_mutex_t lock;
    uint64_t failed_at; /* number of the first sample that failed, in the flight */
    onq_code code;      /* its code; ONQ_OK: none has */
    onq_error error;
} flight;

typedef struct lane {
    flight *of;
    unsigned number;
    pthread_t thread;
} lane;

static void note_failure(flight *w, uint64_t at, onq_code code, const onq_error *error) {
    if (w->code != ONQ_OK && w->failed_at <= at)
        return;
    w->code = code;
    w->failed_at = at;
    w->error = *error;
}

/* The next sample, copied, and its place in the flight; false at the end or after a failure. The
 * lock is held. */
static bool take(flight *w, oq_arena *a, oq_sample *out, uint64_t *at) {
    onq_error error = ONQ_ERROR_INIT;
    const oq_sample *s = NULL;
    if (w->code != ONQ_OK || w->taken == w->n)
        return false;
    *at = w->taken++;
    onq_code rc = oq_source_next(w->f->source, &s, &error);
    if (rc == ONQ_OK && s == NULL && w->n == OQ_FLIGHT_ALL) {
        w->n = w->taken = *at;
        return false;
    }
    if (rc == ONQ_OK && s == NULL)
        rc = oq_fail(&error, ONQ_E_READ, "%s: ended after %llu of %llu samples",
                     oq_source_text(w->f->source), (unsigned long long)(w->done + *at),
                     (unsigned long long)w->total);
    oq_datum *inputs = NULL;
    if (rc == ONQ_OK) {
        *out = *s;
        inputs = OQ_NEW_ARRAY(a, oq_datum, s->n_inputs + 1);
        out->name = oq_arena_strdup(a, s->name, strlen(s->name));
        rc = inputs != NULL && out->name != NULL ? ONQ_OK : oq_fail_nomem(&error);
        out->inputs = inputs;
    }
    for (size_t i = 0; rc == ONQ_OK && i < s->n_inputs; i++)
        rc = oq_datum_copy(a, &s->inputs[i], &inputs[i], &error);
    if (rc != ONQ_OK)
        note_failure(w, *at, rc, &error);
    return rc == ONQ_OK;
}

/* Samples one after the other until there are none. */
static void fly(lane *l) {
    flight *w = l->of;
    for (;;) {
        onq_error error = ONQ_ERROR_INIT;
        onq_code rc = ONQ_OK;
        oq_sample sample;
        uint64_t at = 0;
        oq_arena arena;
        oq_arena_init(&arena, &w->f->env->alloc);
        pthread_mutex_lock(&w->lock);
        const bool more = take(w, &arena, &sample, &at);
        pthread_mutex_unlock(&w->lock);
        if (more && l->number == 0)
            rc = oq_progress(w->f->env, w->what, w->done + at, w->total, &error);
        if (more && rc == ONQ_OK)
            rc = w->f->run(w->f->ctx, l->number, &sample, &error);
        oq_arena_release(&arena);
        if (!more)
            return;
        if (rc == ONQ_OK)
            continue;
        pthread_mutex_lock(&w->lock);
        note_failure(w, at, rc, &error);
        pthread_mutex_unlock(&w->lock);
    }
}

static void *thread_main(void *p) {
    fly(p);
    return NULL;
}

onq_code oq_flight_run(const oq_flight *f, uint64_t n, const char *what, uint64_t done,
                       uint64_t total, onq_error *err) {
    assert(f->n_lanes > 0);
    flight w = {.f = f, .n = n, .what = what, .done = done, .total = total};
    lane lanes[MAX_LANES];
    unsigned n_lanes = f->n_lanes < MAX_LANES ? f->n_lanes : MAX_LANES, n_started = 1;
    if (n_lanes > n)
        n_lanes = (unsigned)n;
    pthread_mutex_init(&w.lock, NULL);
    lanes[0] = (lane){.of = &w};
    for (; n_started < n_lanes; n_started++) {
        lanes[n_started] = (lane){.of = &w, .number = n_started};
        /* A thread that cannot be had: the others do its work. */
        if (pthread_create(&lanes[n_started].thread, NULL, thread_main, &lanes[n_started]) != 0)
            break;
    }
    fly(&lanes[0]);
    for (unsigned i = 1; i < n_started; i++)
        pthread_join(lanes[i].thread, NULL);
    pthread_mutex_destroy(&w.lock);
    if (w.code != ONQ_OK && err != NULL)
        *err = w.error;
    return w.code;
}

unsigned oq_flight_lanes(const onq_env *env, uint64_t one, uint64_t memory) {
    const unsigned threads = oq_env_threads(env), most = threads < MAX_LANES ? threads : MAX_LANES;
    const uint64_t more = one > 0 ? memory / one : most;
    return more + 1 < most ? (unsigned)more + 1 : most > 0 ? most : 1;
}

uint64_t oq_flight_resident(void) {
    unsigned long long pages = 0;
    const long size = sysconf(_SC_PAGESIZE);
    FILE *f = fopen("/proc/self/statm", "re");
    if (f == NULL)
        return 0;
    if (fscanf(f, "%*u %llu", &pages) != 1)
        pages = 0;
    fclose(f);
    return size > 0 ? pages * (uint64_t)size : 0;
}
