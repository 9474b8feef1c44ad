/*
 * flight.c — see flight.h. Samples are taken from the source under a lock, copied, and run outside
 * of it.
 */
#include "engine/flight.h"

#include "onnx/operators.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

typedef struct flight {
    const oq_flight *f;
    uint64_t n, taken; /* samples of this flight */
    const char *what;
    uint64_t done, total;
    pthread_mutex_t lock;
    pthread_cond_t moved; /* `turn` or `code` has changed */
    uint64_t turn;        /* the sample that is folded next */
    uint64_t failed_at;   /* number of the first sample that failed, in the flight */
    onq_code code;        /* its code; ONQ_OK: none has */
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
    pthread_cond_broadcast(&w->moved);
}

static onq_code copy_sample(oq_arena *a, const oq_sample *s, oq_sample *out, onq_error *err) {
    *out = *s;
    oq_datum *inputs = OQ_NEW_ARRAY(a, oq_datum, s->n_inputs + 1);
    out->name = oq_arena_strdup(a, s->name, strlen(s->name));
    if (inputs == NULL || out->name == NULL)
        return oq_fail_nomem(err);
    out->inputs = inputs;
    for (size_t i = 0; i < s->n_inputs; i++)
        OQ_TRY(oq_datum_copy(a, &s->inputs[i], &inputs[i], err));
    return ONQ_OK;
}

/* The next sample of one source, or of both; *more is false at the end. */
static onq_code next_sample(flight *w, uint64_t at, oq_arena *a, oq_sample out[2], bool *more,
                            onq_error *err) {
    oq_source *const from[] = {w->f->source, w->f->beside};
    for (size_t k = 0; *more && k < OQ_COUNT(from) && from[k] != NULL; k++) {
        const oq_sample *s = NULL;
        OQ_TRY(oq_source_next(from[k], &s, err));
        *more = s != NULL;
        if (s != NULL)
            OQ_TRY(copy_sample(a, s, &out[k], err));
        else if (w->n != OQ_FLIGHT_ALL)
            return oq_fail(err, ONQ_E_READ, "%s: ended after %llu of %llu samples",
                           oq_source_text(from[k]), (unsigned long long)(w->done + at),
                           (unsigned long long)w->total);
    }
    return ONQ_OK;
}

/* The next sample, copied, and its place in the flight; false at the end or after a failure. The
 * lock is held. */
static bool take(flight *w, oq_arena *a, oq_sample out[2], uint64_t *at) {
    onq_error error = ONQ_ERROR_INIT;
    bool more = true;
    if (w->code != ONQ_OK || w->taken == w->n)
        return false;
    *at = w->taken++;
    const onq_code rc = next_sample(w, *at, a, out, &more, &error);
    if (rc != ONQ_OK)
        note_failure(w, *at, rc, &error);
    else if (!more)
        w->n = w->taken = *at;
    return rc == ONQ_OK && more;
}

/* Waits for the sample's turn; false if none will come, because one before it has failed. The lock
 * is held. */
static bool await_turn(flight *w, uint64_t at) {
    while (w->turn < at && (w->code == ONQ_OK || w->failed_at > at))
        pthread_cond_wait(&w->moved, &w->lock);
    return w->turn == at && (w->code == ONQ_OK || w->failed_at > at);
}

/* Nobody else folds until `turn` moves on, so the lock need not be held for it. */
static onq_code fold(lane *l, uint64_t at, const oq_sample *s, onq_error *err) {
    flight *w = l->of;
    pthread_mutex_lock(&w->lock);
    const bool mine = await_turn(w, at);
    pthread_mutex_unlock(&w->lock);
    if (!mine)
        return ONQ_OK;
    OQ_TRY(w->f->fold(w->f->ctx, l->number, s, err));
    pthread_mutex_lock(&w->lock);
    w->turn++;
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
    return ONQ_OK;
}

/* Samples one after the other until there are none. */
static void fly(lane *l) {
    flight *w = l->of;
    for (;;) {
        onq_error error = ONQ_ERROR_INIT;
        onq_code rc = ONQ_OK;
        oq_sample sample[2];
        uint64_t at = 0;
        oq_arena arena;
        oq_arena_init(&arena, &w->f->env->alloc);
        pthread_mutex_lock(&w->lock);
        const bool more = take(w, &arena, sample, &at);
        pthread_mutex_unlock(&w->lock);
        if (more && w->f->place != NULL)
            w->f->place[l->number] = at;
        if (more && l->number == 0)
            rc = oq_progress(w->f->env, w->what, w->done + at, w->total, &error);
        if (more && rc == ONQ_OK)
            rc = w->f->run(w->f->ctx, l->number, sample, &error);
        if (more && rc == ONQ_OK && w->f->fold != NULL)
            rc = fold(l, at, sample, &error);
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
    lane lanes[OQ_FLIGHT_LANES];
    unsigned n_lanes = f->n_lanes < OQ_FLIGHT_LANES ? f->n_lanes : OQ_FLIGHT_LANES, n_started = 1;
    if (n_lanes > n)
        n_lanes = (unsigned)n;
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.moved, NULL);
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
    pthread_cond_destroy(&w.moved);
    pthread_mutex_destroy(&w.lock);
    if (w.code != ONQ_OK && err != NULL)
        *err = w.error;
    return w.code;
}

unsigned oq_flight_lanes(const onq_env *env, uint64_t one, uint64_t memory) {
    const unsigned threads = oq_env_threads(env),
                   most = threads < OQ_FLIGHT_LANES ? threads : OQ_FLIGHT_LANES;
    const uint64_t more = one > 0 ? memory / one : most;
    return more + 1 < most ? (unsigned)more + 1 : most > 0 ? most : 1;
}

onq_code oq_flight_decide(const onq_env *env, const oq_model *m, unsigned jobs, uint64_t before,
                          uint64_t memory, unsigned *lanes, onq_error *err) {
    const uint64_t now = oq_flight_resident();
    bool random = false;
    OQ_TRY(oq_model_is_random(m, &random, err));
    *lanes = jobs > 0 ? jobs : oq_flight_lanes(env, now > before ? now - before : 0, memory);
    if (random || *lanes > OQ_FLIGHT_LANES)
        *lanes = random ? 1 : OQ_FLIGHT_LANES;
    return ONQ_OK;
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
