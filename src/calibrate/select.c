/*
 * select.c — select_tensors_to_calibrate: float tensors at nodes of the main graph, and on demand
 * of those inside.
 *
 * A tensor that is another one in a new shape or order (Reshape, Transpose, ...) holds the same
 * values: it is not observed but gets the other's range. For MinMax the order must be the same too,
 * since with NaN the result depends on it.
 *
 * With `fast`, a tensor whose only use is a Relu or Clip is not observed: the quantizer gives it
 * the range of the Relu's or Clip's output anyway (adjust_tensor_ranges), and the runtime can fuse
 * the two nodes.
 *
 * Outputs of Constant nodes count as tensors in the reference. They are not observed: after an
 * observer they would be constants no more, and the runtime would take other kernels (a MatMul
 * packs its weights beforehand only when they are constant).
 */
#include "calibrate/select.h"

#include "calibrate/method/method.h"
#include "calibrate/sizes.h"
#include "onnx/graph.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"
#include "onnx/tidy.h"

typedef struct selecting {
    oq_model *model;
    const oq_cal_options *o;
    oq_arena *arena;
    oq_graph *graph;
    const oq_shapes *shapes;
    oq_map inits, taken, only;
    oq_map makers; /* name -> how many nodes of all graphs make it, less one */
    oq_cal_targets *out;
} selecting;

static bool wanted_op(const oq_cal_options *o, oq_str op_type) {
    return o->n_op_types == 0 || oq_str_among(op_type, o->op_types, o->n_op_types);
}

static onq_code consider(selecting *s, const oq_graph *g, oq_str name, onq_error *err) {
    oq_tensor_info info;
    if (name.n == 0 || oq_map_has(&s->taken, name) || oq_map_has(&s->inits, name) ||
        !oq_shapes_tensor(s->shapes, g, name, &info) ||
        (info.elem_type != OQ_FLOAT && info.elem_type != OQ_FLOAT16))
        return ONQ_OK;
    if (s->o->only != NULL && !oq_map_has(&s->only, name))
        return ONQ_OK;
    const oq_cal_target t = {.name = name,
                             .type = (oq_dtype)info.elem_type,
                             .rank = info.has_shape ? (uint32_t)info.rank : 0,
                             .bytes = oq_tensor_size(s->shapes, g, name)};
    if (!oq_map_put(&s->taken, name, (uint32_t)s->out->all.n) ||
        !OQ_PUSH(s->arena, &s->out->all, t))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

/* Runs fn over the main graph, or with `inner` over all. */
static onq_code each_graph(selecting *s, oq_graph_fn fn, onq_error *err) {
    oq_graph *g = s->model->proto->graph;
    return s->o->inner ? oq_walk_graphs(g, fn, s, err) : fn(s, g, err);
}

static onq_code fill_names(void *ctx, oq_graph *g, onq_error *err) {
    selecting *s = ctx;
    for (size_t i = 0; i < g->initializer.n; i++)
        OQ_TRY_ALLOC(oq_map_put(&s->inits, g->initializer.v[i]->name, 0), err);
    for (size_t i = 0; i < g->node.n; i++)
        for (size_t k = 0; k < g->node.v[i]->output.n; k++) {
            const oq_str name = g->node.v[i]->output.v[k];
            const uint32_t n = oq_map_find(&s->makers, name);
            if (name.n > 0 && !oq_map_put(&s->makers, name, n == OQ_MAP_NONE ? 0 : n + 1))
                return oq_fail_nomem(err);
        }
    return ONQ_OK;
}

/* Two branches may each have a tensor of one name: then both are observed. */
static bool has_one_maker(const selecting *s, oq_str name) {
    return oq_map_find(&s->makers, name) == 0;
}

static onq_code fill_maps(selecting *s, onq_error *err) {
    oq_map_init(&s->inits, s->arena);
    oq_map_init(&s->taken, s->arena);
    oq_map_init(&s->only, s->arena);
    oq_map_init(&s->makers, s->arena);
    OQ_TRY(each_graph(s, fill_names, err));
    for (size_t i = 0; s->o->only != NULL && i < s->o->n_only; i++)
        OQ_TRY_ALLOC(oq_map_put(&s->only, s->o->only[i], 0), err);
    return ONQ_OK;
}

/* Tensors that a Relu or Clip alone uses become aliases of its output. */
static onq_code alias_activations(selecting *s, onq_error *err) {
    oq_index ix;
    OQ_TRY(oq_index_build(&ix, s->arena, s->graph, NULL, err));
    for (size_t i = 0; i < s->out->all.n; i++) {
        oq_cal_target *t = &s->out->all.v[i];
        const oq_value *v = oq_index_find(&ix, t->name);
        if (t->constant != NULL || t->alias_of.p != NULL || v == NULL || v->is_input ||
            v->is_output || v->uses.n != 1 || v->uses.v[0].slot != 0)
            continue;
        const oq_node *user = s->graph->node.v[v->uses.v[0].node];
        if (oq_op_traits_of(user->op_type)->clips && user->output.n > 0 &&
            oq_map_has(&s->taken, user->output.v[0]))
            t->alias_of = user->output.v[0];
    }
    return ONQ_OK;
}

/* Operators whose output 0 has the values of input 0, in their order or in another. */
static bool repeats_values(const oq_node *n, bool same_order) {
    const oq_repeats least = same_order ? OQ_REPEATS_IN_ORDER : OQ_REPEATS_ALL;
    return oq_domain_is_onnx(n->domain) && oq_op_traits_of(n->op_type)->repeats >= least;
}

static onq_code alias_repeats(void *ctx, oq_graph *g, onq_error *err) {
    selecting *s = ctx;
    const bool same_order = !oq_cal_class_of(s->o->method)->histogram;
    (void)err;
    for (size_t i = 0; i < g->node.n && !s->o->per_channel; i++) {
        const oq_node *n = g->node.v[i];
        if (n->input.n == 0 || n->output.n == 0 || !repeats_values(n, same_order))
            continue;
        const uint32_t in = oq_map_find(&s->taken, n->input.v[0]);
        const uint32_t out = oq_map_find(&s->taken, n->output.v[0]);
        if (in == OQ_MAP_NONE || out == OQ_MAP_NONE || in == out ||
            !has_one_maker(s, n->output.v[0]))
            continue;
        oq_cal_target *t = &s->out->all.v[out];
        if (t->type == s->out->all.v[in].type && t->alias_of.p == NULL)
            t->alias_of = n->input.v[0];
    }
    return ONQ_OK;
}

/* Aligned values of a tensor. */
static onq_code constant_data(selecting *s, oq_tensor *t, oq_datum *d, onq_error *err) {
    oq_span raw;
    uint64_t count = 0;
    OQ_TRY(oq_tensor_count(t, &count, err));
    OQ_TRY(oq_model_data(s->model, t, &raw, err));
    if ((uintptr_t)raw.p % sizeof(float) != 0) {
        uint8_t *copy = oq_arena_alloc(s->arena, (size_t)raw.n);
        OQ_TRY_ALLOC(copy != NULL, err);
        memcpy(copy, raw.p, (size_t)raw.n);
        raw.p = copy;
    }
    *d = (oq_datum){.kind = OQ_DATUM_TENSOR,
                    .dtype = (oq_dtype)t->data_type.v,
                    .rank = t->dims.n,
                    .dims = t->dims.v,
                    .count = count,
                    .data = raw.p,
                    .size_bytes = raw.n};
    return ONQ_OK;
}

/* Fills in `constant` where a Constant node makes a target. */
static onq_code find_constants(void *ctx, oq_graph *g, onq_error *err) {
    selecting *s = ctx;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        if (!oq_node_is_constant(n) || n->output.n != 1)
            continue;
        const uint32_t at = oq_map_find(&s->taken, n->output.v[0]);
        if (at == OQ_MAP_NONE || !has_one_maker(s, n->output.v[0]))
            continue;
        oq_tensor *t = NULL;
        OQ_TRY(oq_constant_make(s->arena, n, &t, err));
        if (t == NULL)
            continue; /* sparse: the runtime makes it, an observer sees it */
        oq_datum *d = OQ_NEW(s->arena, oq_datum);
        OQ_TRY_ALLOC(d != NULL, err);
        OQ_TRY(constant_data(s, t, d, err));
        s->out->all.v[at].constant = d;
    }
    return ONQ_OK;
}

