/*
 * qnn_io.c — inputs and outputs for QNN: fixed shapes, channels last.
 */
#include "onnx/codec/schema.h"
#include "onnx/edit.h"
#include "prepare/qnn_parts.h"
#include "shape/shape.h"

/* ---- fixed shapes ---- */

typedef struct dim_change {
    oq_str param; /* p == NULL: only clear sizes below 1 */
    int64_t value;
} dim_change;

static oq_tensor_type *tensor_type(const oq_value_info *v) {
    return v->type != NULL ? v->type->tensor_type : NULL;
}

static void change_dims(const oq_value_info *v, const dim_change *c) {
    const oq_tensor_type *t = tensor_type(v);
    for (size_t i = 0; t != NULL && t->shape != NULL && i < t->shape->dim.n; i++) {
        oq_dim *d = t->shape->dim.v[i];
        if (c->param.p == NULL) {
            if (d->dim_value.has && d->dim_value.v < 1)
                d->dim_value = (oq_opt_i64){0};
        } else if (d->dim_param.p != NULL && oq_str_eq(d->dim_param, c->param)) {
            d->dim_param = (oq_str){0};
            d->denotation = (oq_str){0};
            d->dim_value = OQ_I64(c->value);
        }
    }
}

static onq_code change_graph(void *ctx, oq_graph *g, onq_error *err OQ_UNUSED) {
    for (size_t i = 0; i < g->input.n; i++)
        change_dims(g->input.v[i], ctx);
    for (size_t i = 0; i < g->output.n; i++)
        change_dims(g->output.v[i], ctx);
    for (size_t i = 0; i < g->value_info.n; i++)
        change_dims(g->value_info.v[i], ctx);
    return ONQ_OK;
}

static oq_value_info *find_info(oq_value_info **v, size_t n, oq_str name) {
    for (size_t i = 0; i < n; i++)
        if (oq_str_eq(v[i]->name, name))
            return v[i];
    return NULL;
}

static onq_code fix_input(oq_model *m, const oq_qnn_shape *s, onq_error *err) {
    oq_graph *g = m->proto->graph;
    const oq_value_info *v = find_info(g->input.v, g->input.n, s->name);
    const oq_tensor_type *t = v != NULL ? tensor_type(v) : NULL;
    if (t == NULL)
        return oq_fail(err, ONQ_E_CONFIG,
                       "--dynamic_input_shapes: '%.*s' is not a tensor among the inputs",
                       OQ_STR(s->name));
    const size_t rank = t->shape != NULL ? t->shape->dim.n : 0;
    if (rank != s->rank)
        return oq_fail(err, ONQ_E_CONFIG,
                       "--dynamic_input_shapes: input '%.*s' has %zu dimensions, %zu are given",
                       OQ_STR(s->name), rank, s->rank);
    for (size_t i = 0; i < rank; i++) {
        oq_dim *d = t->shape->dim.v[i];
        if (d->dim_value.has && d->dim_value.v != s->dims[i])
            return oq_fail(
                err, ONQ_E_CONFIG,
                "--dynamic_input_shapes: dimension %zu of input '%.*s' is %lld and cannot become "
                "%lld",
                i + 1, OQ_STR(s->name), (long long)d->dim_value.v, (long long)s->dims[i]);
        if (d->dim_param.p != NULL) {
            dim_change c = {d->dim_param, s->dims[i]};
            OQ_TRY(oq_walk_graphs(g, change_graph, &c, err));
        } else if (!d->dim_value.has) {
            d->denotation = (oq_str){0};
            d->dim_value = OQ_I64(s->dims[i]);
        }
    }
    return ONQ_OK;
}

static bool is_fixed(const oq_tensor_type *t) {
    for (size_t i = 0; t->shape != NULL && i < t->shape->dim.n; i++)
        if (!t->shape->dim.v[i]->dim_value.has || t->shape->dim.v[i]->dim_value.v <= 0)
            return false;
    return t->shape != NULL;
}

