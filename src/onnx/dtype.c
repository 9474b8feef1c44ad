/*
 * dtype.c — the table of element types, made from dtype.def.
 */
#include "onnx/dtype.h"

#include "base/alloc.h"

static const oq_dtype_info dtypes[OQ_DTYPE_COUNT] = {
#define OQ_DTYPE(number, NAME, bits, class) [number] = {#NAME, bits, OQ_CLASS_##class},
#include "onnx/dtype.def"
#undef OQ_DTYPE
};

const oq_dtype_info *oq_dtype_find(int64_t number) {
    if (number <= 0 || number >= OQ_DTYPE_COUNT)
        return NULL;
    return &dtypes[number];
}

const char *oq_dtype_name(int64_t number) {
    if (number == OQ_UNDEFINED)
        return "UNDEFINED";
    const oq_dtype_info *info = oq_dtype_find(number);
    return info != NULL ? info->name : "unknown type";
}

bool oq_dtype_is_float(int64_t number) {
    return number == OQ_FLOAT || number == OQ_FLOAT16 || number == OQ_BFLOAT16 ||
           number == OQ_DOUBLE;
}

bool oq_dtype_bytes(int64_t number, uint64_t count, uint64_t *out) {
    const oq_dtype_info *info = oq_dtype_find(number);
    if (info == NULL || info->bits == 0)
        return false;
    if (info->bits >= 8)
        return oq_mul(count, info->bits / 8, out);
    /* Eight elements fill `bits` whole bytes; the last byte is zero-filled. */
    *out = count / 8 * info->bits + (count % 8 * info->bits + 7) / 8;
    return true;
}
