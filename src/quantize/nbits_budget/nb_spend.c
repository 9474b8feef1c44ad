/*
 * nb_spend.c — how many bits each weight gets, in which blocks, and with which zero points.
 *
 * The noise of every weight is measured in every form that it can have. Without samples it counts as
 * it is, relative to the weight. With samples it counts as large as the inputs are that it meets, and
 * times the harm that the noise of the weight does to the outputs (nb_weigh.h).
 *
 * A row is one form for all weights. The row that the budget has room for and that has least noise is
 * the floor: a weight takes a cheaper form only where that has no more noise, where samples weigh the
 * noise, or where all weights together have far less so. From there the weight whose next step takes
 * away most noise for each bit it costs gets it, until nothing fits any more.
 */
#include "quantize/nbits/nb_panel.h"
#include "quantize/nbits/nbits.h"

#include "base/pool.h"

#include <math.h>

#define MEASURE  (1u << 16) /* weights that are measured of a large one */
#define ROUGH    4.0        /* two bits do more harm than in proportion to their noise */
#define NOTHING  1e-6       /* noise that is no reason for more bits */
#define NEAR     1.5        /* rows with so many times the noise of the floor are judged too */
#define CLEAR    0.8        /* part of the harm of the floor, below which nothing else is tried */
#define FAR_LESS 0.7        /* part of the noise of the floor, below which a mix is taken */

/* The zero points of a form. Packed weights of 2 and 3 bits have none. */
typedef enum grid { AS_SAID, SYMMETRIC, ASYMMETRIC, REAL, GRIDS } grid;

/* What a weight can have. */
typedef struct form {
    unsigned bits;  /* 0: float */
    uint64_t block; /* 0: that of the configuration */
    grid grid;
} form;

#define IN_BLOCKS(bits, grid)                                                                      \
    {bits, 128, grid}, {bits, 64, grid}, {bits, 32, grid}, {bits, 0, grid}, {                      \
        bits, 16, grid                                                                             \
    }
static const form forms[] = {
    IN_BLOCKS(2, AS_SAID),    IN_BLOCKS(3, AS_SAID), IN_BLOCKS(4, SYMMETRIC),
    IN_BLOCKS(4, ASYMMETRIC), IN_BLOCKS(4, REAL),    {8, 128, SYMMETRIC},
    {8, 0, SYMMETRIC},        {8, 128, ASYMMETRIC},  {8, 0, ASYMMETRIC},
    {8, 128, REAL},           {8, 0, REAL},          {0, 0, AS_SAID}};
#define FORMS OQ_COUNT(forms)
#define FLOAT (FORMS - 1)

typedef struct level {
    bool possible;
    oq_nb_how how;
    double cost;  /* bits in all */
    double noise; /* over signal; with samples, harm */
} level;

typedef struct weight {
    oq_nb_task task;
    const oq_nb_reader *reader; /* the first */
    double count;
    level levels[FORMS];
    double weighed; /* the noise that samples see when they weigh it */
    double worth;   /* how much its noise counts beside that of others */
    size_t at;      /* the level that is taken */
    bool fixed;     /* by --node_config: it has one level */
    bool gathered;
} weight;

