/*
 * tensor.c — values of a TensorProto: sizes, typed fields to raw bytes, reading and making.
 *
 * Typed storage follows onnx.helper.make_tensor: float_data for float and complex64, double_data
 * for double and complex128, int64_data for int64, uint64_data for uint32 and uint64, int32_data
 * for the rest (one entry for each byte for 2- and 4-bit types, one for each element otherwise).
 */
#include "onnx/tensor.h"

#include "base/text/real.h"
#include "onnx/codec/wire.h"

onq_code oq_tensor_count(const oq_tensor *t, uint64_t *out, onq_error *err) {
    uint64_t n = 1;
    bool zero = false, fits = true;
    for (size_t i = 0; i < t->dims.n; i++) {
        if (t->dims.v[i] < 0)
            return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s': dimension %zu is %lld",
                           OQ_STR(t->name), i, (long long)t->dims.v[i]);
        zero = zero || t->dims.v[i] == 0;
        fits = fits && oq_mul(n, (uint64_t)t->dims.v[i], &n);
    }
    if (!zero && (!fits || n > INT64_MAX))
        return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s': the product of its dimensions overflows",
                       OQ_STR(t->name));
    *out = zero ? 0 : n;
    return ONQ_OK;
}

bool oq_axis_of(int64_t axis, size_t rank, size_t *out) {
    if (axis < -(int64_t)rank || axis >= (int64_t)rank)
        return false;
    *out = (size_t)(axis < 0 ? axis + (int64_t)rank : axis);
    assert(*out < rank);
    return true;
}

bool oq_tensor_same_dims(const oq_tensor *a, const oq_tensor *b) {
    return a->dims.n == b->dims.n &&
           (a->dims.n == 0 || memcmp(a->dims.v, b->dims.v, a->dims.n * sizeof *a->dims.v) == 0);
}

bool oq_tensor_is_empty(const oq_tensor *t) {
    bool empty = false;
    for (size_t i = 0; i < t->dims.n; i++)
        empty = empty || t->dims.v[i] == 0;
    return empty;
}

onq_code oq_tensor_bytes(const oq_tensor *t, uint64_t *out, onq_error *err) {
    uint64_t n = 0;
    OQ_TRY(oq_tensor_count(t, &n, err));
    const oq_dtype_info *d = oq_dtype_find(t->data_type.v);
    if (d == NULL)
        return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s': unknown data type %d", OQ_STR(t->name),
                       (int)t->data_type.v);
    if (d->bits == 0)
        return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s' holds strings where numbers are needed",
                       OQ_STR(t->name));
    if (!oq_dtype_bytes(t->data_type.v, n, out))
        return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s': its size in bytes overflows",
                       OQ_STR(t->name));
    return ONQ_OK;
}

static onq_code wrong_count(const oq_tensor *t, const char *field, uint64_t want, onq_error *err) {
    return oq_fail(err, ONQ_E_INVALID,
                   "tensor '%.*s': %s does not hold the %llu values of its shape", OQ_STR(t->name),
                   field, (unsigned long long)want);
}

/* Varints of a packed field to little-endian numbers of `width` bytes each; exactly `want` of them.
 * Counted before the output is made, so a hostile shape costs nothing. */
static onq_code varints_to_raw(oq_arena *a, const oq_tensor *t, const oq_packed *k,
                               const char *field, uint64_t want, unsigned width, oq_span *out,
                               onq_error *err) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < k->n; i++)
        n += k->p[i] < 128;
    if (n != want || (k->n != 0 && k->p[k->n - 1] >= 128))
        return wrong_count(t, field, want, err);
    uint8_t *raw = oq_arena_array(a, want, width);
    OQ_TRY_ALLOC(raw != NULL, err);
    oq_wire w = {k->p, k->p + k->n, k->p, 0};
    for (uint64_t i = 0; i < want; i++) {
        uint64_t v = 0;
        OQ_TRY_IN(oq_wire_varint(&w, &v, err), err, "tensor '%.*s': %s", OQ_STR(t->name), field);
        memcpy(raw + i * width, &v, width);
    }
    *out = (oq_span){raw, want * width};
    return ONQ_OK;
}

