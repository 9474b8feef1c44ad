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

static uint64_t i32_wide(int32_t v) {
    return (uint64_t)(int64_t)v;
}

/* Where a message goes: into pieces, or nowhere, to learn its size. */
typedef struct sink {
    oq_pieces *out; /* NULL: nowhere */
    uint64_t size;  /* of what went nowhere */
} sink;

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

static void put_varint(sink *to, uint64_t v) {
    oq_pieces *o = to->out;
    uint8_t *p = o != NULL ? room(o, 10) : NULL;
    if (o == NULL)
        to->size += oq_varint_size(v);
    else if (p != NULL)
        o->open_n += (size_t)(oq_varint_put(p, v) - p);
}

static void put_tag(sink *to, const oq_field *f, unsigned type) {
    put_varint(to, (uint64_t)f->number << 3 | type);
}

static void put_piece(oq_pieces *o, oq_piece piece) {
    close_block(o);
    if (!o->failed && !OQ_PUSH(o->arena, &o->list, piece))
        o->failed = true;
}

static void put_memory(sink *to, const void *p, uint64_t n) {
    oq_pieces *o = to->out;
    if (o == NULL) {
        to->size += n;
    } else if (n >= MIN_PIECE) {
        put_piece(o, (oq_piece){.p = p, .n = n});
    } else if (n != 0) {
        uint8_t *at = room(o, n);
        if (at != NULL) {
            memcpy(at, p, n);
            o->open_n += n;
        }
    }
}

static void put_bytes(sink *to, const oq_field *f, const void *p, uint64_t n) {
    put_tag(to, f, OQ_WIRE_BYTES);
    put_varint(to, n);
    put_memory(to, p, n);
}

static void put_number(sink *to, const oq_field *f, uint64_t v) {
    put_tag(to, f, OQ_WIRE_VARINT);
    put_varint(to, v);
}

static void put_fixed4(sink *to, const oq_field *f, float v) {
    put_tag(to, f, OQ_WIRE_4);
    put_memory(to, &v, 4);
}

static void put_payload(sink *to, const oq_field *f, const oq_payload *p) {
    if (p->producer == NULL || to->out == NULL) {
        put_bytes(to, f, p->p, p->n);
        return;
    }
    put_tag(to, f, OQ_WIRE_BYTES);
    put_varint(to, p->n);
    put_piece(to->out, (oq_piece){.n = p->n, .producer = p->producer});
}

static void put_message(sink *to, oq_schema_id id, const void *msg);

static void put_sub(sink *to, const oq_field *f, void *sub) {
    const uint64_t size = to->out == NULL ? oq_encode_size(f->sub, sub) : ((oq_msg *)sub)->size;
    put_tag(to, f, OQ_WIRE_BYTES);
    put_varint(to, size);
    if (to->out == NULL)
        to->size += size;
    else
        put_message(to, f->sub, sub);
}

/* Those that hold several values. */
static void put_list(sink *to, const oq_field *f, const void *at) {
    const oq_strs *strs = at;
    const oq_i64s *whole = at;
    const oq_f32s *real = at;
    const OQ_VEC(void *) *subs = at;
    switch ((oq_kind)f->kind) {
    case OQ_K_STRS:
        for (size_t i = 0; i < strs->n; i++)
            put_bytes(to, f, strs->v[i].p, strs->v[i].n);
        return;
    case OQ_K_I64S:
        for (size_t i = 0; i < whole->n; i++)
            put_number(to, f, (uint64_t)whole->v[i]);
        return;
    case OQ_K_F32S:
        for (size_t i = 0; i < real->n; i++)
            put_fixed4(to, f, real->v[i]);
        return;
    case OQ_K_MSGS:
        for (size_t i = 0; i < subs->n; i++)
            put_sub(to, f, subs->v[i]);
        return;
    default:
        assert(false);
    }
}

static void put_field(sink *to, const oq_field *f, const void *at) {
    const oq_opt_i64 *whole = at;
    const oq_opt_i32 *narrow = at;
    const oq_opt_f32 *real = at;
    const oq_str *str = at;
    const oq_packed *packed = at;
    const oq_payload *payload = at;
    void *const *sub = at;
    switch ((oq_kind)f->kind) {
    case OQ_K_I64:
        if (whole->has)
            put_number(to, f, (uint64_t)whole->v);
        return;
    case OQ_K_I32:
        if (narrow->has)
            put_number(to, f, i32_wide(narrow->v));
        return;
    case OQ_K_F32:
        if (real->has)
            put_fixed4(to, f, real->v);
        return;
    case OQ_K_STR:
        if (str->p != NULL)
            put_bytes(to, f, str->p, str->n);
        return;
    case OQ_K_PV:
    case OQ_K_P4:
    case OQ_K_P8:
        if (packed->n != 0)
            put_bytes(to, f, packed->p, packed->n);
        return;
    case OQ_K_PAY:
        if (payload->present)
            put_payload(to, f, payload);
        return;
    case OQ_K_MSG:
        if (*sub != NULL)
            put_sub(to, f, *sub);
        return;
    case OQ_K_STRS:
    case OQ_K_I64S:
    case OQ_K_F32S:
    case OQ_K_MSGS:
        put_list(to, f, at);
    }
}

static void put_message(sink *to, oq_schema_id id, const void *msg) {
    const oq_schema *s = &oq_schemas[id];
    for (unsigned i = 0; i < s->n_fields && (to->out == NULL || !to->out->failed); i++)
        put_field(to, &s->fields[i], (const uint8_t *)msg + s->fields[i].offset);
    for (const oq_unknown *u = ((const oq_msg *)msg)->unknown; u != NULL; u = u->next)
        put_memory(to, u->span.p, u->span.n);
}

uint64_t oq_encode_size(oq_schema_id id, void *msg) {
    assert(id < OQ_SCHEMA_COUNT && msg != NULL);
    sink to = {0};
    put_message(&to, id, msg);
    ((oq_msg *)msg)->size = to.size;
    return to.size;
}

onq_code oq_encode(oq_pieces *out, oq_schema_id id, const void *msg, onq_error *err) {
    put_message(&(sink){.out = out}, id, msg);
    close_block(out);
    out->total += ((const oq_msg *)msg)->size;
    return out->failed ? oq_fail_nomem(err) : ONQ_OK;
}
