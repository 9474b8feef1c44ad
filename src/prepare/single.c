/*
 * single.c — see single.h.
 */
#include "prepare/single.h"

#include "onnx/attr.h"
#include "onnx/check/check.h"
#include "onnx/edit.h"
#include "onnx/names.h"
#include "onnx/operators.h"
#include "prepare/recast.h"
#include "shape/shape.h"

typedef struct work {
    oq_model *m;
    bool half_too;
    oq_shapes *shapes; /* of the model as it was */
    oq_arena scratch;
    oq_fresh names;
    oq_single_report *report;
} work;

static bool goes(const work *w, int64_t type) {
    return type == OQ_BFLOAT16 || (type == OQ_FLOAT16 && w->half_too);
}

/* ---- types ---- */

static void change_type(const work *w, oq_type *t) {
    for (; t != NULL; t = t->sequence_type != NULL   ? t->sequence_type->elem_type
                          : t->optional_type != NULL ? t->optional_type->elem_type
                          : t->map_type != NULL      ? t->map_type->value_type
                                                     : NULL) {
        oq_tensor_type *const plain[] = {t->tensor_type, t->sparse_tensor_type};
        for (size_t i = 0; i < OQ_COUNT(plain); i++)
            if (plain[i] != NULL && goes(w, plain[i]->elem_type.v))
                plain[i]->elem_type.v = OQ_FLOAT;
    }
}

/* Attributes that name the type of an output. */
static void change_attributes(const work *w, const oq_node *n) {
    static const char *const names[] = {"to",           "dtype",      "output_datatype",
                                        "output_dtype", "stash_type", "softmax_precision"};
    for (size_t i = 0; i < OQ_COUNT(names); i++) {
        oq_attribute *a = oq_attr_find(n, names[i]);
        if (a != NULL && goes(w, a->i.v))
            a->i.v = OQ_FLOAT;
    }
    for (size_t i = 0; i < n->attribute.n; i++) {
        change_type(w, n->attribute.v[i]->tp);
        for (size_t k = 0; k < n->attribute.v[i]->type_protos.n; k++)
            change_type(w, n->attribute.v[i]->type_protos.v[k]);
    }
}

static onq_code change_tensor(void *ctx, oq_tensor *t, bool in_attribute, onq_error *err) {
    const work *w = ctx;
    (void)in_attribute;
    if (!goes(w, t->data_type.v))
        return ONQ_OK;
    w->report->n_weights++;
    return oq_recast_in_place(w->m, t, OQ_FLOAT, err);
}

static onq_code change_graph(void *ctx, oq_graph *g, onq_error *err) {
    const work *w = ctx;
    (void)err;
    for (size_t i = 0; i < g->input.n; i++)
        change_type(w, g->input.v[i]->type);
    for (size_t i = 0; i < g->output.n; i++)
        change_type(w, g->output.v[i]->type);
    for (size_t i = 0; i < g->value_info.n; i++)
        change_type(w, g->value_info.v[i]->type);
    for (size_t i = 0; i < g->node.n; i++)
        change_attributes(w, g->node.v[i]);
    return ONQ_OK;
}

static void change_functions(const work *w) {
    const oq_model_proto *p = w->m->proto;
    for (size_t i = 0; i < p->functions.n; i++) {
        for (size_t k = 0; k < p->functions.v[i]->node.n; k++)
            change_attributes(w, p->functions.v[i]->node.v[k]);
        for (size_t k = 0; k < p->functions.v[i]->value_info.n; k++)
            change_type(w, p->functions.v[i]->value_info.v[k]->type);
    }
}

/* ---- casts ---- */

/* Casts from one float to another, which are the same one soon: their readers read what they read.
 * Those that make an output of the graph stay. */
