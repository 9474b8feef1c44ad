/*
 * decode.c — bytes to messages: one loop over the rows of schema.def.
 *
 * Strings, raw data and packed values alias the input; only structs and pointer arrays are made, in
 * the arena. A field of a known number but another wire type is kept as unknown, as protobuf does;
 * a singular message that comes twice is merged; the last of a oneof wins. Depth is limited; memory
 * is limited by the arena's limit, which oq_model_open sets to a multiple of the file's size.
 */
#include "base/limits.h"
#include "onnx/codec/schema.h"
#include "onnx/codec/wire.h"

typedef struct frame {
    oq_arena *arena;
    const oq_schema *schema;
    uint8_t *msg;
    oq_wire w;
    unsigned depth;
} frame;

static onq_code decode_message(oq_arena *arena, const oq_schema *s, oq_wire w, void *msg,
                               unsigned depth, onq_error *err);

static onq_code no_room(const frame *f, onq_error *err) {
    if (f->arena->limited)
        return oq_fail_at(err, ONQ_E_LIMIT, oq_wire_at(&f->w),
                          "more messages than a file of this size may hold");
    return oq_fail_nomem(err);
}

static const oq_field *find_field(const oq_schema *s, uint32_t number, unsigned *hint) {
    const unsigned n = s->n_fields;
    for (unsigned k = 0; k < n; k++) {
        const unsigned i = *hint + k < n ? *hint + k : *hint + k - n;
        if (s->fields[i].number == number) {
            *hint = i;
            return &s->fields[i];
        }
    }
    return NULL;
}

/* Wire types a field may come in: bit by wire type. */
static unsigned wires_of(uint8_t kind) {
    switch ((oq_kind)kind) {
    case OQ_K_I64:
    case OQ_K_I32:
        return 1u << OQ_WIRE_VARINT;
    case OQ_K_F32:
        return 1u << OQ_WIRE_4;
    case OQ_K_I64S:
    case OQ_K_PV:
        return 1u << OQ_WIRE_VARINT | 1u << OQ_WIRE_BYTES;
    case OQ_K_F32S:
    case OQ_K_P4:
        return 1u << OQ_WIRE_4 | 1u << OQ_WIRE_BYTES;
    case OQ_K_P8:
        return 1u << OQ_WIRE_8 | 1u << OQ_WIRE_BYTES;
    default:
        return 1u << OQ_WIRE_BYTES;
    }
}

/* Members of a oneof exclude each other: forget the others. */
static void clear_oneof(const frame *f, const oq_field *keep) {
    for (unsigned i = 0; i < f->schema->n_fields; i++) {
        const oq_field *o = &f->schema->fields[i];
        if (o->group != keep->group || o == keep)
            continue;
        void *at = f->msg + o->offset;
        switch ((oq_kind)o->kind) {
        case OQ_K_MSG:
            *(void **)at = NULL;
            break;
        case OQ_K_STR:
            *(oq_str *)at = (oq_str){0};
            break;
        default:
            assert(o->kind == OQ_K_I64);
            *(oq_opt_i64 *)at = (oq_opt_i64){0};
        }
    }
}

static onq_code keep_unknown(frame *f, const uint8_t *from, onq_error *err) {
    const uint64_t n = (uint64_t)(f->w.p - from);
    oq_msg *m = (oq_msg *)(void *)f->msg;
    oq_unknown *last = m->unknown_last;
    if (last != NULL && last->span.p + last->span.n == from) {
        last->span.n += n;
        return ONQ_OK;
    }
    oq_unknown *u = OQ_NEW(f->arena, oq_unknown);
    if (u == NULL)
        return no_room(f, err);
    u->span = (oq_span){from, n};
    if (last == NULL)
        m->unknown = u;
    else
        last->next = u;
    m->unknown_last = u;
    return ONQ_OK;
}

/* Adds encoded packed bytes; the first piece is a view, further ones are joined in the arena. */
static onq_code add_packed(frame *f, oq_packed *k, const uint8_t *p, uint64_t n, onq_error *err) {
    if (k->p == NULL || k->n == 0) {
        *k = (oq_packed){p, n, 0};
        return ONQ_OK;
    }
    if (k->n + n > k->cap) {
        const uint64_t cap = (k->n + n) * 2;
        uint8_t *v = oq_arena_alloc(f->arena, cap);
        if (v == NULL)
            return no_room(f, err);
        memcpy(v, k->p, k->n);
        k->p = v;
        k->cap = cap;
    }
    if (n != 0)
        memcpy((uint8_t *)(uintptr_t)k->p + k->n, p, n);
    k->n += n;
    return ONQ_OK;
}

