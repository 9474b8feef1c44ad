/*
 * arena.c — a block arena. See arena.h.
 *
 * Small requests are cut from blocks that double from FIRST_BLOCK to LAST_BLOCK bytes; a request
 * over a quarter of LAST_BLOCK gets a block of its own, placed after the newest, so that the rest
 * of the newest stays in use. Under AddressSanitizer the unused part of a block is poisoned and a
 * red zone follows every piece, so that an overrun inside the arena is found as it would be with
 * malloc.
 */
#include "base/arena.h"

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif

#if defined(ARENA_ASAN)
#include <sanitizer/asan_interface.h>
#define POISON(p, n)   __asan_poison_memory_region((p), (n))
#define UNPOISON(p, n) __asan_unpoison_memory_region((p), (n))
enum { RED_ZONE = 16 };
#else
#define POISON(p, n)   ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
enum { RED_ZONE = 0 };
#endif

enum { ALIGN = 16, FIRST_BLOCK = 4096, LAST_BLOCK = 1 << 20, OWN_BLOCK = LAST_BLOCK / 4 };

struct oq_arena_block {
    oq_arena_block *next;
    size_t size; /* with this header */
};
static_assert(sizeof(oq_arena_block) % ALIGN == 0, "what follows the header is aligned");

void oq_arena_init(oq_arena *a, const onq_allocator *alloc) {
    *a = (oq_arena){.alloc = alloc};
}

void oq_arena_release(oq_arena *a) {
    for (oq_arena_block *b = a->blocks; b != NULL;) {
        oq_arena_block *next = b->next;
        UNPOISON(b, b->size);
        oq_free(a->alloc, b, b->size);
        b = next;
    }
    *a = (oq_arena){.alloc = a->alloc, .limit = a->limit};
}

/* A block of `size` bytes with its header, counted against the limit; not in the list yet. */
static oq_arena_block *take_block(oq_arena *a, size_t size) {
    if (a->limit != 0 && (a->used > a->limit || size > a->limit - a->used)) {
        a->limited = true;
        return NULL;
    }
    oq_arena_block *b = oq_alloc(a->alloc, size);
    if (b == NULL)
        return NULL;
    b->size = size;
    a->used += size;
    return b;
}

/* The request as a block of its own, after the head of the list, which may still have room. */
static void *alloc_own(oq_arena *a, size_t room, size_t n) {
    oq_arena_block *b = take_block(a, sizeof *b + room);
    if (b == NULL)
        return NULL;
    if (a->blocks == NULL) {
        b->next = NULL;
        a->blocks = b;
    } else {
        b->next = a->blocks->next;
        a->blocks->next = b;
    }
    uint8_t *p = (uint8_t *)(b + 1);
    memset(p, 0, n);
    POISON(p + n, room - n);
    return p;
}

static bool add_block(oq_arena *a, size_t room) {
    size_t size = FIRST_BLOCK;
    /* As large as all before, so that the number of blocks grows with the logarithm. */
    while (size < LAST_BLOCK && size < a->used)
        size *= 2;
    while (size < sizeof(oq_arena_block) + room)
        size *= 2;
    oq_arena_block *b = take_block(a, size);
    if (b == NULL)
        return false;
    b->next = a->blocks;
    a->blocks = b;
    a->next = (uint8_t *)(b + 1);
    a->end = (uint8_t *)b + size;
    POISON(a->next, (size_t)(a->end - a->next));
    return true;
}

void *oq_arena_alloc(oq_arena *a, size_t n) {
    if (n > SIZE_MAX / 2)
        return NULL;
    /* An empty piece has an address of its own too. */
    const size_t room = ((n != 0 ? n : 1) + RED_ZONE + ALIGN - 1) / ALIGN * ALIGN;
    if (room > (size_t)(a->end - a->next)) {
        if (room > OWN_BLOCK)
            return alloc_own(a, room, n);
        if (!add_block(a, room))
            return NULL;
    }
    uint8_t *p = a->next;
    a->next += room;
    UNPOISON(p, n);
    memset(p, 0, n);
    return p;
}

void *oq_arena_array(oq_arena *a, size_t count, size_t size) {
    size_t n;
    return __builtin_mul_overflow(count, size, &n) ? NULL : oq_arena_alloc(a, n);
}

char *oq_arena_strdup(oq_arena *a, const char *p, size_t n) {
    char *copy = n < SIZE_MAX ? oq_arena_alloc(a, n + 1) : NULL;
    if (copy != NULL && n != 0)
        memcpy(copy, p, n);
    return copy;
}

bool oq_arena_grow(oq_arena *a, void **v, size_t n, size_t *cap, size_t elem_size) {
    if (n < *cap)
        return true;
    size_t wanted;
    if (__builtin_mul_overflow(n, (size_t)2, &wanted))
        return false;
    if (wanted < 4)
        wanted = 4;
    void *p = oq_arena_array(a, wanted, elem_size);
    if (p == NULL)
        return false;
    if (n != 0)
        memcpy(p, *v, n * elem_size);
    *v = p;
    *cap = wanted;
    return true;
}
