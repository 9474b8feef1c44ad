/*
 * linear.h — dense linear algebra: a LAPACK that is opened at run time, or plain loops.
 *
 * OpenBLAS, else the system's liblapack, is opened when a job needs it: to be linked with it would
 * cost every other command 50 ms at its start. Each call runs on one thread, so that results do not
 * depend on the number of them; callers divide the work among theirs. Where there is no library the
 * same is computed by loops here, slower and with other last digits.
 *
 * OpenBLAS has one number of threads for the whole process, which may use it too. It is 1 from the
 * first oq_linear_open to the last oq_linear_close, and then what it was.
 *
 * Matrices are row by row. Functions may be called from several threads at once.
 */
#pragma once

#include "base/err.h"

typedef struct oq_linear {
    const char *name; /* of the library; NULL: plain loops */
    void (*potrf)(const char *, const int *, double *, const int *, int *, size_t);
    void (*spotrf)(const char *, const int *, float *, const int *, int *, size_t);
    void (*trtri)(const char *, const char *, const int *, double *, const int *, int *, size_t,
                  size_t);
    void (*potrs)(const char *, const int *, const int *, const double *, const int *, double *,
                  const int *, int *, size_t);
    void (*dgemm)(const char *, const char *, const int *, const int *, const int *, const double *,
                  const double *, const int *, const double *, const int *, const double *,
                  double *, const int *, size_t, size_t);
    void (*sgemm)(const char *, const char *, const int *, const int *, const int *, const float *,
                  const float *, const int *, const float *, const int *, const float *, float *,
                  const int *, size_t, size_t);
    void (*set_threads)(int); /* NULL: there is nothing to restore */
} oq_linear;

/* Opens the library; without one, or with `plain`, the loops serve. */
void oq_linear_open(oq_linear *l, bool plain);
/* Needed after each of them. One that was never opened, and is zero, may be closed too. */
void oq_linear_close(oq_linear *l);

/* The largest side of a matrix. */
#define OQ_MAX_LINEAR 65536

/* a = U^T U: its upper triangle becomes U. False when `a` is not positive definite; it is spoilt
 * then. */
bool oq_linear_cholesky(const oq_linear *l, double *a, size_t n);
/* The same of floats. */
bool oq_linear_factor(const oq_linear *l, float *a, size_t n);
/* The upper triangle of `a` becomes the U whose U^T U is the inverse of a. False when `a` is not
 * positive definite; it is spoilt then. */
bool oq_linear_inverse_factor(const oq_linear *l, double *a, size_t n);
/* Solves U^T U x = b for the m rows of b in place: row i of b is one right-hand side. */
void oq_linear_solve(const oq_linear *l, const double *u, size_t n, double *b, size_t m);
/* c[m x n] -= a^T b with a[k x m] and b[k x n]; ld: numbers from one row to the next. */
void oq_linear_subtract(const oq_linear *l, size_t m, size_t n, size_t k, const double *a,
                        size_t lda, const double *b, size_t ldb, double *c, size_t ldc);
/* c[m x n] = a^T b of floats, likewise. */
void oq_linear_product(const oq_linear *l, size_t m, size_t n, size_t k, const float *a, size_t lda,
                       const float *b, size_t ldb, float *c, size_t ldc);
/* c[m x n] += a b of floats, with a[m x k] and b[k x n]. */
void oq_linear_add(const oq_linear *l, size_t m, size_t n, size_t k, const float *a, size_t lda,
                   const float *b, size_t ldb, float *c, size_t ldc);
