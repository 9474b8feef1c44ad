/*
 * sweep.c — see sweep.h. A sample that runs alone is a view of the source's; those that run at once
 * are taken from it under a lock, copied, and run outside of it.
 */
#include "engine/sweep.h"

#include <pthread.h>

typedef struct sweeping sweeping;

/* Steps of a sequence that were read for a lane. */
typedef struct queue {
    oq_arena arena;
    OQ_VEC(oq_sample) steps;
    size_t next;
    uint64_t at; /* place of the next */
} queue;

typedef struct lane {
    sweeping *of;
    unsigned number;
    pthread_t thread;
    oq_sample *samples; /* these by model */
    oq_outputs *outputs;
    oq_session **sessions;
    queue queue;
} lane;

/* More of a sequence is not read ahead: the other lanes wait while one reads on. */
#define MAX_QUEUE ((uint64_t)64 << 20)

struct sweeping {
    const oq_sweep *s;
    oq_arena arena;
    lane lanes[OQ_FLIGHT_LANES];
    unsigned n_lanes;    /* that have their arrays */
    uint64_t total;      /* for reports: a source may not be asked while another thread reads it */
    uint64_t before;     /* resident bytes before the first sample */
    uint64_t taken;      /* place of the sample that is read next */
    bool ended;          /* there is no further sample */
    bool inside;         /* the sample that was read last is not the last step of its sequence */
    const lane *reading; /* is in the middle of a sequence that it could not read at once */
    oq_walk *walks;      /* by model, if one has a walker */
    pthread_mutex_t lock;
    pthread_cond_t moved; /* `turn` or `code` has changed */
    uint64_t turn;        /* place of the sample that is given to `take` next */
    uint64_t failed_at;   /* place of the first sample that failed */
    onq_code code;        /* its code; ONQ_OK: none has */
    onq_error error;
};

/* ---- one sample ---- */

onq_code oq_sample_run(oq_session *session, const char *path, const oq_sample *s, oq_outputs *out,
                       onq_error *err) {
    const onq_code rc = oq_session_run(session, s->inputs, s->n_inputs, out, err);
    if (rc == ONQ_OK)
        return rc;
    return path != NULL ? oq_error_in(err, rc, "%s: sample '%s'", path, s->name)
                        : oq_error_in(err, rc, "sample '%s'", s->name);
}

/* Runs a step with the states that the model gave in the step before. */
static onq_code run_step(const oq_turn *t, size_t i, onq_error *err) {
    const oq_sweep_model *m = &t->sweep->models[i];
    oq_walk *walk = &t->walks[i];
    oq_sample full;
    oq_arena arena;
    oq_arena_init(&arena, &t->sweep->env->alloc);
    onq_code rc = oq_walk_fill(walk, &t->samples[i], &arena, &full, err);
    if (rc == ONQ_OK)
        rc = oq_sample_run(t->sessions[i], m->path, &full, &t->outputs[i], err);
    if (rc == ONQ_OK)
        rc = oq_walk_take(walk, &full, t->outputs[i].v, t->outputs[i].n, err);
    oq_arena_release(&arena);
    return rc;
}

onq_code oq_turn_run(const oq_turn *t, onq_error *err) {
    const oq_sweep *s = t->sweep;
    for (size_t i = 0; i < s->n_models; i++) {
        if (s->models[i].walker != NULL)
            OQ_TRY(run_step(t, i, err));
        else
            OQ_TRY(oq_sample_run(t->sessions[i], s->models[i].path, &t->samples[i],
                                 s->take != NULL ? &t->outputs[i] : NULL, err));
    }
    return ONQ_OK;
}

static oq_turn turn_of(const lane *l, uint64_t at) {
    return (oq_turn){.sweep = l->of->s,
                     .at = at,
                     .lane = l->number,
                     .samples = l->samples,
                     .sessions = l->sessions,
                     .outputs = l->outputs,
                     .walks = l->of->walks};
}

static onq_code run(const oq_turn *t, onq_error *err) {
    const oq_sweep *s = t->sweep;
    return s->run != NULL ? s->run(s->ctx, t, err) : oq_turn_run(t, err);
}

static onq_code take(const oq_turn *t, onq_error *err) {
    const oq_sweep *s = t->sweep;
    const onq_code rc = s->take != NULL ? s->take(s->ctx, t, err) : ONQ_OK;
    if (rc == ONQ_OK)
        return rc;
    return s->models[0].path != NULL
               ? oq_error_in(err, rc, "%s: sample '%s'", s->models[0].path, t->samples[0].name)
               : oq_error_in(err, rc, "sample '%s'", t->samples[0].name);
}