static onq_code fixed_to_raw(const oq_tensor *t, const oq_packed *k, const char *field,
                             uint64_t want_bytes, unsigned width, oq_span *out, onq_error *err) {
    if (k->n != want_bytes)
        return wrong_count(t, field, want_bytes / width, err);
    *out = (oq_span){k->p, k->n};
    return ONQ_OK;
}

/* One six-bit number an entry to a stream of bits, low bits first. */
static onq_code pack_fp6(oq_arena *a, oq_span *io, uint64_t count, onq_error *err) {
    uint64_t bytes = 0;
    if (!oq_dtype_bytes(OQ_FLOAT6E2M3, count, &bytes))
        return ONQ_E_INTERNAL;
    uint8_t *raw = oq_arena_alloc(a, bytes);
    OQ_TRY_ALLOC(raw != NULL, err);
    for (uint64_t i = 0; i < count; i++) {
        const unsigned v = (io->p[i] & 63u) << (i * 6 % 8);
        raw[i * 6 / 8] |= (uint8_t)v;
        if (v > 255)
            raw[i * 6 / 8 + 1] |= (uint8_t)(v >> 8);
    }
    *io = (oq_span){raw, bytes};
    return ONQ_OK;
}

onq_code oq_tensor_typed_to_raw(oq_arena *a, const oq_tensor *t, oq_span *out, onq_error *err) {
    uint64_t bytes = 0, count = 0;
    OQ_TRY(oq_tensor_bytes(t, &bytes, err));
    OQ_TRY(oq_tensor_count(t, &count, err));
    if (bytes == 0) {
        *out = (oq_span){(const uint8_t *)"", 0};
        return ONQ_OK;
    }
    const unsigned bits = oq_dtype_find(t->data_type.v)->bits;
    switch ((oq_dtype)t->data_type.v) {
    case OQ_FLOAT:
    case OQ_COMPLEX64:
        return fixed_to_raw(t, &t->float_data, "float_data", bytes, 4, out, err);
    case OQ_DOUBLE:
    case OQ_COMPLEX128:
        return fixed_to_raw(t, &t->double_data, "double_data", bytes, 8, out, err);
    case OQ_INT64:
        return varints_to_raw(a, t, &t->int64_data, "int64_data", count, 8, out, err);
    case OQ_UINT32:
    case OQ_UINT64:
        return varints_to_raw(a, t, &t->uint64_data, "uint64_data", count, bits / 8, out, err);
    case OQ_FLOAT6E2M3:
    case OQ_FLOAT6E3M2:
        OQ_TRY(varints_to_raw(a, t, &t->int32_data, "int32_data", count, 1, out, err));
        return pack_fp6(a, out, count, err);
    default:
        if (bits < 8)
            return varints_to_raw(a, t, &t->int32_data, "int32_data", bytes, 1, out, err);
        return varints_to_raw(a, t, &t->int32_data, "int32_data", count, bits / 8, out, err);
    }
}

static unsigned get_fp6(const uint8_t *p, uint64_t i) {
    const uint64_t bit = i * 6;
    unsigned v = (unsigned)p[bit / 8] >> (bit % 8);
    if (bit % 8 > 2)
        v |= (unsigned)p[bit / 8 + 1] << (8 - bit % 8);
    return v & 63;
}

#define LOAD(T)                                                                                    \
    T v;                                                                                           \
    memcpy(&v, p + i * sizeof(T), sizeof(T))

