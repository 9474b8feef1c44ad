/*
 * weights.c — the matched weights, dequantized. Those that DequantizeLinear reads are taken a few
 * elements at a time (weight_parts.c), the others whole.
 *
 * Arithmetic is numpy's in the reference's _run_dequantize_linear: (w - zero) x scale in float32,
 * in double for int32. The reference subtracts in the weight's own type, which wraps around where
 * the zero point is not 0; here it does not, and the reference's figure is reported too.
 */
#include "debug/weights/weights.h"

#include "base/text/real.h"
#include "onnx/attr.h"
#include "onnx/tensor.h"
#include "quantize/number/code_book.h"

#include <math.h>

/* ---- dequantization ---- */

static onq_code read_scales(oq_debug *d, oq_debug_weight *w, oq_arena *a, oq_debug_unpacked *u,
                            onq_error *err) {
    size_t n = 0, n_zero = 0;
    OQ_TRY(oq_tensor_floats(d->quantized, w->scale, a, &u->scale, &n, err));
    u->n_groups = n;
    u->zero = OQ_NEW_ARRAY(a, double, n + 1);
    if (u->zero == NULL)
        return oq_fail_nomem(err);
    if (w->scale2 != NULL) {
        float *more = NULL;
        OQ_TRY(oq_tensor_floats(d->quantized, w->scale2, a, &more, &n_zero, err));
        for (size_t i = 0; i < n && n_zero > 0; i++)
            u->scale[i] *= more[n_zero == 1 ? 0 : i % n_zero];
    }
    oq_span raw = {0};
    if (w->zero == NULL || w->layout >= OQ_DEBUG_NBITS)
        return ONQ_OK;
    const oq_dtype type = (oq_dtype)w->zero->data_type.v;
    const oq_dtype_info *info = oq_dtype_find(type);
    OQ_TRY(oq_model_data(d->quantized, w->zero, &raw, err));
    uint64_t bytes = 0;
    if (!oq_dtype_bytes(type, n, &bytes) || bytes > raw.n)
        return oq_fail(err, ONQ_E_INVALID, "weight '%.*s': %zu scales, %llu bytes of zero points",
                       OQ_STR(w->quantized_name), n, (unsigned long long)raw.n);
    for (size_t i = 0; i < n; i++) {
        u->zero[i] = info->cls == OQ_CLASS_REAL ? oq_raw_get_real(type, raw.p, i)
                                                : (double)oq_raw_get_int(type, raw.p, i);
        u->has_zero = u->has_zero || u->zero[i] != 0;
    }
    return ONQ_OK;
}

static void set_grid(const oq_debug_weight *w, oq_debug_unpacked *u) {
    const oq_tensor *t = w->quantized;
    if (w->axis < 0 || u->n_groups <= 1)
        return;
    u->grid = (oq_debug_grid){(uint64_t)t->dims.v[w->axis], 1, w->block};
    for (size_t k = (size_t)w->axis + 1; k < t->dims.n; k++)
        u->grid.inner *= (uint64_t)t->dims.v[k];
}

static onq_code unpack_affine(oq_debug *d, oq_debug_weight *w, oq_arena *a, oq_debug_unpacked *u,
                              onq_error *err) {
    oq_span raw = {0};
    OQ_TRY(oq_model_data(d->quantized, w->quantized, &raw, err));
    const bool real = oq_dtype_find(w->type)->cls == OQ_CLASS_REAL;
    for (uint64_t i = 0; i < u->n; i++) {
        const uint64_t g = oq_debug_group(u, i);
        if (real) {
            u->y[i] = (float)(oq_raw_get_real(w->type, raw.p, i) - u->zero[g]) * u->scale[g];
            continue;
        }
        const int64_t q = w->type == OQ_INT8    ? (int64_t)(int8_t)raw.p[i]
                          : w->type == OQ_UINT8 ? (int64_t)raw.p[i]
                                                : oq_raw_get_int(w->type, raw.p, i);
        const double v = (double)q - u->zero[g];
        u->q[i] = (int32_t)q;
        u->y[i] = (float)v * u->scale[g];
        if (u->wide != NULL)
            u->wide[i] = v * (double)u->scale[g];
    }
    (void)a;
    return ONQ_OK;
}

