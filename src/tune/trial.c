/*
 * trial.c — see trial.h.
 */
#include "tune/trial.h"

#include "base/pool.h"
#include "engine/flight.h"

#include <math.h>
#include <time.h>

#define HOLD_OUT     5 /* every fifth */
#define MIN_REPORTED 8
#define MAX_CLOCKED  8 /* samples that are timed */
#define MIN_ROUNDS   3
#define MAX_ROUNDS   25
#define FAR_SLOWER   2.5                   /* than the first: one round says enough */
#define SCORE_MEMORY ((uint64_t)512 << 20) /* that samples which run at once may add */

uint64_t oq_hold_out(uint64_t n) {
    if (n < 2)
        return 0;
    if (n < 2 * (uint64_t)MIN_REPORTED)
        return n < HOLD_OUT ? n : HOLD_OUT;
    return n / MIN_REPORTED < HOLD_OUT ? n / MIN_REPORTED : HOLD_OUT;
}

void oq_trials_init(oq_trials *t, const onq_allocator *alloc, const oq_link *links) {
    *t = (oq_trials){.links = links};
    oq_arena_init(&t->arena, alloc);
}

void oq_trials_release(oq_trials *t) {
    oq_arena_release(&t->arena);
    *t = (oq_trials){0};
}

static onq_code keep(oq_arena *a, const oq_datum *v, size_t n, oq_datum **out, onq_error *err) {
    *out = OQ_NEW_ARRAY(a, oq_datum, n + 1);
    if (*out == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < n; i++)
        OQ_TRY(oq_datum_copy(a, &v[i], &(*out)[i], err));
    return ONQ_OK;
}

static onq_code fill_one(oq_trials *t, const oq_sample *s, oq_session *truth, onq_error *err) {
    oq_outputs out = {0};
    oq_trial x = {.number = s->number};
    const double begin = oq_seconds();
    const onq_code rc = oq_session_run(truth, s->inputs, s->n_inputs, &out, err);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "sample '%s'", s->name);
    t->seconds += oq_seconds() - begin;
    t->n_inputs = s->n_inputs;
    t->n_outputs = out.n;
    OQ_TRY(keep(&t->arena, s->inputs, s->n_inputs, &x.inputs, err));
    OQ_TRY(keep(&t->arena, out.v, out.n, &x.outputs, err));
    if (out.n > 0)
        OQ_TRY(oq_margins_add(&t->margins, &t->arena, &out.v[0], t->links[0], err));
    return OQ_PUSH(&t->arena, &t->all, x) ? ONQ_OK : oq_fail_nomem(err);
}

static double signal_of(const oq_trials *t) {
    double sum = 0;
    uint64_t n = 0;
    for (size_t i = 0; i < t->all.n; i++)
        oq_link_power(&t->all.v[i].outputs[0], t->links[0], &sum, &n);
    return n > 0 ? sum / (double)n : NAN;
}

onq_code oq_trials_fill(oq_trials *t, oq_source *source, oq_session *truth, uint64_t memory,
                        onq_error *err) {
    const uint64_t total = oq_source_count(source);
    for (uint64_t k = 0; k < total; k++) {
        const oq_sample *s = NULL;
        if (t->all.n > 0 && t->arena.used >= memory) {
            t->left_out += total - k;
            break;
        }
        OQ_TRY(oq_source_next(source, &s, err));
        if (s == NULL)
            break;
        OQ_TRY(fill_one(t, s, truth, err));
        OQ_TRY(oq_progress(truth->engine->env, "float model", k + 1, total, err));
    }
    t->signal = t->all.n > 0 && t->n_outputs > 0 ? signal_of(t) : NAN;
    return ONQ_OK;
}

/* ---- scores ---- */

#define MAX_SLOTS (OQ_FLIGHT_LANES + 1)

typedef struct scoring_run {
    const oq_trials *t;
    size_t n; /* trials that are run, of t->all.n */
    oq_session *slots[MAX_SLOTS];
    oq_outputs made[MAX_SLOTS]; /* until the next run in that slot */
    size_t n_slots;
    bool has_first; /* the first was run to see what it takes */
    oq_scoring scoring;
} scoring_run;

static const oq_trial *trial_at(const scoring_run *r, size_t i) {
    return &r->t->all.v[i * r->t->all.n / r->n];
}

static onq_code run_trial(void *ctx, size_t i, unsigned worker, onq_error *err) {
    scoring_run *r = ctx;
    const size_t slot = i % r->n_slots;
    (void)worker;
    if (i == 0 && r->has_first)
        return ONQ_OK;
    return oq_session_run(r->slots[slot], trial_at(r, i)->inputs, r->t->n_inputs, &r->made[slot],
                          err);
}

/* In the order of the samples. */
static onq_code add_trial(void *ctx, size_t i, unsigned worker, onq_error *err) {
    scoring_run *r = ctx;
    const oq_trial *x = trial_at(r, i);
    const oq_outputs *made = &r->made[i % r->n_slots];
    (void)worker;
    (void)err;
    oq_scoring_add(&r->scoring, x->outputs, made->v, made->n, x->labels);
    return ONQ_OK;
}