static onq_code consider_graph(void *ctx, oq_graph *g, onq_error *err) {
    selecting *s = ctx;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        if (!wanted_op(s->o, n->op_type))
            continue;
        for (size_t k = 0; k < n->input.n; k++)
            OQ_TRY(consider(s, g, n->input.v[k], err));
        for (size_t k = 0; k < n->output.n; k++)
            OQ_TRY(consider(s, g, n->output.v[k], err));
    }
    return ONQ_OK;
}

onq_code oq_cal_select(oq_model *m, const oq_shapes *known, const oq_cal_options *o, oq_arena *a,
                       oq_cal_targets *out, onq_error *err) {
    oq_graph *g = m->proto->graph;
    oq_shapes *shapes = NULL;
    *out = (oq_cal_targets){0};
    if (known == NULL)
        OQ_TRY(oq_shapes_infer(m, NULL, &shapes, err));
    selecting s = {.model = m,
                   .o = o,
                   .arena = a,
                   .graph = g,
                   .shapes = known != NULL ? known : shapes,
                   .out = out};
    onq_code rc = ONQ_OK;
    OQ_GO(fill_maps(&s, err));
    OQ_GO(each_graph(&s, consider_graph, err));
    OQ_GO(each_graph(&s, find_constants, err));
    OQ_GO(each_graph(&s, alias_repeats, err));
    if (o->fast && o->only == NULL)
        OQ_GO(alias_activations(&s, err));
    if (out->all.n == 0)
        rc =
            oq_fail(err, ONQ_E_UNSUPPORTED,
                    "%s: no float tensor to calibrate%s (shape inference finds no float or float16 "
                    "tensor at the nodes%s)",
                    m->path, o->n_op_types > 0 ? " at the operators asked for" : "",
                    o->n_op_types > 0 ? "; try without op_types_to_quantize" : "");
done:
    oq_shapes_free(shapes);
    return rc;
}
