/*
 * nb_weigh.c — see nb_weigh.h. nb_switch.c makes the graph.
 */
#include "quantize/nbits_budget/nb_weigh.h"

#include "engine/sweep.h"
#include "onnx/codec/schema.h"
#include "quantize/nbits_budget/nb_switch.h"
#include "samples/agreement.h"
#include "samples/language.h"

#include <math.h>

#define SEEN      8   /* samples that the inputs of weights are looked at with */
#define SINGLE    48  /* weights that are weighed one by one, */
#define CLOSER    0.5 /* and, of more, those of the layers that do this part of all harm */
#define CHUNKS    32  /* of weights whose layer is not known */
#define ROUNDS    30  /* of fitting layers and kinds to each other */
#define KEPT      4   /* samples that weights are weighed with, at most, and choices judged with, */
#define MOST_KEPT (128u << 20) /* and bytes of what float makes of them, unless it is one sample */
#define NO_KIND   UINT32_MAX

/* What is known of the inputs of a weight. */
typedef struct input {
    oq_str name;
    uint64_t k, rows;
    double *sums; /* of squares */
} input;

/* A sample and what float makes of it. */
typedef struct flt {
    oq_sample sample;
    oq_datum *outputs;
} flt;

struct oq_nb_weigher {
    const oq_nb_learn_job *job;
    oq_arena arena;
    oq_nb_switch graph;
    oq_session *session;
    oq_observer observer;
    oq_strs names; /* of the inputs that are observed */
    OQ_VEC(input) inputs;
    oq_map input_map;
    bool looking; /* observed tensors count */
    OQ_VEC(flt) floats;
    uint64_t bytes; /* of their outputs */
    size_t wanted;  /* of them, to weigh single weights with; all of them judge */
    oq_roles roles;
    bool *on; /* switches */
    oq_datum *data;
    size_t runs;
};

/* ---- looking at inputs ---- */

/* Each row counts as much, however large it is: the first token of a text may be a thousand times
 * as large as all others, and is one word of many. */
static bool add_row(const float *x, uint64_t k, double *sums) {
    double power = 0;
    for (uint64_t i = 0; i < k; i++)
        power += (double)x[i] * (double)x[i];
    if (!isfinite(power) || power <= 0)
        return false;
    for (uint64_t i = 0; i < k; i++)
        sums[i] += (double)x[i] * (double)x[i] / power * (double)k;
    return true;
}

