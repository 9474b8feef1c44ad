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
 * times, and changes an integer where that lowers the error; it works without GPTQ, too. With
 * `refit` it also moves the scale of each block, and a zero point that need not be an integer, to
 * where the error is least. Columns are divided among the workers in slabs of a fixed width, so the
 * integers do not depend on the threads.
 *
 * A grid is fixed, or `fit` finds the scales of a block of rows when its first row is reached, from
 * the weights as they are then. With `act_order` rows are visited in the order of how large their
 * inputs are, and scales are found from the weights before anything is rounded.
 */
#pragma once

#include "onnx/dtype.h"
#include "quantize/rounding/hessian.h"

/* Scales of a matrix: block b of rows and column c have scale[b * n + c]; rows b * rows to
 * (b + 1) * rows belong to block b. */
typedef struct oq_round_grid {
    int32_t lo, hi;
    size_t rows; /* of a block; k or more: one block */
    float *scale, *zero;
    oq_dtype real;  /* of scales as they are stored, for refit */
    bool real_zero; /* zero points need not be integers */
} oq_round_grid;

/* Finds scales and zero points of the block that begins at `row`, for up to OQ_ROUND_COLUMNS
 * columns: n rows, `stride` doubles apart. */
typedef void (*oq_round_fit)(void *ctx, const double *w, size_t row, size_t n, size_t cols,
                             size_t stride, float *scale, float *zero);
#define OQ_ROUND_COLUMNS 64

/* What GPTQ needs of a Hessian; weights that have the same inputs may share it. */
typedef struct oq_round_factor {
    double mean;    /* of the diagonal */
    double damp;    /* as it is added */
    size_t *order;  /* of the rows */
    double *u;      /* of the inverse of the damped Hessian, rows in that order */
    oq_matrix room; /* of u */
} oq_round_factor;

/* `damp` and `act_order` are those of oq_round_job. Release it, with the same Hessian. */
onq_code oq_round_factor_init(oq_round_factor *f, const oq_hessian *h, const onq_env *env,
                              double damp, bool act_order, onq_error *err);
void oq_round_factor_release(oq_round_factor *f, const oq_hessian *h);

typedef struct oq_round_job {
    size_t k, n;
    const float *w;                /* k x n */
    const oq_hessian *hessian;     /* finished; NULL: every weight to the nearest integer */
    const oq_round_factor *factor; /* of the Hessian, damp and act_order; NULL: made here */
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
    bool refit;      /* with `fit`: the sweeps move scales too, of blocks of up to 256 rows */
    size_t block;    /* rows after which the others are brought up to date; 0: 128 */
    int32_t *out;    /* k x n; may be the memory of w without sweeps and want_error */
    double error[2]; /* out: d^T H d, summed, of the nearest integers and of the result */
    bool want_error;
} oq_round_job;

/* ONQ_E_NOMEM, ONQ_E_CANCEL, or ONQ_E_INVALID when the inputs say nothing (their products are not
 * finite). */
onq_code oq_round(oq_round_job *job, onq_error *err);

/* The weights that, applied to the quantized inputs x, come nearest to what w makes of the float
 * inputs y: the least squares of x w* - y w, held near w by `ridge` x the mean of the diagonal. out
 * is k x n and may be w; the Hessian has a second side of such inputs. */
onq_code oq_round_target(const oq_hessian *h, const float *w, size_t n, double ridge, float *out,
                         onq_error *err);
/* The same where the second side has what the outputs should be: n of them from `first` on. */
onq_code oq_round_target_outputs(const oq_hessian *h, const float *w, size_t first, size_t n,
                                 double ridge, float *out, onq_error *err);
