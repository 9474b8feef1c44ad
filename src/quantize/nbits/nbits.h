/*
 * nbits.h — weight-only quantization: constant weights become integers of 2, 3, 4 or 8 bits, the rest
 * of the model stays float. The reference's matmul_nbits_quantizer.
 *
 *     MatMul   MatMulNBits (QOperator), or DequantizeLinear with blocks and MatMul (QDQ)
 *     Gather   GatherBlockQuantized
 *     Gemm     MatMulNBits, where it is asked for
 *
 * oq_nb_run decides about all nodes and writes the plan, then edits the graph. The integers are made
 * when the model is written (nb_task.h), so that a model larger than memory is no different from a
 * small one.
 */
#pragma once

#include "onnx/edit.h"
#include "onnx/names.h"
#include "quantize/choose/config.h"
#include "quantize/nbits/nb_lazy.h"
#include "quantize/plan.h"

/* How one weight is quantized. */
typedef struct oq_nb_how {
    const oq_nb_method *method;
    unsigned bits;
    uint64_t block; /* 0: a whole column */
    bool symmetric;
    int64_t accuracy_level; /* 0: not written */
    bool leave;             /* float */
} oq_nb_how;

/* What --node_config says of a node. */
typedef struct oq_nb_node {
    oq_str name;
    bool used;
    oq_nb_how how;
} oq_nb_node;

typedef struct oq_nb_ratio {
    oq_str weight;
    bool used;
    double value;
} oq_nb_ratio;

/* What --target_bits gave to a weight. */
typedef struct oq_nb_share {
    oq_str weight;
    const oq_nb_method *method;
    unsigned bits; /* 0: it stays float */
    uint64_t block;
    bool symmetric;
} oq_nb_share;

/* How weights are written, above all zero points that are not integers. */
typedef enum oq_nb_form {
    OQ_NB_FORM_AUTO,   /* as sums where the runtime has a fast kernel for what remains */
    OQ_NB_FORM_BLOCKS, /* as an input of MatMulNBits */
    OQ_NB_FORM_SUMS,   /* as a product with the sums of blocks (nb_sums.c) */
    OQ_NB_FORM_PACKED  /* the same, and everything as small as it can be stored (nb_widen.c) */
} oq_nb_form;

typedef struct oq_nb_config {
    oq_qconfig *lists; /* op_types, nodes_to_quantize, nodes_to_exclude */
    oq_given *given;   /* a plan that was read decides, whatever the lists say; NULL: none */
    oq_pick include;   /* nodes that are quantized whatever op_types says */
    oq_nb_how how;
    bool bnb4; /* MatMulBnb4 with one of its two methods */
    bool qdq;
    oq_nb_form form;
    bool channel_wise; /* QDQ: one block for a column; symmetric ones are stored transposed */
    bool all_weights;  /* what the reference leaves float too: see docs/NBITS.md */
    bool spends;       /* --target_bits gives bits to the weights of products */
    int64_t gather_axis;
    OQ_VEC(oq_nb_node) nodes;
    oq_map node_map; /* name -> index in nodes */
    OQ_VEC(oq_nb_ratio) ratios;
    OQ_VEC(oq_nb_share) shares;
    oq_map share_map;            /* name of a weight -> index in shares */
    OQ_VEC(const float *) means; /* awq: mean squares of the inputs that weights meet */
    oq_map mean_map;             /* name of a weight -> index in means */
    struct oq_nb_import *import; /* --weights (nb_import.h); or NULL */
} oq_nb_config;

void oq_nb_config_init(oq_nb_config *c, oq_qconfig *lists);
/* Reads a --node_config file: {"node": {"bits": 4, "group_size": 32, "scheme": "sym"}, ...}, or
 * "fp32" for a node that stays float. What is not said is as in c->how, which must be set. */
onq_code oq_nb_config_nodes(oq_nb_config *c, const onq_allocator *alloc, const char *path,
                            onq_error *err);
/* Refuses a combination that the format or the method does not have, with ONQ_E_OPTION or, for what
 * a file says, ONQ_E_CONFIG. */
onq_code oq_nb_check(const oq_nb_config *c, const oq_nb_how *how, onq_code code, onq_error *err);

/* A node that reads a weight, and the tensor that it multiplies the weight with. */
typedef struct oq_nb_reader {
    oq_nb_lazy *weight;
    oq_str input, node, output;
    bool gathers; /* it looks up rows of the weight, and `input` is the weight */
    bool fixed;   /* --node_config says how its weight is quantized */
} oq_nb_reader;

/* The payloads of a result. They must live as long as the model is written or read. */
typedef struct oq_nb_made {
    OQ_VEC(oq_nb_lazy *) all;
    OQ_VEC(oq_nb_reader) readers; /* of all of them, in the order of the nodes */
    bool reshaped;                /* a result gets its rank from Max of int64: opset 12 */
} oq_nb_made;
void oq_nb_made_release(oq_nb_made *made);