double oq_raw_get_real(oq_dtype dt, const uint8_t *p, uint64_t i) {
    switch (dt) {
    case OQ_FLOAT: {
        LOAD(float);
        return (double)v;
    }
    case OQ_DOUBLE: {
        LOAD(double);
        return v;
    }
    case OQ_FLOAT16: {
        LOAD(uint16_t);
        return (double)oq_f16_to_f32(v);
    }
    case OQ_BFLOAT16: {
        LOAD(uint16_t);
        return (double)oq_bf16_to_f32(v);
    }
    case OQ_FLOAT8E4M3FN:
        return (double)oq_fp8_to_f32(p[i], OQ_FP8_E4M3FN);
    case OQ_FLOAT8E4M3FNUZ:
        return (double)oq_fp8_to_f32(p[i], OQ_FP8_E4M3FNUZ);
    case OQ_FLOAT8E5M2:
        return (double)oq_fp8_to_f32(p[i], OQ_FP8_E5M2);
    case OQ_FLOAT8E5M2FNUZ:
        return (double)oq_fp8_to_f32(p[i], OQ_FP8_E5M2FNUZ);
    case OQ_FLOAT8E8M0:
        return (double)oq_e8m0_to_f32(p[i]);
    case OQ_FLOAT4E2M1:
        return (double)oq_fp4_to_f32((uint8_t)oq_get_u4(p, i));
    case OQ_FLOAT6E2M3:
        return (double)oq_fp6_to_f32((uint8_t)get_fp6(p, i), false);
    case OQ_FLOAT6E3M2:
        return (double)oq_fp6_to_f32((uint8_t)get_fp6(p, i), true);
    case OQ_UINT64: {
        LOAD(uint64_t);
        return (double)v;
    }
    default:
        return (double)oq_raw_get_int(dt, p, i);
    }
}

int64_t oq_raw_get_int(oq_dtype dt, const uint8_t *p, uint64_t i) {
    switch (dt) {
    case OQ_BOOL:
        return p[i] != 0;
    case OQ_UINT8:
        return p[i];
    case OQ_INT8:
        return (int8_t)p[i];
    case OQ_UINT16: {
        LOAD(uint16_t);
        return v;
    }
    case OQ_INT16: {
        LOAD(int16_t);
        return v;
    }
    case OQ_UINT32: {
        LOAD(uint32_t);
        return v;
    }
    case OQ_INT32: {
        LOAD(int32_t);
        return v;
    }
    case OQ_INT64:
    case OQ_UINT64: {
        LOAD(int64_t);
        return v;
    }
    case OQ_UINT4:
        return oq_get_u4(p, i);
    case OQ_INT4:
        return oq_get_i4(p, i);
    case OQ_UINT2:
        return oq_get_u2(p, i);
    case OQ_INT2:
        return oq_get_i2(p, i);
    default:
        return 0;
    }
}

static onq_code want_class(const oq_tensor *t, bool ok, const char *what, onq_error *err) {
    return ok ? ONQ_OK
              : oq_fail(err, ONQ_E_INVALID, "tensor '%.*s' is %s, but must be %s", OQ_STR(t->name),
                        oq_dtype_name(t->data_type.v), what);
}

onq_code oq_tensor_floats(oq_model *m, oq_tensor *t, oq_arena *a, float **out, size_t *n,
                          onq_error *err) {
    const oq_dtype_info *d = oq_dtype_find(t->data_type.v);
    oq_span raw = {0};
    uint64_t count = 0;
    OQ_TRY(want_class(t, d != NULL && d->cls == OQ_CLASS_REAL, "a float type", err));
    OQ_TRY(oq_model_data(m, t, &raw, err));
    OQ_TRY(oq_tensor_count(t, &count, err));
    float *v = OQ_NEW_ARRAY(a, float, count);
    OQ_TRY_ALLOC(v != NULL, err);
    if (t->data_type.v == OQ_FLOAT)
        memcpy(v, raw.p, count * sizeof(float));
    else
        for (uint64_t i = 0; i < count; i++)
            v[i] = (float)oq_raw_get_real((oq_dtype)t->data_type.v, raw.p, i);
    *out = v;
    if (n != NULL)
        *n = count;
    return ONQ_OK;
}

