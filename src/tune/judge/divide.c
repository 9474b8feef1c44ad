/*
 * divide.c — see divide.h.
 */
#include "tune/judge/divide.h"

#include "base/vec.h"

#include <stdlib.h>

/* The finisher of splitmix64: every bit of x changes about half of the bits. */
static uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t fold_in(uint64_t hash, uint64_t v) {
    return mix(hash + UINT64_C(0x9e3779b97f4a7c15) + v);
}

static uint64_t hash_bytes(uint64_t hash, const void *p, uint64_t n) {
    const uint8_t *bytes = p;
    uint64_t word = 0, i = 0;
    for (; i + sizeof word <= n; i += sizeof word) {
        memcpy(&word, bytes + i, sizeof word);
        hash = fold_in(hash, word);
    }
    word = 0;
    if (i < n)
        memcpy(&word, bytes + i, n - i);
    return fold_in(fold_in(hash, word), n);
}

static uint64_t hash_datum(uint64_t hash, const oq_datum *d) {
    hash = fold_in(fold_in(hash, (uint64_t)d->kind), (uint64_t)d->dtype);
    for (size_t i = 0; i < d->rank; i++)
        hash = fold_in(hash, (uint64_t)d->dims[i]);
    if (d->data != NULL)
        hash = hash_bytes(hash, d->data, d->size_bytes);
    for (uint64_t i = 0; d->strings != NULL && i < d->count; i++)
        hash = hash_bytes(hash, d->strings[i].p, d->strings[i].n);
    for (size_t i = 0; i < d->n_items; i++)
        hash = hash_datum(hash, &d->items[i]);
    return hash;
}

uint64_t oq_sample_hash(const oq_sample *s) {
    uint64_t hash = 0;
    for (size_t i = 0; i < s->n_inputs; i++)
        hash = hash_datum(hash, &s->inputs[i]);
    return hash;
}

typedef struct ranked {
    uint64_t hash, number;
    size_t at;
} ranked;

static int by_hash(const void *x, const void *y) {
    const ranked *a = x, *b = y;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return a->number != b->number ? (a->number < b->number ? -1 : 1) : 0;
}

/* Cuts the list into equal parts, but not between samples that are equal; true if every part has
 * some. */
static bool cut_between(const ranked *v, size_t n, size_t n_parts, size_t *part) {
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        const bool goes_on = i > 0 && v[i].hash == v[i - 1].hash;
        part[v[i].at] = goes_on ? part[v[i - 1].at] : i * n_parts / n;
        used += i == 0 || part[v[i].at] != part[v[i - 1].at];
    }
    return used == n_parts;
}

/* The part of every sample, into part[n], and their places in the order of their hashes into
 * order[n]. */
static onq_code find_parts(oq_arena *a, const uint64_t *hashes, const uint64_t *numbers, size_t n,
                           size_t n_parts, uint64_t salt, size_t *part, size_t *order,
                           onq_error *err) {
    assert(n == 0 || (n_parts > 0 && n_parts <= n));
    ranked *v = OQ_NEW_ARRAY(a, ranked, n + 1);
    OQ_TRY_ALLOC(v != NULL, err);
    for (size_t i = 0; i < n; i++)
        v[i] = (ranked){mix(hashes[i] ^ mix(salt)), numbers[i], i};
    qsort(v, n, sizeof *v, by_hash);
    for (size_t i = 0; i < n; i++)
        order[i] = v[i].at;
    if (cut_between(v, n, n_parts, part))
        return ONQ_OK;
    for (size_t i = 0; i < n; i++)
        part[v[i].at] = i * n_parts / n;
    return ONQ_OK;
}

static onq_code fill_fold(oq_arena *a, const uint64_t *numbers, const size_t *part,
                          const size_t *order, size_t n, size_t which, bool apart, oq_fold *out,
                          onq_error *err) {
    uint64_t *calibrate = OQ_NEW_ARRAY(a, uint64_t, n + 1);
    size_t *judge = OQ_NEW_ARRAY(a, size_t, n + 1);
    OQ_TRY_ALLOC(calibrate != NULL && judge != NULL, err);
    for (size_t i = 0; i < n; i++) {
        if (part[order[i]] == which)
            judge[out->n_judge++] = order[i];
        if (part[i] != which || !apart)
            calibrate[out->n_calibrate++] = numbers[i];
    }
    assert(out->n_judge <= n && out->n_judge + out->n_calibrate >= n);
    out->calibrate = calibrate;
    out->judge = judge;
    return ONQ_OK;
}

onq_code oq_divide(oq_arena *a, const uint64_t *hashes, const uint64_t *numbers, size_t n,
                   size_t n_parts, uint64_t salt, oq_division *out, onq_error *err) {
    size_t *part = OQ_NEW_ARRAY(a, size_t, n + 1), *order = OQ_NEW_ARRAY(a, size_t, n + 1);
    if (n_parts > n)
        n_parts = n;
    *out = (oq_division){.n = n_parts, .apart = n_parts > 1};
    out->folds = OQ_NEW_ARRAY(a, oq_fold, n_parts + 1);
    OQ_TRY_ALLOC(part != NULL && order != NULL && out->folds != NULL, err);
    OQ_TRY(find_parts(a, hashes, numbers, n, n_parts, salt, part, order, err));
    for (size_t i = 0; i < n_parts; i++)
        OQ_TRY(fill_fold(a, numbers, part, order, n, i, out->apart, &out->folds[i], err));
    return ONQ_OK;
}
