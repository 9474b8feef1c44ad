/*
 * preset.c — get_qdq_config and get_qnn_qdq_config.
 */
#include "quantize/override/preset.h"

#include "onnx/graph.h"
#include "onnx/operators.h"

bool oq_preset_is_float(const oq_preset *p, const oq_tensor *init, oq_str name) {
    const int32_t type =
        init != NULL ? init->data_type.v : oq_shapes_elem_type(p->shapes, NULL, name);
    return type == OQ_FLOAT || type == OQ_FLOAT16;
}

typedef struct taking {
    oq_qconfig *config;
    bool no_pairs; /* without QuantizeLinear and DequantizeLinear */
} taking;

static onq_code take_types(void *ctx, oq_graph *g, onq_error *err) {
    const taking *t = ctx;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        const oq_op_kind kind = oq_op_traits_of(n->op_type)->kind;
        const bool pair = kind == OQ_KIND_QUANTIZE || kind == OQ_KIND_DEQUANTIZE;
        if (!oq_pick_has(&t->config->nodes_to_exclude, n->name) && !oq_str_is(n->op_type, "Cast") &&
            !(pair && t->no_pairs))
            OQ_TRY(oq_pick_add(&t->config->op_types, n->op_type, err));
    }
    return ONQ_OK;
}

/* All operator types of the nodes that are not excluded, without Cast. */
static onq_code take_all_types(const oq_preset *p, bool no_pairs, onq_error *err) {
    taking t = {p->config, no_pairs};
    oq_graph *g = p->model->proto->graph;
    if (p->config->op_types_all || !oq_pick_is_empty(&p->config->op_types))
        return ONQ_OK;
    return p->config->enable_subgraph ? oq_walk_graphs(g, take_types, &t, err)
                                      : take_types(&t, g, err);
}

onq_code oq_preset_qdq(const oq_preset *p, onq_error *err) {
    return take_all_types(p, true, err);
}

/* ---- QNN ---- */

/* What a node sees on an input: its type, 0 when nothing is said, and the first dictionary. */
static oq_dtype type_seen(const oq_preset *p, oq_str tensor, oq_str node, oq_dtype fallback) {
    const oq_tensor_override *t = oq_overrides_find(p->overrides, tensor);
    if (t == NULL)
        return fallback;
    const oq_override *o = &t->channels.v[0];
    const oq_override *c = o->convert;
    bool converted = c != NULL && !c->has_recv;
    for (size_t i = 0; c != NULL && i < c->recv_nodes.n; i++)
        converted |= oq_str_eq(c->recv_nodes.v[i], node);
    if (converted)
        return c->type;
    return o->has_type ? o->type : fallback;
}

static onq_code set_type(const oq_preset *p, oq_str tensor, onq_error *err) {
    oq_tensor_override *t = oq_overrides_add(p->overrides, tensor);
    OQ_TRY_ALLOC(t != NULL, err);
    for (size_t i = 0; i < t->channels.n; i++) {
        t->channels.v[i].has_type = true;
        t->channels.v[i].type = p->config->weight_type;
        t->channels.v[i].symmetric = p->config->weight_symmetric;
    }
    return ONQ_OK;
}

/* A constant input next to a 16-bit activation gets the (8-bit) weight type. */
static onq_code weight_beside_16bit(const oq_preset *p, const oq_index *ix, const oq_node *n,
                                    onq_error *err) {
    const oq_qconfig *c = p->config;
    oq_str weight = {NULL, 0};
    bool wide = false;
    if (c->weight_type != OQ_INT8 && c->weight_type != OQ_UINT8)
        return ONQ_OK;
    for (size_t i = 0; i < 2 && i < n->input.n; i++) {
        const oq_str name = n->input.v[i];
        if (name.n == 0)
            continue;
        const oq_value *v = oq_index_find(ix, name);
        const bool is_weight = v != NULL && v->init != NULL;
        const oq_tensor_override *t = oq_overrides_find(p->overrides, name);
        if (t != NULL && t->channels.v[0].has_axis && t->channels.v[0].convert == NULL)
            return ONQ_OK;
        const oq_dtype type =
            type_seen(p, name, n->name, is_weight ? OQ_UNDEFINED : c->activation_type);
        if (is_weight && t != NULL && type == c->weight_type &&
            t->channels.v[0].symmetric == c->weight_symmetric)
            return ONQ_OK;
        if (is_weight)
            weight = name;
        else
            wide |= oq_qtype_is_16bit(type);
    }
    if (!wide || weight.p == NULL)
        return ONQ_OK;
    const oq_tensor_override *t = oq_overrides_find(p->overrides, weight);
    for (size_t i = 0; t != NULL && i < t->channels.n; i++) {
        if (t->channels.v[i].has_type || t->channels.v[i].symmetric != OQ_UNSET) {
            oq_warn(p->model->env,
                    "weight '%.*s' of node '%.*s' keeps its override, which QNN may refuse",
                    OQ_STR(weight), OQ_STR(n->name));
            return ONQ_OK;
        }
    }
    return set_type(p, weight, err);
}

