/*
 * trial_time.c — how long models take for samples, or for a text and for each token after it.
 */
#include "base/keyed.h"
#include "engine/sweep.h"
#include "samples/sequence/seq_text.h"
#include "tune/trial.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#define MAX_CLOCKED 8 /* samples that are timed */
#define MIN_CLOCKED 2 /* of several shapes; else one is like the others */
#define MAX_ROUNDS  25
#define WARM_ROUNDS 2      /* the first runs of a session take longer */
#define FAR_SLOWER  1.5    /* than the first: these rounds say enough */
#define COARSE_STEP 100000 /* nanoseconds */
#define TEXT_ROUNDS 2      /* a text takes long, and its time need not be as exact */
#define TOKEN_RUNS  4      /* of a decoder's token, in each round */
#define MIN_TEXT    8      /* tokens */

/* The clock of a thread has steps of 10 ms and more on some systems, where small models take none. */
static bool own_clock_is_fine(void) {
    struct timespec step;
    return clock_getres(CLOCK_THREAD_CPUTIME_ID, &step) == 0 && step.tv_sec == 0 &&
           step.tv_nsec < COARSE_STEP;
}

static double now(bool own_time) {
    struct timespec t;
    if (!own_time || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0)
        return oq_seconds();
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* What each round runs, a text first where there is one: what comes after it is the time that
 * counts. */
typedef struct course {
    const oq_sample *v[MAX_CLOCKED];
    size_t times[MAX_CLOCKED]; /* in a round */
    size_t n, first;           /* first: of those that count */
} course;

static bool same_shapes(const oq_sample *a, const oq_sample *b) {
    bool same = a->n_inputs == b->n_inputs;
    for (size_t i = 0; i < a->n_inputs && same; i++)
        same = a->inputs[i].kind == b->inputs[i].kind &&
               (a->inputs[i].kind != OQ_DATUM_TENSOR ||
                oq_datum_same_dims(&a->inputs[i], &b->inputs[i]));
    return same;
}

static size_t least_clocked(const oq_trials *t) {
    for (size_t i = 1; i < t->steps.n; i++)
        if (!same_shapes(&t->steps.v[0].sample, &t->steps.v[i].sample))
            return MIN_CLOCKED;
    return 1;
}

/* As many samples as have their rounds in the time that there is, by what float took for each. */
static size_t clocked(const oq_trials *t, const oq_clocking *c) {
    const double each = c->each > 0      ? c->each
                        : t->steps.n > 0 ? t->seconds / (double)t->steps.n
                                         : 0;
    const size_t least = least_clocked(t);
    size_t n = t->steps.n < MAX_CLOCKED ? t->steps.n : MAX_CLOCKED;
    while (n > least && (double)(n * OQ_CLOCK_ROUNDS) * each > c->seconds)
        n--;
    return n;
}

/* The text and the token of a decoder; else some samples that are spread over all of them: where they
 * come in an order, those of one end take less, and steps with a long past take longer. */
static course course_of(const oq_trials *t, const oq_clocking *c) {
    if (t->decoding.length > 0)
        return (course){.v = {&t->decoding.text, &t->decoding.token},
                        .times = {1, TOKEN_RUNS},
                        .n = 2,
                        .first = 1};
    course x = {.n = clocked(t, c)};
    for (size_t i = 0; i < x.n; i++) {
        x.v[i] = &t->steps.v[(2 * i + 1) * t->steps.n / (2 * x.n)].sample;
        x.times[i] = 1;
    }
    return x;
}

/* What runs of the first session took, once they are warm: seconds, and of which sample. */
typedef struct seen_runs {
    double taken[MAX_ROUNDS * MAX_CLOCKED];
    size_t of[MAX_ROUNDS * MAX_CLOCKED];
    size_t n;
} seen_runs;

/* One round of one session, with the text or without; least[] has the best so far of each sample.
 * `all`, if not NULL, gets the first run of each. */
static onq_code clock_round(const course *x, oq_session *session, bool own_time, bool texts,
                            double *least, seen_runs *all, onq_error *err) {
    for (size_t i = texts ? 0 : x->first; i < x->n; i++)
        for (size_t k = 0; k < x->times[i]; k++) {
            const double begin = now(own_time);
            OQ_TRY(oq_sample_run(session, NULL, x->v[i], NULL, err));
            const double taken = now(own_time) - begin;
            least[i] = least[i] == 0 || taken < least[i] ? taken : least[i];
            if (all != NULL && k == 0) {
                all->taken[all->n] = taken;
                all->of[all->n++] = i;
            }
        }
    return ONQ_OK;
}

static double sum_of(const double *v, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i];
    return sum;
}

