/*
 * qoperator_value.c — what tensors become: questions and verbs of the QLinear and integer rules.
 */
#include "quantize/qoperator/qo_state.h"

/* ---- questions and words of rules ---- */

bool oq_qo_is_static(const oq_qo *q) {
    return q->sh->mode == OQ_QMODE_QLINEAR;
}

const oq_qconfig *oq_qo_config(const oq_qo *q) {
    return q->sh->job.run->config;
}

const oq_given *oq_qo_given(const oq_qo *q) {
    return q->sh->job.run->given;
}

oq_model *oq_qo_model(const oq_qo *q) {
    return q->sh->job.model;
}

oq_arena *oq_qo_arena(const oq_qo *q) {
    return &q->sh->job.model->arena;
}

oq_fresh *oq_qo_names(oq_qo *q) {
    return &q->sh->names;
}

int64_t oq_qo_opset(const oq_qo *q) {
    return q->sh->opset;
}

const oq_index *oq_qo_index(const oq_qo *q) {
    return &q->index;
}

size_t oq_qo_rank(const oq_qo *q, oq_str name) {
    oq_tensor_info info;
    (void)oq_shapes_tensor(q->sh->plain, q->parent != NULL ? q->graph : NULL, name, &info);
    return info.rank;
}

oq_kernel_need oq_qo_kernel_need(const oq_qo *q, const oq_node *n) {
    const oq_forms_shapes shapes = {q->sh->plain, q->parent != NULL ? q->graph : NULL,
                                    q->sh->opset};
    return oq_forms_kernel_need(n, &shapes, n->input.v[0]);
}

const oq_range *oq_qo_range(const oq_qo *q, oq_str name) {
    return oq_ranges_find(q->sh->job.ranges, name);
}

const oq_tensor_override *oq_qo_override(const oq_qo *q, oq_str name) {
    return oq_overrides_find(q->sh->job.overrides, name);
}

void oq_qo_say(oq_qo *q, const char *why) {
    q->why = why;
}

void oq_qo_say_removed(oq_qo *q) {
    q->removed = true;
}

onq_code oq_qo_quantize_later(oq_qo *q, oq_tensor *t, oq_tensor *made, const oq_qo_value *like,
                              onq_error *err) {
    const oq_qo_pad pad = {t, made, like};
    return OQ_PUSH(q->sh->arena, &q->sh->pads, pad) ? ONQ_OK : oq_fail_nomem(err);
}

const oq_qo_how oq_qo_as_activation = {.axis = -1};

/* ---- questions ---- */

oq_tensor *oq_qo_init(const oq_qo *q, oq_str name) {
    const uint32_t i = oq_map_find(&q->inits, name);
    return i != OQ_MAP_NONE ? q->all_inits.v[i] : NULL;
}

oq_tensor *oq_qo_init_in_path(const oq_qo *q, oq_str name) {
    oq_tensor *t;
    do
        t = oq_qo_init(q, name);
    while (t == NULL && !oq_map_has(&q->tensors, name) && (q = q->parent) != NULL);
    return t;
}

oq_qo_value *oq_qo_value_of(const oq_qo *q, oq_str name) {
    const uint32_t i = oq_map_find(&q->values, name);
    return i != OQ_MAP_NONE ? q->all_values.v[i] : NULL;
}

oq_qo_value *oq_qo_value_in_path(const oq_qo *q, oq_str name) {
    oq_qo_value *v;
    do
        v = oq_qo_value_of(q, name);
    while (v == NULL && (q = q->parent) != NULL);
    return v;
}

bool oq_qo_is_real(const oq_qo *q, int32_t type) {
    return type == OQ_FLOAT || type == OQ_FLOAT16 || (type == OQ_BFLOAT16 && q->sh->casts);
}

bool oq_qo_is_float_weight(const oq_qo *q, oq_str name) {
    const oq_tensor *t = oq_qo_init_in_path(q, name);
    return t != NULL && oq_qo_is_real(q, t->data_type.v);
}

bool oq_qo_is_float(const oq_qo *q, oq_str name) {
    const oq_tensor *t = oq_qo_init_in_path(q, name);
    if (t != NULL)
        return oq_qo_is_real(q, t->data_type.v);
    return oq_qo_is_real(q, oq_shapes_elem_type(q->sh->plain, q->graph, name));
}

