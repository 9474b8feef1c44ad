/*
 * extents.c — see extents.h.
 */
#include "calibrate/extents.h"

#include <math.h>

void oq_extent_memory_init(oq_extent_memory *m, const onq_allocator *alloc) {
    *m = (oq_extent_memory){0};
    oq_arena_init(&m->arena, alloc);
    oq_map_init(&m->map, &m->arena);
}

void oq_extent_memory_release(oq_extent_memory *m) {
    oq_arena_release(&m->arena);
    *m = (oq_extent_memory){0};
}

static bool has(const oq_seen_tensor *t, uint64_t number) {
    return number < t->by_sample.n && !isnan(t->by_sample.v[number].lo) &&
           !isnan(t->by_sample.v[number].hi);
}

const oq_seen_tensor *oq_extent_memory_find(const oq_extent_memory *m, oq_str name,
                                            const uint64_t *numbers, uint64_t n) {
    const uint32_t at = oq_map_find(&m->map, name);
    if (at == OQ_MAP_NONE)
        return NULL;
    const oq_seen_tensor *t = &m->all.v[at];
    for (uint64_t i = 0; i < n; i++)
        if (!has(t, numbers[i]))
            return NULL;
    return t;
}

bool oq_extent_memory_is_full(const oq_extent_memory *m, uint64_t n) {
    bool full = false;
    for (size_t k = 0; k < m->all.n && !full; k++) {
        uint64_t i = 0;
        while (i < n && has(&m->all.v[k], i))
            i++;
        full = i == n;
    }
    return full;
}

onq_code oq_extent_memory_keep(oq_extent_memory *m, oq_str name, oq_dtype type,
                               const oq_seen_extent *v, const uint64_t *numbers, uint64_t n,
                               onq_error *err) {
    uint32_t at = oq_map_find(&m->map, name);
    if (at == OQ_MAP_NONE) {
        const oq_str own = oq_str_copy(&m->arena, name);
        at = (uint32_t)m->all.n;
        if (own.p == NULL || !OQ_PUSH(&m->arena, &m->all, (oq_seen_tensor){.type = type}) ||
            !oq_map_put(&m->map, own, at))
            return oq_fail_nomem(err);
    }
    oq_seen_tensor *t = &m->all.v[at];
    assert(t->type == type);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t k = numbers[i];
        while (t->by_sample.n <= k)
            OQ_TRY_ALLOC(OQ_PUSH(&m->arena, &t->by_sample, ((oq_seen_extent){NAN, NAN})), err);
        t->by_sample.v[k] = v[i];
    }
    return ONQ_OK;
}