/* What QuantizeLinear makes of float weights. */
static onq_code unpack_pair(oq_debug *d, oq_debug_weight *w, oq_arena *a, oq_debug_unpacked *u,
                            onq_error *err) {
    float *x = NULL;
    double lo = 0, hi = 0;
    OQ_TRY(oq_tensor_floats(d->quantized, w->quantized, a, &x, NULL, err));
    if (!oq_debug_limits(w->type, &lo, &hi))
        return oq_fail(err, ONQ_E_UNSUPPORTED, "weight '%.*s': quantized as %s", OQ_STR(w->name),
                       oq_dtype_name(w->type));
    for (uint64_t i = 0; i < u->n; i++) {
        const uint64_t g = oq_debug_group(u, i);
        double q = nearbyint((double)(x[i] / u->scale[g])) + u->zero[g];
        q = q < lo ? lo : q > hi ? hi : q == q ? q : 0;
        u->q[i] = (int32_t)q;
        u->y[i] = (float)(q - u->zero[g]) * u->scale[g];
    }
    return ONQ_OK;
}

/* A packed weight that is smaller than its node says. */
static onq_code too_short(const oq_debug_weight *w, const oq_debug_unpacked *u, uint64_t bytes,
                          uint64_t rows, uint64_t columns, onq_error *err) {
    return oq_fail(
        err, ONQ_E_INVALID, "weight '%.*s': %llu bytes and %llu scales do not hold %llu x %llu",
        OQ_STR(w->quantized_name), (unsigned long long)bytes, (unsigned long long)u->n_groups,
        (unsigned long long)rows, (unsigned long long)columns);
}

static double nbits_zero(const oq_debug_weight *w, const uint8_t *z, uint64_t size, uint64_t col,
                         uint64_t block, uint64_t n_blocks) {
    const uint64_t bits = (uint64_t)w->bits;
    if (z == NULL)
        return (double)(1u << (bits - 1));
    const uint64_t i = col * n_blocks + block;
    if (w->zero->data_type.v != OQ_UINT8)
        return i * oq_dtype_find(w->zero->data_type.v)->bits / 8 < size
                   ? oq_raw_get_real((oq_dtype)w->zero->data_type.v, z, i)
                   : 0;
    const uint64_t row = (n_blocks * bits + 7) / 8, at = col * row + block * bits / 8;
    return at < size ? (double)((z[at] >> (block * bits % 8)) & ((1u << bits) - 1)) : 0;
}

static onq_code unpack_nbits(oq_debug *d, oq_debug_weight *w, oq_arena *a, oq_debug_unpacked *u,
                             onq_error *err) {
    oq_span raw = {0}, z = {0};
    float *add = NULL;
    const uint64_t bits = (uint64_t)w->bits, k = (uint64_t)w->k, n = (uint64_t)w->n;
    const uint64_t n_blocks = (k + w->block - 1) / w->block, bytes = (w->block * bits + 7) / 8;
    OQ_TRY(oq_model_data(d->quantized, w->quantized, &raw, err));
    if (w->zero != NULL)
        OQ_TRY(oq_model_data(d->quantized, w->zero, &z, err));
    if (w->offsets != NULL)
        OQ_TRY(oq_tensor_floats(d->quantized, w->offsets, a, &add, NULL, err));
    if (raw.n / bytes / n_blocks < n || u->n_groups / n_blocks < n)
        return too_short(w, u, raw.n, k, n, err);
    for (uint64_t col = 0; col < n; col++) {
        for (uint64_t row = 0; row < k; row++) {
            const uint64_t b = row / w->block, in = row % w->block;
            const uint8_t *p = raw.p + (col * n_blocks + b) * bytes;
            const uint32_t q = (p[in * bits / 8] >> (in * bits % 8)) & ((1u << bits) - 1);
            const double zero = nbits_zero(w, z.p, z.n, col, b, n_blocks);
            const uint64_t at = w->out_rows ? col * k + row : row * n + col;
            u->q[at] = (int32_t)q;
            u->y[at] = (float)((double)q - zero) * u->scale[col * n_blocks + b] +
                       (add != NULL ? add[b * n + col] : 0.0f);
        }
    }
    u->grid.dim = 0;
    return ONQ_OK;
}

