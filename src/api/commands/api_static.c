/*
 * api_static.c — `onq static`: calibrate, then quantize (the reference's quantize_static).
 *
 * The steps, in the reference's order: open and infer types, raise the opset where the types need
 * it, check the overrides, ranges from the cache or from a calibration, quantize, check, write.
 * Nothing is written unless all of it worked. static_job.h says which file takes which step.
 */
#include "api/commands/static_job.h"
#include "api/interface/ranges_handle.h"
#include "api/options/shared_rows.h"
#include "api/outputs.h"
#include "api/quantizing/quant_config.h"
#include "api/quantizing/quant_methods.h"
#include "api/quantizing/quant_refine.h"
#include "api/quantizing/selection_options.h"
#include "onnx/codec/schema.h"
#include "quantize/choose/masks.h"
#include "quantize/choose/reach.h"
#include "quantize/ort/pointwise.h"
#include "quantize/qdq/qdq.h"
#include "quantize/qoperator/qoperator.h"
#include "quantize/rules.h"

static const onq_option_info quantize_rows[] = {
    OQ_ROW_QUANT_FORMAT(
        "qdq", OQ_CHOICES(OQ_FORMATS),
        "Format of the result: QuantizeLinear and DequantizeLinear around float operators (qdq), "
        "or quantized operators (qoperator)."),
    OQ_ROW_ACTIVATION_TYPE(OQ_CHOICES(OQ_TYPE_CHOICES), "."),
    OQ_ROW_WEIGHT_TYPE("qint8", OQ_CHOICES(OQ_TYPE_CHOICES), "."),
    OQ_ENUM("op_set", 0, "", "all", OQ_CHOICES(OQ_OP_SETS), "SET",
            "Which operators to quantize. all: every supported operator. linear: Conv, Gemm, "
            "MatMul and nodes that move or clip their values; arithmetic stays float. noout: as "
            "linear, but outputs of MatMul and Gemm stay float. pays: as noout, but only products "
            "that int8 speeds up."),
    OQ_INT("heaviest", 0, "", "0", "0..", "K",
           "Quantize only the K dense Conv, Gemm and MatMul with the most multiply-accumulates. "
           "Outputs stay float as with --op_set noout, unless --op_set is given. 0 means all."),
    OQ_PATH("unit_costs", 0, "", "FILE",
            "With --op_set pays: times of the model's products on this machine, as printed by onq "
            "bench --units --json. By default rates of another machine are used."),
    OQ_LIST("op_types_to_exclude", 0, "", "TYPE", "Leave operators of these types float."),
    OQ_FLAG(
        "keep_excluded_float", 0, "",
        "Keep ONNX Runtime from quantizing the weights of excluded nodes between quantized ones "
        "when it loads the model (always on with --heaviest, --op_set and --node_methods)."),
    OQ_ENUM("masks", 0, "", "keep", OQ_CHOICES(OQ_MASKS_CHOICES), "HOW",
            "What to do with tensors whose range is stretched by an attention mask: keep the "
            "range and warn, leave the nodes around it float, or clamp the range to values that a "
            "Softmax can tell apart."),
    OQ_ROW_PER_CHANNEL("false", ""),
    OQ_ROW_REDUCE_RANGE(""),
    OQ_FLAG("saturation_safe", 0, "",
            "For x86 CPUs without VNNI: raise the scales of int8 weights, channel by channel, "
            "where the sum of two products could exceed 16 bits (--reduce_range takes a bit from "
            "all weights)."),
    OQ_ENUM("preset", 0, "", "none", OQ_CHOICES(OQ_PRESETS), "NAME",
            "Use the configuration of get_qdq_config (qdq: the whole model) or get_qnn_qdq_config "
            "(qnn) of onnxruntime.quantization."),
    OQ_FLAG_ON("add_qtype_converts", 0, "",
               "With --preset qnn: convert tensors between types where overrides mix them."),
    OQ_ROW_ACTIVATION_SYMMETRIC("activations"),
    OQ_FLAG("activation_restricted_asymmetric", 0, "",
            "Use only the lowest or the middle value as the zero point of uint8 activations."),
    OQ_ROW_WEIGHT_SYMMETRIC,
    OQ_ROW_ENABLE_SUBGRAPH,
    OQ_ROW_KEEP_FLOAT16,
    OQ_FLAG("float8_operators", 0, "",
            "qoperator: write float 8 operators as onnxruntime.quantization does, although ONNX "
            "Runtime does not load them."),
    OQ_ROW_FORCE_QUANTIZE,
    OQ_ROW_MATMUL_CONST_B_ONLY("false"),
    OQ_FLAG("add_qdq_pair_to_weight", 0, "",
            "Keep weights float and put a QuantizeLinear and DequantizeLinear pair after them."),
    OQ_FLAG("dedicated_qdq_pair", 0, "",
            "Give every node its own QuantizeLinear and DequantizeLinear pairs."),
    OQ_LIST("op_types_to_exclude_output_quantization", 0, "", "TYPE",
            "Do not quantize the outputs of these operators."),
    OQ_LIST("op_per_channel_axis", 0, "", "OP AXIS",
            "Axis of the channels in the weights of an operator type."),
    OQ_FLAG_ON("quantize_bias", 0, "", "Quantize biases to int32."),
    OQ_FLAG("disable_quantize_bias", 0, "", "Leave biases float."),
    OQ_FLAG("use_qdq_contrib_ops", 0, "",
            "Use the QuantizeLinear and DequantizeLinear operators of com.microsoft."),
    OQ_FLAG("as_reference", 0, "",
            "Refuse a model that onnxruntime.quantization cannot quantize, although onq can: "
            "histogram methods if all nodes are inside If, Loop and Scan, and Where in QOperator "
            "format after a quantized node."),
    OQ_FLAG("keep_opset", 0, "",
            "Do not raise the opset for 16-bit types, as the class QDQQuantizer of "
            "onnxruntime.quantization; below opset 21 the pairs are those of com.microsoft."),
    OQ_REAL("minimum_real_range", 0, "", "0.0001", "", "X", "Make every range at least this wide."),
    OQ_FLAG("qdq_keep_removable_activations", 0, "",
            "Keep Relu and Clip nodes that the quantized range makes redundant."),
    OQ_FLAG("qdq_disable_weight_adjust_for_int32_bias", 0, "",
            "Do not raise the scale of a weight that is too small for an int32 bias."),
    OQ_PATH("tensor_quant_overrides", 0, "", "FILE",
            "JSON file with overrides for single tensors."),
    OQ_PATH("encodings", 0, "", "FILE",
            "Take scales and zero points from a file of another tool: encodings of AIMET (0.6.1, "
            "1.0.0, 2.0.0), a calibration cache of TensorRT, or what `onq convert --encodings` "
            "wrote. Tensors that are not in it are calibrated."),
    /* Own sense: blocks of DequantizeLinear, of any size. */
    OQ_INT("block_size", 0, "", "0", "0..", "N",
           "Quantize weights in blocks of N values (opset 21); 0 means no blocks."),
    OQ_ENUM("channel_ranges", 0, "", "none", OQ_CHOICES(OQ_CHANNEL_RANGES), "WHERE",
            "Conv: give each channel of its input, its output or both a range of its own, by "
            "means of constants in the float model around it."),
    OQ_FLAG("equalize", 0, "",
            "Divide the input channels of Conv, Gemm and MatMul by scales that make them alike, "
            "and multiply the weights by the same scales, where this promises less noise."),
    OQ_INT("outlier_channels", 0, "", "0", "0..65536", "N",
           "MatMul: multiply the N input channels with the widest ranges in float, next to the "
           "integer product of the others."),
    OQ_FLAG("double_activations", 0, "",
            "MatMul: quantize the rounding error of the input as well and multiply both parts "
            "with the weight. Two integer products are then as accurate as 16-bit activations."),
    OQ_FLAG("pointwise_matmul", 0, "",
            "Write each Conv with a kernel of one element whose result nodes that stay float read "
            "as MatMul: the runtime then multiplies integers into floats there and need not round "
            "the result to 8 bits. Use it with --op_set linear, noout or pays."),
    OQ_PATH("node_methods", 0, "", "FILE",
            "JSON file that gives single nodes a method by name: float, plain, in, out, both "
            "(--channel_ranges), outliers, outliers:N (--outlier_channels) or double "
            "(--double_activations). Other nodes follow the general options."),
    OQ_FLAG("smooth_quant", 0, "", "Move outliers of activations into the weights first."),
    OQ_REAL("smooth_quant_alpha", 0, "", "0.5", "0..1", "X",
            "How much of the outliers SmoothQuant moves, from 0 to 1."),
    OQ_FLAG_ON("smooth_quant_folding", 0, "",
               "Fold the nodes that SmoothQuant inserts into the node before them."),
    OQ_FLAG("bias_correction", 0, "",
            "Correct the bias of each quantized layer by the mean error of its output over the "
            "samples, one layer after another."),
    OQ_FLAG("learned_rounding", 0, "",
            "Round the weights of each layer so that its output over the samples, not each "
            "weight, is nearest to float. Useful for weights per tensor and 4-bit weights."),
    OQ_ROW_LIFT_CONSTANTS,
    OQ_ROW_SORT_NODES,
    OQ_ROW_DROP_SHAPES,
    OQ_FLAG("optimize_model", 0, "", "Let ONNX Runtime optimise the model first."),
};
static const oq_opt_group quantize_group = OQ_GROUP("Quantization", quantize_rows);

