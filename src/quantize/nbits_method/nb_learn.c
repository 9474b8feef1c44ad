/*
 * nb_learn.c — which weights share their inputs, and the runs that fill the Hessians.
 */
#include "quantize/nbits_method/nb_learn.h"

#include "engine/slice/stepper.h"
#include "engine/sweep.h"
#include "quantize/nbits_method/nb_stream.h"

/* Weights that read the same tensors, and what is known of those. */
typedef struct site {
    oq_strs inputs;
    uint64_t k;
    OQ_VEC(oq_nb_lazy *) weights;
    uint32_t stop, float_stop; /* a node that reads a weight, in either graph; or OQ_NO_NODE */
    oq_str output, stream;     /* of the one product, and what that is added to; or empty */
    uint64_t n;                /* numbers in a row of these */
    oq_hessian hessian;
} site;

typedef OQ_VEC(site *) site_list;

/* What the float model makes of a sample: product and stream added up. */
typedef struct sums {
    float *v;
    uint64_t n;
} sums;

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
    /* layer by layer: */
    site_list stepped;
    oq_stepper *floats, *made;
    site *at;         /* the site that is looked at */
    oq_datum *was;    /* of each sample, its input in the float model */
    sums *sums;       /* the same of a product that is added to a stream */
    double lost, had; /* of the inputs of a site: squares of what is lost, and of what float has */
    oq_arena kept;    /* these */
} learner;

/* ---- sites ---- */

/* A weight, and what its readers multiply it with. */
typedef struct met {
    oq_nb_lazy *weight;
    oq_strs inputs;
} met;
typedef OQ_VEC(met) met_list;

/* Every weight that is rounded by a Hessian, in the order of its first reader. */
static onq_code meet_weights(learner *l, const oq_nb_made *made, met_list *out, onq_error *err) {
    oq_map numbers;
    oq_map_init(&numbers, &l->arena);
    for (size_t i = 0; i < made->readers.n; i++) {
        const oq_nb_reader *r = &made->readers.v[i];
        const oq_nb_task *t = oq_nb_lazy_task(r->weight);
        if (!t->method->by_hessian || t->batch > 1 || r->gathers)
            continue;
        const oq_str key = {(const char *)&r->weight, sizeof r->weight};
        const uint32_t at = oq_map_find_or_put(&numbers, key, (uint32_t)out->n);
        OQ_TRY_ALLOC(at != OQ_MAP_NONE, err);
        if (at == out->n)
            OQ_TRY_ALLOC(OQ_PUSH(&l->arena, out, (met){.weight = r->weight}), err);
        assert(at < out->n);
        OQ_TRY_ALLOC(OQ_PUSH(&l->arena, &out->v[at].inputs, r->input), err);
    }
    return ONQ_OK;
}