onq_code oq_tensor_i64s(oq_model *m, oq_tensor *t, oq_arena *a, int64_t **out, size_t *n,
                        onq_error *err) {
    const oq_dtype_info *d = oq_dtype_find(t->data_type.v);
    oq_span raw = {0};
    uint64_t count = 0;
    OQ_TRY(want_class(
        t,
        d != NULL && (d->cls == OQ_CLASS_INT || d->cls == OQ_CLASS_UINT || d->cls == OQ_CLASS_BOOL),
        "an integer type", err));
    OQ_TRY(oq_model_data(m, t, &raw, err));
    OQ_TRY(oq_tensor_count(t, &count, err));
    int64_t *v = OQ_NEW_ARRAY(a, int64_t, count);
    OQ_TRY_ALLOC(v != NULL, err);
    for (uint64_t i = 0; i < count; i++) {
        v[i] = oq_raw_get_int((oq_dtype)t->data_type.v, raw.p, i);
        if (t->data_type.v == OQ_UINT64 && v[i] < 0)
            return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s': element %llu does not fit in int64",
                           OQ_STR(t->name), (unsigned long long)i);
    }
    *out = v;
    if (n != NULL)
        *n = count;
    return ONQ_OK;
}

oq_tensor *oq_tensor_new(oq_arena *a, oq_str name, oq_dtype dt, const int64_t *dims, size_t rank) {
    assert(rank == 0 || dims != NULL);
    oq_tensor *t = OQ_NEW(a, oq_tensor);
    if (t == NULL)
        return NULL;
    t->name = name;
    t->data_type = OQ_I32((int32_t)dt);
    for (size_t i = 0; i < rank; i++)
        if (!OQ_PUSH(a, &t->dims, dims[i]))
            return NULL;
    return t;
}

void oq_tensor_clear_data(oq_tensor *t) {
    t->float_data = t->int32_data = t->int64_data = (oq_packed){0};
    t->double_data = t->uint64_data = (oq_packed){0};
    t->string_data.n = 0;
    t->raw_data = (oq_payload){0};
    t->external_data.n = 0;
    t->data_location = (oq_opt_i32){0};
    t->cache = (oq_span){0};
    t->place = NULL;
}

void oq_tensor_set_view(oq_tensor *t, const void *p, uint64_t n) {
    assert(p != NULL || n == 0);
    oq_tensor_clear_data(t);
    t->raw_data = (oq_payload){.p = p, .n = n, .present = true};
}

onq_code oq_tensor_set_raw(oq_arena *a, oq_tensor *t, const void *p, uint64_t n, onq_error *err) {
    uint8_t *copy = oq_arena_alloc(a, n);
    OQ_TRY_ALLOC(copy != NULL, err);
    if (n != 0)
        memcpy(copy, p, n);
    oq_tensor_set_view(t, copy, n);
    return ONQ_OK;
}

void oq_tensor_set_producer(oq_tensor *t, const oq_producer *p) {
    assert(p != NULL);
    oq_tensor_clear_data(t);
    t->raw_data = (oq_payload){.n = p->size, .producer = p, .present = true};
}

static onq_code make_whole(const oq_producer *self, uint8_t *out, onq_error *err) {
    return self->slice(self, 0, self->size, out, err);
}

onq_code oq_tensor_set_slices(oq_tensor *t, oq_producer *p, oq_slice_fn slice, void *ctx,
                              onq_error *err) {
    *p = (oq_producer){.make = make_whole, .slice = slice, .ctx = ctx};
    OQ_TRY(oq_tensor_bytes(t, &p->size, err));
    oq_tensor_set_producer(t, p);
    return ONQ_OK;
}

/* The packed field that holds typed values of dt. */
static oq_packed *typed_field(oq_tensor *t, oq_dtype dt) {
    switch (dt) {
    case OQ_FLOAT:
        return &t->float_data;
    case OQ_DOUBLE:
        return &t->double_data;
    case OQ_INT64:
        return &t->int64_data;
    case OQ_UINT32:
    case OQ_UINT64:
        return &t->uint64_data;
    default:
        return &t->int32_data;
    }
}

