/*
 * cv.h — what the files of quantize/convert share: the graph that is being rewritten, and the
 * parameters of its tensors.
 */
#pragma once

#include "onnx/edit.h"
#include "onnx/names.h"
#include "onnx/operators.h"
#include "quantize/convert/convert.h"
#include "quantize/convert/values.h"

#define OQ_MICROSOFT "com.microsoft"

/* Scale and zero point of a quantized tensor, as names in the graph. */
typedef struct oq_cv_param {
    oq_str scale, zero; /* zero may be empty */
    int64_t axis;       /* of channels or blocks; counts only where there is more than one scale */
    int64_t block;      /* 0: none */
    oq_str domain;      /* of the pairs around it */
    oq_str source;      /* DynamicQuantizeLinear: what it quantizes; else empty */
} oq_cv_param;

typedef struct oq_cv {
    oq_convert_job *job;
    oq_model *model;
    oq_arena *arena;  /* the model's */
    oq_arena scratch; /* given back at the end */
    oq_fresh names;
    int64_t opset;
    bool used_microsoft; /* a new node is of that domain */
    bool has_channels;   /* a new pair of the ONNX domain has scales along an axis */
    oq_map lifted;       /* floats that lifting named after quantized results */
    oq_map dead;         /* what was of no use before: it stays as it is */
    oq_map given;        /* keys of the nodes that the model had */
    oq_map asked;        /* keys of the nodes that the plan converts */
} oq_cv;

/* One graph. */
typedef struct oq_cv_scope {
    oq_cv *cv;
    oq_graph *graph;
    oq_index index; /* of the graph as it was before this step */
    const struct oq_cv_scope *parent;
    OQ_VEC(oq_node *) out; /* its nodes after this step */
    bool *drop;            /* nodes that a node before them took with it */
    oq_map params;         /* quantized tensor -> index in param */
    OQ_VEC(oq_cv_param) param;
    oq_map made;    /* DequantizeLinear that lifting added: "data|scale|zero" -> index in floats */
    oq_strs floats; /* what they make */
} oq_cv_scope;

/* ---- the walk (convert.c) ---- */

/* Called for the graph of the model, all graphs inside, outermost first, and functions. It leaves the
 * new nodes in s->out. */
typedef onq_code (*oq_cv_step)(oq_cv_scope *s, onq_error *err);
/* The new nodes become the graph's, and the index is of them. A step may do so itself. */
onq_code oq_cv_settle(oq_cv_scope *s, onq_error *err);
/* A new node at the end of the list; NULL is out of memory. */
onq_code oq_cv_emit(oq_cv_scope *s, oq_node *n, onq_error *err);

/* ---- nodes and names (cv_nodes.c) ---- */

/* The code and text of a node that cannot be converted: "node 'x' (Type): why". */
onq_code oq_cv_refuse(const oq_node *n, onq_code code, onq_error *err, const char *fmt, ...)
    OQ_PRINTF(4, 5);
/* What has no exact counterpart: refused, or counted where the job allows it. */
onq_code oq_cv_inexact(oq_cv_scope *s, const oq_node *n, const char *why, onq_error *err);
/* What has no operator in the new form: refused, or counted where the job lets it keep its pairs. */
onq_code oq_cv_stays(oq_cv_scope *s, const oq_node *n, const char *why, onq_error *err);
/* A name without the ending that a quantizer gave it: "w_quantized" is "w". */
oq_str oq_cv_plain_name(oq_str name);
/* A free name: the plain one and `suffix`, with a number where that is taken. */
oq_str oq_cv_fresh(oq_cv_scope *s, oq_str wanted, const char *suffix);
/* DequantizeLinear of `data`, one for all that ask; *out is what it makes. */
onq_code oq_cv_dequantize(oq_cv_scope *s, oq_str data, const oq_cv_param *p, oq_str *out,
                          onq_error *err);
/* QuantizeLinear from `from` to `to`. */
onq_code oq_cv_quantize(oq_cv_scope *s, oq_str from, const oq_cv_param *p, oq_str to,
                        onq_error *err);
/* A copy of a node that stands for it as another operator, without inputs and outputs. */
oq_node *oq_cv_as(oq_cv_scope *s, const oq_node *n, const char *domain, const char *type);
/* An initializer of that name in the graph that owns `near` (or in this one), with no payload yet. */
oq_tensor *oq_cv_init(oq_cv_scope *s, oq_str near, oq_str name, oq_dtype type, const int64_t *dims,
                      size_t rank);