static onq_code unpack_bnb4(oq_debug *d, oq_debug_weight *w, oq_arena *a, oq_debug_unpacked *u,
                            onq_error *err) {
    const float *codes = oq_code_book(w->nf4);
    oq_span raw = {0};
    (void)a;
    const uint64_t k = (uint64_t)w->k, n = (uint64_t)w->n;
    OQ_TRY(oq_model_data(d->quantized, w->quantized, &raw, err));
    if (raw.n < (k * n + 1) / 2 || u->n_groups < (k * n + w->block - 1) / w->block)
        return too_short(w, u, raw.n, k, n, err);
    for (uint64_t i = 0; i < k * n; i++) {
        const unsigned q = ((unsigned)raw.p[i / 2] >> (i % 2 ? 0 : 4)) & 15u;
        const uint64_t at = i % k * n + i / k; /* stored column by column */
        u->q[at] = (int32_t)q;
        u->y[at] = codes[q] * u->scale[i / w->block];
    }
    u->grid.dim = 0;
    return ONQ_OK;
}

static onq_code unpack_packed(oq_debug *d, oq_debug_weight *w, oq_arena *a, oq_debug_unpacked *u,
                              onq_error *err) {
    oq_span raw = {0}, z = {0};
    (void)a;
    const uint64_t bits = (uint64_t)w->bits, k = (uint64_t)w->k, n = (uint64_t)w->n;
    const uint64_t n_blocks = (k + w->block - 1) / w->block, bytes = (k * bits + 7) / 8;
    OQ_TRY(oq_model_data(d->quantized, w->quantized, &raw, err));
    if (w->zero != NULL)
        OQ_TRY(oq_model_data(d->quantized, w->zero, &z, err));
    if (raw.n / bytes < n || u->n_groups / n_blocks < n)
        return too_short(w, u, raw.n, n, k, err);
    for (uint64_t row = 0; row < n; row++) {
        for (uint64_t i = 0; i < k; i++) {
            const uint64_t b = i / w->block;
            const uint32_t q = ((unsigned)raw.p[row * bytes + i * bits / 8] >> (i * bits % 8)) &
                               ((1u << bits) - 1);
            const double zero = nbits_zero(w, z.p, z.n, row, b, n_blocks);
            u->q[row * k + i] = (int32_t)q;
            u->y[row * k + i] = (float)((double)q - zero) * u->scale[row * n_blocks + b];
        }
    }
    u->grid.dim = 0;
    return ONQ_OK;
}

/* Swaps the last two axes of what was unpacked. */
static onq_code transpose(const oq_debug_weight *w, oq_arena *a, oq_debug_unpacked *u,
                          onq_error *err) {
    const size_t rank = w->quantized->dims.n;
    if (rank < 2)
        return ONQ_OK;
    const uint64_t r = (uint64_t)w->quantized->dims.v[rank - 2],
                   c = (uint64_t)w->quantized->dims.v[rank - 1];
    float *y = OQ_NEW_ARRAY(a, float, u->n);
    int32_t *q = OQ_NEW_ARRAY(a, int32_t, u->n);
    if (y == NULL || q == NULL)
        return oq_fail_nomem(err);
    for (uint64_t o = 0; r * c > 0 && o < u->n / (r * c); o++)
        for (uint64_t i = 0; i < r; i++)
            for (uint64_t k = 0; k < c; k++) {
                y[(o * c + k) * r + i] = u->y[(o * r + i) * c + k];
                q[(o * c + k) * r + i] = u->q[(o * r + i) * c + k];
            }
    u->y = y;
    u->q = q;
    u->grid.dim = 0;
    u->mixed = u->n_groups > 1;
    return ONQ_OK;
}

onq_code oq_debug_unpack(oq_debug *d, oq_debug_weight *w, oq_arena *a, oq_debug_unpacked *u,
                         onq_error *err) {
    static onq_code (*const by_layout[])(oq_debug *, oq_debug_weight *, oq_arena *,
                                         oq_debug_unpacked *, onq_error *) = {
        [OQ_DEBUG_AFFINE] = unpack_affine, [OQ_DEBUG_PAIR] = unpack_pair,
        [OQ_DEBUG_NBITS] = unpack_nbits,   [OQ_DEBUG_BNB4] = unpack_bnb4,
        [OQ_DEBUG_PACKED] = unpack_packed,
    };
    size_t n = 0;
    OQ_TRY(oq_tensor_floats(d->flt, w->flt, a, &u->x, &n, err));
    u->n = n;
    if (w->norm != NULL)
        OQ_TRY(oq_debug_fold(d, w, a, u->x, n, err));
    u->y = OQ_NEW_ARRAY(a, float, n + 1);
    u->q = OQ_NEW_ARRAY(a, int32_t, n + 1);
    u->wide = w->type == OQ_INT32 ? OQ_NEW_ARRAY(a, double, n + 1) : NULL;
    if (u->y == NULL || u->q == NULL || (w->type == OQ_INT32 && u->wide == NULL))
        return oq_fail_nomem(err);
    OQ_TRY(read_scales(d, w, a, u, err));
    set_grid(w, u);
    u->mixed = w->layout >= OQ_DEBUG_NBITS;
    OQ_TRY(by_layout[w->layout](d, w, a, u, err));
    return w->transposed ? transpose(w, a, u, err) : ONQ_OK;
}

