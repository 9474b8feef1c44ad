/*
 * alloc.h — memory through the caller's allocator, and overflow-checked size arithmetic.
 *
 * Every allocation of the library goes through an onq_allocator, so tests can fail the Nth one.
 * Sizes that come from a file are computed with oq_mul/oq_add and compared with what is there
 * before anything is allocated.
 */
#pragma once

#include "base/port.h"
#include "onq/onq.h"

/* The C library's allocator. */
const onq_allocator *oq_alloc_default(void);

static inline void *oq_alloc(const onq_allocator *a, size_t n) {
    return a->resize(a->ctx, NULL, 0, n ? n : 1);
}
static inline void *oq_resize(const onq_allocator *a, void *p, size_t old_size, size_t new_size) {
    return a->resize(a->ctx, p, old_size, new_size ? new_size : 1);
}
static inline void oq_free(const onq_allocator *a, void *p, size_t n) {
    if (p != NULL)
        a->resize(a->ctx, p, n ? n : 1, 0);
}
/* Zeroed; NULL when out of memory or when count x size overflows. */
void *oq_calloc(const onq_allocator *a, size_t count, size_t size);

/* True on success; false when the result does not fit. */
static inline bool oq_mul(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool oq_add(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
