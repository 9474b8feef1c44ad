/*
 * cuts.h — tensors kept at places all over a graph, so that a change of a few nodes need not run
 * the whole of it.
 *
 * As long as nothing changes, every tensor has one value for each sample. Those values are kept,
 * within the memory that is given, at places where few tensors cross from the nodes before to the
 * nodes after: cuts. A change has a head, from the last cut before its first node to the first cut
 * after its last one, which runs on kept values; and a tail from there to the outputs, which is the
 * same for all changes that end at that cut, so that a session over it can be opened once for all.
 * A tensor that is not kept is computed again from those that are: what is kept decides time, not
 * results.
 *
 *     OQ_TRY(oq_cuts_make(&cuts, slicer, memory, err));          as it is without a change
 *     ... change nodes, oq_slicer_rewire
 *     OQ_TRY(oq_cuts_find(&cuts, changed, arena, &change, err));
 *     OQ_TRY(oq_cuts_head(&cuts, &change, &head, err));
 *     ... undo the change
 *     OQ_TRY(oq_cuts_tail(&cuts, change.end, &tail, err));
 */
#pragma once

#include "engine/slice/slicer.h"

#define OQ_MAX_CUTS 24

typedef struct oq_cuts {
    oq_slicer *s;
    oq_numbers outputs; /* of the graph, in its order: values, or OQ_NO_VALUE */
    uint32_t *last;     /* by value: the place after its last reader; outputs of the graph: past
                         * the end */
    uint32_t place[OQ_MAX_CUTS + 2]; /* the first is 0, the last past the end */
    size_t n;
} oq_cuts;

/* What must run again. */
typedef struct oq_change {
    size_t begin, end; /* cuts, of the head */
    oq_numbers out;    /* values that differ and that are outputs or the tail reads; none: no output
                        * differs, and nothing must run */
    bool tail;         /* there is something to run after `end` */
} oq_change;

/* Chooses the cuts, runs the graph as it is and keeps outputs and what crosses a cut, of every
 * sample that is loaded. Where that is more than `memory` it keeps half of the cuts, and so on down
 * to none; outputs and inputs are kept in any case. The runtime may refuse to give some tensors:
 * then there are no cuts. All in the slicer's arena. */
onq_code oq_cuts_make(oq_cuts *c, oq_slicer *s, uint64_t memory, onq_error *err);

/* What the graph as it is now needs, if the nodes that are `changed` do not do what they did. */
onq_code oq_cuts_find(const oq_cuts *c, const bool *changed, oq_arena *a, oq_change *out,
                      onq_error *err);
/* The slice that makes change->out, of the graph as it is now. */
onq_code oq_cuts_head(const oq_cuts *c, const oq_change *change, oq_slice *p, onq_error *err);
/* The slice from the cut to the outputs that are made after it, of the graph as it is now. */
onq_code oq_cuts_tail(const oq_cuts *c, size_t cut, oq_slice *p, onq_error *err);
