/*
 * qdq_emit.c — steps become nodes and initializers. Nothing is decided here.
 *
 * Names are the reference's. New nodes come after the old ones until the graph is sorted (qdq.c
 * does that at the end).
 */
#include "quantize/qdq/qdq_state.h"

#include "base/text/real.h"
#include "onnx/attr.h"
#include "onnx/edit.h"
#include "onnx/operators.h"
#include "quantize/qdq/qdq_emit.h"

/* ---- pieces ---- */

static onq_code push_init(oq_qdq *q, oq_tensor *t, onq_error *err) {
    const bool ok = q->assembled ? oq_graph_add_init(&q->model->arena, q->graph, t)
                                 : OQ_PUSH(&q->model->arena, &q->new_inits, t);
    return ok ? ONQ_OK : oq_fail_nomem(err);
}

/* Scale and zero point as make_tensor stores them: in typed fields, the zero point first. */
static onq_code add_params(oq_qdq *q, oq_str base, const char *zero_suffix,
                           const char *scale_suffix, const int64_t *dims, size_t rank,
                           oq_qdq_value *v, onq_error *err) {
    oq_arena *a = &q->model->arena;
    v->zero_name = oq_fresh_tensor(q->names, base, zero_suffix);
    v->scale_name = oq_fresh_tensor(q->names, base, scale_suffix);
    oq_tensor *zero = oq_tensor_new(a, v->zero_name, v->type, dims, rank);
    oq_tensor *scale = oq_tensor_new(a, v->scale_name, v->real, dims, rank);
    double *reals = OQ_NEW_ARRAY(q->arena, double, v->n + 1);
    int64_t *ints = OQ_NEW_ARRAY(q->arena, int64_t, v->n + 1);
    if (v->zero_name.p == NULL || v->scale_name.p == NULL || zero == NULL || scale == NULL ||
        reals == NULL || ints == NULL)
        return oq_fail_nomem(err);
    for (uint64_t i = 0; i < v->n; i++) {
        reals[i] = (double)v->scale[i];
        ints[i] = v->zero[i];
    }
    if (v->type == OQ_FLOAT8E4M3FN) {
        double *zeros = OQ_NEW_ARRAY(q->arena, double, v->n + 1);
        OQ_TRY_ALLOC(zeros != NULL, err);
        OQ_TRY(oq_tensor_set_typed_f(a, zero, zeros, (size_t)v->n, err));
    } else {
        OQ_TRY(oq_tensor_set_typed_i(a, zero, ints, (size_t)v->n, err));
    }
    OQ_TRY(oq_tensor_set_typed_f(a, scale, reals, (size_t)v->n, err));
    OQ_TRY(push_init(q, zero, err));
    return push_init(q, scale, err);
}

onq_code oq_qdq_add_node(oq_qdq *q, const oq_qdq_op *op, onq_error *err) {
    assert(op->block == 0 || op->axis >= 0);
    oq_arena *a = &q->model->arena;
    const oq_str in[3] = {op->in, op->value->scale_name, op->value->zero_name};
    oq_node *n = oq_node_make(a, op->quantize ? OQ_QUANTIZE_LINEAR : OQ_DEQUANTIZE_LINEAR, op->name,
                              in, 3, &op->out, 1);
    OQ_TRY_ALLOC(n != NULL && op->name.p != NULL && op->out.p != NULL && op->in.p != NULL, err);
    if (q->contrib)
        n->domain = OQ_S("com.microsoft");
    if (op->axis >= 0 && !oq_attr_set_int(a, n, OQ_S("axis"), op->axis))
        return oq_fail_nomem(err);
    if (op->block > 0 && !oq_attr_set_int(a, n, OQ_S("block_size"), (int64_t)op->block))
        return oq_fail_nomem(err);
    return OQ_PUSH(a, &q->new_nodes, n) ? ONQ_OK : oq_fail_nomem(err);
}