/* Outputs whose shape follows from those of the inputs now. */
static onq_code fix_outputs(oq_model *m, onq_error *err) {
    oq_graph *g = m->proto->graph;
    oq_shapes *shapes = NULL;
    onq_code rc = oq_shapes_infer(m, NULL, &shapes, err);
    for (size_t i = 0; rc == ONQ_OK && i < g->output.n; i++) {
        oq_tensor_type *t = tensor_type(g->output.v[i]);
        oq_tensor_info info;
        if (t == NULL || is_fixed(t) ||
            !oq_shapes_tensor(shapes, NULL, g->output.v[i]->name, &info) || !info.has_shape ||
            !info.is_fixed)
            continue;
        int64_t *dims = OQ_NEW_ARRAY(&m->arena, int64_t, info.rank + 1);
        for (size_t k = 0; dims != NULL && k < info.rank; k++)
            dims[k] = info.dims[k].n;
        const oq_value_info *fresh = dims != NULL
                                         ? oq_value_info_new(&m->arena, g->output.v[i]->name,
                                                             t->elem_type.v, dims, info.rank, true)
                                         : NULL;
        if (fresh == NULL)
            rc = oq_fail_nomem(err);
        else
            t->shape = fresh->type->tensor_type->shape;
    }
    oq_shapes_free(shapes);
    return rc;
}

onq_code oq_qnn_fix_shapes(oq_model *m, const oq_qnn_shape *s, size_t n, onq_error *err) {
    dim_change clear = {{0}, 0};
    for (size_t i = 0; i < n; i++) {
        OQ_TRY(oq_walk_graphs(m->proto->graph, change_graph, &clear, err));
        OQ_TRY(fix_input(m, &s[i], err));
    }
    return fix_outputs(m, err);
}

/* ---- channels last ---- */

typedef struct last {
    oq_model *m;
    oq_arena *scratch;
    oq_map wanted; /* names of inputs and outputs to turn -> index in names */
    OQ_VEC(oq_str) fresh;
    oq_map all; /* every name of a tensor */
    OQ_VEC(oq_value_info *) infos;
} last;

static void raise_number(oq_str name, oq_str prefix, int64_t *next) {
    int64_t v;
    if (oq_str_starts(name, prefix) &&
        oq_str_to_i64((oq_str){name.p + prefix.n, name.n - prefix.n}, &v) && v >= *next &&
        v < INT64_MAX)
        *next = v + 1;
}

/* The name of the tensor with channels first: NAME_channel_first_N, N above all that are there. */
static oq_str first_name(last *l, oq_str name) {
    const oq_graph *g = l->m->proto->graph;
    const oq_str prefix = oq_str_cat(&l->m->arena, name, OQ_S("_channel_first_"));
    int64_t next = 0;
    if (prefix.p == NULL)
        return prefix;
    for (size_t i = 0; i < g->input.n; i++)
        raise_number(g->input.v[i]->name, prefix, &next);
    for (size_t i = 0; i < g->output.n; i++)
        raise_number(g->output.v[i]->name, prefix, &next);
    for (size_t i = 0; i < g->node.n; i++)
        for (size_t k = 0; k < g->node.v[i]->input.n; k++)
            raise_number(g->node.v[i]->input.v[k], prefix, &next);
    for (;; next++) {
        const oq_str s = oq_qnn_number(l->m, prefix, next);
        if (s.p == NULL || !oq_map_has(&l->all, s))
            return s;
    }
}

static onq_code turn_name(void *ctx, oq_str *name, onq_error *err) {
    last *l = ctx;
    const uint32_t at = name->n != 0 ? oq_map_find(&l->wanted, *name) : OQ_MAP_NONE;
    if (at == OQ_MAP_NONE)
        return ONQ_OK;
    if (l->fresh.v[at].p == NULL) {
        const oq_graph *g = l->m->proto->graph;
        const oq_str fresh = first_name(l, *name);
        oq_value_info *from = find_info(g->input.v, g->input.n, *name);
        if (from == NULL)
            from = find_info(g->output.v, g->output.n, *name);
        oq_value_info *v = oq_message_clone(&l->m->arena, OQ_SCHEMA_value_info, from);
        OQ_TRY_ALLOC(fresh.p != NULL && v != NULL && OQ_PUSH(l->scratch, &l->infos, v), err);
        v->name = l->fresh.v[at] = fresh;
    }
    *name = l->fresh.v[at];
    return ONQ_OK;
}

static onq_code turn_nodes(last *l, const oq_map *outputs, onq_error *err) {
    oq_graph *g = l->m->proto->graph;
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        for (size_t k = 0; k < n->input.n; k++)
            OQ_TRY(turn_name(l, &n->input.v[k], err));
        OQ_TRY(oq_walk_outer_names(&l->m->env->alloc, n, turn_name, l, err));
        for (size_t k = 0; k < n->output.n; k++)
            if (oq_map_has(outputs, n->output.v[k]))
                OQ_TRY(turn_name(l, &n->output.v[k], err));
    }
    return ONQ_OK;
}

