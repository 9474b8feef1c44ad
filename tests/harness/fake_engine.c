/*
 * fake_engine.c — see fake_engine.h.
 */
#include "fake_engine.h"

#include "evaluate.h"
#include "onnx/codec/schema.h"
#include "onnx/graph.h"
#include "onnx/tensor.h"

typedef struct value {
    oq_datum d;  /* kind NONE: not computed yet */
    ev_tensor t; /* the same, where it is a tensor of numbers: v is not NULL */
} value;

typedef struct fake_session {
    oq_session base;
    fake_engine *engine;
    oq_arena arena;
    oq_arena run_arena;
    oq_model *model;
    oq_graph *graph; /* as it was when the session was opened */
    const oq_observer *observer;
    oq_map names; /* tensor -> index in values */
    value *values;
    size_t n_values;
    oq_datum *out;
} fake_session;

static value *slot(fake_session *s, oq_str name) {
    const uint32_t i = oq_map_find(&s->names, name);
    return i == OQ_MAP_NONE ? NULL : &s->values[i];
}

static onq_code declare(fake_session *s, oq_str name, onq_error *err) {
    if (oq_map_has(&s->names, name))
        return ONQ_OK;
    return oq_map_put(&s->names, name, (uint32_t)s->n_values++) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code declare_all(fake_session *s, onq_error *err) {
    const oq_graph *g = s->graph;
    size_t most = g->input.n + g->initializer.n;
    oq_map_init(&s->names, &s->arena);
    for (size_t i = 0; i < g->input.n; i++)
        OQ_TRY(declare(s, g->input.v[i]->name, err));
    for (size_t i = 0; i < g->initializer.n; i++)
        OQ_TRY(declare(s, g->initializer.v[i]->name, err));
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        if (!evaluate_knows(n) || n->output.n > EV_RANK)
            return oq_fail(err, ONQ_E_RUNTIME,
                           "node '%.*s' (%.*s): the fake engine has no such "
                           "operator",
                           OQ_STR(n->name), OQ_STR(n->op_type));
        for (size_t k = 0; k < n->output.n; k++)
            OQ_TRY(declare(s, n->output.v[k], err));
        most += n->output.n;
    }
    s->values = OQ_NEW_ARRAY(&s->arena, value, most + 1);
    return s->values != NULL ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code name_outputs(fake_session *s, onq_error *err) {
    oq_ios *all = &s->base.outputs;
    OQ_TRY(oq_model_outputs(s->model, &s->arena, all, err));
    s->out = OQ_NEW_ARRAY(&s->arena, oq_datum, all->n + 1);
    if (s->out == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < all->n; i++)
        if (slot(s, all->v[i].name) == NULL)
            return oq_fail(err, ONQ_E_RUNTIME, "there is no tensor '%.*s'", OQ_STR(all->v[i].name));
    return ONQ_OK;
}

static void session_close(oq_session *base) {
    fake_session *s = (fake_session *)base;
    __atomic_sub_fetch(&s->engine->n_open, 1, __ATOMIC_RELAXED);
    oq_arena_release(&s->run_arena);
    oq_arena_release(&s->arena);
    oq_free(&base->engine->env->alloc, s, sizeof *s);
}

static onq_code session_open(oq_engine *e, const oq_session_options *o, oq_session **out,
                             onq_error *err) {
    fake_session *s = oq_calloc(&e->env->alloc, 1, sizeof *s);
    if (s == NULL)
        return oq_fail_nomem(err);
    s->base.engine = e;
    s->engine = (fake_engine *)e;
    __atomic_add_fetch(&s->engine->n_sessions, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&s->engine->n_open, 1, __ATOMIC_RELAXED);
    s->model = o->model;
    s->observer = o->observer;
    oq_arena_init(&s->arena, &e->env->alloc);
    oq_arena_init(&s->run_arena, &e->env->alloc);
    s->graph = oq_message_clone(&s->arena, OQ_SCHEMA_graph, o->model->proto->graph);
    onq_code rc = s->graph == NULL ? oq_fail_nomem(err) : ONQ_OK;
    if (rc == ONQ_OK)
        rc = oq_model_inputs(o->model, &s->arena, &s->base.inputs, err);
    if (rc == ONQ_OK)
        rc = declare_all(s, err);
    if (rc == ONQ_OK)
        rc = name_outputs(s, err);
    for (size_t i = 0; rc == ONQ_OK && o->observer != NULL && i < o->observer->n_names; i++)
        if (slot(s, o->observer->names[i]) == NULL)
            rc = oq_fail(err, ONQ_E_INVALID, "there is no tensor '%.*s' in the graph to observe",
                         OQ_STR(o->observer->names[i]));
    if (rc != ONQ_OK)
        session_close(&s->base);
    else
        *out = &s->base;
    return rc;
}

static onq_code session_share(oq_session *of, const oq_observer *observer, oq_session **out,
                              onq_error *err) {
    const oq_session_options o = {.model = ((fake_session *)of)->model, .observer = observer};
    return session_open(of->engine, &o, out, err);
}

/* ---- running ---- */

static onq_code show(fake_session *s, oq_str name, onq_error *err) {
    const oq_observer *o = s->observer;
    for (size_t i = 0; o != NULL && i < o->n_names; i++)
        if (oq_str_eq(o->names[i], name))
            OQ_TRY(o->seen(o->ctx, i, &slot(s, name)->d, err));
    return ONQ_OK;
}

static const ev_tensor *find_value(void *ctx, oq_str name) {
    const value *v = slot(ctx, name);
    return v != NULL && v->t.v != NULL ? &v->t : NULL;
}

static onq_code run_node(fake_session *s, const oq_node *n, onq_error *err) {
    const evaluation e = {s->model, &s->run_arena, find_value, s};
    ev_tensor made[EV_RANK];
    OQ_TRY(evaluate_node(&e, n, made, err));
    for (size_t i = 0; i < n->output.n; i++) {
        value *v = slot(s, n->output.v[i]);
        v->t = made[i];
        OQ_TRY(ev_to_datum(&s->run_arena, &v->t, &v->d, err));
        OQ_TRY(show(s, n->output.v[i], err));
    }
    return ONQ_OK;
}

static onq_code set_value(fake_session *s, oq_str name, const oq_datum *d, onq_error *err) {
    value *v = slot(s, name);
    v->d = *d;
    if (d->kind == OQ_DATUM_TENSOR && d->dtype != OQ_STRING)
        OQ_TRY(ev_from_datum(&s->run_arena, d, &v->t, err));
    return show(s, name, err);
}

static onq_code set_initializers(fake_session *s, onq_error *err) {
    const oq_graph *g = s->graph;
    for (size_t i = 0; i < g->initializer.n; i++) {
        oq_tensor *t = g->initializer.v[i];
        oq_span data;
        float *copy = NULL;
        OQ_TRY(oq_model_data(s->model, t, &data, err));
        copy = oq_arena_alloc(&s->run_arena, data.n + 1); /* aligned */
        if (copy == NULL)
            return oq_fail_nomem(err);
        memcpy(copy, data.p, data.n);
        oq_datum d = {.kind = OQ_DATUM_TENSOR,
                      .dtype = (oq_dtype)t->data_type.v,
                      .rank = t->dims.n,
                      .dims = t->dims.v,
                      .data = copy,
                      .size_bytes = data.n};
        OQ_TRY(oq_tensor_count(t, &d.count, err));
        OQ_TRY(set_value(s, t->name, &d, err));
    }
    return ONQ_OK;
}

static onq_code session_run(oq_session *base, const oq_datum *inputs, size_t n_inputs,
                            oq_outputs *out, onq_error *err) {
    fake_session *s = (fake_session *)base;
    const oq_graph *g = s->graph;
    if (__atomic_add_fetch(&s->engine->n_runs, 1, __ATOMIC_RELAXED) == s->engine->fail_at_run)
        return oq_fail(err, ONQ_E_RUNTIME, "the fake engine was told to fail");
    oq_arena_release(&s->run_arena);
    oq_arena_init(&s->run_arena, &base->engine->env->alloc);
    memset(s->values, 0, s->n_values * sizeof *s->values);
    OQ_TRY(set_initializers(s, err));
    for (size_t i = 0; i < n_inputs; i++)
        OQ_TRY(set_value(s, base->inputs.v[i].name, &inputs[i], err));
    __atomic_add_fetch(&s->engine->n_nodes, (long)g->node.n, __ATOMIC_RELAXED);
    for (size_t i = 0; i < g->node.n; i++)
        OQ_TRY(run_node(s, g->node.v[i], err));
    for (size_t i = 0; i < base->outputs.n; i++)
        s->out[i] = slot(s, base->outputs.v[i].name)->d;
    if (out != NULL)
        *out = (oq_outputs){s->out, base->outputs.n};
    return ONQ_OK;
}

static void engine_end(oq_engine *e) {
    (void)e; /* the test's own */
}

void fake_engine_init(fake_engine *f, onq_env *env) {
    static const oq_engine_ops ops = {.open = session_open,
                                      .run = session_run,
                                      .share = session_share,
                                      .close = session_close,
                                      .end = engine_end};
    *f = (fake_engine){.base = {.ops = &ops, .env = env, .name = "a fake engine"}};
}
