/*
 * qdq_state.h — the state of the pass over one graph, and the steps of the driver.
 *
 * Nodes and tensors are indices: `in` and `out` of a node hold what it will be wired to.
 */
#pragma once

#include "onnx/graph.h"
#include "onnx/names.h"
#include "quantize/number/clip.h"
#include "quantize/number/qweight.h"
#include "quantize/qdq/qdq.h"
#include "quantize/qdq/qdq_rule.h"

typedef enum oq_qdq_kind { OQ_QDQ_ACTIVATION, OQ_QDQ_WEIGHT } oq_qdq_kind;

/* Parameters of a tensor. */
typedef struct oq_qdq_value {
    oq_str scale_name, zero_name; /* given by emission */
    oq_dtype type;                /* quantized type */
    oq_dtype real;                /* type of the scale */
    const float *scale;           /* n of them */
    const int32_t *zero;
    uint64_t n;
} oq_qdq_value;

/* Parameters of an activation. */
typedef struct oq_qdq_act {
    oq_dtype type, real;
    oq_qparam p;
} oq_qdq_act;

/* Parameters of a weight. */
typedef struct oq_qdq_weight {
    oq_qweight w;
    oq_qspec spec;
    oq_qparams params;
    oq_qclamp *clamps; /* or NULL */
    bool given;        /* params come from an override, or from a plan that was read */
    bool adjusted;     /* a scale was raised for an int32 bias */
    const char *why;
} oq_qdq_weight;

/* An initializer as it is in the model now: its parameters and its integers. */
typedef struct oq_qdq_form {
    const oq_qdq_weight *weight;
    oq_qdq_value *value;
    oq_str quantized; /* empty: the float weight is quantized as it is read */
} oq_qdq_form;

typedef struct oq_qdq_tensor {
    oq_str name;
    oq_tensor *init;       /* initializer of this graph or of one around it, or NULL */
    struct oq_qdq *holder; /* of an initializer: the graph around this one that has it, or NULL */
    int32_t elem_type;     /* 0: not known */
    bool has_info;         /* the type is known to be something, perhaps no tensor */
    bool warned;           /* of an unknown type, of an infinity */
    bool looked, infinite; /* looked for an infinity among its values; found one */
    bool is_input, is_output; /* of the graph */
    bool inner_use;           /* read inside a subgraph */
    bool is_new;              /* made by the pass: the copy of a shared bias */
    uint32_t dq_node;         /* DequantizeLinear of the input model that makes it, or OQ_NO_NODE */
    OQ_VEC(oq_use) uses;      /* by nodes of this graph */
    OQ_VEC(oq_use) makers;    /* slot: index of the output */
    /* Chosen nodes that read it, in order; twice if they read it twice. */
    OQ_VEC(uint32_t) receivers;

    bool marked;    /* is to be quantized */
    uint32_t place; /* in oq_qdq.order */
    oq_qdq_kind kind;
    int64_t axis;                    /* weight per channel; -1 */
    uint32_t share_from, share_node; /* same parameters as this tensor, as that node sees it */
    oq_bounds bounds;                /* what Relu and Clip that went away let through */
    uint32_t turned;                 /* its copy with channels along another axis, or none */
    bool is_bias;                    /* marked as bias */
    bool bias_gone;                  /* a node makes it now: the initializer goes */
    size_t n_copies_seen; /* as bias: tensors looked at for the number of its next copy */
    int64_t next_copy;

    oq_qdq_weight *weight;        /* decided */
    OQ_VEC(oq_qdq_form) forms;    /* quantized for this graph or for those inside */
    oq_qdq_value *value;          /* decided; NULL: stays float */
    oq_qdq_value *converted;      /* the second type */
    OQ_VEC(oq_str) converted_for; /* names of the nodes that read the second type */
} oq_qdq_tensor;

typedef struct oq_qdq_node {
    oq_node *node;
    uint32_t *in, *out; /* tensor indices; OQ_NO_TENSOR for an absent one */
    bool chosen, removed;
    size_t n_marks;  /* tensors that its rule marked */
    const char *why; /* why it stays float, "" */
    oq_plan_by by;   /* who says so */
} oq_qdq_node;

typedef struct oq_qdq_bias {
    uint32_t tensor, node, input, weight;
} oq_qdq_bias;

/* What is to be written for a tensor. */
typedef enum oq_qdq_what {
    OQ_QDQ_STEP_WEIGHT,    /* integers and a DequantizeLinear, or a pair */
    OQ_QDQ_STEP_PAIR,      /* a pair, or one for each reader */
    OQ_QDQ_STEP_CONVERTED, /* the pairs of two types */
    OQ_QDQ_STEP_BIAS,      /* int32 and a DequantizeLinear */
    OQ_QDQ_STEP_CAST       /* float 8: a float bias and a Cast */
} oq_qdq_what;

typedef struct oq_qdq_step {
    oq_qdq_what what;
    oq_qdq_tensor *tensor;    /* `value` and `converted` hold its parameters */
    const oq_qdq_value *like; /* the parameters are this value's; NULL: its own */
    const int32_t *ints;      /* of a bias */
    size_t n_ints;
} oq_qdq_step;

struct oq_qdq {
    oq_model *model;
    oq_graph *graph;
    struct oq_qdq *outer; /* the graph around, or NULL */
    unsigned depth;
    oq_qrun *run;
    oq_qconfig *config;            /* the run's */
    const oq_overrides *overrides; /* or NULL */
    oq_ranges *ranges;
    const oq_shapes *shapes;
    oq_plan *plan;
    oq_qdq_outlook *outlook; /* or NULL; else marking is all that is done */
    oq_arena *arena;         /* scratch, freed after the pass */
    oq_fresh *names;         /* of all graphs */
    int64_t opset;
    bool contrib; /* QuantizeLinear and DequantizeLinear of com.microsoft */

