/*
 * qoperator_node.c — the verbs of rules that write nodes: copies, integer operators,
 * DequantizeLinear in front of what stays float.
 */
#include "quantize/qoperator/qo_state.h"

#include "onnx/codec/schema.h"

/* ---- nodes ---- */

onq_code oq_qo_emit(oq_qo *q, oq_node *n, onq_error *err) {
    OQ_TRY_ALLOC(n != NULL && !q->sh->names.failed, err);
    for (size_t i = 0; i < n->input.n; i++)
        OQ_TRY(oq_qo_narrow(q, n->input.v[i], err));
    OQ_TRY_ALLOC(OQ_PUSH(q->arena, &q->out, n), err);
    for (size_t i = 0; i < n->output.n; i++)
        if (n->output.v[i].n != 0 && !oq_map_put(&q->made, n->output.v[i], 0))
            return oq_fail_nomem(err);
    if (oq_str_is(n->domain, "com.microsoft"))
        q->sh->needs_ms = true;
    return ONQ_OK;
}

oq_node *oq_qo_copy(oq_qo *q, const oq_node *n) {
    return oq_message_clone(oq_qo_arena(q), OQ_SCHEMA_node, n);
}

static int by_name(const void *a, const void *b) {
    return oq_str_cmp((*(oq_attribute *const *)a)->name, (*(oq_attribute *const *)b)->name);
}

oq_node *oq_qo_node_new(oq_qo *q, const oq_node *n, const char *op_type, bool ms) {
    oq_arena *a = oq_qo_arena(q);
    const oq_str name = n->name.n != 0 ? oq_fresh_node(&q->sh->names, n->name, "_quant") : OQ_S("");
    oq_node *made = name.p != NULL ? oq_node_new(a, op_type, name) : NULL;
    if (made == NULL)
        return NULL;
    if (n->name.n == 0)
        made->name = (oq_str){0};
    oq_node_carry(made, n);
    if (ms)
        made->domain = OQ_S("com.microsoft");
    if (!oq_node_share_attributes(a, made, n))
        return NULL;
    if (made->attribute.n > 1)
        qsort(made->attribute.v, made->attribute.n, sizeof(oq_attribute *), by_name);
    return made;
}

bool oq_qo_add_params(oq_qo *q, oq_node *n, const oq_qo_value *v) {
    return oq_node_add_input(oq_qo_arena(q), n, v->scale) &&
           oq_node_add_input(oq_qo_arena(q), n, v->zero);
}

bool oq_qo_add_inputs(oq_qo *q, oq_node *n, const oq_qo_value *v) {
    return oq_node_add_input(oq_qo_arena(q), n, v->q) && oq_qo_add_params(q, n, v);
}

onq_code oq_qo_emit_moved(oq_qo *q, const oq_node *n, const oq_qo_value *in, const oq_qo_value *out,
                          onq_error *err) {
    oq_node *made = oq_qo_copy(q, n);
    OQ_TRY_ALLOC(made != NULL, err);
    made->input.v[0] = in->q;
    if (out != NULL)
        made->output.v[0] = out->q;
    return oq_qo_emit(q, made, err);
}

bool oq_qo_has_dequantize(const oq_qo *q, const oq_qo_value *v) {
    /* There is no axis there, or the values are transposed: nodes that need the float weight keep
     * reading it. */
    const bool turned = v->weight != NULL && v->weight->batch != 0;
    return !turned && (!v->has_axis || q->sh->opset >= 13);
}

onq_code oq_qo_emit_dequantize(oq_qo *q, const oq_qo_value *v, oq_str name, oq_str out,
                               onq_error *err) {
    assert(oq_qo_has_dequantize(q, v));
    oq_arena *a = oq_qo_arena(q);
    const oq_str node_name = oq_fresh_node(&q->sh->names, name, "_DequantizeLinear");
    oq_node *dq = oq_node_new(a, OQ_DEQUANTIZE_LINEAR, node_name);
    if (dq == NULL || !oq_qo_add_inputs(q, dq, v) || !oq_node_add_output(a, dq, out) ||
        (v->has_axis && !oq_attr_set_int(a, dq, OQ_S("axis"), v->axis)))
        return oq_fail_nomem(err);
    return oq_qo_emit(q, dq, err);
}