/* Turns the dims of an input or output and puts a Transpose at it. */
static onq_code turn_value(last *l, const oq_value_info *v, bool input, int64_t number,
                           onq_error *err) {
    oq_arena *a = &l->m->arena;
    const oq_tensor_type *t = tensor_type(v);
    const size_t rank = t != NULL && t->shape != NULL ? t->shape->dim.n : 0;
    if (rank < 3)
        return oq_fail(
            err, ONQ_E_CONFIG,
            "Expected %s '%.*s' to be of rank >= 3, to have its channels last (it has %s)",
            input ? "input" : "output", OQ_STR(v->name),
            rank == 0   ? "no shape"
            : rank == 1 ? "rank 1"
                        : "rank 2");
    oq_str other = v->name;
    OQ_TRY(turn_name(l, &other, err));
    int64_t *perm = OQ_NEW_ARRAY(a, int64_t, rank);
    OQ_TRY_ALLOC(perm != NULL, err);
    oq_dim *channel = t->shape->dim.v[1];
    for (size_t i = 1; i + 1 < rank; i++)
        t->shape->dim.v[i] = t->shape->dim.v[i + 1];
    t->shape->dim.v[rank - 1] = channel;
    for (size_t i = 1; i < rank; i++)
        perm[i] = (int64_t)(input ? i - 1 : i + 1);
    perm[input ? 1 : rank - 1] = input ? (int64_t)rank - 1 : 1;
    oq_node *n =
        oq_node_make(a, "Transpose", oq_qnn_number(l->m, OQ_S("Transpose_channel_"), number),
                     input ? &v->name : &other, 1, input ? &other : &v->name, 1);
    if (n == NULL || n->name.p == NULL || !oq_attr_set_ints(a, n, OQ_S("perm"), perm, rank) ||
        !oq_graph_add_node(a, l->m->proto->graph, n))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static onq_code want(last *l, oq_map *outputs, const oq_str *names, size_t n, bool input,
                     onq_error *err) {
    const oq_graph *g = l->m->proto->graph;
    for (size_t i = 0; i < n; i++) {
        const bool there = input ? find_info(g->input.v, g->input.n, names[i]) != NULL
                                 : find_info(g->output.v, g->output.n, names[i]) != NULL;
        if (!there)
            return oq_fail(
                err, ONQ_E_CONFIG, "--%s_to_make_channel_last: the graph has no %s '%.*s'",
                input ? "inputs" : "outputs", input ? "input" : "output", OQ_STR(names[i]));
        if (!oq_map_put(&l->wanted, names[i], (uint32_t)l->fresh.n) ||
            !OQ_PUSH(l->scratch, &l->fresh, (oq_str){0}) ||
            (!input && !oq_map_put(outputs, names[i], 0)))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

onq_code oq_qnn_channel_last(oq_model *m, const oq_qnn_options *o, onq_error *err) {
    oq_graph *g = m->proto->graph;
    OQ_SCRATCH(scratch, &m->env->alloc);
    last l = {.m = m, .scratch = &scratch};
    oq_map outputs;
    oq_map_init(&l.wanted, &scratch);
    oq_map_init(&outputs, &scratch);
    OQ_TRY(want(&l, &outputs, o->inputs_channel_last, o->n_inputs_channel_last, true, err));
    OQ_TRY(want(&l, &outputs, o->outputs_channel_last, o->n_outputs_channel_last, false, err));
    oq_names names;
    OQ_TRY(oq_names_collect(&names, &scratch, m, err));
    l.all = names.map;
    int64_t next = oq_qnn_next_suffix(g, OQ_S("Transpose_channel_"));
    OQ_TRY(turn_nodes(&l, &outputs, err));
    for (size_t i = 0; i < o->n_inputs_channel_last; i++)
        OQ_TRY(turn_value(&l, find_info(g->input.v, g->input.n, o->inputs_channel_last[i]), true,
                          next++, err));
    for (size_t i = 0; i < o->n_outputs_channel_last; i++)
        OQ_TRY(turn_value(&l, find_info(g->output.v, g->output.n, o->outputs_channel_last[i]),
                          false, next++, err));
    for (size_t i = 0; i < l.infos.n; i++)
        OQ_TRY_ALLOC(OQ_PUSH(&m->arena, &g->value_info, l.infos.v[i]), err);
    return ONQ_OK;
}
