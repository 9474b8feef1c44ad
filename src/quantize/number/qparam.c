/*
 * qparam.c — compute_scale_zp and its sisters, bit for bit.
 *
 * The types in the comments are numpy's: where the reference mixes a float32 array with a Python
 * number the result is float32, where it mixes it with a float64 array it is float64.
 */
#include "quantize/number/qparam.h"

#include "base/text/real.h"

/* numpy.std of all finite values of float8e4m3fn, computed there in float32. */
#define FLOAT8E4M3FN_STD 100.057724f

#define FLOAT16_TINY 6.103515625e-05

float oq_real_round(oq_dtype real, double x) {
    if (real == OQ_FLOAT16)
        return oq_f16_to_f32(oq_f64_to_f16(x));
    return (float)x;
}

float oq_real_add(oq_dtype real, float a, float b) {
    const float sum = a + b;
    return real == OQ_FLOAT16 ? oq_f16_to_f32(oq_f32_to_f16(sum)) : sum;
}

float oq_real_mul(oq_dtype real, float a, float b) {
    const float product = a * b;
    return real == OQ_FLOAT16 ? oq_f16_to_f32(oq_f32_to_f16(product)) : product;
}

static double tiny(oq_dtype real) {
    return real == OQ_FLOAT16 ? FLOAT16_TINY : (double)FLT_MIN;
}

/* 0 in the range, then at least min_range wide, then symmetric. */
static void widen(const oq_qspec *spec, float *rmin, float *rmax) {
    if (*rmin > 0.0f)
        *rmin = 0.0f;
    if (*rmax < 0.0f)
        *rmax = 0.0f;
    if (spec->has_min_range) {
        const float least =
            oq_real_add(spec->real, *rmin, oq_real_round(spec->real, spec->min_range));
        if (least > *rmax)
            *rmax = least;
    }
    if (spec->symmetric) {
        const float low = fabsf(*rmin), high = fabsf(*rmax);
        const float most = low > high ? low : high;
        *rmin = -most;
        *rmax = most;
    }
}

static onq_code check_range(float rmin, float rmax, onq_error *err) {
    if (isnan(rmin) || isnan(rmax))
        return oq_fail(err, ONQ_E_INVALID, "the range holds NaN");
    if (isinf(rmin) || isinf(rmax))
        return oq_fail(err, ONQ_E_INVALID, "the range [%g, %g] is not finite", (double)rmin,
                       (double)rmax);
    return ONQ_OK;
}

onq_code oq_qparam_compute(const oq_qspec *spec, float rmin, float rmax, oq_qparam *out,
                           onq_error *err) {
    assert(oq_qtype_find(spec->type) != NULL);
    const oq_qrange q = oq_qtype_range(spec->type, spec->reduced, spec->symmetric);
    const bool has_values = rmin != 0.0f || rmax != 0.0f;
    OQ_TRY(check_range(rmin, rmax, err));
    widen(spec, &rmin, &rmax);

    const double dr = (double)rmax - (double)rmin;
    double scale = dr / ((double)q.max - (double)q.min);
    /* A scale of 1, which the reference takes, would make zeros of values that float16 can
     * distinguish apart. The smallest normal float16 wastes steps and keeps the values. */
    if (spec->real == OQ_FLOAT16 && has_values && scale < FLOAT16_TINY)
        scale = FLOAT16_TINY;
    if (scale < tiny(spec->real)) {
        *out = (oq_qparam){1.0f, 0};
        return ONQ_OK;
    }
    if (spec->symmetric)
        out->zero_point = (int32_t)rint(((double)q.min + (double)q.max) / 2.0);
    else
        out->zero_point = (int32_t)rint((double)q.min - (double)rmin / scale);
    assert(out->zero_point >= q.min && out->zero_point <= q.max);
    out->scale = oq_real_round(spec->real, scale);
    if (!isfinite(out->scale))
        return oq_fail(err, ONQ_E_INVALID, "the range [%g, %g] is too wide for its type",
                       (double)rmin, (double)rmax);
    return ONQ_OK;
}