static onq_code put_varints(oq_arena *a, oq_packed *k, const int64_t *v, size_t n, onq_error *err) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += oq_varint_size((uint64_t)v[i]);
    uint8_t *p = oq_arena_alloc(a, bytes), *end = p;
    OQ_TRY_ALLOC(p != NULL, err);
    for (size_t i = 0; i < n; i++)
        end = oq_varint_put(end, (uint64_t)v[i]);
    *k = (oq_packed){p, bytes, 0};
    return ONQ_OK;
}

onq_code oq_tensor_set_typed_i(oq_arena *a, oq_tensor *t, const int64_t *v, size_t n,
                               onq_error *err) {
    const oq_dtype dt = (oq_dtype)t->data_type.v;
    oq_tensor_clear_data(t);
    const unsigned bits = oq_dtype_find(dt)->bits;
    if (bits >= 8)
        return put_varints(a, typed_field(t, dt), v, n, err);
    const size_t per = 8 / bits, bytes = (n + per - 1) / per;
    int64_t *packed = OQ_NEW_ARRAY(a, int64_t, bytes);
    OQ_TRY_ALLOC(packed != NULL, err);
    for (size_t i = 0; i < n; i++)
        packed[i / per] |= (v[i] & ((1 << bits) - 1)) << (i % per * bits);
    return put_varints(a, &t->int32_data, packed, bytes, err);
}

onq_code oq_tensor_set_typed_f(oq_arena *a, oq_tensor *t, const double *v, size_t n,
                               onq_error *err) {
    const oq_dtype dt = (oq_dtype)t->data_type.v;
    oq_tensor_clear_data(t);
    if (dt == OQ_FLOAT || dt == OQ_DOUBLE) {
        const size_t width = dt == OQ_FLOAT ? 4 : 8;
        uint8_t *p = oq_arena_array(a, n, width);
        OQ_TRY_ALLOC(p != NULL, err);
        for (size_t i = 0; i < n; i++) {
            const float f = (float)v[i];
            memcpy(p + i * width, width == 4 ? (const void *)&f : (const void *)&v[i], width);
        }
        *typed_field(t, dt) = (oq_packed){p, n * width, 0};
        return ONQ_OK;
    }
    int64_t *bits = OQ_NEW_ARRAY(a, int64_t, n);
    OQ_TRY_ALLOC(bits != NULL, err);
    for (size_t i = 0; i < n; i++) {
        const float f = (float)v[i];
        switch (dt) {
        case OQ_FLOAT16:
            bits[i] = oq_f64_to_f16(v[i]);
            break;
        case OQ_BFLOAT16:
            bits[i] = oq_f32_to_bf16(f);
            break;
        case OQ_FLOAT8E4M3FN:
            bits[i] = oq_f32_to_fp8(f, OQ_FP8_E4M3FN, true);
            break;
        case OQ_FLOAT8E4M3FNUZ:
            bits[i] = oq_f32_to_fp8(f, OQ_FP8_E4M3FNUZ, true);
            break;
        case OQ_FLOAT8E5M2:
            bits[i] = oq_f32_to_fp8(f, OQ_FP8_E5M2, true);
            break;
        case OQ_FLOAT8E5M2FNUZ:
            bits[i] = oq_f32_to_fp8(f, OQ_FP8_E5M2FNUZ, true);
            break;
        default:
            return oq_fail(err, ONQ_E_UNSUPPORTED, "tensor '%.*s': no typed storage for %s here",
                           OQ_STR(t->name), oq_dtype_name(dt));
        }
    }
    return put_varints(a, &t->int32_data, bits, n, err);
}

onq_code oq_tensor_channel_shape(oq_arena *a, oq_str name, size_t rank, oq_tensor **out,
                                 onq_error *err) {
    const int64_t dim = (int64_t)rank;
    int64_t *v = OQ_NEW_ARRAY(a, int64_t, rank);
    *out = name.p != NULL ? oq_tensor_new(a, name, OQ_INT64, &dim, 1) : NULL;
    OQ_TRY_ALLOC(v != NULL && *out != NULL, err);
    for (size_t i = 0; i < rank; i++)
        v[i] = i == 1 ? -1 : 1;
    return oq_tensor_set_typed_i(a, *out, v, rank, err);
}
