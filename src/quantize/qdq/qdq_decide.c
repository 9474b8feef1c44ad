/*
 * qdq_decide.c — from ranges and weights to scales and zero points.
 *
 * Activations are computed when they are asked for; weights all at once, spread over the workers,
 * because each needs a pass over its values. Then weight scales are raised where an int32 bias
 * needs it.
 */
#include "quantize/qdq/qdq_state.h"

#include "base/pool.h"
#include "quantize/choose/act_param.h"
#include "quantize/number/bias.h"
#include "quantize/number/saturate.h"

/* ---- activations ---- */

bool oq_qdq_has_range(const oq_qdq *q, const oq_qdq_tensor *t) {
    if (q->run->given != NULL)
        return oq_given_activation(q->run->given, t->name, false) != NULL;
    return oq_ranges_find(q->ranges, t->name) != NULL;
}

/* Parameters that a plan has for an activation. */
static void take_planned(const oq_qdq *q, const oq_qdq_tensor *t, bool convert, oq_qdq_act *out,
                         bool *found) {
    const oq_plan_tensor *row = oq_given_activation(q->run->given, t->name, convert);
    *found = row != NULL && row->scale != NULL;
    if (!*found)
        return;
    out->type = row->type;
    out->real = t->elem_type == OQ_FLOAT16 ? OQ_FLOAT16 : OQ_FLOAT;
    out->p = (oq_qparam){oq_real_round(out->real, (double)row->scale[0]), row->zero[0]};
}

const oq_override *oq_qdq_convert(const oq_qdq *q, const oq_qdq_tensor *t) {
    const oq_override *o = oq_overrides_tensor(q->overrides, t->name);
    return o != NULL && oq_qdq_has_range(q, t) ? o->convert : NULL;
}

onq_code oq_qdq_act_params(const oq_qdq *q, const oq_qdq_tensor *t, bool convert, oq_qdq_act *out,
                           bool *found, onq_error *err) {
    if (q->run->given != NULL) {
        take_planned(q, t, convert, out, found);
        return ONQ_OK;
    }
    const oq_range *r = oq_ranges_find(q->ranges, t->name);
    const oq_override *o = oq_overrides_tensor(q->overrides, t->name);
    if (convert)
        o = o->convert;
    *found = r != NULL;
    if (r == NULL)
        return ONQ_OK;
    out->type = o != NULL && o->has_type ? o->type : q->config->activation_type;
    out->real = t->elem_type == OQ_FLOAT16 ? OQ_FLOAT16 : OQ_FLOAT;
    const onq_code rc = oq_act_param(q->config, r, o, out->type, out->real, &out->p, err);
    return rc == ONQ_OK ? rc
                        : oq_error_in(err, rc, "tensor '%.*s' (exclude its nodes, or override it)",
                                      OQ_STR(t->name));
}

/* ---- weights ---- */

static onq_code check_given(const oq_qdq_tensor *t, oq_dtype type, int64_t zero, onq_error *err) {
    const oq_qtype_info *info = oq_qtype_find(type);
    if (zero < info->full.min || zero > info->full.max)
        return oq_fail(
            err, ONQ_E_CONFIG,
            "override of tensor '%.*s': zero_point %lld is outside of %lld to %lld of %s",
            OQ_STR(t->name), (long long)zero, (long long)info->full.min, (long long)info->full.max,
            info->name);
    return ONQ_OK;
}

/* Parameters that the user gave. */
static onq_code take_given(const oq_qdq_tensor *t, const oq_tensor_override *over, oq_qdq_weight *w,
                           onq_error *err) {
    const oq_dtype real = oq_qweight_scale_type(&w->w);
    for (uint64_t i = 0; i < w->params.n; i++) {
        const oq_override *o = oq_override_channel(over, (size_t)i);
        OQ_TRY(check_given(t, w->spec.type, o->zero, err));
        w->params.scale[i] = oq_real_round(real, (double)o->scale);
        w->params.zero[i] = (int32_t)o->zero;
    }
    w->given = true;
    w->why = "override";
    return ONQ_OK;
}

