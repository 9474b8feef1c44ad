/*
 * wire.c — the reader half of protobuf's wire format.
 */
#include "onnx/codec/wire.h"

#include "base/limits.h"

onq_code oq_wire_varint(oq_wire *w, uint64_t *out, onq_error *err) {
    if (OQ_LIKELY(w->p < w->end && *w->p < 128)) {
        *out = *w->p++;
        return ONQ_OK;
    }
    const uint64_t at = oq_wire_at(w);
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (w->p == w->end)
            return oq_fail_at(err, ONQ_E_MALFORMED, at, "the file ends inside a number");
        const uint8_t b = *w->p++;
        if (shift == 63 && b > 1 && b < 128)
            return oq_fail_at(err, ONQ_E_MALFORMED, at, "a number has more than 64 bits");
        v |= (uint64_t)(b & 127) << shift;
        if (b < 128) {
            *out = v;
            return ONQ_OK;
        }
    }
    return oq_fail_at(err, ONQ_E_MALFORMED, at, "a number is longer than ten bytes");
}

onq_code oq_wire_tag(oq_wire *w, uint32_t *number, unsigned *type, onq_error *err) {
    const uint64_t at = oq_wire_at(w);
    uint64_t tag = 0;
    OQ_TRY(oq_wire_varint(w, &tag, err));
    if (tag > UINT32_MAX || tag >> 3 == 0)
        return oq_fail_at(err, ONQ_E_MALFORMED, at, "no field has the number %llu",
                          (unsigned long long)(tag >> 3));
    *type = (unsigned)(tag & 7);
    *number = (uint32_t)(tag >> 3);
    if (*type > OQ_WIRE_4)
        return oq_fail_at(err, ONQ_E_MALFORMED, at, "field %u has the unknown wire type %u",
                          *number, *type);
    return ONQ_OK;
}

onq_code oq_wire_bytes(oq_wire *w, const uint8_t **p, uint64_t *n, onq_error *err) {
    const uint64_t at = oq_wire_at(w);
    OQ_TRY(oq_wire_varint(w, n, err));
    if (*n > oq_wire_left(w))
        return oq_fail_at(
            err, ONQ_E_MALFORMED, at,
            "a length of %llu bytes goes past the end (%llu left); the file may be cut short",
            (unsigned long long)*n, (unsigned long long)oq_wire_left(w));
    *p = w->p;
    w->p += *n;
    return ONQ_OK;
}

static onq_code skip_fixed(oq_wire *w, uint64_t n, onq_error *err) {
    if (n > oq_wire_left(w))
        return oq_fail_at(err, ONQ_E_MALFORMED, oq_wire_at(w), "the file ends inside a number");
    w->p += n;
    return ONQ_OK;
}

onq_code oq_wire_skip(oq_wire *w, uint32_t number, unsigned type, onq_error *err) {
    uint32_t open[OQ_MAX_GROUP_DEPTH];
    unsigned depth = 0;
    for (;;) {
        uint64_t n = 0;
        const uint8_t *p = NULL;
        switch (type) {
        case OQ_WIRE_VARINT:
            OQ_TRY(oq_wire_varint(w, &n, err));
            break;
        case OQ_WIRE_8:
            OQ_TRY(skip_fixed(w, 8, err));
            break;
        case OQ_WIRE_4:
            OQ_TRY(skip_fixed(w, 4, err));
            break;
        case OQ_WIRE_BYTES:
            OQ_TRY(oq_wire_bytes(w, &p, &n, err));
            break;
        case OQ_WIRE_GROUP:
            if (depth == OQ_MAX_GROUP_DEPTH)
                return oq_fail_at(err, ONQ_E_MALFORMED, oq_wire_at(w),
                                  "groups are nested deeper than %d", OQ_MAX_GROUP_DEPTH);
            open[depth++] = number;
            break;
        default: /* OQ_WIRE_END */
            if (depth == 0 || open[depth - 1] != number)
                return oq_fail_at(err, ONQ_E_MALFORMED, oq_wire_at(w),
                                  "the end of a group that was not begun");
            depth--;
        }
        if (depth == 0)
            return ONQ_OK;
        OQ_TRY(oq_wire_tag(w, &number, &type, err));
    }
}
