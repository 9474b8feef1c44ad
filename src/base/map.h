/*
 * map.h — hash map from text to a 32-bit number (an index into somebody's array).
 *
 * Keys are views that must outlive the map; nothing is copied. Grows in its arena. Linear probing
 * over a hash keyed by the process's random bytes, against names made to collide; results never
 * depend on it because maps are not iterated.
 *
 * The table that is probed has eight bytes a slot. Keys lie apart in the order they came in, which
 * is mostly the order they are asked for: with hundreds of thousands of names the time goes to
 * memory, not to hashing.
 */
#pragma once

#include "base/str.h"

#define OQ_MAP_NONE UINT32_MAX

typedef struct oq_map_slot {
    uint32_t hash;
    uint32_t at; /* 1 + the number of its entry; 0: empty */
} oq_map_slot;

typedef struct oq_map_entry {
    oq_str key;
    uint32_t value; /* OQ_MAP_NONE: removed */
    uint32_t hash;
} oq_map_entry;

typedef struct oq_map {
    oq_arena *arena;
    oq_map_slot *slots;
    oq_map_entry *entries;
    size_t n_slots; /* power of two or 0; at most half of them are filled */
    size_t n_used;  /* entries, removed ones too */
    size_t count;   /* live keys */
    uint64_t seed;
} oq_map;

void oq_map_init(oq_map *m, oq_arena *arena);
/* Room for n keys in all, so that it need not grow up to there; false when out of memory. */
bool oq_map_reserve(oq_map *m, size_t n);
/* The value of `key`, or OQ_MAP_NONE. */
uint32_t oq_map_find(const oq_map *m, oq_str key);
static inline bool oq_map_has(const oq_map *m, oq_str key) {
    return oq_map_find(m, key) != OQ_MAP_NONE;
}
/* Sets or replaces; false when out of memory. `value` must not be OQ_MAP_NONE. */
bool oq_map_put(oq_map *m, oq_str key, uint32_t value);
/* The value of `key`, which becomes `value` if it had none; OQ_MAP_NONE when out of memory. */
uint32_t oq_map_find_or_put(oq_map *m, oq_str key, uint32_t value);
/* Removes; true if it was there. */
bool oq_map_remove(oq_map *m, oq_str key);
