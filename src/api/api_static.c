/*
 * api_static.c — `onq static`: calibrate, then quantize (the reference's quantize_static).
 *
 * The steps, in the reference's order: open and infer types, raise the opset where the types need
 * it, check the overrides, ranges from the cache or from a calibration, quantize, check, write.
 * Nothing is written unless all of it worked.
 */
#include "api/choices.h"
#include "api/command.h"
#include "api/outputs.h"
#include "api/plan_file.h"
#include "api/quant_config.h"
#include "api/quant_input.h"
#include "api/quant_methods.h"
#include "api/quant_refine.h"
#include "api/quantization.h"
#include "api/ranges_handle.h"
#include "api/rewriting.h"
#include "api/samples.h"
#include "api/selection.h"
#include "calibrate/calibrate.h"
#include "calibrate/method.h"
#include "onnx/check.h"
#include "onnx/edit.h"
#include "onnx/operators.h"
#include "onnx/schema.h"
#include "onnx/tidy.h"
#include "prepare/preprocess.h"
#include "prepare/smooth.h"
#include "quantize/extreme.h"
#include "quantize/masks.h"
#include "quantize/opset.h"
#include "quantize/override_check.h"
#include "quantize/preset.h"
#include "quantize/qdq/qdq.h"
#include "quantize/qoperator/qoperator.h"
#include "quantize/rules.h"
#include "quantize/stamp.h"
#include "shape/operands.h"

#include <errno.h>
#include <sys/stat.h>

enum { FORMAT_QDQ, FORMAT_QOPERATOR };
#define FORMATS(ROW) ROW("qdq", FORMAT_QDQ) ROW("qoperator", FORMAT_QOPERATOR)
enum { PRESET_NONE, PRESET_QDQ, PRESET_QNN };
#define PRESETS(ROW) ROW("none", PRESET_NONE) ROW("qdq", PRESET_QDQ) ROW("qnn", PRESET_QNN)

