/*
 * act_param.c — parameters of an activation.
 */
#include "quantize/choose/act_param.h"

#define MAX_MASK (1U << 24) /* elements */

static onq_code one_number(const oq_num *x, const char *what, float *out, onq_error *err) {
    if (!oq_num_has(x) || x->n != 1 || x->v == NULL)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       oq_num_has(x) ? "the calibration has one '%s' for each channel, but "
                                       "activations are quantized per tensor"
                                     : "the calibration has no '%s' for it",
                       what);
    *out = (float)x->v[0];
    return ONQ_OK;
}

onq_code oq_act_param(const oq_qconfig *c, const oq_range *r, const oq_override *o, oq_dtype type,
                      oq_dtype real, oq_qparam *out, onq_error *err) {
    float rmin = 0.0f, rmax = 0.0f;
    if (oq_override_has_params(o)) {
        *out = (oq_qparam){oq_real_round(real, (double)o->scale), (int32_t)o->zero};
        return ONQ_OK;
    }
    if (type == OQ_FLOAT8E4M3FN) {
        float std = 0.0f;
        OQ_TRY(one_number(&r->std, "std", &std, err));
        return oq_qparam_float8(real, std, out, err);
    }
    if (o != NULL && o->has_rmin)
        rmin = (float)o->rmin;
    else
        OQ_TRY(one_number(&r->lowest, "lowest", &rmin, err));
    if (o != NULL && o->has_rmax)
        rmax = (float)o->rmax;
    else
        OQ_TRY(one_number(&r->highest, "highest", &rmax, err));
    if ((isnan(rmin) || isnan(rmax)) && r->nan_from.n > 0)
        return oq_fail(err, ONQ_E_INVALID, "the range holds NaN, first from %.*s",
                       OQ_STR(r->nan_from));
    const oq_qspec spec = {
        .type = type,
        .real = real,
        .symmetric = o != NULL && o->symmetric != OQ_UNSET ? o->symmetric == OQ_YES
                                                           : c->activation_symmetric,
        .reduced = o != NULL && o->reduce_range == OQ_YES,
        .has_min_range = c->has_min_real_range,
        .min_range = c->min_real_range,
    };
    rmin = oq_real_round(real, (double)rmin);
    rmax = oq_real_round(real, (double)rmax);
    OQ_TRY(oq_qparam_compute(&spec, rmin, rmax, out, err));
    if (c->activation_restricted_asymmetric && type == OQ_UINT8 && !spec.symmetric) {
        oq_qparam_snap(&spec, rmin, rmax, out);
        out->scale = oq_real_round(real, (double)out->scale);
    }
    return ONQ_OK;
}

bool oq_act_is_given(const oq_override *o) {
    return oq_override_has_params(o) || (o != NULL && o->has_rmin && o->has_rmax);
}

bool oq_act_is_infinite(const oq_range *r, const oq_override *o) {
    return r != NULL && !oq_act_is_given(o) && oq_range_is_infinite(r);
}

void oq_act_warn_infinite(const onq_env *env, oq_str name, const oq_range *r) {
    if (r != NULL && oq_range_is_empty(r))
        oq_warn(env, "tensor '%.*s' is empty in every sample and stays float", OQ_STR(name));
    else
        oq_warn(env, "tensor '%.*s' holds an infinity and stays float", OQ_STR(name));
}

onq_code oq_const_is_infinite(oq_model *m, oq_tensor *t, const oq_override *o, bool *out,
                              onq_error *err) {
    *out = false;
    uint64_t count = 0;
    if (oq_act_is_given(o) || !oq_dtype_is_float(t->data_type.v))
        return ONQ_OK;
    OQ_TRY(oq_tensor_count(t, &count, err));
    if (count > MAX_MASK)
        return ONQ_OK;
    float *v = NULL;
    size_t n = 0;
    OQ_SCRATCH(scratch, &m->env->alloc);
    OQ_TRY(oq_tensor_floats(m, t, &scratch, &v, &n, err));
    for (size_t i = 0; i < n && !*out; i++)
        *out = isinf(v[i]);
    return ONQ_OK;
}
