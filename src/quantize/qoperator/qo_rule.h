/*
 * qo_rule.h — what the rule of an operator may ask, and the verbs with which it puts integer
 * operators into the draft. The state of the pass is the driver's (qo_state.h).
 */
#pragma once

#include "calibrate/ranges.h"
#include "onnx/edit.h"
#include "onnx/names.h"
#include "quantize/choose/qrun.h"
#include "quantize/number/clip.h"
#include "quantize/ort/ort_forms.h"
#include "quantize/override/override.h"
#include "quantize/rules.h"
#include "shape/shape.h"

typedef struct oq_qo oq_qo;

/* What a tensor has become. */
typedef struct oq_qo_value {
    oq_str name;           /* the float tensor */
    oq_str q, scale, zero; /* names of the quantized one and its parameters */
    const struct oq_qo_value *bias_input, *bias_weight; /* an int32 bias: what its scale is of */
    bool has_axis;                                      /* weight per channel */
    int64_t axis;                                       /* as the rule gave it */
    struct oq_qo_weight *weight;                        /* or NULL */
    const char *why;                                    /* where its parameters come from */
    bool has_param;                                     /* activation with static parameters */
    oq_qparam param;
    oq_dtype type, real; /* quantized type; type of the scale */
    oq_dtype elem;       /* type of the float tensor: not OQ_FLOAT means Cast around it */
} oq_qo_value;

/* ---- questions ---- */

bool oq_qo_is_static(const oq_qo *q);
const oq_qconfig *oq_qo_config(const oq_qo *q);
/* A plan that was read, or NULL. */
const oq_given *oq_qo_given(const oq_qo *q);
/* The model, and the arena in which new nodes live. */
oq_model *oq_qo_model(const oq_qo *q);
oq_arena *oq_qo_arena(const oq_qo *q);
oq_fresh *oq_qo_names(oq_qo *q);
int64_t oq_qo_opset(const oq_qo *q);
/* The graph as it came. */
const oq_index *oq_qo_index(const oq_qo *q);
/* The rank that onnx infers for a tensor; 0: it is a scalar, or not known. */
size_t oq_qo_rank(const oq_qo *q, oq_str name);
/* What a node of this kind needs between pairs (ort_forms.h). */
oq_kernel_need oq_qo_kernel_need(const oq_qo *q, const oq_node *n);
/* The range of an activation and what overrides say of a tensor, or NULL. */
const oq_range *oq_qo_range(const oq_qo *q, oq_str name);
const oq_tensor_override *oq_qo_override(const oq_qo *q, oq_str name);
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

/* Says why the running rule leaves its node float; NULL: it does not. */
void oq_qo_say(oq_qo *q, const char *why);
/* The running rule needs no node: the quantized range clips. */
void oq_qo_say_removed(oq_qo *q);

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

/* The constant `made` will be `t` quantized as `like` is. */
onq_code oq_qo_quantize_later(oq_qo *q, oq_tensor *t, oq_tensor *made, const oq_qo_value *like,
                              onq_error *err);
/* The quantized bytes of a weight of rank 3 are written as matrices that are transposed. Per
 * channel (`rows`) its parameters are a matrix too. */
onq_code oq_qo_turn_weight(oq_qo *q, const oq_qo_value *v, bool rows, onq_error *err);
/* False for a weight that was quantized as it lies. */
bool oq_qo_is_turned(const oq_qo_value *v);
/* Puts the quantized bytes of the weight after all initializers so far. */
void oq_qo_move_last(oq_qo *q, const oq_qo_value *v);

/* ---- 16-bit floats (qoperator_half.c) ---- */

/* True if 16-bit floats are cast to float32 around integer operators. */
bool oq_qo_casts(const oq_qo *q);
/* True if the tensor exists as float32 too, or only. */
bool oq_qo_is_wide(const oq_qo *q, oq_str name);
/* The scale type of a tensor of that type. */
oq_dtype oq_qo_scale_type(const oq_qo *q, int32_t type);
/* True if the constant is float32 here: as it is, or after a Cast. */
bool oq_qo_is_float32(const oq_qo *q, const oq_tensor *t);
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

/* ---- trained models (qoperator_trained.c) ---- */

/* True if it has no channels, or those of this axis. */
bool oq_qo_trained_fits(const oq_qo *q, oq_str name, int64_t axis);
/* The trained parameters of a tensor are not those of `v`. */
bool oq_qo_trained_otherwise(const oq_qo *q, oq_str name, const oq_qo_value *v);
/* ConvInteger as quantize_qat has it: the bias is an integer too. */
onq_code oq_qo_rule_conv_trained(oq_qo *q, oq_node *n, onq_error *err);

/* ---- shared rules ---- */

/* A QLinear operator of com.microsoft with `n_in` quantized inputs and one output: inputs as
 * triples, then the parameters of the output. */
onq_code oq_qo_qlinear(oq_qo *q, oq_node *n, size_t n_in, onq_error *err);
/* Direct8BitOp: runs on the quantized tensor as it is. */
onq_code oq_qo_direct(oq_qo *q, oq_node *n, onq_error *err);
