/*
 * debug_activations.c — onq_activations and onq_activation_match: the tensors that an augmented
 * model gave out, and which of them belong together (the reference's collect_activations,
 * create_activation_matching and compute_activation_error).
 */
#include "api/isolate/isolate.h"
#include "api/options/choices.h"
#include "api/samples.h"
#include "debug/augment.h"
#include "debug/measure/noise.h"
#include "engine/sweep.h"

typedef struct row {
    const char *name;
    OQ_VEC(onq_tensor) samples;
} row;

struct onq_activations {
    onq_env *env;
    oq_arena arena;
    oq_map map; /* name -> row */
    OQ_VEC(row) rows;
};

/* ---- the set ---- */

onq_code onq_activations_new(onq_env *env, onq_activations **out, onq_error *err) {
    *out = NULL;
    onq_activations *s = oq_calloc(&env->alloc, 1, sizeof *s);
    OQ_TRY_ALLOC(s != NULL, err);
    s->env = env;
    oq_arena_init(&s->arena, &env->alloc);
    oq_map_init(&s->map, &s->arena);
    *out = s;
    return ONQ_OK;
}

void onq_activations_free(onq_activations *set) {
    if (set == NULL)
        return;
    const onq_allocator *a = &set->env->alloc;
    oq_arena_release(&set->arena);
    oq_free(a, set, sizeof *set);
}

/* The row of a name; a new one if the name is new. */
static onq_code row_of(onq_activations *s, oq_str name, row **out, onq_error *err) {
    uint32_t at = oq_map_find(&s->map, name);
    if (at == OQ_MAP_NONE) {
        at = (uint32_t)s->rows.n;
        const char *copy = oq_str_cstr(&s->arena, name);
        if (copy == NULL || !OQ_PUSH(&s->arena, &s->rows, (row){.name = copy}) ||
            !oq_map_put(&s->map, oq_str_of(copy), at))
            return oq_fail_nomem(err);
    }
    *out = &s->rows.v[at];
    return ONQ_OK;
}

