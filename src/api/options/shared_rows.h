/*
 * shared_rows.h — the options that more than one command has, each as one row.
 *
 * A table of a command, or a group of option_groups.c, names a row from here. The name, type,
 * aliases, range and help of an option are written once. A row takes as arguments only what must
 * differ between commands: a default, the choices, or which part of the model is meant.
 * tools/check-options.sh finds an option that is written in two tables.
 */
#pragma once

#include "api/options/choices.h"

/* ---- files ---- */

#define OQ_ROW_DATA_ROOT                                                                           \
    OQ_PATH("data_root", 0, "", "DIR",                                                             \
            "Another folder that may contain external data; links to it are followed.")
/* What a command writes, if that is one thing. */
#define OQ_ROW_OUTPUT(aliases, word, help) OQ_PATH("output", 'o', aliases, word, help)
/* `whose`: which samples they belong to. */
#define OQ_ROW_LABELS(whose)                                                                       \
    OQ_PATH("labels", 0, "", "FILE",                                                               \
            "The correct classes: a .npy file of integers, one for each row of the first "         \
            "output" whose)

/* What is written of the shapes between inputs and outputs (oq_job_save). */
#define OQ_ROW_DROP_SHAPES                                                                         \
    OQ_FLAG("drop_shapes", 0, "",                                                                  \
            "Leave out what the result says of the shapes of tensors inside the graph. The "       \
            "outputs stay the same. Where sizes are only known when the model runs, ONNX Runtime " \
            "1.31 then keeps Add and LayerNormalization apart, which is faster on some CPUs.")

/* What a result must reach. */
#define OQ_ROW_TARGET(help) OQ_PAIRS("target", 0, "", "METRIC=VALUE", help)

/* ---- what is quantized ---- */

#define OQ_ROW_OP_TYPES(aliases, help) OQ_LIST("op_types_to_quantize", 0, aliases, "TYPE", help)
#define OQ_ROW_NODES_TO_QUANTIZE                                                                   \
    OQ_LIST("nodes_to_quantize", 0, "", "NODE",                                                    \
            "Quantize only these nodes. A name, or a pattern re:REGEX.")
#define OQ_ROW_NODES_TO_EXCLUDE                                                                    \
    OQ_LIST("nodes_to_exclude", 0, "", "NODE",                                                     \
            "Leave these nodes float. A name, or a pattern re:REGEX.")
#define OQ_ROW_STRICT                                                                              \
    OQ_FLAG("strict", 0, "",                                                                       \
            "Fail if a name that is given is not in the model, or if nothing is quantized.")
#define OQ_ROW_ENABLE_SUBGRAPH                                                                     \
    OQ_FLAG("enable_subgraph", 0, "", "Include the bodies of If, Loop and Scan.")
#define OQ_ROW_MATMUL_CONST_B_ONLY(fallback)                                                       \
    OQ_BOOL("matmul_const_b_only", 0, "", fallback,                                                \
            "Quantize MatMul only if its second input is constant.")
#define OQ_ROW_FORCE_QUANTIZE                                                                      \
    OQ_FLAG("force_quantize_no_input_check", 0, "",                                                \
            "Quantize operators that only move values even if their input is not quantized.")
#define OQ_ROW_KEEP_FLOAT16                                                                        \
    OQ_FLAG_ON("keep_float16", 0, "",                                                              \
               "Where nodes become integer operators, also quantize float16 and bfloat16 nodes, "  \
               "with Cast nodes around them, so that all tensors keep their types; false leaves "  \
               "such nodes unquantized.")
#define OQ_ROW_LIFT_CONSTANTS                                                                      \
    OQ_FLAG("lift_constants", 0, "", "Turn Constant nodes into initializers first.")
#define OQ_ROW_SORT_NODES                                                                          \
    OQ_FLAG_ON("sort_nodes", 0, "",                                                                \
               "Sort the nodes as onnxruntime.quantization does when it saves a model; false "     \
               "leaves them in the order in which its quantizers make them, where a node may "     \
               "come before one that it needs.")

/* ---- how it is quantized ---- */

#define OQ_ROW_QUANT_FORMAT(fallback, choices, help)                                               \
    OQ_ENUM("quant_format", 0, "", fallback, choices, "FORMAT", help)
/* `more` ends the sentence. */
#define OQ_ROW_ACTIVATION_TYPE(choices, more)                                                      \
    OQ_ENUM("activation_type", 0, "", "quint8", choices, "TYPE", "Type of activations" more)
