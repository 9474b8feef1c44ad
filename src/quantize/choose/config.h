/*
 * config.h — the configuration of a quantizer: the arguments of the reference's quantize_static and
 * quantize_dynamic, and all keys of its extra_options.
 *
 * The api layer fills one from a command's options. It holds choices only: qrun.h has what a run
 * finds out about the nodes of a model.
 */
#pragma once

#include "quantize/choose/node_method.h"
#include "quantize/choose/pick.h"
#include "quantize/number/qtype.h"
#include "quantize/plan_read.h"

/* An option that may be absent (Python's None). */
typedef enum oq_tri { OQ_NO = 0, OQ_YES = 1, OQ_UNSET = 2 } oq_tri;

typedef struct oq_qaxis {
    oq_str op_type;
    int64_t axis;
} oq_qaxis;

typedef struct oq_qconfig {
    oq_arena *arena;  /* texts and lists live here */
    oq_pick op_types; /* empty: the default list of the mode */
    oq_pick nodes_to_quantize, nodes_to_exclude;
    oq_node_methods methods; /* of single nodes, which they decide about */
    oq_pick op_types_to_exclude;
    oq_dtype activation_type, weight_type;

    /* extra_options that are numbers and lists */
    oq_pick exclude_output_ops;
    OQ_VEC(oq_qaxis) op_axis; /* QDQOpTypePerChannelSupportToAxis */
    uint64_t block_size;      /* 0: none */
    double min_real_range;    /* if has_min_real_range */
    double smooth_quant_alpha;
    oq_tri weight_symmetric;
    oq_tri matmul_const_b_only;  /* unset: no for static, yes for dynamic */
    int32_t default_tensor_type; /* an oq_dtype; 0: none; -1: what onnx does not find is refused */

    bool per_channel, reduce_range;
    bool early_pairs;  /* tensors are quantized before they are cut and joined (product_forms.h) */
    bool op_types_all; /* every operator of the model */
    bool strict;       /* a name that matches nothing is an error */
    /* Parameters come from training (trained.h): overrides are exact, and activations that have
     * none are left float. */
    bool trained;
    bool trained_all; /* and inputs or weights have some too: all that was trained is to be kept */

    /* extra_options that are flags */
    bool activation_symmetric;
    bool activation_restricted_asymmetric;
    bool enable_subgraph;
    bool keep_float16; /* integer operators have Cast around them where tensors are float16 */
    bool force_quantize_no_input_check;
    bool add_qdq_pair_to_weight;
    bool dedicated_qdq_pair;
    bool quantize_bias;
    bool as_reference; /* what the reference cannot do is refused */
    bool keep_opset;   /* 16-bit pairs are com.microsoft's, and the opset is not raised for them */
    bool sort_nodes;   /* as ONNXModel.save_model_to_file does it */
    bool use_qdq_contrib_ops;
    bool keep_removable_activations;
    bool disable_weight_adjust;
    bool sigmoid_nnapi;
    bool has_min_real_range;
    bool smooth_quant;
    bool smooth_quant_folding;

    /* What the reference does not have: int8 weights whose sums of two products fit into 16 bits
     * (saturate.h), and forms that ONNX Runtime's optimisers leave alone (ort_forms.h). */
    bool saturation_safe;
    bool keep_excluded_float; /* of float nodes between quantized ones */
    bool keep_products;       /* of integer products with float outputs and a bias */
} oq_qconfig;

/* The defaults of the reference's quantize_static (no options given). */
void oq_qconfig_init(oq_qconfig *c, oq_arena *arena);

/* The axis set for an operator type; false when none is. */
bool oq_qconfig_axis(const oq_qconfig *c, oq_str op_type, int64_t *axis);
/* is_weight_symmetric: what was said, else whether the type is signed. */
bool oq_qconfig_weight_symmetric(const oq_qconfig *c, oq_dtype type);
