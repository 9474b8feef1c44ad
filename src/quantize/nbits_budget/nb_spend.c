/*
 * nb_spend.c — how many bits each weight gets.
 *
 * The noise of every weight is measured with every number of bits. Without samples it counts as it
 * is, relative to the weight. With samples it counts as large as the inputs are that it meets, and
 * times the harm that the noise of the weight does to the outputs (nb_weigh.h).
 *
 * The best uniform choice that the budget has room for is the floor: a weight takes a cheaper level
 * only where that has no more noise, or where samples weigh the noise. From there the weight whose
 * next step takes away most noise for each bit it costs gets it, until nothing fits any more.
 */
#include "quantize/nbits/nb_panel.h"
#include "quantize/nbits/nbits.h"

#include "base/pool.h"

#include <math.h>

#define MEASURE (1u << 16) /* weights that are measured of a large one */
#define ROUGH   4.0        /* two bits do more harm than in proportion to their noise */

/* What a weight can have, in the order of bits. */
typedef struct form {
    unsigned bits;  /* 0: float */
    uint64_t block; /* 0: that of the configuration */
    const char *name;
} form;

static const form forms[] = {{2, 64, "2 bits in blocks of 64"},
                             {2, 32, "2 bits in blocks of 32"},
                             {2, 0, "2 bits"},
                             {3, 128, "3 bits in blocks of 128"},
                             {3, 64, "3 bits in blocks of 64"},
                             {3, 32, "3 bits in blocks of 32"},
                             {3, 0, "3 bits"},
                             {4, 128, "4 bits in blocks of 128"},
                             {4, 64, "4 bits in blocks of 64"},
                             {4, 32, "4 bits in blocks of 32"},
                             {4, 0, "4 bits"},
                             {4, 16, "4 bits in blocks of 16"},
                             {8, 128, "8 bits in blocks of 128"},
                             {8, 0, "8 bits"},
                             {0, 0, "float"}};
#define FORMS OQ_COUNT(forms)

typedef struct level {
    bool possible;
    uint64_t block;
    double cost;  /* bits in all */
    double noise; /* over signal; with samples, harm */
} level;

typedef struct weight {
    oq_nb_task task;
    const oq_nb_reader *reader; /* the first */
    double count;
    level levels[FORMS];
    size_t at;  /* the one that is taken */
    bool fixed; /* by --node_config: it has one level */
} weight;

typedef struct spending {
    oq_arena scratch;
    oq_nb_made made;
    bool any_block, packed;
    OQ_VEC(weight) all;
    size_t base; /* the form that samples weigh */
} spending;

/* ---- which weights there are ---- */

static const oq_nb_reader *reader_of(const oq_nb_made *made, const oq_nb_lazy *z) {
    const oq_nb_reader *first = NULL;
    for (size_t i = 0; i < made->readers.n; i++) {
        const oq_nb_reader *r = &made->readers.v[i];
        if (r->weight == z && (first == NULL || (first->gathers && !r->gathers)))
            first = r;
    }
    return first;
}

