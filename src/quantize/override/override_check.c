/*
 * override_check.c — overrides against the model: every tensor exists, and every value fits it.
 */
#include "quantize/override/override_check.h"

static onq_code check_zero(const oq_override *v, oq_dtype type, onq_error *err) {
    const oq_qtype_info *t = oq_qtype_find(type);
    const int64_t low = t->full.min, high = t->full.max;
    if (v->has_zero && (v->zero < low || v->zero > high))
        return oq_fail(err, ONQ_E_CONFIG, "zero_point %lld is outside of %lld to %lld of %s",
                       (long long)v->zero, (long long)low, (long long)high, t->name);
    return ONQ_OK;
}

/* An initializer without quant_type gets the weight or the activation type, depending on its use:
 * where that is not known, either will do. */
static onq_code check_zero_of(const oq_override *v, const oq_override *first,
                              const oq_override_check *m, bool is_init, bool is_weight,
                              onq_error *err) {
    if (first->has_type)
        return check_zero(v, first->type, err);
    if (is_weight)
        return check_zero(v, m->weight_type, err);
    if (check_zero(v, m->activation_type, err) == ONQ_OK)
        return ONQ_OK;
    oq_error_clear(err);
    return check_zero(v, is_init ? m->weight_type : m->activation_type, err);
}

static onq_code check_convert(const oq_override *v, const oq_override_check *m, bool is_init,
                              onq_error *err) {
    const oq_override *c = v->convert;
    if (c == NULL)
        return ONQ_OK;
    if (is_init)
        return oq_fail(err, ONQ_E_CONFIG, "'convert' is not for initializers");
    if (!c->has_type)
        return oq_fail(err, ONQ_E_CONFIG, "'convert' must specify a 'quant_type'");
    if (c->reduce_range != OQ_UNSET)
        return oq_fail(err, ONQ_E_CONFIG, "'reduce_range' is only supported for initializers");
    if (c->type == (v->has_type ? v->type : m->activation_type))
        return oq_fail(err, ONQ_E_CONFIG,
                       "'convert' quant_type must differ from the original quant_type");
    return check_zero(c, c->type, err);
}

static onq_code check_per_tensor(const oq_tensor_override *t, const oq_override_check *m,
                                 bool is_init, onq_error *err) {
    const oq_override *v = &t->channels.v[0];
    if (v->reduce_range != OQ_UNSET && !is_init)
        return oq_fail(err, ONQ_E_CONFIG,
                       "'reduce_range' is only supported for initializers, not for activations");
    const bool is_weight = is_init && oq_reach_tensor(m->reach, t->name)->is_weight;
    OQ_TRY(check_zero_of(v, v, m, is_init, is_weight, err));
    return check_convert(v, m, is_init, err);
}

/* Channel k must say what the first says, where it says anything. */
static onq_code check_channel(const oq_override *first, const oq_override *v, int64_t axis,
                              int64_t rank, onq_error *err) {
    if (v->convert != NULL)
        return oq_fail(err, ONQ_E_CONFIG, "'convert' is not for initializers");
    if (v->has_type && (!first->has_type || v->type != first->type))
        return oq_fail(err, ONQ_E_CONFIG, "quant_type differs from the first channel's");
    if (v->has_axis && (v->axis < 0 ? v->axis + rank : v->axis) != axis)
        return oq_fail(err, ONQ_E_CONFIG, "axis differs from the first channel's");
    if (v->symmetric != OQ_UNSET && v->symmetric != first->symmetric)
        return oq_fail(err, ONQ_E_CONFIG, "symmetric differs from the first channel's");
    if (v->reduce_range != OQ_UNSET && v->reduce_range != first->reduce_range)
        return oq_fail(err, ONQ_E_CONFIG, "reduce_range differs from the first channel's");
    if (first->has_scale != v->has_scale)
        return oq_fail(err, ONQ_E_CONFIG, "scale and zero_point are for all channels or for none");
    if (first->has_rmin && !(v->has_rmin && v->has_rmax))
        return oq_fail(err, ONQ_E_CONFIG,
                       "rmin and rmax must be given for all channels where the first has them");
    return ONQ_OK;
}