void oq_qparam_snap(const oq_qspec *spec, float low, float high, oq_qparam *out) {
    const oq_qrange q = oq_qtype_range(spec->type, spec->reduced, spec->symmetric);
    const int32_t middle = (q.min + q.max + 1) / 2;
    assert(q.min < middle && middle < q.max);
    const double width = (double)(q.max - q.min);
    const double rmin = low < 0.0f ? (double)low : 0.0;
    double rmax = high > 0.0f ? (double)high : 0.0;
    if (spec->has_min_range && spec->min_range > 0.0 && rmin + spec->min_range > rmax)
        rmax = rmin + spec->min_range;

    if (rmax <= rmin) { /* both are 0 */
        double scale = 1.0 / width;
        if (spec->has_min_range && scale < spec->min_range / width)
            scale = spec->min_range / width;
        *out = (oq_qparam){(float)scale, q.min};
        return;
    }
    if (rmin >= 0.0) {
        *out = (oq_qparam){(float)(rmax / width), q.min};
    } else {
        const double below = -rmin / (double)(middle - q.min);
        const double above = rmax / (double)(q.max - middle);
        *out = (oq_qparam){(float)(above > below ? above : below), middle};
    }
    if (spec->has_min_range && (double)out->scale < spec->min_range / width)
        out->scale = (float)(spec->min_range / width);
}

onq_code oq_qparam_float8(oq_dtype real, float std, oq_qparam *out, onq_error *err) {
    /* float16 / float32 is float32 in numpy, then cast to the type of std. */
    const float scale = std / FLOAT8E4M3FN_STD;
    out->zero_point = 0;
    out->scale = real == OQ_FLOAT16 ? oq_f16_to_f32(oq_f32_to_f16(scale)) : scale;
    if (!isfinite(out->scale) || out->scale <= 0.0f)
        return oq_fail(err, ONQ_E_INVALID, "a standard deviation of %g gives no scale for float 8",
                       (double)std);
    return ONQ_OK;
}

onq_code oq_qparam_block(const oq_qspec *spec, float rmin, float rmax, oq_qparam *out,
                         onq_error *err) {
    const oq_qrange q = oq_qtype_range(spec->type, false, spec->symmetric);
    const oq_qspec plain = {.type = spec->type, .real = spec->real, .symmetric = spec->symmetric};
    OQ_TRY(check_range(rmin, rmax, err));
    widen(&plain, &rmin, &rmax);

    const float dr = oq_real_add(spec->real, rmax, -rmin);
    const double qmin = (double)q.min, qmax = (double)q.max;
    float scale = oq_real_round(spec->real, (double)dr / (qmax - qmin));
    if (spec->real == OQ_FLOAT16 && dr > 0.0f && (double)scale < FLOAT16_TINY)
        scale = (float)FLOAT16_TINY; /* as above */
    const bool degenerate = (double)scale < tiny(spec->real);
    if (!isfinite(scale))
        return oq_fail(err, ONQ_E_INVALID, "the range [%g, %g] is too wide for its type",
                       (double)rmin, (double)rmax);
    if (degenerate)
        scale = 1.0f;
    double zero = rint((qmin + qmax) / 2.0);
    if (!spec->symmetric) {
        zero = degenerate ? 0.0 : rint(qmin - (double)rmin / (double)scale);
        zero = zero < qmin ? qmin : zero > qmax ? qmax : zero;
    }
    *out = (oq_qparam){scale, (int32_t)zero};
    return ONQ_OK;
}

/* x in a type that ranges have. */
static double in_type(oq_dtype real, double x) {
    return real == OQ_DOUBLE ? x : (double)oq_real_round(real, x);
}

void oq_qparam_plain(oq_dtype real, double rmin, double rmax, double qmin, double qmax,
                     bool symmetric, const double *min_range, double *scale, double *zero_point) {
    const double least = real == OQ_DOUBLE ? DBL_MIN : tiny(real);
    rmin = rmin < 0 ? in_type(real, rmin) : 0;
    rmax = rmax > 0 ? in_type(real, rmax) : 0;
    if (min_range != NULL) {
        const double wide = in_type(real, rmin + in_type(real, *min_range));
        rmax = wide > rmax ? wide : rmax;
    }
    if (symmetric) {
        const double most = -rmin > rmax ? -rmin : rmax;
        rmin = -most;
        rmax = most;
    }
    const double s = (rmax - rmin) / (qmax - qmin);
    *scale = 1;
    *zero_point = 0;
    if (s < least)
        return;
    *zero_point = symmetric ? rint((qmin + qmax) / 2) : rint(qmin - rmin / s);
    *scale = in_type(real, s);
}