static const onq_option_info quantize_rows[] = {
    OQ_ENUM("quant_format", 0, "", "qdq", OQ_CHOICES(FORMATS), "FORMAT",
            "Form of the result: QuantizeLinear and DequantizeLinear around float operators (qdq), "
            "or quantized operators."),
    OQ_ENUM("activation_type", 0, "", "quint8", OQ_CHOICES(OQ_TYPE_CHOICES), "TYPE",
            "Type of activations."),
    OQ_ENUM("weight_type", 0, "", "qint8", OQ_CHOICES(OQ_TYPE_CHOICES), "TYPE", "Type of weights."),
    OQ_ENUM("op_set", 0, "", "all", OQ_CHOICES(OQ_OP_SETS), "SET",
            "Which operators integers are for: all; linear: Conv, Gemm, MatMul and what moves or "
            "clips their values, so that arithmetic stays float; noout: the same, and outputs of "
            "MatMul and Gemm stay float; pays: the same without the products that integers make "
            "no faster."),
    OQ_INT("heaviest", 0, "", "0", "0..", "K",
           "Quantize only the K dense Conv, Gemm and MatMul with the most multiply-accumulates; "
           "with outputs as --op_set noout unless that is given. 0 means all."),
    OQ_PATH("unit_costs", 0, "", "FILE",
            "--op_set pays: times of the model's products on this machine, as onq bench --units "
            "--json prints them; default: rates of another machine."),
    OQ_LIST("op_types_to_exclude", 0, "", "TYPE", "Leave operators of these types as they are."),
    OQ_FLAG(
        "keep_excluded_float", 0, "",
        "Keep ONNX Runtime from quantizing the weights of excluded nodes between quantized "
        "ones when it loads the model (always done with --heaviest, --op_set and --node_methods)."),
    OQ_ENUM("masks", 0, "", "keep", OQ_CHOICES(OQ_MASKS_CHOICES), "HOW",
            "Tensors whose range an attention mask stretches: keep that range and warn, leave the "
            "nodes around float, or clamp the range to what a Softmax can tell apart."),
    OQ_FLAG("per_channel", 0, "", "Quantize weights per channel."),
    OQ_FLAG("reduce_range", 0, "", "Quantize weights with one bit less (7 of 8)."),
    OQ_FLAG("saturation_safe", 0, "",
            "For x86 CPUs without VNNI: raise the scales of int8 weights where two products would "
            "pass 16 bits, channel by channel (--reduce_range takes a bit from all)."),
    OQ_ENUM("preset", 0, "", "none", OQ_CHOICES(PRESETS), "NAME",
            "Configure as get_qdq_config (the whole model) or get_qnn_qdq_config (for QNN) of "
            "onnxruntime.quantization do."),
    OQ_FLAG_ON(
        "add_qtype_converts", 0, "",
        "With --preset qnn: convert tensors where overrides mix types and nodes need another one."),
    OQ_FLAG("activation_symmetric", 0, "", "Make the ranges of activations symmetric."),
    OQ_FLAG("activation_restricted_asymmetric", 0, "",
            "Use only the lowest or the middle value as zero point of uint8 activations."),
    OQ_FLAG("weight_symmetric", 0, "",
            "Make the ranges of weights symmetric (default: if the type is signed)."),
    OQ_FLAG("enable_subgraph", 0, "", "Quantize the bodies of If, Loop and Scan too."),
    OQ_FLAG_ON("keep_float16", 0, "",
               "QOperator: quantize float16 and bfloat16 nodes, with Cast around the integer "
               "operators, so that all tensors keep their types; false leaves such nodes alone."),
    OQ_FLAG("float8_operators", 0, "",
            "QOperator: write operators of float 8, which onnxruntime.quantization writes and ONNX "
            "Runtime does not load."),
    OQ_FLAG("force_quantize_no_input_check", 0, "",
            "Quantize operators that only move values even if their input is not quantized."),
    OQ_FLAG("matmul_const_b_only", 0, "", "Quantize MatMul only with a constant second input."),
    OQ_FLAG("add_qdq_pair_to_weight", 0, "",
            "Keep weights float and put a QuantizeLinear and DequantizeLinear pair after them."),
    OQ_FLAG("dedicated_qdq_pair", 0, "",
            "Give every node QuantizeLinear and DequantizeLinear pairs of its own."),
    OQ_LIST("op_types_to_exclude_output_quantization", 0, "", "TYPE",
            "Do not quantize the outputs of these operators."),
    OQ_LIST("op_per_channel_axis", 0, "", "OP AXIS",
            "Axis of the channels in weights of an operator type."),
    OQ_FLAG_ON("quantize_bias", 0, "", "Quantize biases to int32."),
    OQ_FLAG("disable_quantize_bias", 0, "", "Leave biases float."),
    OQ_FLAG("use_qdq_contrib_ops", 0, "",
            "Use QuantizeLinear and DequantizeLinear of com.microsoft."),
    OQ_REAL("minimum_real_range", 0, "", "0.0001", "", "X", "Make every range at least this wide."),
    OQ_FLAG("qdq_keep_removable_activations", 0, "",
            "Keep Relu and Clip where the quantized range could replace them."),
    OQ_FLAG("qdq_disable_weight_adjust_for_int32_bias", 0, "",
            "Do not raise the scale of a weight if it is too small for an int32 bias."),
    OQ_PATH("tensor_quant_overrides", 0, "", "FILE",
            "JSON file with overrides for single tensors."),
    OQ_INT("block_size", 0, "", "0", "0..", "N",
           "Quantize weights in blocks of N values (opset 21); 0 means no blocks."),
    OQ_ENUM("channel_ranges", 0, "", "none", "none|in|out|both", "WHERE",
            "Conv: give the channels of its input, of its output or of both ranges of their own, "
            "by constants in the float model around it."),
    OQ_FLAG("equalize", 0, "",
            "Divide the channels of the input of Conv, Gemm and MatMul by scales that make them "
            "alike, and multiply the weights with them, as far as that predicts less noise."),
    OQ_INT("outlier_channels", 0, "", "0", "0..65536", "N",
           "MatMul: multiply the N channels of the input with the widest range in float, beside "
           "the integer product of the others."),
    OQ_FLAG("double_activations", 0, "",
            "MatMul: quantize what the quantized input loses once more, and multiply both with "
            "the weight: as good as 16 bits, in two integer products."),
    OQ_PATH("node_methods", 0, "", "FILE",
            "JSON file with the method for single nodes, by name: float, plain, in, out, both "
            "(--channel_ranges), outliers, outliers:N (--outlier_channels) or double "
            "(--double_activations). Other nodes follow the general options."),
    OQ_FLAG("smooth_quant", 0, "", "Move outliers of activations into the weights first."),
    OQ_REAL("smooth_quant_alpha", 0, "", "0.5", "0..1", "X",
            "How much of the outliers SmoothQuant moves into the weights."),
    OQ_FLAG_ON("smooth_quant_folding", 0, "",
               "Fold what SmoothQuant inserts into the node before."),
    OQ_FLAG("bias_correction", 0, "",
            "Correct the biases of the quantized layers, one after the other, by the mean error of "
            "their outputs over the samples."),
    OQ_FLAG("learned_rounding", 0, "",
            "Round the weights of each layer such that its output, not each weight, is nearest to "
            "float's over the samples. For weights per tensor and of 4 bits."),
    OQ_FLAG("lift_constants", 0, "", "Turn Constant nodes into initializers first."),
    OQ_FLAG("optimize_model", 0, "", "Let ONNX Runtime optimise the model first."),
    OQ_PATH("from_plan", 0, "", "FILE",
            "Take every decision from a file that --plan wrote. The file may have been edited; no "
            "samples are needed."),
};
static const oq_opt_group quantize_group = OQ_GROUP("Quantization", quantize_rows);

static const onq_option_info calibrate_rows[] = {
    OQ_ENUM("calibration_method", 0, "method calibrate_method", "minmax", OQ_METHOD_CHOICES,
            "METHOD", "The method that finds the ranges."),
    OQ_PATH("calibration_cache", 0, "calibration_cache_path", "FILE",
            "File of ranges. If it exists, it is read and no model is run; if not, it is written."),
    OQ_FLAG("calib_tensor_range_symmetric", 0, "calib_symmetric",
            "minmax, percentile, mse: make ranges symmetric about zero. Off by default, as in "
            "static_quantize_runner. It is on in `onq calibrate --method percentile`, as in "
            "create_calibrator; --calib_symmetric false there gives the ranges of this command."),
    OQ_FLAG("calib_moving_average", 0, "",
            "minmax: use a moving average over the samples instead of the extremes."),
    OQ_REAL("calib_moving_average_constant", 0, "", "0.01", "", "X",
            "minmax: weight of a new sample in the moving average."),
    OQ_INT("calib_max_intermediate_outputs", 0, "", "", "1..", "N",
           "Accepted for compatibility; it changes nothing, since memory does not grow with the "
           "samples."),
    OQ_INT("calib_strided_minmax", 0, "", "", "1..", "N", "minmax: collect N samples at a time."),
    OQ_REAL("calib_percentile", 0, "", "99.999", "0..100", "X",
            "percentile: percentage of the values to keep."),
    OQ_INT("calib_num_bins", 0, "", "", "1..", "N", "Number of bins of the histograms."),
    OQ_INT("calib_num_quantized_bins", 0, "", "", "1..", "N",
           "entropy: number of bins after quantization; mse: values that the type of activations "
           "has."),
};
static const oq_opt_group calibrate_group = OQ_GROUP("Calibration", calibrate_rows);

