/*
 * solve.h — weights rounded such that the layer's output, not each weight, is nearest to float's.
 *
 * W is k x n: k inputs, n columns of outputs, each column on its own. Every weight becomes an
 * integer of its column's grid, value = scale x (q - zero):
 *
 *     oq_round_job job = {.k = k, .n = n, .w = w, .hessian = &h, .linear = &l, .pool = pool,
 *                         .alloc = alloc, .grid = &grid, .damp = 0.01, .out = q};
 *     OQ_TRY(oq_round(&job, err));
 *
 * GPTQ rounds one input after the other and lets the inputs that are still float make up for the
 * error (Frantar and others, 2022). Coordinate descent then goes over the inputs again, `sweeps`
 * times, and changes an integer where that lowers the error; it works without GPTQ, too. Columns
 * are divided among the workers in slabs of a fixed width, so the integers do not depend on the
 * threads.
 *
 * A grid is fixed, or `fit` finds the scales of a block of rows when its first row is reached, from
 * the weights as they are then. With `act_order` rows are visited in the order of how large their
 * inputs are, and scales are found from the weights before anything is rounded.
 */
#pragma once

#include "quantize/rounding/hessian.h"

/* Scales of a matrix: block b of rows and column c have scale[b * n + c]; rows b * rows to
 * (b + 1) * rows belong to block b. */
typedef struct oq_round_grid {
    int32_t lo, hi;
    size_t rows; /* of a block; k or more: one block */
    float *scale;
    int32_t *zero;
} oq_round_grid;

/* Finds scale and zero point of one block for one column: n values, `stride` doubles apart. */
typedef void (*oq_round_fit)(void *ctx, const double *w, size_t n, size_t stride, float *scale,
                             int32_t *zero);

typedef struct oq_round_job {
    size_t k, n;
    const float *w;            /* k x n */
    const oq_hessian *hessian; /* finished; NULL: every weight to the nearest integer */
    const oq_linear *linear;
    oq_pool *pool;
    const onq_allocator *alloc;
    const onq_env *env; /* gets reports of progress, in the caller's thread; or NULL */
    oq_round_grid *grid;
    oq_round_fit fit; /* or NULL */
    void *fit_ctx;
    double damp; /* added to the diagonal: this part of its mean; more where that is too little */
    bool act_order;  /* large inputs first */
    bool no_gptq;    /* begin from the nearest integers */
    unsigned sweeps; /* of coordinate descent */
    size_t block;    /* rows after which the others are brought up to date; 0: 128 */
    int32_t *out;    /* k x n; may be the memory of w without sweeps and want_error */
    double error[2]; /* out: d^T H d, summed, of the nearest integers and of the result */
    bool want_error;
} oq_round_job;

/* ONQ_E_NOMEM, ONQ_E_CANCEL, or ONQ_E_INVALID when the inputs say nothing (their products are not finite). */
onq_code oq_round(oq_round_job *job, onq_error *err);

/* The weights that, applied to the quantized inputs x, come nearest to what w makes of the float
 * inputs y: the least squares of x w* - y w, held near w by `ridge` x the mean of the diagonal. out
 * is k x n and may be w; the Hessian has a second side. */
onq_code oq_round_target(const oq_hessian *h, const float *w, size_t n, double ridge, float *out,
                         onq_error *err);
