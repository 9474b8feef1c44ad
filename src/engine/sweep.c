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
    OQ_VEC(oq_sample) steps; /* of each model, side by side */
    size_t next;
    uint64_t at;       /* place of the next */
    uint64_t sequence; /* that they belong to, counted in this sweep */
} queue;

typedef struct lane {
    sweeping *of;
    unsigned number;
    pthread_t thread;
    oq_sample *samples, *full; /* these by model */
    oq_outputs *outputs;
    oq_session **sessions;
    double *seconds;
    oq_walk *walks; /* NULL: no model has a walker */
    oq_arena turn;  /* what the running sample was completed with */
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
    bool asked;          /* how many may run at once */
    bool walks;          /* a model has a walker */
    uint64_t begun;      /* sequences; those before `joined` were given to `end` */
    uint64_t joined;
    bool joining;                     /* one is given to it now */
    uint64_t over_at[OQ_SWEEP_SLOTS]; /* place of the last step of a sequence that waits for it */
    bool is_over[OQ_SWEEP_SLOTS];
    pthread_mutex_t lock;
    pthread_cond_t moved; /* `turn`, `joined` or `code` has changed */
    uint64_t turn;        /* place of the sample that is given to `take` next */
    uint64_t failed_at;   /* place of the first sample that failed */
    onq_code code;        /* its code; ONQ_OK: none has */
    onq_error error;
};

/* ---- one sample ---- */

static onq_code name_sample(const char *path, const oq_sample *s, onq_code rc, onq_error *err) {
    return path != NULL ? oq_error_in(err, rc, "%s: sample '%s'", path, s->name)
                        : oq_error_in(err, rc, "sample '%s'", s->name);
}

onq_code oq_sample_run(oq_session *session, const char *path, const oq_sample *s, oq_outputs *out,
                       onq_error *err) {
    const onq_code rc = oq_session_run(session, s->inputs, s->n_inputs, out, err);
    return rc == ONQ_OK ? rc : name_sample(path, s, rc, err);
}

/* One run, and the time it took. */
static onq_code run_full(const oq_turn *t, size_t i, onq_error *err) {
    const oq_sweep *s = t->sweep;
    const bool keeps = s->take != NULL || s->models[i].walker != NULL;
    const double start = oq_seconds();
    OQ_TRY(oq_sample_run(t->sessions[i], s->models[i].path, &t->full[i],
                         keeps ? &t->outputs[i] : NULL, err));
    t->seconds[i] = oq_seconds() - start;
    return ONQ_OK;
}

/* Runs a step with the states that the model gave in the step before. */
static onq_code run_step(const oq_turn *t, size_t i, onq_error *err) {
    oq_walk *walk = &t->walks[i];
    const oq_sweep_model *m = &t->sweep->models[i];
    if (i > 0 && t->samples[i].generated && t->sweep->models[0].walker != NULL)
        walk->ids = t->full[0].inputs[t->walks[0].of->roles.language.ids];
    onq_code rc = oq_walk_fill(walk, &t->samples[i], t->arena, &t->full[i], err);
    if (rc != ONQ_OK)
        return name_sample(m->path, &t->samples[i], rc, err);
    OQ_TRY(run_full(t, i, err));
    rc = oq_walk_take(walk, &t->full[i], t->outputs[i].v, t->outputs[i].n, err);
    return rc == ONQ_OK ? rc : name_sample(m->path, &t->samples[i], rc, err);
}

/* Runs a step with the inputs that the first model had. */
static onq_code run_forced(const oq_turn *t, size_t i, onq_error *err) {
    const oq_ios *first = &t->sessions[0]->inputs, *own = &t->sessions[i]->inputs;
    const oq_sample *of = &t->full[0];
    oq_datum *inputs = OQ_NEW_ARRAY(t->arena, oq_datum, own->n + 1);
    t->outputs[i] = (oq_outputs){0};
    if (t->samples[0].step == 0)
        return ONQ_OK;
    OQ_TRY_ALLOC(inputs != NULL, err);
    for (size_t k = 0; k < own->n; k++)
        for (size_t j = 0; j < first->n; j++)
            if (oq_str_eq(first->v[j].name, own->v[k].name))
                inputs[k] = of->inputs[j];
    t->full[i] = *of;
    t->full[i].inputs = inputs;
    t->full[i].n_inputs = own->n;
    return run_full(t, i, err);
}

onq_code oq_turn_run(const oq_turn *t, onq_error *err) {
    const oq_sweep *s = t->sweep;
    oq_arena_release(t->arena);
    oq_arena_init(t->arena, &s->env->alloc);
    for (size_t i = 0; i < s->n_models; i++) {
        if (s->models[i].forced) {
            OQ_TRY(run_forced(t, i, err));
        } else if (s->models[i].walker != NULL) {
            OQ_TRY(run_step(t, i, err));
        } else {
            t->full[i] = t->samples[i];
            OQ_TRY(run_full(t, i, err));
        }
    }
    return ONQ_OK;
}

