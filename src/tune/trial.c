/*
 * trial.c — see trial.h.
 */
#include "tune/trial.h"

#include "engine/sweep.h"

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

typedef struct filling {
    oq_trials *t;
    uint64_t memory;
} filling;

static bool has_room(void *ctx, uint64_t at) {
    const filling *f = ctx;
    (void)at;
    return f->t->all.n == 0 || f->t->arena.used < f->memory;
}

static onq_code run_truth(void *ctx, const oq_turn *turn, onq_error *err) {
    const filling *f = ctx;
    const double begin = oq_seconds();
    OQ_TRY(oq_turn_run(turn, err));
    f->t->seconds += oq_seconds() - begin;
    return ONQ_OK;
}

static onq_code keep_run(void *ctx, const oq_turn *turn, onq_error *err) {
    oq_trials *t = ((const filling *)ctx)->t;
    const oq_outputs *out = &turn->outputs[0];
    oq_trial x = {0};
    t->n_outputs = out->n;
    OQ_TRY(oq_sample_copy(&t->arena, &turn->samples[0], &x.sample, err));
    OQ_TRY(oq_datums_copy(&t->arena, out->v, out->n, &x.outputs, err));
    if (out->n > 0)
        OQ_TRY(oq_margins_add(&t->margins, &t->arena, &out->v[0], t->links[0], err));
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
    filling f = {t, memory};
    const oq_sweep sweep = {.env = truth->engine->env,
                            .model = {.source = source, .session = truth},
                            .ctx = &f,
                            .more = has_room,
                            .run = run_truth,
                            .take = keep_run,
                            .what = "float model"};
    const size_t before = t->all.n;
    OQ_TRY(oq_sweep_run(&sweep, err));
    t->left_out += oq_source_count(source) - (t->all.n - before);
    t->signal = t->all.n > 0 && t->n_outputs > 0 ? signal_of(t) : NAN;
    return ONQ_OK;
}

/* ---- scores ---- */

typedef struct scoring_run {
    const oq_trial **trials; /* that are run */
    oq_sample *samples;      /* theirs */
    oq_scoring scoring;
} scoring_run;

static onq_code add_trial(void *ctx, const oq_turn *turn, onq_error *err) {
    scoring_run *r = ctx;
    const oq_trial *x = r->trials[turn->at];
    (void)err;
    oq_scoring_add(&r->scoring, x->outputs, turn->outputs[0].v, turn->outputs[0].n, x->labels);
    return ONQ_OK;
}

/* Some of the trials, spread over all of them. */
static onq_code pick_trials(const oq_trials *t, size_t n, oq_arena *a, scoring_run *r,
                            onq_error *err) {
    r->samples = OQ_NEW_ARRAY(a, oq_sample, n + 1);
    r->trials = OQ_NEW_ARRAY(a, const oq_trial *, n + 1);
    if (r->samples == NULL || r->trials == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < n; i++) {
        r->trials[i] = &t->all.v[i * t->all.n / n];
        r->samples[i] = r->trials[i]->sample;
    }
    return ONQ_OK;
}

onq_code oq_trials_score(const oq_trials *t, oq_session *s, const oq_model *m, size_t n,
                         oq_score *out, onq_error *err) {
    oq_arena scratch;
    scoring_run r = {0};
    n = n < t->all.n ? n : t->all.n;
    oq_arena_init(&scratch, &s->engine->env->alloc);
    onq_code rc = oq_scoring_init(&r.scoring, &scratch, t->links, t->n_outputs, err);
    r.scoring.margins = t->margins.v;
    r.scoring.n_margins = t->margins.n;
    if (rc == ONQ_OK)
        rc = pick_trials(t, n, &scratch, &r, err);
    const oq_sweep sweep = {.env = s->engine->env,
                            .model = {.kept = r.samples, .n_kept = n, .session = s},
                            .ctx = &r,
                            .take = add_trial,
                            .wide = {.model = m, .memory = SCORE_MEMORY}};
    if (rc == ONQ_OK)
        rc = oq_sweep_run(&sweep, err);
    if (rc == ONQ_OK)
        oq_scoring_end(&r.scoring, out);
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
        OQ_TRY(oq_sample_run(c->sessions[at], NULL, &t->all.v[i].sample, NULL, err));
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