/* Operators that static quantization chooses by default, in either format. */
#define MODES (OQ_QMODE_QDQ | OQ_QMODE_QLINEAR)

typedef struct run {
    oq_quant q;
    oq_cal_method method;
    bool from_cache;
    bool unsaved; /* the ranges were computed and are in no file */
    int format, preset;
    oq_selection selection;
    unsigned rewrite; /* sets of oq_rewrite_set */
    oq_extremes extremes;
    size_t inner_nodes; /* that would be quantized if inner graphs were */
} run;

/* ---- options against each other ---- */

static bool is_not_8bit(oq_dtype type) {
    return type != OQ_INT8 && type != OQ_UINT8;
}

/* Where overrides come from, for messages. */
static const char *overrides_name(const run *r) {
    const char *path = oq_opt_str(r->q.job->opts, "tensor_quant_overrides");
    return path != NULL ? oq_overrides_name(path) : "overrides of the preset";
}

/* A refusal of what an override asks for names the file that it is in. */
static onq_code blame_overrides(const run *r, onq_code rc, onq_error *err) {
    return rc == ONQ_E_CONFIG && r->q.overrides.all.n > 0 && r->q.config.given == NULL
               ? oq_error_in(err, rc, "%s", overrides_name(r))
               : rc;
}

/* --saturation_safe is about products of bytes, in pairs of QDQ format. */
static onq_code check_saturation(const run *r, onq_error *err) {
    const oq_qconfig *c = &r->q.config;
    if (!c->saturation_safe)
        return ONQ_OK;
    if (oq_opt_flag(r->q.job->opts, "learned_rounding"))
        return oq_fail(err, ONQ_E_OPTION,
                       "--learned_rounding finds other integers than those that --saturation_safe "
                       "has made safe (--reduce_range goes with it)");
    if (r->format == FORMAT_QOPERATOR)
        return oq_fail(err, ONQ_E_OPTION,
                       "--saturation_safe is for --quant_format qdq (--reduce_range is for both)");
    if (c->weight_type != OQ_INT8 || is_not_8bit(c->activation_type))
        oq_warn(r->q.job->env,
                "--saturation_safe has no effect on %s weights with %s activations: only products "
                "of 8-bit activations with QInt8 weights pass 16 bits",
                oq_qtype_name(c->weight_type), oq_qtype_name(c->activation_type));
    else if (!oq_qconfig_weight_symmetric(c, c->weight_type))
        return oq_fail(err, ONQ_E_OPTION,
                       "--saturation_safe needs symmetric weights (leave --weight_symmetric out)");
    return ONQ_OK;
}

static onq_code check_types(const run *r, onq_error *err) {
    const oq_qconfig *c = &r->q.config;
    OQ_TRY(check_saturation(r, err));
    const bool act8 = c->activation_type == OQ_FLOAT8E4M3FN;
    const bool weight8 = c->weight_type == OQ_FLOAT8E4M3FN;
    if (act8 != weight8)
        return oq_fail(err, ONQ_E_OPTION,
                       "float 8 is for both activations and weights, not for %s with %s",
                       oq_qtype_name(c->activation_type), oq_qtype_name(c->weight_type));
    if (act8 && r->method != OQ_CAL_DISTRIBUTION)
        return oq_fail(err, ONQ_E_OPTION,
                       "float 8 needs --calibration_method distribution, which finds deviations");
    if (act8 && c->reduce_range)
        return oq_fail(err, ONQ_E_OPTION, "--reduce_range cannot be used with float 8");
    if (act8 && c->block_size > 0)
        return oq_fail(err, ONQ_E_OPTION, "--block_size cannot be used with float 8");
    if (r->format != FORMAT_QOPERATOR)
        return ONQ_OK;
    const bool written = act8 && oq_opt_flag(r->q.job->opts, "float8_operators");
    if (written)
        oq_alert(r->q.job->env, "operators of float 8: ONNX Runtime does not load the result");
    else if (is_not_8bit(c->activation_type) || is_not_8bit(c->weight_type))
        return oq_fail(err, ONQ_E_OPTION,
                       "--quant_format qoperator takes 8-bit integers, not %s with %s (qdq takes "
                       "other types)",
                       oq_qtype_name(c->activation_type), oq_qtype_name(c->weight_type));
    if (c->activation_type == OQ_INT8 && c->weight_type == OQ_UINT8)
        return oq_fail(err, ONQ_E_OPTION,
                       "--quant_format qoperator: ONNX Runtime has no operators for QInt8 "
                       "activations with QUInt8 weights (qdq takes them)");
    for (size_t i = 0; i < r->q.overrides.all.n && !c->per_channel; i++)
        if (oq_override_is_channel(r->q.overrides.all.v[i]))
            return oq_fail(err, ONQ_E_CONFIG,
                           "%s: tensor '%.*s': overrides per channel need --per_channel in "
                           "--quant_format qoperator (qdq takes them as they are)",
                           overrides_name(r), OQ_STR(r->q.overrides.all.v[i]->name));
    if (c->block_size > 0)
        return oq_fail(err, ONQ_E_OPTION, "--block_size is for --quant_format qdq only");
    return ONQ_OK;
}

