/*
 * search.h — which nodes cost the accuracy: sensitivity node by node, and the least set to exclude for a target.
 *
 * Works on the quantized model as it is (QDQ): a node is excluded by taking the pairs away that only it needs, as the
 * quantizer would have left them out. A tensor stays quantized as long as one node that reads or makes it is; a
 * weight's pair gives way to the float weight. Nothing is calibrated or quantized again, so the settings the model
 * was made with hold, whatever they were.
 */
#ifndef OQ_DEBUG_SEARCH_H
#define OQ_DEBUG_SEARCH_H

#include "debug/debug.h"

typedef struct oq_dbg_node {
    uint32_t node; /* in the quantized model */
    oq_str name, op;
    double sqnr;      /* of the outputs when this node alone is quantized; NAN: not measured */
    double agreement; /* share of rows with the same largest value; NAN: no rows */
    bool excluded;    /* in the set that was found */
} oq_dbg_node;

typedef struct oq_dbg_search {
    const oq_debug *d;
    OQ_VEC(oq_dbg_node) nodes;          /* sensitivity: the worst first */
    double whole_sqnr, whole_agreement; /* of the model as it is */
    bool bisected, reached;
    size_t n_excluded;
    double found_sqnr, found_agreement; /* with the set excluded */
    uint64_t n_runs;                    /* sessions opened */
    uint64_t n_samples;
} oq_dbg_search;

typedef struct oq_dbg_target {
    bool bisect;
    double sqnr;      /* dB to reach; NAN: not asked for */
    double agreement; /* 0 to 1; NAN */
    uint64_t most_samples;
} oq_dbg_target;

/* `s` lives in d's arena. Call after oq_debug_match. The sources are read from their beginning. */
onq_code oq_debug_search(oq_debug *d, const oq_debug_run *run, const oq_dbg_target *t,
                         oq_dbg_search *s, onq_error *err);
void oq_dbg_search_text(const oq_dbg_search *s, size_t most, oq_buf *out);
void oq_dbg_search_json(const oq_dbg_search *s, oq_jw *w);
/* An overrides file that gives the tensors of the excluded nodes 16 bits. */
void oq_dbg_search_overrides(const oq_dbg_search *s, oq_jw *w);

#endif