static oq_turn turn_of(lane *l, uint64_t at) {
    return (oq_turn){.sweep = l->of->s,
                     .at = at,
                     .lane = l->number,
                     .slot = (unsigned)(l->queue.sequence % OQ_SWEEP_SLOTS),
                     .samples = l->samples,
                     .full = l->full,
                     .sessions = l->sessions,
                     .outputs = l->outputs,
                     .seconds = l->seconds,
                     .walks = l->walks,
                     .arena = &l->turn};
}

static onq_code run(const oq_turn *t, onq_error *err) {
    const oq_sweep *s = t->sweep;
    return s->run != NULL ? s->run(s->ctx, t, err) : oq_turn_run(t, err);
}

static onq_code take(const oq_turn *t, onq_error *err) {
    const oq_sweep *s = t->sweep;
    const onq_code rc = s->take != NULL ? s->take(s->ctx, t, err) : ONQ_OK;
    return rc == ONQ_OK ? rc : name_sample(s->models[0].path, &t->samples[0], rc, err);
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
        if (s->models[i].source != NULL && !s->models[i].forced)
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
        if (s->models[i].forced)
            continue;
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

/* ---- several at once ---- */

static void note_failure(sweeping *w, uint64_t at, onq_code code, const onq_error *error) {
    if (w->code != ONQ_OK && w->failed_at <= at)
        return;
    w->code = code;
    w->failed_at = at;
    w->error = *error;
    pthread_cond_broadcast(&w->moved);
}

/* ---- whole sequences ---- */

/* Reads steps up to the end of their sequence, or as many as may be read ahead. The lock is
 * held. */
static onq_code read_sequence(sweeping *w, lane *l, onq_error *err) {
    queue *q = &l->queue;
    oq_arena_release(&q->arena);
    oq_arena_init(&q->arena, &w->s->env->alloc);
    q->steps.v = NULL;
    q->steps.n = q->steps.cap = q->next = 0;
    q->at = w->taken;
    do {
        OQ_TRY(read_sample(w, l, &q->arena, err));
        for (size_t i = 0; !w->ended && i < w->s->n_models; i++)
            OQ_TRY_ALLOC(OQ_PUSH(&q->arena, &q->steps, l->samples[i]), err);
        w->taken += !w->ended;
    } while (w->inside && !w->ended && q->arena.used < MAX_QUEUE);
    w->reading = w->inside && !w->ended ? l : NULL;
    pthread_cond_broadcast(&w->moved);
    return ONQ_OK;
}

/* Takes the steps of another sequence, if there is one. The lock is held. */
static onq_code next_sequence(sweeping *w, lane *l, onq_error *err) {
    while ((w->reading != NULL || w->begun - w->joined >= OQ_SWEEP_SLOTS) && w->code == ONQ_OK)
        pthread_cond_wait(&w->moved, &w->lock);
    if (w->code != ONQ_OK || w->ended)
        return ONQ_OK;
    l->queue.sequence = w->begun++;
    OQ_TRY(read_sequence(w, l, err));
    w->begun -= l->queue.steps.n == 0;
    return ONQ_OK;
}

/* The next step of the lane's sequence, or the first of another; false at the end. A sequence goes
 * on after a failure in a later one: it may have one of its own. The lock is held. */
static onq_code next_step(sweeping *w, lane *l, uint64_t *at, bool *more, onq_error *err) {
    queue *q = &l->queue;
    const size_t n = w->s->n_models;
    *more = false;
    *at = w->taken;
    if (q->next == q->steps.n)
        OQ_TRY(w->reading == l ? read_sequence(w, l, err) : next_sequence(w, l, err));
    if (q->next == q->steps.n || (w->code != ONQ_OK && w->failed_at <= q->at))
        return ONQ_OK;
    memcpy(l->samples, &q->steps.v[q->next], n * sizeof *l->samples);
    q->next += n;
    *at = q->at++;
    *more = true;
    return ONQ_OK;
}

/* A sequence has ended: it is joined, with those after it that waited for it, or waits itself. */
static void end_sequence(sweeping *w, const lane *l, uint64_t at) {
    const unsigned own = (unsigned)(l->queue.sequence % OQ_SWEEP_SLOTS);
    pthread_mutex_lock(&w->lock);
    w->is_over[own] = true;
    w->over_at[own] = at;
    for (;;) {
        const unsigned k = (unsigned)(w->joined % OQ_SWEEP_SLOTS);
        if (w->joining || !w->is_over[k])
            break;
        w->joining = true;
        w->is_over[k] = false;
        pthread_mutex_unlock(&w->lock);
        onq_error error = ONQ_ERROR_INIT;
        const onq_code rc = w->s->end != NULL ? w->s->end(w->s->ctx, k, &error) : ONQ_OK;
        pthread_mutex_lock(&w->lock);
        if (rc != ONQ_OK)
            note_failure(w, w->over_at[k], rc, &error);
        w->joining = rc != ONQ_OK; /* nothing is joined after it */
        w->joined++;
        pthread_cond_broadcast(&w->moved);
    }
    pthread_mutex_unlock(&w->lock);
}

/* True if the step that ran was the last of its sequence. */
static bool is_last_step(sweeping *w, const lane *l) {
    pthread_mutex_lock(&w->lock);
    const bool last = l->queue.next == l->queue.steps.n && w->reading != l;
    pthread_mutex_unlock(&w->lock);
    return last;
}

/* ---- a lane ---- */

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
            rc = w->s->whole_sequences ? take(&t, &error) : take_in_order(w, &t, &error);
        if (more && rc == ONQ_OK && w->s->whole_sequences && is_last_step(w, l))
            end_sequence(w, l, at);
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
                .samples = OQ_NEW_ARRAY(&w->arena, oq_sample, 2 * n),
                .outputs = OQ_NEW_ARRAY(&w->arena, oq_outputs, n),
                .sessions = OQ_NEW_ARRAY(&w->arena, oq_session *, n),
                .seconds = OQ_NEW_ARRAY(&w->arena, double, n),
                .walks = w->walks ? OQ_NEW_ARRAY(&w->arena, oq_walk, n) : NULL};
    OQ_TRY_ALLOC(l->samples != NULL && l->outputs != NULL && l->sessions != NULL &&
                     l->seconds != NULL && (l->walks != NULL || !w->walks),
                 err);
    l->full = l->samples + n;
    oq_arena_init(&l->queue.arena, &w->s->env->alloc);
    oq_arena_init(&l->turn, &w->s->env->alloc);
    for (size_t i = 0; i < n && w->n_lanes == 0; i++)
        l->sessions[i] = w->s->models[i].session;
    for (size_t i = 0; i < n && w->walks; i++) {
        oq_walk_init(&l->walks[i], w->s->models[i].walker, &w->s->env->alloc);
        l->walks[i].own_states = true;
    }
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
    if (w->inside)
        return ONQ_OK;
    if (s->lanes != NULL)
        return s->lanes(s->ctx, w->taken, n, err);
    if (s->wide.model == NULL)
        return ONQ_OK;
    if (w->taken == s->from)
        w->before = oq_os_resident();
    if (w->taken == s->from || w->asked || end_of(s) == w->taken + 1)
        return ONQ_OK;
    w->asked = true;
    OQ_TRY(
        oq_flight_decide(s->env, s->wide.model, s->wide.jobs, w->before, s->wide.memory, n, err));
    return share_lanes(w, *n, err);
}

