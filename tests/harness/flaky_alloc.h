/*
 * flaky_alloc.h — an allocator whose Nth request fails, and the sweep that fails each in turn.
 *
 *     static onq_code body(const onq_allocator *a, void *ctx, onq_error *err) { ... }
 *     flaky_sweep(body, ctx);
 *
 * runs the body with the 1st, 2nd, 3rd ... request failing (once alone, and once with all that
 * follow failing too) until a run needs no more. Every run must end in success or ONQ_E_NOMEM with
 * a message, and give all memory back; sizes given at a resize or free must be those of the block.
 *
 * A run that lost a request and still says ONQ_OK must have the same result as a run that lost none:
 * nothing may be missing in silence. So a body that can end like that shows its result with
 * flaky_give.
 */
#pragma once

#include "onq/onq.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct flaky {
    onq_allocator alloc;   /* hand out &f.alloc */
    atomic_long left;      /* requests that succeed before the failure; below 0: none fails */
    bool stays;            /* after the first failure all requests fail */
    atomic_bool failed;    /* a request has failed */
    atomic_size_t live;    /* bytes given and not yet given back */
    atomic_size_t peak;    /* the most there ever were */
    atomic_size_t n_calls; /* requests for memory */
    size_t n_given;        /* calls of flaky_give */
    uint64_t given;        /* a hash of what it was shown */
} flaky;

void flaky_init(flaky *f, long left);

/* Adds n bytes to the result of the run. With another allocator it does nothing. */
void flaky_give(const onq_allocator *a, const void *p, size_t n);
/* From here on no request fails: for a result that takes memory to be shown. */
void flaky_calm(const onq_allocator *a);

typedef onq_code flaky_body(const onq_allocator *a, void *ctx, onq_error *err);

/* Returns the number of requests of the run in which none failed. */
size_t flaky_sweep(flaky_body *body, void *ctx);
