/*
 * qdq_steps.c — from marked tensors to steps: what is written for each, in the reference's order.
 *
 * First all tensors with parameters of their own in the order of their marks, then those that share
 * parameters, then the biases.
 */
#include "quantize/qdq/qdq_state.h"

#include "onnx/tensor.h"

onq_code oq_qdq_add_step(oq_qdq *q, oq_qdq_step step, onq_error *err) {
    return OQ_PUSH(q->arena, &q->steps, step) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code plan_value(oq_qdq *q, const oq_qdq_tensor *t, const oq_qdq_value *v,
                           oq_plan_tensor row, onq_error *err) {
    assert(row.axis >= 0 || (v->n == 1 && row.block == 0));
    row.name = t->name;
    row.type = v->type;
    row.scale = v->scale;
    row.zero = v->zero;
    row.n = v->n;
    return oq_plan_add_tensor(q->plan, row) ? ONQ_OK : oq_fail_nomem(err);
}

/* ---- weights ---- */

static onq_code decide_weight(oq_qdq *q, oq_qdq_tensor *t, onq_error *err) {
    const oq_qdq_weight *w = t->weight;
    oq_qdq_value *v = OQ_NEW(&q->model->arena, oq_qdq_value);
    OQ_TRY_ALLOC(v != NULL, err);
    *v = (oq_qdq_value){.type = w->spec.type,
                        .real = oq_qweight_scale_type(&w->w),
                        .scale = w->params.scale,
                        .zero = w->params.zero,
                        .n = w->params.n};
    t->value = v;
    const oq_plan_tensor row = {.role =
                                    t->kind == OQ_QDQ_WEIGHT ? OQ_ROLE_WEIGHT : OQ_ROLE_ACTIVATION,
                                .axis = w->w.group == OQ_QGROUP_TENSOR ? -1 : (int64_t)w->w.axis,
                                .block = w->w.group == OQ_QGROUP_BLOCK ? w->w.block : 0,
                                .adjusted = w->adjusted,
                                .why = w->why};
    OQ_TRY(plan_value(q, t, v, row, err));
    const oq_qdq_step step = {.what = OQ_QDQ_STEP_WEIGHT, .tensor = t};
    return oq_qdq_add_step(q, step, err);
}

/* ---- activations ---- */

/* Scale and zero point of an activation, or of its second type. */
static onq_code make_value(oq_qdq *q, const oq_qdq_tensor *t, bool convert, oq_qdq_value **out,
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
    OQ_TRY_ALLOC(v != NULL && scale != NULL && zero != NULL, err);
    *scale = act.p.scale;
    *zero = act.p.zero_point;
    *v = (oq_qdq_value){.type = act.type, .real = act.real, .scale = scale, .zero = zero, .n = 1};
    *out = v;
    return ONQ_OK;
}

/* Names of the nodes that will read the second type. */
static onq_code find_converted(oq_qdq *q, oq_qdq_tensor *t, const oq_override *convert,
                               onq_error *err) {
    oq_map second;
    oq_map_init(&second, q->arena);
    bool ok = true;
    for (size_t i = 0; convert->has_recv && i < convert->recv_nodes.n; i++)
        ok &= oq_map_put(&second, convert->recv_nodes.v[i], 0);
    for (size_t i = 0; !convert->has_recv && i < t->receivers.n; i++)
        ok &= oq_map_put(&second, oq_qdq_node_at(q, t->receivers.v[i])->name, 0);
    for (size_t i = 0; ok && i < t->uses.n; i++) {
        const oq_str name = oq_qdq_node_at(q, t->uses.v[i].node)->name;
        if (oq_map_has(&second, name))
            ok = OQ_PUSH(q->arena, &t->converted_for, name);
    }
    return ok ? ONQ_OK : oq_fail_nomem(err);
}

/* The pair of a tensor whose parameters are known, and those of its second type. */
static onq_code decide_pair(oq_qdq *q, oq_qdq_tensor *t, const oq_qdq_value *like, onq_error *err) {
    const oq_override *convert = oq_qdq_convert(q, t);
    oq_qdq_step step = {.what = OQ_QDQ_STEP_PAIR, .tensor = t, .like = like};
    if (convert == NULL)
        return oq_qdq_add_step(q, step, err);
    const oq_plan_tensor row = {.axis = -1, .converted = true, .why = "override: convert"};
    OQ_TRY(make_value(q, t, true, &t->converted, err));
    OQ_TRY(plan_value(q, t, t->converted, row, err));
    OQ_TRY(find_converted(q, t, convert, err));
    step.what = OQ_QDQ_STEP_CONVERTED;
    return oq_qdq_add_step(q, step, err);
}

static const char *why_act(const oq_qdq *q, const oq_qdq_tensor *t) {
    if (q->run->given != NULL)
        return "the plan";
    const oq_override *o = oq_overrides_tensor(q->overrides, t->name);
    return oq_override_has_params(o) ? "override"
           : o != NULL               ? "calibration, overridden"
                                     : "calibration";
}

static onq_code decide_activation(oq_qdq *q, oq_qdq_tensor *t, onq_error *err) {
    const oq_plan_tensor row = {.axis = -1, .why = why_act(q, t)};
    OQ_TRY(make_value(q, t, false, &t->value, err));
    OQ_TRY(plan_value(q, t, t->value, row, err));
    return decide_pair(q, t, NULL, err);
}

static onq_code decide_own(oq_qdq *q, onq_error *err) {
    for (size_t i = 0; i < q->order.n; i++) {
        if (q->order.v[i] == OQ_NO_TENSOR)
            continue;
        oq_qdq_tensor *t = oq_qdq_at(q, q->order.v[i]);
        if (t->share_from != OQ_NO_TENSOR)
            continue;
        if (t->init != NULL)
            OQ_TRY(decide_weight(q, t, err));
        else if (t->dq_node == OQ_NO_NODE) /* else the input model quantized it already */
            OQ_TRY(decide_activation(q, t, err));
        t->marked = false;
    }
    return ONQ_OK;
}

/* ---- what a reader sees ---- */

/* One number of an initializer that a DequantizeLinear of the input model reads. */
static oq_tensor *scalar_init(const oq_qdq *q, uint32_t tensor) {
    const oq_tensor *t = tensor != OQ_NO_TENSOR ? oq_qdq_at(q, tensor)->init : NULL;
    if (t == NULL || t->dims.n > 1 || (t->dims.n == 1 && t->dims.v[0] != 1))
        return NULL;
    return oq_qdq_at(q, tensor)->init;
}

/* Fills t->value from the DequantizeLinear of the input model that makes the tensor, if its
 * parameters are one number each; false when it has none. */
static bool dq_value(oq_qdq *q, oq_qdq_tensor *t) {
    if (t->dq_node == OQ_NO_NODE)
        return false;
    const uint32_t scale_t = oq_qdq_input(q, t->dq_node, 1);
    const uint32_t zero_t = oq_qdq_input(q, t->dq_node, 2);
    oq_tensor *scale = scalar_init(q, scale_t), *zero = scalar_init(q, zero_t);
    oq_qdq_value *v = OQ_NEW(&q->model->arena, oq_qdq_value);
    int32_t *z = OQ_NEW(&q->model->arena, int32_t);
    float *s;
    int64_t *i;
    if (scale == NULL || zero == NULL || v == NULL || z == NULL ||
        oq_qtype_find((oq_dtype)zero->data_type.v) == NULL ||
        oq_tensor_floats(q->model, scale, &q->model->arena, &s, NULL, NULL) != ONQ_OK ||
        oq_tensor_i64s(q->model, zero, q->arena, &i, NULL, NULL) != ONQ_OK)
        return false;
    *z = (int32_t)i[0];
    *v = (oq_qdq_value){.scale_name = scale->name,
                        .zero_name = zero->name,
                        .type = (oq_dtype)zero->data_type.v,
                        .real = (oq_dtype)scale->data_type.v,
                        .scale = s,
                        .zero = z,
                        .n = 1};
    t->value = v;
    return true;
}

const oq_qdq_value *oq_qdq_value_for(oq_qdq *q, oq_qdq_tensor *t, oq_str node_name) {
    if (t->value == NULL)
        dq_value(q, t);
    if (t->converted == NULL)
        return t->value;
    return oq_str_among(node_name, t->converted_for.v, t->converted_for.n) ? t->converted
                                                                           : t->value;
}

/* ---- tensors that share the parameters of another ---- */

/* The rounds of the reference's loop: in each it goes through what is left, in order, and emits
 * what can be. A tensor's round is its provider's if that comes before it, else one more. 0:
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
               (oq_qdq_at(q, t)->value != NULL || dq_value(q, oq_qdq_at(q, t)))) {
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

static onq_code decide_alone(oq_qdq *q, oq_qdq_tensor *t, onq_error *err);

static onq_code decide_shared(oq_qdq *q, oq_qdq_tensor *t, onq_error *err) {
    oq_qdq_tensor *from = oq_qdq_at(q, t->share_from);
    const oq_qdq_value *v = oq_qdq_value_for(q, from, oq_qdq_node_at(q, t->share_node)->name);
    if (v->n > 1 && !oq_qdq_channels_stay(q, t, v))
        return decide_alone(q, t, err);
    oq_qdq_value *copy = OQ_NEW(&q->model->arena, oq_qdq_value);
    OQ_TRY_ALLOC(copy != NULL, err);
    *copy = *v;
    t->value = copy;
    t->marked = false;
    /* Channels without an axis are along axis 1. */
    const oq_plan_tensor row = {
        .axis = v->n > 1 ? 1 : -1, .same_as = from->name, .why = "same as the input"};
    OQ_TRY(plan_value(q, t, copy, row, err));
    return decide_pair(q, t, v, err);
}

