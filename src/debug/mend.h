/*
 * mend.h — finds the nodes to leave float so that a quantized model loads and runs.
 *
 * The runtime's message usually names a node: one of the source's, or one that quantization made;
 * then the nodes around it are tried. If it names none, bisection finds the nodes: with the first k
 * of them float the result is good or not, and the k where that changes is at fault. Each try
 * quantizes and verifies once; their number is bounded, and the outcome depends on nothing but the
 * model and what the runtime says.
 */
#pragma once

#include "debug/verify.h"
#include "onnx/graph.h"

#define OQ_MEND_TRIES 64

typedef OQ_VEC(const oq_node *) oq_mend_nodes;

typedef struct oq_mend {
    oq_arena *arena; /* scratch; must outlive the job */
    oq_graph *source;
    bool (*can_leave)(void *ctx,
                      const oq_node *n); /* true if it is quantized and can be left float */
    /* Quantizes the source with these nodes left float and looks at the result, whose main graph it
     * gives. A result is the last one tried. */
    onq_code (*attempt)(void *ctx, const oq_mend_nodes *left, oq_verdict *v, oq_graph **result,
                        onq_error *err);
    void *ctx;
    /* out */
    oq_mend_nodes left;
    size_t n_tries;
} oq_mend;

/* `v` is the verdict on `result`, quantized with nothing left; when the job is done v->end is GOOD
 * and `left` says which nodes are float in the last attempt, or the verdict is that of the last
 * attempt and nothing can be done. An error is one of an attempt. */
onq_code oq_mend_run(oq_mend *m, oq_verdict *v, oq_graph *result, onq_error *err);

/* The source's nodes that a message about `result` speaks of, nearest first. */
onq_code oq_mend_suspects(oq_mend *m, oq_graph *result, const char *text, oq_mend_nodes *out,
                          onq_error *err);
