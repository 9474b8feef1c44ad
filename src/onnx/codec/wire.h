/*
 * wire.h — protobuf's wire format: varints, tags, spans.
 *
 * The reader never computes p + length: a length is compared with the bytes that remain. Varints
 * are at most ten bytes, field number 0 and wire types 6 and 7 are refused.
 */
#pragma once

#include "base/err.h"
#include "base/port.h"

enum {
    OQ_WIRE_VARINT = 0,
    OQ_WIRE_8 = 1,
    OQ_WIRE_BYTES = 2,
    OQ_WIRE_GROUP = 3,
    OQ_WIRE_END = 4,
    OQ_WIRE_4 = 5
};

/* Unread bytes [p, end) and what to add to p - start to name a byte of the file. */
typedef struct oq_wire {
    const uint8_t *p, *end, *start;
    uint64_t base;
} oq_wire;

static inline uint64_t oq_wire_at(const oq_wire *w) {
    return w->base + (uint64_t)(w->p - w->start);
}
static inline uint64_t oq_wire_left(const oq_wire *w) {
    return (uint64_t)(w->end - w->p);
}

/* Each moves past what it read; an error names the byte where it began. */
onq_code oq_wire_varint(oq_wire *w, uint64_t *out, onq_error *err);
onq_code oq_wire_tag(oq_wire *w, uint32_t *number, unsigned *type, onq_error *err);
/* A length and that many bytes. */
onq_code oq_wire_bytes(oq_wire *w, const uint8_t **p, uint64_t *n, onq_error *err);
/* Past the value of a field of wire type `type`; groups are skipped to their end, at most 100
 * deep. */
onq_code oq_wire_skip(oq_wire *w, uint32_t number, unsigned type, onq_error *err);

static inline unsigned oq_varint_size(uint64_t v) {
    return v < 128 ? 1 : (unsigned)((70 - __builtin_clzll(v)) / 7);
}
/* Writes and returns the end. */
static inline uint8_t *oq_varint_put(uint8_t *p, uint64_t v) {
    while (v >= 128) {
        *p++ = (uint8_t)(v | 128);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}