/* Options about pairs, which QOperator format does not have. */
static void warn_of_qdq_options(const run *r) {
    static const char *const names[] = {"add_qdq_pair_to_weight",
                                        "dedicated_qdq_pair",
                                        "op_types_to_exclude_output_quantization",
                                        "op_per_channel_axis",
                                        "disable_quantize_bias",
                                        "use_qdq_contrib_ops",
                                        "qdq_keep_removable_activations",
                                        "qdq_disable_weight_adjust_for_int32_bias"};
    for (size_t i = 0; i < OQ_COUNT(names) && r->format == FORMAT_QOPERATOR; i++)
        if (oq_opt_is_set(r->q.job->opts, names[i]))
            oq_warn(r->q.job->env, "--%s has no effect with --quant_format qoperator", names[i]);
}

static onq_code check_options(run *r, onq_error *err) {
    const onq_options *o = r->q.job->opts;
    r->format = OQ_CHOSEN(o, "quant_format", int, FORMATS);
    r->preset = OQ_CHOSEN(o, "preset", int, PRESETS);
    OQ_TRY(oq_rewriting_sets(r->q.job, &r->rewrite, err));
    if (r->preset != PRESET_NONE && r->format != FORMAT_QDQ)
        return oq_fail(err, ONQ_E_OPTION, "--preset is for --quant_format qdq");
    if (r->preset != PRESET_QNN && oq_opt_is_set(o, "add_qtype_converts"))
        oq_warn(r->q.job->env, "--add_qtype_converts has no effect without --preset qnn");
    OQ_TRY(oq_quant_config(r->q.job, &r->q.config, err));
    if (oq_opt_is_set(o, "disable_quantize_bias") && oq_opt_is_set(o, "quantize_bias") &&
        !oq_opt_get(o, "quantize_bias")->pinned && oq_opt_flag(o, "disable_quantize_bias") &&
        oq_opt_flag(o, "quantize_bias"))
        return oq_fail(err, ONQ_E_OPTION,
                       "--quantize_bias and --disable_quantize_bias cannot be used together");
    warn_of_qdq_options(r);
    OQ_TRY(oq_selection_check(&r->selection, &r->q, r->format == FORMAT_QDQ, err));
    r->q.config.early_pairs = (r->rewrite >> OQ_REWRITE_CONV1D & 1) != 0;
    return oq_quant_methods_check(&r->q, r->format == FORMAT_QDQ,
                                  r->selection.set == OQ_SET_ALL && r->selection.heaviest == 0 &&
                                      oq_pick_is_empty(&r->q.config.op_types),
                                  err);
}

/* ---- the cache ---- */

static const char *cache_path(const run *r) {
    const char *path = oq_opt_str(r->q.job->opts, "calibration_cache");
    return path != NULL && path[0] != '\0' ? path : NULL;
}

/* What the user should know of a cache that is used. */
static void tell_of_cache(const run *r) {
    const char *path = cache_path(r);
    const onq_options *o = r->q.job->opts;
    const bool symmetric = oq_ranges_are_symmetric(&r->q.ranges);
    const char *data = oq_opt_is_set(o, "data") ? oq_opt_str(o, "data") : NULL;
    oq_note(r->q.job->env, "%s: %zu ranges by %s are taken from it, and no sample is run%s%s", path,
            r->q.ranges.all.n, oq_cal_method_name(r->q.ranges.method),
            data != NULL ? "; --data is not used: " : "", data != NULL ? data : "");
    if ((r->method == OQ_CAL_PERCENTILE || r->method == OQ_CAL_MINMAX) && r->q.ranges.all.n > 0 &&
        symmetric != oq_opt_flag(o, "calib_tensor_range_symmetric"))
        oq_warn(r->q.job->env,
                "%s: its ranges %s symmetric, and --calib_tensor_range_symmetric is %s; they are "
                "taken as they are (onq calibrate --calib_symmetric %s makes the others)",
                path, symmetric ? "were made" : "are not", symmetric ? "not given" : "given",
                symmetric ? "false" : "true");
}

/* Ranges of the caller. */
static onq_code take_ranges(run *r, onq_error *err) {
    const onq_options *o = r->q.job->opts;
    const oq_ranges *given = oq_ranges_inside(o->ranges);
    if (oq_opt_is_set(o, "calibration_method") && given->method != r->method)
        return oq_fail(err, ONQ_E_CONFIG, "the ranges were made with %s, and %s is asked for",
                       oq_cal_method_name(given->method), oq_cal_method_name(r->method));
    r->method = given->method;
    if (!oq_ranges_clone(&r->q.ranges, &r->q.job->env->alloc, given))
        return oq_fail_nomem(err);
    r->q.has_ranges = true;
    return ONQ_OK;
}