/* Weights with the same key share a site: as many rows, and the same inputs. */
static onq_code site_key(learner *l, const met *w, oq_str *key, onq_error *err) {
    *key = oq_str_format(&l->arena, "%llu", (unsigned long long)oq_nb_lazy_task(w->weight)->k);
    for (size_t i = 0; i < w->inputs.n && key->p != NULL; i++)
        *key = oq_str_format(&l->arena, "%.*s %zu:%.*s", OQ_STR(*key), w->inputs.v[i].n,
                             OQ_STR(w->inputs.v[i]));
    return key->p != NULL ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code find_sites(learner *l, const oq_nb_made *made, onq_error *err) {
    met_list weights = {0};
    oq_map sites;
    oq_map_init(&sites, &l->arena);
    OQ_TRY(meet_weights(l, made, &weights, err));
    for (size_t i = 0; i < weights.n; i++) {
        const met *w = &weights.v[i];
        oq_str key;
        OQ_TRY(site_key(l, w, &key, err));
        const uint32_t at = oq_map_find_or_put(&sites, key, (uint32_t)l->sites.n);
        if (at == l->sites.n) {
            site *s = OQ_NEW(&l->arena, site);
            if (s == NULL || !OQ_PUSH(&l->arena, &l->sites, s))
                return oq_fail_nomem(err);
            s->inputs = w->inputs;
            s->k = oq_nb_lazy_task(w->weight)->k;
            s->stop = s->float_stop = OQ_NO_NODE;
        }
        if (at == OQ_MAP_NONE || !OQ_PUSH(&l->arena, &l->sites.v[at]->weights, w->weight))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* Hands on what was begun at `began`, and adds the time that it took. */
static onq_code timed(onq_code rc, double began, double *to) {
    *to += oq_cpu_seconds() - began;
    return rc;
}

/* ---- a run ---- */

static onq_code add_seen(learner *l, size_t index, const oq_datum *d, onq_error *err) {
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

static onq_code seen(void *ctx, size_t index, const oq_datum *d, onq_error *err) {
    learner *l = ctx;
    const double began = oq_cpu_seconds();
    return timed(add_seen(l, index, d, err), began, &l->job->times.sums);
}

static onq_code run_samples(learner *l, oq_model *flt, onq_error *err) {
    oq_nb_learn_job *job = l->job;
    const oq_observer observer = {l->names.v, l->names.n, seen, l};
    oq_session_options o = job->session;
    oq_session *session = NULL;
    o.model = flt;
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
                               (size_t)s->k, 0, l->job->memory, err));
        for (size_t i = 0; i < s->inputs.n; i++)
            OQ_TRY(observe(l, s->inputs.v[i], s, err));
    }
    return ONQ_OK;
}

/* ---- layer by layer ---- */

/* The tensor that holds the integers of a weight, or NULL. */
static const oq_tensor *integers_of(const oq_graph *g, const oq_nb_lazy *w) {
    for (size_t i = 0; i < g->initializer.n; i++)
        if (g->initializer.v[i]->raw_data.producer == oq_nb_lazy_part(w, OQ_NB_Q))
            return g->initializer.v[i];
    return NULL;
}

/* A product of the site in the quantized graph: it reads the integers, or what DequantizeLinear and
 * Transpose make of them. */
static onq_code find_made(learner *l, const oq_graph *g, onq_error *err) {
    oq_map of;
    oq_map_init(&of, &l->arena);
    for (size_t i = 0; i < l->sites.n; i++)
        for (size_t k = 0; k < l->sites.v[i]->weights.n; k++) {
            const oq_tensor *t = integers_of(g, l->sites.v[i]->weights.v[k]);
            OQ_TRY_ALLOC(t == NULL || oq_map_put(&of, t->name, (uint32_t)i), err);
        }
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        const uint32_t passed = n->input.n > 0 ? oq_map_find(&of, n->input.v[0]) : OQ_MAP_NONE;
        const uint32_t read = n->input.n > 1 ? oq_map_find(&of, n->input.v[1]) : OQ_MAP_NONE;
        if (passed != OQ_MAP_NONE && n->output.n == 1)
            OQ_TRY_ALLOC(oq_map_put(&of, n->output.v[0], passed), err);
        if (read == OQ_MAP_NONE || l->sites.v[read]->stop != OQ_NO_NODE ||
            !oq_str_eq(n->input.v[0], l->sites.v[read]->inputs.v[0]))
            continue;
        l->sites.v[read]->stop = (uint32_t)i;
    }
    return ONQ_OK;
}

/* The same in the float graph: the first node that reads the input and one of the weights. */
static void find_float(learner *l, const oq_graph *g, const oq_nb_made *made) {
    for (size_t i = 0; i < made->readers.n; i++) {
        const oq_nb_reader *r = &made->readers.v[i];
        for (size_t s = 0; s < l->sites.n; s++) {
            site *at = l->sites.v[s];
            if (at->float_stop != OQ_NO_NODE || at->weights.v[0] != r->weight || r->gathers)
                continue;
            for (size_t n = 0; n < g->node.n && at->float_stop == OQ_NO_NODE; n++)
                if (g->node.v[n]->output.n == 1 && oq_str_eq(g->node.v[n]->output.v[0], r->output))
                    at->float_stop = (uint32_t)n;
        }
    }
}

/* Sites that both graphs can stop at, in the order of the graph; the others remain in l->sites. */
static onq_code divide_sites(learner *l, onq_error *err) {
    size_t rest = 0;
    for (size_t i = 0; i < l->sites.n; i++) {
        site *s = l->sites.v[i];
        if (s->inputs.n != 1 || s->stop == OQ_NO_NODE || s->float_stop == OQ_NO_NODE) {
            l->sites.v[rest++] = s;
            continue;
        }
        OQ_TRY_ALLOC(OQ_PUSH(&l->arena, &l->stepped, s), err);
        for (size_t k = l->stepped.n - 1; k > 0 && l->stepped.v[k - 1]->stop > s->stop; k--) {
            l->stepped.v[k] = l->stepped.v[k - 1];
            l->stepped.v[k - 1] = s;
        }
    }
    l->sites.n = rest;
    return ONQ_OK;
}

