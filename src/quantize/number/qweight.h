/*
 * qweight.h — weights: their parameters now, their quantized bytes when the model is written.
 *
 * A weight is divided into groups that share one scale and one zero point:
 *
 *   tensor    one group
 *   channel   one group for each index along `axis`
 *   block     along `axis`, `block` elements at a time, for each index of the other axes (opset
 *             21): parameters have the weight's shape with dims[axis] = ceil(dims[axis] / block)
 *
 * oq_qweight_params makes one pass over the mapped weight (minimum and maximum of each group; the
 * standard deviation for float 8). oq_qweight_producer then gives a payload that is computed as it
 * is written, so a model's quantized weights are never all in memory. Both are safe to run for
 * several weights at once.
 *
 * Weights may be float32, float16 or bfloat16 (arithmetic is float32, as the reference's
 * quantize_nparray; it knows the first two). Pages that were read are given back to the system as
 * it goes, so resident memory stays small whatever the size of the weight.
 */
#pragma once

#include "onnx/model.h"
#include "onnx/tensor.h"
#include "quantize/number/qparam.h"

typedef enum oq_qgroup { OQ_QGROUP_TENSOR, OQ_QGROUP_CHANNEL, OQ_QGROUP_BLOCK } oq_qgroup;

/* A weight and its division. */
typedef struct oq_qweight {
    oq_tensor *tensor;
    oq_dtype real;       /* element type of the weight */
    bool wide;           /* scales of a float16 weight are float32; set it after oq_qweight_init */
    oq_span data;        /* raw bytes */
    const oq_file *file; /* the mapping `data` lies in, or NULL */
    oq_qgroup group;
    size_t axis;                  /* CHANNEL, BLOCK: 0 .. rank - 1 */
    uint64_t block;               /* BLOCK: elements of one block */
    uint64_t count;               /* elements of the weight */
    uint64_t outer, along, inner; /* product of dims before axis, dims[axis], product after it */
    uint64_t n_blocks;            /* BLOCK: ceil(along / block) */
    uint64_t n_params;            /* groups */
} oq_qweight;

/* Sets up a weight: finds its bytes, checks the axis and the rank. `axis` may be negative, as in
 * ONNX; it and `block` are ignored where the group does not need them. Not thread-safe (it may open
 * external data). */
onq_code oq_qweight_init(oq_qweight *w, oq_model *m, oq_tensor *t, oq_qgroup group, int64_t axis,
                         uint64_t block, onq_error *err);

/* A range that replaces what is found in the weight (overrides rmin, rmax). */
typedef struct oq_qclamp {
    bool has_min, has_max;
    double min, max;
} oq_qclamp;

/* Parameters of all groups, in the order of the parameters' tensor. */
typedef struct oq_qparams {
    float *scale;
    int32_t *zero;
    uint64_t n;
} oq_qparams;

/* Room for n parameters in the arena. */
onq_code oq_qparams_init(oq_qparams *p, oq_arena *a, uint64_t n, onq_error *err);

/* The parameters of all groups into `out`, which has room for w->n_params. `clamps` is NULL, or one
 * for each group. spec->real is ignored: the weight's own type is used (float32 for bfloat16).
 * Scratch memory comes from `alloc`. */
onq_code oq_qweight_params(const oq_qweight *w, const oq_qspec *spec, const oq_qclamp *clamps,
                           const onq_allocator *alloc, oq_qparams *out, onq_error *err);

/* Type of scales for this weight: OQ_FLOAT16 for a float16 weight that is not wide, else
 * OQ_FLOAT. */
oq_dtype oq_qweight_scale_type(const oq_qweight *w);

/* Bytes of the quantized weight. */
onq_code oq_qweight_bytes(const oq_qweight *w, oq_dtype type, uint64_t *out, onq_error *err);
/* Quantizes the whole weight into `out`. ONQ_E_INVALID if a float 8 value would be NaN. */
onq_code oq_qweight_quantize(const oq_qweight *w, oq_dtype type, const oq_qparams *params,
                             uint8_t *out, onq_error *err);
/* The same as a producer, in the arena. Copies `w`; borrows what `params` points at. */
onq_code oq_qweight_producer(oq_arena *a, const oq_qweight *w, oq_dtype type,
                             const oq_qparams *params, const oq_producer **out, onq_error *err);

/* A tensor's raw bytes, and the mapping that they lie in (NULL when they were copied). Not
 * thread-safe. */
onq_code oq_weight_find(oq_model *m, oq_tensor *t, oq_span *data, const oq_file **file,
                        onq_error *err);
/* Gives back the pages of bytes [from, to) of such data. */
void oq_weight_drop(const oq_file *file, oq_span data, uint64_t from, uint64_t to);

/* n values of a real type (OQ_FLOAT, OQ_FLOAT16, OQ_BFLOAT16, OQ_DOUBLE) as floats. */
void oq_reals_read(oq_dtype real, const uint8_t *p, uint64_t first, size_t n, float *out);

/* n floats as the raw data of a tensor of type FLOAT or FLOAT16. */
onq_code oq_reals_store(oq_arena *a, oq_tensor *t, const float *v, uint64_t n, onq_error *err);
