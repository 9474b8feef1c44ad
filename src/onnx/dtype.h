/*
 * dtype.h — element types as a table: a new type is one row of dtype.def.
 */
#pragma once

#include "base/str.h"

typedef enum oq_dtype {
    OQ_UNDEFINED = 0,
#define OQ_DTYPE(number, NAME, bits, class) OQ_##NAME = number,
#include "onnx/dtype.def"
#undef OQ_DTYPE
    OQ_DTYPE_COUNT = 29
} oq_dtype;

typedef enum oq_dclass {
    OQ_CLASS_NONE,
    OQ_CLASS_REAL,
    OQ_CLASS_INT,
    OQ_CLASS_UINT,
    OQ_CLASS_BOOL,
    OQ_CLASS_STRING,
    OQ_CLASS_COMPLEX
} oq_dclass;

typedef struct oq_dtype_info {
    const char *name; /* "FLOAT" */
    unsigned bits;
    oq_dclass cls;
} oq_dtype_info;

/* NULL for a number that is not an element type. */
const oq_dtype_info *oq_dtype_find(int64_t number);
/* "FLOAT", "UNDEFINED" or "unknown type". Never NULL. */
const char *oq_dtype_name(int64_t number);
/* float, float16, bfloat16 or double. */
bool oq_dtype_is_float(int64_t number);
/* Bytes of `count` elements; false on overflow or for strings and unknown types. */
bool oq_dtype_bytes(int64_t number, uint64_t count, uint64_t *out);
