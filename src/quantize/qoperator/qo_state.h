/*
 * qo_state.h — the state of the pass over a model and its graphs, and the steps of the driver.
 */
#pragma once

#include "quantize/choose/act_param.h"
#include "quantize/number/bias.h"
#include "quantize/number/qweight.h"
#include "quantize/qoperator/qo_rule.h"
#include "quantize/qoperator/qoperator.h"

/* A weight that is being quantized. */
typedef struct oq_qo_weight {
    oq_tensor *init; /* the float weight */
    oq_qweight w;
    oq_qspec spec;
    oq_qparams params;
    oq_qclamp *clamps;                   /* or NULL */
    int64_t axis;                        /* of its channels in the graph; -1: none */
    bool is_weight;                      /* has the type of weights */
    bool given;                          /* params come from an override or a plan */
    bool adjusted;                       /* a scale was raised for a bias */
    oq_tensor *scale, *zero, *quantized; /* to be filled */
    /* The quantized bytes are written as `batch` matrices of rows x cols, transposed; 0: as they
     * are. */
    uint64_t batch, rows, cols;
} oq_qo_weight;

/* A bias to be quantized when the weights' scales are known. */
typedef struct oq_qo_bias {
    oq_tensor *init;
    const oq_qo_value *input, *weight;
    float factor;    /* its values are multiplied by this */
    uint64_t repeat; /* each is repeated, for one number stood for all channels */
    oq_tensor *quantized, *scale, *zero;
    oq_str node; /* for messages */
} oq_qo_bias;

/* A constant that is padded with, to be quantized as the padded tensor is. */
typedef struct oq_qo_pad {
    oq_tensor *init, *quantized;
    const oq_qo_value *like;
} oq_qo_pad;

/* A Gemm's weight that was turned into a MatMul's: the tensor in the graph and its original.
 */
typedef struct oq_qo_turned {
    const oq_tensor *tensor;
    oq_tensor *origin;
} oq_qo_turned;

/* What all graphs of a model share. */
typedef struct oq_qo_shared {
    oq_qo_job job;
    oq_arena *arena; /* scratch */
    oq_fresh names;
    const oq_shapes *plain; /* what the reference knows of types */
    oq_shapes *inferred;    /* the same, where it was inferred here; or NULL */
    oq_shapes *full;        /* what can be known; made when it is needed */
    int64_t opset;
    unsigned mode;                 /* OQ_QMODE_QLINEAR or OQ_QMODE_INTEGER */
    OQ_VEC(struct oq_qo *) drafts; /* of graphs that are done, inner ones first */
    oq_map draft_map;              /* address of a graph -> index in drafts */
    OQ_VEC(oq_qo_weight *) weights;
    OQ_VEC(oq_qo_bias) biases;
    OQ_VEC(oq_qo_pad) pads;
    OQ_VEC(oq_qo_turned) turned;
    oq_map infinite; /* tensors that were reported to hold an infinity */
    oq_map
        asked_map; /* activations whose parameters a rule asked about; 1: has a row of the plan */
    OQ_VEC(oq_str) asked;
    bool needs_ms; /* a com.microsoft node was emitted */
    bool casts;    /* 16-bit floats are cast to float32 around integer operators */
} oq_qo_shared;

/* One graph. */
struct oq_qo {
    oq_qo_shared *sh;
    struct oq_qo *parent; /* or NULL */
    oq_graph *graph;
    oq_arena *arena; /* scratch; what stays is in the model's */
    oq_index index;  /* of the graph as it came */
    oq_map inits;    /* name -> index in all_inits */
    OQ_VEC(oq_tensor *) all_inits;
    oq_map tensors; /* names of inputs, outputs of nodes: the graph's own tensors */
    oq_map values;  /* name -> index in all_values */
    OQ_VEC(oq_qo_value *) all_values;
    oq_map made;     /* float tensors that exist: inputs, outputs of emitted nodes */
    oq_map products; /* of the scales of nodes without a name -> index in all_products */
    OQ_VEC(oq_str) all_products;
    oq_map wide; /* 16-bit tensors that exist as float32 too, or only -> index in all_wide */
    OQ_VEC(oq_str) all_wide;
    OQ_VEC(oq_node *) out;         /* the draft: all nodes that the graph will have */
    OQ_VEC(oq_tensor *) new_inits; /* and the initializers that it will get */
    const char *why;               /* why the running rule left its node float */
    bool removed;                  /* the running rule needs no node: the quantized range clips */
    oq_plan_by by;                 /* who left it float */
    unsigned depth;
};

/* ---- 16-bit floats (qoperator_half.c) ---- */

/* Decides whether 16-bit floats are cast (oq_qo_shared.casts). */
onq_code oq_qo_decide_casts(oq_qo_shared *sh, onq_error *err);
/* True if the quantized form of the operator takes float16 scales as they are. */
bool oq_qo_takes_half(const oq_qo_shared *sh, oq_str op_type);
/* The scale type of a tensor of that type. */
oq_dtype oq_qo_shared_scale_type(const oq_qo_shared *sh, int32_t type);
/* Casts the twin of `name` back, where there is one and `name` does not exist yet. */
onq_code oq_qo_narrow(oq_qo *q, oq_str name, onq_error *err);

/* ---- trained models (qoperator_trained.c) ---- */

/* The axis of a trained weight in the tensor that is in the graph; false: not per channel. */
bool oq_qo_trained_axis(const oq_qo *q, oq_str name, int64_t *axis);
/* Trained weights of a node that stays float become integers with a DequantizeLinear; Conv and its
 * kin read rounded activations too: *n becomes a copy that does. */
onq_code oq_qo_leave_trained(oq_qo *q, oq_node **n, onq_error *err);
/* Gemm becomes MatMul and Add only where that is of use. */
bool oq_qo_trained_gemm(const oq_qo_shared *sh, const oq_node *n);
/* Among integer operators: the QLinear rule of a node whose inputs and output were trained and that
 * has no integer rule, so that what was trained is kept, or NULL. */
oq_qo_rule oq_qo_trained_rule(const oq_qo *q, const oq_node *n);

/* ---- steps ---- */

onq_code oq_qo_register_weight(oq_qo *q, oq_qo *owner, oq_tensor *t, const oq_qo_how *how,
                               oq_qo_value **out, onq_error *err);
/* The draft of a graph that is done, or NULL (qoperator.c). */
const oq_qo *oq_qo_draft_of(const oq_qo_shared *sh, const oq_graph *g);
/* Rows for activations that rules asked about and left float. */
onq_code oq_qo_plan_rest(const oq_qo_shared *sh, onq_error *err);
/* Parameters of weights and biases, and their rows; then their bytes (qoperator_weight.c). */
onq_code oq_qo_decide(oq_qo_shared *sh, onq_error *err);
onq_code oq_qo_fill(oq_qo_shared *sh, onq_error *err);
onq_code oq_qo_replace_gemm(oq_qo_shared *sh, onq_error *err); /* qoperator_gemm.c */
