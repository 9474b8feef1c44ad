/*
 * quant_config.c — from a command's options to the quantizers' configuration.
 */
#include "api/quantizing/quant_config.h"

#include "api/options/choices.h"
#include "api/quantizing/for_runtime.h"

/* oq_dtype of an option whose choices are OQ_TYPE_CHOICES, or the first of them. */
static oq_dtype qtype_of(const onq_options *o, const char *name) {
    return OQ_CHOSEN(o, name, oq_dtype, OQ_TYPE_CHOICES);
}

static void take_flag(const onq_options *o, const char *name, bool *out) {
    if (oq_opt_has(o, name))
        *out = oq_opt_flag(o, name);
}

static void take_tri(const onq_options *o, const char *name, oq_tri *out) {
    if (oq_opt_has(o, name) && oq_opt_is_set(o, name) && !oq_opt_is_none(o, name))
        *out = oq_opt_flag(o, name) ? OQ_YES : OQ_NO;
}

onq_code oq_opt_picks(const onq_options *o, const char *name, oq_pick *out, onq_error *err) {
    size_t n = 0;
    if (!oq_opt_has(o, name))
        return ONQ_OK;
    const oq_str *v = oq_opt_list(o, name, &n);
    for (size_t i = 0; i < n; i++)
        OQ_TRY_IN(oq_pick_add(out, v[i], err), err, "--%s", name);
    return ONQ_OK;
}

static onq_code take_op_types(const onq_options *o, oq_qconfig *c, onq_error *err) {
    size_t n = 0;
    if (!oq_opt_has(o, "op_types_to_quantize"))
        return ONQ_OK;
    const oq_str *v = oq_opt_list(o, "op_types_to_quantize", &n);
    for (size_t i = 0; i < n; i++)
        if (oq_opt_same(v[i], OQ_S("all")))
            c->op_types_all = true;
    return c->op_types_all ? ONQ_OK : oq_opt_picks(o, "op_types_to_quantize", &c->op_types, err);
}

static onq_code take_axes(const onq_options *o, oq_qconfig *c, onq_error *err) {
    oq_opt_axis *axes;
    size_t n;
    if (!oq_opt_has(o, "op_per_channel_axis"))
        return ONQ_OK;
    OQ_TRY(oq_opt_axes(o, "op_per_channel_axis", c->arena, &axes, &n, err));
    for (size_t i = 0; i < n; i++) {
        const oq_qaxis axis = {axes[i].key, axes[i].value};
        OQ_TRY_ALLOC(OQ_PUSH(c->arena, &c->op_axis, axis), err);
    }
    return ONQ_OK;
}

/* A number of onnx.TensorProto, or a name: 1, FLOAT, float16, onnx.TensorProto.FLOAT. */
static onq_code take_tensor_type(const onq_options *o, oq_qconfig *c, onq_error *err) {
    const oq_opt_value *v = oq_extra_find(o, "DefaultTensorType");
    int64_t n = 0;
    if (v == NULL || !v->is_set)
        return ONQ_OK;
    if (oq_opt_same(v->text, OQ_S("none"))) {
        c->default_tensor_type = -1;
        return ONQ_OK;
    }
    const char *dot = strstr(v->text.p, "TensorProto.");
    const oq_str name = dot != NULL ? oq_str_of(dot + strlen("TensorProto.")) : v->text;
    if (!oq_str_to_i64(name, &n)) {
        for (int64_t i = 1; i < OQ_DTYPE_COUNT && n == 0; i++)
            if (oq_dtype_find(i) != NULL && oq_opt_same(name, oq_str_of(oq_dtype_find(i)->name)))
                n = i;
    }
    if (oq_dtype_find(n) == NULL)
        return oq_fail(err, ONQ_E_OPTION,
                       "--extra DefaultTensorType: '%.*s' is not an element type", OQ_STR(v->text));
    c->default_tensor_type = (int32_t)n;
    return ONQ_OK;
}

static void take_numbers(const onq_options *o, oq_qconfig *c) {
    if (oq_opt_has(o, "activation_type"))
        c->activation_type = qtype_of(o, "activation_type");
    if (oq_opt_has(o, "weight_type"))
        c->weight_type = qtype_of(o, "weight_type");
    if (oq_opt_has(o, "minimum_real_range")) {
        c->has_min_real_range = !oq_opt_is_none(o, "minimum_real_range");
        c->min_real_range = c->has_min_real_range ? oq_opt_real(o, "minimum_real_range") : 0.0;
    }
    if (oq_opt_has(o, "block_size") && !oq_opt_is_none(o, "block_size"))
        c->block_size = (uint64_t)oq_opt_int(o, "block_size");
    if (oq_opt_has(o, "smooth_quant_alpha") && !oq_opt_is_none(o, "smooth_quant_alpha"))
        c->smooth_quant_alpha = oq_opt_real(o, "smooth_quant_alpha");
}

