/*
 * schema.h — the codec's tables, made from schema.def.
 */
#pragma once

#include "onnx/codec/message.h"

typedef enum oq_kind {
    OQ_K_I64,
    OQ_K_I32,
    OQ_K_F32,
    OQ_K_STR,
    OQ_K_STRS,
    OQ_K_I64S,
    OQ_K_F32S,
    OQ_K_PV,
    OQ_K_P4,
    OQ_K_P8,
    OQ_K_PAY,
    OQ_K_MSG,
    OQ_K_MSGS
} oq_kind;

typedef struct oq_field {
    const char *name;
    uint16_t number;
    uint16_t offset;
    uint8_t kind;  /* oq_kind */
    uint8_t sub;   /* MSG, MSGS: oq_schema_id */
    uint8_t group; /* oneof: the same nonzero number for its members */
} oq_field;

typedef struct oq_schema {
    const char *name; /* "NodeProto" */
    const oq_field *fields;
    uint16_t n_fields;
    uint16_t size; /* of the struct */
} oq_schema;

typedef enum oq_schema_id {
#define OQ_MESSAGE(name, proto) OQ_SCHEMA_##name,
#define OQ_F(msg, kind, number, field)
#define OQ_M(msg, kind, number, field, sub)
#define OQ_X(msg, type, field)
#define OQ_END(name)
#include "onnx/codec/schema.def"
    OQ_SCHEMA_COUNT
} oq_schema_id;

extern const oq_schema oq_schemas[OQ_SCHEMA_COUNT];

/* Decodes `n` bytes as message `id` into the arena; views alias the input. `base` is added to byte
 * offsets in errors. */
onq_code oq_decode(oq_arena *arena, oq_schema_id id, const uint8_t *p, uint64_t n, uint64_t base,
                   void **out, onq_error *err);

/* A deep copy of a message into an arena (payload bytes and views are shared, not copied). NULL
 * when out of memory. */
void *oq_message_clone(oq_arena *arena, oq_schema_id id, const void *msg);

/* What the encoder makes: a list of pieces in order. */
typedef struct oq_piece {
    const uint8_t *p; /* memory, or NULL */
    uint64_t n;
    const oq_producer *producer; /* or NULL */
    uint64_t from;               /* the first byte of the producer's that it has */
} oq_piece;

typedef struct oq_pieces {
    oq_arena *arena;
    OQ_VEC(oq_piece) list;
    uint8_t *open; /* small fields gather here */
    size_t open_n, open_cap;
    uint64_t total;
    bool failed;
} oq_pieces;

/* Bytes of a message; caches sizes in it for oq_encode, which must follow with no edit between. */
uint64_t oq_encode_size(oq_schema_id id, void *msg);
/* Appends the message to the pieces. */
onq_code oq_encode(oq_pieces *out, oq_schema_id id, const void *msg, onq_error *err);