static onq_code drop_casts(void *ctx, oq_graph *g, onq_error *err) {
    work *w = ctx;
    oq_map map;
    oq_strs to = {0};
    oq_index ix;
    oq_map_init(&map, &w->scratch);
    OQ_TRY(oq_index_build(&ix, &w->scratch, g, NULL, err));
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        if (!oq_node_is(n, "Cast") || n->input.n != 1 || n->output.n != 1)
            continue;
        const oq_value *made = oq_index_find(&ix, n->output.v[0]);
        if (made == NULL || made->is_output) /* NULL: the output has no name */
            continue;
        const int64_t from = oq_shapes_elem_type(w->shapes, g, n->input.v[0]);
        const int64_t type = oq_attr_int(n, "to", 0);
        if ((!goes(w, from) && from != OQ_FLOAT) || (!goes(w, type) && type != OQ_FLOAT))
            continue;
        const uint32_t before = oq_map_find(&map, n->input.v[0]);
        assert(before == OQ_MAP_NONE || before < to.n);
        const oq_str source = before != OQ_MAP_NONE ? to.v[before] : n->input.v[0];
        OQ_TRY_ALLOC(OQ_PUSH(&w->scratch, &to, source) &&
                         oq_map_put(&map, n->output.v[0], (uint32_t)to.n - 1),
                     err);
        w->report->n_casts++;
    }
    if (to.n == 0)
        return ONQ_OK;
    OQ_TRY(oq_graph_replace_many(w->m, g, &map, to.v, err));
    return oq_graph_prune(w->m, g, err);
}

/* ---- inputs and outputs ---- */

/* Inputs and outputs of the model that are small floats, by the names that they get inside. */
typedef struct ends {
    oq_map map;
    oq_strs to;
    OQ_VEC(oq_node *) first, last; /* casts */
} ends;

static oq_node *make_cast(work *w, oq_str from, oq_str to, int64_t type) {
    oq_node *n =
        oq_node_make(&w->m->arena, "Cast", oq_fresh_node(&w->names, to, "_cast"), &from, 1, &to, 1);
    return n != NULL && oq_attr_set_int(&w->m->arena, n, OQ_S("to"), type) ? n : NULL;
}

static onq_code look_at_end(work *w, const oq_value_info *v, int64_t *type, onq_error *err) {
    const oq_tensor_type *t = v->type != NULL ? v->type->tensor_type : NULL;
    *type = t != NULL && goes(w, t->elem_type.v) ? t->elem_type.v : OQ_UNDEFINED;
    if (v->type == NULL || t != NULL)
        return *type == OQ_UNDEFINED ? ONQ_OK : oq_recast_may_cast(w->m, err);
    return oq_fail(
        err, ONQ_E_UNSUPPORTED,
        "'%.*s', an input or output of the model, is not a tensor, and can therefore get "
        "no Cast",
        OQ_STR(v->name));
}

