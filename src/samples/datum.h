/*
 * datum.h — what goes into a model and comes out of it, and what a model says about both.
 *
 * A datum is a plain view: tensors of numbers or texts, sequences, maps, and the absent value
 * of an optional. Whoever makes one says how long it lives; nothing here owns memory. An oq_io is
 * one declared input or output of a model.
 */
#pragma once

#include "onnx/dtype.h"
#include "onnx/model.h"
#include "onnx/tensor.h"

typedef enum oq_datum_kind {
    OQ_DATUM_NONE = 0, /* an optional without value */
    OQ_DATUM_TENSOR,
    OQ_DATUM_SEQUENCE, /* items */
    OQ_DATUM_MAP,      /* items[0] the keys, items[1] the values, tensors of one axis */
} oq_datum_kind;

typedef struct oq_datum {
    oq_datum_kind kind;
    oq_dtype dtype; /* TENSOR; of the elements of an empty SEQUENCE as well */
    size_t rank;
    const int64_t *dims;
    uint64_t count;        /* elements: the product of dims */
    const void *data;      /* elements as in raw_data: little-endian, 4- and 2-bit types packed */
    uint64_t size_bytes;   /* of data */
    const oq_str *strings; /* TENSOR of STRING: count texts, data is NULL */
    const struct oq_datum *items;
    size_t n_items;
} oq_datum;

/* Equal rank and sizes; of tensors. */
bool oq_datum_same_dims(const oq_datum *a, const oq_datum *b);
/* Element i of a tensor of real numbers. */
static inline double oq_datum_real(const oq_datum *d, uint64_t i) {
    float f;
    if (d->dtype != OQ_FLOAT)
        return oq_raw_get_real(d->dtype, d->data, i);
    memcpy(&f, (const uint8_t *)d->data + i * sizeof f, sizeof f);
    return (double)f;
}

/* One axis as a model declares it. */
typedef struct oq_io_dim {
    int64_t value; /* -1: not a number */
    oq_str param;  /* its symbol; p == NULL when it has none */
} oq_io_dim;

/* An input or output. Optionals are flagged and described by what they hold; of a sequence, dtype
 * and shape are those of its elements. */
typedef struct oq_io {
    oq_str name;
    oq_datum_kind kind; /* TENSOR, SEQUENCE or MAP; NONE when the model does not say */
    bool optional;
    oq_dtype dtype; /* OQ_UNDEFINED when the model does not say */
    bool has_shape;
    size_t rank;
    const oq_io_dim *dims;
} oq_io;

typedef struct oq_ios {
    oq_io *v;
    size_t n;
} oq_ios;

/* The inputs a caller must feed, in order: graph inputs that no initializer gives a value (what
 * InferenceSession.get_inputs lists). In the arena; names are views of the model. */
onq_code oq_model_inputs(const oq_model *m, oq_arena *a, oq_ios *out, onq_error *err);
onq_code oq_model_outputs(const oq_model *m, oq_arena *a, oq_ios *out, onq_error *err);

/* "FLOAT[batch,3,224,224]", "sequence of INT64[?]" into `out`, for messages. */
void oq_io_describe(const oq_io *io, oq_buf *out);
void oq_datum_describe(const oq_datum *d, oq_buf *out);

/* A deep copy into an arena, of one or of several; ONQ_E_NOMEM. */
onq_code oq_datum_copy(oq_arena *a, const oq_datum *in, oq_datum *out, onq_error *err);
onq_code oq_datums_copy(oq_arena *a, const oq_datum *in, size_t n, oq_datum **out, onq_error *err);
/* The values of a tensor of reals as float32, into d->count floats; or d's own where it has them,
 * else in the arena, NULL when out of memory. */
void oq_datum_to_floats(const oq_datum *d, float *out);
const float *oq_datum_floats(const oq_datum *d, oq_arena *a);
/* Bytes of the elements and texts of several. */
uint64_t oq_datums_bytes(const oq_datum *v, size_t n);

/* Reads the bytes of a .pb file (TensorProto, SequenceProto or OptionalProto, whichever the input
 * is) into a datum; what can stay stays a view of `p`. `want` may be NULL: a tensor. The name
 * inside, if any, goes to *name (may be NULL). */
onq_code oq_datum_from_pb(oq_arena *a, const uint8_t *p, uint64_t n, const oq_io *want,
                          oq_datum *out, oq_str *name, onq_error *err);
/* The bytes of a .pb file for a datum, appended to `out`. What an optional output gave (`io` may be
 * NULL) is an OptionalProto. */
onq_code oq_datum_to_pb(const oq_datum *d, const oq_io *io, oq_buf *out, onq_error *err);
