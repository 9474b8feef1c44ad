/*
 * search_parts.h — between the files of a search: search.c decides what is tried, search_pairs.c
 * takes pairs away from the graph and puts them back, search_try.c measures tries, search_measure.c
 * makes the model that was found and measures it as its users will.
 */
#pragma once

#include "base/pool.h"
#include "debug/search/search.h"
#include "engine/flight.h"
#include "engine/slice/cuts.h"

#define OQ_NOBODY UINT32_MAX

/* A DequantizeLinear that can be taken away. */
typedef struct oq_search_pair {
    oq_node *dq;
    const oq_index *ix;   /* of the graph that it is in */
    uint32_t q_at, dq_at; /* nodes; q_at OQ_NO_NODE: of a weight */
    uint32_t run_at;      /* node of the main graph that runs it: itself, or what has the body */
    /* A Relu or Clip of the float model that the pair's range stood for, or NULL. */
    const oq_node *like;
    OQ_VEC(oq_tensor *) inits; /* float tensors that the graph needs then */
    OQ_VEC(oq_str) inputs;     /* of the node in its place */
    OQ_VEC(uint32_t) owners;   /* in search.nodes: who needs it quantized */
    oq_numbers reads;          /* values of these inputs */
    oq_node saved;             /* while it is off */
    oq_numbers saved_reads;
    bool off;
} oq_search_pair;

typedef struct oq_searching {
    oq_debug *d;
    const oq_debug_run *run;
    const oq_debug_target *target;
    oq_debug_search *s;
    oq_arena *arena;
    OQ_VEC(oq_search_pair) pairs;
    bool *excluded;          /* by s->nodes */
    OQ_VEC(oq_datum *) kept; /* the float model's outputs, one array for each sample */
    size_t n_outputs;
    bool keep_acts; /* pairs of activations stay, whoever is excluded */
    size_t n_inits; /* float tensors of the pairs that graphs got */

    /* Tries: the graph in slices, what runs them, and the end of the graph that they share. */
    oq_slicer *slicer;
    oq_cuts cuts;
    oq_pool *pool; /* with a worker for each lane */
    unsigned n_lanes;
    oq_slice tails[OQ_FLIGHT_LANES]; /* one for each lane */
    size_t tail_cut;                 /* where they begin, or 0 */
} oq_searching;

/* Fills s->nodes, excluded and pairs. Graphs get the float tensors of the pairs. */
onq_code oq_search_find(oq_searching *g, onq_error *err);
/* Takes these tensors away again. */
void oq_search_forget(oq_searching *g);
/* True if no node that is quantized needs the pair. */
bool oq_search_is_off(const oq_searching *g, const oq_search_pair *p);
/* Edits the graph as `excluded` says; `put_back` undoes it. */
void oq_search_apply(oq_searching *g);
void oq_search_put_back(oq_searching *g);

/* How near outputs are to the float model's. */
typedef struct oq_search_score {
    double sqnr, agreement; /* of the worst output; NAN: no rows */
} oq_search_score;

/* Runs the float model and the quantized one with nothing quantized over the samples, and keeps
 * what tries begin with: outputs, and tensors at places where the graph is cut. */
onq_code oq_search_begin(oq_searching *g, onq_error *err);
/* How many samples or tries run at once from now on, by what one added to the resident bytes
 * `before` it. */
onq_code oq_search_lanes(oq_searching *g, uint64_t before, onq_error *err);
/* Measures the outputs as `excluded` says. Only the part of the graph that the quantized nodes are
 * in is run anew; after it a session that stays open for the tries that follow. */
onq_code oq_search_measure(oq_searching *g, oq_search_score *out, onq_error *err);

/* Tries that do not depend on each other. */
typedef struct oq_search_tries {
    size_t n;
    const char *what;                  /* for progress */
    void (*set)(void *ctx, size_t at); /* writes `excluded` for a try */
    bool (*is_late)(void *ctx);        /* those that have not begun are left out; any thread */
    void *ctx;
    oq_search_score *scores; /* by try */
    bool *measured;          /* by try: it was not left out */
} oq_search_tries;
/* In the order that opens the fewest sessions, several at once. */
onq_code oq_search_measure_all(oq_searching *g, const oq_search_tries *tries, onq_error *err);
/* Lets go of cuts, sessions, lanes, and of what the graph got. */
void oq_search_end(oq_searching *g);

static inline void oq_search_exclude_all(oq_searching *g, bool value) {
    for (size_t i = 0; i < g->s->nodes.n; i++)
        g->excluded[i] = value;
}

/* Makes the model with the set that was found and measures it: default session, all samples. */
onq_code oq_search_verify(oq_searching *g, onq_error *err);

/* Adds one output of one sample. */
typedef struct oq_search_sum {
    oq_sums sums;
    uint64_t rows, same;
} oq_search_sum;
onq_code oq_search_sum_add(const oq_searching *g, oq_search_sum *s, const oq_datum *x,
                           const oq_datum *y, onq_error *err);
void oq_search_sum_join(oq_search_sum *into, const oq_search_sum *more);
oq_search_score oq_search_score_of(const oq_search_sum *v, size_t n);
