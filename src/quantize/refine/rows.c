/*
 * rows.c — see rows.h.
 */
#include "quantize/refine/rows.h"

#include "onnx/attr.h"

static void read_pair(const oq_node *n, const char *name, size_t rank, int64_t out[2]) {
    const oq_i64s *v = oq_attr_ints(n, name);
    out[0] = out[1] = 1;
    for (size_t i = 0; v != NULL && v->n == rank && i < rank; i++)
        out[2 - rank + i] = v->v[i];
}

static bool init_conv(oq_rows *r, const oq_node *n, const oq_tensor *w) {
    const size_t rank = w->dims.n - 2;
    const int64_t group = oq_attr_int(n, "group", 1);
    const oq_i64s *pads = oq_attr_ints(n, "pads");
    if (rank < 1 || rank > 2 || group < 1 || w->dims.v[0] % group != 0)
        return false;
    r->groups = (size_t)group;
    r->n = (size_t)(w->dims.v[0] / group);
    r->channels = (size_t)(w->dims.v[1] * group);
    r->kernel[0] = 1;
    for (size_t i = 0; i < rank; i++)
        r->kernel[2 - rank + i] = (size_t)w->dims.v[2 + i];
    r->k = (size_t)w->dims.v[1] * r->kernel[0] * r->kernel[1];
    read_pair(n, "strides", rank, r->stride);
    read_pair(n, "dilations", rank, r->dilation);
    for (size_t i = 0; pads != NULL && pads->n == 2 * rank && i < rank; i++) {
        r->pad[2 - rank + i] = pads->v[i];
        r->pad[4 - rank + i] = pads->v[rank + i];
    }
    r->auto_pad = oq_attr_str(n, "auto_pad", "NOTSET");
    r->turned = true;
    return r->stride[0] > 0 && r->stride[1] > 0;
}

bool oq_rows_init(oq_rows *r, const oq_layer *l) {
    const oq_tensor *w = l->weight;
    *r = (oq_rows){.product = l->product, .groups = 1};
    for (size_t i = 0; i < w->dims.n; i++)
        if (w->dims.v[i] <= 0)
            return false;
    if (l->product == OQ_CONV) {
        if (!init_conv(r, l->node, w))
            return false;
    } else if (w->dims.n == 2 && (l->product == OQ_GEMM || l->product == OQ_MATMUL)) {
        r->turned = l->product == OQ_GEMM && oq_gemm_turns_b(l->node);
        r->k = (size_t)w->dims.v[r->turned ? 1 : 0];
        r->n = (size_t)w->dims.v[r->turned ? 0 : 1];
        if (l->product == OQ_GEMM && oq_gemm_turns_a(l->node))
            return false;
    } else {
        return false;
    }
    r->width = r->groups * r->k;
    return true;
}

/* ---- Conv ---- */

/* Size of the output along one axis, and what is padded before it. */
static int64_t out_size(const oq_rows *r, size_t axis, int64_t in, int64_t *before) {
    const int64_t covered = ((int64_t)r->kernel[axis] - 1) * r->dilation[axis] + 1;
    const int64_t stride = r->stride[axis];
    *before = 0;
    if (oq_str_is(r->auto_pad, "VALID"))
        return in < covered ? 0 : (in - covered) / stride + 1;
    if (oq_str_is(r->auto_pad, "SAME_UPPER") || oq_str_is(r->auto_pad, "SAME_LOWER")) {
        const int64_t out = (in + stride - 1) / stride, sum = (out - 1) * stride + covered - in;
        const int64_t pad = sum > 0 ? sum : 0;
        *before = oq_str_is(r->auto_pad, "SAME_UPPER") ? pad / 2 : pad - pad / 2;
        return out;
    }
    *before = r->pad[axis];
    const int64_t padded = in + r->pad[axis] + r->pad[2 + axis];
    return padded < covered ? 0 : (padded - covered) / stride + 1;
}

static bool open_conv(const oq_rows *r, const oq_datum *d, oq_rows_input *in) {
    if (d->rank < 3 || d->rank > 4 || (uint64_t)d->dims[1] != r->channels)
        return false;
    in->batch = d->dims[0];
    in->in[0] = d->rank == 4 ? d->dims[2] : 1;
    in->in[1] = d->dims[d->rank - 1];
    for (size_t i = 0; i < 2; i++)
        in->out[i] = out_size(r, i, in->in[i], &in->before[i]);
    in->count = (uint64_t)in->batch * (uint64_t)in->out[0] * (uint64_t)in->out[1];
    return true;
}

static void take_patch(const oq_rows *r, const oq_rows_input *in, uint64_t i, float *out) {
    const int64_t w = in->out[1], place = (int64_t)(i % (uint64_t)(in->out[0] * w));
    const int64_t image = (int64_t)(i / (uint64_t)(in->out[0] * w));
    const int64_t top = place / w * r->stride[0] - in->before[0];
    const int64_t left = place % w * r->stride[1] - in->before[1];
    const int64_t plane = in->in[0] * in->in[1];
    for (size_t c = 0; c < r->channels; c++) {
        const float *x = in->x + (image * (int64_t)r->channels + (int64_t)c) * plane;
        for (size_t a = 0; a < r->kernel[0]; a++) {
            const int64_t row = top + (int64_t)a * r->dilation[0];
            for (size_t b = 0; b < r->kernel[1]; b++) {
                const int64_t col = left + (int64_t)b * r->dilation[1];
                const bool inside = row >= 0 && row < in->in[0] && col >= 0 && col < in->in[1];
                *out++ = inside ? x[row * in->in[1] + col] : 0.0f;
            }
        }
    }
}

/* ---- either ---- */

bool oq_rows_open(const oq_rows *r, const oq_datum *d, oq_rows_input *in) {
    *in = (oq_rows_input){0};
    if (d->kind != OQ_DATUM_TENSOR || d->dtype != OQ_FLOAT || d->count == 0 || d->rank == 0)
        return false;
    in->x = d->data;
    if (r->product == OQ_CONV)
        return open_conv(r, d, in);
    if ((uint64_t)d->dims[d->rank - 1] != r->k)
        return false;
    in->count = d->count / r->k;
    return true;
}

void oq_rows_take(const oq_rows *r, const oq_rows_input *in, uint64_t i, float *out) {
    assert(i < in->count);
    if (r->product == OQ_CONV)
        take_patch(r, in, i, out);
    else
        memcpy(out, in->x + i * r->k, r->k * sizeof *out);
}
