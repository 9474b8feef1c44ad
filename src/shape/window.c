/*
 * window.c — see window.h. Plain mode knows an output size only for an input size that is a number,
 * as onnx's convPoolShapeInference.
 */
#include "shape/window.h"

/* A list attribute of n values not below `least`; `fallback` when absent. */
static bool read_list(oq_rctx *c, const char *name, size_t n, int64_t least, int64_t fallback,
                      int64_t *out) {
    const int64_t *v;
    size_t count;
    const bool given = oq_r_ints(c, name, &v, &count);
    if (given && count != n)
        return oq_r_fail(c, "attribute '%s' has %zu values, expected %zu", name, count, n);
    for (size_t i = 0; i < n; i++) {
        out[i] = given ? v[i] : fallback;
        if (out[i] < least || out[i] > INT32_MAX)
            return oq_r_fail(c, "attribute '%s' holds %lld", name, (long long)out[i]);
    }
    return true;
}

static bool read_kernel(oq_rctx *c, oq_window *w, const oq_sdim *kernel, bool *known) {
    const int64_t *v;
    size_t count;
    *known = true;
    if (oq_r_ints(c, "kernel_shape", &v, &count))
        return read_list(c, "kernel_shape", w->n, 1, 1, w->kernel);
    if (kernel == NULL)
        return oq_r_fail(c, "attribute 'kernel_shape' is missing");
    for (size_t i = 0; i < w->n; i++) {
        if (!oq_sdim_is_num(kernel[i])) {
            *known = false;
            return true;
        }
        if (kernel[i].n <= 0 || kernel[i].n > INT32_MAX)
            return oq_r_fail(c, "the kernel has size %lld", (long long)kernel[i].n);
        w->kernel[i] = kernel[i].n;
    }
    return true;
}

bool oq_window_read(oq_rctx *c, oq_window *w, size_t n, const oq_sdim *kernel, bool *known) {
    int64_t dilation[OQ_WINDOW_AXES] = {0};
    *w = (oq_window){.n = n};
    if (n > OQ_WINDOW_AXES)
        return oq_r_fail(c, "%zu spatial axes are too many", n);
    if (!read_list(c, "dilations", n, 1, 1, dilation) ||
        !read_list(c, "strides", n, 1, 1, w->stride) || !read_kernel(c, w, kernel, known))
        return false;
    for (size_t i = 0; *known && i < n; i++)
        w->extent[i] = (w->kernel[i] - 1) * dilation[i] + 1;
    const int64_t *v;
    size_t count;
    const bool has_pads = oq_r_ints(c, "pads", &v, &count);
    int64_t pads[2 * OQ_WINDOW_AXES] = {0};
    if (has_pads && !read_list(c, "pads", 2 * n, 0, 0, pads))
        return false;
    for (size_t i = 0; i < n; i++) {
        w->head[i] = pads[i];
        w->tail[i] = pads[n + i];
    }
    const bool upper = oq_r_str_is(c, "auto_pad", "NOTSET", "SAME_UPPER");
    w->same =
        (upper || oq_r_str_is(c, "auto_pad", "NOTSET", "SAME_LOWER")) && !(c->plain && has_pads);
    if (!c->plain && oq_r_str_is(c, "auto_pad", "NOTSET", "VALID")) {
        memset(w->head, 0, sizeof w->head);
        memset(w->tail, 0, sizeof w->tail);
    }
    w->ceil = oq_r_int(c, "ceil_mode", 0) == 1;
    w->torch = !c->plain || c->opset >= 22;
    return true;
}

oq_sdim oq_window_out(oq_rctx *c, const oq_window *w, size_t i, oq_sdim d) {
    assert(i < w->n && w->stride[i] > 0);
    if (oq_sdim_is_unknown(d) || (c->plain && !oq_sdim_is_num(d)))
        return oq_sdim_unknown();
    const oq_sdim stride = oq_sdim_num(w->stride[i]);
    if (w->same)
        return oq_sdim_ceildiv(c->ds, d, stride);
    const oq_sdim span = oq_sdim_addn(c->ds, d, w->head[i] + w->tail[i] - w->extent[i]);
    if (!w->ceil) {
        /* Division in C goes towards zero: a kernel larger than its input gives 1 there, not 0. */
        if (c->plain && span.n < 0)
            return oq_sdim_num(span.n / w->stride[i] + 1);
        return oq_sdim_addn(c->ds, oq_sdim_floordiv(c->ds, span, stride), 1);
    }
    const oq_sdim steps = oq_sdim_ceildiv(c->ds, span, stride);
    if (w->torch) {
        const oq_sdim start = oq_sdim_mul(c->ds, steps, stride);
        const oq_sdim end = oq_sdim_addn(c->ds, d, w->head[i]);
        if (oq_sdim_le(c->ds, end, start))
            return steps;
        if (!oq_sdim_le(c->ds, oq_sdim_addn(c->ds, start, 1), end)) {
            /* Not decided for all sizes. It never happens when the kernel covers stride and
             * padding. */
            if (w->extent[i] < w->stride[i] + w->tail[i])
                return oq_sdim_unknown();
        }
    }
    return oq_sdim_addn(c->ds, steps, 1);
}

oq_sdim oq_window_out_transposed(oq_rctx *c, const oq_window *w, size_t i, oq_sdim d,
                                 int64_t output_padding) {
    if (oq_sdim_is_unknown(d) || (c->plain && !oq_sdim_is_num(d)))
        return oq_sdim_unknown();
    int64_t pad = w->head[i] + w->tail[i];
    if (w->same) {
        pad = w->extent[i] > w->stride[i] ? w->extent[i] - w->stride[i] : 0;
        /* The runtime's rule for SAME is input * stride whatever the kernel. */
        if (!c->plain)
            return oq_sdim_muln(c->ds, d, w->stride[i]);
    }
    const oq_sdim reach = oq_sdim_muln(c->ds, oq_sdim_addn(c->ds, d, -1), w->stride[i]);
    return oq_sdim_addn(c->ds, reach, output_padding + w->extent[i] - pad);
}