/* Reads an existing cache, before anything else: a cache knows its method. */
static onq_code read_cache(run *r, onq_error *err) {
    struct stat st;
    const char *path = cache_path(r);
    r->method = (oq_cal_method)oq_opt_enum(r->q.job->opts, "calibration_method");
    if (r->q.job->opts->ranges != NULL)
        return take_ranges(r, err);
    if (path == NULL)
        return ONQ_OK;
    if (stat(path, &st) != 0) {
        return errno == ENOENT
                   ? ONQ_OK
                   : oq_fail_errno(err, ONQ_E_READ, errno, "calibration cache '%s'", path);
    }
    OQ_TRY(oq_ranges_load(&r->q.ranges, r->q.job->env, path, err));
    r->q.has_ranges = true;
    if (r->q.ranges.smooth_quant != r->q.config.smooth_quant) {
        oq_warn(r->q.job->env,
                "the cache '%s' was made with smooth_quant=%s, and this run has smooth_quant=%s: "
                "ranges are computed again, and the cache is replaced",
                path, r->q.ranges.smooth_quant ? "true" : "false",
                r->q.config.smooth_quant ? "true" : "false");
        oq_ranges_release(&r->q.ranges);
        r->q.has_ranges = false;
        return ONQ_OK;
    }
    if (!oq_opt_is_set(r->q.job->opts, "calibration_method"))
        r->method = r->q.ranges.method;
    if (r->q.ranges.method != r->method)
        return oq_fail(
            err, ONQ_E_CONFIG,
            "calibration cache '%s' was made with %s, and %s is asked for (delete it, or leave "
            "--calibration_method out)",
            path, oq_cal_method_name(r->q.ranges.method), oq_cal_method_name(r->method));
    r->from_cache = true;
    return ONQ_OK;
}

/* ---- the model ---- */

static onq_code load_overrides(run *r, onq_error *err) {
    const char *path = oq_opt_str(r->q.job->opts, "tensor_quant_overrides");
    return path == NULL || path[0] == '\0'
               ? ONQ_OK
               : oq_overrides_load(&r->q.overrides, &r->q.job->env->alloc, path, err);
}

/* Nodes that an override names to receive a converted tensor, and that the model does not have. */
static onq_code report_receivers(run *r, onq_error *err) {
    oq_pick nodes;
    onq_code rc = ONQ_OK;
    oq_pick_init(&nodes, &r->q.job->arena);
    for (size_t i = 0; i < r->q.overrides.all.n; i++) {
        const oq_override *c = r->q.overrides.all.v[i]->channels.v[0].convert;
        for (size_t k = 0; c != NULL && k < c->recv_nodes.n && rc == ONQ_OK; k++)
            rc = oq_pick_add(&nodes, c->recv_nodes.v[k], err);
    }
    if (rc == ONQ_OK)
        rc = oq_pick_report(&nodes, r->q.job->env, r->q.model->proto->graph, overrides_name(r),
                            r->q.config.strict, err);
    oq_pick_release(&nodes);
    return rc;
}

static onq_code check_overrides(run *r, onq_error *err) {
    oq_reach reach;
    if (r->q.overrides.all.n == 0)
        return ONQ_OK;
    OQ_TRY(oq_reach_init(&reach, &r->q.job->arena, r->q.model, r->q.shapes, &r->q.config, err));
    const oq_override_check check = {.reach = &reach,
                                     .activation_type = r->q.config.activation_type,
                                     .weight_type = r->q.config.weight_type};
    const onq_code rc = oq_overrides_check(&r->q.overrides, &check, err);
    return rc == ONQ_OK ? report_receivers(r, err) : oq_error_in(err, rc, "%s", overrides_name(r));
}

/* Lists of channels that name no axis get theirs. */
static onq_code find_axes(run *r, onq_error *err) {
    oq_reach reach;
    if (r->q.overrides.all.n == 0)
        return ONQ_OK;
    OQ_TRY(oq_reach_init(&reach, &r->q.job->arena, r->q.model, r->q.shapes, &r->q.config, err));
    oq_overrides_find_axes(&r->q.overrides, &reach);
    return ONQ_OK;
}

/* Where a preset has another default than the command line, and nothing was said. */
static onq_code apply_preset(run *r, onq_error *err) {
    const onq_options *o = r->q.job->opts;
    const oq_preset preset = {.model = r->q.model,
                              .shapes = r->q.shapes,
                              .config = &r->q.config,
                              .overrides = &r->q.overrides,
                              .add_converts = oq_opt_flag(o, "add_qtype_converts"),
                              .arena = &r->q.job->arena};
    if (r->preset == PRESET_QDQ) {
        if (!oq_opt_is_set(o, "minimum_real_range"))
            r->q.config.has_min_real_range = false;
        if (!oq_opt_is_set(o, "force_quantize_no_input_check"))
            r->q.config.force_quantize_no_input_check = true;
        return oq_preset_qdq(&preset, err);
    }
    if (!oq_opt_is_set(o, "weight_type"))
        r->q.config.weight_type = OQ_UINT8;
    return oq_preset_qnn(&preset, err);
}

static onq_code open_engine(run *r, onq_error *err) {
    return r->q.engine != NULL ? ONQ_OK : oq_job_engine(r->q.job, &r->q.engine, err);
}

/* The runtime's basic optimisations first, as older versions of the reference did by themselves. */
static onq_code optimize(run *r, onq_error *err) {
    oq_session_options session = {0};
    const char *near = oq_job_near(r->q.job);
    if (near == NULL)
        return oq_fail_nomem(err);
    OQ_TRY(open_engine(r, err));
    OQ_TRY(oq_job_session(r->q.job, &session, err));
    const onq_code rc = oq_prep_optimize_ort(r->q.engine, &session, near, 0, &r->q.model, err);
    return rc;
}

