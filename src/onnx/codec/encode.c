/*
 * encode.c — messages to bytes: sizes first, then pieces in order.
 *
 * Fields go out in the order of their numbers, unknown ones after them, as protobuf's own writers
 * do. Small fields gather in blocks; a large payload stays where it is and becomes a piece of its
 * own (a view of a mapping, or a producer to be run later), so encoding a 2 GB model costs its
 * graph.
 */
#include "onnx/codec/schema.h"
#include "onnx/codec/wire.h"

/* Payloads from this size on are pieces of their own. */
#define MIN_PIECE   4096
#define BLOCK_BYTES 65536

static unsigned tag_size(const oq_field *f) {
    return f->number < 16 ? 1 : 2;
}

static uint64_t bytes_size(const oq_field *f, uint64_t n) {
    return tag_size(f) + oq_varint_size(n) + n;
}

static uint64_t i32_wide(int32_t v) {
    return (uint64_t)(int64_t)v;
}

static uint64_t field_size(const oq_field *f, void *at) {
    uint64_t total = 0;
    switch ((oq_kind)f->kind) {
    case OQ_K_I64: {
        const oq_opt_i64 *x = at;
        return x->has ? tag_size(f) + oq_varint_size((uint64_t)x->v) : 0;
    }
    case OQ_K_I32: {
        const oq_opt_i32 *x = at;
        return x->has ? tag_size(f) + oq_varint_size(i32_wide(x->v)) : 0;
    }
    case OQ_K_F32:
        return ((const oq_opt_f32 *)at)->has ? tag_size(f) + 4u : 0;
    case OQ_K_STR: {
        const oq_str *s = at;
        return s->p != NULL ? bytes_size(f, s->n) : 0;
    }
    case OQ_K_STRS: {
        const oq_strs *l = at;
        for (size_t i = 0; i < l->n; i++)
            total += bytes_size(f, l->v[i].n);
        return total;
    }
    case OQ_K_I64S: {
        const oq_i64s *l = at;
        for (size_t i = 0; i < l->n; i++)
            total += tag_size(f) + oq_varint_size((uint64_t)l->v[i]);
        return total;
    }
    case OQ_K_F32S:
        return ((const oq_f32s *)at)->n * (tag_size(f) + 4u);
    case OQ_K_PV:
    case OQ_K_P4:
    case OQ_K_P8: {
        const oq_packed *k = at;
        return k->n != 0 ? bytes_size(f, k->n) : 0;
    }
    case OQ_K_PAY: {
        const oq_payload *p = at;
        return p->present ? bytes_size(f, p->n) : 0;
    }
    case OQ_K_MSG: {
        void *sub = *(void **)at;
        return sub != NULL ? bytes_size(f, oq_encode_size(f->sub, sub)) : 0;
    }
    case OQ_K_MSGS: {
        const OQ_VEC(void *) *l = at;
        for (size_t i = 0; i < l->n; i++)
            total += bytes_size(f, oq_encode_size(f->sub, l->v[i]));
        return total;
    }
    }
    return 0;
}

uint64_t oq_encode_size(oq_schema_id id, void *msg) {
    const oq_schema *s = &oq_schemas[id];
    oq_msg *m = msg;
    uint64_t total = 0;
    for (unsigned i = 0; i < s->n_fields; i++)
        total += field_size(&s->fields[i], (uint8_t *)msg + s->fields[i].offset);
    for (const oq_unknown *u = m->unknown; u != NULL; u = u->next)
        total += u->span.n;
    m->size = total;
    return total;
}

/* Closes the block of gathered bytes: what follows is a piece of its own. */
static void close_block(oq_pieces *o) {
    if (o->open_n != 0 && !o->failed) {
        if (!OQ_PUSH(o->arena, &o->list, (oq_piece){.p = o->open, .n = o->open_n}))
            o->failed = true;
        o->open += o->open_n;
        o->open_cap -= o->open_n;
        o->open_n = 0;
    }
}

/* Room for n more gathered bytes (n small); NULL when out of memory. */
static uint8_t *room(oq_pieces *o, size_t n) {
    if (o->open_cap - o->open_n < n) {
        close_block(o);
        o->open = oq_arena_alloc(o->arena, BLOCK_BYTES > n ? BLOCK_BYTES : n);
        o->open_cap = BLOCK_BYTES > n ? BLOCK_BYTES : n;
        if (o->open == NULL) {
            o->open_cap = 0;
            o->failed = true;
        }
    }
    return o->failed ? NULL : o->open + o->open_n;
}

static void put_varint(oq_pieces *o, uint64_t v) {
    uint8_t *p = room(o, 10);
    if (p != NULL)
        o->open_n += (size_t)(oq_varint_put(p, v) - p);
}

static void put_tag(oq_pieces *o, const oq_field *f, unsigned type) {
    put_varint(o, (uint64_t)f->number << 3 | type);
}