/* Q and DQ of a tensor: from `in` over a new tensor to `out`. */
static onq_code add_pair(oq_qdq *q, const oq_qdq_value *v, oq_str in, oq_str out, oq_str base,
                         const char *number, int64_t axis, uint64_t block, onq_error *err) {
    oq_qdq_op op = {.quantize = true, .in = in, .value = v, .axis = axis, .block = block};
    const oq_str stem = oq_str_cat(q->arena, base, OQ_S("_QuantizeLinear_Output"));
    const oq_str name = oq_str_cat(q->arena, base, OQ_S("_QuantizeLinear"));
    const oq_str dq_name = oq_str_cat(q->arena, base, OQ_S("_DequantizeLinear"));
    OQ_TRY_ALLOC(stem.p != NULL && name.p != NULL && dq_name.p != NULL, err);
    op.out = oq_fresh_tensor(q->names, stem, number);
    op.name = oq_fresh_node(q->names, name, number);
    OQ_TRY(oq_qdq_add_node(q, &op, err));
    op.quantize = false;
    op.in = op.out;
    op.out = out;
    op.name = oq_fresh_node(q->names, dq_name, number);
    return oq_qdq_add_node(q, &op, err);
}

/* Every node of the tensor's graph that reads it reads `name` instead. */
static void replace_inputs(oq_qdq *q, const oq_qdq_tensor *t, oq_str name) {
    for (size_t i = 0; i < t->uses.n; i++)
        q->nodes[t->uses.v[i].node].node->input.v[t->uses.v[i].slot] = name;
}

void oq_qdq_replace_outputs(oq_qdq *q, const oq_qdq_tensor *t, oq_str name) {
    for (size_t i = 0; i < t->makers.n; i++)
        q->nodes[t->makers.v[i].node].node->output.v[t->makers.v[i].slot] = name;
}

/* True for an output of the graph whose producer can give out another name. */
bool oq_qdq_is_made_output(const oq_qdq_tensor *t) {
    return t->is_output && t->makers.n > 0;
}

/* ---- weights ---- */

static onq_code weight_dims(oq_qdq *q, const oq_qdq_weight *w, int64_t **dims, size_t *rank,
                            onq_error *err) {
    const oq_tensor *t = w->w.tensor;
    *rank = w->w.group == OQ_QGROUP_TENSOR ? 0 : w->w.group == OQ_QGROUP_CHANNEL ? 1 : t->dims.n;
    *dims = OQ_NEW_ARRAY(q->arena, int64_t, t->dims.n + 1);
    OQ_TRY_ALLOC(*dims != NULL, err);
    if (w->w.group == OQ_QGROUP_CHANNEL) {
        (*dims)[0] = (int64_t)w->w.along;
    } else if (w->w.group == OQ_QGROUP_BLOCK) {
        memcpy(*dims, t->dims.v, t->dims.n * sizeof(int64_t));
        (*dims)[w->w.axis] = (int64_t)w->w.n_blocks;
    }
    return ONQ_OK;
}

/* The quantized initializer, whose bytes are made when it is written. */
static onq_code add_quantized(oq_qdq *q, const oq_qdq_tensor *t, oq_str *name, onq_error *err) {
    const oq_qdq_weight *w = t->weight;
    oq_arena *a = &q->model->arena;
    *name = oq_fresh_tensor(q->names, t->name, "_quantized");
    oq_tensor *init = oq_tensor_new(a, *name, w->spec.type, t->init->dims.v, t->init->dims.n);
    const oq_producer *bytes;
    OQ_TRY_ALLOC(name->p != NULL && init != NULL, err);
    OQ_TRY(oq_qweight_producer(a, &w->w, w->spec.type, &w->params, &bytes, err));
    oq_tensor_set_producer(init, bytes);
    return push_init(q, init, err);
}

static bool same_numbers(const oq_qdq_weight *a, const oq_qdq_weight *b) {
    return a->spec.type == b->spec.type && a->w.group == b->w.group && a->w.axis == b->w.axis &&
           a->w.block == b->w.block && a->params.n == b->params.n &&
           memcmp(a->params.scale, b->params.scale, (size_t)a->params.n * sizeof(float)) == 0 &&
           memcmp(a->params.zero, b->params.zero, (size_t)a->params.n * sizeof(int32_t)) == 0;
}

