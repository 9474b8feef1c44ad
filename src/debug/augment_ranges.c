/*
 * augment_ranges.c — the model with the outputs by which the reference's calibrators collect
 * (MinMaxCalibrater.augment_graph and HistogramCalibrater.augment_graph).
 *
 * onq itself observes tensors while they are in memory and needs no such model; callers of
 * get_augment_model do. Names are the reference's, but for the shape of the Reshape nodes, which is
 * a random name there.
 */
#include "calibrate/method/method.h"
#include "calibrate/select.h"
#include "debug/augment.h"
#include "onnx/edit.h"
#include "prepare/preprocess.h"
#include "quantize/ort/stamp.h"

typedef struct augmenting {
    oq_model *m;
    oq_arena *a;
    const oq_cal_options *o;
    oq_cal_targets targets;
    oq_names names;
    oq_str flat; /* the initializer [-1] */
    OQ_VEC(oq_node *) nodes;
} augmenting;

static onq_code add_ints(augmenting *g, const char *wanted, const int64_t *v, size_t n, oq_str *out,
                         onq_error *err) {
    const int64_t dim = (int64_t)n;
    *out = oq_names_unique(&g->names, oq_str_of(wanted));
    oq_tensor *t = out->p != NULL ? oq_tensor_new(g->a, *out, OQ_INT64, &dim, 1) : NULL;
    OQ_TRY_ALLOC(t != NULL && oq_graph_add_init(g->a, g->m->proto->graph, t), err);
    return oq_tensor_set_raw(g->a, t, v, n * sizeof *v, err);
}

/* Axis 1 is kept: [0, 2, 3, ...], an attribute before opset 18, an input from there on. */
static onq_code reduce_by_channel(augmenting *g, oq_node *n, uint32_t rank, onq_error *err) {
    const size_t count = rank > 1 ? rank - 1 : 1;
    int64_t *axes = OQ_NEW_ARRAY(g->a, int64_t, count);
    oq_str name;
    OQ_TRY_ALLOC(axes != NULL, err);
    for (size_t i = 1; i < count; i++)
        axes[i] = (int64_t)i + 1;
    if (oq_model_opset(g->m, OQ_S("")) < 18)
        return oq_attr_set_ints(g->a, n, OQ_S("axes"), axes, count) ? ONQ_OK : oq_fail_nomem(err);
    OQ_TRY(add_ints(g, "ReduceAxes_onq", axes, count, &name, err));
    return oq_node_add_input(g->a, n, name) ? ONQ_OK : oq_fail_nomem(err);
}

/* T -> Reduce -> T_Reduce_Reshape -> Reshape -> T_Reduce */
static onq_code add_reduce(augmenting *g, const oq_cal_target *t, const char *op, oq_node *pair[2],
                           onq_error *err) {
    const oq_str out = oq_str_format(g->a, "%.*s_%s", OQ_STR(t->name), op);
    const oq_str middle = oq_str_format(g->a, "%.*s_%s_Reshape", OQ_STR(t->name), op);
    const oq_str in[2] = {middle, g->flat};
    const int64_t dim = -1;
    OQ_TRY_ALLOC(out.p != NULL && middle.p != NULL, err);
    if (oq_names_has(&g->names, out))
        return oq_fail(err, ONQ_E_INVALID,
                       "%s: the model already has a tensor '%.*s'; give the model without the "
                       "added outputs",
                       g->m->path, OQ_STR(out));
    pair[0] = oq_node_make(g->a, op, out, &t->name, 1, &middle, 1);
    pair[1] = oq_node_make(g->a, "Reshape", middle, in, 2, &out, 1);
    oq_value_info *info = oq_value_info_new(g->a, out, (int32_t)t->type, &dim, 1, true);
    if (pair[0] == NULL || pair[1] == NULL || info == NULL ||
        !oq_attr_set_int(g->a, pair[0], OQ_S("keepdims"), 1) ||
        !OQ_PUSH(g->a, &g->m->proto->graph->output, info))
        return oq_fail_nomem(err);
    return g->o->per_channel ? reduce_by_channel(g, pair[0], t->rank, err) : ONQ_OK;
}

/* What is added for a tensor; the maximum comes to stand before the minimum, as each is put before
 * the first node that reads the tensor. */
static onq_code place(augmenting *g, const oq_cal_target *t, onq_error *err) {
    oq_node *low[2], *high[2];
    OQ_TRY(add_reduce(g, t, "ReduceMin", low, err));
    OQ_TRY(add_reduce(g, t, "ReduceMax", high, err));
    oq_node *const all[4] = {high[0], high[1], low[0], low[1]};
    for (size_t i = 0; i < OQ_COUNT(all); i++)
        OQ_TRY_ALLOC(OQ_PUSH(g->a, &g->nodes, all[i]), err);
    return ONQ_OK;
}

static onq_code add_reductions(augmenting *g, onq_error *err) {
    static const int64_t flat = -1;
    oq_graph *graph = g->m->proto->graph;
    const size_t n = g->targets.all.n;
    bool *placed = OQ_NEW_ARRAY(g->a, bool, n + 1);
    oq_map map;
    oq_map_init(&map, g->a);
    OQ_TRY(add_ints(g, "ReduceReshape_onq", &flat, 1, &g->flat, err));
    for (size_t i = 0; i < n; i++)
        if (placed == NULL || !oq_map_put(&map, g->targets.all.v[i].name, (uint32_t)i))
            return oq_fail_nomem(err);
    for (size_t i = 0; i < graph->node.n; i++) {
        oq_node *node = graph->node.v[i];
        for (size_t k = 0; k < node->input.n; k++) {
            const uint32_t at = oq_map_find(&map, node->input.v[k]);
            if (at == OQ_MAP_NONE || placed[at])
                continue;
            placed[at] = true;
            OQ_TRY(place(g, &g->targets.all.v[at], err));
        }
        OQ_TRY_ALLOC(OQ_PUSH(g->a, &g->nodes, node), err);
    }
    for (size_t i = 0; i < n; i++)
        if (!placed[i])
            OQ_TRY(place(g, &g->targets.all.v[i], err));
    graph->node.v = g->nodes.v;
    graph->node.n = g->nodes.n;
    graph->node.cap = g->nodes.cap;
    return ONQ_OK;
}

/* Histograms: the tensors themselves become outputs, with the type they have in the graph. */
static onq_code add_outputs(augmenting *g, onq_error *err) {
    oq_graph *graph = g->m->proto->graph;
    const size_t n_own = graph->output.n;
    for (size_t i = 0; i < g->targets.all.n; i++) {
        const oq_str name = g->targets.all.v[i].name;
        bool own = false;
        for (size_t k = 0; k < n_own; k++)
            own |= oq_str_eq(graph->output.v[k]->name, name);
        oq_value_info *info = own ? NULL : oq_graph_find_info(graph, name);
        if (info != NULL && !OQ_PUSH(g->a, &graph->output, info))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

onq_code oq_debug_augment_ranges(oq_model *m, const oq_cal_options *o, onq_error *err) {
    augmenting g = {.m = m, .a = &m->arena, .o = o};
    oq_model_touch(m);
    OQ_TRY(oq_prep_shapes(m, NULL, NULL, err));
    OQ_TRY(oq_stamp_inferred(m, err));
    OQ_TRY(oq_cal_select(m, NULL, o, g.a, &g.targets, err));
    OQ_TRY(oq_names_collect(&g.names, g.a, m, err));
    return oq_cal_class_of(o->method)->histogram ? add_outputs(&g, err) : add_reductions(&g, err);
}
