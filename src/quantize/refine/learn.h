/*
 * learn.h — learned rounding of one layer: its weights as the integers that make the layer's output
 * nearest to float's (quantize/rounding), with scales as they are.
 *
 *     OQ_TRY(oq_learn_begin(&n, &how, layers, layer, n_samples, err));
 *     if (n.able)
 *         ... if (n.aims) oq_learn_float for each sample; then oq_learn_inputs for each sample
 *         OQ_TRY(oq_learn_end(&n, err));
 *     oq_learn_release(&n);
 *
 * A layer that aims is shown its inputs of both models. One that does not is shown those of the
 * float model: the integers that come of it depend on no other layer, and neither on what the rest
 * of the model is quantized to. Such layers with the same input share what they need of it
 * (oq_learn_share), and other models of the same float model and samples have the same integers
 * (oq_learn_memory).
 */
#pragma once

#include "quantize/number/qtype.h"
#include "quantize/refine/rows.h"
#include "quantize/rounding/plane.h"

typedef struct oq_learn_how {
    const oq_linear *linear;
    oq_pool *pool;
    const onq_allocator *alloc;
    struct oq_learn_memory *memory; /* or NULL */
    bool reduced;                   /* weights have one bit less */
} oq_learn_how;

/* The integers of one weight, and the grid that they are of. */
typedef struct oq_learned {
    oq_str name; /* of the float weight */
    oq_qrange limits;
    float *scales;
    int64_t *zeros;
    size_t n_scales, n_zeros;
    oq_span bytes; /* as the tensor has them */
} oq_learned;

/* Those of one float model and one set of samples. */
typedef struct oq_learn_memory {
    oq_arena arena;
    OQ_VEC(oq_learned) all;
} oq_learn_memory;

void oq_learn_memory_init(oq_learn_memory *m, const onq_allocator *alloc);
void oq_learn_memory_release(oq_learn_memory *m);

typedef struct oq_learn {
    const oq_learn_how *how;
    struct oq_learn *like; /* has the same inputs, and what is made of them; NULL: its own */
    oq_layers *layers;
    const oq_layer *layer;
    bool able;      /* the layer is one that this can round */
    bool done;      /* the memory had its integers, and the weight has them */
    bool aims;      /* at weights that make up for what its inputs lost: coarse ones do */
    oq_arena arena; /* of this layer */
    oq_learned grid;
    oq_rows rows;
    oq_hessian *hessians; /* by group; those of a layer that does not aim go with the plane */
    oq_plane *planes;     /* of those that were made */
    size_t n_hessians;
    uint64_t per_sample; /* rows taken of one sample, at most */
    float *flt;          /* rows of the float model: [sample][per_sample][width] */
    uint64_t *n_float;   /* by sample */
    size_t n_samples, float_size;
    float *row;
} oq_learn;

onq_code oq_learn_begin(oq_learn *n, const oq_learn_how *how, oq_layers *layers,
                        const oq_layer *layer, size_t n_samples, onq_error *err);
/* Shares the inputs of a layer that was begun before and lives as long, if they are the same. Else
 * this one is given room for its own. Called once, by oq_learn_begin with NULL for layers that
 * aim. */
onq_code oq_learn_share(oq_learn *n, oq_learn *const *others, size_t n_others, onq_error *err);
/* Bytes of what the inputs of one layer take. */
uint64_t oq_learn_bytes(const oq_learn *n);
/* The layer's input in the float model, of a layer that aims. */
onq_code oq_learn_float(oq_learn *n, size_t sample, const oq_datum *d, onq_error *err);
/* The inputs that it is rounded for: in the quantized model where it aims, else in float. */
onq_code oq_learn_inputs(oq_learn *n, size_t sample, const oq_datum *d, onq_error *err);
/* Rounds, and puts the integers into the model and the memory. */
onq_code oq_learn_end(oq_learn *n, onq_error *err);
void oq_learn_release(oq_learn *n);
