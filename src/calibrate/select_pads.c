/*
 * select_pads.c — tensors that are others with zeros around them: the outputs of Pad nodes. Their
 * histograms follow from those of the inputs where both have the same range.
 */
#include "calibrate/select.h"

#include "onnx/attr.h"
#include "onnx/graph.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"

typedef struct padding {
    oq_model *model;
    oq_arena *arena;
    oq_index ix;
    oq_map targets;
    oq_cal_targets *out;
} padding;

/* The constant of that name that no caller can replace, or NULL. */
static oq_tensor *constant_of(const padding *p, oq_str name) {
    const oq_value *v = oq_index_find(&p->ix, name);
    return v != NULL && !v->is_input ? oq_index_constant(&p->ix, name) : NULL;
}

/* True if the node adds constants that are zero, without a sign. */
static onq_code adds_zeros(const padding *p, const oq_node *n, bool *out, onq_error *err) {
    float *v = NULL;
    size_t count = 0;
    const float value = oq_attr_float(n, "value", 0);
    *out =
        oq_str_is(oq_attr_str(n, "mode", "constant"), "constant") && value == 0 && !signbit(value);
    if (!*out || n->input.n < 3 || n->input.v[2].n == 0)
        return ONQ_OK;
    oq_tensor *t = constant_of(p, n->input.v[2]);
    *out = t != NULL && (t->data_type.v == OQ_FLOAT || t->data_type.v == OQ_FLOAT16);
    if (!*out)
        return ONQ_OK;
    OQ_TRY(oq_tensor_floats(p->model, t, p->arena, &v, &count, err));
    *out = count == 1 && v[0] == 0 && !signbit(v[0]);
    return ONQ_OK;
}

static bool is_negative(const int64_t *pads, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (pads[i] < 0)
            return true;
    return false;
}

/* False if the node takes values away. Where only a run shows how many it adds, *watched is the
 * tensor that says so. */
static onq_code only_adds(const padding *p, const oq_node *n, bool *out, oq_str *watched,
                          onq_error *err) {
    const oq_i64s *attr = oq_attr_ints(n, "pads");
    *watched = (oq_str){NULL, 0};
    *out = attr != NULL && !is_negative(attr->v, attr->n);
    if (n->input.n < 2)
        return ONQ_OK;
    oq_tensor *t = constant_of(p, n->input.v[1]);
    *out = true;
    if (t == NULL) {
        const oq_value *v = oq_index_find(&p->ix, n->input.v[1]);
        *out = v != NULL && v->init == NULL && (v->producer != OQ_NO_NODE || v->is_input);
        *watched = n->input.v[1];
        return ONQ_OK;
    }
    int64_t *pads = NULL;
    size_t count = 0;
    OQ_TRY(oq_tensor_i64s(p->model, t, p->arena, &pads, &count, err));
    *out = !is_negative(pads, count);
    return ONQ_OK;
}

static onq_code consider_pad(padding *p, const oq_node *n, onq_error *err) {
    bool zeros = false, adds = false;
    oq_str watched;
    if (!oq_node_is(n, "Pad") || n->output.n != 1 || n->input.n == 0)
        return ONQ_OK;
    const uint32_t in = oq_map_find(&p->targets, n->input.v[0]);
    const uint32_t out = oq_map_find(&p->targets, n->output.v[0]);
    if (in == OQ_MAP_NONE || out == OQ_MAP_NONE || in == out)
        return ONQ_OK;
    const oq_cal_target *from = &p->out->all.v[in];
    oq_cal_target *to = &p->out->all.v[out];
    if (from->alias_of.p != NULL || from->constant != NULL || from->padded.p != NULL ||
        to->alias_of.p != NULL || from->type != to->type)
        return ONQ_OK;
    OQ_TRY(adds_zeros(p, n, &zeros, err));
    OQ_TRY(only_adds(p, n, &adds, &watched, err));
    if (!zeros || !adds)
        return ONQ_OK;
    to->padded = from->name;
    to->pads = watched;
    return ONQ_OK;
}

onq_code oq_cal_select_pads(oq_model *m, oq_arena *a, oq_cal_targets *targets, onq_error *err) {
    oq_graph *g = m->proto->graph;
    padding p = {.model = m, .arena = a, .out = targets};
    size_t at = 0;
    while (at < g->node.n && !oq_str_is(g->node.v[at]->op_type, "Pad"))
        at++;
    if (at == g->node.n)
        return ONQ_OK;
    OQ_TRY(oq_index_build(&p.ix, a, g, NULL, err));
    oq_map_init(&p.targets, a);
    for (size_t i = 0; i < targets->all.n; i++)
        OQ_TRY_ALLOC(oq_map_put(&p.targets, targets->all.v[i].name, (uint32_t)i), err);
    for (; at < g->node.n; at++)
        OQ_TRY(consider_pad(&p, g->node.v[at], err));
    return ONQ_OK;
}