#define OQ_ROW_WEIGHT_TYPE(fallback, choices, more)                                                \
    OQ_ENUM("weight_type", 0, "", fallback, choices, "TYPE", "Type of weights" more)
/* `which` weights, after a space. */
#define OQ_ROW_PER_CHANNEL(fallback, which)                                                        \
    OQ_BOOL("per_channel", 0, "", fallback, "Quantize weights" which " per channel.")
#define OQ_ROW_REDUCE_RANGE(which)                                                                 \
    OQ_FLAG("reduce_range", 0, "", "Quantize weights" which " with one bit less (7 of 8).")
#define OQ_ROW_ACTIVATION_SYMMETRIC(which)                                                         \
    OQ_FLAG("activation_symmetric", 0, "", "Make the ranges of " which " symmetric.")
#define OQ_ROW_WEIGHT_SYMMETRIC                                                                    \
    OQ_FLAG("weight_symmetric", 0, "",                                                             \
            "Make the ranges of weights symmetric (default: if the type is signed).")

/* ---- how ranges are found ---- */

#define OQ_ROWS_CALIBRATION                                                                        \
    OQ_ENUM("calibration_method", 0, "method calibrate_method", "minmax", OQ_METHOD_CHOICES,       \
            "METHOD", "The method that finds the ranges."),                                        \
        OQ_FLAG("calib_tensor_range_symmetric", 0, "calib_symmetric",                              \
                "minmax, percentile, mse: make ranges symmetric about zero. Off by default in "    \
                "`onq static`, as in static_quantize_runner; in `onq calibrate` it is on for "     \
                "percentile, as in create_calibrator."),                                           \
        OQ_FLAG("calib_moving_average", 0, "",                                                     \
                "minmax: use a moving average over the samples instead of the extremes."),         \
        OQ_REAL("calib_moving_average_constant", 0, "calib_averaging_constant", "0.01", "", "X",   \
                "minmax: weight of a new sample in the moving average, from 0 to 1."),             \
        OQ_INT("calib_max_intermediate_outputs", 0, "", "", "1..", "N",                            \
               "Accepted for compatibility; it has no effect, because memory does not grow "       \
               "with the samples."),                                                               \
        OQ_INT("calib_strided_minmax", 0, "", "", "1..", "N",                                      \
               "minmax: collect N samples at a time, as CalibStridedMinMax of "                    \
               "onnxruntime.quantization does."),                                                  \
        OQ_REAL("calib_percentile", 0, "", "99.999", "0..100", "P",                                \
                "percentile: percentage of the values that the range contains."),                  \
        OQ_INT("calib_num_bins", 0, "", "", "2..", "N",                                            \
               "Number of bins of the histogram (128 for entropy, otherwise 2048)."),              \
        OQ_INT("calib_num_quantized_bins", 0, "", "", "1..", "N",                                  \
               "entropy: number of bins after quantization (default: 128); mse: number of "        \
               "values of the quantized type (default: that of the activation type, or 256 if "    \
               "none is given).")

/* ---- decisions ---- */

#define OQ_ROW_PLAN    OQ_PATH("plan", 0, "", "FILE", "Write every decision and its reason as JSON.")
#define OQ_ROW_DRY_RUN OQ_FLAG("dry_run", 0, "", "Decide everything, but write no model.")

/* ---- resources and limits ---- */

/* `what` it is for, to the end of the sentence. */
#define OQ_ROW_MEMORY(fallback, what) OQ_SIZE("memory", 0, "", fallback, "", "Memory for " what)
#define OQ_ROW_JOBS                                                                                \
    OQ_INT("jobs", 'j', "", "0", "0..16", "N",                                                     \
           "Number of samples that run at once; 0 means as many as cores and memory allow. "       \
           "Results do not depend on it.")
/* `what` is stopped. */
#define OQ_ROW_TIME_LIMIT(what)                                                                    \
    OQ_REAL("time_limit", 0, "", "0", "0..", "SECONDS",                                            \
            "Stop " what " after this time and use the best result so far; 0 means no limit.")

/* ---- running ---- */

#define OQ_ROW_OPTIMIZATION                                                                        \
    OQ_ENUM("optimization", 0, "optimization_level graph_optimization_level", "all",               \
            OQ_CHOICES(OQ_LEVEL_CHOICES), "LEVEL", "The runtime's graph optimisation.")
/* `more` sentences, after a space. */
#define OQ_ROW_DIM(more)                                                                           \
    OQ_LIST("dim", 0, "", "NAME=VALUE", "Fix symbolic dimensions of the inputs." more)
