/*
 * qdq_bias.c — deciding about biases: int32 with scale = input scale x weight scale (float 8: float
 * with a Cast), or left float.
 */
#include "quantize/qdq/qdq_state.h"

#include "onnx/tensor.h"
#include "quantize/choose/act_param.h"
#include "quantize/number/bias.h"

/* The scales that the bias's node sees on a tensor; v == NULL when it is not quantized. */
static onq_code scales_of(oq_qdq *q, uint32_t tensor, uint32_t node, oq_reals *out,
                          onq_error *err) {
    *out = (oq_reals){NULL, 0, OQ_FLOAT};
    if (tensor == OQ_NO_TENSOR)
        return ONQ_OK;
    oq_qdq_tensor *t = oq_qdq_at(q, tensor);
    const oq_qdq_value *v = oq_qdq_value_for(q, t, oq_qdq_node_at(q, node)->name);
    if (v != NULL) {
        *out = (oq_reals){v->scale, v->n, v->real};
        return ONQ_OK;
    }
    if (t->dq_node == OQ_NO_NODE)
        return ONQ_OK;
    /* Quantized in the input model, per channel. */
    const uint32_t scale = oq_qdq_input(q, t->dq_node, 1);
    oq_tensor *init = scale != OQ_NO_TENSOR ? oq_qdq_at(q, scale)->init : NULL;
    float *numbers;
    size_t n;
    if (init == NULL || (init->data_type.v != OQ_FLOAT && init->data_type.v != OQ_FLOAT16))
        return ONQ_OK;
    OQ_TRY(oq_tensor_floats(q->model, init, q->arena, &numbers, &n, err));
    *out = (oq_reals){numbers, n, (oq_dtype)init->data_type.v};
    return ONQ_OK;
}

static onq_code leave_float(oq_qdq *q, const oq_qdq_tensor *t, const char *why, onq_error *err) {
    const oq_plan_tensor row = {.name = t->name, .role = OQ_ROLE_BIAS, .axis = -1, .why = why};
    oq_log(q->model->env, ONQ_LOG_INFO, "bias '%.*s' stays float: %s", OQ_STR(t->name), why);
    return oq_plan_add_tensor(q->plan, row) ? ONQ_OK : oq_fail_nomem(err);
}

/* The values of one bias while it is quantized. */
typedef struct parts {
    oq_reals bias, input, weight, scales;
    float *scale; /* the values of the scales */
    int32_t *ints;
} parts;

/* The scales of the bias; *fit: its type, which may be float16, can hold them. */
static onq_code compute_scales(oq_qdq *q, parts *p, bool *fit, onq_error *err) {
    float *scales = OQ_NEW_ARRAY(&q->model->arena, float, p->weight.n + 1);
    oq_dtype real;
    OQ_TRY_ALLOC(scales != NULL, err);
    oq_bias_scales(p->input, p->weight, scales, &real);
    *fit = true;
    for (uint64_t i = 0; i < p->weight.n; i++) {
        const float stored = oq_real_round(p->bias.real, (double)scales[i]);
        *fit = *fit && stored > 0.0f && isfinite(stored);
    }
    p->scale = scales;
    p->scales = (oq_reals){scales, p->weight.n, real};
    return ONQ_OK;
}

static onq_code compute(oq_qdq *q, oq_qdq_tensor *t, parts *p, onq_error *err) {
    p->ints = OQ_NEW_ARRAY(q->arena, int32_t, p->bias.n + 1);
    bool nan;
    OQ_TRY_ALLOC(p->ints != NULL, err);
    if (oq_bias_quantize(p->bias, p->scales, p->ints, &nan) > 0) {
        q->plan->n_bias_saturated++;
        oq_bias_warn_clipped(q->model->env, t->name);
    }
    if (nan)
        return oq_fail(err, ONQ_E_INVALID, "bias '%.*s' holds NaN or infinity (exclude its node)",
                       OQ_STR(t->name));
    /* The scale has the bias's own type. */
    p->scales.real = p->bias.real;
    for (uint64_t i = 0; i < p->weight.n; i++)
        p->scale[i] = oq_real_round(p->bias.real, (double)p->scale[i]);
    return ONQ_OK;
}