static onq_code seen(void *ctx, size_t index, const oq_datum *d, onq_error *err) {
    oq_nb_weigher *w = ctx;
    assert(index < w->inputs.n);
    input *in = &w->inputs.v[index];
    const oq_dtype_info *info = oq_dtype_find(d->dtype);
    oq_arena scratch;
    if (!w->looking || d->kind != OQ_DATUM_TENSOR || info == NULL || info->cls != OQ_CLASS_REAL ||
        d->rank == 0 || (uint64_t)d->dims[d->rank - 1] != in->k)
        return ONQ_OK;
    oq_arena_init(&scratch, &w->job->model->env->alloc);
    const float *x = d->count > 0 ? oq_datum_floats(d, &scratch) : NULL;
    for (uint64_t i = 0; x != NULL && i < d->count; i += in->k)
        in->rows += add_row(x + i, in->k, in->sums);
    oq_arena_release(&scratch);
    return x != NULL || d->count == 0 ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code observe(oq_nb_weigher *w, oq_str name, uint64_t k, onq_error *err) {
    const input in = {.name = name, .k = k, .sums = OQ_NEW_ARRAY(&w->arena, double, k + 1)};
    assert(w->names.n == w->inputs.n);
    if (oq_map_has(&w->input_map, name))
        return ONQ_OK;
    return in.sums != NULL && oq_map_put(&w->input_map, name, (uint32_t)w->inputs.n) &&
                   OQ_PUSH(&w->arena, &w->inputs, in) && OQ_PUSH(&w->arena, &w->names, name)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

static onq_code fill_powers(oq_nb_weigher *w, oq_nb_weighed *all, size_t n, onq_error *err) {
    for (size_t i = 0; i < n; i++) {
        const uint32_t at =
            all[i].reader->gathers ? OQ_MAP_NONE : oq_map_find(&w->input_map, all[i].reader->input);
        if (at == OQ_MAP_NONE || w->inputs.v[at].rows == 0)
            continue;
        const input *in = &w->inputs.v[at];
        if (in->k != oq_nb_lazy_task(all[i].reader->weight)->k)
            continue;
        float *power = OQ_NEW_ARRAY(&w->arena, float, in->k);
        if (power == NULL)
            return oq_fail_nomem(err);
        for (uint64_t c = 0; c < in->k; c++)
            power[c] = (float)(in->sums[c] / (double)in->rows);
        all[i].power = power;
    }
    return ONQ_OK;
}

/* ---- running ---- */

static onq_code run_sample(oq_nb_weigher *w, const oq_sample *s, oq_outputs *out, onq_error *err) {
    const size_t n = s->n_inputs;
    oq_sample with = *s;
    assert(w->session->inputs.n == n + w->graph.n);
    for (size_t i = 0; i < n; i++)
        w->data[i] = s->inputs[i];
    for (size_t i = 0; i < w->graph.n; i++)
        w->data[n + i] = (oq_datum){.kind = OQ_DATUM_TENSOR,
                                    .dtype = OQ_BOOL,
                                    .count = 1,
                                    .data = &w->on[i],
                                    .size_bytes = 1};
    with.inputs = w->data;
    with.n_inputs = w->session->inputs.n;
    w->runs++;
    return oq_sample_run(w->session, NULL, &with, out, err);
}

static onq_code look(void *ctx, const oq_turn *t, onq_error *err) {
    oq_nb_weigher *w = ctx;
    flt kept = {0};
    oq_outputs out = {0};
    OQ_TRY(run_sample(w, &t->samples[0], &out, err));
    uint64_t bytes = 0;
    for (size_t i = 0; i < out.n; i++)
        bytes += w->roles.states[i] ? 0 : out.v[i].size_bytes;
    if (w->floats.n == KEPT || (w->floats.n > 0 && bytes > MOST_KEPT - w->bytes))
        return ONQ_OK;
    w->bytes += bytes < MOST_KEPT - w->bytes ? bytes : MOST_KEPT - w->bytes;
    OQ_TRY(oq_sample_copy(&w->arena, &t->samples[0], &kept.sample, err));
    kept.outputs = OQ_NEW_ARRAY(&w->arena, oq_datum, out.n + 1);
    if (kept.outputs == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < out.n; i++)
        if (!w->roles.states[i])
            OQ_TRY(oq_datum_copy(&w->arena, &out.v[i], &kept.outputs[i], err));
    return OQ_PUSH(&w->arena, &w->floats, kept) ? ONQ_OK : oq_fail_nomem(err);
}

static bool looks_on(void *ctx, uint64_t at) {
    (void)ctx;
    return at < SEEN;
}

/* ---- harm ---- */

/* Of the logits of a language model, how far the distributions are apart; of other answers, the
 * noise. */
static double harm_of(const oq_nb_weigher *w, const flt *t, const oq_outputs *got) {
    const oq_language *l = &w->roles.language;
    double sum = 0;
    for (size_t i = 0; i < got->n; i++) {
        oq_lm_score score = {0};
        oq_agree agree = {0};
        if (w->roles.states[i])
            continue;
        if (l->is && l->logits == i) {
            const oq_lm_text text = {.ids = &t->sample.inputs[l->ids],
                                     .mask =
                                         l->mask != OQ_NOWHERE ? &t->sample.inputs[l->mask] : NULL};
            oq_lm_add(&score, &text, &t->outputs[i], &got->v[i]);
            sum += score.rows > 0 ? oq_lm_kl(&score) : 0;
            continue;
        }
        oq_agree_add(&agree, &t->outputs[i], &got->v[i]);
        sum += agree.aa > 0 ? agree.noise / agree.aa : 0;
    }
    return sum;
}

/* The mean harm over some of the samples that are kept, with the switches as they are. */
static onq_code measure(oq_nb_weigher *w, double *out, onq_error *err) {
    const size_t n = w->floats.n < w->wanted ? w->floats.n : w->wanted;
    double sum = 0;
    for (size_t k = 0; k < n; k++) {
        const flt *t = &w->floats.v[k];
        oq_outputs got = {0};
        OQ_TRY(run_sample(w, &t->sample, &got, err));
        sum += harm_of(w, t, &got);
    }
    *out = n > 0 && isfinite(sum) ? fmax(sum, 0) / (double)n : 0;
    return ONQ_OK;
}

/* ---- layers and kinds ---- */

typedef struct group {
    double harm;  /* measured */
    double guess; /* of its members, as they are scaled now */
    size_t n;
} group;

typedef struct table {
    uint32_t *layer, *kind; /* of each weight */
    double *room;           /* one for each group */
    double *known;          /* the harm of a weight that was weighed alone; < 0: it was not */
    OQ_VEC(group) layers, kinds;
} table;

static onq_code number(oq_arena *a, oq_map *map, oq_str key, size_t *n, uint32_t *out,
                       onq_error *err) {
    *out = oq_map_find(map, key);
    if (*out != OQ_MAP_NONE)
        return ONQ_OK;
    *out = (uint32_t)(*n)++;
    const oq_str mine = oq_str_copy(a, key);
    return mine.p != NULL && oq_map_put(map, mine, *out) ? ONQ_OK : oq_fail_nomem(err);
}

/* The name of a weight without its numbers: what the weights of all layers have in common. */
static oq_str kind_of(oq_arena *a, const oq_nb_weighed *w) {
    const oq_str name = w->reader->node.n > 0 ? w->reader->node : w->reader->output;
    const oq_nb_task *t = oq_nb_lazy_task(w->reader->weight);
    oq_str s = oq_str_format(a, "%llux%llu ", (unsigned long long)t->k, (unsigned long long)t->n);
    char *to = s.p != NULL ? oq_arena_alloc(a, s.n + name.n + 1) : NULL;
    if (to == NULL)
        return (oq_str){0};
    memcpy(to, s.p, s.n);
    size_t n = s.n;
    for (size_t i = 0; i < name.n; i++)
        if (name.p[i] < '0' || name.p[i] > '9')
            to[n++] = name.p[i];
    return (oq_str){to, n};
}

static onq_code find_groups(oq_nb_weigher *w, const oq_nb_weighed *all, size_t n, table *t,
                            onq_error *err) {
    oq_arena *a = &w->arena;
    oq_map layers, kinds;
    size_t n_layers = 0, n_kinds = 0;
    oq_map_init(&layers, a);
    oq_map_init(&kinds, a);
    t->layer = OQ_NEW_ARRAY(a, uint32_t, n + 1);
    t->kind = OQ_NEW_ARRAY(a, uint32_t, n + 1);
    t->known = OQ_NEW_ARRAY(a, double, n + 1);
    if (t->layer == NULL || t->kind == NULL || t->known == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < n; i++) {
        const oq_nb_reader *r = all[i].reader;
        const int64_t layer = oq_nb_layer_of(r->node, oq_nb_lazy_task(r->weight)->name);
        const oq_str key = n <= SINGLE  ? oq_str_format(a, "weight %zu", i)
                           : layer >= 0 ? oq_str_format(a, "layer %lld", (long long)layer)
                                        : oq_str_format(a, "part %zu", i * CHUNKS / n);
        if (key.p == NULL)
            return oq_fail_nomem(err);
        OQ_TRY(number(a, &layers, key, &n_layers, &t->layer[i], err));
        t->kind[i] = NO_KIND;
        t->known[i] = -1;
        const oq_str kind = n > SINGLE ? kind_of(a, &all[i]) : OQ_S("");
        if (kind.p == NULL)
            return oq_fail_nomem(err);
        if (n > SINGLE)
            OQ_TRY(number(a, &kinds, kind, &n_kinds, &t->kind[i], err));
    }
    t->room = OQ_NEW_ARRAY(a, double, n_layers + n_kinds + 1);
    OQ_TRY_ALLOC(t->room != NULL, err);
    for (size_t i = 0; i < n_layers + n_kinds; i++)
        if (!(i < n_layers ? OQ_PUSH(a, &t->layers, (group){0})
                           : OQ_PUSH(a, &t->kinds, (group){0})))
            return oq_fail_nomem(err);
    return ONQ_OK;
}

static void set_switch(oq_nb_weigher *w, const oq_nb_weighed *weight) {
    const size_t at = oq_nb_switch_of(&w->graph, weight->reader->weight);
    assert(at == OQ_NB_NO_SWITCH || at < w->graph.n);
    if (at != OQ_NB_NO_SWITCH)
        w->on[at] = true;
}

/* Runs the samples with the weights of one group quantized. */
static onq_code measure_group(oq_nb_weigher *w, const oq_nb_weighed *all, size_t n,
                              const uint32_t *of, uint32_t which, group *g, onq_error *err) {
    memset(w->on, 0, w->graph.n * sizeof *w->on);
    for (size_t i = 0; i < n; i++)
        if (of[i] == which) {
            set_switch(w, &all[i]);
            g->n++;
        }
    return measure(w, &g->harm, err);
}

static onq_code measure_groups(oq_nb_weigher *w, const oq_nb_weighed *all, size_t n, table *t,
                               onq_error *err) {
    const onq_env *env = w->job->model->env;
    const size_t total = t->layers.n + t->kinds.n;
    for (size_t i = 0; i < total; i++) {
        const bool by_layer = i < t->layers.n;
        OQ_TRY(oq_progress(env, "weighing", i, total, err));
        OQ_TRY(measure_group(w, all, n, by_layer ? t->layer : t->kind,
                             (uint32_t)(by_layer ? i : i - t->layers.n),
                             by_layer ? &t->layers.v[i] : &t->kinds.v[i - t->layers.n], err));
    }
    return oq_progress(env, "weighing", total, total, err);
}

static double sum_of(const group *g, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += g[i].harm;
    return sum;
}

/* Weighs every weight of a layer alone. */
static onq_code look_closer(oq_nb_weigher *w, const oq_nb_weighed *all, size_t n, table *t,
                            uint32_t layer, onq_error *err) {
    for (size_t i = 0; i < n; i++) {
        if (t->layer[i] != layer)
            continue;
        t->known[i] = t->layers.v[layer].harm;
        if (t->layers.v[layer].n > 1) {
            memset(w->on, 0, w->graph.n * sizeof *w->on);
            set_switch(w, &all[i]);
            OQ_TRY(measure(w, &t->known[i], err));
        }
    }
    return ONQ_OK;
}

/* What layers and kinds say together is wrong about a weight that is unlike others of its kind. The
 * layers that do most harm have those in which it matters. */
static onq_code look_closer_at_worst(oq_nb_weigher *w, const oq_nb_weighed *all, size_t n, table *t,
                                     onq_error *err) {
    const double half = CLOSER * sum_of(t->layers.v, t->layers.n);
    bool *done = OQ_NEW_ARRAY(&w->arena, bool, t->layers.n + 1);
    OQ_TRY_ALLOC(done != NULL, err);
    for (double seen_harm = 0; t->kinds.n > 0 && seen_harm < half;) {
        size_t worst = 0;
        for (size_t i = 0; i < t->layers.n; i++)
            if (done[worst] || (!done[i] && t->layers.v[i].harm > t->layers.v[worst].harm))
                worst = i;
        OQ_TRY(oq_progress(w->job->model->env, "weighing single weights",
                           (uint64_t)(100 * seen_harm / half), 100, err));
        OQ_TRY(look_closer(w, all, n, t, (uint32_t)worst, err));
        seen_harm += t->layers.v[worst].harm;
        done[worst] = true;
    }
    return ONQ_OK;
}

/* Scales the members of each group such that they sum up to what was measured of it and is not
 * known of single ones; a tenth of it is left for the others at least, since harms do not add up
 * exactly. */
static void fit(oq_nb_weighed *all, size_t n, const table *t, const uint32_t *of, group *groups,
                size_t n_groups, double unit) {
    double *known = t->room;
    for (size_t i = 0; i < n_groups; i++)
        groups[i].guess = known[i] = 0;
    for (size_t i = 0; i < n; i++) {
        assert(of[i] < n_groups);
        *(t->known[i] < 0 ? &groups[of[i]].guess : &known[of[i]]) += all[i].harm;
    }
    for (size_t i = 0; i < n; i++) {
        const group *g = &groups[of[i]];
        const double rest = fmax(g->harm * unit - known[of[i]], 0.1 * g->harm * unit);
        if (t->known[i] < 0)
            all[i].harm = g->guess > 0 ? all[i].harm * rest / g->guess : 0;
    }
}

onq_code oq_nb_weigher_weigh(void *ctx, oq_nb_weighed *all, size_t n, onq_error *err) {
    oq_nb_weigher *w = ctx;
    table t = {0};
    OQ_TRY(find_groups(w, all, n, &t, err));
    OQ_TRY(measure_groups(w, all, n, &t, err));
    OQ_TRY(look_closer_at_worst(w, all, n, &t, err));
    for (size_t i = 0; i < n; i++)
        all[i].harm = t.known[i] < 0 ? fmax(all[i].guess, 1e-30) : t.known[i];
    const double layers = sum_of(t.layers.v, t.layers.n), kinds = sum_of(t.kinds.v, t.kinds.n);
    if (!(layers > 0)) /* the samples tell nothing */
        return ONQ_OK;
    for (unsigned i = 0; i < ROUNDS && t.kinds.n > 0 && kinds > 0; i++) {
        fit(all, n, &t, t.kind, t.kinds.v, t.kinds.n, layers / kinds);
        fit(all, n, &t, t.layer, t.layers.v, t.layers.n, 1);
    }
    if (t.kinds.n == 0)
        fit(all, n, &t, t.layer, t.layers.v, t.layers.n, 1);
    return ONQ_OK;
}

/* ---- judging a choice ---- */

/* The whole model quantized as the configuration says, in a copy; weights that need samples to be
 * found are rounded. */
static onq_code make_few(oq_nb_weigher *w, oq_model *shell, oq_nb_made *made, oq_arena *a,
                         onq_error *err) {
    oq_nb_config plain = *w->job->config;
    oq_plan plan;
    plain.how.method = oq_nb_without_samples(plain.how.method);
    plain.shares.v = OQ_NEW_ARRAY(a, oq_nb_share, plain.shares.n + 1);
    OQ_TRY_ALLOC(plain.shares.v != NULL, err);
    for (size_t i = 0; i < plain.shares.n; i++) {
        plain.shares.v[i] = w->job->config->shares.v[i];
        plain.shares.v[i].method = oq_nb_without_samples(plain.shares.v[i].method);
    }
    *shell = *w->job->model;
    shell->proto = oq_message_clone(a, OQ_SCHEMA_model_proto, shell->proto);
    OQ_TRY_ALLOC(shell->proto != NULL, err);
    oq_plan_init(&plan, a);
    const oq_nb_job job = {.model = shell, .config = &plain, .plan = &plan, .made = made};
    return oq_nb_run(&job, err);
}

static onq_code judge(oq_nb_weigher *w, oq_model *few, double *harm, onq_error *err) {
    oq_session_options o = w->job->session;
    oq_session *session = NULL;
    o.model = few;
    o.n_threads = 0;
    o.level = OQ_OPT_NONE; /* packed weights are unpacked when they are read, not all at once */
    o.no_packing = o.no_turning = o.no_memory_reuse = true;
    onq_code rc = oq_session_open(w->job->engine, &o, &session, err);
    *harm = 0;
    for (size_t k = 0; k < w->floats.n && rc == ONQ_OK; k++) {
        oq_outputs got = {0};
        rc = oq_sample_run(session, NULL, &w->floats.v[k].sample, &got, err);
        if (rc == ONQ_OK)
            *harm += harm_of(w, &w->floats.v[k], &got) / (double)w->floats.n;
        w->runs++;
    }
    oq_session_close(session);
    return rc;
}

onq_code oq_nb_weigher_judge(void *ctx, double *harm, onq_error *err) {
    oq_nb_weigher *w = ctx;
    oq_model few;
    oq_nb_made made = {0};
    OQ_SCRATCH(scratch, &w->job->model->env->alloc);
    oq_session_close(w->session); /* all is weighed */
    w->session = NULL;
    onq_code rc = make_few(w, &few, &made, &scratch, err);
    if (rc == ONQ_OK)
        rc = judge(w, &few, harm, err);
    oq_nb_made_release(&made);
    return rc;
}

/* ---- the whole ---- */

static onq_code open_session(oq_nb_weigher *w, onq_error *err) {
    const oq_nb_learn_job *job = w->job;
    oq_model shell = *job->model;
    oq_session_options o = job->session;
    w->observer = (oq_observer){w->names.v, w->names.n, seen, w};
    shell.proto = w->graph.proto;
    o.model = &shell;
    o.n_threads = 0;
    o.level = OQ_OPT_BASIC;
    o.no_packing = o.no_turning = o.no_memory_reuse = true;
    o.observer = w->names.n > 0 ? &w->observer : NULL;
    o.observe_beside = true;
    return oq_session_open(job->engine, &o, &w->session, err);
}

onq_code oq_nb_weigher_see(void *ctx, oq_nb_weighed *all, size_t n, onq_error *err) {
    oq_nb_weigher *w = ctx;
    for (size_t i = 0; i < n; i++)
        if (!all[i].reader->gathers && oq_nb_lazy_task(all[i].reader->weight)->batch == 1)
            OQ_TRY(
                observe(w, all[i].reader->input, oq_nb_lazy_task(all[i].reader->weight)->k, err));
    OQ_TRY(oq_nb_switch_make(&w->graph, w->job->model, w->job->config, all, n, err));
    OQ_TRY(open_session(w, err));
    OQ_TRY(oq_roles_find(&w->arena, &w->session->inputs, &w->session->outputs, &w->roles, err));
    w->on = OQ_NEW_ARRAY(&w->arena, bool, w->graph.n + 1);
    w->data = OQ_NEW_ARRAY(&w->arena, oq_datum, w->session->inputs.n + 1);
    if (w->on == NULL || w->data == NULL)
        return oq_fail_nomem(err);
    const size_t groups = n <= SINGLE ? n : CHUNKS + CHUNKS / 4;
    const uint64_t samples = oq_source_count(w->job->source);
    const uint64_t each = 2 * samples / (groups + 1);
    w->wanted = each < 1 ? 1 : each > KEPT ? KEPT : (size_t)each;
    if (n <= SINGLE / 2 && w->wanted < 2)
        w->wanted = 2;
    w->looking = true;
    const oq_sweep sweep = {.env = w->job->model->env,
                            .model = {.source = w->job->source},
                            .ctx = w,
                            .more = looks_on,
                            .run = look,
                            .what = "looking at the inputs of weights"};
    OQ_TRY(oq_sweep_run(&sweep, err));
    w->looking = false;
    return fill_powers(w, all, n, err);
}

onq_code oq_nb_weigher_new(const oq_nb_learn_job *job, oq_nb_weigher **out, onq_error *err) {
    oq_nb_weigher *w = oq_calloc(&job->model->env->alloc, 1, sizeof *w);
    *out = w;
    if (w == NULL)
        return oq_fail_nomem(err);
    w->job = job;
    oq_arena_init(&w->arena, &job->model->env->alloc);
    oq_map_init(&w->input_map, &w->arena);
    oq_nb_switch_init(&w->graph, &w->arena);
    return ONQ_OK;
}

void oq_nb_weigher_free(oq_nb_weigher *w) {
    if (w == NULL)
        return;
    const onq_allocator *alloc = &w->job->model->env->alloc;
    oq_session_close(w->session);
    oq_nb_switch_release(&w->graph);
    oq_arena_release(&w->arena);
    oq_free(alloc, w, sizeof *w);
}

size_t oq_nb_weigher_runs(const oq_nb_weigher *w) {
    return w->runs;
}