static void take_flags(const onq_options *o, oq_qconfig *c) {
    take_flag(o, "per_channel", &c->per_channel);
    take_flag(o, "reduce_range", &c->reduce_range);
    take_flag(o, "strict", &c->strict);
    take_flag(o, "activation_symmetric", &c->activation_symmetric);
    take_flag(o, "activation_restricted_asymmetric", &c->activation_restricted_asymmetric);
    take_flag(o, "enable_subgraph", &c->enable_subgraph);
    take_flag(o, "keep_float16", &c->keep_float16);
    take_flag(o, "force_quantize_no_input_check", &c->force_quantize_no_input_check);
    take_flag(o, "add_qdq_pair_to_weight", &c->add_qdq_pair_to_weight);
    take_flag(o, "dedicated_qdq_pair", &c->dedicated_qdq_pair);
    take_flag(o, "use_qdq_contrib_ops", &c->use_qdq_contrib_ops);
    take_flag(o, "qdq_keep_removable_activations", &c->keep_removable_activations);
    take_flag(o, "qdq_disable_weight_adjust_for_int32_bias", &c->disable_weight_adjust);
    take_flag(o, "saturation_safe", &c->saturation_safe);
    take_flag(o, "sort_nodes", &c->sort_nodes);
    take_flag(o, "keep_opset", &c->keep_opset);
    take_flag(o, "as_reference", &c->as_reference);
    take_flag(o, "keep_excluded_float", &c->keep_excluded_float);
    take_flag(o, "smooth_quant", &c->smooth_quant);
    take_flag(o, "smooth_quant_folding", &c->smooth_quant_folding);
    take_tri(o, "weight_symmetric", &c->weight_symmetric);
    take_tri(o, "matmul_const_b_only", &c->matmul_const_b_only);
    if (oq_opt_has(o, "quantize_bias"))
        c->quantize_bias =
            oq_opt_flag(o, "quantize_bias") && !oq_opt_flag(o, "disable_quantize_bias");
    c->sigmoid_nnapi = oq_extra_flag(o, "extra.Sigmoid.nnapi", false);
}

/* The operators of --op_per_channel_axis as a list of their own. */
static onq_code report_axes(const oq_job *job, oq_qconfig *c, oq_graph *g, onq_error *err) {
    oq_pick types;
    onq_code rc = ONQ_OK;
    oq_pick_init(&types, c->arena);
    for (size_t i = 0; i < c->op_axis.n && rc == ONQ_OK; i++)
        rc = oq_pick_add(&types, c->op_axis.v[i].op_type, err);
    if (rc == ONQ_OK)
        rc = oq_pick_report_types(&types, job->env, g, "--op_per_channel_axis", c->strict, err);
    return rc;
}

static onq_code take_methods(const oq_job *job, oq_qconfig *c, onq_error *err) {
    const char *path =
        oq_opt_has(job->opts, "node_methods") ? oq_opt_str(job->opts, "node_methods") : NULL;
    return path == NULL || path[0] == '\0'
               ? ONQ_OK
               : oq_node_methods_load(&c->methods, &job->env->alloc, path, err);
}

onq_code oq_quant_report_names(const oq_job *job, oq_qconfig *c, oq_graph *g, onq_error *err) {
    OQ_TRY(
        oq_pick_report_types(&c->op_types, job->env, g, "--op_types_to_quantize", c->strict, err));
    OQ_TRY(oq_pick_report_types(&c->exclude_output_ops, job->env, g,
                                "--op_types_to_exclude_output_quantization", c->strict, err));
    OQ_TRY(oq_pick_report_types(&c->op_types_to_exclude, job->env, g, "--op_types_to_exclude",
                                c->strict, err));
    OQ_TRY(report_axes(job, c, g, err));
    OQ_TRY(oq_node_methods_report(&c->methods, job->env, g, c->strict, err));
    OQ_TRY(
        oq_pick_report(&c->nodes_to_quantize, job->env, g, "--nodes_to_quantize", c->strict, err));
    return oq_pick_report(&c->nodes_to_exclude, job->env, g, "--nodes_to_exclude", c->strict, err);
}

onq_code oq_quant_config(const oq_job *job, oq_qconfig *c, onq_error *err) {
    const onq_options *o = job->opts;
    const oq_runtime *runtime = NULL;
    OQ_TRY(oq_for_runtime_read(job, &runtime, err)); /* refused before any work */
    take_flags(o, c);
    take_numbers(o, c);
    OQ_TRY(take_op_types(o, c, err));
    OQ_TRY(oq_opt_picks(o, "nodes_to_quantize", &c->nodes_to_quantize, err));
    OQ_TRY(oq_opt_picks(o, "nodes_to_exclude", &c->nodes_to_exclude, err));
    OQ_TRY(oq_opt_picks(o, "op_types_to_exclude", &c->op_types_to_exclude, err));
    OQ_TRY(oq_opt_picks(o, "op_types_to_exclude_output_quantization", &c->exclude_output_ops, err));
    OQ_TRY(take_axes(o, c, err));
    OQ_TRY(take_methods(job, c, err));
    return take_tensor_type(o, c, err);
}
