/*
 * session_graph.h — the graph a session is opened with: a clone of the model's, small and
 * rewritten.
 *
 * The clone shares all payloads with the model. In it every large initializer becomes external
 * data:
 *   - bytes that lie in the model's file or its external data are named where they are (path,
 *     offset, length), relative to `folder`, and the runtime maps them;
 *   - bytes that lie in memory only (edited, produced, varints) are `handed` over by pointer.
 * What is left is the graph, a few kilobytes, encoded in `bytes`. Constant nodes with large values
 * become initializers first, as the runtime itself would make them. Observers are put in.
 */
#pragma once

#include "engine/engine.h"

#define OQ_OBSERVE_OP       "Observe"
#define OQ_OBSERVE_HALF_OP  "ObserveHalf"  /* float16 and nothing else */
#define OQ_OBSERVE_GROUP_OP "ObserveGroup" /* several tensors */

/* An initializer whose bytes only memory has. */
typedef struct oq_handed {
    const char *name;
    oq_dtype dtype;
    const int64_t *dims;
    size_t rank;
    oq_span data;
} oq_handed;

typedef struct oq_session_graph {
    oq_arena arena;
    oq_model_proto *proto; /* the clone */
    oq_buf bytes;          /* encoded */
    const char *folder;    /* where the external data's locations begin, or NULL */
    OQ_VEC(oq_handed) handed;
    OQ_VEC(const oq_file *) files; /* named in it */
} oq_session_graph;

/* Builds it; `inline_all` leaves every payload in the graph (for saving an optimised model). */
onq_code oq_session_graph_init(oq_session_graph *g, const oq_session_options *o, bool inline_all,
                               onq_error *err);
void oq_session_graph_release(oq_session_graph *g);

/* The runtime puts functions in place of their calls. A block that many layers share is what they
 * are for; functions that call each other twice, level upon level, are not. Done by
 * oq_session_graph_init; for a file that the runtime reads by itself. */
onq_code oq_session_check_functions(const oq_model *m, onq_error *err);

/* Puts an Observe node with attribute i = [index] after each tensor that is named, or one with
 * i = [index, ...] after several (observe_graph.c). */
onq_code oq_graph_observe(oq_arena *a, oq_model *m, oq_model_proto *proto,
                          const oq_session_options *o, onq_error *err);

/* MatMul nodes whose weight is a large constant after a Transpose read the constant itself
 * (session_turned.c). */
onq_code oq_graph_read_stored(oq_arena *a, oq_model_proto *proto, onq_error *err);
