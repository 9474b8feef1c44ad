/*
 * trial.c — see trial.h.
 */
#include "tune/trial.h"

#include "engine/sweep.h"

#include <math.h>
#include <time.h>

#define MAX_CLOCKED  8 /* samples that are timed */
#define MIN_CLOCKED  2
#define MIN_ROUNDS   3
#define MAX_ROUNDS   25
#define WARM_ROUNDS  2                     /* the first runs of a session take longer */
#define FAR_SLOWER   1.5                   /* than the first: these rounds say enough */
#define SCORE_MEMORY ((uint64_t)512 << 20) /* that samples which run at once may add */

void oq_trials_init(oq_trials *t, const onq_allocator *alloc, const oq_meaning *meaning) {
    *t = (oq_trials){.meaning = meaning};
    oq_arena_init(&t->arena, alloc);
}

void oq_trials_release(oq_trials *t) {
    oq_arena_release(&t->arena);
    *t = (oq_trials){0};
}

int64_t oq_trial_batch(const oq_trial *x) {
    return x->sample.n_inputs > 0 && x->sample.inputs[0].rank > 0 ? x->sample.inputs[0].dims[0] : 0;
}

onq_code oq_trials_divide(oq_trials *t, size_t n_parts, uint64_t salt, oq_division *out,
                          onq_error *err) {
    const size_t n = t->all.n;
    uint64_t *hashes = OQ_NEW_ARRAY(&t->arena, uint64_t, n + 1);
    uint64_t *numbers = OQ_NEW_ARRAY(&t->arena, uint64_t, n + 1);
    OQ_TRY_ALLOC(hashes != NULL && numbers != NULL, err);
    for (size_t i = 0; i < n; i++) {
        const oq_sample *s = &t->all.v[i].sample;
        /* The steps of a sequence stay together: one of them says much of the next. */
        hashes[i] = i > 0 && s->step > 0 ? hashes[i - 1] : oq_sample_hash(s);
        numbers[i] = s->number;
    }
    return oq_divide(&t->arena, hashes, numbers, n, n_parts, salt, out, err);
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

static onq_code run_float(void *ctx, const oq_turn *turn, onq_error *err) {
    const filling *f = ctx;
    const double begin = oq_seconds();
    OQ_TRY(oq_turn_run(turn, err));
    f->t->seconds += oq_seconds() - begin;
    return ONQ_OK;
}

/* The output that holds classes, else the first. */
static size_t classes_of(const oq_trials *t) {
    return t->meaning->classes < t->n_outputs ? t->meaning->classes : 0;
}

static onq_code keep_run(void *ctx, const oq_turn *turn, onq_error *err) {
    oq_trials *t = ((const filling *)ctx)->t;
    const oq_outputs *out = &turn->outputs[0];
    oq_trial x = {0};
    t->n_outputs = out->n;
    OQ_TRY(oq_sample_copy(&t->arena, &turn->samples[0], &x.sample, err));
    OQ_TRY(oq_datums_copy(&t->arena, out->v, out->n, &x.outputs, err));
    const size_t at = classes_of(t);
    if (at < out->n)
        OQ_TRY(oq_margins_add(&t->margins, &t->arena, &out->v[at], t->meaning->links[at], err));
    return OQ_PUSH(&t->arena, &t->all, x) ? ONQ_OK : oq_fail_nomem(err);
}

static double signal_of(const oq_trials *t) {
    double sum = 0;
    uint64_t n = 0;
    const size_t at = classes_of(t);
    for (size_t i = 0; i < t->all.n; i++)
        oq_link_power(&t->all.v[i].outputs[at], t->meaning->links[at], &sum, &n);
    return n > 0 ? sum / (double)n : NAN;
}

onq_code oq_trials_fill(oq_trials *t, oq_source *source, oq_session *flt, uint64_t memory,
                        onq_error *err) {
    filling f = {t, memory};
    const oq_sweep sweep = {.env = flt->engine->env,
                            .model = {.source = source, .session = flt},
                            .ctx = &f,
                            .more = has_room,
                            .run = run_float,
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
    const oq_trials *trials;
    const size_t *places;
    oq_scoring *into;
} scoring_run;

static onq_code add_trial(void *ctx, const oq_turn *turn, onq_error *err) {
    const scoring_run *r = ctx;
    const oq_trial *x = &r->trials->all.v[r->places[turn->at]];
    const oq_pair pair = {.number = x->sample.number,
                          .flt = x->outputs,
                          .quantized = turn->outputs[0].v,
                          .n_quantized = turn->outputs[0].n,
                          .inputs = x->sample.inputs,
                          .batch = oq_trial_batch(x),
                          .labels = x->labels};
    return oq_scoring_add(r->into, &pair, err);
}

onq_code oq_trials_score(const oq_trials *t, oq_session *s, const oq_model *m, const size_t *places,
                         size_t n, oq_scoring *into, onq_error *err) {
    oq_arena scratch;
    scoring_run r = {t, places, into};
    oq_arena_init(&scratch, &s->engine->env->alloc);
    oq_sample *samples = OQ_NEW_ARRAY(&scratch, oq_sample, n + 1);
    for (size_t i = 0; i < n && samples != NULL; i++)
        samples[i] = t->all.v[places[i]].sample;
    const oq_sweep sweep = {.env = s->engine->env,
                            .model = {.kept = samples, .n_kept = n, .session = s},
                            .ctx = &r,
                            .take = add_trial,
                            .wide = {.model = m, .memory = SCORE_MEMORY}};
    const onq_code rc = samples != NULL ? oq_sweep_run(&sweep, err) : oq_fail_nomem(err);
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

static double ms_of(const double *least, size_t n) {
    return 1e3 * sum_of(least, n) / (double)n;
}

/* The least of even and odd rounds, which follow each other in `even`. */
static double ms_of_both(const double *even, size_t n) {
    const double *odd = even + n;
    double sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += odd[k] > 0 ? fmin(even[k], odd[k]) : even[k];
    return 1e3 * sum / (double)n;
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
        for (size_t i = 0; i < c->n; i++)
            if (round < WARM_ROUNDS ||
                ms_of_both(least + 2 * i * n, n) <= FAR_SLOWER * ms_of_both(least, n))
                OQ_TRY(clock_round(t, c, i, n, least + (2 * i + round % 2) * n, err));
        OQ_TRY(oq_progress(env, "timing", round + 1, MAX_ROUNDS, err));
    }
    return ONQ_OK;
}

/* As many samples as have their rounds in the time that there is, by what float took for each. */
static size_t clocked(const oq_trials *t, const oq_clocking *c) {
    const double each = t->all.n > 0 ? t->seconds / (double)t->all.n : 0;
    size_t n = t->all.n < MAX_CLOCKED ? t->all.n : MAX_CLOCKED;
    while (n > MIN_CLOCKED && (double)(n * MIN_ROUNDS) * each > c->seconds)
        n--;
    return n;
}

onq_code oq_trials_clock(const oq_trials *t, const oq_clocking *c, onq_error *err) {
    const size_t n = clocked(t, c);
    oq_arena scratch;
    if (c->n == 0)
        return ONQ_OK;
    oq_arena_init(&scratch, &c->sessions[0]->engine->env->alloc);
    double *least = OQ_NEW_ARRAY(&scratch, double, 2 * c->n * n + 1);
    const onq_code rc = least != NULL ? clock_rounds(t, c, n, least, err) : oq_fail_nomem(err);
    for (size_t i = 0; i < c->n && rc == ONQ_OK; i++) {
        const double *even = least + 2 * i * n;
        if (c->halves != NULL) {
            c->halves[i][0] = ms_of(even, n);
            c->halves[i][1] = ms_of(even + n, n);
        }
        c->ms[i] = ms_of_both(even, n);
    }
    oq_arena_release(&scratch);
    return rc;
}