/* What can be known of types, the operators of com.microsoft included. */
static onq_code infer_all(const oq_qo *q, onq_error *err) {
    const oq_shape_options all = {.symbolic = true};
    return q->sh->full != NULL ? ONQ_OK
                               : oq_shapes_infer(q->sh->job.model, &all, &q->sh->full, err);
}

onq_code oq_qo_type(oq_qo *q, oq_str name, int32_t *out, onq_error *err) {
    const oq_tensor *t = oq_qo_init_in_path(q, name);
    *out = t != NULL ? t->data_type.v : oq_shapes_elem_type(q->sh->plain, q->graph, name);
    if (*out == 0)
        *out = oq_qo_config(q)->default_tensor_type;
    if (*out < 0)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "the type of '%.*s' cannot be found (give it in DefaultTensorType)",
                       OQ_STR(name));
    if (*out != 0)
        return ONQ_OK;
    OQ_TRY(infer_all(q, err));
    *out = oq_shapes_elem_type(q->sh->full, q->graph, name);
    return ONQ_OK;
}

static const oq_override *override_of(const oq_qo *q, oq_str name) {
    return oq_overrides_tensor(q->sh->job.overrides, name);
}

/* Remembers that a rule asked, so that the plan has a row although nothing may come of it. */
static bool note_asked(const oq_qo *q, oq_str name) {
    oq_qo_shared *sh = q->sh;
    if (!oq_map_has(&sh->asked_map, name) &&
        (!oq_map_put(&sh->asked_map, name, 0) || !OQ_PUSH(sh->arena, &sh->asked, name)))
        sh->names.failed = true;
    return true;
}

bool oq_qo_has_params(const oq_qo *q, oq_str name) {
    const oq_given *given = oq_qo_given(q);
    if (given != NULL) {
        const oq_plan_tensor *row = oq_given_activation(given, name, false);
        return row != NULL && !row->computed && note_asked(q, name);
    }
    const oq_range *r = q->sh->job.ranges != NULL ? oq_ranges_find(q->sh->job.ranges, name) : NULL;
    return r != NULL && !oq_act_is_infinite(r, override_of(q, name)) && note_asked(q, name);
}

/* Reports once that the tensor stays float because of an infinity. */
static void tell_infinite(oq_qo *q, oq_str name, const oq_range *r) {
    if (oq_map_has(&q->sh->infinite, name) || !oq_map_put(&q->sh->infinite, name, 0))
        return;
    oq_act_warn_infinite(q->sh->job.model->env, name, r);
}

static bool has_infinite_range(oq_qo *q, oq_str name) {
    const oq_ranges *ranges = q->sh->job.ranges;
    const oq_range *const r = ranges != NULL ? oq_ranges_find(ranges, name) : NULL;
    const bool found = oq_act_is_infinite(r, override_of(q, name));
    if (found)
        tell_infinite(q, name, r);
    return found;
}

static bool is_infinite(oq_qo *q, oq_tensor *t) {
    bool found = false;
    const onq_code rc =
        oq_const_is_infinite(q->sh->job.model, t, override_of(q, t->name), &found, NULL);
    if (rc == ONQ_OK && found)
        tell_infinite(q, t->name, NULL);
    return rc == ONQ_OK && found;
}

const char *oq_qo_why_no_params(oq_qo *q, const oq_node *n) {
    for (size_t i = 0; i < n->input.n; i++) {
        oq_tensor *t = oq_qo_init_in_path(q, n->input.v[i]);
        if (t != NULL && is_infinite(q, t))
            return "a constant input holds an infinity";
    }
    return has_infinite_range(q, n->output.v[0]) ? "its output holds an infinity"
                                                 : "no range for the output";
}

/* The graph, this one or one around it, whose tensor `name` is; NULL: nobody's. */
static oq_qo *owner_of(oq_qo *q, oq_str name) {
    while (oq_qo_init(q, name) == NULL && !oq_map_has(&q->tensors, name))
        if ((q = q->parent) == NULL)
            return NULL;
    return q;
}

/* What an inner graph finds of a tensor around it. A copy of a quantized tensor is that tensor:
 * quantized anew it would be a DequantizeLinear and a QuantizeLinear, which ONNX Runtime cannot
 * remove where an inner graph reads the second (it ends the process). */
static oq_qo_value *value_around(const oq_qo *q, const oq_qo *owner, oq_str name) {
    oq_qo_value *v = oq_qo_value_of(owner, name);
    while (v == NULL && owner != q && oq_qo_is_static(q)) {
        const oq_node *n = oq_index_producer(&owner->index, name);
        if (!oq_node_is(n, "Identity") && !oq_node_is(n, "Dropout"))
            return NULL;
        name = oq_node_input(n, 0);
        v = oq_qo_value_of(owner, name);
    }
    return v;
}

