/*
 * arena.h — a block arena: many small things with one life.
 *
 * A model owns one; each pass has a scratch arena released at its end; each worker has its own.
 * Not thread-safe. Memory is zeroed. Nothing is freed singly. Large requests get a block of their
 * own. `limit` bounds the total (0: none), so that a hostile file cannot make it grow without end.
 */
#pragma once

#include "base/alloc.h"

typedef struct oq_arena_block oq_arena_block;

typedef struct oq_arena {
    const onq_allocator *alloc;
    oq_arena_block *blocks; /* newest first */
    uint8_t *next, *end;    /* free part of the newest small block */
    size_t used;            /* bytes taken from the allocator */
    size_t limit;           /* 0: none */
    bool limited;           /* a request was refused because of the limit, not for want of memory */
} oq_arena;

void oq_arena_init(oq_arena *a, const onq_allocator *alloc);
void oq_arena_release(oq_arena *a);

/* Declares an arena that is released when the block that it is declared in is left, in any way. */
#define OQ_SCRATCH(name, allocator)                                                                \
    OQ_CLEANUP(oq_arena_release) oq_arena name;                                                    \
    oq_arena_init(&name, allocator)

/* Zeroed, aligned to 16. NULL when out of memory or past the limit. */
void *oq_arena_alloc(oq_arena *a, size_t n);
/* count x size with the product checked. */
void *oq_arena_array(oq_arena *a, size_t count, size_t size);
/* Copy of n bytes with a NUL after them. */
char *oq_arena_strdup(oq_arena *a, const char *p, size_t n);
/* Grows *v (an array of n used, *cap allocated elements) so that one more fits; the old array is
 * left behind in the arena. False when out of memory. */
bool oq_arena_grow(oq_arena *a, void **v, size_t n, size_t *cap, size_t elem_size);

#define OQ_NEW(arena, T)              ((T *)oq_arena_alloc((arena), sizeof(T)))
#define OQ_NEW_ARRAY(arena, T, count) ((T *)oq_arena_array((arena), (count), sizeof(T)))
