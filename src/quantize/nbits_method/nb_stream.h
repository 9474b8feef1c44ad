/*
 * nb_stream.h — products that are added to a stream: the last of an attention or of a feed-forward
 * part of a transformer, whose output and the hidden states x become x + y.
 *
 * What counts is the sum. Such a product is rounded towards what, added to the stream as the
 * quantized layers before made it, comes nearest to the float model's sum: it makes up for their
 * error, too. A norm follows the sum, so an error matters relative to the size of the row: rows
 * count by that. (The first token of a text may be a thousand times as large as all others.)
 */
#pragma once

#include "onnx/graph.h"

/* What the value is added to by an Add, after constants, or by a norm that adds; empty: nothing. */
oq_str oq_nb_stream_of(const oq_index *ix, oq_str value);

/* A row of such a product: k inputs, and n numbers of the float model's sum and of the quantized
 * model's stream (NULL: the product is taken alone). */
typedef struct oq_nb_stream_row {
    const float *x, *sum, *stream;
    uint64_t k, n;
} oq_nb_stream_row;

/* The row's inputs and what the product should make of them, both over the size of the sum. */
void oq_nb_stream_weigh(const oq_nb_stream_row *row, float *inputs, float *outputs);
