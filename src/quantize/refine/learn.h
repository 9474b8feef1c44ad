/*
 * learn.h — learned rounding of one layer: its weights as the integers that make the layer's output
 * nearest to float's (quantize/rounding), with scales as they are.
 *
 *     OQ_TRY(oq_learn_begin(&n, &how, layers, layer, n_samples, err));
 *     if (n.able)
 *         ... if (n.aims) oq_learn_float for each sample; then oq_learn_quantized for each sample
 *         OQ_TRY(oq_learn_end(&n, err));
 *     oq_learn_release(&n);
 */
#pragma once

#include "quantize/refine/rows.h"
#include "quantize/rounding/solve.h"

typedef struct oq_learn_how {
    const oq_linear *linear;
    oq_pool *pool;
    const onq_allocator *alloc;
    bool reduced; /* weights have one bit less */
} oq_learn_how;

typedef struct oq_learn {
    const oq_learn_how *how;
    oq_layers *layers;
    const oq_layer *layer;
    bool able;      /* the layer is one that this can round */
    bool aims;      /* at weights that make up for what its inputs lost: coarse ones do */
    oq_arena arena; /* of this layer */
    oq_rows rows;
    oq_hessian *hessians; /* by group */
    size_t n_hessians;
    uint64_t per_sample; /* rows taken of one sample, at most */
    float *flt;          /* rows of the float model: [sample][per_sample][width] */
    uint64_t *n_float;   /* by sample */
    size_t n_samples, float_size;
    float *row;
} oq_learn;

onq_code oq_learn_begin(oq_learn *n, const oq_learn_how *how, oq_layers *layers,
                        const oq_layer *layer, size_t n_samples, onq_error *err);
/* The layer's input in the float model, then in the quantized one. */
onq_code oq_learn_float(oq_learn *n, size_t sample, const oq_datum *d, onq_error *err);
onq_code oq_learn_quantized(oq_learn *n, size_t sample, const oq_datum *d, onq_error *err);
/* Rounds, and puts the integers into the model. */
onq_code oq_learn_end(oq_learn *n, onq_error *err);
void oq_learn_release(oq_learn *n);