/* _dequantize_value: a DequantizeLinear in front of nodes that need the float tensor, unless it
 * exists.
 */
onq_code oq_qo_dequantize(oq_qo *q, oq_str name, onq_error *err) {
    const oq_qo_value *v = name.n != 0 ? oq_qo_value_of(q, name) : NULL;
    oq_str twin = {0};
    if (v == NULL)
        return oq_qo_narrow(q, name, err);
    if (oq_map_has(&q->made, name) || !oq_qo_has_dequantize(q, v))
        return ONQ_OK;
    if (v->elem == OQ_FLOAT)
        return oq_qo_emit_dequantize(q, v, name, name, err);
    OQ_TRY(oq_qo_wide(q, name, &twin, err));
    return oq_qo_narrow(q, name, err);
}

/* What an inner graph reads from outside must exist as float. A constant does: it stays where it
 * is, unless training rounded it. (A name that the graph defines itself may be dequantized too:
 * that harms nothing.) */
static onq_code dequantize_outer(oq_qo *q, oq_str name, onq_error *err) {
    if (oq_qo_init(q, name) != NULL && !oq_qo_config(q)->trained)
        return ONQ_OK;
    return oq_qo_dequantize(q, name, err);
}

static onq_code dequantize_inner(void *ctx, oq_graph *g, onq_error *err) {
    const oq_qo *draft = oq_qo_draft_of(((oq_qo *)ctx)->sh, g);
    oq_node *const *nodes = draft != NULL ? draft->out.v : g->node.v;
    const size_t n = draft != NULL ? draft->out.n : g->node.n;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < nodes[i]->input.n; k++)
            OQ_TRY(dequantize_outer(ctx, nodes[i]->input.v[k], err));
    for (size_t i = 0; i < g->output.n; i++)
        OQ_TRY(dequantize_outer(ctx, g->output.v[i]->name, err));
    return ONQ_OK;
}

onq_code oq_qo_leave(oq_qo *q, oq_node *n, const char *why, onq_error *err) {
    if (why != NULL)
        q->why = why;
    if (oq_qo_config(q)->trained)
        OQ_TRY(oq_qo_leave_trained(q, &n, err));
    for (size_t i = 0; i < n->input.n; i++)
        OQ_TRY(oq_qo_dequantize(q, n->input.v[i], err));
    for (size_t i = 0; i < n->attribute.n; i++) {
        const oq_attribute *at = n->attribute.v[i];
        if (at->g != NULL)
            OQ_TRY(oq_walk_graphs(at->g, dequantize_inner, q, err));
        for (size_t k = 0; k < at->graphs.n; k++)
            OQ_TRY(oq_walk_graphs(at->graphs.v[k], dequantize_inner, q, err));
    }
    return oq_qo_emit(q, n, err);
}

/* ---- integer operators ---- */

/* The product of two scales. Nodes without a name share it. */
onq_code oq_qo_scales_product(oq_qo *q, const oq_node *made, const oq_str scales[2], oq_str *out,
                              onq_error *err) {
    const bool shared = made->name.n == 0;
    const oq_str pair =
        oq_str_format(oq_qo_arena(q), "%.*s_%.*s", OQ_STR(scales[0]), OQ_STR(scales[1]));
    const uint32_t there = oq_map_find(&q->products, pair);
    if (shared && there != OQ_MAP_NONE) {
        *out = q->all_products.v[there];
        return ONQ_OK;
    }
    const oq_str name = shared ? oq_fresh_node(&q->sh->names, pair, "_mul")
                               : oq_fresh_node(&q->sh->names, made->name, "_scales_mul");
    *out = name.p != NULL ? oq_fresh_tensor(&q->sh->names, name, ":0") : (oq_str){0};
    OQ_TRY_ALLOC(pair.p != NULL && out->p != NULL, err);
    if (shared && (!OQ_PUSH(q->arena, &q->all_products, *out) ||
                   !oq_map_put(&q->products, pair, (uint32_t)(q->all_products.n - 1))))
        return oq_fail_nomem(err);
    return oq_qo_emit(q, oq_node_make(oq_qo_arena(q), "Mul", name, scales, 2, out, 1), err);
}