/* ---- all of them ---- */

/* Reads one sample and runs it on this thread. */
static onq_code run_one(sweeping *w, onq_error *err) {
    lane *l = &w->lanes[0];
    const bool begins = !w->inside;
    OQ_TRY(read_sample(w, l, NULL, err));
    if (w->ended)
        return ONQ_OK;
    if (begins)
        l->queue.sequence = w->begun++;
    const oq_turn t = turn_of(l, w->taken);
    OQ_TRY(report(w, t.at, err));
    OQ_TRY(run(&t, err));
    return take(&t, err);
}

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
        OQ_TRY(run_one(w, err));
        if (w->s->whole_sequences && !w->inside && w->begun > w->joined)
            end_sequence(w, &w->lanes[0], w->taken);
        if (w->code != ONQ_OK)
            return oq_error_give(err, w->code, &w->error);
        if (w->ended)
            return ONQ_OK;
    }
}

static void release_lane(const sweeping *w, lane *l) {
    for (size_t i = 0; w->s->lanes == NULL && l->number > 0 && i < w->s->n_models; i++)
        oq_session_close(l->sessions[i]);
    for (size_t i = 0; l->walks != NULL && i < w->s->n_models; i++)
        oq_walk_release(&l->walks[i]);
    oq_arena_release(&l->queue.arena);
    oq_arena_release(&l->turn);
}

onq_code oq_sweep_run(const oq_sweep *s, onq_error *err) {
    oq_sweep own = *s;
    if (s->models == NULL) {
        own.models = &s->model;
        own.n_models = 1;
    }
    assert(own.n_models > 0 && (s->lanes == NULL || s->run != NULL));
    sweeping w = {.s = &own, .taken = s->from};
    for (size_t i = 0; i < own.n_models; i++)
        w.walks |= own.models[i].walker != NULL;
    own.whole_sequences |= w.walks;
    oq_arena_init(&w.arena, &s->env->alloc);
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.moved, NULL);
    onq_code rc = sweep(&w, err);
    set_total(&w);
    if (rc == ONQ_OK)
        rc = report(&w, w.taken, err);
    while (w.n_lanes > 0)
        release_lane(&w, &w.lanes[--w.n_lanes]);
    pthread_cond_destroy(&w.moved);
    pthread_mutex_destroy(&w.lock);
    oq_arena_release(&w.arena);
    return rc;
}
