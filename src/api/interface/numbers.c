/*
 * numbers.c — scale and zero point of a range, and quantizing an array, for callers that have the
 * numbers themselves (quant_utils.compute_scale_zp and quantize_nparray).
 */
#include "base/text/real.h"
#include "onnx/tensor.h"
#include "quantize/number/qparam.h"

onq_code onq_scale_zero_point(double rmin, double rmax, int32_t dtype, double qmin, double qmax,
                              int symmetric, const double *min_real_range, double *scale,
                              double *zero_point, onq_error *err) {
    if (dtype != OQ_FLOAT && dtype != OQ_FLOAT16 && dtype != OQ_DOUBLE)
        return oq_fail(err, ONQ_E_INVALID, "a range is float, float16 or double, not type %d",
                       (int)dtype);
    if (!(qmin <= 0 && qmax >= 0 && qmin < qmax))
        return oq_fail(err, ONQ_E_INVALID,
                       "qmin and qmax must meet requirement: qmin <= 0 <= qmax while qmin:%g, "
                       "qmax:%g",
                       qmin, qmax);
    if (isnan(rmin) || isnan(rmax))
        return oq_fail(err, ONQ_E_INVALID, "the range holds NaN");
    oq_qparam_plain((oq_dtype)dtype, rmin, rmax, qmin, qmax, symmetric != 0, min_real_range, scale,
                    zero_point);
    return ONQ_OK;
}

/* ---- arrays ---- */

typedef struct quantizing {
    const onq_tensor *x, *scale, *zero;
    uint64_t count;
    uint64_t axis_size, inner; /* of the axis, and elements of one index of it */
    uint64_t block, n_blocks;  /* along the axis; block 0: none */
    bool per_axis;
    const oq_qtype_info *type;
    float low, high;
} quantizing;

static onq_code count_of(const onq_tensor *t, const char *what, uint64_t *out, onq_error *err) {
    uint64_t bytes = 0;
    *out = 1;
    for (size_t i = 0; i < t->rank; i++)
        if (t->dims[i] < 0 || !oq_mul(*out, (uint64_t)t->dims[i], out))
            return oq_fail(err, ONQ_E_INVALID, "%s: its shape is not possible", what);
    if (t->strides != NULL || !oq_dtype_bytes(t->dtype, *out, &bytes) || bytes != t->size ||
        (t->data == NULL && bytes > 0))
        return oq_fail(err, ONQ_E_INVALID, "%s: has %zu bytes, its type and shape need %llu", what,
                       t->size, (unsigned long long)bytes);
    return ONQ_OK;
}

static bool is_real(int32_t dtype) {
    return dtype == OQ_FLOAT || dtype == OQ_FLOAT16 || dtype == OQ_DOUBLE;
}

/* How the parameters lie: one, one for each index of the axis, or one for each block. */
static onq_code set_layout(quantizing *q, int64_t axis, int64_t block, onq_error *err) {
    const onq_tensor *x = q->x;
    uint64_t n_scale = 0, n_zero = 0, want = 1;
    if (block < 0)
        return oq_fail(err, ONQ_E_INVALID, "a block of %lld values is not possible",
                       (long long)block);
    OQ_TRY(count_of(q->scale, "scale", &n_scale, err));
    if (q->zero != NULL)
        OQ_TRY(count_of(q->zero, "zero point", &n_zero, err));
    q->per_axis = n_scale != 1 || block > 0;
    if (q->per_axis) {
        const int64_t rank = (int64_t)x->rank, at = axis < 0 ? axis + rank : axis;
        if (at < 0 || at >= rank)
            return oq_fail(err, ONQ_E_INVALID, "there is no axis %lld in %lld axes",
                           (long long)axis, (long long)rank);
        q->axis_size = (uint64_t)x->dims[at];
        q->inner = 1;
        for (size_t i = (size_t)at + 1; i < x->rank; i++)
            q->inner *= (uint64_t)x->dims[i];
        q->block = block > 0 ? (uint64_t)block : 0;
        q->n_blocks = q->block > 0 ? (q->axis_size + q->block - 1) / q->block : 0;
        want = q->block == 0      ? q->axis_size
               : q->axis_size > 0 ? q->count / q->axis_size * q->n_blocks
                                  : 0;
    }
    if (n_scale != want || (q->zero != NULL && n_zero != want && n_zero != 1))
        return oq_fail(
            err, ONQ_E_INVALID, "there are %llu scales and %llu zero points, where %llu are needed",
            (unsigned long long)n_scale, (unsigned long long)n_zero, (unsigned long long)want);
    if (q->zero != NULL && n_zero != want)
        return oq_fail(err, ONQ_E_INVALID, "there is one zero point for %llu scales",
                       (unsigned long long)want);
    return ONQ_OK;
}

