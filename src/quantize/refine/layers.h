/*
 * layers.h — the quantized layers of a model, each with the tensor of the float model that its
 * result stands for, and with a place for a bias of its own.
 *
 * A layer is a Conv, ConvTranspose, Gemm or MatMul whose weight is a quantized constant: a float
 * operator between QuantizeLinear and DequantizeLinear, or a QLinear operator. What such a layer
 * makes, before an activation or a quantizer cuts it, is the tensor `quantized`. A QLinear operator
 * does not show it: a float node beside it does, in the graph that is stepped through, not in the
 * model. Two products of double activations (quantize/ort/product_forms.h) are one layer.
 */
#pragma once

#include "onnx/graph.h"
#include "onnx/names.h"
#include "onnx/operators.h"

/* An initializer that this layer alone reads and that adds to its output channels. */
typedef struct oq_layer_bias {
    oq_tensor *tensor;  /* NULL: there is no place for one */
    const float *scale; /* of an int32 bias, n_scale of them; NULL: it is float */
    size_t n_scale;
    double factor; /* the output moves by that much when the bias moves by 1 */
} oq_layer_bias;

typedef struct oq_layer {
    oq_node *node; /* in the model */
    oq_node *last; /* the node that gives its result: itself, or the Sub of double activations */
    oq_node *low;  /* double activations: the product of the residual; else NULL */
    oq_product product;
    oq_str flt;              /* what the same layer of the float model makes */
    size_t product_number;   /* of that tensor, in `products` */
    oq_str float_input;      /* its input there */
    uint32_t float_stop;     /* its node there */
    oq_tensor *float_weight; /* float, or NULL */
    oq_str quantized;        /* what is compared with it, in the graph that is stepped through */
    oq_str input;            /* the dequantized input, there */
    uint32_t stop;           /* the node that makes `quantized`, there */
    uint32_t product_at;     /* the node there whose result a change of the bias leaves as it is, or
                              * OQ_NO_NODE */
    oq_tensor *weight;       /* integers */
    bool shared_weight;      /* other nodes read it too */
    oq_str weight_scale, weight_zero;
    oq_tensor *scale_tensor, *zero_tensor; /* of those names, or NULL */
    uint64_t channels;                     /* of the output */
    bool last_axis; /* channels are the last axis of the output, else axis 1 */
    oq_layer_bias bias;
} oq_layer;

typedef OQ_VEC(oq_layer) oq_layer_list;

/* What a product of the float model makes, quantized or not. */
typedef struct oq_float_product {
    oq_str name;
    uint64_t channels;
    bool last_axis; /* as in oq_layer */
} oq_float_product;

typedef struct oq_layers {
    oq_model *model; /* quantized; nodes and initializers for biases are put in */
    oq_model_proto *flt;
    bool float_bias; /* biases that are added are float */
    oq_arena *arena; /* of everything here that the model does not keep */
    /* out */
    oq_layer_list all; /* in topological order */
    /* Those that may be looked at whatever is quantized, and then those of other layers. */
    OQ_VEC(oq_float_product) products;
    oq_model_proto stepped;
    size_t n_unmatched; /* quantized layers without a counterpart in the float model */
    size_t n_no_bias;   /* layers that have no place for a bias */
} oq_layers;

/* Finds them. The model's graph is as it was when `biases` is false; else every layer that can have
 * a bias has one of its own afterwards, zero where there was none. */
onq_code oq_layers_find(oq_layers *l, bool biases, onq_error *err);

/* Gives a layer its bias (layer_bias.c). */
typedef struct oq_layer_editor {
    oq_layers *layers;
    oq_index ix; /* of the quantized model */
    oq_fresh names;
    OQ_VEC(oq_node *) before, after;             /* new nodes, and */
    OQ_VEC(const oq_node *) before_at, after_at; /* the nodes they go to */
} oq_layer_editor;
onq_code oq_layer_place_bias(oq_layer_editor *e, oq_layer *l, onq_error *err);
/* Moves the output channels by `delta`; *n_clipped counts those that int32 does not hold. */
onq_code oq_layer_add_bias(oq_layers *l, const oq_layer *layer, const double *delta,
                           size_t *n_clipped, onq_error *err);