static onq_code smooth(run *r, onq_error *err) {
    oq_source *source = NULL;
    oq_smooth_job job = {.model = r->q.model,
                         .alpha = r->q.config.smooth_quant_alpha,
                         .folding = r->q.config.smooth_quant_folding};
    OQ_TRY(open_engine(r, err));
    job.engine = r->q.engine;
    OQ_TRY(oq_job_session(r->q.job, &job.session, err));
    OQ_TRY(oq_job_source(r->q.job, r->q.model, &source, err));
    job.source = source;
    onq_code rc = oq_smooth(&job, err);
    oq_source_close(source);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "SmoothQuant");
    oq_info(r->q.job->env, "SmoothQuant: %zu tensors, %zu of them folded into the node before",
            job.n_tensors, job.n_folded);
    /* What it put in stays float. */
    for (size_t i = 0; i < job.added.n; i++)
        OQ_TRY(oq_qconfig_add_float(&r->q.config, job.added.v[i], err));
    return ONQ_OK;
}

static onq_code rewrite(run *r, onq_error *err) {
    oq_rewrite_report report;
    OQ_TRY(oq_rewrite(r->q.model, r->rewrite, &report, err));
    oq_jw_begin_array(&r->q.job->json, "rewrites");
    oq_rewriting_tell(r->q.job, &report);
    oq_jw_end_array(&r->q.job->json);
    return ONQ_OK;
}

/* Opens the model and makes it what the quantizer will see. */
static onq_code prepare(run *r, onq_error *err) {
    oq_quant *q = &r->q;
    OQ_TRY(oq_quant_open(q, false, err));
    if (oq_opt_flag(q->job->opts, "optimize_model"))
        OQ_TRY(optimize(r, err));
    if (r->rewrite != 0 || q->config.smooth_quant)
        OQ_TRY(oq_quant_keep_truth(q, err));
    if (r->rewrite != 0)
        OQ_TRY(rewrite(r, err));
    if (q->config.smooth_quant)
        OQ_TRY(smooth(r, err));
    OQ_TRY(oq_quant_infer(q, err));
    OQ_TRY(oq_stamp_inferred(q->model, err));
    OQ_TRY(find_axes(r, err));
    if (r->preset != PRESET_NONE)
        OQ_TRY(blame_overrides(r, apply_preset(r, err), err));
    OQ_TRY(check_types(r, err));
    if (q->config.given != NULL)
        OQ_TRY(oq_given_bind_nodes(q->config.given, q->model, err));
    OQ_TRY(oq_quant_raise(q, r->format == FORMAT_QDQ ? OQ_QMODE_QDQ : OQ_QMODE_QLINEAR, err));
    if (q->config.given != NULL)
        OQ_TRY(oq_given_bind_nodes(q->config.given, q->model, err));
    return check_overrides(r, err);
}

/* ---- ranges ---- */

/* The operator types that are calibrated: what the configuration chooses among those of the
 * model. */
static onq_code calibrated_types(run *r, oq_cal_options *o, onq_error *err) {
    oq_strs types = {0};
    OQ_TRY(oq_reach_types(r->q.model, &r->q.config, MODES, &r->q.job->arena, &types, err));
    /* An empty list would mean all operators. */
    if (types.n == 0 && !OQ_PUSH(&r->q.job->arena, &types, OQ_S("(none)")))
        return oq_fail_nomem(err);
    o->op_types = types.v;
    o->n_op_types = types.n;
    o->inner = r->q.config.enable_subgraph;
    return ONQ_OK;
}

/* True if nothing but the ends of the ranges is asked for: a cache holds more, and float 8 takes its
 * scales from deviations. */
static bool needs_bounds_only(const run *r) {
    const bool float8 = r->q.config.activation_type == OQ_FLOAT8E4M3FN || r->q.overrides.all.n > 0;
    return cache_path(r) == NULL && !(r->method == OQ_CAL_DISTRIBUTION && float8);
}

static onq_code calibration_options(run *r, oq_cal_options *c, onq_error *err) {
    const onq_options *o = r->q.job->opts;
    oq_cal_defaults(c, r->method);
    c->symmetric = oq_opt_flag(o, "calib_tensor_range_symmetric");
    if (c->method == OQ_CAL_MSE) {
        c->symmetric = c->symmetric || oq_opt_flag(o, "activation_symmetric");
        c->num_quantized_bins = (uint64_t)1
                                << oq_dtype_find((int64_t)r->q.config.activation_type)->bits;
    }
    c->moving_average = oq_opt_flag(o, "calib_moving_average");
    c->averaging_constant = oq_opt_real(o, "calib_moving_average_constant");
    c->percentile = oq_opt_real(o, "calib_percentile");
    if (oq_opt_is_set(o, "calib_strided_minmax"))
        c->stride = (uint64_t)oq_opt_int(o, "calib_strided_minmax");
    if (oq_opt_is_set(o, "calib_num_bins"))
        c->num_bins = (uint64_t)oq_opt_int(o, "calib_num_bins");
    if (oq_opt_is_set(o, "calib_num_quantized_bins"))
        c->num_quantized_bins = (uint64_t)oq_opt_int(o, "calib_num_quantized_bins");
    c->bounds_only = needs_bounds_only(r);
    oq_job_resources(r->q.job, c);
    if (c->method == OQ_CAL_ENTROPY && c->num_bins <= c->num_quantized_bins)
        oq_warn(r->q.job->env,
                "entropy with %llu bins has one threshold to choose and equals minmax "
                "(--calib_num_bins 2048 gives it a choice)",
                (unsigned long long)c->num_bins);
    OQ_TRY(calibrated_types(r, c, err));
    return oq_cal_check(c, err);
}

