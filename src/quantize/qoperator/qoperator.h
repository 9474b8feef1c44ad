/*
 * qoperator.h — integer operators in place of float ones: QLinear operators (static, the
 * reference's QOperator format) and dynamic quantization.
 *
 * The pass goes through the nodes once, as the reference's ONNXQuantizer does, and writes a draft:
 * the nodes and initializers that each graph will have, and the rows of the plan. A rule
 * (operators.def, slots `qlinear` and `integer`) puts the replacement of its node into the draft; a
 * node without one goes there as it is, with DequantizeLinear in front where an input exists in
 * quantized form only. What a tensor has become is its oq_qo_value.
 *
 * Rules only name the scales, zero points and quantized bytes of weights; their values are computed
 * when all nodes are done (qoperator_weight.c), all weights in parallel, and biases after them.
 * Then the plan is complete, and a dry run ends. Only after that do the graphs become what their
 * drafts say: no rule changes a node of the model, or a graph.
 *
 * Unlike in the reference, a rule checks first: oq_qo_can_* say whether all that it needs is there
 * before anything is emitted, so a node that cannot be quantized leaves no trace.
 */
#pragma once

#include "calibrate/ranges.h"
#include "onnx/edit.h"
#include "onnx/names.h"
#include "quantize/choose/act_param.h"
#include "quantize/choose/qrun.h"
#include "quantize/number/bias.h"
#include "quantize/number/clip.h"
#include "quantize/number/qweight.h"
#include "quantize/override/override.h"
#include "quantize/plan.h"
#include "quantize/rules.h"
#include "shape/shape.h"

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

/* What a tensor has become. */
typedef struct oq_qo_value {
    oq_str name;           /* the float tensor */
    oq_str q, scale, zero; /* names of the quantized one and its parameters */
    const struct oq_qo_value *bias_input, *bias_weight; /* an int32 bias: what its scale is of */
    bool has_axis;                                      /* weight per channel */
    int64_t axis;                                       /* as the rule gave it */
    oq_qo_weight *weight;                               /* or NULL */
    const char *why;                                    /* where its parameters come from */
    bool has_param;                                     /* activation with static parameters */
    oq_qparam param;
    oq_dtype type, real; /* quantized type; type of the scale */
    oq_dtype elem;       /* type of the float tensor: not OQ_FLOAT means Cast around it */
} oq_qo_value;

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

typedef struct oq_qo_job {
    oq_model *model;
    oq_qrun *run;
    const oq_overrides *overrides; /* or NULL */
    oq_ranges *ranges;             /* static; NULL: dynamic */
    const oq_shapes *shapes;       /* what onnx infers of the model as it is; NULL: inferred here */
    oq_plan *plan;
    bool integer;     /* integer operators although there are ranges (trained models) */
    bool decide_only; /* --dry_run: fills the plan; no node is replaced */
} oq_qo_job;

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
typedef struct oq_qo {
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
} oq_qo;

/* Quantizes the model in place. The opset must be what the types need. */
onq_code oq_qo_run(const oq_qo_job *job, onq_error *err);

/* ---- questions ---- */

static inline bool oq_qo_is_static(const oq_qo *q) {
    return q->sh->mode == OQ_QMODE_QLINEAR;
}
static inline const oq_qconfig *oq_qo_config(const oq_qo *q) {
    return q->sh->job.run->config;
}
/* A plan that was read, or NULL. */
static inline const oq_given *oq_qo_given(const oq_qo *q) {
    return q->sh->job.run->given;
}
/* The initializer of that name in this graph; or, with EnableSubgraph, in one around it. */
oq_tensor *oq_qo_init(const oq_qo *q, oq_str name);
oq_tensor *oq_qo_init_in_path(const oq_qo *q, oq_str name);
/* What the tensor has become in this graph, or NULL; the second looks outwards too. */
oq_qo_value *oq_qo_value_of(const oq_qo *q, oq_str name);
oq_qo_value *oq_qo_value_in_path(const oq_qo *q, oq_str name);
/* True for a float type that can be quantized here. */
bool oq_qo_is_real(const oq_qo *q, int32_t type);
/* is_valid_quantize_weight: a float or float16 initializer. */
bool oq_qo_is_float_weight(const oq_qo *q, oq_str name);
/* is_float_tensor. */
bool oq_qo_is_float(const oq_qo *q, oq_str name);
/* Element type as get_tensor_type(mandatory=True) gives it, or as symbolic inference finds it; 0:
 * unknown. */
onq_code oq_qo_type(oq_qo *q, oq_str name, int32_t *out, onq_error *err);
/* Refuses a type that an override gives and that no QLinear operator takes. */
onq_code oq_qo_check_type(oq_str name, oq_dtype type, onq_error *err);
/* True if there are static parameters for this activation. */
bool oq_qo_has_params(const oq_qo *q, oq_str name);
/* Why output 0 of the node has none. An infinity is also reported in a warning, by the name of the
 * constant that it comes from or of the output. */
