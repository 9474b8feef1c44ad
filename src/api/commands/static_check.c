/*
 * static_check.c — the options of `onq static` against each other: which formats, types and presets
 * go together.
 */
#include "api/commands/static_job.h"

#include "api/quantizing/quant_config.h"
#include "api/quantizing/quant_methods.h"
#include "api/quantizing/rewriting.h"
#include "api/quantizing/selection_options.h"

static bool is_not_8bit(oq_dtype type) {
    return type != OQ_INT8 && type != OQ_UINT8;
}

/* --saturation_safe is about products of bytes, in pairs of QDQ format. */
static onq_code check_saturation(const oq_static *s, onq_error *err) {
    const oq_qconfig *c = &s->q.config;
    if (!c->saturation_safe)
        return ONQ_OK;
    if (oq_opt_flag(s->q.job->opts, "learned_rounding"))
        return oq_fail(err, ONQ_E_OPTION,
                       "--learned_rounding finds other integers than those that --saturation_safe "
                       "has made safe (--reduce_range goes with it)");
    if (s->format == OQ_FORMAT_QOPERATOR)
        return oq_fail(err, ONQ_E_OPTION,
                       "--saturation_safe is for --quant_format qdq (--reduce_range is for both)");
    if (c->weight_type != OQ_INT8 || is_not_8bit(c->activation_type))
        oq_warn(s->q.job->env,
                "--saturation_safe has no effect on %s weights with %s activations: only products "
                "of 8-bit activations with QInt8 weights pass 16 bits",
                oq_qtype_name(c->weight_type), oq_qtype_name(c->activation_type));
    else if (!oq_qconfig_weight_symmetric(c, c->weight_type))
        return oq_fail(err, ONQ_E_OPTION,
                       "--saturation_safe needs symmetric weights (leave --weight_symmetric out)");
    return ONQ_OK;
}

onq_code oq_static_check_types(const oq_static *s, onq_error *err) {
    assert(s->q.model != NULL);
    const oq_qconfig *c = &s->q.config;
    OQ_TRY(check_saturation(s, err));
    const bool act8 = c->activation_type == OQ_FLOAT8E4M3FN;
    const bool weight8 = c->weight_type == OQ_FLOAT8E4M3FN;
    if (act8 != weight8)
        return oq_fail(err, ONQ_E_OPTION,
                       "float 8 is for both activations and weights, not for %s with %s",
                       oq_qtype_name(c->activation_type), oq_qtype_name(c->weight_type));
    if (act8 && s->method != OQ_CAL_DISTRIBUTION)
        return oq_fail(err, ONQ_E_OPTION,
                       "float 8 needs --calibration_method distribution, which finds deviations");
    if (act8 && c->reduce_range)
        return oq_fail(err, ONQ_E_OPTION, "--reduce_range cannot be used with float 8");
    if (act8 && c->block_size > 0)
        return oq_fail(err, ONQ_E_OPTION, "--block_size cannot be used with float 8");
    if (s->format != OQ_FORMAT_QOPERATOR)
        return ONQ_OK;
    const bool written = act8 && oq_opt_flag(s->q.job->opts, "float8_operators");
    if (written)
        oq_alert(s->q.job->env, "operators of float 8: ONNX Runtime does not load the result");
    else if (is_not_8bit(c->activation_type) || is_not_8bit(c->weight_type))
        return oq_fail(err, ONQ_E_OPTION,
                       "--quant_format qoperator takes 8-bit integers, not %s with %s (qdq takes "
                       "other types)",
                       oq_qtype_name(c->activation_type), oq_qtype_name(c->weight_type));
    if (c->activation_type == OQ_INT8 && c->weight_type == OQ_UINT8)
        return oq_fail(err, ONQ_E_OPTION,
                       "--quant_format qoperator: ONNX Runtime has no operators for QInt8 "
                       "activations with QUInt8 weights (qdq takes them)");
    for (size_t i = 0; i < s->q.overrides.all.n && !c->per_channel; i++)
        if (oq_override_is_channel(s->q.overrides.all.v[i]))
            return oq_fail(err, ONQ_E_CONFIG,
                           "%s: tensor '%.*s': overrides per channel need --per_channel in "
                           "--quant_format qoperator (qdq takes them as they are)",
                           oq_static_overrides_name(s), OQ_STR(s->q.overrides.all.v[i]->name));
    if (c->block_size > 0)
        return oq_fail(err, ONQ_E_OPTION, "--block_size is for --quant_format qdq only");
    return ONQ_OK;
}

/* Options about pairs, which QOperator format does not have. */
static void warn_of_qdq_options(const oq_static *s) {
    static const char *const names[] = {"add_qdq_pair_to_weight",
                                        "dedicated_qdq_pair",
                                        "op_types_to_exclude_output_quantization",
                                        "op_per_channel_axis",
                                        "disable_quantize_bias",
                                        "use_qdq_contrib_ops",
                                        "qdq_keep_removable_activations",
                                        "qdq_disable_weight_adjust_for_int32_bias"};
    for (size_t i = 0; i < OQ_COUNT(names) && s->format == OQ_FORMAT_QOPERATOR; i++)
        if (oq_opt_is_set(s->q.job->opts, names[i]))
            oq_warn(s->q.job->env, "--%s has no effect with --quant_format qoperator", names[i]);
}

onq_code oq_static_check_options(oq_static *s, onq_error *err) {
    assert(s->q.model == NULL);
    const onq_options *o = s->q.job->opts;
    s->format = OQ_CHOSEN(o, "quant_format", int, OQ_FORMATS);
    s->preset = OQ_CHOSEN(o, "preset", int, OQ_PRESETS);
    OQ_TRY(oq_rewriting_sets(s->q.job, &s->rewrite, err));
    if (s->preset != OQ_PRESET_NONE && s->format != OQ_FORMAT_QDQ)
        return oq_fail(err, ONQ_E_OPTION, "--preset is for --quant_format qdq");
    if (s->preset != OQ_PRESET_QNN && oq_opt_is_set(o, "add_qtype_converts"))
        oq_warn(s->q.job->env, "--add_qtype_converts has no effect without --preset qnn");
    OQ_TRY(oq_quant_config(s->q.job, &s->q.config, err));
    if (oq_opt_is_set(o, "disable_quantize_bias") && oq_opt_is_set(o, "quantize_bias") &&
        !oq_opt_get(o, "quantize_bias")->pinned && oq_opt_flag(o, "disable_quantize_bias") &&
        oq_opt_flag(o, "quantize_bias"))
        return oq_fail(err, ONQ_E_OPTION,
                       "--quantize_bias and --disable_quantize_bias cannot be used together");
    warn_of_qdq_options(s);
    OQ_TRY(oq_selection_check(&s->selection, &s->q, s->format == OQ_FORMAT_QDQ, err));
    s->q.config.early_pairs = (s->rewrite >> OQ_REWRITE_CONV1D & 1) != 0;
    return oq_quant_methods_check(&s->q, s->format == OQ_FORMAT_QDQ,
                                  s->selection.set == OQ_SET_ALL && s->selection.heaviest == 0 &&
                                      oq_pick_is_empty(&s->q.config.op_types),
                                  err);
}
