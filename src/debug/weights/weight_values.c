/*
 * weight_values.c — one matched weight as two arrays: the float values as the file has them, and
 * the dequantized ones in the type numpy gives them in the reference's _run_dequantize_linear.
 *
 * (w - zero) is taken in w's own type and wraps around there; times the scale it becomes the type
 * that holds both: float16 with scales of float16 and up to 8 bits, double with 32 bits, else
 * float.
 */
#include "debug/weights/weights.h"

#include "base/text/real.h"

bool oq_debug_is_reference(const oq_debug *d, const oq_debug_weight *w) {
    const oq_str end = OQ_S("_quantized");
    return w->by_dq && w->layout == OQ_DEBUG_AFFINE && w->block == 0 && !w->transposed &&
           oq_str_ends(w->quantized_name, end) && w->quantized_name.n == w->name.n + end.n &&
           memcmp(w->quantized_name.p, w->name.p, w->name.n) == 0 &&
           oq_index_init(&d->float_index, w->name) == w->flt &&
           oq_index_init(&d->quantized_index, w->quantized_name) == w->quantized;
}

int32_t oq_debug_wrapped(int32_t v, unsigned bits, bool is_signed) {
    const int32_t span = (int32_t)1 << bits;
    const int32_t low = (int32_t)((uint32_t)v & (uint32_t)(span - 1));
    return is_signed && low >= span / 2 ? low - span : low;
}

/* numpy's type of an integer of so many bits times a scale. */
static oq_dtype product_type(const oq_debug_weight *w) {
    const oq_dtype_info *info = oq_dtype_find(w->type);
    const int64_t scale = w->scale->data_type.v;
    if (scale == OQ_DOUBLE || w->type == OQ_INT32 || w->type == OQ_UINT32)
        return OQ_DOUBLE;
    return scale == OQ_FLOAT16 && info->bits <= 8 ? OQ_FLOAT16 : OQ_FLOAT;
}

static void wrap_around(const oq_debug_weight *w, oq_debug_unpacked *u) {
    const oq_dtype_info *info = oq_dtype_find(w->type);
    if (!u->has_zero || u->mixed || info->bits > 16 || info->cls == OQ_CLASS_REAL)
        return;
    for (uint64_t i = 0; i < u->n; i++) {
        const uint64_t g = oq_debug_group(u, i);
        const int32_t v =
            oq_debug_wrapped(u->q[i] - (int32_t)u->zero[g], info->bits, info->cls == OQ_CLASS_INT);
        u->y[i] = (float)v * u->scale[g];
    }
}

static onq_code to_type(const oq_debug_unpacked *u, oq_dtype type, oq_arena *a, const void **out,
                        onq_error *err) {
    *out = u->y;
    if (type == OQ_FLOAT)
        return ONQ_OK;
    if (type == OQ_DOUBLE && u->wide != NULL) {
        *out = u->wide;
        return ONQ_OK;
    }
    double *d = type == OQ_DOUBLE ? OQ_NEW_ARRAY(a, double, u->n + 1) : NULL;
    uint16_t *h = type == OQ_FLOAT16 ? OQ_NEW_ARRAY(a, uint16_t, u->n + 1) : NULL;
    if (d == NULL && h == NULL)
        return oq_fail_nomem(err);
    for (uint64_t i = 0; d != NULL && i < u->n; i++)
        d[i] = (double)u->y[i];
    if (h != NULL)
        oq_f32_to_f16_n(u->y, h, (size_t)u->n);
    *out = d != NULL ? (const void *)d : h;
    return ONQ_OK;
}

/* The float weight's own bytes, aligned. */
static onq_code float_values(oq_debug *d, oq_debug_weight *w, oq_arena *a, oq_debug_values *out,
                             onq_error *err) {
    oq_span raw = {0};
    OQ_TRY(oq_model_data(d->flt, w->flt, &raw, err));
    out->float_type = (oq_dtype)w->flt->data_type.v;
    out->float_bytes = (size_t)raw.n;
    out->flt = raw.p;
    if ((uintptr_t)raw.p % sizeof(double) == 0)
        return ONQ_OK;
    void *copy = oq_arena_alloc(a, (size_t)raw.n + 1);
    OQ_TRY_ALLOC(copy != NULL, err);
    memcpy(copy, raw.p, (size_t)raw.n);
    out->flt = copy;
    return ONQ_OK;
}

onq_code oq_debug_weight_values(oq_debug *d, oq_debug_weight *w, bool as_reference, oq_arena *a,
                                oq_debug_values *out, onq_error *err) {
    oq_debug_unpacked u = {0};
    *out = (oq_debug_values){0};
    OQ_TRY(float_values(d, w, a, out, err));
    OQ_TRY(oq_debug_unpack(d, w, a, &u, err));
    if (w->norm != NULL) { /* with the BatchNormalization in it */
        out->flt = u.x;
        out->float_type = OQ_FLOAT;
        out->float_bytes = (size_t)u.n * sizeof *u.x;
    }
    if (as_reference)
        wrap_around(w, &u);
    out->quantized_type = as_reference          ? product_type(w)
                          : w->type == OQ_INT32 ? OQ_DOUBLE
                                                : OQ_FLOAT;
    uint64_t bytes = 0;
    if (!oq_dtype_bytes(out->quantized_type, u.n, &bytes))
        return oq_fail(err, ONQ_E_LIMIT, "weight '%.*s' is too large", OQ_STR(w->name));
    out->quantized_bytes = (size_t)bytes;
    return to_type(&u, out->quantized_type, a, &out->quantized, err);
}
