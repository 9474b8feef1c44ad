/*
 * slice.c — part of a graph as a model of its own. See slicer.h.
 *
 * It is found by a walk backwards from the tensors that are wanted to those that are at hand.
 */
#include "engine/slice/slicer.h"

#include "onnx/codec/schema.h"
#include "onnx/edit.h"

/* ---- the walk ---- */

bool *oq_slicer_at_hand(const oq_slicer *s, uint32_t place, oq_arena *a) {
    bool *out = OQ_NEW_ARRAY(a, bool, s->n_values + 1);
    for (uint32_t v = 0; out != NULL && v < s->n_values; v++) {
        const uint32_t made = oq_slicer_made_at(s, v);
        out[v] = s->kept[v] != NULL && (made == OQ_NO_VALUE || made < place);
    }
    return out;
}

onq_code oq_slicer_walk(const oq_slicer *s, const oq_numbers *wanted, const bool *at_hand,
                        oq_arena *a, oq_slice_walk *out, onq_error *err) {
    uint32_t *stack = OQ_NEW_ARRAY(a, uint32_t, s->n_values + 1);
    size_t depth = 0;
    out->nodes = OQ_NEW_ARRAY(a, bool, s->n_nodes + 1);
    out->values = OQ_NEW_ARRAY(a, bool, s->n_values + 1);
    OQ_TRY_ALLOC(stack != NULL && out->nodes != NULL && out->values != NULL, err);
    for (size_t i = 0; i < wanted->n; i++) {
        if (!out->values[wanted->v[i]])
            stack[depth++] = wanted->v[i];
        out->values[wanted->v[i]] = true;
    }
    while (depth > 0) {
        const uint32_t v = stack[--depth], node = s->ix.values.v[v].producer;
        if (at_hand[v] || node == OQ_NO_NODE || out->nodes[node])
            continue;
        out->nodes[node] = true;
        for (size_t i = 0; i < s->reads[node].n; i++) {
            const uint32_t read = s->reads[node].v[i];
            if (!out->values[read])
                stack[depth++] = read;
            out->values[read] = true;
        }
    }
    return ONQ_OK;
}

/* ---- the model ---- */

/* The slice takes the type of the first sample. Its shape may be another one in the next. */
static onq_code add_input(const oq_slicer *s, oq_slice *p, oq_graph *g, uint32_t value,
                          onq_error *err) {
    oq_arena *a = &p->model.arena;
    const oq_value *v = &s->ix.values.v[value];
    const oq_datum *d = oq_slicer_kept(s, value, 0);
    assert(d != NULL);
    oq_value_info *info = v->is_input ? v->info : NULL;
    if (d->kind == OQ_DATUM_TENSOR)
        info = oq_value_info_new(a, v->name, (int32_t)d->dtype, NULL, 0, false);
    else if (info == NULL)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "'%.*s', between two parts of the graph, is not a tensor", OQ_STR(v->name));
    return info != NULL && OQ_PUSH(a, &g->input, info) && OQ_PUSH(a, &p->in, value)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