static void put_memory(oq_pieces *o, const void *p, uint64_t n) {
    if (n >= MIN_PIECE) {
        close_block(o);
        if (!o->failed && !OQ_PUSH(o->arena, &o->list, (oq_piece){.p = p, .n = n}))
            o->failed = true;
    } else if (n != 0) {
        uint8_t *to = room(o, n);
        if (to != NULL) {
            memcpy(to, p, n);
            o->open_n += n;
        }
    }
}

static void put_bytes(oq_pieces *o, const oq_field *f, const void *p, uint64_t n) {
    put_tag(o, f, OQ_WIRE_BYTES);
    put_varint(o, n);
    put_memory(o, p, n);
}

static void put_fixed4(oq_pieces *o, const oq_field *f, float v) {
    put_tag(o, f, OQ_WIRE_4);
    put_memory(o, &v, 4);
}

static void put_payload(oq_pieces *o, const oq_field *f, const oq_payload *p) {
    if (p->producer == NULL) {
        put_bytes(o, f, p->p, p->n);
        return;
    }
    put_tag(o, f, OQ_WIRE_BYTES);
    put_varint(o, p->n);
    close_block(o);
    if (!o->failed && !OQ_PUSH(o->arena, &o->list, (oq_piece){.n = p->n, .producer = p->producer}))
        o->failed = true;
}

static void put_message(oq_pieces *o, oq_schema_id id, const void *msg);

static void put_sub(oq_pieces *o, const oq_field *f, const void *sub) {
    put_tag(o, f, OQ_WIRE_BYTES);
    put_varint(o, ((const oq_msg *)sub)->size);
    put_message(o, f->sub, sub);
}

static void put_field(oq_pieces *o, const oq_field *f, const void *at) {
    switch ((oq_kind)f->kind) {
    case OQ_K_I64: {
        const oq_opt_i64 *x = at;
        if (x->has) {
            put_tag(o, f, OQ_WIRE_VARINT);
            put_varint(o, (uint64_t)x->v);
        }
        return;
    }
    case OQ_K_I32: {
        const oq_opt_i32 *x = at;
        if (x->has) {
            put_tag(o, f, OQ_WIRE_VARINT);
            put_varint(o, i32_wide(x->v));
        }
        return;
    }
    case OQ_K_F32: {
        const oq_opt_f32 *x = at;
        if (x->has)
            put_fixed4(o, f, x->v);
        return;
    }
    case OQ_K_STR: {
        const oq_str *s = at;
        if (s->p != NULL)
            put_bytes(o, f, s->p, s->n);
        return;
    }
    case OQ_K_STRS: {
        const oq_strs *l = at;
        for (size_t i = 0; i < l->n; i++)
            put_bytes(o, f, l->v[i].p, l->v[i].n);
        return;
    }
    case OQ_K_I64S: {
        const oq_i64s *l = at;
        for (size_t i = 0; i < l->n; i++) {
            put_tag(o, f, OQ_WIRE_VARINT);
            put_varint(o, (uint64_t)l->v[i]);
        }
        return;
    }
    case OQ_K_F32S: {
        const oq_f32s *l = at;
        for (size_t i = 0; i < l->n; i++)
            put_fixed4(o, f, l->v[i]);
        return;
    }
    case OQ_K_PV:
    case OQ_K_P4:
    case OQ_K_P8: {
        const oq_packed *k = at;
        if (k->n != 0)
            put_bytes(o, f, k->p, k->n);
        return;
    }
    case OQ_K_PAY: {
        const oq_payload *p = at;
        if (p->present)
            put_payload(o, f, p);
        return;
    }
    case OQ_K_MSG: {
        const void *sub = *(void *const *)at;
        if (sub != NULL)
            put_sub(o, f, sub);
        return;
    }
    case OQ_K_MSGS: {
        const OQ_VEC(void *) *l = at;
        for (size_t i = 0; i < l->n; i++)
            put_sub(o, f, l->v[i]);
        return;
    }
    }
}

static void put_message(oq_pieces *o, oq_schema_id id, const void *msg) {
    const oq_schema *s = &oq_schemas[id];
    for (unsigned i = 0; i < s->n_fields && !o->failed; i++)
        put_field(o, &s->fields[i], (const uint8_t *)msg + s->fields[i].offset);
    for (const oq_unknown *u = ((const oq_msg *)msg)->unknown; u != NULL; u = u->next)
        put_memory(o, u->span.p, u->span.n);
}

onq_code oq_encode(oq_pieces *out, oq_schema_id id, const void *msg, onq_error *err) {
    put_message(out, id, msg);
    close_block(out);
    out->total += ((const oq_msg *)msg)->size;
    return out->failed ? oq_fail_nomem(err) : ONQ_OK;
}