/* The weight as initializers of the graph that holds it: made, or there already for another graph.
 */
static onq_code find_form(oq_qdq *q, const oq_qdq_tensor *t, oq_qdq_form *out, onq_error *err) {
    const oq_qdq_weight *w = t->weight;
    oq_qdq *place = t->holder != NULL ? t->holder : q;
    oq_qdq_tensor *held = oq_qdq_at(place, oq_map_find(&place->map, t->name));
    int64_t *dims;
    size_t rank;
    for (size_t i = 0; i < held->forms.n; i++) {
        if (same_numbers(held->forms.v[i].weight, w)) {
            *out = held->forms.v[i];
            return ONQ_OK;
        }
    }
    *out = (oq_qdq_form){.weight = w, .value = t->value};
    OQ_TRY(weight_dims(q, w, &dims, &rank, err));
    OQ_TRY(add_params(place, t->name, "_zero_point", "_scale", dims, rank, t->value, err));
    if (!q->config->add_qdq_pair_to_weight)
        OQ_TRY(add_quantized(place, t, &out->quantized, err));
    return OQ_PUSH(q->arena, &held->forms, *out) ? ONQ_OK : oq_fail_nomem(err);
}

/* The names of the parameters that `from` has. */
static void take_names(oq_qdq_value *v, const oq_qdq_value *from) {
    v->scale_name = from->scale_name;
    v->zero_name = from->zero_name;
}

static onq_code emit_weight(oq_qdq *q, oq_qdq_tensor *t, onq_error *err) {
    const oq_qdq_weight *w = t->weight;
    oq_qdq_form form;
    OQ_TRY(find_form(q, t, &form, err));
    take_names(t->value, form.value);
    const int64_t axis = w->w.group == OQ_QGROUP_TENSOR ? -1 : (int64_t)w->w.axis;
    const uint64_t block = w->w.group == OQ_QGROUP_BLOCK ? w->w.block : 0;
    const oq_str out = oq_fresh_tensor(q->names, t->name, "_DequantizeLinear_Output");
    OQ_TRY_ALLOC(out.p != NULL, err);
    replace_inputs(q, t, out);
    if (q->config->add_qdq_pair_to_weight)
        return add_pair(q, t->value, t->name, out, t->name, "", axis, block, err);
    oq_qdq_op op = {
        .in = form.quantized, .value = t->value, .out = out, .axis = axis, .block = block};
    op.name = oq_fresh_node(q->names, t->name, "_DequantizeLinear");
    return oq_qdq_add_node(q, &op, err);
}

/* ---- activations ---- */

/* A pair of its own for every chosen node that reads the tensor (DedicatedQDQPair). */
static onq_code emit_dedicated(oq_qdq *q, oq_qdq_tensor *t, const oq_qdq_value *v, onq_error *err) {
    const oq_str stem = oq_str_cat(q->arena, t->name, OQ_S("_DequantizeLinear_Output"));
    OQ_TRY_ALLOC(stem.p != NULL, err);
    for (size_t i = 0; i < t->receivers.n; i++) {
        char number[32];
        snprintf(number, sizeof number, "_%zu", i + 1);
        const oq_str out = oq_fresh_tensor(q->names, stem, number);
        OQ_TRY(add_pair(q, v, t->name, out, t->name, number, -1, 0, err));
        for (size_t k = 0; k < t->uses.n; k++) {
            if (t->uses.v[k].node != t->receivers.v[i])
                continue;
            /* A node that reads it twice gets its first pair twice; the second pair is unused. */
            oq_str *input = &q->nodes[t->uses.v[k].node].node->input.v[t->uses.v[k].slot];
            if (oq_str_eq(*input, t->name))
                *input = out;
        }
    }
    return ONQ_OK;
}