static const onq_option_info calibrate_rows[] = {
    OQ_ROWS_CALIBRATION,
    OQ_PATH("calibration_cache", 0, "calibration_cache_path", "FILE",
            "File of ranges. If it exists, it is read and the model is not calibrated; otherwise "
            "it is written."),
};
static const oq_opt_group calibrate_group = OQ_GROUP("Calibration", calibrate_rows);

static onq_code write_products(oq_static *s, onq_error *err) {
    size_t n = 0;
    OQ_TRY(oq_pointwise_apply(s->q.model, &s->q.run.pointwise, &n, err));
    if (n > 0)
        oq_info(s->q.job->env, "%zu Conv were written as MatMul, for their results stay float", n);
    else if (oq_opt_flag(s->q.job->opts, "pointwise_matmul"))
        oq_warn(s->q.job->env,
                "--pointwise_matmul changed nothing: no node that stays float reads the result of "
                "a quantized Conv with a kernel of one element (--op_set linear, noout and pays "
                "leave arithmetic float)");
    return ONQ_OK;
}

static onq_code quantize(void *ctx, onq_error *err) {
    oq_static *s = ctx;
    OQ_TRY(oq_quant_see_types(&s->q, err));
    oq_model_proto *flt = NULL;
    if (oq_quant_refines(&s->q)) {
        flt = oq_message_clone(&s->q.model->arena, OQ_SCHEMA_model_proto, s->q.model->proto);
        OQ_TRY_ALLOC(flt != NULL, err);
    }
    const oq_qdq_job qdq = {.model = s->q.model,
                            .run = &s->q.run,
                            .overrides = &s->q.overrides,
                            .ranges = &s->q.ranges,
                            .shapes = s->q.shapes,
                            .plan = &s->q.plan,
                            .decide_only = oq_opt_flag(s->q.job->opts, "dry_run")};
    const oq_qo_job qoper = {.model = s->q.model,
                             .run = &s->q.run,
                             .overrides = &s->q.overrides,
                             .ranges = &s->q.ranges,
                             .shapes = s->q.shapes,
                             .plan = &s->q.plan,
                             .decide_only = qdq.decide_only};
    OQ_TRY(s->format == OQ_FORMAT_QDQ ? oq_qdq_run(&qdq, err) : oq_qo_run(&qoper, err));
    if (flt != NULL)
        OQ_TRY(oq_quant_refine(&s->q, flt, err));
    return qdq.decide_only ? ONQ_OK : write_products(s, err);
}