/* The constant of that name, in this graph or outwards; NULL. */
oq_tensor *oq_cv_constant(const oq_cv_scope *s, oq_str name);
/* True if both names are one tensor, or constants of the same type and values. Two empty ones are. */
bool oq_cv_same(oq_cv_scope *s, oq_str a, oq_str b);
/* True for a constant of several scales. */
bool oq_cv_has_many(const oq_cv_scope *s, oq_str scale);
/* True if two sets of parameters are the same. */
bool oq_cv_same_params(oq_cv_scope *s, const oq_cv_param *a, const oq_cv_param *b);
/* The parameters of a QuantizeLinear or DequantizeLinear. */
oq_cv_param oq_cv_param_of(const oq_node *n);
/* The parameters that are known of a quantized tensor, or NULL. */
const oq_cv_param *oq_cv_find(const oq_cv_scope *s, oq_str name);
onq_code oq_cv_know(oq_cv_scope *s, oq_str name, const oq_cv_param *p, onq_error *err);
/* One scale and zero point; false where they are not constants of one element. */
bool oq_cv_scalar(oq_cv_scope *s, const oq_cv_param *p, float *scale, int64_t *zero,
                  oq_dtype *type);
/* Notes the nodes that the model has, and those that job->asked converts. */
onq_code oq_cv_begin(oq_cv *cv, onq_error *err);
/* True if the plan that is followed leaves the node, one that the model had, as it is. */
bool oq_cv_is_left(const oq_cv_scope *s, const oq_node *n);
/* True if the plan that is followed converts the node. */
bool oq_cv_is_asked(const oq_cv_scope *s, const oq_node *n);
/* As oq_cv_is_left, for a node that could be converted: it is counted. */
bool oq_cv_leave(oq_cv_scope *s, const oq_node *n);
/* A row of the plan for a node that goes; the second: for a quantized operator, which is counted. */
onq_code oq_cv_note(oq_cv_scope *s, const oq_node *n, onq_error *err);
onq_code oq_cv_replaced(oq_cv_scope *s, const oq_node *n, onq_error *err);

/* ---- lifting ---- */

typedef enum oq_cv_slot_kind {
    OQ_SLOT_NONE,
    OQ_SLOT_IN,
    OQ_SLOT_WEIGHT,
    OQ_SLOT_BIAS,
    OQ_SLOT_ASIS,
    OQ_SLOT_REST
} oq_cv_slot_kind;

#define OQ_AXIS_GEMM   INT8_MIN
#define OQ_CV_OPERANDS 8

typedef struct oq_cv_slot {
    oq_cv_slot_kind kind;
    int8_t data, scale, zero, axis;
} oq_cv_slot;

/* A row of lift.def. */
typedef struct oq_cv_row {
    const char *domain, *type, *float_domain, *float_type;
    int8_t output;
    oq_cv_slot in[OQ_CV_OPERANDS];
} oq_cv_row;

extern const oq_cv_row oq_cv_rows[];
extern const size_t oq_cv_row_count;

/* The axis along which the channels of that operand lie; it may be negative. */
int64_t oq_cv_slot_axis(const oq_cv_slot *in, const oq_node *n);
/* Operators that hand on the values of their first input. */
typedef struct oq_cv_mover {
    const char *type;
    bool all_in;   /* of all inputs */
    bool no_value; /* output 0 holds no values, but their order does decide it */
} oq_cv_mover;

/* Steps. */
onq_code oq_cv_lift(oq_cv_scope *s, onq_error *err);
onq_code oq_cv_to_float(oq_cv_scope *s, onq_error *err);
onq_code oq_cv_to_qoperator(oq_cv_scope *s, onq_error *err);
onq_code oq_cv_to_nbits(oq_cv_scope *s, onq_error *err);
onq_code oq_cv_to_blocks(oq_cv_scope *s, onq_error *err);
onq_code oq_cv_to_uint8(oq_cv_scope *s, onq_error *err);
/* The parameters of what an integer product reads. */
onq_code oq_cv_know_integer(oq_cv_scope *s, const oq_node *n, onq_error *err);
/* Rules for operators that have no row (cv_lift_integer.c, cv_lift_weights.c). *done is set where the
 * node is one of them. */
onq_code oq_cv_lift_integer(oq_cv_scope *s, uint32_t at, bool *done, onq_error *err);
onq_code oq_cv_lift_weights(oq_cv_scope *s, uint32_t at, bool *done, onq_error *err);