static onq_code new_stepper(learner *l, oq_model_proto *proto, bool floats, oq_stepper **out,
                            onq_error *err) {
    uint32_t *stops = OQ_NEW_ARRAY(&l->arena, uint32_t, l->stepped.n + 1);
    oq_str *beside = OQ_NEW_ARRAY(&l->arena, oq_str, l->stepped.n + 1);
    OQ_TRY_ALLOC(stops != NULL && beside != NULL, err);
    for (size_t i = 0; i < l->stepped.n; i++) {
        stops[i] = floats ? l->stepped.v[i]->float_stop : l->stepped.v[i]->stop;
        beside[i] = l->stepped.v[i]->stream;
    }
    oq_stepper_options o = {.slice = {.engine = l->job->engine,
                                      .session = l->job->session,
                                      .model = l->job->model,
                                      .proto = proto},
                            .stops = stops,
                            .n_stops = l->stepped.n,
                            .beside = beside,
                            .memory = l->job->memory / 2};
    o.slice.session.n_threads = OQ_THREADS_RUNTIME;
    return oq_stepper_new(&o, l->job->source, out, err);
}

static onq_code check_input(const learner *l, const oq_datum *d, onq_error *err) {
    const oq_dtype_info *info = oq_dtype_find(d->dtype);
    if (d->kind == OQ_DATUM_TENSOR && info != NULL && info->cls == OQ_CLASS_REAL && d->rank > 0 &&
        (uint64_t)d->dims[d->rank - 1] == l->at->k)
        return ONQ_OK;
    return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s' does not have %llu channels of numbers",
                   OQ_STR(l->at->inputs.v[0]), (unsigned long long)l->at->k);
}

static onq_code keep_float(void *ctx, size_t sample, const oq_datum *d, onq_error *err) {
    learner *l = ctx;
    OQ_TRY(check_input(l, d, err));
    return oq_datum_copy(&l->kept, d, &l->was[sample], err);
}

static onq_code add_rows(learner *l, size_t sample, const oq_datum *d, onq_error *err) {
    const oq_datum *was = &l->was[sample];
    oq_arena_release(&l->scratch);
    oq_arena_init(&l->scratch, &l->job->model->env->alloc);
    OQ_TRY(check_input(l, d, err));
    if (d->count == 0 || was->count != d->count)
        return ONQ_OK;
    const float *x = oq_datum_floats(d, &l->scratch), *y = oq_datum_floats(was, &l->scratch);
    OQ_TRY_ALLOC(x != NULL && y != NULL, err);
    for (uint64_t i = 0; i < d->count; i++) {
        const double lost = (double)x[i] - (double)y[i];
        l->lost += lost * lost;
        l->had += (double)y[i] * (double)y[i];
    }
    return oq_hessian_add(&l->at->hessian, x, y, (size_t)(d->count / l->at->k), (size_t)l->at->k,
                          err);
}

static onq_code add_both(void *ctx, size_t sample, const oq_datum *d, onq_error *err) {
    learner *l = ctx;
    const double began = oq_cpu_seconds();
    return timed(add_rows(l, sample, d, err), began, &l->job->times.sums);
}

/* ---- products that are added to a stream ---- */

/* The only node that reads the site's only weight, or NULL. */
static const oq_nb_reader *only_reader(const site *s, const oq_nb_made *made) {
    const oq_nb_reader *found = NULL;
    for (size_t i = 0; i < made->readers.n && s->weights.n == 1; i++)
        if (made->readers.v[i].weight == s->weights.v[0]) {
            if (found != NULL)
                return NULL;
            found = &made->readers.v[i];
        }
    return found;
}

/* Of each node of the quantized graph, the last of the sites that it depends on, and 1 more. */
static onq_code last_sites(learner *l, const oq_index *ix, size_t **out, onq_error *err) {
    const oq_graph *g = ix->graph;
    size_t *last = *out = OQ_NEW_ARRAY(&l->arena, size_t, g->node.n + 1);
    uint32_t *order = NULL;
    OQ_TRY_ALLOC(last != NULL, err);
    OQ_TRY(oq_topo_order(ix, &l->arena, &order, err));
    for (size_t i = 0; i < l->stepped.n; i++)
        for (size_t k = 0; k < l->stepped.v[i]->weights.n; k++) {
            const oq_tensor *t = integers_of(g, l->stepped.v[i]->weights.v[k]);
            const oq_value *v = t != NULL ? oq_index_find(ix, t->name) : NULL;
            for (size_t u = 0; v != NULL && u < v->uses.n; u++)
                last[v->uses.v[u].node] = i + 1; /* the greatest comes last */
        }
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[order[i]];
        for (size_t k = 0; k < n->output.n; k++) {
            const oq_value *v = n->output.v[k].n > 0 ? oq_index_find(ix, n->output.v[k]) : NULL;
            for (size_t u = 0; v != NULL && u < v->uses.n; u++) {
                size_t *to = &last[v->uses.v[u].node];
                *to = *to > last[order[i]] ? *to : last[order[i]];
            }
        }
    }
    return ONQ_OK;
}