static onq_code find_extremes(void *ctx, oq_graph *g, onq_error *err) {
    oq_static *s = ctx;
    const size_t from = s->extremes.all.n;
    OQ_TRY(oq_extremes_find(&s->extremes, g, &s->q.ranges, &s->q.config, &s->q.overrides, err));
    return oq_masks_settle(&s->extremes, from,
                           OQ_CHOSEN(s->q.job->opts, "masks", oq_masks, OQ_MASKS_CHOICES), g,
                           &s->q.ranges, &s->q.run, err);
}

static onq_code run_steps(oq_static *s, onq_error *err) {
    OQ_TRY(oq_static_check_options(s, err));
    OQ_TRY(oq_static_read_ranges(s, err));
    OQ_TRY(oq_static_load_overrides(s, err));
    OQ_TRY(oq_static_prepare(s, err));
    OQ_TRY(oq_selection_apply(&s->selection, &s->q, err));
    OQ_TRY(oq_quant_methods_apply(&s->q, err));
    OQ_TRY(oq_quant_report_names(s->q.job, &s->q.config, s->q.model->proto->graph, err));
    OQ_TRY(
        oq_reach_count_inner(s->q.model, &s->q.run, s->q.shapes, s->q.modes, &s->inner_nodes, err));
    OQ_TRY(oq_static_make_ranges(s, err));
    OQ_TRY(oq_reach_graphs(s->q.model, &s->q.config, find_extremes, s, err));
    OQ_TRY(oq_static_blame_overrides(s, oq_quant_make(&s->q, err), err));
    OQ_TRY(oq_extremes_warn(&s->extremes, &s->q.plan, s->q.job->env, err));
    oq_static_warn(s);
    s->q.external = s->preset != OQ_PRESET_NONE && s->q.has_external;
    return oq_quant_end(&s->q, err);
}

