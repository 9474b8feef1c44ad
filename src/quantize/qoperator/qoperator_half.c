/*
 * qoperator_half.c — float16 and bfloat16 around integer operators.
 *
 * Neither DynamicQuantizeLinear nor most QLinear operators know 16-bit floats. So a 16-bit tensor
 * is cast to float32 where it is quantized, and what is dequantized is cast back where somebody
 * reads it as what it was: between integer operators there is no Cast. Weights are read as they
 * are, and scales are float32, so the integers are those of the same model in float32.
 *
 * The float32 form of a 16-bit tensor is its twin (oq_qo.wide).
 *
 * Where every operator takes float16 scales as they are, and these fit, nothing is cast, as in the
 * reference.
 */
#include "quantize/qoperator/qo_state.h"

bool oq_qo_takes_half(const oq_qo_shared *sh, oq_str op_type) {
    const oq_op_traits *t = oq_op_traits_of(op_type);
    const int64_t since = sh->mode == OQ_QMODE_QLINEAR ? t->half_qlinear : t->half_integer;
    return since > 0 && sh->opset >= since;
}

static bool is_half(int32_t type) {
    return type == OQ_FLOAT16 || type == OQ_BFLOAT16;
}

bool oq_qo_is_float32(const oq_qo *q, const oq_tensor *t) {
    return t->data_type.v == OQ_FLOAT || (q->sh->casts && is_half(t->data_type.v));
}

/* ---- is there need of Cast? ---- */

/* Below this a scale is not a normal float16 and becomes 1, in the reference too. */
#define SMALLEST_HALF 6.103515625e-05f

/* True if the scale of a float16 tensor of the node is too small for a float16. */
static onq_code has_tiny_scale(oq_qo_shared *sh, oq_graph *g, oq_str name, bool *out,
                               onq_error *err) {
    const oq_qconfig *c = sh->job.run->config;
    oq_tensor *t = oq_graph_find_init(g, name);
    const oq_range *r = sh->job.ranges != NULL ? oq_ranges_find(sh->job.ranges, name) : NULL;
    oq_qparam p = {1.0f, 0};
    if (t == NULL || t->data_type.v != OQ_FLOAT16 || t->dims.n == 0) {
        if (r != NULL && !oq_act_is_infinite(r, NULL))
            OQ_TRY(oq_act_param(c, r, NULL, c->activation_type, OQ_FLOAT, &p, err));
        *out |= p.scale < SMALLEST_HALF;
        return ONQ_OK;
    }
    const oq_qspec spec = {.type = OQ_INT8, .symmetric = true};
    oq_qparams all;
    oq_qweight w;
    OQ_TRY(oq_qweight_init(&w, sh->job.model, t,
                           c->per_channel ? OQ_QGROUP_CHANNEL : OQ_QGROUP_TENSOR, -1, 0, err));
    w.wide = true;
    OQ_TRY(oq_qparams_init(&all, sh->arena, w.n_params, err));
    OQ_TRY(oq_qweight_params(&w, &spec, NULL, &sh->job.model->env->alloc, &all, err));
    for (uint64_t i = 0; i < all.n; i++)
        *out |= all.scale[i] < SMALLEST_HALF;
    return ONQ_OK;
}

/* Sets `casts` when a node that may be quantized has 16-bit inputs and does not take them. */
static onq_code see_half(void *ctx, oq_graph *g, onq_error *err) {
    oq_qo_shared *sh = ctx;
    const bool is_static = sh->mode == OQ_QMODE_QLINEAR;
    const unsigned list = is_static ? OQ_QMODE_QDQ | OQ_QMODE_QLINEAR : OQ_QMODE_INTEGER;
    for (size_t i = 0; i < g->node.n && !sh->casts; i++) {
        const oq_node *n = g->node.v[i];
        const oq_rules *rules = oq_rules_of(n->op_type);
        if ((is_static ? rules->qlinear : rules->integer) == NULL ||
            oq_qrun_skip(sh->job.run, n, list) != NULL)
            continue;
        for (size_t k = 0; k < n->input.n; k++) {
            const int32_t type = oq_shapes_elem_type(sh->plain, g, n->input.v[k]);
            sh->casts |=
                type == OQ_BFLOAT16 || (type == OQ_FLOAT16 && !oq_qo_takes_half(sh, n->op_type));
            if (type == OQ_FLOAT16 && !sh->casts)
                OQ_TRY(has_tiny_scale(sh, g, n->input.v[k], &sh->casts, err));
        }
    }
    return ONQ_OK;
}

onq_code oq_qo_decide_casts(oq_qo_shared *sh, onq_error *err) {
    const oq_qconfig *c = sh->job.run->config;
    oq_graph *g = sh->job.model->proto->graph;
    if (c->trained || !c->keep_float16)
        return ONQ_OK;
    return c->enable_subgraph ? oq_walk_graphs(g, see_half, sh, err) : see_half(sh, g, err);
}