    oq_index index; /* of the graph as it came */
    oq_map map;     /* tensor name -> number */
    OQ_VEC(oq_qdq_tensor *) tensors;
    oq_qdq_node *nodes; /* the graph's nodes, in order */
    size_t n_nodes;
    uint32_t current;       /* node whose rule is running */
    OQ_VEC(uint32_t) order; /* marked tensors; OQ_NO_TENSOR where a mark was taken back */
    OQ_VEC(oq_qdq_bias) biases;
    OQ_VEC(uint32_t) copies; /* copies of shared biases, in order */
    OQ_VEC(oq_qdq_step) steps;

    bool assembled; /* the graph has what was new: more goes into it at once */
    OQ_VEC(oq_node *) new_nodes;
    OQ_VEC(oq_tensor *) new_inits;
};

static inline oq_qdq_tensor *oq_qdq_at(const oq_qdq *q, uint32_t tensor) {
    assert(tensor < q->tensors.n);
    return q->tensors.v[tensor];
}

/* ---- marking (qdq_mark.c) ---- */

onq_code oq_qdq_weight_channel(oq_qdq *q, uint32_t tensor, int64_t axis, onq_error *err);
/* After all marks: takes back those of float16 outputs whose node ONNX Runtime would fuse with its
 * pairs into an operator that has no float16. */
void oq_qdq_unmark_fused(oq_qdq *q);
/* After all nodes are marked: what a plan that was read has no row for goes, and the rest comes in
 * the order of its rows. */
onq_code oq_qdq_follow_plan(oq_qdq *q, onq_error *err);
/* After all nodes are marked: a Relu or Clip whose output nobody marked comes back. */
onq_code oq_qdq_bring_back(oq_qdq *q, onq_error *err);
/* A second initializer with the contents of the first, named as _dup_initializer names it. */
onq_code oq_qdq_copy_init(oq_qdq *q, oq_qdq_tensor *t, uint32_t *out, onq_error *err);
/* The node reads `to` where it read `from`. */
onq_code oq_qdq_rewire(oq_qdq *q, uint32_t from, uint32_t to, uint32_t node, onq_error *err);

/* ---- steps of the driver ---- */

/* One graph: all of it but what the whole model needs in the end (qdq.c). */
onq_code oq_qdq_graph(oq_qdq *q, bool decide_only, onq_error *err);
/* The graphs inside the nodes of a graph that is done (qdq_inner.c). */
onq_code oq_qdq_inner(oq_qdq *q, bool decide_only, onq_error *err);
/* What an inner graph takes from outside: initializers and where they are. */
void oq_qdq_look_outwards(oq_qdq *q);
/* Inner nodes that were not run in calibration are left float. */
void oq_qdq_leave_unseen(oq_qdq *q);

onq_code oq_qdq_build(oq_qdq *q, onq_error *err);   /* qdq_graph.c */
uint32_t oq_qdq_tensor_new(oq_qdq *q, oq_str name); /* OQ_NO_TENSOR: out of memory */
/* Ranges that operators imply (qdq_ranges.c). */
onq_code oq_qdq_adjust_ranges(oq_qdq *q, onq_error *err);
/* After all nodes are marked: channels are where the runtime takes them (qdq_axes.c). */
onq_code oq_qdq_settle_axes(oq_qdq *q, onq_error *err);
/* Fills `steps` and the plan (qdq_decide.c). */
onq_code oq_qdq_decide(oq_qdq *q, onq_error *err);
/* True if a constant that is marked gets its parameters per channel. */
bool oq_qdq_has_channels(const oq_qdq *q, const oq_qdq_tensor *t);
/* The order of steps, and tensors that share parameters (qdq_steps.c). */
onq_code oq_qdq_make_steps(oq_qdq *q, onq_error *err);
/* Biases, when the parameters of inputs and weights are known (qdq_bias.c). */
onq_code oq_qdq_decide_biases(oq_qdq *q, onq_error *err);
onq_code oq_qdq_add_step(oq_qdq *q, oq_qdq_step step, onq_error *err);
/* Of a tensor that shares parameters per channel: true if the channels lie along its axis 1. */
bool oq_qdq_channels_stay(const oq_qdq *q, const oq_qdq_tensor *t, const oq_qdq_value *v);
/* Steps become nodes and initializers (qdq_emit.c). */
onq_code oq_qdq_emit(oq_qdq *q, onq_error *err);

/* Parameters of an activation; convert: of its second type. false: its range is not known. */
onq_code oq_qdq_act_params(const oq_qdq *q, const oq_qdq_tensor *t, bool convert, oq_qdq_act *out,
                           bool *found, onq_error *err);
/* True if there is a range, or an override that needs none. */
bool oq_qdq_has_range(const oq_qdq *q, const oq_qdq_tensor *t);
/* The conversion that overrides ask for, or NULL. */
const oq_override *oq_qdq_convert(const oq_qdq *q, const oq_qdq_tensor *t);
/* The parameters that a node of that name sees (QDQTensorQuantizedValue.get_for_consumer); NULL
 * when the tensor has none. */
const oq_qdq_value *oq_qdq_value_for(oq_qdq *q, oq_qdq_tensor *t, oq_str node_name);
