/*
 * channels.h — channels of activations that are treated apart, before quantization. The float model
 * computes what it did, but one range then fits all channels of a tensor.
 *
 *   in        the input of a Conv, Gemm or MatMul is divided by a scale for each channel, and its
 *             weights are multiplied with it. How much, is what predicts the least noise. The
 *             division goes into constants upstream where it can.
 *   out       the rows of a Conv are divided by a scale for each channel of its output, and a Mul
 *             after it gives the values back.
 *   outliers  the channels of a MatMul's input with the widest range have rows of zeros in its
 *             weight, which is what is quantized, and are multiplied in float beside it. They are
 *             clipped for the integer product, where they meet zeros: so the range of its input is
 *             that of the other channels.
 *
 * Tensors keep one scale and zero point: a pair with a scale for each channel is slow in ONNX
 * Runtime.
 */
#pragma once

#include "base/vec.h"
#include "prepare/channels/channel_stats.h"

/* What is done with a node. */
typedef struct oq_channel_choice {
    oq_node *node;
    bool in, out;
    uint32_t outliers; /* channels; 0: none */
} oq_channel_choice;

/* A tensor whose range is known. */
typedef struct oq_channel_range {
    oq_str tensor;
    double low, high;
} oq_channel_range;

/* An input of products, for a method that brings scales of its own. */
typedef struct oq_channel_reader {
    oq_node *node;
    const float *weight; /* n x columns, or columns x n where it is turned */
    uint64_t columns;
    bool turned;
} oq_channel_reader;

typedef struct oq_channel_input {
    uint64_t n;          /* channels */
    const double *power; /* their mean squares ... */
    uint64_t rows;       /* ... over so many values of each */
    const oq_channel_reader *readers;
    size_t n_readers;
} oq_channel_input;

/* Fills `scale`, n numbers; *worth false: none are to be applied. */
typedef onq_code (*oq_channel_find)(void *ctx, const oq_channel_input *in, double *scale,
                                    bool *worth, onq_error *err);

typedef struct oq_channels {
    oq_channel_job see;
    const oq_channel_choice *choices;
    size_t n_choices;
    bool per_channel;     /* weights have a scale for each output channel */
    bool smooth;          /* in: SmoothQuant's scales, whatever they gain */
    double alpha;         /* smooth: how much of an outlier is moved, 0 to 1 */
    bool unfolded;        /* in: the division is always a node of its own */
    oq_channel_find find; /* in, Gemm, MatMul: other scales, applied where they are worth it */
    void *find_ctx;
    /* out, in the model's arena */
    oq_strs added;         /* names of nodes that are to stay float */
    oq_strs float_outputs; /* of products whose output is not to be quantized */
    OQ_VEC(oq_channel_range) ranges;
    OQ_VEC(oq_channel_range)
    moved;                          /* least and greatest value, in the samples, of tensors that
                                     * are new or have other values than before */
    oq_strs moved_more;             /* others like that */
    size_t n_in, n_out, n_outliers; /* nodes */
    size_t n_folded;                /* of n_in: those that need no node */
    size_t n_tensors, n_tensors_folded;
} oq_channels;

/* ONQ_OK, and nodes that a choice does not fit are left as they are. */
onq_code oq_channels_apply(oq_channels *c, onq_error *err);