static onq_code calibrate(run *r, onq_error *err) {
    oq_cal_options options;
    oq_source *source = NULL;
    const double begin = oq_seconds();
    OQ_TRY(calibration_options(r, &options, err));
    OQ_TRY(open_engine(r, err));
    oq_cal_job job = {
        .model = r->q.model, .shapes = r->q.shapes, .engine = r->q.engine, .options = &options};
    if (!oq_opt_flag(r->q.job->opts, "no_verify"))
        job.first = &r->q.record;
    OQ_TRY(oq_job_session(r->q.job, &job.session, err));
    OQ_TRY(oq_job_source(r->q.job, r->q.model, &source, err));
    job.source = source;
    if (oq_cal_reads_once(&options) && !oq_quant_refines(&r->q))
        oq_source_read_once(source);
    const onq_code rc = oq_calibrate(&job, &r->q.ranges, err);
    r->q.has_ranges = rc == ONQ_OK;
    oq_source_close(source);
    r->q.seconds_calibration = oq_seconds() - begin;
    return rc;
}

static onq_code get_ranges(run *r, onq_error *err) {
    bool any = false;
    if (r->q.config.given != NULL) { /* the plan has the parameters */
        if (r->q.has_ranges)
            oq_ranges_release(&r->q.ranges);
        oq_ranges_init(&r->q.ranges, &r->q.job->env->alloc, r->method);
        r->q.has_ranges = true;
        return ONQ_OK;
    }
    OQ_TRY(oq_reach_has_work(r->q.model, &r->q.config, r->q.shapes, MODES, &any, err));
    if (!any) {
        oq_info(r->q.job->env,
                "nothing to quantize: no operator %sthat is asked for has float tensors of known "
                "type",
                r->q.config.enable_subgraph ? "" : "of the main graph ");
        if (!r->q.has_ranges)
            oq_ranges_init(&r->q.ranges, &r->q.job->env->alloc, r->method);
        r->q.has_ranges = true;
        return ONQ_OK;
    }
    if (r->q.has_ranges)
        return ONQ_OK;
    OQ_TRY(calibrate(r, err));
    r->q.ranges.smooth_quant = r->q.config.smooth_quant;
    r->unsaved = true;
    if (cache_path(r) != NULL) {
        OQ_TRY(oq_ranges_save(&r->q.ranges, r->q.job->env, cache_path(r), err));
        r->unsaved = false;
    }
    return ONQ_OK;
}

/* ---- the result ---- */

static onq_code quantize(void *ctx, onq_error *err) {
    run *r = ctx;
    OQ_TRY(oq_quant_see_types(&r->q, err));
    oq_model_proto *truth = NULL;
    if (oq_quant_refines(&r->q)) {
        truth = oq_message_clone(&r->q.model->arena, OQ_SCHEMA_model_proto, r->q.model->proto);
        if (truth == NULL)
            return oq_fail_nomem(err);
    }
    const oq_qdq_job qdq = {.model = r->q.model,
                            .config = &r->q.config,
                            .overrides = &r->q.overrides,
                            .ranges = &r->q.ranges,
                            .shapes = r->q.shapes,
                            .plan = &r->q.plan,
                            .decide_only = oq_opt_flag(r->q.job->opts, "dry_run")};
    const oq_qo_job qoper = {.model = r->q.model,
                             .config = &r->q.config,
                             .overrides = &r->q.overrides,
                             .ranges = &r->q.ranges,
                             .shapes = r->q.shapes,
                             .plan = &r->q.plan};
    OQ_TRY(r->format == FORMAT_QDQ ? oq_qdq_run(&qdq, err) : oq_qo_run(&qoper, err));
    return truth != NULL ? oq_quant_refine(&r->q, truth, err) : ONQ_OK;
}

static onq_code find_extremes(void *ctx, oq_graph *g, oq_node *owner, onq_error *err) {
    run *r = ctx;
    (void)owner;
    const size_t from = r->extremes.all.n;
    OQ_TRY(oq_extremes_find(&r->extremes, g, &r->q.ranges, &r->q.config, &r->q.overrides, err));
    return oq_masks_settle(&r->extremes, from,
                           OQ_CHOSEN(r->q.job->opts, "masks", oq_masks, OQ_MASKS_CHOICES), g,
                           &r->q.ranges, &r->q.config, err);
}

