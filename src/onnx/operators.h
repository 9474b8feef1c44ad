/*
 * operators.h — facts about an operator that do not depend on the quantizer: where its weight and
 * bias are, how its output is related to its input. The rows are in operators.def; the rules by which the quantizers
 * treat an operator are further columns of the same rows (quantize/rules.h).
 */
#pragma once

#include "onnx/graph.h"

/* An input slot in a row, such that no slot is 0. */
#define OQ_IN(slot) ((slot) + 1)

/* How many inputs an operator takes, at any opset; a most of 0: any number. A row that says so has
 * one output, unless it says something else of them too. */
#define OQ_INPUTS(fewest, highest) .least = (fewest), .most = (highest)

/* For a row that has none. */
#define OQ_NO_TRAITS .form = OQ_FORM_FLOAT

/* Sums of products with a weight: the work that integers speed up. */
typedef enum oq_product {
    OQ_NO_PRODUCT,
    OQ_CONV,
    OQ_CONV_TRANSPOSE,
    OQ_GEMM,
    OQ_MATMUL
} oq_product;

/* Output 0 (every output with all_outputs) holds values of input 0 and no others. */
typedef enum oq_repeats {
    OQ_REPEATS_NOTHING,
    OQ_REPEATS_OR_ZERO,  /* or zero in their place */
    OQ_REPEATS_SOME,     /* some of them, some more than once */
    OQ_REPEATS_ALL,      /* each of them once */
    OQ_REPEATS_IN_ORDER, /* each of them once, in their order */
} oq_repeats;

/* Where f(k x) = k f(x) for any k > 0 of each channel. */
typedef enum oq_scaling {
    OQ_SCALES_NOT,
    OQ_SCALES,         /* channels may be along any axis */
    OQ_SCALES_CHANNELS /* axis 1 has the channels */
} oq_scaling;

/* How an operator takes quantized values. */
typedef enum oq_form {
    OQ_FORM_FLOAT,
    OQ_FORM_QLINEAR,    /* quantized in, quantized out */
    OQ_FORM_INTEGER,    /* integers in, int32 or float out */
    OQ_FORM_WEIGHT_ONLY /* float activations, a packed weight */
} oq_form;

/* Operators that hold or convert values and compute nothing. */
typedef enum oq_op_kind {
    OQ_KIND_OTHER,
    OQ_KIND_CONSTANT,
    OQ_KIND_QUANTIZE,   /* QuantizeLinear */
    OQ_KIND_DEQUANTIZE, /* DequantizeLinear */
    OQ_KIND_DYNAMIC     /* DynamicQuantizeLinear */
} oq_op_kind;

/* Their names, for nodes that are made. Nodes that are there are asked for their kind. */
#define OQ_CONSTANT                "Constant"
#define OQ_QUANTIZE_LINEAR         "QuantizeLinear"
#define OQ_DEQUANTIZE_LINEAR       "DequantizeLinear"
#define OQ_DYNAMIC_QUANTIZE_LINEAR "DynamicQuantizeLinear"

typedef struct oq_op_traits {
    oq_form form;
    oq_op_kind kind;
    oq_product product;
    oq_product work; /* what it computes, where its weight is none that `product` describes */
    const char *stands_for; /* a quantized operator: the float one it was; else NULL */
    uint8_t least, most;    /* inputs, see OQ_INPUTS */
    uint8_t outputs;        /* the most, where it is more than one; but see all_outputs */
    uint8_t gates;          /* of a recurrent operator: hidden states side by side in a weight */
    /* Slots, as OQ_IN(slot); 0: none. */
    uint8_t weight; /* where it is constant, it is quantized as a weight */
    uint8_t param;  /* a quantized operator: the weight's scale or zero point */
    uint8_t bias;
    uint8_t scale;        /* of a normalization: quantized as a weight in QDQ */
    uint8_t more_weights; /* how many slots after `weight` are quantized with it */
    /* Opsets since which what it becomes takes float16 scales as they are; 0: never. What has no
     * scales needs a DequantizeLinear of float16 after it, which came with 19. */
    uint8_t half_qlinear, half_integer;
    bool either_side;   /* slot 0 is a weight too, where it is constant */
    bool clips;         /* cuts its input off at bounds */
    bool unit_output;   /* the output lies between 0 and 1 whatever the input */
    bool vanishes;      /* the runtime takes it out of the graph */
    bool all_outputs;   /* as many as one likes, and all of them hold what `repeats` says */
    bool random;        /* other values each time it runs */
    bool carries_pairs; /* ONNX Runtime puts a quantized pair of its own after it */
    /* ONNX Runtime fuses it with its pairs whatever the type of their scales, but its quantized
     * form takes float32 scales only. */
    bool fused_float32;
    bool bytes_from_11; /* takes 8-bit values from opset 11 on only */
    /* How much it can make noise grow relative to the values, from 1 (a sum that cancels) to 9 (a
     * logarithm near zero); 0: it does not. */
    uint8_t steep;
    oq_repeats repeats;
    oq_scaling scaling;
    bool fused;        /* ONNX Runtime makes it when it optimises past its basic level */
    bool in_linear;    /* op_set linear takes it beside products and what clips */
    bool only_listed;  /* known to a mode, but taken only where the user lists it */
    bool trained_twin; /* its QLinear rule serves trained models in integer format too */
} oq_op_traits;