/* The integers of the bias, and its scales in its own type. */
static onq_code decide_int32(oq_qdq *q, oq_qdq_tensor *t, parts *p, onq_error *err) {
    oq_qdq_value *v = OQ_NEW(&q->model->arena, oq_qdq_value);
    OQ_TRY_ALLOC(v != NULL, err);
    OQ_TRY(compute(q, t, p, err));
    *v = (oq_qdq_value){
        .type = OQ_INT32, .real = p->bias.real, .scale = p->scales.v, .n = p->scales.n};
    t->value = v;
    const oq_plan_tensor row = {.name = t->name,
                                .role = OQ_ROLE_BIAS,
                                .type = OQ_INT32,
                                .axis = v->n > 1 ? (int64_t)t->init->dims.n - 1 : -1,
                                .scale = v->scale,
                                .n = v->n,
                                .why = "input scale x weight scale"};
    const oq_qdq_step step = {OQ_QDQ_STEP_BIAS, t, NULL, p->ints, p->bias.n};
    OQ_TRY_ALLOC(oq_plan_add_tensor(q->plan, row), err);
    return oq_qdq_add_step(q, step, err);
}

static onq_code decide_cast(oq_qdq *q, oq_qdq_tensor *t, onq_error *err) {
    const oq_plan_tensor row = {
        .name = t->name, .role = OQ_ROLE_BIAS, .axis = -1, .why = "float 8: the bias is cast"};
    const oq_qdq_step step = {.what = OQ_QDQ_STEP_CAST, .tensor = t};
    OQ_TRY_ALLOC(oq_plan_add_tensor(q->plan, row), err);
    return oq_qdq_add_step(q, step, err);
}

static onq_code decide_bias(oq_qdq *q, const oq_qdq_bias *b, onq_error *err) {
    oq_qdq_tensor *t = oq_qdq_at(q, b->tensor);
    parts p = {0};
    float *numbers;
    size_t n;
    if (t->value != NULL) /* quantized as a weight of another node */
        return ONQ_OK;
    if (q->run->given != NULL && oq_given_row(q->run->given, t->name, OQ_ROLE_BIAS) == OQ_MAP_NONE)
        return leave_float(q, t, "not in the plan", err);
    OQ_TRY(scales_of(q, b->weight, b->node, &p.weight, err));
    if (p.weight.v == NULL)
        return leave_float(q, t, "the weight is not quantized", err);
    OQ_TRY(scales_of(q, b->input, b->node, &p.input, err));
    if (p.input.v == NULL || p.input.n != 1)
        return leave_float(q, t, "the input is not quantized", err);
    if (!oq_bias_fits(t->init->dims.v, t->init->dims.n, p.weight.n))
        return leave_float(q, t, "its shape does not hold one value for each channel", err);
    bool infinite;
    OQ_TRY(oq_const_is_infinite(q->model, t->init, NULL, &infinite, err));
    if (infinite) {
        oq_act_warn_infinite(q->model->env, t->name, NULL);
        return leave_float(q, t, "it holds an infinity", err);
    }
    OQ_TRY(oq_tensor_floats(q->model, t->init, q->arena, &numbers, &n, err));
    p.bias = (oq_reals){numbers, n, (oq_dtype)t->init->data_type.v};
    const bool cast = q->config->weight_type == OQ_FLOAT8E4M3FN;
    bool fit = true;
    if (!cast)
        OQ_TRY(compute_scales(q, &p, &fit, err));
    if (!fit) {
        q->plan->tiny_bias = q->plan->n_tiny_biases == 0 ? t->name : q->plan->tiny_bias;
        q->plan->n_tiny_biases++;
        return leave_float(q, t, "its type cannot hold the product of the scales", err);
    }
    t->bias_gone = true;
    return cast ? decide_cast(q, t, err) : decide_int32(q, t, &p, err);
}

onq_code oq_qdq_decide_biases(oq_qdq *q, onq_error *err) {
    for (size_t i = 0; i < q->biases.n; i++)
        OQ_TRY(decide_bias(q, &q->biases.v[i], err));
    return ONQ_OK;
}