typedef struct oq_nb_job {
    oq_model *model;
    oq_nb_config *config;
    oq_plan *plan;
    oq_nb_made *made; /* is added to; the list itself is in the model's arena */
    bool decide_only; /* --dry_run: fills the plan and `made` and leaves the model as it is */
} oq_nb_job;

/* The opset that the result needs, or 0: 4-bit types are of opset 21, and so are blocks; operators
 * on bits, for packed weights, are of opset 18. */
onq_code oq_nb_opset(oq_model *m, oq_nb_config *c, int64_t *out, onq_error *err);
/* The form that a float32 weight gets, whose blocks are all whole. */
bool oq_nb_takes_sums(const oq_nb_config *c, const oq_nb_how *how);
/* True where the weights of MatMulNBits are packed; it has 3 bits in that form only. */
bool oq_nb_is_packed(const oq_nb_config *c, const oq_nb_how *how);
/* True for the operators whose weights it quantizes. */
bool oq_nb_knows(oq_str op_type);
/* Quantizes the model in place. */
onq_code oq_nb_run(const oq_nb_job *job, onq_error *err);

/* ---- bits where they are needed ---- */

/* A weight that bits are spent on, as samples see it. */
typedef struct oq_nb_weighed {
    const oq_nb_reader *reader; /* the first */
    const float *power;         /* out: mean squares of its K inputs; NULL: not known */
    /* How much its noise at the base's bits does to the outputs: a part of what all weights
     * together do. */
    double guess; /* in: by the noise alone, in any unit */
    double harm;  /* out */
} oq_nb_weighed;

/* Bits to spend on all weights together, scales and zero points counted. */
typedef struct oq_nb_budget {
    double target; /* bits a weight */
    /* Asks samples. `see` gives the power of the inputs, `weigh` what harm each weight does, `judge`
     * what harm the shares of the configuration do; all NULL: weights count by their own noise. */
    onq_code (*see)(void *ctx, oq_nb_weighed *w, size_t n, onq_error *err);
    onq_code (*weigh)(void *ctx, oq_nb_weighed *w, size_t n, onq_error *err);
    onq_code (*judge)(void *ctx, double *harm, onq_error *err);
    void *ctx;
    bool any_block; /* blocks may be larger or smaller than c->how.block */
    bool any_grid;  /* zero points may be others than c->how says */
    /* The result: bits a weight, how many weights have each number of bits (0: float), and how many
     * of all were fixed by --node_config. */
    double got;
    size_t count[9], n_fixed;
    oq_nb_share row; /* the same for all, which the result is no worse than; bits 0: none fits */
} oq_nb_budget;

/* Gives every weight 2, 3, 4 or 8 bits or leaves it float, so that the sum of what noise does is least
 * within the budget; fills c->shares. Where the budget is enough to give all weights the same bits,
 * none has more noise than it would have with them, unless samples say that it does no harm.
 * ONQ_E_OPTION when the target is too low for any choice. */
onq_code oq_nb_spend(const oq_nb_job *job, oq_nb_budget *b, onq_error *err);

/* The noise that rounding will put into weights, over their own power: the mean of all that are
 * quantized as the configuration says, large ones counting more. A few panels of each are looked at.
 * Methods that use samples put less into the outputs than this says. */
onq_code oq_nb_foresee(const oq_nb_job *job, double *noise, onq_error *err);

/* The model builder's presets: 8 bits for the last layer (OQ_NB_MIXED_LAST), and for the value
 * and down projections of the first and last eighth of the layers and of every third between. Adds
 * nodes to the configuration that it does not have yet; *n says how many. */
typedef enum oq_nb_mixed { OQ_NB_MIXED_NONE, OQ_NB_MIXED_LAST, OQ_NB_MIXED_LAYERS } oq_nb_mixed;
onq_code oq_nb_mix(oq_nb_config *c, oq_nb_mixed how, const oq_graph *g, size_t *n, onq_error *err);
/* A table that is looked up in and, after a Transpose, is the weight of a product is stored once
 * where both are quantized alike: if only one of the two nodes has settings, both get these. */
onq_code oq_nb_tie(oq_nb_config *c, const oq_graph *g, onq_error *err);
/* The number of the layer that a node belongs to, by its name or that of its weight; -1: none. */
int64_t oq_nb_layer_of(oq_str node, oq_str weight);

/* Reasons that a command has advice for. */
#define OQ_NB_WHY_DYNAMIC  "its weight is not constant"
#define OQ_NB_WHY_DOUBLE   "its weight is double (convert the model to float32)"
#define OQ_NB_WHY_CONSTANT "its weight is in a Constant node (--all_weights quantizes it)"
#define OQ_NB_WHY_TURNED   "its weight is after a Transpose (--all_weights quantizes it)"
#define OQ_NB_WHY_BATCH    "its weight is a batch of matrices (--all_weights quantizes it)"
#define OQ_NB_WHY_INNER    "it is inside an If, Loop or Scan (--all_weights quantizes it)"
