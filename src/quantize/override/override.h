/*
 * override.h — per-tensor overrides: the reference's TensorQuantOverrides.
 *
 * The file is JSON: {"tensor": [{...}]}, the list holding one dictionary, or one for each channel
 * of a weight; a dictionary alone is taken as a list of one. Keys: scale, zero_point, quant_type,
 * symmetric, reduce_range, rmin, rmax, axis, convert {..., recv_nodes: [...]}. A list of one with
 * an axis holds for all channels; an empty list says nothing.
 *
 * Everything is validated before anything runs: the form when the file is read, the rest against
 * the model by oq_overrides_check. The reference validates its first tensor only.
 */
#pragma once

#include "base/map.h"
#include "base/text/json.h"
#include "base/text/nearest.h"
#include "base/vec.h"
#include "onnx/codec/message.h"
#include "quantize/choose/config.h"

typedef struct oq_override {
    bool has_type, has_scale, has_zero, has_rmin, has_rmax, has_axis;
    oq_dtype type;
    float scale;
    int64_t zero;
    double rmin, rmax;
    int64_t axis;
    oq_tri symmetric, reduce_range;
    struct oq_override *convert; /* or NULL */
    bool has_recv;               /* in convert: only these nodes get the converted type */
    OQ_VEC(oq_str) recv_nodes;
    bool keep_clip; /* a Relu or Clip that makes the tensor stays: the range does not do its work
                       (trained.h) */
} oq_override;

/* Parameters of a weight in blocks, in the order of DequantizeLinear's. */
typedef struct oq_override_blocks {
    uint64_t block, n;
    float *scale;
    int32_t *zero;
} oq_override_blocks;

typedef struct oq_tensor_override {
    oq_str name;
    OQ_VEC(oq_override) channels; /* at least one */
    const oq_override_blocks
        *blocks; /* of files of other tools; NULL: none. The axis is that of the
                                       * first channel */
} oq_tensor_override;

typedef struct oq_overrides {
    oq_arena *arena;
    OQ_VEC(oq_tensor_override *) all; /* in the order of the file */
    oq_map map;
} oq_overrides;

void oq_overrides_init(oq_overrides *o, oq_arena *arena);
/* Reads the file, or the text itself where `path` begins with `{` (JSON, or a Python literal);
 * ONQ_E_CONFIG names tensor and key. */
onq_code oq_overrides_load(oq_overrides *o, const onq_allocator *alloc, const char *path,
                           onq_error *err);
/* What to call it in messages: the path, or the reference's name of the option. */
const char *oq_overrides_name(const char *path);
onq_code oq_overrides_parse(oq_overrides *o, const char *where, const json_t *root, onq_error *err);

/* NULL if the tensor has no override. */
oq_tensor_override *oq_overrides_find(const oq_overrides *o, oq_str tensor);
/* Finds or adds with one empty dictionary; NULL when out of memory. */
oq_tensor_override *oq_overrides_add(oq_overrides *o, oq_str tensor);
/* The only dictionary of a tensor that has no axis, or NULL. */
const oq_override *oq_overrides_tensor(const oq_overrides *o, oq_str tensor);
static inline bool oq_override_is_channel(const oq_tensor_override *t) {
    return t != NULL && t->channels.v[0].has_axis;
}
/* The dictionary for channel i: its own, or the one that holds for all. */
static inline const oq_override *oq_override_channel(const oq_tensor_override *t, size_t i) {
    return &t->channels.v[i < t->channels.n ? i : 0];
}
static inline bool oq_override_has_params(const oq_override *o) {
    return o != NULL && o->has_scale && o->has_zero;
}
/* True if any channel has an rmin or rmax. */
bool oq_override_any_range(const oq_tensor_override *t);
/* True if it uses a type for which fn is true, conversions counted. t may be NULL. */
bool oq_override_uses_type(const oq_tensor_override *t, bool (*fn)(oq_dtype));
/* True if any of them does. */
bool oq_overrides_any_type(const oq_overrides *o, bool (*fn)(oq_dtype));
/* True if a weight is to be in blocks. */
bool oq_overrides_any_blocks(const oq_overrides *o);