/* ---- some of its elements ---- */

bool oq_debug_is_plain(const oq_debug_weight *w) {
    const oq_dtype_info *info = oq_dtype_find(w->type);
    uint64_t n = 0, n_quantized = 0;
    return w->layout == OQ_DEBUG_AFFINE && !w->transposed && w->norm == NULL && info->bits <= 16 &&
           info->cls != OQ_CLASS_REAL && oq_dtype_is_float(w->flt->data_type.v) &&
           (w->zero == NULL ||
            oq_dtype_find((oq_dtype)w->zero->data_type.v)->cls != OQ_CLASS_REAL) &&
           oq_tensor_count(w->flt, &n, NULL) == ONQ_OK &&
           oq_tensor_count(w->quantized, &n_quantized, NULL) == ONQ_OK && n == n_quantized;
}

onq_code oq_debug_unpack_begin(oq_debug *d, oq_debug_weight *w, oq_arena *a, uint64_t room,
                               oq_debug_unpacked *u, onq_error *err) {
    *u = (oq_debug_unpacked){.x = OQ_NEW_ARRAY(a, float, room + 1),
                             .y = OQ_NEW_ARRAY(a, float, room + 1),
                             .q = OQ_NEW_ARRAY(a, int32_t, room + 1)};
    if (u->x == NULL || u->y == NULL || u->q == NULL)
        return oq_fail_nomem(err);
    OQ_TRY(read_scales(d, w, a, u, err));
    set_grid(w, u);
    return ONQ_OK;
}

static void read_ints(oq_dtype type, const uint8_t *raw, uint64_t from, uint64_t n, int32_t *out) {
    if (type == OQ_INT8) {
        const int8_t *q = (const int8_t *)raw + from;
#pragma omp simd
        for (uint64_t i = 0; i < n; i++)
            out[i] = q[i];
    } else if (type == OQ_UINT8) {
#pragma omp simd
        for (uint64_t i = 0; i < n; i++)
            out[i] = raw[from + i];
    } else {
        for (uint64_t i = 0; i < n; i++)
            out[i] = (int32_t)oq_raw_get_int(type, raw, from + i);
    }
}

/* 17 bits at most: exact in float. */
static void dequantize(const int32_t *q, const float *scale, const double *zero, uint64_t n,
                       bool rising, float *y) {
    if (rising) {
#pragma omp simd
        for (uint64_t i = 0; i < n; i++)
            y[i] = ((float)q[i] - (float)zero[i]) * scale[i];
    } else {
        const float one = scale[0], off = (float)zero[0];
#pragma omp simd
        for (uint64_t i = 0; i < n; i++)
            y[i] = ((float)q[i] - off) * one;
    }
}

onq_code oq_debug_unpack_some(oq_debug *d, oq_debug_weight *w, uint64_t from, uint64_t n,
                              oq_debug_unpacked *u, onq_error *err) {
    assert(oq_debug_is_plain(w));
    const oq_dtype flt = (oq_dtype)w->flt->data_type.v;
    oq_span x = {0}, q = {0};
    OQ_TRY(oq_model_data(d->flt, w->flt, &x, err));
    OQ_TRY(oq_model_data(d->quantized, w->quantized, &q, err));
    u->from = from;
    u->n = n;
    if (flt == OQ_FLOAT)
        memcpy(u->x, x.p + from * sizeof(float), n * sizeof(float));
    else
        for (uint64_t i = 0; i < n; i++)
            u->x[i] = (float)oq_raw_get_real(flt, x.p, from + i);
    read_ints(w->type, q.p, from, n, u->q);
    oq_debug_stretch s;
    for (uint64_t at = 0; at < n; at += s.n) {
        s = oq_debug_stretch_at(&u->grid, from + at, n - at);
        dequantize(u->q + at, u->scale + s.number, u->zero + s.number, s.n, s.rising, u->y + at);
    }
    return ONQ_OK;
}
