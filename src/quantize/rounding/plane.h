/*
 * plane.h — weights rounded such that a layer's output is nearest to float's, in float32 and with
 * half of the work of solve.h: for grids that are there, where nothing is moved afterwards.
 *
 *     oq_plane p;
 *     OQ_TRY(oq_plane_init(&p, &hessian, damp, err));
 *     oq_hessian_release(&hessian);                        it is not needed any more
 *     oq_plane_job job = {.plane = &p, .pool = pool, .n = n, .w = w, .scale = scale, .zero = zero,
 *                         .lo = -127, .hi = 127, .out = q};
 *     OQ_TRY(oq_plane_round(&job, err));                   any number of weights of these inputs
 *     oq_plane_release(&p);
 *
 * With H = R^T R the error d^T H d of rounded weights is the squared length of R d. Inputs are
 * rounded from the last to the first, each to the integer next to where R d would be shortest: what
 * GPTQ does in the opposite order with a factor of the inverse (solve.h), which is not needed here.
 * The largest inputs come last in the order, so they are rounded first and the others make up for
 * them.
 */
#pragma once

#include "quantize/rounding/hessian.h"

typedef struct oq_plane {
    const onq_allocator *alloc;
    const oq_linear *linear;
    size_t k;
    size_t *order; /* of the inputs */
    float *r;      /* k x k: R, rows and columns in that order */
} oq_plane;

/* Of a finished Hessian; `damp` is added to its diagonal, as a part of the diagonal's mean.
 * ONQ_E_INVALID where the inputs say nothing (their products are not finite). */
onq_code oq_plane_init(oq_plane *p, const oq_hessian *h, double damp, onq_error *err);
void oq_plane_release(oq_plane *p);

typedef struct oq_plane_job {
    const oq_plane *plane; /* NULL: every weight to the nearest integer */
    oq_pool *pool;
    const onq_allocator *alloc;
    size_t k, n;
    const float *w;            /* k x n */
    const float *scale, *zero; /* of the n columns; zeros are integers */
    int32_t lo, hi;
    int32_t *out; /* k x n */
} oq_plane_job;

/* The integers do not depend on the threads. */
onq_code oq_plane_round(const oq_plane_job *job, onq_error *err);