/* ---- reading ---- */

/* Samples of the pass up to the end of this sweep; 0: not known. */
static uint64_t end_of(const oq_sweep *s) {
    if (s->n > 0)
        return s->from + s->n;
    return s->models[0].source != NULL ? oq_source_count(s->models[0].source) : s->models[0].n_kept;
}

static onq_code report(const sweeping *w, uint64_t at, onq_error *err) {
    const oq_sweep *s = w->s;
    const uint64_t done = s->done + at * (s->each > 0 ? s->each : 1);
    return s->what != NULL ? oq_progress(s->env, s->what, done, w->total, err) : ONQ_OK;
}

static void set_total(sweeping *w) {
    w->total = w->s->total > 0 ? w->s->total : end_of(w->s);
}

static onq_code seek(const oq_sweep *s, onq_error *err) {
    for (size_t i = 0; i < s->n_models; i++)
        if (s->models[i].source != NULL)
            OQ_TRY(oq_source_seek(s->models[i].source, s->from, err));
    return ONQ_OK;
}

static onq_code next_of(const oq_sweep *s, size_t i, uint64_t at, const oq_sample **out,
                        onq_error *err) {
    const oq_sweep_model *m = &s->models[i];
    *out = m->source == NULL && at < m->n_kept ? &m->kept[at] : NULL;
    const onq_code rc = m->source != NULL ? oq_source_next(m->source, out, err) : ONQ_OK;
    if (rc != ONQ_OK)
        return s->n_models > 1 && m->path != NULL ? oq_error_in(err, rc, "%s", m->path) : rc;
    if (*out != NULL || s->n == 0)
        return ONQ_OK;
    return oq_fail(err, ONQ_E_READ, "%s: ended after %llu of %llu samples",
                   m->source != NULL ? oq_source_text(m->source) : "samples",
                   (unsigned long long)at, (unsigned long long)end_of(s));
}

/* Reads the sample whose place is w->taken for each model, with `copies` into that arena; w->ended
 * becomes true if there is none. */
static onq_code read_sample(sweeping *w, lane *l, oq_arena *copies, onq_error *err) {
    const oq_sweep *s = w->s;
    w->ended =
        (s->n > 0 && w->taken == s->from + s->n) || (s->more != NULL && !s->more(s->ctx, w->taken));
    for (size_t i = 0; i < s->n_models && !w->ended; i++) {
        const oq_sample *x = NULL;
        OQ_TRY(next_of(s, i, w->taken, &x, err));
        w->ended = x == NULL;
        if (x != NULL && copies != NULL && s->models[i].source != NULL)
            OQ_TRY(oq_sample_copy(copies, x, &l->samples[i], err));
        else if (x != NULL)
            l->samples[i] = *x;
        w->inside = x != NULL && s->whole_sequences && !x->last;
    }
    return ONQ_OK;
}

/* ---- whole sequences ---- */

/* Reads steps up to the end of their sequence, or as many as may be read ahead. The lock is held. */
static onq_code read_sequence(sweeping *w, lane *l, onq_error *err) {
    queue *q = &l->queue;
    oq_arena_release(&q->arena);
    oq_arena_init(&q->arena, &w->s->env->alloc);
    q->steps.v = NULL;
    q->steps.n = q->steps.cap = q->next = 0;
    q->at = w->taken;
    do {
        OQ_TRY(read_sample(w, l, &q->arena, err));
        if (w->ended)
            break;
        OQ_TRY_ALLOC(OQ_PUSH(&q->arena, &q->steps, l->samples[0]), err);
        w->taken++;
    } while (w->inside && q->arena.used < MAX_QUEUE);
    w->reading = w->inside && !w->ended ? l : NULL;
    pthread_cond_broadcast(&w->moved);
    return ONQ_OK;
}

/* The next step of the lane's sequence, or the first of another; false at the end. The lock is
 * held. */
static onq_code next_step(sweeping *w, lane *l, uint64_t *at, bool *more, onq_error *err) {
    queue *q = &l->queue;
    while (q->next == q->steps.n && w->reading != NULL && w->reading != l && w->code == ONQ_OK)
        pthread_cond_wait(&w->moved, &w->lock);
    *at = w->taken;
    *more = false;
    if (w->code != ONQ_OK)
        return ONQ_OK;
    if (q->next == q->steps.n && !w->ended)
        OQ_TRY(read_sequence(w, l, err));
    if (q->next == q->steps.n)
        return ONQ_OK;
    l->samples[0] = q->steps.v[q->next++];
    *at = q->at++;
    *more = true;
    return ONQ_OK;
}

