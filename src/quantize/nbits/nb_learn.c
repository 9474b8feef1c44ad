/*
 * nb_learn.c — which weights share their inputs, and the runs that fill the Hessians.
 */
#include "quantize/nbits/nb_learn.h"

#include "engine/sweep.h"

/* Weights that read the same tensors, and what is known of those. */
typedef struct site {
    oq_strs inputs;
    uint64_t k;
    OQ_VEC(oq_nb_lazy *) weights;
    oq_hessian hessian;
} site;

typedef OQ_VEC(site *) site_list;

typedef struct learner {
    oq_nb_learn_job *job;
    oq_arena arena;
    oq_pool *pool;
    oq_linear linear;
    site_list sites;
    size_t from, to;      /* the sites that this run fills */
    OQ_VEC(oq_str) names; /* what it observes, each once */
    OQ_VEC(site_list) of_names;
    oq_map numbers; /* of the names */
    oq_arena scratch;
} learner;

/* ---- sites ---- */

static site *find_site(const learner *l, const oq_strs *inputs, uint64_t k) {
    for (size_t i = 0; i < l->sites.n; i++) {
        site *s = l->sites.v[i];
        bool same = s->k == k && s->inputs.n == inputs->n;
        for (size_t j = 0; same && j < inputs->n; j++)
            same = oq_str_eq(s->inputs.v[j], inputs->v[j]);
        if (same)
            return s;
    }
    return NULL;
}

/* Everything that reads weight i of the readers; false if an earlier one has the same weight. */
static bool inputs_of(learner *l, const oq_nb_made *made, size_t i, oq_strs *out) {
    *out = (oq_strs){0};
    for (size_t j = 0; j < made->readers.n; j++) {
        if (made->readers.v[j].weight != made->readers.v[i].weight || made->readers.v[j].gathers)
            continue;
        if (j < i)
            return false;
        if (!OQ_PUSH(&l->arena, out, made->readers.v[j].input))
            return false;
    }
    return true;
}

