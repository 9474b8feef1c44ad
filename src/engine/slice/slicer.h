/*
 * slicer.h — runs parts of a graph from tensors that are kept, over a number of samples.
 *
 * A slicer has one graph and keeps tensors of it, for every sample that was loaded into it: first
 * the inputs of the graph, then whatever its user has it keep. A slice is the part of the graph
 * that makes some tensors out of those that are at hand. It has a session of its own, so a few
 * nodes can be run again without the rest.
 *
 *     OQ_TRY(oq_slicer_open(&options, &s, err));
 *     OQ_GO(oq_slicer_load(s, source, n, memory, NULL, err));    the inputs of n samples
 *     OQ_GO(oq_slice_make(s, &wanted, OQ_EVERY_PLACE, &p, err));
 *     OQ_GO(oq_slice_open(&p, OQ_OPT_NONE, err));
 *     for (size_t i = 0; i < s->n_samples; i++) {
 *         OQ_GO(oq_slice_run(&p, NULL, i, err));
 *         OQ_GO(oq_slicer_keep(s, wanted.v[0], i, oq_slice_given(&p, wanted.v[0]), err));
 *     }
 *
 * Which tensors are kept, and what is given up when memory does not hold them, is for the user to
 * decide. There are two ways, both built on this:
 *   - stepper.h goes through the graph once, keeps what crosses from the nodes it has run to those
 *     that it has not, and gives up samples;
 *   - cuts.h keeps tensors at a number of places for as long as the slicer is open, so that a change
 *     anywhere costs the nodes around it, and gives up places.
 *
 * Values and nodes are numbers: of `ix.values` and of `ix.graph->node`. Initializers may change
 * while no slice that reads them is open. The inputs of a node may change too, if oq_slicer_rewire
 * follows. Nothing else may.
 *
 * A slicer belongs to one thread, but open slices may run in several at once as long as nothing is
 * kept or dropped meanwhile. After a failure what is kept is still right, but some samples of the
 * values that the failed call was about may be missing.
 */
#pragma once

#include "engine/engine.h"
#include "onnx/graph.h"
#include "samples/source.h"

#define OQ_NO_VALUE UINT32_MAX

typedef OQ_VEC(uint32_t) oq_numbers;

typedef struct oq_slicer_options {
    oq_engine *engine;
    oq_session_options session; /* threads, provider and custom operators are taken */
    oq_model *model;            /* gives the bytes of the initializers, and the inputs */
    oq_model_proto *proto;      /* what is run: the model's own, or one that shares its tensors */
} oq_slicer_options;

typedef struct oq_kept oq_kept;

typedef struct oq_slicer {
    oq_slicer_options o;
    const onq_env *env;
    oq_arena arena;
    oq_index ix;
    size_t n_nodes, n_values;
    uint32_t *order;   /* node by place, each after those it depends on */
    uint32_t *place;   /* by node */
    oq_numbers *reads; /* by node: values, those that its inner graphs read too */
    oq_numbers *makes; /* by node: values */
    bool *varies;      /* by node: an input of the graph reaches it, or it is random */
    oq_kept ***kept;   /* by value: NULL, or one for each sample */
    size_t n_samples;  /* that are there */
    size_t n_loaded;   /* that there is room for */
    uint64_t bytes;    /* of what is kept */
    uint64_t n_slices; /* made so far that give something */
} oq_slicer;

/* Reads the graph; no sample is there yet. The options' pointers must outlive it. */
onq_code oq_slicer_open(const oq_slicer_options *o, oq_slicer **out, onq_error *err);
void oq_slicer_close(oq_slicer *s);