static onq_code add_i64s(frame *f, oq_i64s *list, unsigned type, onq_error *err) {
    oq_wire part = f->w;
    if (type == OQ_WIRE_BYTES) {
        uint64_t n = 0;
        const uint8_t *p = NULL;
        OQ_TRY(oq_wire_bytes(&f->w, &p, &n, err));
        part.p = p;
        part.end = p + n;
    }
    do {
        uint64_t v = 0;
        if (type == OQ_WIRE_BYTES && part.p == part.end)
            break;
        OQ_TRY(oq_wire_varint(&part, &v, err));
        if (!OQ_PUSH(f->arena, list, (int64_t)v))
            return no_room(f, err);
    } while (type == OQ_WIRE_BYTES);
    if (type != OQ_WIRE_BYTES)
        f->w.p = part.p;
    return ONQ_OK;
}

static onq_code fixed(frame *f, uint64_t n, const uint8_t **p, onq_error *err) {
    if (n > oq_wire_left(&f->w))
        return oq_fail_at(err, ONQ_E_MALFORMED, oq_wire_at(&f->w), "the file ends inside a number");
    *p = f->w.p;
    f->w.p += n;
    return ONQ_OK;
}

static onq_code add_f32s(frame *f, oq_f32s *list, unsigned type, onq_error *err) {
    const uint8_t *p = NULL;
    uint64_t n = 4;
    const uint64_t at = oq_wire_at(&f->w);
    if (type == OQ_WIRE_BYTES)
        OQ_TRY(oq_wire_bytes(&f->w, &p, &n, err));
    else
        OQ_TRY(fixed(f, 4, &p, err));
    if (n % 4 != 0)
        return oq_fail_at(err, ONQ_E_MALFORMED, at,
                          "a packed field of floats has %llu bytes, which is not a multiple of 4",
                          (unsigned long long)n);
    for (uint64_t i = 0; i < n; i += 4) {
        float v;
        memcpy(&v, p + i, 4);
        if (!OQ_PUSH(f->arena, list, v))
            return no_room(f, err);
    }
    return ONQ_OK;
}

static onq_code add_numbers(frame *f, oq_packed *k, const oq_field *fd, unsigned type,
                            onq_error *err) {
    const uint8_t *p = f->w.p;
    uint64_t n = 0;
    if (type == OQ_WIRE_BYTES) {
        const uint64_t at = oq_wire_at(&f->w);
        OQ_TRY(oq_wire_bytes(&f->w, &p, &n, err));
        const unsigned each = fd->kind == OQ_K_P4 ? 4 : fd->kind == OQ_K_P8 ? 8 : 1;
        if (n % each != 0)
            return oq_fail_at(
                err, ONQ_E_MALFORMED, at,
                "a packed field has %llu bytes, which is not a whole number of values",
                (unsigned long long)n);
    } else if (type == OQ_WIRE_VARINT) {
        uint64_t v = 0;
        OQ_TRY(oq_wire_varint(&f->w, &v, err));
        n = (uint64_t)(f->w.p - p);
    } else {
        n = type == OQ_WIRE_4 ? 4 : 8;
        OQ_TRY(fixed(f, n, &p, err));
    }
    return add_packed(f, k, p, n, err);
}

static onq_code sub_message(frame *f, const oq_field *fd, onq_error *err) {
    const oq_schema *s = &oq_schemas[fd->sub];
    const uint8_t *p = NULL;
    uint64_t n = 0;
    const uint64_t at = oq_wire_at(&f->w);
    OQ_TRY(oq_wire_bytes(&f->w, &p, &n, err));
    if (f->depth == OQ_MAX_MESSAGE_DEPTH)
        return oq_fail_at(err, ONQ_E_LIMIT, at, "messages are nested deeper than %d",
                          OQ_MAX_MESSAGE_DEPTH);
    void *slot = f->msg + fd->offset;
    void *sub = fd->kind == OQ_K_MSG ? *(void **)slot : NULL;
    if (sub == NULL) {
        sub = oq_arena_alloc(f->arena, s->size);
        if (sub == NULL)
            return no_room(f, err);
        ((oq_msg *)sub)->at = at;
        if (fd->kind == OQ_K_MSG) {
            *(void **)slot = sub;
        } else {
            OQ_VEC(void *) *list = slot;
            if (!OQ_PUSH(f->arena, list, sub))
                return no_room(f, err);
        }
    }
    const oq_wire w = {p, p + n, f->w.start, f->w.base};
    return decode_message(f->arena, s, w, sub, f->depth + 1, err);
}

