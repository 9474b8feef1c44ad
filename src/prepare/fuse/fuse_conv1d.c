/*
 * fuse_conv1d.c — a Conv over one axis written as MatMul: the runtime multiplies 8-bit integers
 * into floats there, which it does not for Conv.
 *
 *     x [N, C, T]  ->  Transpose [N, T, C]  ->  Pad  ->  k Slices of T' rows  ->  Concat [N, T', kC]
 *                  ->  MatMul [kC, O]  ->  Add  ->  Transpose [N, O, T']
 *
 * With a block that divides the kernel and the stride, T rows of C become T / block rows of
 * block * C, without those at the end that no window reaches, and kernel / block slices are enough.
 * A Conv of four axes whose kernel is k x 1 or 1 x k is the same with one axis more.
 */
#include "prepare/fuse/fuse.h"
#include "shape/dim/expr.h"

#define MAX_SLICES  64
#define BLOCK_NODES 6 /* that make blocks of a length that is not known */

typedef struct window {
    oq_node *conv;
    oq_tensor *w;
    size_t rank, axis;             /* of x; the axis that is convolved, with the channels last */
    int64_t out, channels, kernel; /* O, C, k */
    int64_t stride, dilation;      /* along the axis */
    int64_t begin, end;            /* padding */
    int64_t length;                /* of the axis with its padding, -1: not known */
    int64_t block;                 /* rows that become one */
} window;

/* Element i of an attribute of the spatial axes, or the fallback. */
static int64_t spatial(const oq_node *n, const char *name, size_t i, size_t count,
                       int64_t fallback) {
    const oq_i64s *v = oq_attr_ints(n, name);
    return v != NULL && v->n == count ? v->v[i] : fallback;
}

/* The spatial axis that the kernel covers, or -1. */
static int covered_axis(const oq_tensor *w) {
    if (w->dims.n == 3)
        return 0;
    if (w->dims.n != 4 || (w->dims.v[2] > 1) == (w->dims.v[3] > 1))
        return -1;
    return w->dims.v[2] > 1 ? 0 : 1;
}

/* The axes that the kernel does not cover are left as they are. */
static bool rest_is_plain(const oq_node *n, size_t axis, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (i != axis &&
            (spatial(n, "strides", i, count, 1) != 1 || spatial(n, "pads", i, 2 * count, 0) != 0 ||
             spatial(n, "pads", count + i, 2 * count, 0) != 0))
            return false;
    return true;
}

static bool find_window(oq_fuse *f, oq_node *n, window *v) {
    *v = (window){.conv = n, .w = oq_fuse_weight(f, oq_node_input(n, 1)), .length = -1, .block = 1};
    const int at = v->w != NULL ? covered_axis(v->w) : -1;
    const oq_str pad = oq_attr_str(n, "auto_pad", "NOTSET");
    if (at < 0 || n->output.n != 1 || oq_attr_int(n, "group", 1) != 1 ||
        !(oq_str_is(pad, "NOTSET") || oq_str_is(pad, "VALID") || pad.n == 0) ||
        oq_fuse_rank(f, n->input.v[0]) != (int)v->w->dims.n ||
        (oq_node_input(n, 2).n > 0 && oq_fuse_weight(f, n->input.v[2]) == NULL))
        return false;
    const size_t count = v->w->dims.n - 2, axis = (size_t)at;
    const bool padded = !oq_str_is(pad, "VALID");
    v->rank = v->w->dims.n;
    v->axis = axis + 1;
    v->out = v->w->dims.v[0];
    v->channels = v->w->dims.v[1];
    v->kernel = v->w->dims.v[2 + axis];
    v->stride = spatial(n, "strides", axis, count, 1);
    v->dilation = spatial(n, "dilations", axis, count, 1);
    v->begin = padded ? spatial(n, "pads", axis, 2 * count, 0) : 0;
    v->end = padded ? spatial(n, "pads", count + axis, 2 * count, 0) : 0;
    const int64_t t = oq_shapes_dim(f->shapes, f->g, n->input.v[0], 2 + axis);
    if (v->out < 1 || v->channels < 1 || v->kernel < 1 || v->stride < 1 || v->dilation < 1 ||
        v->begin < 0 || v->end < 0 || v->begin > INT32_MAX || v->end > INT32_MAX ||
        !rest_is_plain(n, axis, count))
        return false;
    v->length = t > 0 && t < INT32_MAX ? t + v->begin + v->end : -1;
    const int64_t block = oq_gcd(v->kernel, v->stride);
    const bool blocks =
        v->length < 0 ? v->kernel - v->kernel / block > BLOCK_NODES : v->length >= v->kernel;
    if (v->dilation == 1 && v->rank == 3 && blocks)
        v->block = block;
    return v->kernel / v->block <= MAX_SLICES && v->w->data_type.v == OQ_FLOAT;
}