const char *oq_qo_why_no_params(oq_qo *q, const oq_node *n);

/* How inputs are quantized. */
typedef struct oq_qo_how {
    bool is_weight;   /* initializers get the weight type, else the activation type */
    bool reduce;      /* reduce_range may hold */
    bool per_channel; /* the operator can */
    int64_t axis;
    bool channels;  /* per channel even if the user did not ask */
    bool rows;      /* the first two dimensions count as one */
    bool symmetric; /* whatever WeightSymmetric says */
    oq_dtype type;  /* nonzero: this type instead */
} oq_qo_how;
extern const oq_qo_how oq_qo_as_activation;

/* True if input `slot` can be quantized; else q->why says why not. */
bool oq_qo_can(oq_qo *q, const oq_node *n, size_t slot, const oq_qo_how *how);

/* *out is true if inputs 0 to n_in - 1 and output 0 can be quantized as activations; else q->why
 * says why not, and constants in front of the first input that cannot are quantized already, as in
 * the reference: the node reads them dequantized. */
onq_code oq_qo_can_all(oq_qo *q, const oq_node *n, size_t n_in, bool *out, onq_error *err);

/* True if input 2, multiplied by `factor`, can be the int32 bias of input 0 and the weight
 * in input 1; else q->why says why not. */
bool oq_qo_can_bias(oq_qo *q, const oq_node *n, float factor);

/* ---- verbs ---- */

/* The quantized form of input `slot`: as it is already, or a weight, or after a new QuantizeLinear
 * (or DynamicQuantizeLinear). Call oq_qo_can first. An absent input gives a value of empty names.
 */
onq_code oq_qo_input(oq_qo *q, const oq_node *n, size_t slot, const oq_qo_how *how,
                     oq_qo_value **out, onq_error *err);
/* A new value for output 0 of a node: <output>_quantized with the parameters of calibration. Call
 * oq_qo_has_params first. */
onq_code oq_qo_output(oq_qo *q, const oq_node *n, oq_qo_value **out, onq_error *err);
/* The same with given parameters (Softmax). */
onq_code oq_qo_output_fixed(oq_qo *q, const oq_node *n, float scale, int32_t zero,
                            oq_qo_value **out, onq_error *err);
/* A value for `name` called `name` + suffix with the parameters of `like`. */
onq_code oq_qo_output_like(oq_qo *q, oq_str name, const char *suffix, const oq_qo_value *like,
                           oq_qo_value **out, onq_error *err);
/* `name` has become what `v` is (a Relu that goes away). */
onq_code oq_qo_alias(oq_qo *q, oq_str name, oq_qo_value *v, onq_error *err);
/* The quantized bias of a static operator, multiplied by `factor`: name of the int32 initializer.
 */
onq_code oq_qo_bias_tensor(oq_qo *q, const oq_node *n, oq_str bias, const oq_qo_value *input,
                           const oq_qo_value *weight, float factor, oq_str *out, onq_error *err);
/* Leaves the node float: emitted with its inputs dequantized. */
onq_code oq_qo_leave(oq_qo *q, oq_node *n, const char *why, onq_error *err);
/* A DequantizeLinear for a tensor that exists in quantized form only; nothing otherwise. */
onq_code oq_qo_dequantize(oq_qo *q, oq_str name, onq_error *err);
/* DequantizeLinear(v) -> out, for the tensor `name`. */
onq_code oq_qo_emit_dequantize(oq_qo *q, const oq_qo_value *v, oq_str name, oq_str out,
                               onq_error *err);
/* True if the value can be dequantized at this opset. */
bool oq_qo_has_dequantize(const oq_qo *q, const oq_qo_value *v);
/* A copy of the node that may be changed: the model's own nodes are not. NULL: out of memory. */
oq_node *oq_qo_copy(oq_qo *q, const oq_node *n);
/* Puts a node into the draft. */
onq_code oq_qo_emit(oq_qo *q, oq_node *n, onq_error *err);
/* A new node called <name>_quant with copies of the attributes, not emitted yet; domain "" or
 * com.microsoft. */
oq_node *oq_qo_node_new(oq_qo *q, const oq_node *n, const char *op_type, bool ms);
/* The node itself on integers: it reads `in` as input 0 and makes `out` (NULL: what it made). */
onq_code oq_qo_emit_moved(oq_qo *q, const oq_node *n, const oq_qo_value *in, const oq_qo_value *out,
                          onq_error *err);
/* The three names of a value as inputs. */
bool oq_qo_add_inputs(oq_qo *q, oq_node *n, const oq_qo_value *v);
/* Scale and zero point of a value as inputs. */
bool oq_qo_add_params(oq_qo *q, oq_node *n, const oq_qo_value *v);
/* The product of two scales, for the result of the integer operator `made`. */
onq_code oq_qo_scales_product(oq_qo *q, const oq_node *made, const oq_str scales[2], oq_str *out,
                              onq_error *err);
