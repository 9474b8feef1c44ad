/*
 * nb_spend.c — how many bits each weight gets.
 *
 * Noise that is added to a weight is noise in the product: its share of the product is what it is
 * of the weight. So the ratio of noise to signal is measured for every weight and every number of
 * bits, and where samples tell how much of it reaches the outputs, multiplied by that. Starting
 * with the fewest bits, the weight whose next step takes away most noise for each bit it costs gets
 * it, until nothing fits the budget any more.
 */
#include "quantize/nbits/nbits.h"

#include "base/pool.h"
#include "onnx/codec/schema.h"

#include <math.h>

#define LEVELS  4          /* 2, 4, 8 bits and float */
#define MEASURE (2u << 20) /* weights that are measured of a large one */

typedef struct level {
    unsigned bits; /* 0: float */
    double cost;   /* bits in all */
    double noise;  /* over signal */
} level;

typedef struct weight {
    oq_nb_task task;
    double count;
    level levels[LEVELS];
    size_t n, at; /* levels there are; the one that is taken */
    double weigh; /* of its noise in the outputs */
} weight;

typedef struct spending {
    oq_arena scratch;
    OQ_VEC(weight) all;
    unsigned base; /* bits that `weigh` is about */
} spending;

/* ---- which weights there are ---- */

static onq_code see_weights(const oq_nb_job *job, spending *s, onq_error *err) {
    oq_nb_made made = {0};
    oq_plan plan;
    oq_plan_init(&plan, &s->scratch);
    const oq_nb_job look = {.model = job->model,
                            .config = job->config,
                            .plan = &plan,
                            .made = &made,
                            .decide_only = true};
    onq_code rc = oq_nb_run(&look, err);
    for (size_t i = 0; i < made.all.n && rc == ONQ_OK; i++) {
        weight w = {.task = *oq_nb_lazy_task(made.all.v[i]), .weigh = 1.0};
        w.count = (double)w.task.batch * (double)w.task.k * (double)w.task.n;
        if (w.task.bits == job->config->how.bits && !OQ_PUSH(&s->scratch, &s->all, w))
            rc = oq_fail_nomem(err);
    }
    oq_nb_made_release(&made);
    return rc;
}

/* The numbers of bits that the weight can have in the place it is in. */
static bool has_bits(const oq_nb_task *t, unsigned bits) {
    if (t->rule == OQ_NB_GATHER)
        return bits == 4;
    if (t->rule == OQ_NB_QDQ && bits == 2)
        return false;
    return (t->method->bits >> bits & 1) != 0;
}

/* ---- how much noise ---- */

static onq_code measure_level(const weight *w, level *l, onq_error *err) {
    oq_nb_task t = w->task;
    oq_nb_noise sum = {0};
    const oq_nb_sink sink = {.task = &t, .noise = &sum};
    t.bits = l->bits;
    t.every = (uint64_t)(w->count / MEASURE) + 1;
    OQ_TRY(oq_nb_task_measure(&t, err));
    l->cost = 8.0 * (double)(t.size[OQ_NB_Q] + t.size[OQ_NB_SCALE] + t.size[OQ_NB_ZEROS]);
    OQ_TRY(t.method->quantize(&t, &sink, err));
    l->noise = sum.signal > 0.0 ? sum.noise / sum.signal : 0.0;
    return ONQ_OK;
}

static onq_code measure_weight(void *ctx, size_t i, unsigned worker, onq_error *err) {
    static const unsigned bits[] = {2, 4, 8};
    const spending *s = ctx;
    weight *w = &s->all.v[i];
    (void)worker;
    for (size_t k = 0; k < OQ_COUNT(bits); k++) {
        if (!has_bits(&w->task, bits[k]))
            continue;
        w->levels[w->n] = (level){.bits = bits[k]};
        OQ_TRY(measure_level(w, &w->levels[w->n++], err));
    }
    w->levels[w->n++] = (level){.cost = w->count * (w->task.real == OQ_FLOAT ? 32.0 : 16.0)};
    return ONQ_OK;
}