/* w[o][c][i] as a matrix whose row i * C + c has the o. */
static onq_code add_matrix(oq_fuse *f, const window *v, oq_str *name, onq_error *err) {
    float *w = NULL;
    size_t n = 0;
    const size_t o_n = (size_t)v->out, c_n = (size_t)v->channels, k_n = (size_t)v->kernel;
    const int64_t dims[2] = {v->kernel * v->channels, v->out};
    OQ_TRY(oq_fuse_floats(f, v->w, &w, &n, err));
    float *m = OQ_NEW_ARRAY(f->scratch, float, n + 1);
    const oq_str base = oq_str_cat(&f->m->arena, v->w->name, OQ_S("_matrix"));
    OQ_TRY_ALLOC(m != NULL && base.p != NULL, err);
    for (size_t o = 0; o < o_n; o++)
        for (size_t c = 0; c < c_n; c++)
            for (size_t i = 0; i < k_n; i++)
                m[(i * c_n + c) * o_n + o] = w[(o * c_n + c) * k_n + i];
    return oq_fuse_add_floats(f, base, OQ_FLOAT, m, dims, 2, name, err);
}

/* Channels from axis 1 to the last, or back. */
static onq_code add_transpose(oq_fuse *f, const window *v, bool back, oq_str in, oq_str *out,
                              onq_error *err) {
    int64_t perm[4] = {0};
    for (size_t i = 1; i < v->rank; i++)
        perm[i] = back ? (int64_t)(i == 1 ? v->rank - 1 : i - 1)
                       : (int64_t)(i == v->rank - 1 ? 1 : i + 1);
    oq_node *n = oq_fuse_add_node(f, v->conv, "Transpose", &in, 1, out);
    return n != NULL && oq_attr_set_ints(&f->m->arena, n, OQ_S("perm"), perm, v->rank)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

static onq_code add_pad(oq_fuse *f, const window *v, oq_str *x, onq_error *err) {
    int64_t pads[8] = {0};
    oq_str name;
    if (v->begin == 0 && v->end == 0)
        return ONQ_OK;
    pads[v->axis] = v->begin;
    pads[v->rank + v->axis] = v->end;
    OQ_TRY(oq_fuse_add_ints(f, OQ_S("conv1d_pads"), pads, 2 * v->rank, &name, err));
    return oq_fuse_add_node(f, v->conv, "Pad", (oq_str[]){*x, name}, 2, x) != NULL
               ? ONQ_OK
               : oq_fail_nomem(err);
}

/* How many rows there are up to the last whole block: T / block * block, of a length that is not
 * known. */
static onq_code add_whole_rows(oq_fuse *f, const window *v, oq_str x, oq_str *out, onq_error *err) {
    static const char *const ops[] = {"Gather", "Div", "Mul"};
    const int64_t values[] = {(int64_t)v->axis, v->block, v->block};
    OQ_TRY_ALLOC(oq_fuse_add_node(f, v->conv, "Shape", &x, 1, out) != NULL, err);
    for (size_t i = 0; i < OQ_COUNT(ops); i++) {
        oq_str in[2] = {*out};
        OQ_TRY(oq_fuse_add_ints(f, OQ_S("conv1d_rows"), &values[i], 1, &in[1], err));
        OQ_TRY_ALLOC(oq_fuse_add_node(f, v->conv, ops[i], in, 2, out) != NULL, err);
    }
    return ONQ_OK;
}

/* Rows of the axis from `first` to `last`, each step-th. */
static onq_code add_rows(oq_fuse *f, const window *v, oq_str x, int64_t first, oq_str last,
                         int64_t step, oq_str *out, onq_error *err) {
    const int64_t values[4] = {first, 0, (int64_t)v->axis, step};
    oq_str in[5] = {x, {0}, last};
    for (size_t k = 0; k < 4; k++)
        if (k != 1)
            OQ_TRY(oq_fuse_add_ints(f, OQ_S("conv1d_slice"), &values[k], 1, &in[1 + k], err));
    return oq_fuse_add_node(f, v->conv, "Slice", in, 5, out) != NULL ? ONQ_OK : oq_fail_nomem(err);
}

/* [N, T, C] -> [N, T / block, block * C], without the rows that fill no block. */
static onq_code add_blocks(oq_fuse *f, const window *v, oq_str *x, onq_error *err) {
    const int64_t n = v->length / v->block, rows = n * v->block;
    const int64_t dims[3] = {0, v->length < 0 ? -1 : n, v->block * v->channels};
    oq_str name, last;
    if (v->block == 1)
        return ONQ_OK;
    if (v->length < 0)
        OQ_TRY(add_whole_rows(f, v, *x, &last, err));
    else if (rows < v->length)
        OQ_TRY(oq_fuse_add_ints(f, OQ_S("conv1d_rows"), &rows, 1, &last, err));
    if (rows != v->length)
        OQ_TRY(add_rows(f, v, *x, 0, last, 1, x, err));
    OQ_TRY(oq_fuse_add_ints(f, OQ_S("conv1d_blocks"), dims, 3, &name, err));
    return oq_fuse_add_node(f, v->conv, "Reshape", (oq_str[]){*x, name}, 2, x) != NULL
               ? ONQ_OK
               : oq_fail_nomem(err);
}

/* Slice i takes the rows that tap i meets. */
static onq_code add_slice(oq_fuse *f, const window *v, oq_str x, int64_t i, int64_t taps,
                          oq_str *out, onq_error *err) {
    const int64_t left = (taps - 1 - i) * v->dilation, end = left == 0 ? INT64_MAX : -left;
    oq_str last;
    OQ_TRY(oq_fuse_add_ints(f, OQ_S("conv1d_slice"), &end, 1, &last, err));
    return add_rows(f, v, x, i * v->dilation, last, v->stride / v->block, out, err);
}

static onq_code add_columns(oq_fuse *f, const window *v, oq_str *x, onq_error *err) {
    const int64_t taps = v->kernel / v->block;
    oq_str parts[MAX_SLICES];
    if (taps == 1 && v->stride == v->block)
        return ONQ_OK;
    for (int64_t i = 0; i < taps; i++)
        OQ_TRY(add_slice(f, v, *x, i, taps, &parts[i], err));
    if (taps == 1) {
        *x = parts[0];
        return ONQ_OK;
    }
    oq_node *n = oq_fuse_add_node(f, v->conv, "Concat", parts, (size_t)taps, x);
    return n != NULL && oq_attr_set_int(&f->m->arena, n, OQ_S("axis"), -1) ? ONQ_OK
                                                                           : oq_fail_nomem(err);
}

/* A bias of as many axes as the product: with fewer the runtime makes a float Gemm of MatMul and
 * Add. */
static onq_code add_bias(oq_fuse *f, const window *v, oq_str *x, onq_error *err) {
    const int64_t dims[4] = {1, 1, v->rank == 3 ? v->out : 1, v->out};
    const oq_str bias = oq_node_input(v->conv, 2);
    float *b = NULL;
    size_t n = 0;
    oq_str name;
    if (bias.n == 0)
        return ONQ_OK;
    OQ_TRY(oq_fuse_floats(f, oq_fuse_weight(f, bias), &b, &n, err));
    if (b == NULL || n != (size_t)v->out)
        return oq_fail(err, ONQ_E_INVALID, "its bias does not fit its weight");
    const oq_str base = oq_str_cat(&f->m->arena, bias, OQ_S("_row"));
    OQ_TRY_ALLOC(base.p != NULL, err);
    OQ_TRY(oq_fuse_add_floats(f, base, OQ_FLOAT, b, dims, v->rank, &name, err));
    return oq_fuse_add_node(f, v->conv, "Add", (oq_str[]){*x, name}, 2, x) != NULL
               ? ONQ_OK
               : oq_fail_nomem(err);
}

onq_code oq_fuse_conv1d(oq_fuse *f, uint32_t i, bool *done, onq_error *err) {
    oq_node *n = oq_fuse_node(f, i);
    window v;
    oq_str x, matrix, product;
    if (f->opset < 11 || !oq_node_is(n, "Conv") || n->input.n < 2 || !find_window(f, n, &v))
        return ONQ_OK;
    OQ_TRY(add_matrix(f, &v, &matrix, err));
    OQ_TRY(add_transpose(f, &v, false, n->input.v[0], &x, err));
    OQ_TRY(add_pad(f, &v, &x, err));
    OQ_TRY(add_blocks(f, &v, &x, err));
    OQ_TRY(add_columns(f, &v, &x, err));
    oq_node *mul = oq_fuse_add_node(f, n, "MatMul", (oq_str[]){x, matrix}, 2, &product);
    OQ_TRY_ALLOC(mul != NULL, err);
    OQ_TRY(add_bias(f, &v, &product, err));
    OQ_TRY(add_transpose(f, &v, true, product, &x, err));
    /* The product has the name of the Conv, by which users know it. */
    oq_node *last = f->nodes.v[f->nodes.n - 1];
    const oq_str name = mul->name;
    mul->name = n->name.n > 0 ? n->name : name;
    last->output.v[0] = n->output.v[0];
    oq_fuse_drop(f, i);
    *done = true;
    return ONQ_OK;
}
