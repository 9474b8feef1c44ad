/*
 * map.c — hash map from text to a number. See map.h.
 *
 * A slot leads to an entry. An entry with the value OQ_MAP_NONE was removed, and its slot keeps
 * probe chains whole until the map grows. Names come from files that may be hostile, so the hash is
 * keyed with random bytes of the process: nobody can prepare names that all fall into one chain.
 */
#include "base/map.h"

#include "base/os.h"

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
    m->seed = oq_os_seed();
}

/* The slot of `key`, or the empty one that ends its chain. */
static oq_map_slot *find_slot(const oq_map *m, oq_str key, uint32_t hash) {
    const size_t mask = m->n_slots - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        oq_map_slot *s = &m->slots[i];
        if (s->at == 0)
            return s;
        if (s->hash == hash) {
            const oq_map_entry *e = &m->entries[s->at - 1];
            if (e->value != OQ_MAP_NONE && oq_str_eq(e->key, key))
                return s;
        }
    }
}

uint32_t oq_map_find(const oq_map *m, oq_str key) {
    if (m->count == 0)
        return OQ_MAP_NONE;
    const oq_map_slot *s = find_slot(m, key, hash_of(m, key));
    return s->at == 0 ? OQ_MAP_NONE : m->entries[s->at - 1].value;
}

/* Moves what is live to a table for n keys. */
static bool grow(oq_map *m, size_t n) {
    size_t n_slots = FIRST_SLOTS;
    while (n_slots / 2 < n) {
        if (n_slots > SIZE_MAX / 2)
            return false;
        n_slots *= 2;
    }
    /* Entries are numbered by 32 bits. */
    if (n_slots / 2 > UINT32_MAX)
        return false;
    oq_map_slot *slots = OQ_NEW_ARRAY(m->arena, oq_map_slot, n_slots);
    oq_map_entry *entries = OQ_NEW_ARRAY(m->arena, oq_map_entry, n_slots / 2);
    if (slots == NULL || entries == NULL)
        return false;
    size_t used = 0;
    for (size_t i = 0; i < m->n_used; i++) {
        const oq_map_entry *e = &m->entries[i];
        if (e->value == OQ_MAP_NONE)
            continue;
        entries[used++] = *e;
        size_t at = e->hash & (n_slots - 1);
        while (slots[at].at != 0)
            at = (at + 1) & (n_slots - 1);
        slots[at] = (oq_map_slot){e->hash, (uint32_t)used};
    }
    m->slots = slots;
    m->entries = entries;
    m->n_slots = n_slots;
    m->n_used = used;
    return true;
}

bool oq_map_reserve(oq_map *m, size_t n) {
    return n <= m->n_slots / 2 || grow(m, n);
}

/* The entry of `key`, made with `value` when there is none; NULL when out of memory. */
static oq_map_entry *find_or_add(oq_map *m, oq_str key, uint32_t value) {
    assert(value != OQ_MAP_NONE);
    const uint32_t hash = hash_of(m, key);
    oq_map_slot *s = m->n_slots != 0 ? find_slot(m, key, hash) : NULL;
    if (s != NULL && s->at != 0)
        return &m->entries[s->at - 1];
    if (s == NULL || m->n_used >= m->n_slots / 2) {
        /* A quarter more than there are, so that removing and putting does not grow it each
         * time. */
        if (!grow(m, m->count + m->count / 4 + 1))
            return NULL;
        s = find_slot(m, key, hash);
    }
    if (key.p == NULL)
        key.p = "";
    m->entries[m->n_used] = (oq_map_entry){key, value, hash};
    m->n_used++;
    m->count++;
    *s = (oq_map_slot){hash, (uint32_t)m->n_used};
    return &m->entries[m->n_used - 1];
}

bool oq_map_put(oq_map *m, oq_str key, uint32_t value) {
    oq_map_entry *e = find_or_add(m, key, value);
    if (e != NULL)
        e->value = value;
    return e != NULL;
}

uint32_t oq_map_find_or_put(oq_map *m, oq_str key, uint32_t value) {
    const oq_map_entry *e = find_or_add(m, key, value);
    return e != NULL ? e->value : OQ_MAP_NONE;
}

bool oq_map_remove(oq_map *m, oq_str key) {
    if (m->count == 0)
        return false;
    const oq_map_slot *s = find_slot(m, key, hash_of(m, key));
    if (s->at == 0)
        return false;
    m->entries[s->at - 1].value = OQ_MAP_NONE;
    m->count--;
    return true;
}
