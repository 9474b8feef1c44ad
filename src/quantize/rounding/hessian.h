/*
 * hessian.h — what the inputs of a layer have in common: the sum of x x^T over all rows x that met
 * its weight. The error of rounded weights d at the layer's output is d^T H d.
 *
 *     oq_hessian h;
 *     OQ_TRY(oq_hessian_init(&h, &linear, pool, alloc, k, 0, memory, err));
 *     for each sample
 *         OQ_TRY(oq_hessian_add(&h, x, NULL, rows, k, err));   rows of k floats
 *     OQ_TRY(oq_hessian_finish(&h, err));
 *     ... solve.h ...
 *     oq_hessian_release(&h);
 *
 * Rows are gathered in blocks of a fixed number, the products of a block are computed in float32
 * tile by tile on all workers, and added up in float64 in the order of the rows: the result depends
 * neither on the threads nor on how the rows were handed over. Memory is 8 k^2 bytes (twice that
 * with a second side) and a block.
 *
 * The second side is for a layer whose inputs are already quantized: y are the inputs of the float
 * model, or what the layer's outputs should be, and cross is the sum of y x^T (solve.h: the weights
 * that fit x best).
 */
#pragma once

#include "base/pool.h"
#include "base/system/temp.h"
#include "quantize/rounding/linear.h"

/* Numbers of a large matrix, all zero: in memory, or in a temporary file. */
typedef struct oq_matrix {
    double *v; /* NULL: none */
    size_t n;
    oq_temp_memory paged;
} oq_matrix;

typedef struct oq_hessian {
    const oq_linear *linear;
    oq_pool *pool;
    const onq_allocator *alloc;
    size_t k, m;   /* numbers in a row of x and of y */
    double *sum;   /* k x k; all of it after finish, only whole tiles of the upper half before */
    double *cross; /* m x k, or NULL */
    bool paged;    /* matrices are in temporary files */
    uint64_t rows;
    float *x, *y;      /* the block that is being gathered: OQ_HESSIAN_ROWS x k, x m */
    size_t gathered;   /* rows in it */
    float *tile;       /* scratch, one for each worker */
    oq_matrix room[2]; /* of sum and cross */
} oq_hessian;

#define OQ_HESSIAN_ROWS 512

/* All zero. m: numbers in a row of the second side; 0: there is none. Where its matrices, and one to
 * solve by, take more than `memory` bytes, they are in temporary files. ONQ_E_LIMIT when k is larger
 * than the library takes. */
onq_code oq_hessian_init(oq_hessian *h, const oq_linear *linear, oq_pool *pool,
                         const onq_allocator *alloc, size_t k, size_t m, uint64_t memory,
                         onq_error *err);
void oq_hessian_release(oq_hessian *h);
/* A matrix of n numbers beside those of the Hessian, and in the same kind of memory. */
onq_code oq_hessian_matrix(const oq_hessian *h, size_t n, oq_matrix *out, onq_error *err);
void oq_hessian_matrix_release(const oq_hessian *h, oq_matrix *m);
/* Adds n rows of k floats, `ld` floats from one row to the next; y: rows of m floats without gaps,
 * or NULL. Values that are not finite count as 0. */
onq_code oq_hessian_add(oq_hessian *h, const float *x, const float *y, size_t n, size_t ld,
                        onq_error *err);
/* Adds what was gathered and completes the lower half. */
onq_code oq_hessian_finish(oq_hessian *h, onq_error *err);
