/*
 * rotate.h — the hidden states of a decoder turned by an orthogonal matrix, so that no weight and
 * no channel is much larger than the others; the model computes what it did.
 *
 * The hidden states x of a Llama-like decoder are sums: of rows of the embedding table, and of what
 * layers add. They are read through RMS norms, whose factor does not change when x is turned. So
 * with an orthogonal R every x becomes x R where
 *
 *     tables and weights whose rows lie in x       are multiplied with R from the right,
 *     weights that read a norm with the gain g     become R^T diag(g) W, and the gain 1.
 *
 * R is a Hadamard matrix of the largest power of two in the width, with random signs, times a
 * cosine transform of what is left. Norms are known as SimplifiedLayerNormalization,
 * SkipSimplifiedLayerNormalization, RMSNormalization, or written out (ReduceMean of squares). A
 * table that is the last layer too gets a turned copy for that, since the gain is in only one of
 * them. New values lie in a file (onnx/spill.h).
 */
#pragma once

#include "onnx/model.h"

typedef struct oq_rotated {
    uint64_t width;
    size_t n_weights, n_norms;
    bool untied; /* the table was the last layer, too */
} oq_rotated;

/* ONQ_E_INVALID, naming the node, where hidden states are met by something else than the above; the
 * model is then as it was. */
onq_code oq_rotate(oq_model *m, oq_rotated *out, onq_error *err);
