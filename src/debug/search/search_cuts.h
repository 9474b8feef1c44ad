/*
 * search_cuts.h — between search_cuts.c, which cuts the graph and keeps the values there, and
 * search_try.c, which runs the parts of it that a try changes.
 */
#ifndef OQ_DEBUG_SEARCH_CUTS_H
#define OQ_DEBUG_SEARCH_CUTS_H

#include "base/pool.h"
#include "debug/search/search_parts.h"

#define OQ_SEARCH_CUTS 24

/* A session over part of the graph. */
typedef struct oq_search_part {
    oq_session *session;
    OQ_VEC(uint32_t) in, out; /* values, in the order of its inputs and outputs */
    oq_datum *feed;
    oq_outputs got;
} oq_search_part;

struct oq_search_cuts {
    oq_arena arena;
    uint32_t *order, *at;             /* node by place; place by node */
    uint32_t *pair;                   /* by node: its pair, if it is the DequantizeLinear of one */
    OQ_VEC(uint32_t) * reads;         /* by node: values that it and the graphs in it read */
    uint32_t *last;                   /* by value: place of the last node that reads it, nothing
                                    * quantized; outputs of the graph: past the end */
    uint32_t *slot;                   /* by value: in `values`, or OQ_NOBODY */
    OQ_VEC(uint32_t) kept;            /* values whose tensors are kept */
    OQ_VEC(oq_datum *) values;        /* one array for each sample */
    uint64_t bytes;                   /* of them */
    OQ_VEC(uint32_t) outputs;         /* values: outputs of the graph */
    uint32_t cut[OQ_SEARCH_CUTS + 2]; /* places; the first is 0, the last past the end */
    size_t n_cuts;

    /* Tries: what runs them, and the end of the graph that they share. */
    oq_pool *pool; /* NULL: one after the other */
    unsigned n_lanes;
    oq_search_part tail;
    size_t tail_cut; /* where it begins, or 0 */
};

static inline const oq_index *oq_search_index(const oq_searching *g) {
    return &g->d->made_index;
}
/* The value of that name, or OQ_NOBODY. */
uint32_t oq_search_value_at(const oq_searching *g, oq_str name);
/* Place of the node that makes it, or OQ_NOBODY. */
uint32_t oq_search_made_at(const oq_searching *g, uint32_t value);
/* The value crosses from before the cut to after it. */
bool oq_search_crosses(const oq_searching *g, uint32_t value, uint32_t cut);

/* What a node reads as the graph is now: an Identity in the place of a pair reads what the pair
 * began with, or a constant. all_off: with nothing quantized. */
typedef struct oq_search_reading {
    const uint32_t *v;
    size_t n;
    uint32_t one;
} oq_search_reading;
void oq_search_reads_of(const oq_searching *g, uint32_t node, bool all_off, oq_search_reading *r);

#endif
