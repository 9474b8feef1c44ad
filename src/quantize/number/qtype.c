/*
 * qtype.c — the table of qtype.h.
 */
#include "quantize/number/qtype.h"

#include <ctype.h>

static const oq_qtype_info types[] = {
    {"QInt8", OQ_INT8, {-128, 127}, {-127, 127}, {-64, 64}, true, false},
    {"QUInt8", OQ_UINT8, {0, 255}, {0, 255}, {0, 127}, false, false},
    {"QFLOAT8E4M3FN", OQ_FLOAT8E4M3FN, {0, 0}, {0, 0}, {0, 0}, true, true},
    {"QInt16", OQ_INT16, {-32768, 32767}, {-32767, 32767}, {-16384, 16384}, true, false},
    {"QUInt16", OQ_UINT16, {0, 65535}, {0, 65535}, {0, 32767}, false, false},
    {"QInt4", OQ_INT4, {-8, 7}, {-8, 7}, {-4, 3}, true, false},
    {"QUInt4", OQ_UINT4, {0, 15}, {0, 15}, {0, 7}, false, false},
};

const oq_qtype_info *oq_qtype_find(oq_dtype dt) {
    for (size_t i = 0; i < OQ_COUNT(types); i++)
        if (types[i].dtype == dt)
            return &types[i];
    return NULL;
}

/* Equal but for case. */
static bool same(oq_str s, const char *c) {
    if (s.n != strlen(c))
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (tolower((unsigned char)s.p[i]) != tolower((unsigned char)c[i]))
            return false;
    return true;
}

bool oq_qtype_parse(oq_str name, oq_dtype *out) {
    static const char class[] = "QuantType.";
    if (oq_str_starts(name, oq_str_of(class)))
        name = (oq_str){name.p + strlen(class), name.n - strlen(class)};
    for (size_t i = 0; i < OQ_COUNT(types); i++) {
        if (same(name, types[i].name) || same(name, types[i].name + 1)) {
            *out = types[i].dtype;
            return true;
        }
    }
    return false;
}

const char *oq_qtype_name(oq_dtype dt) {
    const oq_qtype_info *t = oq_qtype_find(dt);
    return t != NULL ? t->name : oq_dtype_name((int64_t)dt);
}

const char *oq_qtype_names(void) {
    return "qint8 quint8 qint16 quint16 qint4 quint4 qfloat8e4m3fn";
}

oq_qrange oq_qtype_range(oq_dtype dt, bool reduced, bool symmetric) {
    const oq_qtype_info *t = oq_qtype_find(dt);
    assert(t != NULL && !t->is_float);
    if (reduced)
        return t->reduced;
    return symmetric ? t->symmetric : t->full;
}