/* True if the node would get a float16 scale, which it does not take. */
static bool is_refused(const oq_qo *q, const oq_node *n, int32_t type) {
    return oq_qo_is_static(q) && oq_qo_scale_type(q, type) == OQ_FLOAT16 &&
           !oq_qo_takes_half(q->sh, n->op_type);
}

static const char not_planned[] = "an input has no row in the plan";

/* False if a plan was read and has no row for the tensor. */
static bool is_planned(const oq_qo *q, oq_str name, oq_plan_role role) {
    const oq_given *given = oq_qo_given(q);
    return given == NULL || oq_given_row(given, name, role) != OQ_MAP_NONE;
}

bool oq_qo_can(oq_qo *q, const oq_node *n, size_t slot, const oq_qo_how *how) {
    const oq_str name = oq_node_input(n, slot);
    assert(q != NULL);
    if (name.n == 0)
        return true;
    oq_qo *owner = owner_of(q, name);
    oq_tensor *init = owner != NULL ? oq_qo_init(owner, name) : NULL;
    const oq_qo_value *there = oq_qo_value_of(q, name);
    if (there == NULL && owner != NULL)
        there = value_around(q, owner, name);
    q->why = NULL;
    if (there != NULL) {
        if (is_refused(q, n, (int32_t)there->real))
            q->why = OQ_WHY_HALF;
    } else if (owner == NULL) {
        q->why = "an input is not known here";
    } else if (init != NULL) {
        const int32_t type = init->data_type.v;
        if (!oq_qo_is_real(q, type))
            q->why = "a constant input is not float";
        else if (is_refused(q, n, type))
            q->why = OQ_WHY_HALF;
        else if (!is_planned(q, name, how->is_weight ? OQ_ROLE_WEIGHT : OQ_ROLE_ACTIVATION))
            q->why = not_planned;
        else if (!how->is_weight && is_infinite(q, init))
            q->why = "a constant input holds an infinity";
    } else if (oq_qo_is_static(q)) {
        if (!oq_qo_has_params(q, name))
            q->why = has_infinite_range(q, name) ? "an input holds an infinity"
                                                 : "no range for an input";
        else if (is_refused(q, n, oq_shapes_elem_type(q->sh->plain, owner->graph, name)))
            q->why = OQ_WHY_HALF;
    } else if (!oq_qo_has_params(q, name)) {
        int32_t type = oq_shapes_elem_type(q->sh->plain, owner->graph, name);
        if (type == 0 && infer_all(q, NULL) == ONQ_OK)
            type = oq_shapes_elem_type(q->sh->full, owner->graph, name);
        if (!is_planned(q, name, OQ_ROLE_ACTIVATION))
            q->why = not_planned;
        else if (type != 0 && type != OQ_FLOAT && !q->sh->casts)
            q->why = OQ_WHY_HALF;
        else if (q->sh->opset < 11)
            q->why = "DynamicQuantizeLinear came with opset 11";
    }
    return q->why == NULL;
}

/* ---- values ---- */