/* Parameters of blocks, of a file of another tool. */
static onq_code take_blocks(const oq_qdq_tensor *t, const oq_override_blocks *blocks,
                            oq_qdq_weight *w, onq_error *err) {
    const oq_dtype real = oq_qweight_scale_type(&w->w);
    if (blocks->n != w->params.n)
        return oq_fail(err, ONQ_E_CONFIG, "weight '%.*s' has %llu scales of blocks and needs %llu",
                       OQ_STR(t->name), (unsigned long long)blocks->n,
                       (unsigned long long)w->params.n);
    for (uint64_t i = 0; i < blocks->n; i++)
        w->params.scale[i] = oq_real_round(real, (double)blocks->scale[i]);
    memcpy(w->params.zero, blocks->zero, (size_t)blocks->n * sizeof *blocks->zero);
    w->given = true;
    w->why = "override";
    return ONQ_OK;
}

static onq_code take_clamps(oq_qdq *q, const oq_tensor_override *over, oq_qdq_weight *w,
                            onq_error *err) {
    if (!oq_override_any_range(over))
        return ONQ_OK;
    w->clamps = OQ_NEW_ARRAY(q->arena, oq_qclamp, w->params.n + 1);
    OQ_TRY_ALLOC(w->clamps != NULL, err);
    for (uint64_t i = 0; i < w->params.n; i++) {
        const oq_override *o = oq_override_channel(over, (size_t)i);
        w->clamps[i] = (oq_qclamp){o->has_rmin, o->has_rmax, o->rmin, o->rmax};
    }
    w->why = "override of the range";
    return ONQ_OK;
}

static oq_plan_role role_of(const oq_qdq_tensor *t) {
    return t->kind == OQ_QDQ_WEIGHT ? OQ_ROLE_WEIGHT : OQ_ROLE_ACTIVATION;
}

/* Everything about the weight as a plan says it. */
static onq_code take_plan(oq_qdq *q, oq_qdq_tensor *t, oq_qdq_weight *w, onq_error *err) {
    const oq_plan_tensor *row = oq_given_weight(q->run->given, t->name, role_of(t));
    if (row == NULL)
        return oq_fail(err, ONQ_E_CONFIG, "%s: no parameters for weight '%.*s'",
                       q->run->given->path, OQ_STR(t->name));
    const oq_qgroup group = row->block > 0   ? OQ_QGROUP_BLOCK
                            : row->axis >= 0 ? OQ_QGROUP_CHANNEL
                                             : OQ_QGROUP_TENSOR;
    OQ_TRY(oq_qweight_init(&w->w, q->model, t->init, group, row->axis, row->block, err));
    OQ_TRY(oq_qparams_init(&w->params, &q->model->arena, w->w.n_params, err));
    if (row->n != w->w.n_params)
        return oq_fail(err, ONQ_E_CONFIG,
                       "%s: weight '%.*s' has %llu scales in the plan and needs %llu",
                       q->run->given->path, OQ_STR(t->name), (unsigned long long)row->n,
                       (unsigned long long)w->w.n_params);
    memcpy(w->params.scale, row->scale, (size_t)row->n * sizeof(float));
    memcpy(w->params.zero, row->zero, (size_t)row->n * sizeof(int32_t));
    w->spec.type = row->type;
    w->given = true;
    w->why = "the plan";
    return ONQ_OK;
}

bool oq_qdq_has_channels(const oq_qdq *q, const oq_qdq_tensor *t) {
    const oq_tensor_override *over = oq_overrides_find(q->overrides, t->name);
    const oq_given *g = q->run->given;
    if (g != NULL) {
        const uint32_t row = oq_given_row(g, t->name, role_of(t));
        return row != OQ_MAP_NONE && g->plan.tensors.v[row].axis >= 0;
    }
    if (over != NULL && oq_override_has_params(&over->channels.v[0]))
        return oq_override_is_channel(over);
    return oq_override_is_channel(over) || t->axis >= 0;
}