/* ---- several at once ---- */

static void note_failure(sweeping *w, uint64_t at, onq_code code, const onq_error *error) {
    if (w->code != ONQ_OK && w->failed_at <= at)
        return;
    w->code = code;
    w->failed_at = at;
    w->error = *error;
    pthread_cond_broadcast(&w->moved);
}

/* The next sample, copied, and its place; false at the end or after a failure. The lock is held. */
static bool take_next(sweeping *w, lane *l, oq_arena *a, uint64_t *at) {
    onq_error error = ONQ_ERROR_INIT;
    bool more = false;
    if (w->s->whole_sequences) {
        const onq_code rc = next_step(w, l, at, &more, &error);
        if (rc != ONQ_OK)
            note_failure(w, *at, rc, &error);
        return more && rc == ONQ_OK;
    }
    if (w->code != ONQ_OK || w->ended)
        return false;
    *at = w->taken;
    const onq_code rc = read_sample(w, l, a, &error);
    if (rc != ONQ_OK)
        note_failure(w, *at, rc, &error);
    if (rc != ONQ_OK || w->ended)
        return false;
    w->taken++;
    return true;
}

/* Waits for the sample's turn; false if none will come, because one before it has failed. The lock
 * is held. */
static bool await_turn(sweeping *w, uint64_t at) {
    while (w->turn < at && (w->code == ONQ_OK || w->failed_at > at))
        pthread_cond_wait(&w->moved, &w->lock);
    return w->turn == at && (w->code == ONQ_OK || w->failed_at > at);
}

/* Nobody else takes one until `turn` moves on, so the lock need not be held for it. */
static onq_code take_in_order(sweeping *w, const oq_turn *t, onq_error *err) {
    if (w->s->take == NULL)
        return ONQ_OK;
    pthread_mutex_lock(&w->lock);
    const bool mine = await_turn(w, t->at);
    pthread_mutex_unlock(&w->lock);
    if (!mine)
        return ONQ_OK;
    OQ_TRY(take(t, err));
    pthread_mutex_lock(&w->lock);
    w->turn++;
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
    return ONQ_OK;
}

