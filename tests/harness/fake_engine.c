/*
 * fake_engine.c — see fake_engine.h.
 */
#include "fake_engine.h"

#include "onnx/codec/schema.h"
#include "onnx/graph.h"
#include "onnx/tensor.h"

#include <math.h>

typedef struct value {
    oq_datum d; /* kind NONE: not computed yet */
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

static const char *const unary[] = {"Identity", "Neg", "Relu", "Abs"};
static const char *const binary[] = {"Add", "Sub", "Mul"};
static const char *const pairs[] = {"QuantizeLinear", "DequantizeLinear"};

static int find_op(oq_str op, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (oq_str_is(op, list[i]))
            return (int)i;
    return -1;
}

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
        const bool known = find_op(n->op_type, unary, OQ_COUNT(unary)) >= 0 ||
                           find_op(n->op_type, binary, OQ_COUNT(binary)) >= 0 ||
                           find_op(n->op_type, pairs, OQ_COUNT(pairs)) >= 0 ||
                           oq_str_is(n->op_type, "MatMul");
        if (!known)
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

static onq_code name_outputs(fake_session *s, const oq_session_options *o, onq_error *err) {
    oq_ios own;
    OQ_TRY(oq_model_outputs(s->model, &s->arena, &own, err));
    if (o->only_extra_outputs)
        own.n = 0;
    const size_t n = own.n + o->n_extra_outputs;
    oq_io *all = OQ_NEW_ARRAY(&s->arena, oq_io, n + 1);
    s->out = OQ_NEW_ARRAY(&s->arena, oq_datum, n + 1);
    if (all == NULL || s->out == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < n; i++) {
        if (i < own.n)
            all[i] = own.v[i];
        else
            all[i].name = o->extra_outputs[i - own.n];
        if (slot(s, all[i].name) == NULL)
            return oq_fail(err, ONQ_E_RUNTIME, "there is no tensor '%.*s'", OQ_STR(all[i].name));
    }
    s->base.outputs = (oq_ios){all, n};
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
        rc = name_outputs(s, o, err);
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

/* Extra outputs are not shared. */
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

static float apply(int op1, int op2, float x, float y) {
    if (op1 >= 0)
        return op1 == 0 ? x : op1 == 1 ? -x : op1 == 2 ? (x > 0 ? x : 0) : fabsf(x);
    return op2 == 0 ? x + y : op2 == 1 ? x - y : x * y;
}

/* QuantizeLinear and DequantizeLinear of one scale, to and from 8 bits. */
static onq_code run_pair(fake_session *s, const oq_node *n, bool dequantize, onq_error *err) {
    const oq_datum *x = &slot(s, n->input.v[0])->d, *scale = &slot(s, n->input.v[1])->d,
                   *zero = &slot(s, n->input.v[2])->d;
    const oq_dtype type = zero->dtype;
    if (x->kind != OQ_DATUM_TENSOR || scale->count != 1 || zero->count != 1 ||
        (type != OQ_UINT8 && type != OQ_INT8) || x->dtype != (dequantize ? type : OQ_FLOAT))
        return oq_fail(err, ONQ_E_RUNTIME, "node '%.*s': a pair that the fake engine cannot run",
                       OQ_STR(n->name));
    const bool is_signed = type == OQ_INT8;
    const int lo = is_signed ? -128 : 0, hi = is_signed ? 127 : 255;
    const int z = (int)oq_raw_get_int(type, zero->data, 0);
    const float step = *(const float *)scale->data;
    float *f = OQ_NEW_ARRAY(&s->run_arena, float, x->count + 1);
    uint8_t *q = OQ_NEW_ARRAY(&s->run_arena, uint8_t, x->count + 1);
    if (f == NULL || q == NULL)
        return oq_fail_nomem(err);
    for (uint64_t i = 0; i < x->count; i++) {
        if (dequantize) {
            f[i] = (float)((int)oq_raw_get_int(type, x->data, i) - z) * step;
        } else {
            const float v = nearbyintf(((const float *)x->data)[i] / step) + (float)z;
            q[i] = (uint8_t)(int)(v < (float)lo ? (float)lo : v > (float)hi ? (float)hi : v);
        }
    }
    oq_datum *d = &slot(s, n->output.v[0])->d;
    *d = *x;
    d->dtype = dequantize ? OQ_FLOAT : type;
    d->data = dequantize ? (const void *)f : q;
    d->size_bytes = d->count * (dequantize ? sizeof(float) : 1);
    return show(s, n->output.v[0], err);
}

/* MatMul of two matrices. */
static onq_code run_product(fake_session *s, const oq_node *n, onq_error *err) {
    const oq_datum *x = &slot(s, n->input.v[0])->d, *w = &slot(s, n->input.v[1])->d;
    if (x->rank != 2 || w->rank != 2 || x->dims[1] != w->dims[0] || x->dtype != OQ_FLOAT ||
        w->dtype != OQ_FLOAT)
        return oq_fail(err, ONQ_E_RUNTIME, "node '%.*s': the fake engine takes two matrices",
                       OQ_STR(n->name));
    const int64_t rows = x->dims[0], inner = x->dims[1], cols = w->dims[1];
    const float *a = x->data, *b = w->data;
    float *out = OQ_NEW_ARRAY(&s->run_arena, float, (size_t)(rows * cols) + 1);
    int64_t *dims = OQ_NEW_ARRAY(&s->run_arena, int64_t, 2);
    if (out == NULL || dims == NULL)
        return oq_fail_nomem(err);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            for (int64_t k = 0; k < inner; k++)
                out[r * cols + c] += a[r * inner + k] * b[k * cols + c];
    dims[0] = rows;
    dims[1] = cols;
    oq_datum *d = &slot(s, n->output.v[0])->d;
    *d = *x;
    d->dims = dims;
    d->count = (uint64_t)(rows * cols);
    d->size_bytes = d->count * sizeof *out;
    d->data = out;
    return show(s, n->output.v[0], err);
}

static onq_code run_node(fake_session *s, const oq_node *n, onq_error *err) {
    if (oq_str_is(n->op_type, "MatMul"))
        return run_product(s, n, err);
    const int pair = find_op(n->op_type, pairs, OQ_COUNT(pairs));
    if (pair >= 0)
        return run_pair(s, n, pair == 1, err);
    const int op1 = find_op(n->op_type, unary, OQ_COUNT(unary));
    const int op2 = find_op(n->op_type, binary, OQ_COUNT(binary));
    const oq_datum *x = &slot(s, n->input.v[0])->d;
    const oq_datum *y = op1 >= 0 ? x : &slot(s, n->input.v[1])->d;
    if (y->count > x->count) {
        const oq_datum *t = x;
        x = y;
        y = t;
    }
    if (x->kind != OQ_DATUM_TENSOR || y->kind != OQ_DATUM_TENSOR || x->dtype != OQ_FLOAT ||
        (y->count != x->count && y->count != 1 &&
         (y->rank != 1 || x->rank == 0 || y->dims[0] != x->dims[x->rank - 1])))
        return oq_fail(err, ONQ_E_RUNTIME, "node '%.*s': inputs that the fake engine cannot join",
                       OQ_STR(n->name));
    float *out = OQ_NEW_ARRAY(&s->run_arena, float, x->count + 1);
    if (out == NULL)
        return oq_fail_nomem(err);
    for (uint64_t i = 0; i < x->count; i++)
        out[i] =
            apply(op1, op2, ((const float *)x->data)[i], ((const float *)y->data)[i % y->count]);
    oq_datum *d = &slot(s, n->output.v[0])->d;
    *d = *x;
    d->data = out;
    return show(s, n->output.v[0], err);
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
        oq_datum *d = &slot(s, t->name)->d;
        *d = (oq_datum){.kind = OQ_DATUM_TENSOR,
                        .dtype = (oq_dtype)t->data_type.v,
                        .rank = t->dims.n,
                        .dims = t->dims.v,
                        .data = copy,
                        .size_bytes = data.n};
        OQ_TRY(oq_tensor_count(t, &d->count, err));
        OQ_TRY(show(s, t->name, err));
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
    for (size_t i = 0; i < n_inputs; i++) {
        slot(s, base->inputs.v[i].name)->d = inputs[i];
        OQ_TRY(show(s, base->inputs.v[i].name, err));
    }
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
