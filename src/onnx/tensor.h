/*
 * tensor.h — values of a TensorProto, wherever they are stored; and making tensors.
 *
 * The size rule for every tensor is oq_tensor_count/oq_tensor_bytes: dims not negative, product and
 * bytes overflow-checked. oq_model_data (model.h) gives the raw bytes and checks their number
 * against it.
 */
#pragma once

#include "onnx/dtype.h"
#include "onnx/model.h"

/* Product of dims; error names the tensor. A scalar (no dims) has 1. */
onq_code oq_tensor_count(const oq_tensor *t, uint64_t *out, onq_error *err);
/* An axis, which may count from the end, into 0..rank-1; false when there is none such. */
bool oq_axis_of(int64_t axis, size_t rank, size_t *out);
/* True if both have the same dims. */
bool oq_tensor_same_dims(const oq_tensor *a, const oq_tensor *b);
/* True if a dim is 0: there are no values. */
bool oq_tensor_is_empty(const oq_tensor *t);
/* Bytes in raw form; ONQ_E_INVALID for unknown types and strings. */
onq_code oq_tensor_bytes(const oq_tensor *t, uint64_t *out, onq_error *err);

/* Typed field to raw bytes, into the arena (what oq_model_data does for float_data, int32_data
 * ...). */
onq_code oq_tensor_typed_to_raw(oq_arena *a, const oq_tensor *t, oq_span *out, onq_error *err);

/* All values as doubles/floats/int64, in the arena. Real types for floats, integer and bool types
 * for int64 (uint64 past 2^63 is refused). *n may be NULL. */
onq_code oq_tensor_floats(oq_model *m, oq_tensor *t, oq_arena *a, float **out, size_t *n,
                          onq_error *err);
onq_code oq_tensor_i64s(oq_model *m, oq_tensor *t, oq_arena *a, int64_t **out, size_t *n,
                        onq_error *err);
/* Element i of raw bytes of type dt, as double (exact for all but 64-bit integers) or int64. */
double oq_raw_get_real(oq_dtype dt, const uint8_t *p, uint64_t i);
int64_t oq_raw_get_int(oq_dtype dt, const uint8_t *p, uint64_t i);

/* New tensors in the model's arena; NULL/err when out of memory. `raw` is copied unless it says
 * borrow. */
oq_tensor *oq_tensor_new(oq_arena *a, oq_str name, oq_dtype dt, const int64_t *dims, size_t rank);
/* Fills: a copy of n raw bytes; or a borrowed view; or a producer. */
onq_code oq_tensor_set_raw(oq_arena *a, oq_tensor *t, const void *p, uint64_t n, onq_error *err);
void oq_tensor_set_view(oq_tensor *t, const void *p, uint64_t n);
void oq_tensor_set_producer(oq_tensor *t, const oq_producer *p);
/* Or one that makes slices of the bytes that the tensor has: `p`, filled here. */
onq_code oq_tensor_set_slices(oq_tensor *t, oq_producer *p, oq_slice_fn slice, void *ctx,
                              onq_error *err);
/* Typed storage as onnx.helper.make_tensor writes it (float_data, int32_data, int64_data ...):
 * values given as doubles for real types and int64 for integer types. */
onq_code oq_tensor_set_typed_f(oq_arena *a, oq_tensor *t, const double *v, size_t n,
                               onq_error *err);
onq_code oq_tensor_set_typed_i(oq_arena *a, oq_tensor *t, const int64_t *v, size_t n,
                               onq_error *err);
/* The shape [1, -1, 1, ...] of so many axes, which brings one number for each channel in line. */
onq_code oq_tensor_channel_shape(oq_arena *a, oq_str name, size_t rank, oq_tensor **out,
                                 onq_error *err);
/* Drops the payload, whatever its storage. */
void oq_tensor_clear_data(oq_tensor *t);