/* What is added must be there when the site is rounded: no later site makes it. */
static onq_code find_streams(learner *l, oq_model_proto *flt, const oq_nb_made *made,
                             onq_error *err) {
    oq_index floats, quantized;
    size_t *last = NULL;
    OQ_TRY(oq_index_build(&floats, &l->arena, flt->graph, NULL, err));
    OQ_TRY(oq_index_build(&quantized, &l->arena, l->job->model->proto->graph, NULL, err));
    OQ_TRY(last_sites(l, &quantized, &last, err));
    for (size_t i = 0; i < l->stepped.n; i++) {
        site *s = l->stepped.v[i];
        const oq_nb_reader *reader = only_reader(s, made);
        const oq_str other =
            reader != NULL ? oq_nb_stream_of(&floats, reader->output) : (oq_str){0};
        const oq_value *v = other.n > 0 ? oq_index_find(&quantized, other) : NULL;
        if (v == NULL || v->producer == OQ_NO_NODE || last[v->producer] > i)
            continue;
        s->stream = other;
        s->output = reader->output;
        s->n = oq_nb_lazy_task(s->weights.v[0])->n;
    }
    return ONQ_OK;
}

/* A stream of another size (one row for all, say) is left out here and in add_stream: what remains
 * is the product's own output. */
static onq_code keep_sum(void *ctx, size_t sample, const oq_datum *d, onq_error *err) {
    learner *l = ctx;
    oq_arena_release(&l->scratch);
    oq_arena_init(&l->scratch, &l->job->model->env->alloc);
    const float *y = oq_datum_floats(&d[0], &l->scratch), *r = oq_datum_floats(&d[1], &l->scratch);
    float *sum = OQ_NEW_ARRAY(&l->kept, float, d[0].count + 1);
    OQ_TRY_ALLOC(y != NULL && r != NULL && sum != NULL, err);
    for (uint64_t i = 0; i < d[0].count; i++)
        sum[i] = d[1].count == d[0].count ? y[i] + r[i] : y[i];
    l->sums[sample] = (sums){sum, d[0].count};
    return ONQ_OK;
}

static onq_code add_sum_rows(learner *l, size_t sample, const oq_datum *d, onq_error *err) {
    const site *s = l->at;
    const sums *of_float = &l->sums[sample];
    const uint64_t rows = d[0].count / s->k;
    oq_arena_release(&l->scratch);
    oq_arena_init(&l->scratch, &l->job->model->env->alloc);
    OQ_TRY(check_input(l, d, err));
    if (rows * s->n != of_float->n)
        return ONQ_OK;
    const float *x = oq_datum_floats(&d[0], &l->scratch), *r = oq_datum_floats(&d[1], &l->scratch);
    float *row = OQ_NEW_ARRAY(&l->scratch, float, s->k),
          *rest = OQ_NEW_ARRAY(&l->scratch, float, s->n);
    OQ_TRY_ALLOC(x != NULL && r != NULL && row != NULL && rest != NULL, err);
    for (uint64_t i = 0; i < rows; i++) {
        const oq_nb_stream_row at = {x + i * s->k, of_float->v + i * s->n,
                                     d[1].count == of_float->n ? r + i * s->n : NULL, s->k, s->n};
        oq_nb_stream_weigh(&at, row, rest);
        OQ_TRY(oq_hessian_add(&l->at->hessian, row, rest, 1, (size_t)s->k, err));
    }
    return ONQ_OK;
}

static onq_code add_stream(void *ctx, size_t sample, const oq_datum *d, onq_error *err) {
    learner *l = ctx;
    const double began = oq_cpu_seconds();
    return timed(add_sum_rows(l, sample, d, err), began, &l->job->times.sums);
}

static onq_code make_weights(learner *l, site *s, onq_error *err);

/* Half of the memory is for matrices; activations of the samples and the weights that are solved
 * share the rest. */
