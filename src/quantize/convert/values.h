/*
 * values.h — quantized constants in another form, as payloads that are made when they are written:
 * the floats that they stand for, or the same integers in another order.
 *
 * A payload is made in slices (oq_producer.slice), so that a weight is never in memory as a whole.
 */
#pragma once

#include "onnx/model.h"
#include "onnx/tensor.h"

/* A matrix to be read by its columns: element (r, c) of the result is number c * stride + r of the
 * source. Rows of the result are `width` elements long, of which those past `cols` are
 * 0. A batch of such matrices lies one after another in both. */
typedef struct oq_cv_turn {
    oq_span data;
    oq_dtype type;          /* of the source, whose elements are packed without gaps */
    bool high_first;        /* of two elements in a byte the first is in the high bits */
    uint64_t rows, cols;    /* of the result */
    uint64_t stride, width; /* of a column of the source, and of a row of the result */
    uint64_t batch, step;   /* matrices, and how far they are from each other in the source */
    bool flip; /* the highest bit: integers with a sign become such without, and the other way */
} oq_cv_turn;

/* How a result depends on scales and zero points. The result is outer x along x inner elements, and
 * the scale of element (o, k, i) is number o * per_outer + k / block * per_along + i * per_inner. */
typedef struct oq_cv_values {
    oq_span data; /* integers, or float 8, in the order of the result; or see `turn` */
    oq_dtype type;
    const oq_cv_turn *turn; /* not NULL: it brings them into the order of the result */
    const float *codes;     /* not NULL: integers are the numbers of these values */
    oq_span scale, zero;    /* zero.p NULL: `no_zero` in place of all */
    oq_dtype scale_type, zero_type;
    int32_t no_zero;
    uint64_t outer, along, inner, block;
    uint64_t per_outer, per_along, per_inner;
    uint64_t zero_outer, zero_along, zero_inner; /* the same for zero points */
    const uint32_t *groups; /* not NULL: number k of these stands for k / block */
    uint64_t flat_block; /* not 0: the scale is that of so many elements of the source of `turn` */
    oq_dtype real;       /* of the result */
} oq_cv_values;

/* Sets an initializer's payload to the turned matrix; the type of `t` has as many bits as the
 * source. */
onq_code oq_cv_turn_payload(oq_model *m, oq_tensor *t, const oq_cv_turn *turn, onq_error *err);
/* Sets an initializer's payload to the floats, of type v->real. */
onq_code oq_cv_values_payload(oq_model *m, oq_tensor *t, const oq_cv_values *v, onq_error *err);

/* The plain case, as DequantizeLinear has it: parameters for the whole tensor, along an axis, or in
 * blocks along it. `zero` may be NULL. ONQ_E_INVALID where they do not fit the tensor. */
onq_code oq_cv_values_linear(oq_model *m, oq_tensor *ints, oq_tensor *scale, oq_tensor *zero,
                             int64_t axis, int64_t block, oq_cv_values *out, onq_error *err);

/* Bytes `from` to `from` + `n` of the turned matrices. Reading a few dozen whole rows at a time is
 * fast. */
onq_code oq_cv_turn_read(const oq_cv_turn *u, const onq_allocator *alloc, uint64_t from, uint64_t n,
                         uint8_t *out, onq_error *err);
