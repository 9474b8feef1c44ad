/*
 * trained_parts.h — between trained.c, which removes fake quantization, and trained_match.c, which
 * recognises it.
 */
#pragma once

#include "onnx/edit.h"
#include "quantize/trained/trained.h"

#define OQ_TRAINED_NODES 8

/* One fake quantization. */
typedef struct oq_trained_fake {
    oq_str in, out;      /* the float tensor before it and after it */
    oq_tensor *ints;     /* a weight stored as integers: then there is no `in` */
    oq_dtype type, real; /* quantized type; type of the scale */
    size_t n;            /* of parameters */
    const float *scale;
    const int64_t *zero;
    int64_t axis;                     /* per channel; -1 */
    uint32_t nodes[OQ_TRAINED_NODES]; /* its nodes; the last one makes `out` */
    size_t n_nodes;
} oq_trained_fake;

/* True if both have the same type, axis and parameters. */
bool oq_trained_same(const oq_trained_fake *a, const oq_trained_fake *b);

typedef struct oq_trained_look {
    oq_model *model;
    oq_arena *arena; /* scratch */
    oq_index ix;
    bool any_type; /* else int8 and uint8 only */
} oq_trained_look;

/* Finds out whether node i is the last of a fake quantization. ONQ_E_INVALID for impossible
 * parameters. */
onq_code oq_trained_match(oq_trained_look *look, uint32_t i, oq_trained_fake *out, bool *found,
                          onq_error *err);