/* The value of that name, or OQ_NO_VALUE. */
uint32_t oq_slicer_value(const oq_slicer *s, oq_str name);
/* An input of the graph that a sample gives. */
static inline bool oq_slicer_is_fed(const oq_slicer *s, uint32_t value) {
    return s->ix.values.v[value].is_input && s->ix.values.v[value].init == NULL;
}
/* The place of the node that makes the value, or OQ_NO_VALUE: no node does. */
static inline uint32_t oq_slicer_made_at(const oq_slicer *s, uint32_t value) {
    const uint32_t node = s->ix.values.v[value].producer;
    return node != OQ_NO_NODE ? s->place[node] : OQ_NO_VALUE;
}
/* The node reads these values from now on; what it read before. The lists are borrowed. */
oq_numbers oq_slicer_rewire(oq_slicer *s, uint32_t node, oq_numbers reads);

/* ---- what is kept ---- */

/* Reads n samples from the source's beginning and keeps their inputs: all, or those that are
 * `wanted` (by value). Stops where another one would pass `memory` bytes, but not before the first,
 * and where the source ends. Once for each slicer. */
onq_code oq_slicer_load(oq_slicer *s, oq_source *source, size_t n, uint64_t memory,
                        const bool *wanted, onq_error *err);
/* Keeps a copy of the tensor. */
onq_code oq_slicer_keep(oq_slicer *s, uint32_t value, size_t sample, const oq_datum *d,
                        onq_error *err);
/* The tensor, or NULL: it is not kept. Valid until it is dropped. */
const oq_datum *oq_slicer_kept(const oq_slicer *s, uint32_t value, size_t sample);
static inline bool oq_slicer_keeps(const oq_slicer *s, uint32_t value) {
    return s->kept[value] != NULL;
}
/* Drops the value of one sample, or of all. */
void oq_slicer_drop_one(oq_slicer *s, uint32_t value, size_t sample);
void oq_slicer_drop(oq_slicer *s, uint32_t value);
/* Drops the last sample. */
void oq_slicer_drop_sample(oq_slicer *s);

/* ---- slices ---- */

/* Where a walk came to, backwards from some values to those that are at hand. */
typedef struct oq_slice_walk {
    bool *nodes;  /* that must run */
    bool *values; /* that are wanted or read */
} oq_slice_walk;
onq_code oq_slicer_walk(const oq_slicer *s, const oq_numbers *wanted, const bool *at_hand,
                        oq_arena *a, oq_slice_walk *out, onq_error *err);
/* By value: it is kept, and no node at the place or after it makes it. NULL: out of memory. */
bool *oq_slicer_at_hand(const oq_slicer *s, uint32_t place, oq_arena *a);
#define OQ_EVERY_PLACE UINT32_MAX

/* Must stay where it is in memory while it is open. */
typedef struct oq_slice {
    const oq_slicer *of;
    oq_model model;      /* shares files and tensors with the slicer's; its arena has all of this */
    oq_numbers in, out;  /* values: what it is fed, what it gives */
    oq_session *session; /* NULL: it is not open, or it gives nothing */
    oq_datum *feed;
    oq_outputs got;
} oq_slice;

/* Makes the slice that gives the wanted values out of those that are at hand at the place; a wanted
 * value that is at hand itself is not among what it gives. The slice is a copy: changes of the
 * graph after this do not reach it. */
onq_code oq_slice_make(oq_slicer *s, const oq_numbers *wanted, uint32_t place, oq_slice *p,
                       onq_error *err);
/* May be called from any thread. A slice that gives nothing needs no session and gets none. */
onq_code oq_slice_open(oq_slice *p, oq_opt_level level, onq_error *err);
/* The same slice for another thread (oq_session_share); closed before `of`. */
onq_code oq_slice_share(const oq_slice *of, oq_slice *p, onq_error *err);
/* Runs a sample: on what `before` gave for it, where that is not NULL, else on what is kept. */
onq_code oq_slice_run(oq_slice *p, const oq_slice *before, size_t sample, onq_error *err);
/* What the last run gave of the value, or NULL. Valid until the next run. */
const oq_datum *oq_slice_given(const oq_slice *p, uint32_t value);
/* A slice that is all zero may be closed, and one twice. */
void oq_slice_close(oq_slice *p);
