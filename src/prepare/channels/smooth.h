/*
 * smooth.h — SmoothQuant: outliers of activations move into the weights before quantization.
 *
 * For a tensor x that Conv, Gemm or MatMul nodes read, and their constant weights W, each channel c
 * of x gets
 *
 *     s[c] = max|x[c]| ^ alpha / max|W[c]| ^ (1 - alpha)
 *
 * (the largest over all samples, and over all weights that meet the channel). x is divided by s,
 * the weights are multiplied with it: the float model computes the same, and x has no channels that
 * waste the range of the others. The division is a Mul in front of the nodes; with `folding` it
 * disappears into constants upstream where there are any that take it (channels.h).
 *
 * The reference asks a package for this (neural_compressor's ORTSmoothQuant) that its current
 * version no longer has; here it is built in.
 */
#pragma once

#include "engine/engine.h"
#include "samples/source.h"
#include "shape/shape.h"

typedef struct oq_smooth_job {
    oq_model *model; /* is changed */
    oq_engine *engine;
    oq_source *source;          /* read from its beginning */
    oq_session_options session; /* threads, provider; the rest is set here */
    double alpha;               /* how much of an outlier is moved, 0 to 1 */
    bool folding;               /* into the node before, where that can be */
    oq_strs added;              /* out: names of new nodes, in the model's arena */
    size_t n_tensors, n_folded; /* out: tensors smoothed, and how many of those need no node */
} oq_smooth_job;

onq_code oq_smooth(oq_smooth_job *job, onq_error *err);