static onq_code find_sites(learner *l, const oq_nb_made *made, onq_error *err) {
    for (size_t i = 0; i < made->readers.n; i++) {
        oq_nb_lazy *w = made->readers.v[i].weight;
        const oq_nb_task *t = oq_nb_lazy_task(w);
        oq_strs inputs;
        if (!t->method->by_hessian || t->batch > 1 || made->readers.v[i].gathers ||
            !inputs_of(l, made, i, &inputs))
            continue;
        site *s = find_site(l, &inputs, t->k);
        if (s == NULL) {
            s = OQ_NEW(&l->arena, site);
            if (s == NULL || !OQ_PUSH(&l->arena, &l->sites, s))
                return oq_fail_nomem(err);
            s->inputs = inputs;
            s->k = t->k;
        }
        if (!OQ_PUSH(&l->arena, &s->weights, w))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* ---- a run ---- */

static onq_code seen(void *ctx, size_t index, const oq_datum *d, onq_error *err) {
    learner *l = ctx;
    const site_list *sites = &l->of_names.v[index];
    const oq_dtype_info *info = oq_dtype_find(d->dtype);
    const bool numbers = d->kind == OQ_DATUM_TENSOR && info != NULL && info->cls == OQ_CLASS_REAL;
    const float *x = NULL;
    oq_arena_release(&l->scratch);
    oq_arena_init(&l->scratch, &l->job->model->env->alloc);
    if (numbers && d->count > 0 && (x = oq_datum_floats(d, &l->scratch)) == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < sites->n; i++) {
        const uint64_t k = sites->v[i]->k;
        if (!numbers || d->rank == 0 || (uint64_t)d->dims[d->rank - 1] != k)
            return oq_fail(err, ONQ_E_INVALID,
                           "tensor '%.*s' does not have %llu channels of numbers",
                           OQ_STR(l->names.v[index]), (unsigned long long)k);
        OQ_TRY(
            oq_hessian_add(&sites->v[i]->hessian, x, NULL, (size_t)(d->count / k), (size_t)k, err));
    }
    return ONQ_OK;
}

static onq_code run_samples(learner *l, oq_model *truth, onq_error *err) {
    oq_nb_learn_job *job = l->job;
    const oq_observer observer = {l->names.v, l->names.n, seen, l};
    oq_session_options o = job->session;
    oq_session *session = NULL;
    o.model = truth;
    o.n_threads = OQ_THREADS_RUNTIME;
    o.level = OQ_OPT_BASIC;
    o.observer = &observer;
    OQ_TRY(oq_session_open(job->engine, &o, &session, err));
    const uint64_t n = oq_source_count(job->source);
    const oq_sweep sweep = {.env = job->model->env,
                            .model = {.source = job->source, .session = session},
                            .what = "looking at the inputs of weights",
                            .done = l->from * n,
                            .each = l->to - l->from,
                            .total = l->sites.n * n};
    const onq_code rc = oq_sweep_run(&sweep, err);
    oq_session_close(session);
    job->n_passes++;
    return rc;
}

/* One tensor may be the input of several sites, and of several readers of one: it then counts as
 * often. */
static onq_code observe(learner *l, oq_str name, site *s, onq_error *err) {
    uint32_t at = oq_map_find(&l->numbers, name);
    if (at == OQ_MAP_NONE) {
        at = (uint32_t)l->names.n;
        if (!oq_map_put(&l->numbers, name, at) || !OQ_PUSH(&l->arena, &l->names, name) ||
            !OQ_PUSH(&l->arena, &l->of_names, (site_list){0}))
            return oq_fail_nomem(err);
    }
    return OQ_PUSH(&l->arena, &l->of_names.v[at], s) ? ONQ_OK : oq_fail_nomem(err);
}

/* As many sites as memory holds, one at least. */
static onq_code choose_sites(learner *l, onq_error *err) {
    uint64_t used = 0;
    l->names.n = l->of_names.n = 0;
    oq_map_init(&l->numbers, &l->arena);
    for (l->to = l->from; l->to < l->sites.n; l->to++) {
        site *s = l->sites.v[l->to];
        const uint64_t bytes = 8 * s->k * s->k + 4 * OQ_HESSIAN_ROWS * s->k;
        if (l->to > l->from && (used > l->job->memory || bytes > l->job->memory - used))
            break;
        used += bytes;
        OQ_TRY(oq_hessian_init(&s->hessian, &l->linear, l->pool, &l->job->model->env->alloc,
                               (size_t)s->k, false, err));
        for (size_t i = 0; i < s->inputs.n; i++)
            OQ_TRY(observe(l, s->inputs.v[i], s, err));
    }
    return ONQ_OK;
}

static onq_code make_weights(learner *l, site *s, onq_error *err) {
    const oq_nb_learned learned = {
        .hessian = &s->hessian, .job = l->job, .linear = &l->linear, .pool = l->pool};
    OQ_TRY(oq_hessian_finish(&s->hessian, err));
    for (size_t i = 0; i < s->weights.n; i++)
        OQ_TRY(oq_nb_lazy_make(s->weights.v[i], &learned, err));
    return ONQ_OK;
}

static onq_code run(learner *l, oq_model *truth, const oq_nb_made *made, onq_error *err) {
    OQ_TRY(oq_pool_new(l->job->model->env, &l->pool, err));
    OQ_TRY(find_sites(l, made, err));
    onq_code rc = ONQ_OK;
    for (; l->from < l->sites.n && rc == ONQ_OK; l->from = l->to) {
        rc = choose_sites(l, err);
        if (rc == ONQ_OK)
            rc = run_samples(l, truth, err);
        for (size_t i = l->from; i < l->sites.n && i <= l->to; i++) {
            site *s = l->sites.v[i];
            if (rc == ONQ_OK && i < l->to)
                rc = make_weights(l, s, err);
            if (s->hessian.alloc != NULL)
                oq_hessian_release(&s->hessian);
            s->hessian = (oq_hessian){0};
        }
    }
    return rc;
}

onq_code oq_nb_learn(oq_nb_learn_job *job, oq_model_proto *truth, oq_nb_made *made,
                     onq_error *err) {
    learner l = {.job = job};
    oq_model shell = *job->model;
    shell.proto = truth;
    oq_arena_init(&l.arena, &job->model->env->alloc);
    oq_arena_init(&l.scratch, &job->model->env->alloc);
    oq_linear_open(&l.linear, false);
    const onq_code rc = run(&l, &shell, made, err);
    oq_pool_free(l.pool);
    oq_arena_release(&l.scratch);
    oq_arena_release(&l.arena);
    return rc;
}
