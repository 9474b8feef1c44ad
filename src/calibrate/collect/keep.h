/*
 * keep.h — activations of whole samples kept in memory between the two looks a histogram needs, up
 * to a limit.
 *
 *     oq_keep_begin(&k, number);
 *     oq_keep_add(&k, tensor, datum);     for each of its tensors
 *     kept = oq_keep_end(&k);             all of them, or none
 */
#pragma once

#include "base/vec.h"
#include "samples/datum.h"

typedef struct oq_kept {
    const void *p;
    size_t n; /* elements */
} oq_kept;

typedef OQ_VEC(oq_kept) oq_kept_list;

typedef struct oq_keep {
    const onq_allocator *alloc;
    oq_arena arena;      /* the lists */
    oq_kept_list *lists; /* by tensor */
    size_t n_lists;
    struct oq_keep_block *blocks;
    uint64_t used, limit; /* bytes; the caller sets and raises the limit */
    bool on;              /* between begin and end, and nothing was too much so far */
    /* where the sample began */
    struct oq_keep_block *from_block;
    size_t from_used;
    uint64_t from;
    size_t *from_n; /* by list */
} oq_keep;

onq_code oq_keep_init(oq_keep *k, const onq_allocator *a, size_t n_tensors, onq_error *err);
void oq_keep_release(oq_keep *k);
void oq_keep_begin(oq_keep *k);
/* Keeps a copy, unless one did not fit before (memory that cannot be had counts). */
void oq_keep_add(oq_keep *k, size_t tensor, const oq_datum *d);
/* True if all of the sample is kept; else nothing of it is. */
bool oq_keep_end(oq_keep *k);
/* Forgets what is kept. */
void oq_keep_clear(oq_keep *k);
