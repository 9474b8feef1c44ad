/*
 * map.c — hash map from text to a number. See map.h.
 *
 * A slot whose key is NULL is empty; one with a key and the value OQ_MAP_NONE was removed and keeps
 * probe chains whole. Names come from files that may be hostile, so the hash is keyed with random
 * bytes of the process: nobody can prepare names that all fall into one chain.
 */
#include "base/map.h"

#include <sys/auxv.h>

enum { FIRST_SLOTS = 16 };

__extension__ typedef unsigned __int128 u128;

static uint64_t mix(uint64_t a, uint64_t b) {
    const u128 product = (u128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t load(const char *p, size_t n) {
    uint64_t v = 0;
    if (n != 0)
        memcpy(&v, p, n);
    return v;
}

static uint32_t hash_of(const oq_map *m, oq_str key) {
    static const uint64_t k0 = 0xa0761d6478bd642fu, k1 = 0xe7037ed1a0b428dbu;
    uint64_t h = m->seed ^ k0;
    const char *p = key.p;
    size_t n = key.n;
    for (; n > 16; p += 16, n -= 16)
        h = mix(load(p, 8) ^ k1, load(p + 8, 8) ^ h);
    const uint64_t low = load(p, n < 8 ? n : 8), high = n > 8 ? load(p + 8, n - 8) : 0;
    h = mix(low ^ k1 ^ key.n, high ^ h);
    h = mix(h ^ k0, m->seed ^ k1);
    return (uint32_t)(h ^ (h >> 32));
}

void oq_map_init(oq_map *m, oq_arena *arena) {
    *m = (oq_map){.arena = arena};
    /* 16 random bytes that the kernel gives each process. */
    const unsigned long at = getauxval(AT_RANDOM);
    if (at != 0)
        memcpy(&m->seed, (const void *)at, sizeof m->seed);
}

/* The slot that holds `key`, or the empty one that ends its chain. */
static oq_map_slot *find_slot(oq_map_slot *slots, size_t n_slots, oq_str key, uint32_t hash) {
    const size_t mask = n_slots - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        oq_map_slot *s = &slots[i];
        if (s->key.p == NULL)
            return s;
        if (s->hash == hash && s->value != OQ_MAP_NONE && oq_str_eq(s->key, key))
            return s;
    }
}

uint32_t oq_map_find(const oq_map *m, oq_str key) {
    if (m->count == 0)
        return OQ_MAP_NONE;
    const oq_map_slot *s = find_slot(m->slots, m->n_slots, key, hash_of(m, key));
    return s->key.p == NULL ? OQ_MAP_NONE : s->value;
}

/* Room for one more key: at most two thirds of the slots are filled or removed. */
static bool reserve(oq_map *m) {
    if (m->n_slots != 0 && m->n_used + 1 <= m->n_slots / 3 * 2)
        return true;
    size_t n_slots = FIRST_SLOTS;
    while (n_slots / 3 < m->count + 1) {
        if (n_slots > SIZE_MAX / 2)
            return false;
        n_slots *= 2;
    }
    oq_map_slot *slots = OQ_NEW_ARRAY(m->arena, oq_map_slot, n_slots);
    if (slots == NULL)
        return false;
    for (size_t i = 0; i < m->n_slots; i++) {
        const oq_map_slot *old = &m->slots[i];
        if (old->value != OQ_MAP_NONE && old->key.p != NULL)
            *find_slot(slots, n_slots, old->key, old->hash) = *old;
    }
    m->slots = slots;
    m->n_slots = n_slots;
    m->n_used = m->count;
    return true;
}

bool oq_map_put(oq_map *m, oq_str key, uint32_t value) {
    assert(value != OQ_MAP_NONE);
    const uint32_t hash = hash_of(m, key);
    if (m->count != 0) {
        oq_map_slot *s = find_slot(m->slots, m->n_slots, key, hash);
        if (s->key.p != NULL) {
            s->value = value;
            return true;
        }
    }
    if (!reserve(m))
        return false;
    if (key.p == NULL)
        key.p = "";
    *find_slot(m->slots, m->n_slots, key, hash) = (oq_map_slot){key, hash, value};
    m->n_used++;
    m->count++;
    return true;
}

bool oq_map_remove(oq_map *m, oq_str key) {
    if (m->count == 0)
        return false;
    oq_map_slot *s = find_slot(m->slots, m->n_slots, key, hash_of(m, key));
    if (s->key.p == NULL)
        return false;
    s->value = OQ_MAP_NONE;
    m->count--;
    return true;
}
