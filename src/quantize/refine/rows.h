/*
 * rows.h — what meets the weight of a layer: the rows of numbers that are multiplied with it.
 *
 * A Gemm or MatMul multiplies the rows of its input; a Conv, at each place of its output, the patch
 * of the input that its kernel covers, channel by channel, each group with a part of it. Of a large
 * input rows are taken at even distances.
 */
#pragma once

#include "quantize/refine/layers.h"
#include "samples/datum.h"

typedef struct oq_rows {
    oq_product product;
    size_t groups;
    size_t k, n;  /* inputs and outputs of one group */
    size_t width; /* of a row: groups x k */
    bool turned;  /* the weight is stored output by output */
    /* Conv: in two dimensions, the first of 1 where there is one only */
    size_t channels, kernel[2];
    int64_t stride[2], dilation[2], pad[4]; /* pads before, then after */
    oq_str auto_pad;
} oq_rows;

/* False where the layer's weight does not meet rows: ConvTranspose, weights of other shapes. */
bool oq_rows_init(oq_rows *r, const oq_layer *l);

/* How many rows an input has, and where. */
typedef struct oq_rows_input {
    const float *x;
    uint64_t count;
    int64_t batch, in[2], out[2], before[2]; /* Conv */
} oq_rows_input;
/* False when the input does not fit the layer. */
bool oq_rows_open(const oq_rows *r, const oq_datum *d, oq_rows_input *in);
/* Row i, into out[width]. */
void oq_rows_take(const oq_rows *r, const oq_rows_input *in, uint64_t i, float *out);
/* Number of the j-th of n rows that are taken of an input. */
static inline uint64_t oq_rows_pick(uint64_t count, uint64_t n, uint64_t j) {
    return (uint64_t)(((double)j + 0.5) * (double)count / (double)n);
}

/* Where the weight of input i and output c of group g is stored. */
static inline size_t oq_rows_weight(const oq_rows *r, size_t g, size_t i, size_t c) {
    return r->turned ? (g * r->n + c) * r->k + i : i * r->n + c;
}