onq_code oq_qo_emit_scaled(oq_qo *q, const oq_node *n, oq_node *made, const oq_qo_value *in,
                           const oq_qo_value *weight, oq_str result, onq_error *err) {
    oq_arena *a = oq_qo_arena(q);
    int32_t type = 0;
    OQ_TRY(oq_qo_type(q, n->output.v[0], &type, err));
    if (type == 0)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "the type of '%.*s' cannot be found (give --extra DefaultTensorType=1 if it "
                       "is float)",
                       OQ_STR(n->output.v[0]));
    const oq_str sums = oq_fresh_tensor(&q->sh->names, n->output.v[0], "_output_quantized");
    const oq_str real = oq_fresh_tensor(&q->sh->names, sums, "_cast_output");
    const oq_str inputs[4] = {in->q, weight->q, in->zero, weight->zero};
    OQ_TRY_ALLOC(sums.p != NULL && real.p != NULL, err);
    for (size_t i = 0; i < 4; i++)
        OQ_TRY_ALLOC(oq_node_add_input(a, made, inputs[i]), err);
    OQ_TRY_ALLOC(oq_node_add_output(a, made, sums), err);
    OQ_TRY(oq_qo_emit(q, made, err));
    const oq_str cast_name = oq_fresh_node(&q->sh->names, sums, "_cast");
    oq_node *cast = oq_node_make(a, "Cast", cast_name, &sums, 1, &real, 1);
    /* Sums do not fit into 16-bit floats. */
    if (cast == NULL || !oq_attr_set_int(a, cast, OQ_S("to"), q->sh->casts ? OQ_FLOAT : type))
        return oq_fail_nomem(err);
    OQ_TRY(oq_qo_emit(q, cast, err));
    const oq_str scales[2] = {in->scale, weight->scale};
    oq_str scale = {0};
    OQ_TRY(oq_qo_scales_product(q, made, scales, &scale, err));
    const oq_str factors[2] = {real, scale};
    const oq_str name = oq_fresh_node_of(&q->sh->names, made, "_output_scale_mul");
    return oq_qo_emit(q, oq_node_make(a, "Mul", name, factors, 2, &result, 1), err);
}

/* ---- shared rules ---- */

onq_code oq_qo_qlinear(oq_qo *q, oq_node *n, size_t n_in, onq_error *err) {
    oq_qo_value *in = NULL, *out = NULL;
    bool can = false;
    OQ_TRY(oq_qo_can_all(q, n, n_in, &can, err));
    if (!can)
        return oq_qo_leave(q, n, q->why, err);
    char type[64];
    snprintf(type, sizeof type, "QLinear%.*s", OQ_STR(n->op_type));
    const char *op = oq_arena_strdup(oq_qo_arena(q), type, strlen(type));
    oq_node *made = op != NULL ? oq_qo_node_new(q, n, op, true) : NULL;
    OQ_TRY_ALLOC(made != NULL, err);
    OQ_TRY(oq_qo_output(q, n, &out, err));
    for (size_t i = 0; i < n_in; i++) {
        OQ_TRY(oq_qo_input(q, n, i, &oq_qo_as_activation, &in, err));
        OQ_TRY_ALLOC(oq_qo_add_inputs(q, made, in), err);
    }
    OQ_TRY_ALLOC(oq_qo_add_params(q, made, out) && oq_node_add_output(oq_qo_arena(q), made, out->q),
                 err);
    return oq_qo_emit(q, made, err);
}

onq_code oq_qo_direct(oq_qo *q, oq_node *n, onq_error *err) {
    oq_qo_value *in = oq_qo_value_in_path(q, n->input.v[0]), *out = NULL;
    if (!oq_qo_config(q)->force_quantize_no_input_check) {
        if (in == NULL) {
            q->why = "its input is not quantized";
            return oq_qo_emit(q, n, err);
        }
        if (oq_qo_trained_otherwise(q, n->output.v[0], in))
            return oq_qo_leave(q, n, "its output was trained with other parameters", err);
    } else {
        if (!oq_qo_is_float_weight(q, n->input.v[0]) || !oq_qo_can(q, n, 0, &oq_qo_as_activation))
            return oq_qo_leave(q, n, "its input is not a float constant", err);
        OQ_TRY(oq_qo_input(q, n, 0, &oq_qo_as_activation, &in, err));
    }
    OQ_TRY(oq_qo_output_like(q, n->output.v[0], "_quantized", in, &out, err));
    return oq_qo_emit_moved(q, n, in, out, err);
}
