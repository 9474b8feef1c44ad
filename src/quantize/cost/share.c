/*
 * share.c — see share.h.
 */
#include "quantize/cost/share.h"

#include "onnx/operators.h"
#include "onnx/tensor.h"
#include "shape/macs.h"

typedef struct sharing {
    oq_arena *arena;
    const oq_shapes *shapes;
    oq_map fates;   /* first output of a node -> its row in the plan */
    oq_map weights; /* float constants of the source */
    oq_map integer; /* what its integer operators read */
    const oq_plan *plan;
    double macs, integer_macs;
    double elements, float_elements; /* of the source, and of those that the result still has */
    oq_index ix; /* of the graph of the result that is looked at, once it is needed */
} sharing;

typedef onq_code (*constant_fn)(sharing *s, oq_graph *g, oq_str name, const oq_tensor *t,
                                onq_error *err);

static double count(const oq_tensor *t) {
    uint64_t n = 0;
    return oq_tensor_count(t, &n, NULL) == ONQ_OK ? (double)n : 0;
}

/* Calls fn for every constant of one graph. */
static onq_code each_constant(sharing *s, oq_graph *g, constant_fn fn, onq_error *err) {
    for (size_t i = 0; i < g->initializer.n; i++)
        OQ_TRY(fn(s, g, g->initializer.v[i]->name, g->initializer.v[i], err));
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        oq_tensor *t = n->output.n > 0 ? oq_node_constant(n) : NULL;
        if (t != NULL)
            OQ_TRY(fn(s, g, n->output.v[0], t, err));
    }
    return ONQ_OK;
}

/* Zero points have an axis at most. */
static bool is_integer_weight(const sharing *s, oq_str name, const oq_tensor *t) {
    const oq_dtype_info *type = oq_dtype_find(t->data_type.v);
    return type != NULL && type->bits <= 16 && t->dims.n >= 2 && oq_map_has(&s->integer, name);
}

static onq_code see_weight(sharing *s, oq_graph *g OQ_UNUSED, oq_str name, const oq_tensor *t,
                           onq_error *err) {
    if (!oq_dtype_is_float(t->data_type.v)) {
        s->elements += is_integer_weight(s, name, t) ? count(t) : 0;
        return ONQ_OK;
    }
    s->elements += count(t);
    return oq_map_put(&s->weights, name, 0) ? ONQ_OK : oq_fail_nomem(err);
}

static bool is_quantized_here(const oq_index *ix, oq_str name) {
    const oq_value *v = oq_index_find(ix, name);
    bool all = v != NULL && v->uses.n > 0 && !v->is_output;
    for (size_t i = 0; all && i < v->uses.n; i++)
        all = v->uses.v[i].slot == 0 && oq_node_is_quantize(ix->graph->node.v[v->uses.v[i].node]);
    return all;
}

static onq_code see_left(sharing *s, oq_graph *g, oq_str name, const oq_tensor *t, onq_error *err) {
    if (!oq_dtype_is_float(t->data_type.v) || !oq_map_has(&s->weights, name))
        return ONQ_OK;
    if (s->ix.graph != g) /* seldom needed: most constants became integers of another name */
        OQ_TRY(oq_index_build(&s->ix, s->arena, g, NULL, err));
    if (!is_quantized_here(&s->ix, name))
        s->float_elements += count(t);
    return ONQ_OK;
}

/* A node that was in integers before is so still. */
static onq_code see_integer(sharing *s, const oq_graph *g, const oq_node *n, onq_error *err) {
    const oq_form form = oq_op_traits_of(n->op_type)->form;
    if (form != OQ_FORM_INTEGER && form != OQ_FORM_QLINEAR)
        return ONQ_OK;
    const double macs = oq_node_work(s->shapes, g, n);
    s->macs += macs;
    s->integer_macs += macs;
    for (size_t i = 0; i < n->input.n; i++)
        OQ_TRY_ALLOC(oq_map_put(&s->integer, n->input.v[i], 0), err);
    return ONQ_OK;
}

static onq_code see_source(void *ctx, oq_graph *g, onq_error *err) {
    sharing *s = ctx;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        const double macs = oq_node_macs(s->shapes, g, n);
        OQ_TRY(see_integer(s, g, n, err));
        if (macs <= 0)
            continue;
        const uint32_t row = oq_map_find(&s->fates, n->output.v[0]);
        s->macs += macs;
        if (row != OQ_MAP_NONE && s->plan->nodes.v[row].fate == OQ_FATE_QUANTIZED)
            s->integer_macs += macs;
    }
    return each_constant(s, g, see_weight, err);
}

static onq_code see_result(void *ctx, oq_graph *g, onq_error *err) {
    return each_constant(ctx, g, see_left, err);
}

onq_code oq_share_find(oq_share *s, oq_arena *scratch, oq_graph *source, const oq_shapes *shapes,
                       const oq_plan *plan, oq_graph *result, onq_error *err) {
    sharing g = {.arena = scratch, .shapes = shapes, .plan = plan};
    *s = (oq_share){.weights = NAN, .macs = NAN};
    oq_map_init(&g.fates, scratch);
    oq_map_init(&g.weights, scratch);
    oq_map_init(&g.integer, scratch);
    for (uint32_t i = 0; i < plan->nodes.n; i++)
        if (plan->nodes.v[i].output.n > 0 && !oq_map_put(&g.fates, plan->nodes.v[i].output, i))
            return oq_fail_nomem(err);
    OQ_TRY(oq_walk_graphs(source, see_source, &g, err));
    if (g.macs > 0)
        s->macs = g.integer_macs / g.macs;
    s->elements = g.elements;
    if (result == NULL || g.elements <= 0)
        return ONQ_OK;
    OQ_TRY(oq_walk_graphs(result, see_result, &g, err));
    s->weights = fmax(0, 1 - g.float_elements / g.elements);
    return ONQ_OK;
}