/* Appends the tensor; its dims are copied and, with `own`, its data. */
static onq_code append(onq_activations *s, oq_str name, const onq_tensor *t, bool own,
                       onq_error *err) {
    row *r = NULL;
    onq_tensor copy = *t;
    OQ_TRY(row_of(s, name, &r, err));
    int64_t *dims = OQ_NEW_ARRAY(&s->arena, int64_t, t->rank + 1);
    void *data = own ? oq_arena_alloc(&s->arena, t->size + 1) : NULL;
    if (dims == NULL || (own && data == NULL))
        return oq_fail_nomem(err);
    if (t->rank > 0)
        memcpy(dims, t->dims, t->rank * sizeof *dims);
    if (own && t->size > 0)
        memcpy(data, t->data, t->size);
    copy.name = r->name;
    copy.dims = dims;
    if (own)
        copy.data = data;
    return OQ_PUSH(&s->arena, &r->samples, copy) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code onq_activations_add(onq_activations *set, const char *name, const onq_tensor *tensor,
                             onq_error *err) {
    uint64_t count = 0;
    OQ_TRY(oq_noise_count(tensor, &count, err));
    return append(set, oq_str_of(name), tensor, false, err);
}

size_t onq_activations_count(const onq_activations *set) {
    return set->rows.n;
}

const char *onq_activations_name(const onq_activations *set, size_t i) {
    return i < set->rows.n ? set->rows.v[i].name : NULL;
}

const onq_tensor *onq_activations_at(const onq_activations *set, size_t i, size_t *n) {
    *n = i < set->rows.n ? set->rows.v[i].samples.n : 0;
    return *n > 0 ? set->rows.v[i].samples.v : NULL;
}

/* ---- collecting ---- */

typedef struct collecting {
    oq_job job;
    oq_model *model;
    oq_engine *engine;
    oq_session *session;
    oq_source *source;
    onq_activations *set;
} collecting;

/* Keeps the outputs that onq_debug_modify_model added. */
static onq_code keep(void *ctx, const oq_turn *turn, onq_error *err) {
    collecting *c = ctx;
    const oq_outputs *out = &turn->outputs[0];
    const oq_str end = OQ_S(OQ_DEBUG_SAVED);
    for (size_t i = 0; i < out->n; i++) {
        const oq_str name = c->session->outputs.v[i].name;
        const oq_datum *d = &out->v[i];
        if (!oq_str_ends(name, end) || d->kind != OQ_DATUM_TENSOR || d->strings != NULL)
            continue;
        const onq_tensor t = {.dtype = (int32_t)d->dtype,
                              .rank = d->rank,
                              .dims = d->dims,
                              .data = d->data,
                              .size = (size_t)d->size_bytes};
        OQ_TRY(append(c->set, (oq_str){name.p, name.n - end.n}, &t, true, err));
    }
    return ONQ_OK;
}

static onq_code collect(collecting *c, onq_error *err) {
    const onq_options *o = c->job.opts;
    oq_session_options so;
    const char *path = oq_job_input(&c->job);
    if (path == NULL || strcmp(o->command->info.name, "run") != 0)
        return oq_fail(err, ONQ_E_OPTION,
                       "collecting needs options of the command 'run' with its model");
    OQ_TRY(oq_job_open(&c->job, path, &c->model, err));
    OQ_TRY(oq_job_source(&c->job, c->model, &c->source, err));
    oq_source_read_once(c->source);
    OQ_TRY(oq_job_engine(&c->job, &c->engine, err));
    OQ_TRY(oq_job_session(&c->job, &so, err));
    so.model = c->model;
    so.level = oq_opt_is_set(o, "optimization")
                   ? OQ_CHOSEN(o, "optimization", oq_opt_level, OQ_LEVEL_CHOICES)
                   : OQ_OPT_NONE;
    OQ_TRY_IN(oq_session_open(c->engine, &so, &c->session, err), err, "%s", path);
    const oq_sweep sweep = {.env = c->job.env,
                            .model = {.source = c->source, .session = c->session, .path = path},
                            .ctx = c,
                            .take = keep,
                            .what = "samples"};
    return oq_sweep_run(&sweep, err);
}

onq_code onq_activations_collect(onq_env *env, const onq_options *opts, const onq_reader *reader,
                                 onq_activations **out, onq_error *err) {
    collecting c = {.job = {.env = env, .opts = opts}};
    *out = NULL;
    OQ_TRY(oq_isolate_refuse(opts, err));
    OQ_TRY(onq_activations_new(env, &c.set, err));
    const unsigned threads_before = env->n_threads;
    if (oq_opt_has(opts, "threads") && oq_opt_is_set(opts, "threads"))
        env->n_threads = (unsigned)oq_opt_int(opts, "threads");
    oq_arena_init(&c.job.arena, &env->alloc);
    onq_code rc = reader != NULL ? oq_job_read(&c.job, reader, err) : ONQ_OK;
    if (rc == ONQ_OK)
        rc = collect(&c, err);
    oq_session_close(c.session);
    oq_engine_close(c.engine);
    oq_source_close(c.source);
    oq_tape_free(c.job.tape);
    oq_model_free(c.model);
    oq_arena_release(&c.job.arena);
    env->n_threads = threads_before;
    if (rc == ONQ_OK)
        *out = c.set;
    else
        onq_activations_free(c.set);
    return rc;
}

/* ---- matching ---- */

struct onq_activation_match {
    const onq_activations *qdq, *flt;
    oq_arena arena;
    oq_map map; /* name -> row */
    OQ_VEC(onq_activation_row) rows;
};

static uint32_t find(const onq_activations *s, oq_str name) {
    return s != NULL ? oq_map_find(&s->map, name) : OQ_MAP_NONE;
}

/* A row replaces what had its name, at the old place. */
static onq_code put_row(onq_activation_match *m, oq_str base, size_t pre, size_t post,
                        onq_error *err) {
    const uint32_t flt = find(m->flt, base);
    assert(pre < m->qdq->rows.n && post < m->qdq->rows.n);
    const char *name = oq_str_cstr(&m->arena, base);
    OQ_TRY_ALLOC(name != NULL, err);
    const onq_activation_row found = {name, pre, post, flt != OQ_MAP_NONE ? flt : ONQ_NONE};
    const uint32_t at = oq_map_find(&m->map, base);
    if (at != OQ_MAP_NONE) {
        m->rows.v[at] = found;
        return ONQ_OK;
    }
    if (!oq_map_put(&m->map, oq_str_of(name), (uint32_t)m->rows.n) ||
        !OQ_PUSH(&m->arena, &m->rows, found))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static onq_code match_row(onq_activation_match *m, size_t i, onq_error *err) {
    oq_str base = oq_str_of(m->qdq->rows.v[i].name);
    const bool is_pre = oq_str_cut_end(&base, "_QuantizeLinear_Input");
    if (!is_pre && !oq_str_cut_end(&base, "_DequantizeLinear_Output") &&
        !oq_str_cut_end(&base, "_DequantizeLinear_Output_1"))
        return ONQ_OK;
    const uint32_t other = find(m->qdq, base);
    if (other == OQ_MAP_NONE)
        return ONQ_OK;
    return put_row(m, base, is_pre ? i : other, is_pre ? other : i, err);
}

onq_code onq_activation_match_new(const onq_activations *qdq, const onq_activations *flt,
                                  onq_activation_match **out, onq_error *err) {
    *out = NULL;
    onq_activation_match *m = oq_calloc(&qdq->env->alloc, 1, sizeof *m);
    OQ_TRY_ALLOC(m != NULL, err);
    m->qdq = qdq;
    m->flt = flt;
    oq_arena_init(&m->arena, &qdq->env->alloc);
    oq_map_init(&m->map, &m->arena);
    for (size_t i = 0; i < qdq->rows.n; i++) {
        const onq_code rc = match_row(m, i, err);
        if (rc != ONQ_OK) {
            onq_activation_match_free(m);
            return rc;
        }
    }
    *out = m;
    return ONQ_OK;
}

void onq_activation_match_free(onq_activation_match *match) {
    if (match == NULL)
        return;
    const onq_allocator *a = &match->qdq->env->alloc;
    oq_arena_release(&match->arena);
    oq_free(a, match, sizeof *match);
}

size_t onq_activation_match_count(const onq_activation_match *match) {
    return match->rows.n;
}

const onq_activation_row *onq_activation_match_at(const onq_activation_match *match, size_t i) {
    return i < match->rows.n ? &match->rows.v[i] : NULL;
}

onq_code onq_activation_match_error(const onq_activation_match *match, size_t i, double *qdq_err,
                                    double *xmodel_err, onq_error *err) {
    *qdq_err = *xmodel_err = NAN;
    const onq_activation_row *r = onq_activation_match_at(match, i);
    if (r == NULL)
        return oq_fail(err, ONQ_E_INVALID, "there is no activation %zu, only %zu", i,
                       match->rows.n);
    size_t n_pre = 0, n_post = 0, n_float = 0;
    const onq_tensor *pre = onq_activations_at(match->qdq, r->pre_qdq, &n_pre);
    const onq_tensor *post = onq_activations_at(match->qdq, r->post_qdq, &n_post);
    onq_code rc = oq_noise_sqnr(pre, n_pre, post, n_post, qdq_err, err);
    if (rc == ONQ_OK && r->flt != ONQ_NONE) {
        const onq_tensor *flt = onq_activations_at(match->flt, r->flt, &n_float);
        rc = oq_noise_sqnr(flt, n_float, post, n_post, xmodel_err, err);
    }
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "activation '%.200s'", r->name);
}