/* The first shows what one takes; then as many at once as there are cores and memory for. */
static onq_code score_all(scoring_run *r, const oq_model *m, onq_error *err) {
    const onq_env *env = r->slots[0]->engine->env;
    const uint64_t before = oq_flight_resident();
    unsigned lanes = 1;
    oq_pool *pool = NULL;
    if (r->n == 0)
        return ONQ_OK;
    OQ_TRY(run_trial(r, 0, 0, err));
    r->has_first = true;
    OQ_TRY(oq_flight_decide(env, m, 0, before, SCORE_MEMORY, &lanes, err));
    if (lanes == 1) {
        for (size_t i = 0; i < r->n; i++) {
            OQ_TRY(run_trial(r, i, 0, err));
            OQ_TRY(add_trial(r, i, 0, err));
        }
        return ONQ_OK;
    }
    for (; r->n_slots <= lanes; r->n_slots++)
        OQ_TRY(oq_session_share(r->slots[0], NULL, &r->slots[r->n_slots], err));
    OQ_TRY(oq_pool_new_of(env, lanes, &pool, err));
    const onq_code rc = oq_pool_pipeline(pool, r->n, r->n_slots, run_trial, add_trial, r, err);
    oq_pool_free(pool);
    return rc;
}

onq_code oq_trials_score(const oq_trials *t, oq_session *s, const oq_model *m, size_t n,
                         oq_score *out, onq_error *err) {
    oq_arena scratch;
    scoring_run r = {.t = t, .n = n < t->all.n ? n : t->all.n, .slots = {s}, .n_slots = 1};
    oq_arena_init(&scratch, &s->engine->env->alloc);
    onq_code rc = oq_scoring_init(&r.scoring, &scratch, t->links, t->n_outputs, err);
    r.scoring.margins = t->margins.v;
    r.scoring.n_margins = t->margins.n;
    if (rc == ONQ_OK)
        rc = score_all(&r, m, err);
    if (rc == ONQ_OK)
        oq_scoring_end(&r.scoring, out);
    while (r.n_slots > 1)
        oq_session_close(r.slots[--r.n_slots]);
    oq_arena_release(&scratch);
    return rc;
}

/* ---- time ---- */

static double now(bool own_time) {
    struct timespec t;
    if (!own_time || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0)
        return oq_seconds();
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* One round of one session; least[] has the best so far of each sample. */
static onq_code clock_round(const oq_trials *t, const oq_clocking *c, size_t at, size_t n,
                            double *least, onq_error *err) {
    for (size_t i = 0; i < n; i++) {
        const double begin = now(c->own_time);
        OQ_TRY(oq_session_run(c->sessions[at], t->all.v[i].inputs, t->n_inputs, NULL, err));
        const double taken = now(c->own_time) - begin;
        least[i] = least[i] == 0 || taken < least[i] ? taken : least[i];
    }
    return ONQ_OK;
}

static double sum_of(const double *v, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i];
    return sum;
}

/* Rounds until each session had its time. least[] has n values of each session, of even rounds and
 * then of odd ones. */
static onq_code clock_rounds(const oq_trials *t, const oq_clocking *c, size_t n, double *least,
                             onq_error *err) {
    onq_env *env = c->sessions[0]->engine->env;
    const double begin = oq_seconds();
    for (size_t round = 0; round < MAX_ROUNDS; round++) {
        if (round >= MIN_ROUNDS && oq_seconds() - begin > c->seconds * (double)c->n)
            break;
        if (round == 1 && c->n == 2 && sum_of(least + 2 * n, n) > FAR_SLOWER * sum_of(least, n))
            break;
        for (size_t i = 0; i < c->n; i++)
            OQ_TRY(clock_round(t, c, i, n, least + (2 * i + round % 2) * n, err));
        OQ_TRY(oq_progress(env, "timing", round + 1, MAX_ROUNDS, err));
    }
    return ONQ_OK;
}

static double ms_of(const double *least, size_t n) {
    return 1e3 * sum_of(least, n) / (double)n;
}

onq_code oq_trials_clock(const oq_trials *t, const oq_clocking *c, onq_error *err) {
    const size_t n = t->all.n < MAX_CLOCKED ? t->all.n : MAX_CLOCKED;
    oq_arena scratch;
    if (c->n == 0)
        return ONQ_OK;
    oq_arena_init(&scratch, &c->sessions[0]->engine->env->alloc);
    double *least = OQ_NEW_ARRAY(&scratch, double, 2 * c->n * n);
    const onq_code rc = least != NULL ? clock_rounds(t, c, n, least, err) : oq_fail_nomem(err);
    for (size_t i = 0; i < c->n && rc == ONQ_OK; i++) {
        double *even = least + 2 * i * n, *odd = even + n;
        if (c->halves != NULL) {
            c->halves[i][0] = ms_of(even, n);
            c->halves[i][1] = ms_of(odd, n);
        }
        for (size_t k = 0; k < n; k++)
            even[k] = odd[k] > 0 ? fmin(even[k], odd[k]) : even[k];
        c->ms[i] = ms_of(even, n);
    }
    oq_arena_release(&scratch);
    return rc;
}