static onq_code decode_field(frame *f, const oq_field *fd, unsigned type, onq_error *err) {
    void *at = f->msg + fd->offset;
    const uint8_t *p = NULL;
    uint64_t n = 0;
    switch ((oq_kind)fd->kind) {
    case OQ_K_I64:
        OQ_TRY(oq_wire_varint(&f->w, &n, err));
        *(oq_opt_i64 *)at = OQ_I64((int64_t)n);
        return ONQ_OK;
    case OQ_K_I32:
        OQ_TRY(oq_wire_varint(&f->w, &n, err));
        *(oq_opt_i32 *)at = OQ_I32((int32_t)(uint32_t)n);
        return ONQ_OK;
    case OQ_K_F32: {
        float v;
        OQ_TRY(fixed(f, 4, &p, err));
        memcpy(&v, p, 4);
        *(oq_opt_f32 *)at = OQ_F32(v);
        return ONQ_OK;
    }
    case OQ_K_STR:
        OQ_TRY(oq_wire_bytes(&f->w, &p, &n, err));
        *(oq_str *)at = (oq_str){(const char *)p, n};
        return ONQ_OK;
    case OQ_K_STRS:
        OQ_TRY(oq_wire_bytes(&f->w, &p, &n, err));
        return OQ_PUSH(f->arena, (oq_strs *)at, (oq_str){(const char *)p, n}) ? ONQ_OK
                                                                              : no_room(f, err);
    case OQ_K_I64S:
        return add_i64s(f, at, type, err);
    case OQ_K_F32S:
        return add_f32s(f, at, type, err);
    case OQ_K_PV:
    case OQ_K_P4:
    case OQ_K_P8:
        return add_numbers(f, at, fd, type, err);
    case OQ_K_PAY:
        OQ_TRY(oq_wire_bytes(&f->w, &p, &n, err));
        *(oq_payload *)at = (oq_payload){.p = p, .n = n, .present = true};
        return ONQ_OK;
    case OQ_K_MSG:
    case OQ_K_MSGS:
        return sub_message(f, fd, err);
    }
    return ONQ_E_INTERNAL;
}

static onq_code decode_message(oq_arena *arena, const oq_schema *s, oq_wire w, void *msg,
                               unsigned depth, onq_error *err) {
    frame f = {arena, s, msg, w, depth};
    unsigned hint = 0;
    while (f.w.p < f.w.end) {
        const uint8_t *from = f.w.p;
        uint32_t number = 0;
        unsigned type = 0;
        OQ_TRY(oq_wire_tag(&f.w, &number, &type, err));
        const oq_field *fd = find_field(s, number, &hint);
        onq_code rc;
        if (fd == NULL || (wires_of(fd->kind) & 1u << type) == 0) {
            rc = oq_wire_skip(&f.w, number, type, err);
            if (rc == ONQ_OK)
                rc = keep_unknown(&f, from, err);
        } else {
            if (fd->group != 0)
                clear_oneof(&f, fd);
            rc = decode_field(&f, fd, type, err);
        }
        if (rc != ONQ_OK)
            return rc;
    }
    return ONQ_OK;
}

/* Merges into an existing message, as protobuf does. */
static onq_code decode_into(oq_arena *arena, oq_schema_id id, const uint8_t *p, uint64_t n,
                            uint64_t base, void *msg, onq_error *err) {
    const oq_wire w = {p, p + n, p, base};
    return decode_message(arena, &oq_schemas[id], w, msg, 0, err);
}

onq_code oq_decode(oq_arena *arena, oq_schema_id id, const uint8_t *p, uint64_t n, uint64_t base,
                   void **out, onq_error *err) {
    void *msg = oq_arena_alloc(arena, oq_schemas[id].size);
    OQ_TRY_ALLOC(msg != NULL, err);
    ((oq_msg *)msg)->at = base;
    OQ_TRY(decode_into(arena, id, p, n, base, msg, err));
    *out = msg;
    return ONQ_OK;
}