static double ms_of(const course *x, const double *least) {
    return 1e3 * sum_of(least + x->first, x->n - x->first) / (double)(x->n - x->first);
}

static double least_of_both(const double *even, size_t k, size_t n) {
    return even[n + k] > 0 ? fmin(even[k], even[n + k]) : even[k];
}

/* The least of even and odd rounds, which follow each other in `even`. */
static double ms_of_both(const course *x, const double *even) {
    double sum = 0;
    for (size_t k = x->first; k < x->n; k++)
        sum += least_of_both(even, k, x->n);
    return 1e3 * sum / (double)(x->n - x->first);
}

/* The median of how much longer runs took than the least of their sample: some are interrupted, and
 * say nothing of the others. */
static void set_slow(const oq_clocking *c, const course *x, const double *least, seen_runs *all) {
    if (c->slow == NULL)
        return;
    for (size_t i = 0; i < all->n; i++)
        all->taken[i] /= least_of_both(least, all->of[i], x->n);
    qsort(all->taken, all->n, sizeof *all->taken, oq_by_double);
    *c->slow = all->n > 0 ? all->taken[all->n / 2] : 1;
}

/* Rounds until each session had its time, by the clock that they are timed with: as many on a busy
 * machine as on a quiet one. least[] has n values of each session, of even rounds and then of odd
 * ones. */
static onq_code clock_rounds(const oq_clocking *c, const course *x, double *least, onq_error *err) {
    onq_env *env = c->sessions[0]->engine->env;
    const bool own_time = c->own_time && own_clock_is_fine();
    const double begin = now(own_time);
    seen_runs all = {.n = 0};
    for (size_t round = 0; round < MAX_ROUNDS; round++) {
        if ((round >= OQ_CLOCK_ROUNDS && now(own_time) - begin > c->seconds * (double)c->n) ||
            (round > 0 && c->until > 0 && oq_seconds() > c->until))
            break;
        for (size_t i = 0; i < c->n; i++)
            if (round < WARM_ROUNDS ||
                ms_of_both(x, least + 2 * i * x->n) <= FAR_SLOWER * ms_of_both(x, least))
                OQ_TRY(clock_round(x, c->sessions[i], own_time, round < TEXT_ROUNDS,
                                   least + (2 * i + round % 2) * x->n,
                                   i == 0 && round > 0 ? &all : NULL, err));
        OQ_TRY(oq_progress(env, "timing", round + 1, MAX_ROUNDS, err));
    }
    set_slow(c, x, least, &all);
    return ONQ_OK;
}

double oq_clock_least(double ms, double prefill_ms) {
    const size_t runs = prefill_ms > 0 ? TOKEN_RUNS : MIN_CLOCKED;
    return (OQ_CLOCK_ROUNDS * (double)runs * ms + TEXT_ROUNDS * prefill_ms) / 1e3;
}

static void take_times(const oq_clocking *c, const course *x, const double *least) {
    for (size_t i = 0; i < c->n; i++) {
        const double *even = least + 2 * i * x->n;
        if (c->halves != NULL) {
            c->halves[i][0] = ms_of(x, even);
            c->halves[i][1] = ms_of(x, even + x->n);
        }
        c->ms[i] = ms_of_both(x, even);
        if (c->prefill_ms != NULL)
            c->prefill_ms[i] = x->first > 0 ? 1e3 * least_of_both(even, 0, x->n) : 0;
    }
}