/* What has no provider to share with keeps a pair of its own where its range is known. */
static onq_code decide_alone(oq_qdq *q, oq_qdq_tensor *t, onq_error *err) {
    t->marked = false;
    t->share_from = OQ_NO_TENSOR;
    if (t->dq_node != OQ_NO_NODE || !oq_qdq_has_range(q, t))
        return ONQ_OK;
    return decide_activation(q, t, err);
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

static onq_code decide_all_shared(oq_qdq *q, onq_error *err) {
    uint32_t *round = OQ_NEW_ARRAY(q->arena, uint32_t, q->tensors.n + 1);
    uint32_t *chain = OQ_NEW_ARRAY(q->arena, uint32_t, q->tensors.n + 1);
    turn *left = OQ_NEW_ARRAY(q->arena, turn, q->order.n + 1);
    size_t n = 0;
    OQ_TRY_ALLOC(round != NULL && chain != NULL && left != NULL, err);
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
            OQ_TRY(decide_shared(q, t, err));
        else
            OQ_TRY(decide_alone(q, t, err));
    }
    return ONQ_OK;
}

onq_code oq_qdq_make_steps(oq_qdq *q, onq_error *err) {
    OQ_TRY(decide_own(q, err));
    OQ_TRY(decide_all_shared(q, err));
    return q->config->quantize_bias ? oq_qdq_decide_biases(q, err) : ONQ_OK;
}
