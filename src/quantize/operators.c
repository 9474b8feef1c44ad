/*
 * operators.c — the table made from operators.def.
 */
#include "quantize/operators.h"

#define Q   OQ_QMODE_QDQ
#define L   OQ_QMODE_QLINEAR
#define I   OQ_QMODE_INTEGER
#define A   OQ_QMODE_ASKED
#define QL  (Q | L)
#define LI  (L | I)
#define QLI (Q | L | I)

static const oq_qop_row rows[] = {
#define OQ_QOP(domain, type, modes, rule) {domain, type, modes, &oq_qrule_##rule},
#include "quantize/operators.def"
#undef OQ_QOP
};

size_t oq_qop_count(void) {
    return OQ_COUNT(rows);
}

const oq_qop_row *oq_qop_at(size_t i) {
    return i < OQ_COUNT(rows) ? &rows[i] : NULL;
}

const oq_qop_row *oq_qop_find(oq_str type) {
    size_t low = 0, high = OQ_COUNT(rows);
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = oq_str_cmp(oq_str_of(rows[middle].type), type);
        if (order == 0)
            return &rows[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const oq_qop_row *oq_qop_find_in(oq_str type, unsigned modes) {
    const oq_qop_row *row = oq_qop_find(type);
    return row != NULL && (row->modes & modes) != 0 ? row : NULL;
}
