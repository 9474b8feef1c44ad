/*
 * check_tensor.c — checks that a tensor holds what its dims and type say, wherever it is stored.
 *
 * Sizes only: no byte of a payload is read, but for packed varints, which have to be counted.
 */
#include "onnx/check/check_parts.h"
#include "onnx/tensor.h"

/* The typed field that a data type uses, how many values it holds, and how many it should. */
typedef struct typed {
    const char *field;
    uint64_t have, want;
} typed;

/* Counts the numbers in a packed run of varints. No count fits a run that ends inside a number. */
static uint64_t count_varints(const uint8_t *p, uint64_t n) {
    uint64_t count = 0;
    if (n != 0 && p[n - 1] >= 128)
        return UINT64_MAX;
    for (uint64_t i = 0; i < n; i++)
        count += p[i] < 128;
    return count;
}

/* count values of data type dt, in the field that onnx.proto gives to it. False on overflow. */
static bool typed_of(const oq_tensor *t, uint64_t count, typed *out) {
    switch (t->data_type.v) {
    case OQ_FLOAT:
        *out = (typed){"float_data", t->float_data.n / 4, count};
        return true;
    case OQ_COMPLEX64:
        *out = (typed){"float_data", t->float_data.n / 4, 0};
        return oq_mul(count, 2, &out->want);
    case OQ_DOUBLE:
        *out = (typed){"double_data", t->double_data.n / 8, count};
        return true;
    case OQ_COMPLEX128:
        *out = (typed){"double_data", t->double_data.n / 8, 0};
        return oq_mul(count, 2, &out->want);
    case OQ_INT64:
        *out = (typed){"int64_data", count_varints(t->int64_data.p, t->int64_data.n), count};
        return true;
    case OQ_UINT32:
    case OQ_UINT64:
        *out = (typed){"uint64_data", count_varints(t->uint64_data.p, t->uint64_data.n), count};
        return true;
    default:
        break;
    }
    /* The rest is in int32_data: 2- and 4-bit types as packed bytes, the others one by one. */
    *out = (typed){"int32_data", count_varints(t->int32_data.p, t->int32_data.n), count};
    const unsigned bits = oq_dtype_find(t->data_type.v)->bits;
    return (bits != 2 && bits != 4) || oq_dtype_bytes(t->data_type.v, count, &out->want);
}

static onq_code check_strings(const oq_tensor *t, uint64_t count, onq_error *err) {
    if (oq_tensor_is_external(t) || t->raw_data.present)
        return oq_fail(err, ONQ_E_INVALID,
                       "tensor '%.*s' holds strings, which must be in string_data",
                       OQ_STR(t->name));
    if (t->string_data.n != count)
        return oq_fail(err, ONQ_E_INVALID,
                       "tensor '%.*s': it has %zu strings, but its shape needs %llu",
                       OQ_STR(t->name), t->string_data.n, (unsigned long long)count);
    return ONQ_OK;
}

static onq_code check_payload(oq_model *m, oq_tensor *t, uint64_t count, onq_error *err) {
    uint64_t bytes = 0;
    OQ_TRY(oq_tensor_bytes(t, &bytes, err));
    if (oq_tensor_is_external(t)) {
        const oq_file *file = NULL;
        uint64_t offset = 0, length = 0;
        return oq_model_external(m, t, &file, &offset, &length, err);
    }
    if (t->raw_data.present) {
        if (t->raw_data.n != bytes)
            return oq_fail(
                err, ONQ_E_INVALID,
                "tensor '%.*s': its raw data has %llu bytes, but its shape and type (%s) need %llu",
                OQ_STR(t->name), (unsigned long long)t->raw_data.n, oq_dtype_name(t->data_type.v),
                (unsigned long long)bytes);
        return ONQ_OK;
    }
    typed f;
    if (!typed_of(t, count, &f))
        return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s': its size overflows", OQ_STR(t->name));
    if (f.have != f.want)
        return oq_fail(err, ONQ_E_INVALID,
                       "tensor '%.*s': %s holds %llu values, but its shape and type (%s) need %llu",
                       OQ_STR(t->name), f.field, (unsigned long long)f.have,
                       oq_dtype_name(t->data_type.v), (unsigned long long)f.want);
    return ONQ_OK;
}

onq_code oq_check_tensor(void *ctx, oq_tensor *t, bool in_attribute OQ_UNUSED, onq_error *err) {
    oq_check *c = ctx;
    if (t->data_type.v == OQ_UNDEFINED)
        return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s' has no data type", OQ_STR(t->name));
    if (oq_dtype_find(t->data_type.v) == NULL)
        return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s': unknown data type %d", OQ_STR(t->name),
                       (int)t->data_type.v);
    uint64_t count = 0;
    OQ_TRY(oq_tensor_count(t, &count, err));
    return t->data_type.v == OQ_STRING ? check_strings(t, count, err)
                                       : check_payload(c->m, t, count, err);
}
