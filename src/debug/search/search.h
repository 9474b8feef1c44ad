/*
 * search.h — which nodes cost the accuracy: sensitivity node by node, and the least set to exclude
 * for a target.
 *
 * Works on the quantized model as it is (QDQ): a node is excluded by taking the pairs away that
 * only it needs, as the quantizer would have left them out. A tensor stays quantized as long as one
 * node that reads or makes it is; a weight's pair gives way to the float weight. Nothing is
 * calibrated again, so the settings the model was made with hold, whatever they were. What is tried
 * as one is a unit: a product with the Relu or Clip that alone reads it, any other node, or a
 * group.
 */
#pragma once

#include "debug/debug.h"

typedef struct oq_debug_node {
    const oq_index *ix; /* of the graph of the quantized model that it is in */
    uint32_t node;      /* in that graph */
    oq_str name, op;
    bool excluded; /* in the set that was found */
} oq_debug_node;

/* What is tried as one: a node, or a group of them. */
typedef struct oq_debug_unit {
    oq_str name;            /* of the node or the group */
    oq_str op;              /* of the node; of a group: its own, or empty when there are several */
    OQ_VEC(uint32_t) nodes; /* in oq_debug_search.nodes */
    double sqnr;            /* of the outputs when this alone is quantized */
    double agreement;       /* share of rows with the same largest value; NAN: no rows */
    double macs;            /* share of the model's multiply-accumulates */
    bool excluded;
} oq_debug_unit;

typedef struct oq_debug_search {
    const oq_debug *d;
    OQ_VEC(oq_debug_node) nodes;        /* every quantized node, in the graph's order */
    OQ_VEC(oq_debug_unit) units;        /* the worst first */
    bool grouped;                       /* units are groups */
    double whole_sqnr, whole_agreement; /* of the model as it is */
    bool bisected, reached;
    size_t n_excluded;                  /* units */
    double found_sqnr, found_agreement; /* with the set excluded */
    uint64_t n_runs;                    /* sessions opened */
    uint64_t n_samples;
    double began;
    bool late;         /* the time was over before it was done */
    size_t n_measured; /* units */

    /* The set that counts (what was found, else the worst unit), as a model that was made: float
     * where it says so, protected from the runtime's own quantization, default session, all
     * samples. NAN: not known. */
    double quantized_sqnr, quantized_agreement;
    double wide_sqnr; /* the same nodes with 16 bits instead: the overrides */
    uint64_t quantized_samples;
    double macs, weights; /* share that is left in integers */
    OQ_VEC(oq_str) types; /* operators that are in the set whole, two nodes and more */
} oq_debug_search;

typedef struct oq_debug_target {
    bool bisect;
    double sqnr;      /* dB to reach; NAN: not asked for */
    double agreement; /* 0 to 1; NAN */
    uint64_t most_samples;
    uint64_t memory;  /* bytes for tensors that are kept */
    bool overrides;   /* an overrides file is wanted too */
    double seconds;   /* to stop after, with what there is; 0: no limit */
    double cpu_until; /* CPU seconds of the process to stop at; 0: no limit */
    /* How nodes are grouped: "op_type"; "block", by the name up to its first part with a number; or
     * names and patterns, each of them a group, other nodes are left as they are. None: each node
     * is tried alone. */
    const oq_str *groups;
    size_t n_groups;
} oq_debug_target;

/* True for a float operator between pairs: it reads dequantized tensors, and either gives its result
 * to a quantizer or has a dequantized weight. A product with a float weight was left float. */
bool oq_debug_is_quantized(const oq_index *ix, const oq_node *n);
/* Whether the quantized model has named nodes between pairs, in its main graph or in a body of If,
 * Loop or Scan. */
onq_code oq_debug_can_search(oq_debug *d, bool *can, onq_error *err);
static inline const oq_node *oq_debug_node_of(const oq_debug_node *n) {
    return n->ix->graph->node.v[n->node];
}
/* `s` lives in d's arena. Call after oq_debug_match. The sources are read from their beginning. */
onq_code oq_debug_run_search(oq_debug *d, const oq_debug_run *run, const oq_debug_target *t,
                             oq_debug_search *s, onq_error *err);
/* Fills s->units from s->nodes (search_groups.c). */
onq_code oq_debug_search_units(oq_debug_search *s, const oq_debug_target *t, oq_arena *a,
                               onq_error *err);
/* "/encoder/layer.0" of "/encoder/layer.0/attention/MatMul". */
oq_str oq_debug_block_of(oq_str name);
/* `list` is the file that has the names (oq_debug_search_list), or NULL: they are written out. */
void oq_debug_search_text(const oq_debug_search *s, size_t most, const char *list, oq_buf *out);
/* Names of nodes that the set needs beside its operator types, one a line. */
void oq_debug_search_list(const oq_debug_search *s, oq_buf *out);
/* All of its nodes, as members of a file for `onq static --node_methods`. */
void oq_debug_search_methods(const oq_debug_search *s, oq_jw *w);
/* Options of `onq static` that leave the set float. */
void oq_debug_search_options(const oq_debug_search *s, const char *list, oq_buf *out);
void oq_debug_search_json(const oq_debug_search *s, oq_jw *w);
/* An overrides file that gives the tensors of the excluded nodes (without bisection, of the worst
 * unit) 16 bits. */
void oq_debug_search_overrides(const oq_debug_search *s, oq_jw *w);