static onq_code set_up_weight(oq_qdq *q, oq_qdq_tensor *t, onq_error *err) {
    const oq_qconfig *c = q->config;
    const oq_tensor_override *over = oq_overrides_find(q->overrides, t->name);
    const oq_override *first = over != NULL ? &over->channels.v[0] : NULL;
    const oq_override_blocks *blocks = over != NULL ? over->blocks : NULL;
    const bool given = oq_override_has_params(first);
    const bool is_weight = t->kind == OQ_QDQ_WEIGHT;
    const bool per_channel = oq_qdq_has_channels(q, t);
    const int64_t chosen = first != NULL && first->has_axis ? first->axis : t->axis;
    int64_t axis = per_channel ? chosen : -1;
    oq_qdq_weight *w = OQ_NEW(q->arena, oq_qdq_weight);
    OQ_TRY_ALLOC(w != NULL, err);
    t->weight = w;
    if (q->run->given != NULL)
        return take_plan(q, t, w, err);
    w->why = is_weight ? "weight" : "constant input";

    oq_qgroup group = per_channel ? OQ_QGROUP_CHANNEL : OQ_QGROUP_TENSOR;
    if (blocks != NULL || (is_weight && c->block_size > 0 && !given)) {
        group = OQ_QGROUP_BLOCK;
        axis = per_channel ? axis : 0;
    }
    if (group == OQ_QGROUP_BLOCK && blocks == NULL && t->init->dims.n != 2)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "weight '%.*s' has rank %zu, but blocks need weights of rank 2 (exclude "
                       "the node, or quantize per channel)",
                       OQ_STR(t->name), t->init->dims.n);
    OQ_TRY(oq_qweight_init(&w->w, q->model, t->init, group, axis,
                           blocks != NULL ? blocks->block : c->block_size, err));
    OQ_TRY(oq_qparams_init(&w->params, &q->model->arena, w->w.n_params, err));

    w->spec.type = first != NULL && first->has_type ? first->type
                   : is_weight                      ? c->weight_type
                                                    : c->activation_type;
    const bool symmetric = per_channel || (is_weight ? oq_qconfig_weight_symmetric(c, w->spec.type)
                                                     : c->activation_symmetric);
    w->spec.symmetric =
        first != NULL && first->symmetric != OQ_UNSET ? first->symmetric == OQ_YES : symmetric;
    w->spec.reduced = first != NULL && first->reduce_range != OQ_UNSET
                          ? first->reduce_range == OQ_YES
                          : c->reduce_range;
    w->spec.has_min_range = c->has_min_real_range;
    w->spec.min_range = c->min_real_range;
    if (w->spec.type == OQ_FLOAT8E4M3FN && w->spec.reduced)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "weight '%.*s': reduce_range is not for float 8",
                       OQ_STR(t->name));
    if (blocks != NULL)
        return take_blocks(t, blocks, w, err);
    if (given)
        return take_given(t, over, w, err);
    return over != NULL && group != OQ_QGROUP_BLOCK ? take_clamps(q, over, w, err) : ONQ_OK;
}

typedef struct weights {
    const oq_qdq *q;
    OQ_VEC(oq_qdq_tensor *) list;
} weights;

/* For every product that reads it as its weight. */
static onq_code keep_in_16_bits(const oq_qdq *q, const oq_qdq_tensor *t, onq_error *err) {
    oq_qdq_weight *w = t->weight;
    bool narrowed = false;
    for (size_t i = 0; i < t->uses.n && w->spec.type == OQ_INT8 && w->spec.symmetric; i++) {
        const oq_qdq_node *n = &q->nodes[t->uses.v[i].node];
        if (t->uses.v[i].slot == 1 && n->chosen)
            OQ_TRY(oq_saturate_narrow(n->node, &w->w, &w->params, &q->model->env->alloc, &narrowed,
                                      err));
        if (narrowed)
            w->why = OQ_WHY_NARROWED;
    }
    return ONQ_OK;
}

