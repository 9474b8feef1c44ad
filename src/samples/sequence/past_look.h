/*
 * past_look.h — looks at the states that samples bring: whether a run of the model can have made
 * them.
 *
 * A sequence that goes on with a state of its own is compared with what the model gave in the step
 * before. Where a text begins with a past, nothing is there to compare it with but its own
 * continuation: what a run adds to a cache has about the size of what is in it.
 */
#pragma once

#include "base/env.h"
#include "samples/sequence/seq_walk.h"

typedef struct oq_past_sum {
    double past, added; /* squares */
    uint64_t n_past, n_added;
} oq_past_sum;

typedef struct oq_past_look {
    const oq_walker *of;
    oq_past_sum *sums; /* by pair of the carry */
    uint64_t begun;    /* sequences ... */
    uint64_t one_step; /* ... that are one step with states that were made up */
    uint64_t brought;  /* steps in the middle of a sequence that bring a state ... */
    uint64_t foreign;  /* ... which is not that of the step before */
    oq_str first;      /* of them, in words */
    uint64_t first_number;
} oq_past_look;

onq_code oq_past_look_init(oq_past_look *p, oq_arena *a, const oq_walker *of, onq_error *err);
/* Before the walk takes a step in. `first` goes into the arena. */
onq_code oq_past_look_before(oq_past_look *p, oq_arena *a, const oq_walk *w, const oq_sample *step,
                             onq_error *err);
/* True if the outputs of this step are wanted. */
bool oq_past_look_wants(const oq_walk *w, const oq_sample *full);
/* After the run of a step: `outputs` may be NULL where they are not wanted. */
void oq_past_look_after(oq_past_look *p, const oq_walk *w, const oq_sample *full,
                        const oq_datum *outputs);
/* Warns of what was seen, once for each kind. */
void oq_past_look_tell(const oq_past_look *p, const onq_env *env);