static onq_code check_per_channel(const oq_tensor_override *t, const oq_override_check *m,
                                  const oq_tensor *init, onq_error *err) {
    const oq_override *first = &t->channels.v[0];
    if (init == NULL)
        return oq_fail(err, ONQ_E_CONFIG, "overrides per channel are for initializers only");
    if (!first->has_axis)
        return oq_fail(err, ONQ_E_CONFIG,
                       "%zu dictionaries, and 'axis' is missing in the first (no axis, or more "
                       "than one, has that size)",
                       t->channels.n);
    if (first->has_rmin != first->has_rmax)
        return oq_fail(err, ONQ_E_CONFIG,
                       "Must provide both 'rmin' and 'rmax' if one is provided ('%s' is missing)",
                       first->has_rmin ? "rmax" : "rmin");
    const bool is_weight = oq_reach_tensor(m->reach, t->name)->is_weight;
    const int64_t rank = (int64_t)init->dims.n;
    if (first->axis < -rank || first->axis >= rank)
        return oq_fail(err, ONQ_E_CONFIG, "axis %lld is out of range for rank %lld",
                       (long long)first->axis, (long long)rank);
    const int64_t axis = first->axis < 0 ? first->axis + rank : first->axis;
    if (t->channels.n > 1 && (int64_t)t->channels.n != init->dims.v[axis])
        return oq_fail(err, ONQ_E_CONFIG, "%zu channels are given, axis %lld has %lld",
                       t->channels.n, (long long)axis, (long long)init->dims.v[axis]);
    for (size_t i = 0; i < t->channels.n; i++) {
        const oq_override *v = &t->channels.v[i];
        onq_code rc = check_channel(first, v, axis, rank, err);
        if (rc == ONQ_OK)
            rc = check_zero_of(v, first, m, true, is_weight, err);
        if (rc != ONQ_OK)
            return oq_error_in(err, rc, "channel %zu", i);
    }
    return ONQ_OK;
}

static onq_code fail_absent(const oq_tensor_override *t, const oq_override_check *m,
                            onq_error *err) {
    oq_nearest near;
    char hint[700];
    if (oq_reach_tensor(m->reach, t->name)->is_left_alone)
        return oq_fail(err, ONQ_E_CONFIG,
                       "it is inside an If, Loop or Scan (--enable_subgraph quantizes that)");
    oq_nearest_init(&near, t->name);
    oq_reach_offer(m->reach, &near);
    oq_nearest_text(&near, "", hint, sizeof hint);
    return oq_fail(err, ONQ_E_CONFIG, "it is not present in the model%s", hint);
}

static onq_code check_one(const oq_tensor_override *t, const oq_override_check *m, onq_error *err) {
    const oq_reach_entry *entry = oq_reach_tensor(m->reach, t->name);
    const oq_tensor *init = entry->init;
    if (init == NULL && !entry->is_known)
        return fail_absent(t, m, err);
    if (t->channels.n > 1 || t->channels.v[0].has_axis)
        return check_per_channel(t, m, init, err);
    return check_per_tensor(t, m, init != NULL, err);
}

/* The axis of one dictionary for each channel: that of the operator which reads the weight, else
 * the only one of that size. */
static bool find_axis(const oq_tensor_override *t, const oq_reach *reach, const oq_tensor *init,
                      int64_t *axis) {
    const int64_t n = (int64_t)t->channels.n;
    size_t fitting = 0;
    const oq_reach_entry *entry = oq_reach_tensor(reach, t->name);
    *axis = entry->axis;
    if (entry->has_axis && *axis >= 0 && (uint64_t)*axis < init->dims.n && init->dims.v[*axis] == n)
        return true;
    for (size_t i = init->dims.n; i > 0; i--) {
        if (init->dims.v[i - 1] != n)
            continue;
        *axis = (int64_t)(i - 1);
        fitting++;
    }
    return fitting == 1;
}

void oq_overrides_find_axes(oq_overrides *o, const oq_reach *reach) {
    for (size_t i = 0; i < o->all.n; i++) {
        oq_tensor_override *t = o->all.v[i];
        const oq_tensor *init = t->channels.n > 1 ? oq_reach_tensor(reach, t->name)->init : NULL;
        oq_override *first = &t->channels.v[0];
        if (init != NULL && !first->has_axis)
            first->has_axis = find_axis(t, reach, init, &first->axis);
    }
}

onq_code oq_overrides_check(const oq_overrides *o, const oq_override_check *m, onq_error *err) {
    onq_code rc = ONQ_OK;
    size_t n_bad = 0;
    for (size_t i = 0; i < o->all.n; i++) {
        onq_error one = ONQ_ERROR_INIT;
        const onq_code got = check_one(o->all.v[i], m, &one);
        if (got == ONQ_OK)
            continue;
        if (n_bad++ == 0) {
            rc = got;
            oq_error_in(&one, got, "tensor '%.*s'", OQ_STR(o->all.v[i]->name));
            oq_error_give(err, got, &one);
        }
    }
    if (n_bad > 1)
        oq_error_in(err, rc, "%zu overrides are wrong; the first", n_bad);
    return rc;
}