static onq_code step_site(learner *l, size_t i, onq_error *err) {
    site *s = l->at = l->stepped.v[i];
    const size_t n = oq_stepper_samples(l->floats);
    oq_arena_init(&l->kept, &l->job->model->env->alloc);
    l->was = OQ_NEW_ARRAY(&l->kept, oq_datum, n + 1);
    l->lost = l->had = 0;
    l->sums = OQ_NEW_ARRAY(&l->kept, sums, n + 1);
    const bool added = s->stream.n > 0;
    const oq_str of_float[2] = {s->output, s->stream}, of_made[2] = {s->inputs.v[0], s->stream};
    onq_code rc =
        l->was != NULL && l->sums != NULL
            ? oq_hessian_init(&s->hessian, &l->linear, l->pool, &l->job->model->env->alloc,
                              (size_t)s->k, (size_t)(added ? s->n : s->k), l->job->memory / 2, err)
            : oq_fail_nomem(err);
    if (rc == ONQ_OK)
        rc = added ? oq_stepper_go(l->floats, i, of_float, 2, keep_sum, l, err)
                   : oq_stepper_go(l->floats, i, &s->inputs.v[0], 1, keep_float, l, err);
    if (rc == ONQ_OK)
        rc = added ? oq_stepper_go(l->made, i, of_made, 2, add_stream, l, err)
                   : oq_stepper_go(l->made, i, &s->inputs.v[0], 1, add_both, l, err);
    oq_arena_release(&l->kept);
    l->job->n_few += s->hessian.rows < s->k;
    l->job->noise = l->had > 0 ? l->lost / l->had : l->job->noise;
    if (rc == ONQ_OK)
        rc = make_weights(l, s, err);
    oq_hessian_release(&s->hessian);
    return rc;
}

static onq_code step_sites(learner *l, oq_model *flt, onq_error *err) {
    if (l->stepped.n == 0)
        return ONQ_OK;
    OQ_TRY(new_stepper(l, flt->proto, true, &l->floats, err));
    OQ_TRY(new_stepper(l, l->job->model->proto, false, &l->made, err));
    for (size_t i = 0; i < l->stepped.n; i++) {
        OQ_TRY(oq_progress(l->job->model->env, "rounding layers", i, l->stepped.n, err));
        OQ_TRY(step_site(l, i, err));
    }
    l->job->n_layers = l->stepped.n;
    l->job->n_samples = oq_stepper_samples(l->made);
    return ONQ_OK;
}

/* ---- all of them ---- */

static onq_code solve(learner *l, site *s, onq_error *err) {
    oq_round_factor factor = {0};
    const oq_nb_learned learned = {.hessian = &s->hessian,
                                   .factor = &factor,
                                   .outputs = s->stream.n > 0,
                                   .job = l->job,
                                   .linear = &l->linear,
                                   .pool = l->pool};
    OQ_TRY(oq_hessian_finish(&s->hessian, err));
    onq_code rc = ONQ_OK;
    for (size_t i = 0; i < s->weights.n && rc == ONQ_OK; i++)
        rc = oq_nb_lazy_make(s->weights.v[i], &learned, err);
    oq_round_factor_release(&factor, &s->hessian);
    return rc;
}

static onq_code make_weights(learner *l, site *s, onq_error *err) {
    const double began = oq_cpu_seconds();
    return timed(solve(l, s, err), began, &l->job->times.solving);
}

static onq_code fill_rest(learner *l, oq_model *flt, onq_error *err) {
    onq_code rc = ONQ_OK;
    for (; l->from < l->sites.n && rc == ONQ_OK; l->from = l->to) {
        rc = choose_sites(l, err);
        if (rc == ONQ_OK)
            rc = run_samples(l, flt, err);
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

static onq_code run(learner *l, oq_model *flt, const oq_nb_made *made, onq_error *err) {
    OQ_TRY(oq_pool_new(l->job->model->env, &l->pool, err));
    OQ_TRY(find_sites(l, made, err));
    OQ_TRY(find_made(l, l->job->model->proto->graph, err));
    find_float(l, flt->proto->graph, made);
    OQ_TRY(divide_sites(l, err));
    OQ_TRY(find_streams(l, flt->proto, made, err));
    OQ_TRY(fill_rest(l, flt, err)); /* before they are run */
    return step_sites(l, flt, err);
}

onq_code oq_nb_learn(oq_nb_learn_job *job, oq_model_proto *flt, oq_nb_made *made, onq_error *err) {
    learner l = {.job = job};
    oq_model shell = *job->model;
    shell.proto = flt;
    oq_arena_init(&l.arena, &job->model->env->alloc);
    oq_arena_init(&l.scratch, &job->model->env->alloc);
    const double began = oq_cpu_seconds();
    oq_linear_open(&l.linear, false);
    const onq_code rc = run(&l, &shell, made, err);
    job->times.runs = oq_cpu_seconds() - began - job->times.sums - job->times.solving;
    oq_stepper_free(l.floats);
    oq_stepper_free(l.made);
    oq_linear_close(&l.linear);
    oq_pool_free(l.pool);
    oq_arena_release(&l.scratch);
    oq_arena_release(&l.arena);
    return rc;
}