/* Samples one after the other until there are none. */
static void fly(lane *l) {
    sweeping *w = l->of;
    for (bool more = true; more;) {
        onq_error error = ONQ_ERROR_INIT;
        onq_code rc = ONQ_OK;
        uint64_t at = 0;
        oq_arena arena;
        oq_arena_init(&arena, &w->s->env->alloc);
        pthread_mutex_lock(&w->lock);
        more = take_next(w, l, &arena, &at);
        pthread_mutex_unlock(&w->lock);
        const oq_turn t = turn_of(l, at);
        if (more && l->number == 0)
            rc = report(w, at, &error);
        if (more && rc == ONQ_OK)
            rc = run(&t, &error);
        if (more && rc == ONQ_OK)
            rc = take_in_order(w, &t, &error);
        oq_arena_release(&arena);
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

static onq_code begin_lane(sweeping *w, onq_error *err) {
    const size_t n = w->s->n_models;
    lane *l = &w->lanes[w->n_lanes];
    *l = (lane){.of = w,
                .number = w->n_lanes,
                .samples = OQ_NEW_ARRAY(&w->arena, oq_sample, n),
                .outputs = OQ_NEW_ARRAY(&w->arena, oq_outputs, n),
                .sessions = OQ_NEW_ARRAY(&w->arena, oq_session *, n)};
    OQ_TRY_ALLOC(l->samples != NULL && l->outputs != NULL && l->sessions != NULL, err);
    oq_arena_init(&l->queue.arena, &w->s->env->alloc);
    for (size_t i = 0; i < n && w->n_lanes == 0; i++)
        l->sessions[i] = w->s->models[i].session;
    w->n_lanes++;
    return ONQ_OK;
}

static onq_code fly_rest(sweeping *w, unsigned n, onq_error *err) {
    unsigned n_started = 1;
    const uint64_t end = end_of(w->s);
    assert(n <= OQ_FLIGHT_LANES);
    if (end > w->taken && n > end - w->taken)
        n = (unsigned)(end - w->taken);
    while (w->n_lanes < n)
        OQ_TRY(begin_lane(w, err));
    w->turn = w->taken;
    /* A thread that cannot be had: the others do its work. */
    for (; n_started < n; n_started++)
        if (pthread_create(&w->lanes[n_started].thread, NULL, thread_main, &w->lanes[n_started]) !=
            0)
            break;
    fly(&w->lanes[0]);
    for (unsigned i = 1; i < n_started; i++)
        pthread_join(w->lanes[i].thread, NULL);
    return w->code == ONQ_OK ? ONQ_OK : oq_error_give(err, w->code, &w->error);
}

/* Lanes whose sessions share those of the first. */
static onq_code share_lanes(sweeping *w, unsigned n, onq_error *err) {
    while (w->n_lanes < n) {
        OQ_TRY(begin_lane(w, err));
        oq_session **to = w->lanes[w->n_lanes - 1].sessions;
        for (size_t i = 0; i < w->s->n_models; i++)
            OQ_TRY(oq_session_share(w->s->models[i].session, NULL, &to[i], err));
    }
    return ONQ_OK;
}

/* How many may run at once from the next sample on. */
static onq_code ask_lanes(sweeping *w, unsigned *n, onq_error *err) {
    const oq_sweep *s = w->s;
    *n = 1;
    if (w->inside || w->walks != NULL)
        return ONQ_OK;
    if (s->lanes != NULL)
        return s->lanes(s->ctx, w->taken, n, err);
    if (s->wide.model == NULL)
        return ONQ_OK;
    if (w->taken == s->from)
        w->before = oq_flight_resident();
    if (w->taken != s->from + 1 || end_of(s) == s->from + 2)
        return ONQ_OK;
    OQ_TRY(
        oq_flight_decide(s->env, s->wide.model, s->wide.jobs, w->before, s->wide.memory, n, err));
    return share_lanes(w, *n, err);
}

/* ---- all of them ---- */

/* One after the other on this thread, until the rest runs at once or there is none. */
static onq_code sweep(sweeping *w, onq_error *err) {
    OQ_TRY(begin_lane(w, err));
    OQ_TRY(seek(w->s, err));
    set_total(w);
    for (;; w->taken++) {
        unsigned n = 1;
        if (w->s->n == 0 || w->taken < end_of(w->s))
            OQ_TRY(ask_lanes(w, &n, err));
        if (n > 1)
            return fly_rest(w, n, err);
        const oq_turn t = turn_of(&w->lanes[0], w->taken);
        OQ_TRY(read_sample(w, &w->lanes[0], NULL, err));
        if (w->ended)
            return ONQ_OK;
        OQ_TRY(report(w, t.at, err));
        OQ_TRY(run(&t, err));
        OQ_TRY(take(&t, err));
    }
}

static onq_code begin_walks(sweeping *w, onq_error *err) {
    const oq_sweep *s = w->s;
    bool any = false;
    for (size_t i = 0; i < s->n_models; i++)
        any |= s->models[i].walker != NULL;
    if (!any)
        return ONQ_OK;
    w->walks = OQ_NEW_ARRAY(&w->arena, oq_walk, s->n_models);
    OQ_TRY_ALLOC(w->walks != NULL, err);
    for (size_t i = 0; i < s->n_models; i++) {
        oq_walk_init(&w->walks[i], s->models[i].walker, &s->env->alloc);
        w->walks[i].own_states = true;
    }
    return ONQ_OK;
}

onq_code oq_sweep_run(const oq_sweep *s, onq_error *err) {
    oq_sweep own = *s;
    if (s->models == NULL) {
        own.models = &s->model;
        own.n_models = 1;
    }
    assert(own.n_models > 0 && (s->lanes == NULL || s->run != NULL));
    sweeping w = {.s = &own, .taken = s->from};
    oq_arena_init(&w.arena, &s->env->alloc);
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.moved, NULL);
    onq_code rc = begin_walks(&w, err);
    if (rc == ONQ_OK)
        rc = sweep(&w, err);
    set_total(&w);
    if (rc == ONQ_OK)
        rc = report(&w, w.taken, err);
    for (unsigned k = w.n_lanes; k > 1; k--)
        for (size_t i = 0; s->lanes == NULL && i < own.n_models; i++)
            oq_session_close(w.lanes[k - 1].sessions[i]);
    for (unsigned k = 0; k < w.n_lanes; k++)
        oq_arena_release(&w.lanes[k].queue.arena);
    for (size_t i = 0; w.walks != NULL && i < own.n_models; i++)
        oq_walk_release(&w.walks[i]);
    pthread_cond_destroy(&w.moved);
    pthread_mutex_destroy(&w.lock);
    oq_arena_release(&w.arena);
    return rc;
}