/* The pair of an activation: shared by all readers, or dedicated ones. */
static onq_code emit_pair(oq_qdq *q, oq_qdq_tensor *t, const oq_qdq_value *v, onq_error *err) {
    if (q->config->dedicated_qdq_pair && t->receivers.n > 1)
        return emit_dedicated(q, t, v, err);
    oq_str in = t->name, out = t->name;
    if (oq_qdq_is_made_output(t)) {
        in = oq_fresh_tensor(q->names, t->name, "_QuantizeLinear_Input");
        oq_qdq_replace_outputs(q, t, in);
    } else {
        out = oq_fresh_tensor(q->names, t->name, "_DequantizeLinear_Output");
        replace_inputs(q, t, out);
    }
    OQ_TRY_ALLOC(in.p != NULL && out.p != NULL, err);
    return add_pair(q, v, in, out, t->name, "", -1, 0, err);
}

static onq_code emit_activation(oq_qdq *q, const oq_qdq_step *s, onq_error *err) {
    oq_qdq_tensor *t = s->tensor;
    if (s->like != NULL)
        take_names(t->value, s->like);
    else
        OQ_TRY(add_params(q, t->name, "_zero_point", "_scale", NULL, 0, t->value, err));
    if (s->what == OQ_QDQ_STEP_PAIR)
        return emit_pair(q, t, t->value, err);
    OQ_TRY(add_params(q, t->name, "_zero_point_convert", "_scale_convert", NULL, 0, t->converted,
                      err));
    return oq_qdq_emit_converted(q, t, oq_qdq_convert(q, t), err);
}

/* ---- biases ---- */

static onq_code add_raw(oq_qdq *q, oq_str name, oq_dtype dt, const int64_t *dims, size_t rank,
                        const void *bytes, uint64_t n, onq_error *err) {
    oq_arena *a = &q->model->arena;
    oq_tensor *t = name.p != NULL ? oq_tensor_new(a, name, dt, dims, rank) : NULL;
    OQ_TRY_ALLOC(t != NULL, err);
    OQ_TRY(oq_tensor_set_raw(a, t, bytes, n, err));
    return push_init(q, t, err);
}

static onq_code add_reals(oq_qdq *q, oq_str name, const float *v, uint64_t n, oq_dtype real,
                          onq_error *err) {
    const int64_t dims[1] = {(int64_t)n};
    if (real == OQ_FLOAT)
        return add_raw(q, name, real, dims, 1, v, n * sizeof(float), err);
    uint16_t *halves = OQ_NEW_ARRAY(q->arena, uint16_t, n + 1);
    OQ_TRY_ALLOC(halves != NULL, err);
    for (uint64_t i = 0; i < n; i++)
        halves[i] = oq_f32_to_f16(v[i]);
    return add_raw(q, name, real, dims, 1, halves, n * sizeof(uint16_t), err);
}

static onq_code add_zeros(oq_qdq *q, oq_str name, uint64_t n, onq_error *err) {
    oq_arena *a = &q->model->arena;
    if (n > 1) {
        const int64_t dims[1] = {(int64_t)n};
        const int32_t *zeros = OQ_NEW_ARRAY(q->arena, int32_t, n);
        OQ_TRY_ALLOC(zeros != NULL, err);
        return add_raw(q, name, OQ_INT32, dims, 1, zeros, n * sizeof(int32_t), err);
    }
    const int64_t zero = 0;
    oq_tensor *t = name.p != NULL ? oq_tensor_new(a, name, OQ_INT32, NULL, 0) : NULL;
    OQ_TRY_ALLOC(t != NULL, err);
    OQ_TRY(oq_tensor_set_typed_i(a, t, &zero, 1, err));
    return push_init(q, t, err);
}