/* What the outputs say of a weight, in place of what it says itself. */
static onq_code weigh_all(const oq_nb_budget *b, spending *s, const onq_env *env, onq_error *err) {
    for (size_t i = 0; i < s->all.n; i++) {
        weight *w = &s->all.v[i];
        double out = 0.0, own = 0.0;
        OQ_TRY(oq_progress(env, "weighing", i, s->all.n, err));
        OQ_TRY(b->weigh(b->ctx, w->task.name, &out, err));
        for (size_t k = 0; k < w->n; k++)
            if (w->levels[k].bits == s->base)
                own = w->levels[k].noise;
        w->weigh = own > 0.0 ? out / own : 0.0;
    }
    return ONQ_OK;
}

/* ---- spending ---- */

/* Takes the best step that fits what is left; false: there is none. */
static bool take_step(spending *s, double *left) {
    double best = 0.0;
    weight *who = NULL;
    size_t to = 0;
    for (size_t i = 0; i < s->all.n; i++) {
        weight *w = &s->all.v[i];
        for (size_t k = w->at + 1; k < w->n; k++) {
            const double cost = w->levels[k].cost - w->levels[w->at].cost;
            const double gain = w->weigh * (w->levels[w->at].noise - w->levels[k].noise);
            if (cost > *left || cost <= 0.0 || gain / cost <= best)
                continue;
            best = gain / cost;
            who = w;
            to = k;
        }
    }
    if (who == NULL)
        return false;
    *left -= who->levels[to].cost - who->levels[who->at].cost;
    who->at = to;
    return true;
}

static onq_code spend(oq_nb_budget *b, spending *s, onq_error *err) {
    double count = 0.0, least = 0.0;
    for (size_t i = 0; i < s->all.n; i++) {
        count += s->all.v[i].count;
        least += s->all.v[i].levels[0].cost;
    }
    double left = b->target * count - least;
    if (left < 0.0)
        return oq_fail(err, ONQ_E_OPTION,
                       "--target_bits %g: the fewest bits that are possible here are %.2f a weight "
                       "with scales (larger blocks need fewer)",
                       b->target, least / count);
    while (take_step(s, &left))
        ;
    b->got = count > 0.0 ? (b->target * count - left) / count : 0.0;
    return ONQ_OK;
}

static onq_code keep_shares(oq_nb_config *c, oq_nb_budget *b, const spending *s, onq_error *err) {
    for (size_t i = 0; i < s->all.n; i++) {
        const weight *w = &s->all.v[i];
        const unsigned bits = w->levels[w->at].bits;
        const oq_nb_share share = {oq_str_copy(c->lists->arena, w->task.name), bits};
        b->count[bits == 0 ? 0 : bits == 2 ? 1 : bits == 4 ? 2 : 3]++;
        if (share.weight.p == NULL ||
            !oq_map_put(&c->share_map, share.weight, (uint32_t)c->shares.n) ||
            !OQ_PUSH(c->lists->arena, &c->shares, share))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

static onq_code run(const oq_nb_job *job, oq_nb_budget *b, spending *s, onq_error *err) {
    oq_pool *pool = NULL;
    OQ_TRY(see_weights(job, s, err));
    if (s->all.n == 0)
        return ONQ_OK;
    OQ_TRY(oq_pool_new(job->model->env, &pool, err));
    const onq_code rc = oq_pool_run(pool, s->all.n, measure_weight, s, err);
    oq_pool_free(pool);
    OQ_TRY(rc);
    if (b->weigh != NULL)
        OQ_TRY(weigh_all(b, s, job->model->env, err));
    OQ_TRY(spend(b, s, err));
    return keep_shares(job->config, b, s, err);
}

onq_code oq_nb_spend(const oq_nb_job *job, oq_nb_budget *b, onq_error *err) {
    spending s = {.base = job->config->how.bits};
    oq_arena_init(&s.scratch, &job->model->env->alloc);
    const onq_code rc = run(job, b, &s, err);
    oq_arena_release(&s.scratch);
    return rc;
}
