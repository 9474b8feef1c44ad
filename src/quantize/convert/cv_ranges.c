/*
 * cv_ranges.c — parameters as a calibration would have found them: for each activation the range from
 * which a quantizer computes the same scale and zero point.
 *
 * The ends of a range are floats, and so is the scale that is computed from them. Where rounding gives
 * another scale, neighbouring floats are tried.
 */
#include "quantize/convert/cv_ranges.h"

#include "quantize/number/qparam.h"

#include <math.h>

#define NEIGHBOURS 6

static float step(float x, int n) {
    for (; n > 0; n--)
        x = nextafterf(x, INFINITY);
    for (; n < 0; n++)
        x = nextafterf(x, -INFINITY);
    return x;
}

static bool gives(const oq_qspec *spec, float lo, float hi, const oq_plan_tensor *t) {
    onq_error ignored = ONQ_ERROR_INIT;
    oq_qparam p;
    return oq_qparam_compute(spec, lo, hi, &p, &ignored) == ONQ_OK && p.scale == t->scale[0] &&
           p.zero_point == t->zero[0];
}

static bool find_range(const oq_plan_tensor *t, bool symmetric, float *lo, float *hi) {
    const oq_qspec spec = {.type = t->type, .real = OQ_FLOAT, .symmetric = symmetric};
    const oq_qrange q = oq_qtype_range(t->type, false, symmetric);
    const float s = t->scale[0];
    const float low = (float)((double)(q.min - t->zero[0]) * (double)s);
    const float high = (float)((double)(q.max - t->zero[0]) * (double)s);
    *lo = low;
    *hi = high;
    for (int away = 0; away <= NEIGHBOURS; away++)
        for (int a = -away; a <= away; a++)
            for (int b = -away; b <= away; b++) {
                if (abs(a) != away && abs(b) != away)
                    continue;
                *lo = low < 0.0f ? step(low, a) : low;
                *hi = high > 0.0f ? step(high, b) : high;
                if (gives(&spec, *lo, *hi, t))
                    return true;
            }
    *lo = low;
    *hi = high;
    return false;
}

static bool is_range(const oq_plan_tensor *t) {
    const oq_qtype_info *info = oq_qtype_find(t->type);
    return t->role == OQ_ROLE_ACTIVATION && t->n == 1 && t->scale != NULL && info != NULL &&
           !info->is_float && isfinite(t->scale[0]) && t->scale[0] > 0.0f;
}

/* Signed activations whose zero points are all 0 were made symmetric. */
static bool are_symmetric(const oq_plan *p) {
    size_t n = 0;
    for (size_t i = 0; i < p->tensors.n; i++) {
        const oq_plan_tensor *t = &p->tensors.v[i];
        if (!is_range(t))
            continue;
        if (!oq_qtype_find(t->type)->is_signed || t->zero[0] != 0)
            return false;
        n++;
    }
    return n > 1;
}

onq_code oq_convert_ranges(const oq_plan *p, oq_ranges *out, oq_convert_found *found,
                           onq_error *err) {
    *found = (oq_convert_found){.symmetric = are_symmetric(p)};
    for (size_t i = 0; i < p->tensors.n; i++) {
        const oq_plan_tensor *t = &p->tensors.v[i];
        float lo = 0, hi = 0;
        if (!is_range(t) || oq_ranges_find(out, t->name) != NULL)
            continue;
        found->n_inexact += !find_range(t, found->symmetric, &lo, &hi);
        found->n++;
        oq_range *r = oq_ranges_add(out, t->name);
        if (r == NULL || !oq_num_make(&out->arena, &r->lowest, OQ_FLOAT, false, 1) ||
            !oq_num_make(&out->arena, &r->highest, OQ_FLOAT, false, 1))
            return oq_fail_nomem(err);
        r->lowest.v[0] = (double)lo;
        r->highest.v[0] = (double)hi;
    }
    return ONQ_OK;
}