static uint64_t param_of(const quantizing *q, uint64_t i) {
    if (!q->per_axis)
        return 0;
    const uint64_t at = i / q->inner % q->axis_size;
    if (q->block == 0)
        return at;
    return (i / q->inner / q->axis_size * q->n_blocks + at / q->block) * q->inner + i % q->inner;
}

static void put_integer(const quantizing *q, uint64_t i, float v, void *out) {
    const int32_t n = (int32_t)v;
    if (oq_qtype_is_16bit(q->type->dtype))
        memcpy((uint8_t *)out + 2 * i, &(uint16_t){(uint16_t)n}, 2);
    else
        ((uint8_t *)out)[i] = (uint8_t)n;
}

static onq_code quantize_one(const quantizing *q, uint64_t i, void *out, onq_error *err) {
    const uint64_t p = param_of(q, i);
    const oq_dtype real = (oq_dtype)q->x->dtype;
    const double x = oq_raw_get_real(real, q->x->data, i);
    const double s = oq_raw_get_real((oq_dtype)q->scale->dtype, q->scale->data, p);
    const double z = q->zero == NULL ? 0
                     : q->type->is_float
                         ? oq_raw_get_real(q->type->dtype, q->zero->data, p)
                         : (double)oq_raw_get_int((oq_dtype)q->zero->dtype, q->zero->data, p);
    if (q->type->is_float) {
        const float v = (float)x / (float)s;
        if (z != 0)
            return oq_fail(err, ONQ_E_UNSUPPORTED, "float 8 has no zero point but 0");
        ((uint8_t *)out)[i] = oq_f32_to_fp8(
            real == OQ_FLOAT16 ? oq_real_round(OQ_FLOAT16, (double)v) : v, OQ_FP8_E4M3FN, true);
        return ONQ_OK;
    }
    const float v = rintf((float)x / (float)s) + (float)z;
    if (isnan(v))
        return oq_fail(err, ONQ_E_INVALID, "element %llu is NaN after it was divided by its scale",
                       (unsigned long long)i);
    put_integer(q, i, v < q->low ? q->low : v > q->high ? q->high : v, out);
    return ONQ_OK;
}

static onq_code check(quantizing *q, double low, double high, size_t size, onq_error *err) {
    OQ_TRY(count_of(q->x, "array", &q->count, err));
    if (!is_real(q->x->dtype) || !is_real(q->scale->dtype))
        return oq_fail(err, ONQ_E_INVALID, "array and scale must be float, float16 or double");
    const size_t item = oq_qtype_is_16bit(q->type->dtype) ? 2 : 1;
    if (size / item < q->count || (size > 0 && size % item != 0))
        return oq_fail(err, ONQ_E_INVALID, "%zu bytes do not hold %llu elements", size,
                       (unsigned long long)q->count);
    if (q->type->is_float)
        return ONQ_OK;
    const oq_qrange r = oq_qtype_range(q->type->dtype, false, false);
    q->low = isnan(low) || low < r.min ? (float)r.min : (float)low;
    q->high = isnan(high) || high > r.max ? (float)r.max : (float)high;
    if (!(q->low <= q->high))
        return oq_fail(err, ONQ_E_INVALID, "%s has no value between low %g and high %g",
                       q->type->name, low, high);
    return ONQ_OK;
}

onq_code onq_quantize(const onq_tensor *x, const onq_tensor *scale, const onq_tensor *zero_point,
                      int64_t axis, int64_t block_size, double low, double high, int32_t dtype,
                      void *out, size_t size, onq_error *err) {
    quantizing q = {
        .x = x, .scale = scale, .zero = zero_point, .type = oq_qtype_find((oq_dtype)dtype)};
    if (q.type == NULL)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "arrays are not quantized to type %d", (int)dtype);
    OQ_TRY(check(&q, low, high, size, err));
    OQ_TRY(set_layout(&q, axis, block_size, err));
    for (uint64_t i = 0; i < q.count; i++)
        OQ_TRY(quantize_one(&q, i, out, err));
    return ONQ_OK;
}
