/*
 * alloc.c — the C library's allocator as an onq_allocator. See alloc.h.
 */
#include "base/alloc.h"

static void *libc_resize(void *ctx OQ_UNUSED, void *p, size_t old_size OQ_UNUSED, size_t new_size) {
    if (new_size == 0) {
        free(p);
        return NULL;
    }
    return realloc(p, new_size);
}

const onq_allocator *oq_alloc_default(void) {
    static const onq_allocator libc = {libc_resize, NULL};
    return &libc;
}

void *oq_calloc(const onq_allocator *a, size_t count, size_t size) {
    size_t n;
    if (__builtin_mul_overflow(count, size, &n))
        return NULL;
    void *p = oq_alloc(a, n);
    if (p != NULL)
        memset(p, 0, n);
    return p;
}