/* Files of external data are opened by the model that will close them. */
static onq_code add_init(const oq_slicer *s, oq_slice *p, oq_graph *g, const oq_value *v,
                         onq_error *err) {
    oq_arena *a = &p->model.arena;
    oq_span data;
    if (v->init != NULL && oq_tensor_is_external(v->init))
        OQ_TRY(oq_model_data(s->o.model, v->init, &data, err));
    if ((v->init != NULL && !OQ_PUSH(a, &g->initializer, v->init)) ||
        (v->sparse_init != NULL && !OQ_PUSH(a, &g->sparse_initializer, v->sparse_init)))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

/* Types of outputs are the runtime's to find. */
static onq_code add_output(const oq_slicer *s, oq_slice *p, oq_graph *g, uint32_t value,
                           onq_error *err) {
    oq_arena *a = &p->model.arena;
    oq_value_info *info = OQ_NEW(a, oq_value_info);
    OQ_TRY_ALLOC(info != NULL && OQ_PUSH(a, &g->output, info), err);
    info->name = s->ix.values.v[value].name;
    return ONQ_OK;
}

static onq_code fill_graph(const oq_slicer *s, oq_slice *p, const oq_slice_walk *w,
                           const bool *at_hand, oq_graph *g, onq_error *err) {
    g->name = OQ_S("slice");
    for (size_t i = 0; i < s->n_nodes; i++)
        if (w->nodes[s->order[i]] &&
            !OQ_PUSH(&p->model.arena, &g->node, s->ix.graph->node.v[s->order[i]]))
            return oq_fail_nomem(err);
    for (uint32_t v = 0; v < s->n_values; v++)
        if (w->values[v])
            OQ_TRY(at_hand[v] ? add_input(s, p, g, v, err)
                              : add_init(s, p, g, &s->ix.values.v[v], err));
    for (size_t i = 0; i < p->out.n; i++)
        OQ_TRY(add_output(s, p, g, p->out.v[i], err));
    return ONQ_OK;
}

static onq_code make(const oq_slicer *s, oq_slice *p, const oq_numbers *wanted, uint32_t place,
                     onq_error *err) {
    oq_arena *a = &p->model.arena;
    const bool *at_hand = oq_slicer_at_hand(s, place, a);
    oq_model_proto *proto = OQ_NEW(a, oq_model_proto);
    oq_graph graph = {0};
    oq_slice_walk w;
    OQ_TRY_ALLOC(at_hand != NULL && proto != NULL, err);
    for (size_t i = 0; i < wanted->n; i++)
        if (!at_hand[wanted->v[i]] && !OQ_PUSH(a, &p->out, wanted->v[i]))
            return oq_fail_nomem(err);
    OQ_TRY(oq_slicer_walk(s, &p->out, at_hand, a, &w, err));
    OQ_TRY(fill_graph(s, p, &w, at_hand, &graph, err));
    *proto = *s->o.proto;
    proto->graph = oq_message_clone(a, OQ_SCHEMA_graph, &graph);
    p->model.proto = proto;
    p->feed = OQ_NEW_ARRAY(a, oq_datum, p->in.n + 1);
    return proto->graph != NULL && p->feed != NULL ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_slice_make(oq_slicer *s, const oq_numbers *wanted, uint32_t place, oq_slice *p,
                       onq_error *err) {
    *p = (oq_slice){.of = s, .model = *s->o.model};
    oq_arena_init(&p->model.arena, &s->env->alloc);
    const onq_code rc = make(s, p, wanted, place, err);
    s->n_slices += p->out.n > 0;
    if (rc != ONQ_OK)
        oq_slice_close(p);
    return rc;
}

/* ---- running ---- */

onq_code oq_slice_open(oq_slice *p, oq_opt_level level, onq_error *err) {
    oq_session_options o = p->of->o.session;
    if (p->out.n == 0)
        return ONQ_OK;
    o.model = &p->model;
    o.level = level;
    o.no_spinning = true;
    OQ_TRY(oq_session_open(p->of->o.engine, &o, &p->session, err));
    return p->session->inputs.n == p->in.n
               ? ONQ_OK
               : oq_fail(err, ONQ_E_INTERNAL, "a part of the graph has %zu inputs, not %zu",
                         p->session->inputs.n, p->in.n);
}

onq_code oq_slice_share(const oq_slice *of, oq_slice *p, onq_error *err) {
    *p = *of;
    p->session = NULL;
    p->got = (oq_outputs){0};
    oq_arena_init(&p->model.arena, &of->of->env->alloc);
    p->feed = OQ_NEW_ARRAY(&p->model.arena, oq_datum, p->in.n + 1);
    onq_code rc = p->feed != NULL ? ONQ_OK : oq_fail_nomem(err);
    if (rc == ONQ_OK && of->session != NULL)
        rc = oq_session_share(of->session, NULL, &p->session, err);
    if (rc != ONQ_OK)
        oq_slice_close(p);
    return rc;
}

onq_code oq_slice_run(oq_slice *p, const oq_slice *before, size_t sample, onq_error *err) {
    if (p->session == NULL)
        return ONQ_OK;
    for (size_t i = 0; i < p->in.n; i++) {
        const oq_datum *d = before != NULL ? oq_slice_given(before, p->in.v[i]) : NULL;
        if (d == NULL)
            d = oq_slicer_kept(p->of, p->in.v[i], sample);
        if (d == NULL)
            return oq_fail(err, ONQ_E_RUNTIME, "a part of the graph has no value for '%.*s'",
                           OQ_STR(p->of->ix.values.v[p->in.v[i]].name));
        p->feed[i] = *d;
    }
    return oq_session_run(p->session, p->feed, p->in.n, &p->got, err);
}

const oq_datum *oq_slice_given(const oq_slice *p, uint32_t value) {
    for (size_t i = 0; i < p->got.n; i++)
        if (p->out.v[i] == value)
            return &p->got.v[i];
    return NULL;
}

void oq_slice_close(oq_slice *p) {
    oq_session_close(p->session);
    if (p->of != NULL)
        oq_arena_release(&p->model.arena);
    *p = (oq_slice){0};
}