static onq_code run_static(oq_job *job, onq_error *err) {
    oq_static s = {0};
    oq_quant_init(&s.q, job, oq_opt_str(job->opts, "quant_format"), quantize, &s);
    s.q.modes = OQ_QMODE_QDQ | OQ_QMODE_QLINEAR;
    s.q.fixed_ranges = true;
    s.q.seconds_calibration = 0;
    s.extremes.arena = &job->arena;
    onq_code rc = run_steps(&s, err);
    if (s.unsaved)
        rc = oq_outputs_rescue(job->env, &s.q.ranges, rc, err);
    rc = oq_quant_blame(&s.q, rc, err);
    if (rc == ONQ_OK && s.q.has_ranges)
        rc = oq_job_give_ranges(job, &s.q.ranges, err);
    oq_quant_release(&s.q);
    return rc;
}

const oq_command oq_command_static = {
    .info = {"static", "", "quantize a model with ranges from samples",
             "Static quantization: runs the model over samples to find the range of every tensor, "
             "then quantizes weights and activations. This is quantize_static and "
             "static_quantize_runner of onnxruntime.quantization."},
    .required = "input output|dry_run",
    .extra_keys = "DefaultTensorType extra.Sigmoid.nnapi",
    .decides = {&quantize_group},
    .groups = {&oq_group_input, &oq_group_output, &quantize_group, &oq_group_rewrite,
               &oq_group_plan, &oq_group_select, &calibrate_group, &oq_group_data,
               &oq_group_resources, &oq_group_runtime, &oq_group_extra, &oq_group_verify,
               &oq_group_general},
    .run = run_static,
};
