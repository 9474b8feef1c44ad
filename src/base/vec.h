/*
 * vec.h — typed growable arrays in an arena.
 *
 *     OQ_VEC(int64_t) dims = {0};
 *     if (!OQ_PUSH(arena, &dims, 7)) return oq_fail_nomem(err);
 *
 * Every OQ_VEC has the layout {pointer, count, capacity}; the codec relies on it.
 */
#pragma once

#include "base/arena.h"

#define OQ_VEC(T)                                                                                  \
    struct {                                                                                       \
        T *v;                                                                                      \
        size_t n, cap;                                                                             \
    }

/* The layout they share, for generic code. */
typedef struct oq_vec_any {
    void *v;
    size_t n, cap;
} oq_vec_any;

/* Appends `x`; false when out of memory. */
#define OQ_PUSH(arena, vec, ...)                                                                   \
    (oq_arena_grow((arena), (void **)(void *)&(vec)->v, (vec)->n, &(vec)->cap, sizeof(*(vec)->v))  \
         ? ((vec)->v[(vec)->n++] = (__VA_ARGS__), true)                                            \
         : false)

/* Removes element i, keeping the order. */
#define OQ_REMOVE_AT(vec, i)                                                                       \
    (memmove(&(vec)->v[(i)], &(vec)->v[(i) + 1], ((vec)->n - (i)-1) * sizeof(*(vec)->v)),          \
     (void)(vec)->n--)
