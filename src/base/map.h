/*
 * map.h — hash map from text to a 32-bit number (an index into somebody's array).
 *
 * Keys are views that must outlive the map; nothing is copied. Grows in its arena. Linear probing
 * over a hash keyed by the process's random bytes, against names made to collide; results never
 * depend on it because maps are not iterated.
 */
#ifndef OQ_BASE_MAP_H
#define OQ_BASE_MAP_H

#include "base/str.h"

#define OQ_MAP_NONE UINT32_MAX

typedef struct oq_map_slot {
    oq_str key;
    uint32_t hash;
    uint32_t value; /* OQ_MAP_NONE: empty or removed */
} oq_map_slot;

typedef struct oq_map {
    oq_arena *arena;
    oq_map_slot *slots;
    size_t n_slots; /* power of two or 0 */
    size_t n_used;  /* filled or removed slots */
    size_t count;   /* live keys */
    uint64_t seed;
} oq_map;

void oq_map_init(oq_map *m, oq_arena *arena);
/* The value of `key`, or OQ_MAP_NONE. */
uint32_t oq_map_find(const oq_map *m, oq_str key);
static inline bool oq_map_has(const oq_map *m, oq_str key) {
    return oq_map_find(m, key) != OQ_MAP_NONE;
}
/* Sets or replaces; false when out of memory. `value` must not be OQ_MAP_NONE. */
bool oq_map_put(oq_map *m, oq_str key, uint32_t value);
/* Removes; true if it was there. */
bool oq_map_remove(oq_map *m, oq_str key);

#endif
