/*
 * nb_run.h — what nbits.c and nb_emit.c share: the state of a run.
 */
#ifndef OQ_QUANTIZE_NBITS_RUN_H
#define OQ_QUANTIZE_NBITS_RUN_H

#include "quantize/nbits/nbits.h"

/* A graph and those around it. */
typedef struct oq_nb_scope {
    struct oq_nb_scope *parent; /* or NULL */
    oq_graph *graph;
    oq_index index; /* of the graph as it came */
    unsigned depth;
    OQ_VEC(oq_node *) out;
    OQ_VEC(oq_node *) apart; /* new nodes, where Intel's quantizer puts them after the others */
} oq_nb_scope;

/* A constant that a node reads as a weight. */
typedef struct oq_nb_weight {
    oq_tensor *tensor;
    oq_nb_scope *scope; /* of the graph that has it */
    bool turned;        /* a Transpose stands before the node */
    uint64_t batch, k, n;
} oq_nb_weight;

/* A weight that was quantized, for nodes that read it again. */
typedef struct oq_nb_done {
    const oq_tensor *tensor;
    bool turned;
    oq_nb_rule rule;
    oq_nb_how how;
    uint64_t block;
    oq_nb_scope *scope;
    oq_tensor *part[OQ_NB_PARTS]; /* zero points: NULL when there are none */
    oq_nb_lazy *lazy;
    const oq_nb_scope *read_in; /* QDQ: the graph whose DequantizeLinear gives `real` */
    oq_str real;
} oq_nb_done;

typedef struct oq_nb_state {
    const oq_nb_job *job;
    oq_nb_config *config;
    oq_arena *arena; /* the model's */
    oq_arena *scratch;
    oq_fresh names;
    OQ_VEC(oq_nb_done *) done;
    oq_nb_done *used; /* by the node that is being replaced */
} oq_nb_state;

/* Replaces the node: its weight is known, and everything is well with it. New nodes are appended to
 * s->out. */
onq_code oq_nb_emit_matmul(oq_nb_state *r, oq_nb_scope *s, const oq_node *n, const oq_nb_weight *w,
                           const oq_nb_how *how, onq_error *err);
onq_code oq_nb_emit_gather(oq_nb_state *r, oq_nb_scope *s, const oq_node *n, const oq_nb_weight *w,
                           int64_t axis, const oq_nb_how *how, onq_error *err);
/* MatMulBnb4. */
onq_code oq_nb_emit_bnb4(oq_nb_state *r, oq_nb_scope *s, const oq_node *n, const oq_nb_weight *w,
                         const oq_nb_how *how, onq_error *err);
/* A batch of matrices: DequantizeLinear and MatMul in either format. */
onq_code oq_nb_emit_batch(oq_nb_state *r, oq_nb_scope *s, const oq_node *n, const oq_nb_weight *w,
                          const oq_nb_how *how, onq_error *err);

/* The nodes that give the output of a MatMul the rank that the weight's unit dimensions ask for
 * (_build_nbits_output_reshape). Initializers go to `g`. */
onq_code oq_nb_emit_reshape(oq_nb_state *r, oq_nb_scope *s, oq_graph *g, oq_str prefix, oq_str a,
                            const oq_tensor *weight, oq_str before, oq_str after, onq_error *err);

/* The order in which Intel's quantizer leaves the nodes (ONNXModel.topological_sort of
 * neural_compressor); where that one fails, a stable topological one. */
onq_code oq_nb_sort(oq_model *m, oq_graph *g, onq_error *err);

#endif