/* An integer operator with all that makes its sums float again: `made` (ConvInteger or
 * MatMulInteger) gets its inputs, then come Cast and the product of the scales; the result is
 * called `result`. */
onq_code oq_qo_emit_scaled(oq_qo *q, const oq_node *n, oq_node *made, const oq_qo_value *in,
                           const oq_qo_value *weight, oq_str result, onq_error *err);
/* An initializer is added to the draft unless the graph has one of that name. */
onq_code oq_qo_add_init(oq_qo *q, oq_tensor *t, onq_error *err);

/* ---- 16-bit floats (qoperator_half.c) ---- */

/* Decides whether 16-bit floats are cast (oq_qo_shared.casts). */
onq_code oq_qo_decide_casts(oq_qo_shared *sh, onq_error *err);
/* True if the quantized form of the operator takes float16 scales as they are. */
bool oq_qo_takes_half(const oq_qo_shared *sh, oq_str op_type);
/* True if the constant is float32 here: as it is, or after a Cast. */
bool oq_qo_is_float32(const oq_qo *q, const oq_tensor *t);
/* The scale type of a tensor of that type. */
oq_dtype oq_qo_scale_type(const oq_qo_shared *sh, int32_t type);
/* The type of a tensor that has Cast around it; else OQ_FLOAT. */
onq_code oq_qo_elem(oq_qo *q, oq_str name, oq_dtype *out, onq_error *err);
/* The tensor as float32: itself, or its twin, made by Cast or DequantizeLinear if it is not there
 * yet. Tensors that are not 16-bit floats are returned as they are. */
onq_code oq_qo_wide(oq_qo *q, oq_str name, oq_str *out, onq_error *err);
/* What a node that gives out float32 calls its output `name`, which is of type `elem`: itself, or a
 * twin, which is cast back as soon as somebody reads `name`. */
onq_code oq_qo_result(oq_qo *q, oq_str name, oq_dtype elem, oq_str *out, onq_error *err);
/* The same for output 0 of a node. */
onq_code oq_qo_output_real(oq_qo *q, const oq_node *n, oq_str *out, onq_error *err);
/* Inputs as float32 in, outputs that are cast back where they are of type `elem`. */
onq_code oq_qo_add_real(oq_qo *q, oq_node *made, const oq_node *n, size_t slot, onq_error *err);
onq_code oq_qo_add_results(oq_qo *q, oq_node *made, const oq_node *n, oq_dtype elem,
                           onq_error *err);
/* Casts the twin of `name` back, where there is one and `name` does not exist yet. */
onq_code oq_qo_narrow(oq_qo *q, oq_str name, onq_error *err);

/* ---- trained models (qoperator_trained.c) ---- */

/* The parameters that a weight was trained with, or NULL. */
const oq_tensor_override *oq_qo_trained_weight(const oq_qo *q, oq_str name);
/* The axis of a trained weight in the tensor that is in the graph; false: not per channel. */
bool oq_qo_trained_axis(const oq_qo *q, oq_str name, int64_t *axis);
/* True if it has no channels, or those of this axis. */
bool oq_qo_trained_fits(const oq_qo *q, oq_str name, int64_t axis);
/* Trained weights of a node that stays float become integers with a DequantizeLinear; Conv and its
 * kin read rounded activations too: *n becomes a copy that does. */
onq_code oq_qo_leave_trained(oq_qo *q, oq_node **n, onq_error *err);
/* The trained parameters of a tensor are not those of `v`. */
bool oq_qo_trained_otherwise(const oq_qo *q, oq_str name, const oq_qo_value *v);
/* Gemm becomes MatMul and Add only where that is of use. */
bool oq_qo_trained_gemm(const oq_qo_shared *sh, const oq_node *n);
/* Among integer operators: the QLinear rule of a node whose inputs and output were trained and that
 * has no integer rule, so that what was trained is kept, or NULL. */
oq_qo_rule oq_qo_trained_rule(const oq_qo *q, const oq_node *n);
/* ConvInteger as quantize_qat has it: the bias is an integer too. */
onq_code oq_qo_rule_conv_trained(oq_qo *q, oq_node *n, onq_error *err);

/* ---- shared rules ---- */

/* A QLinear operator of com.microsoft with `n_in` quantized inputs and one output: inputs as
 * triples, then the parameters of the output. */
onq_code oq_qo_qlinear(oq_qo *q, oq_node *n, size_t n_in, onq_error *err);
/* Direct8BitOp: runs on the quantized tensor as it is. */
onq_code oq_qo_direct(oq_qo *q, oq_node *n, onq_error *err);

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