static void warn_of_rest(run *r) {
    const onq_env *env = r->q.job->env;
    oq_selection_warn(&r->q);
    if (r->q.plan.n_unclipped > 0)
        oq_warn(env,
                "%zu Relu and Clip were removed, as onnxruntime.quantization does, but the ranges "
                "that the options made do not clip in their place: the model computes something "
                "else (--qdq_keep_removable_activations keeps them)",
                r->q.plan.n_unclipped);
    if (r->q.plan.n_tiny_biases > 0)
        oq_warn(env,
                "%zu float16 biases stay float ('%.*s' is the first): their scales are too small "
                "for float16, and ONNX Runtime, which quantizes them when it optimises, makes "
                "wrong values of them (8-bit types, a float32 model, or --nodes_to_exclude)",
                r->q.plan.n_tiny_biases, OQ_STR(r->q.plan.tiny_bias));
    if (r->q.plan.n_float_constants > 0)
        oq_warn(env,
                "%zu weights in Constant nodes stay float (--lift_constants or onq preprocess "
                "turns them into initializers)",
                r->q.plan.n_float_constants);
    if (!oq_opt_flag(r->q.job->opts, "optimize_model"))
        oq_quant_warn_unprepared(r->q.job, &r->q.input, r->q.plan.n_float_constants == 0);
    if (r->q.verified.skipped != NULL && r->format == FORMAT_QDQ &&
        (oq_qtype_is_4bit(r->q.config.activation_type) ||
         r->q.config.activation_type == OQ_FLOAT8E4M3FN))
        oq_warn(
            env,
            "%s activations: ONNX Runtime 1.31 loads many such models only with graph optimisation "
            "off, and this one was not tried",
            oq_qtype_name(r->q.config.activation_type));
    if (r->q.ranges.method == OQ_CAL_DISTRIBUTION && r->q.config.activation_type != OQ_FLOAT8E4M3FN)
        oq_warn(env,
                "--calibration_method distribution is for float 8; another method suits %s better",
                oq_qtype_name(r->q.config.activation_type));
    oq_quant_warn_types(&r->q);
    if (r->inner_nodes > 0)
        oq_warn(env,
                "%zu node%s inside If, Loop and Scan stay float (--enable_subgraph quantizes them)",
                r->inner_nodes, r->inner_nodes == 1 ? "" : "s");
    if (r->q.plan.n_not_run > 0)
        oq_warn(env,
                "%zu node%s inside If, Loop and Scan stay float because no sample ran them%s (give "
                "samples that take every branch)",
                r->q.plan.n_not_run, r->q.plan.n_not_run == 1 ? "" : "s",
                r->q.seconds_calibration > 0 ? "" : ", or the cache was made without them");
    if (r->q.plan.n_unknown_type > 0)
        oq_warn(
            env,
            "%zu tensors stay float because their type is not known (onq preprocess may find it)",
            r->q.plan.n_unknown_type);
}

static onq_code run_steps(run *r, onq_error *err) {
    OQ_TRY(check_options(r, err));
    OQ_TRY(read_cache(r, err));
    OQ_TRY(load_overrides(r, err));
    OQ_TRY(prepare(r, err));
    OQ_TRY(oq_selection_apply(&r->selection, &r->q, err));
    OQ_TRY(oq_quant_methods_apply(&r->q, err));
    OQ_TRY(oq_quant_report_names(r->q.job, &r->q.config, r->q.model->proto->graph, err));
    OQ_TRY(
        oq_reach_count_inner(r->q.model, &r->q.config, r->q.shapes, MODES, &r->inner_nodes, err));
    OQ_TRY(get_ranges(r, err));
    OQ_TRY(oq_reach_graphs(r->q.model, &r->q.config, find_extremes, r, err));
    OQ_TRY(blame_overrides(r, oq_quant_make(&r->q, err), err));
    OQ_TRY(oq_extremes_warn(&r->extremes, &r->q.plan, r->q.job->env, err));
    if (r->extremes.n_clamped + r->extremes.n_left > 0)
        oq_note(r->q.job->env,
                "--masks %s: %zu ranges that masks stretch were clamped, and nodes around %zu "
                "stay float",
                oq_opt_str(r->q.job->opts, "masks"), r->extremes.n_clamped, r->extremes.n_left);
    if (r->from_cache)
        tell_of_cache(r);
    warn_of_rest(r);
    r->q.external = r->preset != PRESET_NONE && r->q.has_external;
    return oq_quant_end(&r->q, err);
}

static onq_code run_with_options(oq_job *job, oq_given *given, onq_error *err) {
    run r = {0};
    oq_quant_init(&r.q, job, oq_opt_str(job->opts, "quant_format"), quantize, &r);
    r.q.modes = MODES;
    r.q.fixed_ranges = true;
    r.q.seconds_calibration = 0.0;
    r.q.config.given = given;
    r.extremes.arena = &job->arena;
    onq_code rc = run_steps(&r, err);
    if (r.unsaved)
        rc = oq_outputs_rescue(job->env, &r.q.ranges, rc, err);
    rc = oq_quant_blame(&r.q, rc, err);
    if (rc == ONQ_OK && r.q.has_ranges)
        rc = oq_job_give_ranges(job, &r.q.ranges, err);
    oq_quant_release(&r.q);
    return rc;
}

static onq_code run_static(oq_job *job, onq_error *err) {
    const onq_options *own = job->opts;
    onq_options *planned = NULL;
    oq_given *given = NULL;
    onq_code rc = oq_plan_file_read(job, &given, &planned, err);
    if (planned != NULL)
        job->opts = planned;
    if (rc == ONQ_OK)
        rc = run_with_options(job, given, err);
    job->opts = own;
    onq_options_free(planned);
    return rc;
}

const oq_command oq_command_static = {
    .info = {"static", "", "quantize a model with ranges from samples",
             "Static quantization: the model is run over samples to find the range of every "
             "tensor, then weights and activations are quantized. This is quantize_static and "
             "static_quantize_runner of onnxruntime.quantization."},
    .required = "input output|dry_run",
    .extra_keys = "DefaultTensorType extra.Sigmoid.nnapi",
    .decides = &quantize_group,
    .groups = {&oq_group_input, &oq_group_output, &quantize_group, &oq_group_rewrite,
               &oq_group_plan, &oq_group_select, &calibrate_group, &oq_group_data,
               &oq_group_resources, &oq_group_runtime, &oq_group_extra, &oq_group_verify,
               &oq_group_general},
    .run = run_static,
};
