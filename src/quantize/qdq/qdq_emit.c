/*
 * qdq_emit.c — writes the pairs: nodes and initializers for every marked tensor.
 *
 * Names and order are the reference's: first all tensors with parameters of their own in the order
 * of their marks, then those that share parameters, then the biases. New nodes stand behind the old
 * ones until the graph is sorted (qdq.c does that at the end).
 */
#include "quantize/qdq/qdq.h"

#include "onnx/attr.h"
#include "onnx/edit.h"
#include "quantize/qdq/qdq_emit.h"

#include <stdio.h>
#include <stdlib.h>

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
    v->zero_name = oq_qname_tensor(q->names, base, zero_suffix);
    v->scale_name = oq_qname_tensor(q->names, base, scale_suffix);
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
        if (zeros == NULL)
            return oq_fail_nomem(err);
        OQ_TRY(oq_tensor_set_typed_f(a, zero, zeros, (size_t)v->n, err));
    } else {
        OQ_TRY(oq_tensor_set_typed_i(a, zero, ints, (size_t)v->n, err));
    }
    OQ_TRY(oq_tensor_set_typed_f(a, scale, reals, (size_t)v->n, err));
    OQ_TRY(push_init(q, zero, err));
    return push_init(q, scale, err);
}

onq_code oq_qdq_add_node(oq_qdq *q, const oq_qdq_op *op, onq_error *err) {
    oq_arena *a = &q->model->arena;
    const oq_str in[3] = {op->in, op->value->scale_name, op->value->zero_name};
    oq_node *n = oq_node_make(a, op->quantize ? "QuantizeLinear" : "DequantizeLinear", op->name, in,
                              3, &op->out, 1);
    if (n == NULL || op->name.p == NULL || op->out.p == NULL || op->in.p == NULL)
        return oq_fail_nomem(err);
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
    if (stem.p == NULL || name.p == NULL || dq_name.p == NULL)
        return oq_fail_nomem(err);
    op.out = oq_qname_tensor(q->names, stem, number);
    op.name = oq_qname_node(q->names, name, number);
    OQ_TRY(oq_qdq_add_node(q, &op, err));
    op.quantize = false;
    op.in = op.out;
    op.out = out;
    op.name = oq_qname_node(q->names, dq_name, number);
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

/* Is it an output of the graph whose maker can be given another name? */
bool oq_qdq_is_made_output(const oq_qdq_tensor *t) {
    return t->is_output && t->makers.n > 0;
}

static onq_code plan_value(oq_qdq *q, const oq_qdq_tensor *t, const oq_qdq_value *v,
                           oq_plan_tensor row, onq_error *err) {
    row.name = t->name;
    row.type = v->type;
    row.scale = v->scale;
    row.zero = v->zero;
    row.n = v->n;
    return oq_plan_add_tensor(q->plan, row) ? ONQ_OK : oq_fail_nomem(err);
}

/* ---- weights ---- */

static onq_code weight_dims(oq_qdq *q, const oq_qdq_weight *w, int64_t **dims, size_t *rank,
                            onq_error *err) {
    const oq_tensor *t = w->w.tensor;
    *rank = w->w.group == OQ_QGROUP_TENSOR ? 0 : w->w.group == OQ_QGROUP_CHANNEL ? 1 : t->dims.n;
    *dims = OQ_NEW_ARRAY(q->arena, int64_t, t->dims.n + 1);
    if (*dims == NULL)
        return oq_fail_nomem(err);
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
    *name = oq_qname_tensor(q->names, t->name, "_quantized");
    oq_tensor *init = oq_tensor_new(a, *name, w->spec.type, t->init->dims.v, t->init->dims.n);
    const oq_producer *bytes;
    if (name->p == NULL || init == NULL)
        return oq_fail_nomem(err);
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
    oq_qdq_value *v = OQ_NEW(&q->model->arena, oq_qdq_value);
    int64_t *dims;
    size_t rank;
    if (v == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < held->forms.n; i++) {
        if (same_numbers(held->forms.v[i].weight, w)) {
            *out = held->forms.v[i];
            return ONQ_OK;
        }
    }
    *v = (oq_qdq_value){.type = w->spec.type,
                        .real = oq_qweight_scale_type(&w->w),
                        .scale = w->params.scale,
                        .zero = w->params.zero,
                        .n = w->params.n};
    *out = (oq_qdq_form){.weight = w, .value = v};
    OQ_TRY(weight_dims(q, w, &dims, &rank, err));
    OQ_TRY(add_params(place, t->name, "_zero_point", "_scale", dims, rank, v, err));
    if (!q->config->add_qdq_pair_to_weight)
        OQ_TRY(add_quantized(place, t, &out->quantized, err));
    return OQ_PUSH(q->arena, &held->forms, *out) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code emit_weight(oq_qdq *q, oq_qdq_tensor *t, onq_error *err) {
    const oq_qdq_weight *w = t->weight;
    oq_qdq_form form;
    OQ_TRY(find_form(q, t, &form, err));
    oq_qdq_value *v = form.value;
    const int64_t axis = w->w.group == OQ_QGROUP_TENSOR ? -1 : (int64_t)w->w.axis;
    const uint64_t block = w->w.group == OQ_QGROUP_BLOCK ? w->w.block : 0;
    const oq_str out = oq_qname_tensor(q->names, t->name, "_DequantizeLinear_Output");
    if (out.p == NULL)
        return oq_fail_nomem(err);
    replace_inputs(q, t, out);
    if (q->config->add_qdq_pair_to_weight) {
        OQ_TRY(add_pair(q, v, t->name, out, t->name, "", axis, block, err));
    } else {
        oq_qdq_op op = {.in = form.quantized, .value = v, .out = out, .axis = axis, .block = block};
        op.name = oq_qname_node(q->names, t->name, "_DequantizeLinear");
        OQ_TRY(oq_qdq_add_node(q, &op, err));
    }
    t->value = v;
    const oq_plan_tensor row = {.role =
                                    t->kind == OQ_QDQ_WEIGHT ? OQ_ROLE_WEIGHT : OQ_ROLE_ACTIVATION,
                                .axis = axis,
                                .block = block,
                                .why = w->why};
    return plan_value(q, t, v, row, err);
}

/* ---- activations ---- */

/* A pair of its own for every chosen node that reads the tensor (DedicatedQDQPair). */
static onq_code emit_dedicated(oq_qdq *q, oq_qdq_tensor *t, const oq_qdq_value *v, onq_error *err) {
    const oq_str stem = oq_str_cat(q->arena, t->name, OQ_S("_DequantizeLinear_Output"));
    if (stem.p == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < t->receivers.n; i++) {
        char number[32];
        snprintf(number, sizeof number, "_%zu", i + 1);
        const oq_str out = oq_qname_tensor(q->names, stem, number);
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

onq_code oq_qdq_emit_pair(oq_qdq *q, oq_qdq_tensor *t, const oq_qdq_value *v, onq_error *err) {
    if (q->config->dedicated_qdq_pair && t->receivers.n > 1)
        return emit_dedicated(q, t, v, err);
    oq_str in = t->name, out = t->name;
    if (oq_qdq_is_made_output(t)) {
        in = oq_qname_tensor(q->names, t->name, "_QuantizeLinear_Input");
        oq_qdq_replace_outputs(q, t, in);
    } else {
        out = oq_qname_tensor(q->names, t->name, "_DequantizeLinear_Output");
        replace_inputs(q, t, out);
    }
    if (in.p == NULL || out.p == NULL)
        return oq_fail_nomem(err);
    return add_pair(q, v, in, out, t->name, "", -1, 0, err);
}

/* Scale and zero point of an activation, or of its second type. */
static onq_code add_act(oq_qdq *q, const oq_qdq_tensor *t, bool convert, oq_qdq_value **out,
                        onq_error *err) {
    oq_arena *a = &q->model->arena;
    oq_qdq_act act;
    bool found;
    OQ_TRY(oq_qdq_act_params(q, t, convert, &act, &found, err));
    if (!found)
        return oq_fail(
            err, ONQ_E_INVALID,
            "the calibration has no range for tensor '%.*s' (calibrate again, or exclude "
            "its nodes)",
            OQ_STR(t->name));
    oq_qdq_value *v = OQ_NEW(a, oq_qdq_value);
    float *scale = OQ_NEW(a, float);
    int32_t *zero = OQ_NEW(a, int32_t);
    if (v == NULL || scale == NULL || zero == NULL)
        return oq_fail_nomem(err);
    *scale = act.p.scale;
    *zero = act.p.zero_point;
    *v = (oq_qdq_value){.type = act.type, .real = act.real, .scale = scale, .zero = zero, .n = 1};
    *out = v;
    return convert
               ? add_params(q, t->name, "_zero_point_convert", "_scale_convert", NULL, 0, v, err)
               : add_params(q, t->name, "_zero_point", "_scale", NULL, 0, v, err);
}

static const char *why_act(const oq_qdq *q, const oq_qdq_tensor *t) {
    const oq_override *o = oq_overrides_tensor(q->overrides, t->name);
    return oq_override_has_params(o) ? "override"
           : o != NULL               ? "calibration, overridden"
                                     : "calibration";
}

static onq_code emit_activation(oq_qdq *q, oq_qdq_tensor *t, onq_error *err) {
    const oq_override *convert = oq_qdq_convert(q, t);
    const oq_plan_tensor row = {.axis = -1, .why = why_act(q, t)};
    OQ_TRY(add_act(q, t, false, &t->value, err));
    OQ_TRY(plan_value(q, t, t->value, row, err));
    if (convert == NULL)
        return oq_qdq_emit_pair(q, t, t->value, err);
    const oq_plan_tensor second = {.axis = -1, .converted = true, .why = "override: convert"};
    OQ_TRY(add_act(q, t, true, &t->converted, err));
    OQ_TRY(plan_value(q, t, t->converted, second, err));
    return oq_qdq_emit_converted(q, t, convert, err);
}

static onq_code emit_own(oq_qdq *q, onq_error *err) {
    for (size_t i = 0; i < q->order.n; i++) {
        if (q->order.v[i] == OQ_NO_TENSOR)
            continue;
        oq_qdq_tensor *t = oq_qdq_at(q, q->order.v[i]);
        if (t->share_from != OQ_NO_TENSOR)
            continue;
        if (t->init != NULL)
            OQ_TRY(emit_weight(q, t, err));
        else if (t->dq_node == OQ_NO_NODE) /* else the input model quantized it already */
            OQ_TRY(emit_activation(q, t, err));
        t->marked = false;
    }
    return ONQ_OK;
}

/* ---- tensors that share the parameters of another ---- */

/* The rounds of the reference's loop: in each it goes through what is left, in order, and emits
 * what can be. A tensor's round is its provider's if that stands before it, else one more. 0:
 * not known yet, UINT32_MAX: never. */
static void find_round(oq_qdq *q, uint32_t *round, uint32_t first, uint32_t *chain) {
    size_t n = 0;
    uint32_t t = first;
    while (t != OQ_NO_TENSOR && round[t] == 0 && oq_qdq_at(q, t)->marked) {
        round[t] = UINT32_MAX; /* so that a circle ends here and is never emitted */
        chain[n++] = t;
        t = oq_qdq_at(q, t)->share_from;
    }
    /* The provider at the end of the chain has parameters already, or a round, or will never
     * have any. */
    uint32_t last = UINT32_MAX, place = 0;
    if (t != OQ_NO_TENSOR && oq_qdq_at(q, t)->marked) {
        last = round[t];
        place = oq_qdq_at(q, t)->place;
    } else if (t != OQ_NO_TENSOR &&
               (oq_qdq_at(q, t)->value != NULL || oq_qdq_dq_value(q, oq_qdq_at(q, t)))) {
        last = 1;
    }
    while (n-- > 0) {
        const oq_qdq_tensor *c = oq_qdq_at(q, chain[n]);
        if (last != UINT32_MAX && place > c->place)
            last++;
        round[chain[n]] = last;
        place = c->place;
    }
}

static onq_code emit_alone(oq_qdq *q, oq_qdq_tensor *t, onq_error *err);

static onq_code emit_one_shared(oq_qdq *q, oq_qdq_tensor *t, onq_error *err) {
    oq_qdq_tensor *from = oq_qdq_at(q, t->share_from);
    const oq_override *convert = oq_qdq_convert(q, t);
    const oq_qdq_value *v = oq_qdq_value_for(q, from, oq_qdq_node_at(q, t->share_node)->name);
    if (v->n > 1 && !oq_qdq_channels_stay(q, t, v))
        return emit_alone(q, t, err);
    oq_qdq_value *copy = OQ_NEW(&q->model->arena, oq_qdq_value);
    if (copy == NULL)
        return oq_fail_nomem(err);
    *copy = *v;
    t->value = copy;
    t->marked = false;
    const oq_plan_tensor row = {.axis = -1, .same_as = from->name, .why = "same as the input"};
    OQ_TRY(plan_value(q, t, copy, row, err));
    if (convert == NULL)
        return oq_qdq_emit_pair(q, t, copy, err);
    const oq_plan_tensor second = {.axis = -1, .converted = true, .why = "override: convert"};
    OQ_TRY(add_act(q, t, true, &t->converted, err));
    OQ_TRY(plan_value(q, t, t->converted, second, err));
    return oq_qdq_emit_converted(q, t, convert, err);
}

/* What has no provider to share with keeps a pair of its own where its range is known. */
static onq_code emit_alone(oq_qdq *q, oq_qdq_tensor *t, onq_error *err) {
    t->marked = false;
    t->share_from = OQ_NO_TENSOR;
    if (t->dq_node != OQ_NO_NODE || !oq_qdq_has_range(q, t))
        return ONQ_OK;
    return emit_activation(q, t, err);
}

typedef struct turn {
    uint32_t round, place, tensor;
} turn;

static int by_turn(const void *a, const void *b) {
    const turn *x = a, *y = b;
    if (x->round != y->round)
        return x->round < y->round ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static onq_code emit_shared(oq_qdq *q, onq_error *err) {
    uint32_t *round = OQ_NEW_ARRAY(q->arena, uint32_t, q->tensors.n + 1);
    uint32_t *chain = OQ_NEW_ARRAY(q->arena, uint32_t, q->tensors.n + 1);
    turn *left = OQ_NEW_ARRAY(q->arena, turn, q->order.n + 1);
    size_t n = 0;
    if (round == NULL || chain == NULL || left == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < q->order.n; i++) {
        const uint32_t t = q->order.v[i];
        if (t == OQ_NO_TENSOR || !oq_qdq_at(q, t)->marked)
            continue;
        find_round(q, round, t, chain);
        left[n++] = (turn){0, oq_qdq_at(q, t)->place, t};
    }
    for (size_t i = 0; i < n; i++)
        left[i].round = round[left[i].tensor];
    qsort(left, n, sizeof *left, by_turn);
    for (size_t i = 0; i < n; i++) {
        oq_qdq_tensor *t = oq_qdq_at(q, left[i].tensor);
        if (left[i].round != UINT32_MAX)
            OQ_TRY(emit_one_shared(q, t, err));
        else
            OQ_TRY(emit_alone(q, t, err));
    }
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

onq_code oq_qdq_emit(oq_qdq *q, onq_error *err) {
    oq_model_touch(q->model);
    apply_wiring(q);
    for (size_t i = 0; i < q->copies.n; i++)
        OQ_TRY(push_init(q, oq_qdq_at(q, q->copies.v[i])->init, err));
    OQ_TRY(emit_own(q, err));
    OQ_TRY(emit_shared(q, err));
    return q->config->quantize_bias ? oq_qdq_emit_biases(q, err) : ONQ_OK;
}
