/*
 * message.h — the C structs of the ONNX messages, made from schema.def.
 *
 * struct oq_node, oq_graph, oq_tensor, ... have one member per field of the format, by its own
 * name:
 *   STR   oq_str             absent when p == NULL (an empty text that is present has p != NULL)
 *   STRS  {oq_str *v; n}     I64S {int64_t *v; n}     F32S {float *v; n}
 *   I64, I32, F32            {v, has}; set with attr->i = OQ_I64(3), read attr->i.v (0 when absent)
 *   MSG   pointer, NULL when absent         MSGS {T **v; n}: elements keep their address
 *   PV P4 P8  oq_packed: the encoded packed values (tensor.h reads them)
 *   PAY   oq_payload, the tensor's raw bytes: a view, or a producer that makes them when written
 *
 * Everything lives in the model's arena or its mapping. Push with OQ_PUSH(&model->arena, &g->node,
 * n). Whoever edits calls oq_model_touch first: an untouched model is saved as a copy of its file.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "base/vec.h"

typedef struct oq_span {
    const uint8_t *p;
    uint64_t n;
} oq_span;

/* Packed values as they are encoded. `cap` is the room at p when the codec had to join
 * pieces in the arena, 0 for a view of the input. */
typedef struct oq_packed {
    const uint8_t *p;
    uint64_t n;
    uint64_t cap;
} oq_packed;

#define OQ_SLICE_UNIT 4096

/* Bytes that are made when the model is written, or when somebody asks for them. `make` fills
 * exactly `size` bytes, may run on any thread, and must give the same bytes each time. */
typedef struct oq_producer oq_producer;
typedef onq_code (*oq_slice_fn)(const oq_producer *self, uint64_t from, uint64_t n, uint8_t *out,
                                onq_error *err);
struct oq_producer {
    uint64_t size;
    onq_code (*make)(const oq_producer *self, uint8_t *out, onq_error *err);
    void *ctx;
    /* Or NULL: bytes from .. from + n alone, where both are multiples of OQ_SLICE_UNIT, or end with
     * the payload. The writer makes large payloads in such slices, so that none is in memory as a
     * whole. */
    oq_slice_fn slice;
    bool follows; /* made together with one written before it: the writer makes it when its turn
                   * comes, which takes no time then */
    const uint8_t *ready; /* the bytes, where they are in memory for as long as the producer; else
                           * NULL */
};

typedef struct oq_payload {
    const uint8_t *p;            /* the bytes, or NULL */
    uint64_t n;                  /* how many, also for a producer */
    const oq_producer *producer; /* or NULL */
    bool present;
} oq_payload;

/* Where a tensor's bytes are to be put outside the model file; set by the writer. */
typedef struct oq_place {
    oq_str location;
    uint64_t offset, length;
} oq_place;

/* A field the schema does not know, kept as it came (tag included). */
typedef struct oq_unknown {
    oq_span span;
    struct oq_unknown *next;
} oq_unknown;

/* Head of every message. */
typedef struct oq_msg {
    uint64_t size;       /* the encoder's: bytes of this message */
    uint64_t at;         /* where it began in its file, for messages to the user */
    oq_unknown *unknown; /* in order */
    oq_unknown *unknown_last;
} oq_msg;

#define OQ_MESSAGE(name, proto) typedef struct oq_##name oq_##name;
#define OQ_F(msg, kind, number, field)
#define OQ_M(msg, kind, number, field, sub)
#define OQ_X(msg, type, field)
#define OQ_END(name)
#include "onnx/codec/schema.def"

typedef OQ_VEC(oq_str) oq_strs;
typedef OQ_VEC(int64_t) oq_i64s;
typedef OQ_VEC(float) oq_f32s;

/* Scalars with presence. */
typedef struct oq_opt_i64 {
    int64_t v;
    bool has;
} oq_opt_i64;
typedef struct oq_opt_i32 {
    int32_t v;
    bool has;
} oq_opt_i32;
typedef struct oq_opt_f32 {
    float v;
    bool has;
} oq_opt_f32;
#define OQ_I64(x) ((oq_opt_i64){(x), true})
#define OQ_I32(x) ((oq_opt_i32){(x), true})
#define OQ_F32(x) ((oq_opt_f32){(x), true})

#define OQ_C_I64       oq_opt_i64
#define OQ_C_I32       oq_opt_i32
#define OQ_C_F32       oq_opt_f32
#define OQ_C_STR       oq_str
#define OQ_C_STRS      oq_strs
#define OQ_C_I64S      oq_i64s
#define OQ_C_F32S      oq_f32s
#define OQ_C_PV        oq_packed
#define OQ_C_P4        oq_packed
#define OQ_C_P8        oq_packed
#define OQ_C_PAY       oq_payload
#define OQ_C_MSG(sub)  oq_##sub *
#define OQ_C_MSGS(sub) OQ_VEC(oq_##sub *)

#define OQ_MESSAGE(name, proto)                                                                    \
    struct oq_##name {                                                                             \
        oq_msg m;
#define OQ_F(msg, kind, number, field)      OQ_C_##kind field;
#define OQ_M(msg, kind, number, field, sub) OQ_C_##kind(sub) field;
#define OQ_X(msg, type, field)              type field;
#define OQ_END(name)                                                                               \
    }                                                                                              \
    ;
#include "onnx/codec/schema.def"