static onq_code emit_bias(oq_qdq *q, const oq_qdq_step *s, onq_error *err) {
    oq_qdq_tensor *t = s->tensor;
    oq_qdq_value *v = t->value;
    const oq_str quantized = oq_fresh_tensor(q->names, t->name, "_quantized");
    v->scale_name = oq_fresh_tensor(q->names, t->name, "_quantized_scale");
    v->zero_name = oq_fresh_tensor(q->names, t->name, "_quantized_zero_point");
    OQ_TRY_ALLOC(quantized.p != NULL && v->scale_name.p != NULL && v->zero_name.p != NULL, err);
    OQ_TRY(add_raw(q, quantized, OQ_INT32, t->init->dims.v, t->init->dims.n, s->ints,
                   s->n_ints * sizeof(int32_t), err));
    OQ_TRY(add_reals(q, v->scale_name, v->scale, v->n, v->real, err));
    OQ_TRY(add_zeros(q, v->zero_name, v->n, err));
    const int64_t axis = v->n > 1 ? (int64_t)t->init->dims.n - 1 : -1;
    oq_qdq_op op = {.in = quantized, .out = t->name, .value = v, .axis = axis};
    op.name = oq_fresh_node(q->names, t->name, "_DequantizeLinear");
    return oq_qdq_add_node(q, &op, err);
}

/* Float 8: the bias is kept in float32 and cast to its own type. */
static onq_code emit_cast(oq_qdq *q, oq_qdq_tensor *t, onq_error *err) {
    oq_arena *a = &q->model->arena;
    const oq_str name = oq_fresh_tensor(q->names, t->name, "_quantized");
    const oq_str node = oq_fresh_node(q->names, t->name, "_DequantizeLinear");
    float *values;
    size_t n;
    OQ_TRY(oq_tensor_floats(q->model, t->init, q->arena, &values, &n, err));
    OQ_TRY(add_raw(q, name, OQ_FLOAT, t->init->dims.v, t->init->dims.n, values, n * sizeof(float),
                   err));
    oq_node *cast = oq_node_make(a, "Cast", node, &name, 1, &t->name, 1);
    if (node.p == NULL || cast == NULL ||
        !oq_attr_set_int(a, cast, OQ_S("to"), t->init->data_type.v) ||
        !OQ_PUSH(a, &q->new_nodes, cast))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

/* ---- all of it ---- */

/* Wiring that marking changed: removed activations, copies of biases. */
static void apply_wiring(oq_qdq *q) {
    for (size_t i = 0; i < q->n_nodes; i++) {
        oq_qdq_node *n = &q->nodes[i];
        for (size_t k = 0; k < n->node->input.n; k++)
            if (n->in[k] != OQ_NO_TENSOR)
                n->node->input.v[k] = oq_qdq_at(q, n->in[k])->name;
        for (size_t k = 0; k < n->node->output.n; k++)
            if (n->out[k] != OQ_NO_TENSOR)
                n->node->output.v[k] = oq_qdq_at(q, n->out[k])->name;
    }
}

static onq_code emit_step(oq_qdq *q, const oq_qdq_step *s, onq_error *err) {
    assert(s->what == OQ_QDQ_STEP_CAST || s->tensor->value != NULL);
    assert(s->what != OQ_QDQ_STEP_CONVERTED || s->tensor->converted != NULL);
    switch (s->what) {
    case OQ_QDQ_STEP_WEIGHT:
        return emit_weight(q, s->tensor, err);
    case OQ_QDQ_STEP_PAIR:
    case OQ_QDQ_STEP_CONVERTED:
        return emit_activation(q, s, err);
    case OQ_QDQ_STEP_BIAS:
        return emit_bias(q, s, err);
    case OQ_QDQ_STEP_CAST:
        return emit_cast(q, s->tensor, err);
    }
    return ONQ_OK;
}

onq_code oq_qdq_emit(oq_qdq *q, onq_error *err) {
    assert(!q->assembled);
    oq_model_touch(q->model);
    apply_wiring(q);
    for (size_t i = 0; i < q->copies.n; i++)
        OQ_TRY(push_init(q, oq_qdq_at(q, q->copies.v[i])->init, err));
    for (size_t i = 0; i < q->steps.n; i++)
        OQ_TRY(emit_step(q, &q->steps.v[i], err));
    return ONQ_OK;
}
