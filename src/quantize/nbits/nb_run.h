/*
 * nb_run.h — the state of a run: what nbits.c and nb_weight.c decide, and nb_emit.c writes.
 */
#pragma once

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

/* A weight in one form, for all nodes that read it so. */
typedef struct oq_nb_done {
    const oq_tensor *tensor;
    struct oq_nb_done *next; /* of the same tensor, or NULL */
    bool turned;
    oq_nb_rule rule;
    oq_nb_how how;
    uint64_t block;
    oq_dtype type; /* of the integers */
    oq_nb_scope *scope;
    oq_nb_lazy *lazy;
    /* emission: */
    bool stored;
    oq_tensor *part[OQ_NB_PARTS]; /* zero points: NULL when there are none */
    const oq_nb_scope *read_in;   /* QDQ: the graph whose DequantizeLinear gives `real`; packed: */
    oq_str real;
    oq_str wide[OQ_NB_PARTS]; /* the parts as MatMulNBits takes them */
} oq_nb_done;

/* What becomes of a node. */
typedef struct oq_nb_choice {
    oq_nb_scope *scope;
    oq_node *node;
    const char *why; /* it stays float, or NULL */
    oq_plan_by by;
    oq_nb_how how;
    oq_nb_weight weight;
    oq_nb_done *done; /* its form */
    int64_t axis;     /* Gather: that blocks lie along */
    bool rows;        /* Gather: from rows of bytes */
    bool experts;     /* MoE: `weight` is what experts do first, and then: */
    oq_nb_weight second;
    oq_nb_done *second_done;
} oq_nb_choice;

/* Sums of the blocks of a tensor that weights are multiplied with. */
typedef struct oq_nb_sum {
    const oq_nb_scope *scope;
    oq_str of, name;
    uint64_t block;
} oq_nb_sum;

typedef struct oq_nb_state {
    const oq_nb_job *job;
    oq_nb_config *config;
    oq_arena *arena; /* the model's */
    oq_arena *scratch;
    oq_fresh names;
    OQ_VEC(oq_nb_scope *) scopes;
    OQ_VEC(oq_nb_choice) choices; /* of all nodes of all graphs, inner ones before their owner */
    OQ_VEC(oq_nb_done *) done;
    OQ_VEC(oq_nb_sum) sums;
    oq_map done_map; /* address of a tensor -> the first of its forms */
} oq_nb_state;

/* The initializer of that name that the graph sees; *scope becomes the one that has it. NULL: none. */
oq_tensor *oq_nb_find_init(oq_nb_scope **scope, oq_str name);
/* Experts of a MoE, all stacked in two weights: sets c->weight, c->second and c->why (nb_experts.c). */
void oq_nb_take_experts(const oq_nb_state *r, oq_nb_choice *c);
/* Decides the form of the weight of a node that is quantized: c->done. */
onq_code oq_nb_take_weight(oq_nb_state *r, oq_nb_choice *c, onq_error *err);
/* Zero points that are not integers become a product with sums of blocks (nb_sums.c). */
bool oq_nb_has_sums(const oq_nb_state *r, const oq_nb_weight *w, const oq_nb_how *how);
/* Appends what adds that product to `blocks`, which has the integers' part, and gives `output`. */
onq_code oq_nb_emit_sums(oq_nb_state *r, const oq_nb_choice *c, oq_str blocks, oq_str output,
                         onq_error *err);
/* The names of the parts as MatMulNBits takes them, in this graph: d->wide. Appends the nodes that
 * make them of packed ones (nb_widen.c). */
onq_code oq_nb_widen(oq_nb_state *r, oq_nb_scope *s, oq_nb_done *d, onq_error *err);
/* A constant of integers; its name is empty when out of memory. */
oq_str oq_nb_add_ints(oq_nb_state *r, oq_nb_scope *s, oq_str prefix, const char *suffix,
                      const int64_t *v, size_t n, onq_error *err);
/* Number of dimensions of a tensor where the model says it, else -1. */
int64_t oq_nb_rank_of(const oq_nb_scope *s, oq_str name);
/* QDQ: the integers are stored transposed. */
bool oq_nb_is_across(const oq_nb_state *r, const oq_nb_weight *w, const oq_nb_how *how);
/* The initializers of experts, as QMoE takes them. */
onq_code oq_nb_store_experts(oq_nb_state *r, oq_nb_done *d, onq_error *err);
onq_code oq_nb_emit_experts(oq_nb_state *r, const oq_nb_choice *c, onq_error *err);
/* Appends what replaces the node to c->scope->out, and puts its weight into the graph. */
onq_code oq_nb_emit(oq_nb_state *r, const oq_nb_choice *c, onq_error *err);

/* The nodes that give the output of a MatMul the rank that the weight's unit dimensions ask for
 * (_build_nbits_output_reshape). Initializers go to `g`. */
onq_code oq_nb_emit_reshape(oq_nb_state *r, oq_nb_scope *s, oq_graph *g, oq_str prefix, oq_str a,
                            const oq_tensor *weight, oq_str before, oq_str after, onq_error *err);

/* The order in which Intel's quantizer leaves the nodes (ONNXModel.topological_sort of
 * neural_compressor); where that one fails, a stable topological one. */
onq_code oq_nb_sort(oq_model *m, oq_graph *g, onq_error *err);