static onq_code compute_weight(void *ctx, size_t i, unsigned worker, onq_error *err) {
    const weights *all = ctx;
    oq_qdq_weight *w = all->list.v[i]->weight;
    assert(w->params.n == w->w.n_params);
    (void)worker;
    if (w->given)
        return ONQ_OK;
    OQ_TRY(
        oq_qweight_params(&w->w, &w->spec, w->clamps, &all->q->model->env->alloc, &w->params, err));
    return all->q->config->saturation_safe ? keep_in_16_bits(all->q, all->list.v[i], err) : ONQ_OK;
}

static onq_code decide_weights(oq_qdq *q, onq_error *err) {
    weights all = {.q = q};
    for (size_t i = 0; i < q->order.n; i++) {
        if (q->order.v[i] == OQ_NO_TENSOR)
            continue;
        oq_qdq_tensor *t = oq_qdq_at(q, q->order.v[i]);
        if (t->init == NULL)
            continue;
        OQ_TRY(set_up_weight(q, t, err));
        OQ_TRY_ALLOC(OQ_PUSH(q->arena, &all.list, t), err);
    }
    if (all.list.n == 0)
        return ONQ_OK;
    oq_pool *pool;
    OQ_TRY(oq_pool_new(q->model->env, &pool, err));
    const onq_code rc = oq_pool_run(pool, all.list.n, compute_weight, &all, err);
    oq_pool_free(pool);
    return rc;
}

/* ---- weight scales that are too small for an int32 bias ---- */

static bool all_zero(const int32_t *v, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        if (v[i] != 0)
            return false;
    return true;
}

/* The parameters that the bias's node sees on its input: QDQTensorQuantParams.get_for_consumer. */
static onq_code input_params(const oq_qdq *q, const oq_qdq_bias *b, oq_qdq_act *out, bool *found,
                             onq_error *err) {
    const oq_qdq_tensor *t = oq_qdq_at(q, b->input);
    const oq_override *convert = oq_qdq_convert(q, t);
    bool converted = convert != NULL && !convert->has_recv;
    for (size_t i = 0; convert != NULL && i < convert->recv_nodes.n; i++)
        converted |= oq_str_eq(convert->recv_nodes.v[i], oq_qdq_node_at(q, b->node)->name);
    return oq_qdq_act_params(q, t, converted, out, found, err);
}

static onq_code adjust_one(oq_qdq *q, const oq_qdq_bias *b, onq_error *err) {
    if (b->input == OQ_NO_TENSOR || b->weight == OQ_NO_TENSOR || !oq_qdq_at(q, b->input)->marked)
        return ONQ_OK;
    oq_qdq_weight *w = oq_qdq_at(q, b->weight)->weight;
    oq_qdq_act input;
    bool found;
    if (w == NULL || (w->spec.type != OQ_INT8 && w->spec.type != OQ_INT16) ||
        w->w.group == OQ_QGROUP_BLOCK || !all_zero(w->params.zero, w->params.n))
        return ONQ_OK;
    OQ_TRY(input_params(q, b, &input, &found, err));
    oq_tensor *init = oq_qdq_at(q, b->tensor)->init;
    if (!found || !oq_bias_fits(init->dims.v, init->dims.n, w->params.n))
        return ONQ_OK;
    float *numbers;
    size_t n;
    OQ_TRY(oq_tensor_floats(q->model, init, q->arena, &numbers, &n, err));
    const oq_reals bias = {numbers, n, (oq_dtype)init->data_type.v};
    const oq_reals in = {&input.p.scale, 1, input.real};
    if (oq_bias_adjust(bias, in, w->params.scale, w->params.n, oq_qweight_scale_type(&w->w),
                       w->w.group == OQ_QGROUP_CHANNEL) > 0) {
        q->plan->n_weight_adjusted++;
        w->adjusted = true;
        w->why = "scale raised for an int32 bias";
    }
    return ONQ_OK;
}

onq_code oq_qdq_decide(oq_qdq *q, onq_error *err) {
    OQ_TRY(decide_weights(q, err));
    const bool adjust = !q->config->disable_weight_adjust && q->run->given == NULL;
    for (size_t i = 0; adjust && i < q->biases.n; i++)
        OQ_TRY(adjust_one(q, &q->biases.v[i], err));
    return oq_qdq_make_steps(q, err);
}
