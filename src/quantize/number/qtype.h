/*
 * qtype.h — the element types a tensor can be quantized to, as a table.
 *
 * A quantized type is named by its oq_dtype (OQ_INT8, OQ_UINT4, ...); this table adds what only a
 * quantizer needs: the names users write, and the three integer ranges of the reference
 * (quant_utils.ONNX_INT_TYPE_RANGE, _SYMMETRIC_RANGE, _REDUCED_RANGE).
 */
#pragma once

#include "onnx/dtype.h"

typedef struct oq_qrange {
    int32_t min, max;
} oq_qrange;

typedef struct oq_qtype_info {
    const char *name; /* "QInt8", as the reference's QuantType */
    oq_dtype dtype;
    oq_qrange full;      /* everything the type holds */
    oq_qrange symmetric; /* the same unless the type is signed and 8 or 16 bits wide */
    oq_qrange reduced;   /* one bit less */
    bool is_signed;
    bool is_float; /* float 8: no integer ranges, no zero point */
} oq_qtype_info;

/* NULL for a type that is not a quantized type. */
const oq_qtype_info *oq_qtype_find(oq_dtype dt);
/* By name: qint8, int8, QInt8, ... in any case. False for an unknown name. */
bool oq_qtype_parse(oq_str name, oq_dtype *out);
/* "QInt8", or the dtype's own name. Never NULL. */
const char *oq_qtype_name(oq_dtype dt);
/* The names that oq_qtype_parse takes, for messages: "qint8 quint8 ...". */
const char *oq_qtype_names(void);

/* get_qmin_qmax_for_qType: reduced wins over symmetric. Integer types only. */
oq_qrange oq_qtype_range(oq_dtype dt, bool reduced, bool symmetric);

static inline bool oq_qtype_is_4bit(oq_dtype dt) {
    return dt == OQ_INT4 || dt == OQ_UINT4;
}
static inline bool oq_qtype_is_16bit(oq_dtype dt) {
    return dt == OQ_INT16 || dt == OQ_UINT16;
}
/* Pairs of ONNX have these types from opset 21 on, and integer operators do not have them. */
static inline bool oq_qtype_is_16_or_4bit(oq_dtype dt) {
    return oq_qtype_is_16bit(dt) || oq_qtype_is_4bit(dt);
}