bool oq_qo_casts(const oq_qo *q) {
    return q->sh->casts;
}

bool oq_qo_is_wide(const oq_qo *q, oq_str name) {
    return oq_map_has(&q->wide, name);
}

oq_dtype oq_qo_scale_type(const oq_qo *q, int32_t type) {
    return oq_qo_shared_scale_type(q->sh, type);
}

oq_dtype oq_qo_shared_scale_type(const oq_qo_shared *sh, int32_t type) {
    return type == OQ_FLOAT16 && !sh->casts ? OQ_FLOAT16 : OQ_FLOAT;
}

onq_code oq_qo_elem(oq_qo *q, oq_str name, oq_dtype *out, onq_error *err) {
    int32_t type = OQ_FLOAT;
    if (q->sh->casts)
        OQ_TRY(oq_qo_type(q, name, &type, err));
    *out = q->sh->casts && is_half(type) ? (oq_dtype)type : OQ_FLOAT;
    return ONQ_OK;
}

/* ---- twins ---- */

static onq_code add_twin(oq_qo *q, oq_str name, oq_str *out, onq_error *err) {
    *out = oq_fresh_tensor(&q->sh->names, name, "_float32");
    if (out->p == NULL || !OQ_PUSH(q->arena, &q->all_wide, *out) ||
        !oq_map_put(&q->wide, name, (uint32_t)(q->all_wide.n - 1)))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static onq_code emit_cast(oq_qo *q, oq_str from, oq_str to, oq_dtype type, onq_error *err) {
    oq_arena *a = &q->sh->job.model->arena;
    const oq_str name = oq_fresh_node(&q->sh->names, to, "_Cast");
    oq_node *n = oq_node_make(a, "Cast", name, &from, 1, &to, 1);
    OQ_TRY_ALLOC(n != NULL && oq_attr_set_int(a, n, OQ_S("to"), type), err);
    return oq_qo_emit(q, n, err);
}

onq_code oq_qo_wide(oq_qo *q, oq_str name, oq_str *out, onq_error *err) {
    oq_dtype elem = OQ_FLOAT;
    *out = name;
    if (name.n > 0)
        OQ_TRY(oq_qo_elem(q, name, &elem, err));
    if (elem == OQ_FLOAT)
        return ONQ_OK;
    const uint32_t twin = oq_map_find(&q->wide, name);
    if (twin != OQ_MAP_NONE) {
        *out = q->all_wide.v[twin];
        return ONQ_OK;
    }
    OQ_TRY(add_twin(q, name, out, err));
    const oq_qo_value *v = oq_qo_value_of(q, name);
    if (v != NULL && !oq_map_has(&q->made, name) && oq_qo_has_dequantize(q, v))
        return oq_qo_emit_dequantize(q, v, name, *out, err);
    /* It is read, so it must stay as it is. */
    OQ_TRY_ALLOC(oq_map_put(&q->made, name, 0), err);
    return emit_cast(q, name, *out, OQ_FLOAT, err);
}

onq_code oq_qo_result(oq_qo *q, oq_str name, oq_dtype elem, oq_str *out, onq_error *err) {
    *out = name;
    return name.n > 0 && q->sh->casts && is_half((int32_t)elem) ? add_twin(q, name, out, err)
                                                                : ONQ_OK;
}

onq_code oq_qo_output_real(oq_qo *q, const oq_node *n, oq_str *out, onq_error *err) {
    oq_dtype elem = OQ_FLOAT;
    OQ_TRY(oq_qo_elem(q, n->output.v[0], &elem, err));
    return oq_qo_result(q, n->output.v[0], elem, out, err);
}

onq_code oq_qo_add_real(oq_qo *q, oq_node *made, const oq_node *n, size_t slot, onq_error *err) {
    oq_str in = oq_node_input(n, slot);
    OQ_TRY(oq_qo_wide(q, in, &in, err));
    return oq_node_add_input(&q->sh->job.model->arena, made, in) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_qo_add_results(oq_qo *q, oq_node *made, const oq_node *n, oq_dtype elem,
                           onq_error *err) {
    for (size_t i = 0; i < n->output.n; i++) {
        oq_str out = {0};
        OQ_TRY(oq_qo_result(q, n->output.v[i], elem, &out, err));
        OQ_TRY_ALLOC(oq_node_add_output(&q->sh->job.model->arena, made, out), err);
    }
    return ONQ_OK;
}

onq_code oq_qo_narrow(oq_qo *q, oq_str name, onq_error *err) {
    const uint32_t twin = oq_map_find(&q->wide, name);
    oq_dtype elem = OQ_FLOAT;
    if (twin == OQ_MAP_NONE || oq_map_has(&q->made, name))
        return ONQ_OK;
    OQ_TRY(oq_qo_elem(q, name, &elem, err));
    return emit_cast(q, q->all_wide.v[twin], name, elem, err);
}