typedef struct oq_operator {
    const char *domain, *type;
    oq_op_traits traits;
} oq_operator;

extern const oq_operator oq_operators[];
extern const size_t oq_operator_count;

/* The default domain, in either spelling. */
static inline bool oq_domain_is_onnx(oq_str d) {
    return d.n == 0 || oq_str_is(d, "ai.onnx");
}

/* The domain, with the default one spelled "". */
static inline oq_str oq_domain_plain(oq_str d) {
    return oq_domain_is_onnx(d) ? OQ_S("") : d;
}

/* The row of that type, whatever the domain; NULL when there is none. */
const oq_operator *oq_operator_find(oq_str type);
/* Its traits; those of an operator that has no row are all absent. */
const oq_op_traits *oq_op_traits_of(oq_str type);

/* ---- nodes; the answer for NULL is no ---- */

/* The name of an input; empty when it is not given. */
static inline oq_str oq_node_input(const oq_node *n, size_t slot) {
    return slot < n->input.n ? n->input.v[slot] : OQ_S("");
}
/* True for the operator of that type in the default domain. */
bool oq_node_is(const oq_node *n, const char *type);
bool oq_node_is_any(const oq_node *n, const char *const *types, size_t count);
/* A Constant of the default domain. */
bool oq_node_is_constant(const oq_node *n);
/* A Transpose that swaps the dimensions of its input, if that is a matrix. */
bool oq_node_is_swap(const oq_node *n);
/* A QuantizeLinear or DequantizeLinear of the default domain or of com.microsoft, whose own take
 * types that those of older opsets do not; the last: either of them. The reference goes by the type
 * alone; where bytes depend on that, ask the traits of the type for its kind. */
bool oq_node_is_quantize(const oq_node *n);
/* True if a QuantizeLinear reads something that the node makes. */
bool oq_node_feeds_quantize(const oq_index *ix, const oq_node *n);
bool oq_node_is_dequantize(const oq_node *n);
bool oq_node_is_pair(const oq_node *n);
/* Static analyzers look at one file at a time, as base/err.h says: the answer for NULL is no. */
#ifdef OQ_ANALYZER
#define OQ_SAYS_NODE(yes, n)         ((yes) && ((n) != NULL || (__builtin_unreachable(), false)))
#define oq_node_is(n, type)          OQ_SAYS_NODE(oq_node_is(n, type), n)
#define oq_node_is_any(n, types, of) OQ_SAYS_NODE(oq_node_is_any(n, types, of), n)
#define oq_node_is_constant(n)       OQ_SAYS_NODE(oq_node_is_constant(n), n)
#define oq_node_is_swap(n)           OQ_SAYS_NODE(oq_node_is_swap(n), n)
#define oq_node_is_quantize(n)       OQ_SAYS_NODE(oq_node_is_quantize(n), n)
#define oq_node_is_dequantize(n)     OQ_SAYS_NODE(oq_node_is_dequantize(n), n)
#define oq_node_is_pair(n)           OQ_SAYS_NODE(oq_node_is_pair(n), n)
#endif
/* The tensor that a Constant has as its `value`; NULL for other nodes and other ways to give
 * one. */
oq_tensor *oq_node_constant(const oq_node *n);

/* The slot, or -1 when there is none. */
static inline int oq_op_slot(uint8_t in) {
    return (int)in - 1;
}
/* True if QDQ quantizes that input, where it is constant, as a weight. */
bool oq_op_takes_weight(const oq_op_traits *t, size_t slot);
/* True if an operator of the model, in any of its graphs, draws random numbers: what a run gives
 * depends on the runs before it. */
onq_code oq_model_is_random(const oq_model *m, bool *yes, onq_error *err);
/* Gemm: true if A, or B, is transposed: any number but 0 says so to the runtime. */
bool oq_gemm_turns_a(const oq_node *n);
bool oq_gemm_turns_b(const oq_node *n);
/* The axis along which the weight of a product has its output channels; false for other nodes. */
bool oq_op_channel_axis(const oq_node *n, int64_t *axis);