onq_code oq_trials_clock(const oq_trials *t, const oq_clocking *c, onq_error *err) {
    const course x = course_of(t, c);
    if (c->n == 0)
        return ONQ_OK;
    OQ_SCRATCH(scratch, &c->sessions[0]->engine->env->alloc);
    double *least = OQ_NEW_ARRAY(&scratch, double, 2 * c->n * x.n + 1);
    OQ_TRY_ALLOC(least != NULL, err);
    OQ_TRY(clock_rounds(c, &x, least, err));
    take_times(c, &x, least);
    return ONQ_OK;
}

onq_code oq_trials_run_steps(const oq_trials *t, oq_session *s, size_t n, double *seconds,
                             onq_error *err) {
    const bool own_time = own_clock_is_fine();
    assert(n > 0 && n <= t->steps.n);
    for (size_t i = 0; i < n; i++) {
        const oq_sample *x = &t->steps.v[(2 * i + 1) * t->steps.n / (2 * n)].sample;
        const double begin = now(own_time);
        OQ_TRY(oq_sample_run(s, NULL, x, NULL, err));
        seconds[i] = now(own_time) - begin;
    }
    return ONQ_OK;
}

/* ---- decoders ---- */

/* A step with float's states, kept; its run, whose states go into the next one. */
static onq_code keep_step(oq_trials *t, oq_session *flt, oq_walk *walk, const oq_sample *step,
                          oq_sample *kept, onq_error *err) {
    oq_outputs out = {0};
    oq_sample full;
    OQ_SCRATCH(scratch, t->arena.alloc);
    OQ_TRY(oq_walk_fill(walk, step, &scratch, &full, err));
    OQ_TRY(oq_sample_copy(&t->arena, &full, kept, err));
    OQ_TRY(oq_session_run(flt, full.inputs, full.n_inputs, &out, err));
    return oq_walk_take(walk, &full, out.v, out.n, err);
}

static onq_code make_steps(oq_trials *t, oq_session *flt, uint64_t length, oq_decoding *out,
                           onq_error *err) {
    oq_walk walk;
    oq_sample step;
    OQ_SCRATCH(scratch, t->arena.alloc);
    OQ_TRY(oq_walk_text(t->walker, &t->steps.v[0].sample, length, &scratch, &step, err));
    oq_walk_init(&walk, t->walker, t->arena.alloc);
    onq_code rc = keep_step(t, flt, &walk, &step, &out->text, err);
    step.generated = true;
    step.step = 1;
    if (rc == ONQ_OK)
        rc = keep_step(t, flt, &walk, &step, &out->token, err);
    oq_walk_release(&walk);
    out->length = length;
    return rc;
}

onq_code oq_trials_decode(oq_trials *t, oq_session *flt, onq_error *err) {
    const oq_walker *w = t->walker;
    if (w == NULL || !w->roles.language.causal || w->roles.carry.n == 0 || t->steps.n == 0 ||
        !oq_walk_has_text(w, &t->steps.v[0].sample))
        return ONQ_OK;
    for (uint64_t n = OQ_DECODE_TEXT; n >= MIN_TEXT; n /= 2) {
        onq_error why = ONQ_ERROR_INIT;
        oq_decoding made = {0};
        const onq_code rc = make_steps(t, flt, n, &made, &why);
        if (rc == ONQ_E_NOMEM || rc == ONQ_E_CANCEL)
            return oq_error_give(err, rc, &why);
        if (rc == ONQ_OK) {
            t->decoding = made;
            return ONQ_OK;
        }
        oq_info(flt->engine->env, "texts of %llu tokens: %s", (unsigned long long)n, why.text);
    }
    return ONQ_OK;
}