/* QNN has no MatMul per channel. */
static onq_code matmul_per_tensor(const oq_preset *p, const oq_index *ix, const oq_node *n,
                                  onq_error *err) {
    for (size_t i = 0; i < n->input.n; i++) {
        const oq_value *v = oq_index_find(ix, n->input.v[i]);
        if (v != NULL && v->init != NULL && oq_overrides_find(p->overrides, v->name) == NULL)
            OQ_TRY(set_type(p, v->name, err));
    }
    return ONQ_OK;
}

/* 16-bit outputs of Sigmoid and Tanh have fixed parameters. */
static onq_code fix_output(const oq_preset *p, const oq_node *n, bool sigmoid, onq_error *err) {
    const oq_str name = n->output.n > 0 ? n->output.v[0] : OQ_S("");
    const oq_tensor_override *now = oq_overrides_find(p->overrides, name);
    const oq_dtype type = now != NULL && now->channels.v[0].has_type ? now->channels.v[0].type
                                                                     : p->config->activation_type;
    if (name.n == 0 || !oq_qtype_is_16bit(type))
        return ONQ_OK;
    oq_tensor_override *t = oq_overrides_add(p->overrides, name);
    OQ_TRY_ALLOC(t != NULL, err);
    oq_override *o = &t->channels.v[0];
    o->has_type = o->has_scale = o->has_zero = true;
    o->has_rmin = o->has_rmax = false;
    o->symmetric = o->reduce_range = OQ_UNSET;
    o->type = type;
    o->scale = sigmoid && type == OQ_UINT16 ? 1.0f / 65536.0f : 1.0f / 32768.0f;
    o->zero = !sigmoid && type == OQ_UINT16 ? 32768 : 0;
    return ONQ_OK;
}

static onq_code qnn_node(const oq_preset *p, const oq_index *ix, const oq_node *n, onq_error *err) {
    if (oq_str_is(n->op_type, "MatMul"))
        return p->config->per_channel ? matmul_per_tensor(p, ix, n, err)
                                      : weight_beside_16bit(p, ix, n, err);
    if (oq_str_is(n->op_type, "LayerNormalization"))
        return p->config->per_channel ? ONQ_OK : weight_beside_16bit(p, ix, n, err);
    if (oq_str_is(n->op_type, "Sigmoid"))
        return fix_output(p, n, true, err);
    if (oq_str_is(n->op_type, "Tanh"))
        return fix_output(p, n, false, err);
    return ONQ_OK;
}

onq_code oq_preset_qnn(const oq_preset *p, onq_error *err) {
    oq_qconfig *c = p->config;
    const oq_graph *g = p->model->proto->graph;
    oq_index ix;
    if (c->weight_symmetric == OQ_UNSET)
        c->weight_symmetric =
            c->weight_type == OQ_INT8 || c->weight_type == OQ_INT16 ? OQ_YES : OQ_NO;
    const bool given = p->overrides->all.n > 0;
    if (given && p->add_converts)
        OQ_TRY(oq_preset_mix(p, err));
    /* Of given overrides the reference looks at the types of the first. */
    const bool first =
        given && oq_override_uses_type(p->overrides->all.v[0], oq_qtype_is_16_or_4bit);
    OQ_TRY(oq_index_build(&ix, p->arena, p->model->proto->graph, NULL, err));
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        const bool listed = c->op_types_all || oq_pick_is_empty(&c->op_types) ||
                            oq_pick_has(&c->op_types, n->op_type);
        if (listed && !oq_pick_has(&c->nodes_to_exclude, n->name))
            OQ_TRY(qnn_node(p, &ix, n, err));
    }
    OQ_TRY(take_all_types(p, false, err));
    if (oq_model_opset(p->model, OQ_S("")) < 21 &&
        (oq_qtype_is_16_or_4bit(c->activation_type) || oq_qtype_is_16_or_4bit(c->weight_type) ||
         (given ? first : oq_overrides_any_type(p->overrides, oq_qtype_is_16_or_4bit))))
        c->use_qdq_contrib_ops = true;
    return ONQ_OK;
}