static onq_code see_weights(const oq_nb_job *job, spending *s, onq_error *err) {
    oq_plan plan;
    oq_plan_init(&plan, &s->scratch);
    const oq_nb_job look = {.model = job->model,
                            .config = job->config,
                            .plan = &plan,
                            .made = &s->made,
                            .decide_only = true};
    OQ_TRY(oq_nb_run(&look, err));
    for (size_t i = 0; i < s->made.all.n; i++) {
        weight w = {.task = *oq_nb_lazy_task(s->made.all.v[i]),
                    .reader = reader_of(&s->made, s->made.all.v[i])};
        w.count = (double)w.task.batch * (double)w.task.k * (double)w.task.n;
        w.fixed = w.reader->fixed;
        if (!OQ_PUSH(&s->scratch, &s->all, w))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* True where the weight can have that form in the place it is in. */
static bool has_form(const spending *s, const oq_nb_task *t, const form *f) {
    if (f->block != 0 && (!s->any_block || f->block == t->block || t->k % f->block != 0))
        return false;
    if (f->block != 0 && f->block < t->block && !s->packed) /* float scales take too much of it */
        return false;
    if (f->bits == 0)
        return true;
    if (t->rule == OQ_NB_GATHER)
        return f->bits == 4;
    if ((t->rule == OQ_NB_QDQ && f->bits == 2) || (f->bits == 3 && !s->packed))
        return false;
    return (t->method->bits >> f->bits & 1) != 0;
}

/* ---- how much noise ---- */

static double cost_of(const oq_nb_task *t) {
    return 8.0 * (double)(t->size[OQ_NB_Q] + t->size[OQ_NB_SCALE] + t->size[OQ_NB_ZEROS]);
}

static onq_code measure_level(const spending *s, const weight *w, const form *f, level *l,
                              onq_error *err) {
    oq_nb_task t = w->task;
    oq_nb_noise sum = {0};
    const oq_nb_sink sink = {.task = &t, .noise = &sum};
    if (f->block != 0) {
        t.block = f->block;
        t.per_n = t.per_n == 1 ? 1 : t.k / t.block; /* strides do not matter to a measurement */
    }
    t.bits = f->bits;
    t.wide =
        f->bits < 4 && s->packed && !t.method->real_zero && !t.method->always_zero ? 4 : f->bits;
    t.every = (uint64_t)(w->count / MEASURE) + 1;
    OQ_TRY(oq_nb_task_measure(&t, err));
    l->block = t.block;
    l->cost = cost_of(&t);
    OQ_TRY(t.method->quantize(&t, &sink, err));
    l->noise = sum.signal > 0.0 ? sum.noise / sum.signal : 0.0;
    return ONQ_OK;
}

static onq_code measure_weight(void *ctx, size_t i, unsigned worker, onq_error *err) {
    spending *s = ctx;
    weight *w = &s->all.v[i];
    (void)worker;
    for (size_t k = 0; k < FORMS; k++) {
        level *l = &w->levels[k];
        l->possible = has_form(s, &w->task, &forms[k]);
        if (!l->possible)
            continue;
        if (forms[k].bits != 0)
            OQ_TRY(measure_level(s, w, &forms[k], l, err));
        else
            l->cost = w->count * (w->task.real == OQ_FLOAT ? 32.0 : 16.0);
    }
    return ONQ_OK;
}

/* ---- what samples say ---- */

static onq_code list_weighed(spending *s, oq_nb_weighed **out, onq_error *err) {
    *out = OQ_NEW_ARRAY(&s->scratch, oq_nb_weighed, s->all.n + 1);
    if (*out == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < s->all.n; i++)
        (*out)[i] = (oq_nb_weighed){.reader = s->all.v[i].reader};
    return ONQ_OK;
}

static onq_code see_inputs(const oq_nb_budget *b, spending *s, oq_nb_weighed *w, onq_error *err) {
    OQ_TRY(b->see(b->ctx, w, s->all.n, err));
    for (size_t i = 0; i < s->all.n; i++)
        s->all.v[i].task.mean = w[i].power;
    return ONQ_OK;
}

/* The noise of each level becomes harm: in proportion to that of the form that was weighed. */
static onq_code weigh_all(const oq_nb_budget *b, spending *s, oq_nb_weighed *w, onq_error *err) {
    for (size_t i = 0; i < s->all.n; i++)
        w[i].guess = s->all.v[i].levels[s->base].noise;
    OQ_TRY(b->weigh(b->ctx, w, s->all.n, err));
    for (size_t i = 0; i < s->all.n; i++) {
        const double own = w[i].guess;
        for (size_t k = 0; k < FORMS; k++) {
            level *l = &s->all.v[i].levels[k];
            const double rough = forms[k].bits == 2 ? ROUGH : 1.0;
            l->noise = own > 0.0 ? l->noise * rough * w[i].harm / own : 0.0;
        }
    }
    return ONQ_OK;
}

/* ---- spending ---- */

/* The form, or the next one above it that the weight has. */
static size_t at_least(const weight *w, size_t k) {
    assert(k < FORMS && w->levels[FORMS - 1].possible); /* float, at the least */
    while (!w->levels[k].possible)
        k++;
    return k;
}

static double cost_of_all(const spending *s, size_t k) {
    double sum = 0.0;
    for (size_t i = 0; i < s->all.n; i++) {
        const weight *w = &s->all.v[i];
        sum += w->fixed ? cost_of(&w->task) : w->levels[at_least(w, k)].cost;
    }
    return sum;
}

/* Takes the best step that fits what is left; false: there is none. */
static bool take_step(spending *s, double *left) {
    double best = 0.0;
    weight *who = NULL;
    size_t to = 0;
    for (size_t i = 0; i < s->all.n; i++) {
        weight *w = &s->all.v[i];
        for (size_t k = w->at + 1; k < FORMS && !w->fixed; k++) {
            const double cost = w->levels[k].cost - w->levels[w->at].cost;
            const double gain = w->levels[w->at].noise - w->levels[k].noise;
            if (!w->levels[k].possible || cost > *left || cost <= 0.0 || gain / cost <= best)
                continue;
            best = gain / cost;
            who = w;
            to = k;
        }
    }
    if (who == NULL)
        return false;
    *left -= who->levels[to].cost - who->levels[who->at].cost;
    assert(*left >= 0.0);
    who->at = to;
    return true;
}

static onq_code keep_shares(oq_nb_config *c, oq_nb_budget *b, const spending *s, onq_error *err) {
    c->shares.n = 0;
    oq_map_init(&c->share_map, c->lists->arena);
    memset(b->count, 0, sizeof b->count);
    for (size_t i = 0; i < s->all.n; i++) {
        const weight *w = &s->all.v[i];
        const unsigned bits = w->fixed ? w->task.bits : forms[w->at].bits;
        assert(bits < OQ_COUNT(b->count));
        b->count[bits]++;
        if (w->fixed)
            continue;
        const oq_nb_share share = {oq_str_copy(c->lists->arena, w->task.name), bits,
                                   bits == 0 ? 0 : w->levels[w->at].block};
        if (share.weight.p == NULL ||
            !oq_map_put(&c->share_map, share.weight, (uint32_t)c->shares.n) ||
            !OQ_PUSH(c->lists->arena, &c->shares, share))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* Ways to spend a budget, from the boldest to the same bits for all. */
typedef enum way { FROM_BELOW, FROM_FLOOR, UNIFORM, WAYS } way;

/* Where every weight begins: at the cheapest level of all, at the cheapest that is no worse than the
 * floor, or at the floor. */
static double begin(spending *s, size_t floor, way how) {
    double sum = 0.0;
    for (size_t i = 0; i < s->all.n; i++) {
        weight *w = &s->all.v[i];
        if (w->fixed) {
            sum += cost_of(&w->task);
            continue;
        }
        const double most = how == FROM_BELOW ? INFINITY : w->levels[at_least(w, floor)].noise;
        w->at = at_least(w, how == UNIFORM ? floor : 0);
        while (w->at < floor && w->levels[w->at].noise > most)
            w->at = at_least(w, w->at + 1);
        sum += w->levels[w->at].cost;
    }
    return sum;
}

/* What is left. */
static double spend_so(spending *s, double budget, size_t floor, way how) {
    double left = budget - begin(s, floor, how);
    while (how != UNIFORM && take_step(s, &left))
        ;
    return left;
}

/* Samples say what each way does, of the model as it would be written: the sum of what single
 * weights do is a guess. */
static onq_code choose_way(const oq_nb_job *job, oq_nb_budget *b, spending *s, double budget,
                           size_t floor, way *best, onq_error *err) {
    double least = INFINITY;
    *best = b->weigh != NULL ? FROM_BELOW : FROM_FLOOR;
    for (int how = FROM_BELOW; b->judge != NULL && how < WAYS; how++) {
        double harm = 0;
        OQ_TRY(oq_progress(job->model->env, "trying choices", (uint64_t)how, WAYS, err));
        spend_so(s, budget, floor, (way)how);
        OQ_TRY(keep_shares(job->config, b, s, err));
        OQ_TRY(b->judge(b->ctx, &harm, err));
        if (!(harm < least))
            continue;
        least = harm;
        *best = (way)how;
    }
    return ONQ_OK;
}

static onq_code spend(const oq_nb_job *job, oq_nb_budget *b, spending *s, onq_error *err) {
    double count = 0.0;
    size_t floor = 0;
    way best;
    for (size_t i = 0; i < s->all.n; i++)
        count += s->all.v[i].count;
    const double budget = b->target * count, least = cost_of_all(s, 0);
    if (budget < least)
        return oq_fail(err, ONQ_E_OPTION,
                       "--target_bits %g: the fewest bits that are possible here are %.2f a weight "
                       "with scales%s (larger blocks need fewer)",
                       b->target, least / count,
                       b->n_fixed > 0 ? " and with the nodes of --node_config" : "");
    for (size_t k = 0; k < FORMS; k++)
        if (cost_of_all(s, k) <= budget)
            floor = k;
    OQ_TRY(choose_way(job, b, s, budget, floor, &best, err));
    b->uniform = forms[floor].name;
    b->got = (budget - spend_so(s, budget, floor, best)) / count;
    return keep_shares(job->config, b, s, err);
}

static onq_code run(const oq_nb_job *job, oq_nb_budget *b, spending *s, onq_error *err) {
    oq_pool *pool = NULL;
    oq_nb_weighed *weighed = NULL;
    OQ_TRY(see_weights(job, s, err));
    if (s->all.n == 0)
        return ONQ_OK;
    for (size_t i = 0; i < s->all.n; i++)
        b->n_fixed += s->all.v[i].fixed;
    OQ_TRY(list_weighed(s, &weighed, err));
    if (b->see != NULL)
        OQ_TRY(see_inputs(b, s, weighed, err));
    OQ_TRY(oq_pool_new(job->model->env, &pool, err));
    const onq_code rc = oq_pool_run(pool, s->all.n, measure_weight, s, err);
    oq_pool_free(pool);
    OQ_TRY(rc);
    if (b->weigh != NULL)
        OQ_TRY(weigh_all(b, s, weighed, err));
    return spend(job, b, s, err);
}

onq_code oq_nb_spend(const oq_nb_job *job, oq_nb_budget *b, onq_error *err) {
    spending s = {.any_block = b->any_block, .packed = job->config->form == OQ_NB_FORM_PACKED};
    for (size_t k = 0; k < FORMS; k++)
        if (forms[k].bits == job->config->how.bits && forms[k].block == 0)
            s.base = k;
    oq_arena_init(&s.scratch, &job->model->env->alloc);
    const onq_code rc = run(job, b, &s, err);
    oq_nb_made_release(&s.made);
    oq_arena_release(&s.scratch);
    return rc;
}