static onq_code add_value(oq_qo *q, oq_str name, oq_qo_value *v, onq_error *err) {
    if (!OQ_PUSH(q->arena, &q->all_values, v) ||
        !oq_map_put(&q->values, name, (uint32_t)(q->all_values.n - 1)))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

onq_code oq_qo_alias(oq_qo *q, oq_str name, oq_qo_value *v, onq_error *err) {
    return add_value(q, name, v, err);
}

onq_code oq_qo_add_init(oq_qo *q, oq_tensor *t, onq_error *err) {
    OQ_TRY_ALLOC(t != NULL, err);
    if (oq_map_has(&q->inits, t->name))
        return ONQ_OK;
    if (!OQ_PUSH(q->arena, &q->all_inits, t) ||
        !oq_map_put(&q->inits, t->name, (uint32_t)(q->all_inits.n - 1)) ||
        !OQ_PUSH(q->arena, &q->new_inits, t))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

/* The scalar initializers of a value's parameters. */
static onq_code add_params(oq_qo *q, oq_qo_value *v, onq_error *err) {
    v->scale = oq_fresh_tensor(&q->sh->names, v->name, "_scale");
    v->zero = oq_fresh_tensor(&q->sh->names, v->name, "_zero_point");
    OQ_TRY_ALLOC(v->scale.p != NULL && v->zero.p != NULL, err);
    oq_tensor *zero = oq_tensor_new(oq_qo_arena(q), v->zero, v->type, NULL, 0);
    oq_tensor *scale = oq_tensor_new(oq_qo_arena(q), v->scale, v->real, NULL, 0);
    OQ_TRY_ALLOC(zero != NULL && scale != NULL, err);
    if (oq_qtype_find(v->type) != NULL && oq_qtype_find(v->type)->is_float)
        OQ_TRY(oq_tensor_set_typed_f(oq_qo_arena(q), zero, &(double){v->param.zero_point}, 1, err));
    else
        OQ_TRY(
            oq_tensor_set_typed_i(oq_qo_arena(q), zero, &(int64_t){v->param.zero_point}, 1, err));
    OQ_TRY(oq_tensor_set_typed_f(oq_qo_arena(q), scale, &(double){(double)v->param.scale}, 1, err));
    OQ_TRY(oq_qo_add_init(q, zero, err));
    return oq_qo_add_init(q, scale, err);
}

onq_code oq_qo_check_type(oq_str name, oq_dtype type, onq_error *err) {
    if (!oq_qtype_is_16_or_4bit(type))
        return ONQ_OK;
    return oq_fail(err, ONQ_E_CONFIG,
                   "tensor '%.*s': --quant_format qoperator takes 8-bit integers only, and its "
                   "quant_type is %s (qdq takes other types)",
                   OQ_STR(name), oq_qtype_name(type));
}

/* Parameters of an activation by a plan that was read. */
static onq_code planned_params(const oq_qo *q, oq_qo_value *v, onq_error *err) {
    const oq_given *given = oq_qo_given(q);
    const oq_plan_tensor *row = oq_given_activation(given, v->name, false);
    if (row == NULL || row->scale == NULL)
        return oq_fail(err, ONQ_E_CONFIG, "%s: no parameters for tensor '%.*s'", given->path,
                       OQ_STR(v->name));
    OQ_TRY(oq_qo_check_type(v->name, row->type, err));
    v->type = row->type;
    v->real = oq_qo_scale_type(q, oq_shapes_elem_type(q->sh->plain, q->graph, v->name));
    v->has_param = true;
    v->param = (oq_qparam){oq_real_round(v->real, (double)row->scale[0]), row->zero[0]};
    v->why = "the plan";
    return ONQ_OK;
}

/* A row of the plan for a tensor whose parameters are known now. */
static onq_code plan_value(const oq_qo *q, const oq_qo_value *v, oq_str same_as, onq_error *err) {
    const oq_plan_tensor row = {.name = v->name,
                                .type = v->type,
                                .axis = -1,
                                .same_as = same_as,
                                .computed = !v->has_param && same_as.n == 0,
                                .why = v->why};
    oq_plan *plan = q->sh->job.plan;
    if (!oq_map_put(&q->sh->asked_map, v->name, 1)) /* it has its row */
        return oq_fail_nomem(err);
    const bool ok = v->has_param
                        ? oq_plan_add_scalar(plan, row, v->param.scale, v->param.zero_point)
                        : oq_plan_add_tensor(plan, row);
    return ok ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_qo_plan_rest(const oq_qo_shared *sh, onq_error *err) {
    for (size_t i = 0; i < sh->asked.n; i++) {
        const oq_plan_tensor row = {
            .name = sh->asked.v[i], .axis = -1, .why = "a rule looked at it and left it"};
        if (oq_map_find(&sh->asked_map, row.name) == 0 && !oq_plan_add_tensor(sh->job.plan, row))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* Parameters of an activation by calibration, overrides counted. */
static onq_code activation_params(const oq_qo *q, oq_qo_value *v, onq_error *err) {
    const oq_qo_job *job = &q->sh->job;
    const oq_override *o = override_of(q, v->name);
    v->why = oq_override_has_params(o) ? "override" : "calibration";
    if (job->run->given != NULL)
        return planned_params(q, v, err);
    const oq_range *r = oq_ranges_find(job->ranges, v->name);
    v->type = o != NULL && o->has_type ? o->type : job->run->config->activation_type;
    OQ_TRY(oq_qo_check_type(v->name, v->type, err));
    v->real = oq_qo_scale_type(q, (int32_t)r->lowest.type);
    v->has_param = true;
    OQ_TRY_IN(oq_act_param(job->run->config, r, o, v->type, v->real, &v->param, err), err,
              "tensor '%.*s' (exclude its nodes, or override it)", OQ_STR(v->name));
    return ONQ_OK;
}

/* The scale that an activation has, or will have; 0: it is not known yet. */
static float scale_of(const oq_qo *q, oq_str name) {
    const oq_qo_value *there = oq_qo_value_in_path(q, name);
    oq_qo_value v = {.name = name};
    if (there != NULL)
        return there->has_param ? there->param.scale : 0.0f;
    if (!oq_qo_has_params(q, name) || activation_params(q, &v, NULL) != ONQ_OK)
        return 0.0f;
    return v.param.scale;
}

/* True if the bias of a computed weight, whose scale cannot be raised, exceeds int32. */
static bool exceeds_int32(const oq_qo *q, const oq_node *n, oq_tensor *bias, float factor) {
    const double scale =
        (double)scale_of(q, n->input.v[0]) * (double)scale_of(q, n->input.v[1]) / (double)factor;
    return scale != 0.0 && oq_bias_exceeds(q->sh->job.model, bias, fabs(scale));
}

bool oq_qo_can_bias(oq_qo *q, const oq_node *n, float factor) {
    oq_tensor *b = oq_qo_init_in_path(q, n->input.v[2]);
    const bool computed = oq_qo_init_in_path(q, n->input.v[1]) == NULL;
    q->why = NULL;
    if (b == NULL || !oq_qo_is_real(q, b->data_type.v))
        q->why = "its bias is not a float constant";
    else if (is_infinite(q, b))
        q->why = "its bias holds an infinity";
    else if (computed && !oq_qo_has_params(q, n->input.v[1]))
        q->why = "its weight has no scale before the model runs";
    else if (computed && exceeds_int32(q, n, b, factor))
        q->why = OQ_WHY_BIAS;
    return q->why == NULL;
}

static onq_code new_value(oq_qo *q, oq_str name, const char *suffix, oq_qo_value **out,
                          onq_error *err) {
    oq_qo_value *v = OQ_NEW(q->arena, oq_qo_value);
    OQ_TRY_ALLOC(v != NULL, err);
    v->name = name;
    v->q = oq_fresh_tensor(&q->sh->names, name, suffix);
    OQ_TRY_ALLOC(v->q.p != NULL, err);
    OQ_TRY(oq_qo_elem(q, name, &v->elem, err));
    *out = v;
    return add_value(q, name, v, err);
}

onq_code oq_qo_output(oq_qo *q, const oq_node *n, oq_qo_value **out, onq_error *err) {
    assert(oq_qo_has_params(q, n->output.v[0]));
    OQ_TRY(new_value(q, n->output.v[0], "_quantized", out, err));
    OQ_TRY(activation_params(q, *out, err));
    OQ_TRY(plan_value(q, *out, (oq_str){0}, err));
    return add_params(q, *out, err);
}

onq_code oq_qo_output_fixed(oq_qo *q, const oq_node *n, float scale, int32_t zero,
                            oq_qo_value **out, onq_error *err) {
    OQ_TRY(new_value(q, n->output.v[0], "_quantized", out, err));
    OQ_TRY(activation_params(q, *out, err));
    (*out)->type = oq_qo_config(q)->activation_type;
    (*out)->param = (oq_qparam){scale, zero};
    (*out)->why = "fixed by the operator";
    OQ_TRY(plan_value(q, *out, (oq_str){0}, err));
    return add_params(q, *out, err);
}

onq_code oq_qo_output_like(oq_qo *q, oq_str name, const char *suffix, const oq_qo_value *like,
                           oq_qo_value **out, onq_error *err) {
    assert(like->scale.p != NULL && like->zero.p != NULL);
    OQ_TRY(new_value(q, name, suffix, out, err));
    oq_qo_value *v = *out;
    v->scale = like->scale;
    v->zero = like->zero;
    v->weight = like->weight;
    v->has_param = like->has_param;
    v->param = like->param;
    v->type = like->type;
    v->real = like->real;
    v->elem = like->elem;
    v->why = "same as the input";
    return plan_value(q, v, like->name, err);
}

/* ---- inputs ---- */

/* An activation is quantized by a new node. */
static onq_code quantize_activation(oq_qo *q, oq_str name, oq_qo_value **out, onq_error *err) {
    oq_arena *a = oq_qo_arena(q);
    OQ_TRY(new_value(q, name, "_quantized", out, err));
    oq_qo_value *v = *out;
    const bool known = oq_qo_is_static(q) || oq_qo_has_params(q, name);
    if (known) {
        OQ_TRY(activation_params(q, v, err));
        OQ_TRY(plan_value(q, v, (oq_str){0}, err));
        OQ_TRY(add_params(q, v, err));
    } else {
        v->why = "computed while the model runs";
        v->type = OQ_UINT8;
        v->real = OQ_FLOAT;
        v->scale = oq_fresh_tensor(&q->sh->names, name, "_scale");
        v->zero = oq_fresh_tensor(&q->sh->names, name, "_zero_point");
        OQ_TRY_ALLOC(v->scale.p != NULL && v->zero.p != NULL, err);
        OQ_TRY(plan_value(q, v, (oq_str){0}, err));
    }
    const oq_str node_name = oq_fresh_node(&q->sh->names, name, "_QuantizeLinear");
    oq_str real = {0};
    OQ_TRY(oq_qo_wide(q, name, &real, err));
    const oq_str in[3] = {real, v->scale, v->zero}, made[3] = {v->q, v->scale, v->zero};
    oq_node *n = known ? oq_node_make(a, OQ_QUANTIZE_LINEAR, node_name, in, 3, made, 1)
                       : oq_node_make(a, OQ_DYNAMIC_QUANTIZE_LINEAR, node_name, in, 1, made, 3);
    return oq_qo_emit(q, n, err);
}

/* True if the quantized form of a tensor can be used as it is. An int32 bias cannot, nor channels
 * along another axis, nor a weight's type among activations. */
static bool fits(const oq_qo *q, const oq_qo_value *v, const oq_qo_how *how) {
    if (v == NULL || v->bias_weight != NULL)
        return false;
    if (v->weight == NULL || oq_qo_config(q)->trained)
        return true;
    if (oq_qo_is_static(q) && !how->is_weight && how->type == 0 && v->weight->is_weight &&
        v->type != oq_qo_config(q)->activation_type)
        return false;
    if (!v->has_axis)
        return true;
    const bool channels = how->channels || (oq_qo_config(q)->per_channel && how->per_channel);
    const int64_t rank = (int64_t)v->weight->init->dims.n;
    return channels && (v->axis < 0 ? v->axis + rank : v->axis) ==
                           (how->axis < 0 ? how->axis + rank : how->axis);
}

onq_code oq_qo_input(oq_qo *q, const oq_node *n, size_t slot, const oq_qo_how *how,
                     oq_qo_value **out, onq_error *err) {
    const oq_str name = oq_node_input(n, slot);
    if (name.n == 0) {
        *out = OQ_NEW(q->arena, oq_qo_value);
        OQ_TRY_ALLOC(*out != NULL, err);
        (*out)->name = (*out)->q = (*out)->scale = (*out)->zero = OQ_S("");
        return ONQ_OK;
    }
    *out = oq_qo_value_of(q, name);
    if (fits(q, *out, how))
        return ONQ_OK;
    oq_qo *owner = owner_of(q, name);
    if (owner == NULL)
        return oq_fail(err, ONQ_E_INTERNAL, "tensor '%.*s' is not known", OQ_STR(name));
    *out = value_around(q, owner, name);
    if (fits(q, *out, how))
        return ONQ_OK;
    oq_tensor *t = oq_qo_init(owner, name);
    if (t != NULL)
        return oq_qo_register_weight(q, owner, t, how, out, err);
    return quantize_activation(owner, name, out, err);
}

onq_code oq_qo_can_all(oq_qo *q, const oq_node *n, size_t n_in, bool *out, onq_error *err) {
    const char *why = NULL;
    size_t good = 0;
    while (good < n_in && oq_qo_can(q, n, good, &oq_qo_as_activation))
        good++;
    if (good < n_in)
        why = q->why;
    else if (!oq_qo_has_params(q, n->output.v[0]))
        why = oq_qo_why_no_params(q, n);
    const size_t first = why != NULL && !oq_qo_config(q)->trained ? good : 0;
    for (size_t i = 0; i < first; i++) {
        oq_qo_value *v;
        if (oq_qo_init(q, n->input.v[i]) != NULL)
            OQ_TRY(oq_qo_input(q, n, i, &oq_qo_as_activation, &v, err));
    }
    q->why = why;
    *out = why == NULL;
    return ONQ_OK;
}