typedef struct spending {
    oq_arena scratch;
    const oq_nb_config *config;
    oq_nb_made made;
    bool any_block, any_grid, packed;
    OQ_VEC(weight) all;
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
        assert(w.reader != NULL); /* what nothing reads is not made */
        w.fixed = w.reader->fixed;
        w.worth = 1.0;
        for (size_t k = 0; k < s->made.readers.n; k++)
            w.gathered |=
                s->made.readers.v[k].weight == s->made.all.v[i] && s->made.readers.v[k].gathers;
        if (!OQ_PUSH(&s->scratch, &s->all, w))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* ---- the forms that a weight can have ---- */

/* The method that finds integers in such a form: with --quant_method gptq_hqq, for example, gptq
 * does where zero points are integers. NULL: there is none. */
static const oq_nb_method *method_of(const spending *s, const oq_nb_task *t, const form *f) {
    const oq_nb_how *how = &s->config->how;
    const oq_nb_method *m = t->method;
    const bool hqq = m == &oq_nb_methods[OQ_NB_GPTQ_HQQ];
    if (f->grid == REAL && m == &oq_nb_methods[OQ_NB_RANGE] && s->any_grid)
        return &oq_nb_methods[OQ_NB_RANGE_REAL];
    if (f->grid == REAL)
        return m->real_zero ? m : NULL;
    if (hqq && s->packed)
        return f->grid == AS_SAID || s->any_grid ? &oq_nb_methods[OQ_NB_GPTQ] : NULL;
    if (f->grid == AS_SAID)
        return m;
    const bool said = (f->grid == SYMMETRIC) == how->symmetric;
    const bool chooses = s->any_grid && !m->always_zero && !m->as_intel;
    return m->real_zero || !(said || chooses) ? NULL : m;
}

/* Zero points that are not integers are for products whose sums of blocks the graph can have, unless
 * they were asked for. */
static bool has_sums(const spending *s, const oq_nb_task *t, uint64_t block, const oq_nb_how *how) {
    return oq_nb_takes_sums(s->config, how) && t->by_columns && t->batch == 1 &&
           t->k % block == 0 && (t->real == OQ_FLOAT || s->config->form == OQ_NB_FORM_SUMS);
}

/* How the weight is quantized in that form; false: it cannot have it in the place it is in. */
static bool take_form(const spending *s, const weight *w, const form *f, oq_nb_how *how) {
    const oq_nb_task *t = &w->task;
    *how = s->config->how;
    how->method = method_of(s, t, f);
    how->bits = f->bits;
    how->block = f->block != 0 ? f->block : t->block;
    how->symmetric = f->grid == AS_SAID ? how->symmetric : f->grid == SYMMETRIC;
    if (f->bits == 0)
        return true;
    if (how->method == NULL || (how->method->bits >> f->bits & 1) == 0)
        return false;
    if (f->block != 0 && (!s->any_block || f->block == t->block || t->k % f->block != 0))
        return false;
    if (f->block != 0 && f->block < t->block && !s->packed) /* float scales take too much of it */
        return false;
    if (t->rule == OQ_NB_GATHER && f->bits != 4)
        return false;
    if ((t->rule == OQ_NB_QDQ && f->bits == 2) || (f->bits == 3 && !s->packed))
        return false;
    return !how->method->real_zero || how->method == t->method ||
           (!w->gathered && has_sums(s, t, how->block, how));
}

/* ---- how much noise ---- */

static double cost_of(const oq_nb_task *t) {
    return 8.0 * (double)(t->size[OQ_NB_Q] + t->size[OQ_NB_SCALE] + t->size[OQ_NB_ZEROS]);
}

/* The weight as it would be stored. */
static onq_code suit(const spending *s, const oq_nb_how *how, oq_nb_task *t, onq_error *err) {
    const bool packed = s->packed && t->by_columns;
    const bool centred =
        packed && how->bits < 4 && !how->method->real_zero && !how->method->always_zero;
    if (t->block != how->block)
        t->per_n =
            t->per_n == 1 ? 1 : t->k / how->block; /* strides do not matter to a measurement */
    t->method = how->method;
    t->bits = how->bits;
    t->block = how->block;
    t->symmetric = centred || (how->symmetric && !how->method->real_zero);
    t->zero = how->method->real_zero
                  ? (has_sums(s, t, how->block, how) ? OQ_NB_ZERO_SUMS : OQ_NB_ZERO_REAL)
              : t->symmetric && !how->method->always_zero ? OQ_NB_ZERO_NONE
                                                          : OQ_NB_ZERO_INT;
    t->wide = centred ? 4 : how->bits;
    t->stored = packed && t->zero != OQ_NB_ZERO_REAL && t->real == OQ_FLOAT ? OQ_FLOAT16 : t->real;
    return oq_nb_task_measure(t, err);
}

static onq_code measure_form(const spending *s, const weight *w, const oq_nb_how *how, double *cost,
                             double *noise, onq_error *err) {
    oq_nb_task t = w->task;
    oq_nb_noise sum = {0};
    const oq_nb_sink sink = {.task = &t, .noise = &sum};
    OQ_TRY(suit(s, how, &t, err));
    *cost = cost_of(&t);
    t.method = oq_nb_without_samples(t.method);
    t.every = (uint64_t)(w->count / MEASURE) + 1;
    OQ_TRY(t.method->quantize(&t, &sink, err));
    *noise = sum.noise > NOTHING * sum.signal ? sum.noise / sum.signal : 0.0;
    return ONQ_OK;
}

static onq_code measure_weight(void *ctx, size_t i, unsigned worker, onq_error *err) {
    spending *s = ctx;
    weight *w = &s->all.v[i];
    oq_nb_how weighed = s->config->how;
    double cost;
    (void)worker;
    weighed.method = &oq_nb_methods[OQ_NB_DEFAULT]; /* nb_switch.h */
    weighed.block = w->task.block;
    OQ_TRY(measure_form(s, w, &weighed, &cost, &w->weighed, err));
    for (size_t k = 0; k < FORMS; k++) {
        level *l = &w->levels[k];
        l->possible = take_form(s, w, &forms[k], &l->how);
        if (l->possible && k != FLOAT)
            OQ_TRY(measure_form(s, w, &l->how, &l->cost, &l->noise, err));
    }
    w->levels[FLOAT].cost = w->count * (w->task.real == OQ_FLOAT ? 32.0 : 16.0);
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

/* Ranges are found for the inputs that a weight meets, here and when it is written. */
static onq_code keep_power(oq_nb_config *c, const weight *w, const float *power, onq_error *err) {
    const size_t k = (size_t)w->task.k;
    float *mine = OQ_NEW_ARRAY(c->lists->arena, float, k + 1);
    const oq_str name = oq_str_copy(c->lists->arena, w->task.name);
    OQ_TRY_ALLOC(mine != NULL && name.p != NULL, err);
    memcpy(mine, power, k * sizeof *mine);
    return oq_map_put(&c->mean_map, name, (uint32_t)c->means.n) &&
                   OQ_PUSH(c->lists->arena, &c->means, mine)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

static onq_code see_inputs(const oq_nb_job *job, const oq_nb_budget *b, spending *s,
                           oq_nb_weighed *w, onq_error *err) {
    OQ_TRY(b->see(b->ctx, w, s->all.n, err));
    for (size_t i = 0; i < s->all.n; i++) {
        s->all.v[i].task.mean = w[i].power;
        if (w[i].power != NULL && job->config->how.method == &oq_nb_methods[OQ_NB_RANGE])
            OQ_TRY(keep_power(job->config, &s->all.v[i], w[i].power, err));
    }
    return ONQ_OK;
}

/* The noise of each level becomes harm: in proportion to that of the form that was weighed. */
static onq_code weigh_all(const oq_nb_budget *b, spending *s, oq_nb_weighed *w, onq_error *err) {
    for (size_t i = 0; i < s->all.n; i++)
        w[i].guess = s->all.v[i].weighed;
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

/* ---- rows: one form for all ---- */

/* What a weight has in that row: the form, or the cheapest that it has with as many bits. */
static size_t in_row(const weight *w, size_t row) {
    size_t best = FLOAT;
    assert(row < FORMS && w->levels[FLOAT].possible);
    if (w->levels[row].possible)
        return row;
    for (size_t k = 0; k < FLOAT; k++)
        if (w->levels[k].possible && forms[k].bits >= forms[row].bits && forms[row].bits > 0 &&
            w->levels[k].cost < w->levels[best].cost)
            best = k;
    return best;
}

static double cost_of_row(const spending *s, size_t row) {
    double sum = 0.0;
    for (size_t i = 0; i < s->all.n; i++) {
        const weight *w = &s->all.v[i];
        sum += w->fixed ? cost_of(&w->task) : w->levels[in_row(w, row)].cost;
    }
    return sum;
}

static double noise_of_row(const spending *s, size_t row) {
    double sum = 0.0;
    for (size_t i = 0; i < s->all.n; i++)
        sum += s->all.v[i].fixed ? 0 : s->all.v[i].levels[in_row(&s->all.v[i], row)].noise;
    return sum;
}

/* True where a weight has that form, not one that stands for it. */
static bool is_row(const spending *s, size_t row) {
    bool any = false;
    for (size_t i = 0; i < s->all.n; i++)
        any |= !s->all.v[i].fixed && s->all.v[i].levels[row].possible;
    return any;
}

/* The row with least noise that fits, of a grid, or of all for GRIDS. FORMS: none fits. */
static size_t best_row(const spending *s, double budget, grid of) {
    size_t best = FORMS;
    for (size_t k = 0; k < FORMS; k++) {
        if ((of != GRIDS && forms[k].grid != of) || !is_row(s, k) || cost_of_row(s, k) > budget)
            continue;
        if (best == FORMS || noise_of_row(s, k) < noise_of_row(s, best))
            best = k;
    }
    return best;
}

/* ---- spending ---- */

static bool is_better(const level *a, const level *b) {
    return a->cost < b->cost || (a->cost <= b->cost && a->noise < b->noise);
}

/* The cheapest level with no more noise than that. */
static size_t cheapest(const weight *w, double noise) {
    size_t best = FLOAT;
    for (size_t k = 0; k < FLOAT; k++)
        if (w->levels[k].possible && w->levels[k].noise <= noise &&
            is_better(&w->levels[k], &w->levels[best]))
            best = k;
    return best;
}

/* Takes the best step that fits what is left; false: there is none. */
static bool take_step(spending *s, double *left) {
    double best = 0.0;
    weight *who = NULL;
    size_t to = 0;
    for (size_t i = 0; i < s->all.n; i++) {
        weight *w = &s->all.v[i];
        for (size_t k = 0; k < FORMS && !w->fixed; k++) {
            const double cost = w->levels[k].cost - w->levels[w->at].cost;
            const double gain = (w->levels[w->at].noise - w->levels[k].noise) * w->worth;
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
        const oq_nb_how *how = &w->levels[w->at].how;
        const unsigned bits = w->fixed ? w->task.bits : how->bits;
        assert(bits < OQ_COUNT(b->count));
        b->count[bits]++;
        if (w->fixed)
            continue;
        const oq_nb_share share = {.weight = oq_str_copy(c->lists->arena, w->task.name),
                                   .method = how->method,
                                   .bits = bits,
                                   .block = bits == 0 ? 0 : how->block,
                                   .symmetric = how->symmetric};
        if (share.weight.p == NULL ||
            !oq_map_put(&c->share_map, share.weight, (uint32_t)c->shares.n) ||
            !OQ_PUSH(c->lists->arena, &c->shares, share))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* A way to spend a budget: from the cheapest levels of all, from the cheapest that are no worse than
 * the floor, or a row as it is. */
typedef enum begins { FROM_BELOW, FROM_FLOOR, AT_ROW } begins;
typedef struct way {
    begins begins;
    size_t row;
} way;

static double begin(spending *s, way how) {
    double sum = 0.0;
    for (size_t i = 0; i < s->all.n; i++) {
        weight *w = &s->all.v[i];
        if (w->fixed) {
            sum += cost_of(&w->task);
            continue;
        }
        const size_t row = in_row(w, how.row);
        w->at = how.begins == AT_ROW       ? row
                : how.begins == FROM_BELOW ? cheapest(w, INFINITY)
                                           : cheapest(w, w->levels[row].noise);
        sum += w->levels[w->at].cost;
    }
    return sum;
}

/* What is left. */
static double spend_so(spending *s, double budget, way how) {
    double left = budget - begin(s, how);
    while (how.begins != AT_ROW && take_step(s, &left))
        ;
    return left;
}

/* The way that does least harm so far. */
typedef struct choice {
    way best;
    double least;
} choice;

/* What samples say of the model as it would be written: the sum of what single weights do is a
 * guess. */
static onq_code judge(const oq_nb_job *job, oq_nb_budget *b, spending *s, double budget, way how,
                      choice *c, double *harm, onq_error *err) {
    OQ_TRY(oq_progress(job->model->env, "trying choices", 0, 1, err));
    spend_so(s, budget, how);
    OQ_TRY(keep_shares(job->config, b, s, err));
    OQ_TRY(b->judge(b->ctx, harm, err));
    if (*harm < c->least)
        *c = (choice){how, *harm};
    return ONQ_OK;
}

/* ---- without samples ---- */

/* Of the levels that are taken. */
static double all_noise(const spending *s) {
    double sum = 0.0;
    for (size_t i = 0; i < s->all.n; i++)
        sum += s->all.v[i].count * s->all.v[i].levels[s->all.v[i].at].noise;
    return sum;
}

/* By size, so that a bit of each weight counts as much: else small weights would get 8 bits before
 * large ones get 3. */
static void set_worth(spending *s, bool by_size) {
    for (size_t i = 0; i < s->all.n; i++)
        s->all.v[i].worth = by_size ? s->all.v[i].count : 1.0;
}

/* Where no row with more bits fits, a mix of more and fewer may have far less noise in all than the
 * floor, though some weights have more than there. */
static void choose_by_noise(spending *s, double budget, way *best) {
    const way mix = {FROM_BELOW, best->row};
    spend_so(s, budget, *best);
    const double of_floor = all_noise(s);
    set_worth(s, true);
    spend_so(s, budget, mix);
    if (all_noise(s) < FAR_LESS * of_floor)
        *best = mix;
    else
        set_worth(s, false);
}

/* Where the boldest way does not do much better than the floor, the way between them and rows that
 * are about as good may do best. */
static onq_code choose_way(const oq_nb_job *job, oq_nb_budget *b, spending *s, double budget,
                           size_t floor, way *best, onq_error *err) {
    choice c = {{b->weigh != NULL ? FROM_BELOW : FROM_FLOOR, floor}, INFINITY};
    double below, row, harm;
    *best = c.best;
    if (b->weigh == NULL)
        choose_by_noise(s, budget, best);
    if (b->judge == NULL)
        return ONQ_OK;
    OQ_TRY(judge(job, b, s, budget, (way){FROM_BELOW, floor}, &c, &below, err));
    OQ_TRY(judge(job, b, s, budget, (way){AT_ROW, floor}, &c, &row, err));
    if (!(below < CLEAR * row)) {
        OQ_TRY(judge(job, b, s, budget, (way){FROM_FLOOR, floor}, &c, &harm, err));
        for (int g = 0; g < GRIDS; g++) {
            const size_t at = best_row(s, budget, (grid)g);
            if (at != FORMS && at != floor && noise_of_row(s, at) <= NEAR * noise_of_row(s, floor))
                OQ_TRY(judge(job, b, s, budget, (way){AT_ROW, at}, &c, &harm, err));
        }
    }
    *best = c.best;
    return ONQ_OK;
}

static onq_code refuse(const oq_nb_budget *b, double least, double count, onq_error *err) {
    return oq_fail(err, ONQ_E_OPTION,
                   "--target_bits %g: the fewest bits that are possible here are %.2f a weight "
                   "with scales%s (larger blocks need fewer)",
                   b->target, least / count,
                   b->n_fixed > 0 ? " and with the nodes of --node_config" : "");
}

static onq_code spend(const oq_nb_job *job, oq_nb_budget *b, spending *s, onq_error *err) {
    double count = 0.0;
    way best;
    for (size_t i = 0; i < s->all.n; i++)
        count += s->all.v[i].count;
    const double budget = b->target * count, least = begin(s, (way){FROM_BELOW, FLOAT});
    if (budget < least)
        return refuse(b, least, count, err);
    size_t floor = best_row(s, budget, GRIDS);
    if (floor == FORMS) { /* no row fits, but a mix does */
        best = (way){FROM_BELOW, FLOAT};
    } else {
        b->row = (oq_nb_share){.bits = forms[floor].bits,
                               .block = forms[floor].block,
                               .symmetric = forms[floor].grid == SYMMETRIC};
        OQ_TRY(choose_way(job, b, s, budget, floor, &best, err));
    }
    b->got = (budget - spend_so(s, budget, best)) / count;
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
        OQ_TRY(see_inputs(job, b, s, weighed, err));
    if (job->config->given != NULL) /* a plan has decided */
        return ONQ_OK;
    OQ_TRY(oq_pool_new(job->model->env, &pool, err));
    const onq_code rc = oq_pool_run(pool, s->all.n, measure_weight, s, err);
    oq_pool_free(pool);
    OQ_TRY(rc);
    if (b->weigh != NULL)
        OQ_TRY(weigh_all(b, s, weighed, err));
    return spend(job, b, s, err);
}

onq_code oq_nb_spend(const oq_nb_job *job, oq_nb_budget *b, onq_error *err) {
    spending s = {.config = job->config,
                  .any_block = b->any_block,
                  .any_grid = b->any_grid,
                  .packed = job->config->form == OQ_NB_FORM_PACKED};
    oq_arena_init(&s.scratch, &job->model->env->alloc);
    const onq_code rc = run(job, b, &s, err);
    oq_nb_made_release(&s.made);
    oq_arena_release(&s.scratch);
    return rc;
}
