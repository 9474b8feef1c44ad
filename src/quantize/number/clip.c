/*
 * clip.c — bounds of Relu and Clip against quantized ranges.
 */
#include "quantize/number/clip.h"

#include "onnx/attr.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"

#define MAX_STEPS 16 /* nodes between a constant and its reader */

static bool one_real(oq_model *m, oq_tensor *t, double *out) {
    float *v = NULL;
    uint64_t count = 0;
    if (!oq_dtype_is_float(t->data_type.v) || oq_tensor_count(t, &count, NULL) != ONQ_OK ||
        count != 1)
        return false;
    OQ_SCRATCH(scratch, &m->env->alloc);
    const bool read = oq_tensor_floats(m, t, &scratch, &v, NULL, NULL) == ONQ_OK;
    if (read)
        *out = (double)v[0];
    return read;
}

/* True if the node gives out the one value that it reads. */
static bool passes(const oq_node *n) {
    if (n->input.n == 0)
        return false;
    return oq_op_traits_of(n->op_type)->repeats >= OQ_REPEATS_SOME ||
           (oq_str_is(n->op_type, "Cast") && oq_dtype_is_float(oq_attr_int(n, "to", 0)));
}

bool oq_constant_real(oq_model *m, const oq_index *ix, oq_str name, double *out) {
    for (int steps = 0; ix != NULL && steps < MAX_STEPS; steps++) {
        const oq_value *v = oq_index_resolve(&ix, name);
        const oq_node *n = oq_value_node(ix, v);
        oq_tensor *t = v != NULL && v->init != NULL ? v->init : oq_node_constant(n);
        const oq_attribute *real =
            oq_node_is_constant(n) && t == NULL ? oq_attr_find(n, "value_float") : NULL;
        if (real != NULL)
            *out = (double)real->f.v;
        if (real != NULL || t != NULL)
            return real != NULL || one_real(m, t, out);
        if (n == NULL || !passes(n))
            return false;
        name = n->input.v[0];
    }
    return false;
}

/* A bound: an attribute before opset 11, an input since; *out stays as it is where it is absent. */
static bool bound(oq_model *m, const oq_index *ix, const oq_node *n, const char *attr, size_t slot,
                  double *out) {
    *out = (double)oq_attr_float(n, attr, (float)*out);
    if (n->input.n <= slot || n->input.v[slot].n == 0)
        return true;
    return oq_constant_real(m, ix, n->input.v[slot], out);
}

bool oq_clip_bounds(oq_model *m, const oq_index *ix, const oq_node *n, oq_bounds *out) {
    *out = (oq_bounds){-INFINITY, INFINITY};
    if (oq_str_is(n->op_type, "Relu")) {
        out->low = 0.0;
        return true;
    }
    return bound(m, ix, n, "min", 1, &out->low) && bound(m, ix, n, "max", 2, &out->high);
}

static double clamp(double x, oq_bounds b) {
    return fmin(fmax(x, b.low), b.high);
}

oq_bounds oq_bounds_then(oq_bounds first, oq_bounds second) {
    return (oq_bounds){clamp(first.low, second), clamp(first.high, second)};
}

/* How far the end of a range may lie beyond a bound: zero points are integers, and a scale may
 * be a float16. 0 is in every range as it is. */
static double slack(double bound, double step) {
    return bound == 0.0 ? 0.0 : 1.01 * step + fabs(bound) / 1024.0;
}

bool oq_bounds_hold(oq_bounds b, oq_dtype type, oq_qparam p, double steps) {
    const oq_qtype_info *info = oq_qtype_find(type);
    if (info == NULL || info->is_float)
        return b.low == -INFINITY && b.high == INFINITY; /* float 8 clips nowhere near them */
    const double scale = (double)p.scale, zero = (double)p.zero_point;
    const double low = ((double)info->full.min - zero) * scale;
    const double high = ((double)info->full.max - zero) * scale;
    return (b.low == -INFINITY || low >= b.low - slack(b.low, steps * scale)) &&
           (b.high == INFINITY || high <= b.high + slack(b.high, steps * scale));
}
