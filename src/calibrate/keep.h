/*
 * keep.h — activations kept in memory between the two looks a histogram needs, up to a limit.
 */
#ifndef OQ_CALIBRATE_KEEP_H
#define OQ_CALIBRATE_KEEP_H

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
    uint64_t used, limit; /* bytes */
    bool on;              /* still keeping; off for good once the limit was passed */
} oq_keep;

/* With a limit of 0 nothing is kept. */
onq_code oq_keep_init(oq_keep *k, const onq_allocator *a, size_t n_tensors, uint64_t limit,
                      onq_error *err);
void oq_keep_release(oq_keep *k);
/* Keeps a copy, or, when it does not fit any more (memory that cannot be had counts), gives up
 * everything. */
void oq_keep_add(oq_keep *k, size_t tensor, const oq_datum *d);
/* Gives up. */
void oq_keep_drop(oq_keep *k);
/* Forgets what is kept and starts over, for the next chunk. */
onq_code oq_keep_restart(oq_keep *k, onq_error *err);

#endif