static onq_code rename_end(work *w, ends *e, oq_str name, oq_str *inside, onq_error *err) {
    *inside = oq_fresh_tensor(&w->names, name, "_float32");
    return inside->p != NULL && OQ_PUSH(&w->scratch, &e->to, *inside) &&
                   oq_map_put(&e->map, name, (uint32_t)e->to.n - 1)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

static onq_code find_inputs(work *w, oq_graph *g, ends *e, onq_error *err) {
    for (size_t i = 0; i < g->input.n; i++) {
        const oq_str name = g->input.v[i]->name;
        int64_t type = OQ_UNDEFINED;
        oq_str inside;
        OQ_TRY(look_at_end(w, g->input.v[i], &type, err));
        if (type == OQ_UNDEFINED || oq_graph_find_init(g, name) != NULL)
            continue; /* a constant, whose type may change */
        OQ_TRY(rename_end(w, e, name, &inside, err));
        oq_node *cast = make_cast(w, name, inside, OQ_FLOAT);
        OQ_TRY_ALLOC(cast != NULL && OQ_PUSH(&w->scratch, &e->first, cast), err);
        w->report->n_ends++;
    }
    return ONQ_OK;
}

/* What makes an output makes its float32 twin; a Cast makes the output. */
static onq_code find_outputs(work *w, oq_graph *g, const oq_index *ix, ends *e, onq_error *err) {
    for (size_t i = 0; i < g->output.n; i++) {
        const oq_str name = g->output.v[i]->name;
        int64_t type = OQ_UNDEFINED;
        oq_str inside;
        OQ_TRY(look_at_end(w, g->output.v[i], &type, err));
        if (type == OQ_UNDEFINED || oq_map_has(&e->map, name)) /* an input as it is */
            continue;
        OQ_TRY(rename_end(w, e, name, &inside, err));
        oq_node *maker = oq_index_producer(ix, name);
        oq_tensor *init = oq_graph_find_init(g, name);
        for (size_t k = 0; maker != NULL && k < maker->output.n; k++)
            if (oq_str_eq(maker->output.v[k], name))
                maker->output.v[k] = inside;
        if (init != NULL)
            init->name = inside;
        oq_node *cast = make_cast(w, inside, name, type);
        OQ_TRY_ALLOC(cast != NULL && OQ_PUSH(&w->scratch, &e->last, cast), err);
        w->report->n_ends++;
    }
    return ONQ_OK;
}

static void keep_types(const ends *e, oq_value_info *const *v, size_t n, int32_t *kept) {
    for (size_t i = 0; i < n; i++)
        if (oq_map_has(&e->map, v[i]->name))
            kept[i] = v[i]->type->tensor_type->elem_type.v;
}

static void put_types(oq_value_info *const *v, size_t n, const int32_t *kept) {
    for (size_t i = 0; i < n; i++)
        if (kept[i] != 0)
            v[i]->type->tensor_type->elem_type.v = kept[i];
}

static onq_code change_all(work *w, const ends *e, onq_error *err) {
    oq_graph *g = w->m->proto->graph;
    int32_t *in = OQ_NEW_ARRAY(&w->scratch, int32_t, g->input.n + 1);
    int32_t *out = OQ_NEW_ARRAY(&w->scratch, int32_t, g->output.n + 1);
    OQ_TRY_ALLOC(in != NULL && out != NULL, err);
    keep_types(e, g->input.v, g->input.n, in);
    keep_types(e, g->output.v, g->output.n, out);
    OQ_TRY(oq_walk_tensors(w->m, change_tensor, w, err));
    OQ_TRY(oq_walk_graphs(g, change_graph, w, err));
    change_functions(w);
    put_types(g->input.v, g->input.n, in);
    put_types(g->output.v, g->output.n, out);
    return ONQ_OK;
}

/* Casts before and after all nodes. */
static onq_code add_ends(work *w, oq_graph *g, const ends *e, onq_error *err) {
    OQ_VEC(oq_node *) all = {0};
    for (size_t i = 0; i < e->first.n; i++)
        OQ_TRY_ALLOC(OQ_PUSH(&w->scratch, &all, e->first.v[i]), err);
    for (size_t i = 0; i < g->node.n; i++)
        OQ_TRY_ALLOC(OQ_PUSH(&w->scratch, &all, g->node.v[i]), err);
    for (size_t i = 0; i < e->last.n; i++)
        OQ_TRY_ALLOC(OQ_PUSH(&w->scratch, &all, e->last.v[i]), err);
    OQ_TRY_ALLOC(oq_graph_set_nodes(&w->m->arena, g, all.v, all.n), err);
    return ONQ_OK;
}

static onq_code run(work *w, onq_error *err) {
    const oq_shape_options how = {.symbolic = true};
    oq_graph *g = w->m->proto->graph;
    ends e = {0};
    oq_index ix;
    oq_map_init(&e.map, &w->scratch);
    OQ_TRY(oq_fresh_init(&w->names, &w->scratch, w->m, err));
    OQ_TRY(oq_shapes_infer(w->m, &how, &w->shapes, err));
    OQ_TRY(oq_walk_graphs(g, drop_casts, w, err));
    OQ_TRY(oq_index_build(&ix, &w->scratch, g, NULL, err));
    OQ_TRY(find_inputs(w, g, &e, err));
    OQ_TRY(find_outputs(w, g, &ix, &e, err));
    if (e.to.n > 0)
        OQ_TRY(oq_graph_replace_many(w->m, g, &e.map, e.to.v, err));
    OQ_TRY(change_all(w, &e, err));
    return add_ends(w, g, &e, err);
}

onq_code oq_single_make(oq_model *m, bool half_too, oq_single_report *out, onq_error *err) {
    work w = {.m = m, .half_too = half_too, .report = out};
    *out = (oq_single_report){0};
    oq_arena_init(&w.scratch, &m->env->alloc);
    oq_model_touch(m);
    const onq_code rc = run(&w, err);
    oq_shapes_free(w.shapes);
    oq_arena_release(&w.scratch);
    if (rc == ONQ_OK)
        OQ_ASSERT_VALID(m);
    return rc;
}
