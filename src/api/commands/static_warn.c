/*
 * static_warn.c — what `onq static` says of its result: where the ranges came from, what stayed
 * float and why, what the model computes that its options did not mean.
 */
#include "api/commands/static_job.h"

#include "api/quantizing/selection_options.h"

/* The cache that was used. */
static void tell_of_cache(const oq_static *s) {
    const onq_options *o = s->q.job->opts;
    const char *path = oq_opt_str(o, "calibration_cache");
    const bool symmetric = oq_ranges_are_symmetric(&s->q.ranges);
    const char *data = oq_opt_is_set(o, "data") ? oq_opt_str(o, "data") : NULL;
    oq_note(s->q.job->env, "%s: %zu ranges by %s are taken from it, and no sample is run%s%s", path,
            s->q.ranges.all.n, oq_cal_method_name(s->q.ranges.method),
            data != NULL ? "; --data is not used: " : "", data != NULL ? data : "");
    if ((s->method == OQ_CAL_PERCENTILE || s->method == OQ_CAL_MINMAX) && s->q.ranges.all.n > 0 &&
        symmetric != oq_opt_flag(o, "calib_tensor_range_symmetric"))
        oq_warn(s->q.job->env,
                "%s: its ranges %s symmetric although --calib_tensor_range_symmetric is %s; they "
                "are used unchanged (onq calibrate --calib_symmetric %s makes the others)",
                path, symmetric ? "were made" : "are not", symmetric ? "not given" : "given",
                symmetric ? "false" : "true");
}

/* Relu that were removed, biases and weights that stay float. */
static void warn_of_constants(const oq_static *s) {
    const onq_env *env = s->q.job->env;
    if (s->q.plan.n_unclipped > 0)
        oq_warn(env,
                "%zu Relu and Clip were removed, as onnxruntime.quantization does, but the ranges "
                "that the options made do not clip in their place: the model computes something "
                "else (--qdq_keep_removable_activations keeps them)",
                s->q.plan.n_unclipped);
    if (s->q.plan.n_tiny_biases > 0)
        oq_warn(env,
                "%zu float16 biases stay float ('%.*s' is the first): their scales are too small "
                "for float16, and ONNX Runtime, which quantizes them when it optimises, makes "
                "wrong values of them (8-bit types, a float32 model, or --nodes_to_exclude)",
                s->q.plan.n_tiny_biases, OQ_STR(s->q.plan.tiny_bias));
    if (s->q.plan.n_float_constants > 0)
        oq_warn(env,
                "%zu weight%s in Constant nodes stay%s float (--lift_constants or onq preprocess "
                "makes initializers of Constant nodes)",
                s->q.plan.n_float_constants, OQ_NOUN_S(s->q.plan.n_float_constants),
                OQ_VERB_S(s->q.plan.n_float_constants));
}

static void warn_of_activation_type(const oq_static *s) {
    const onq_env *env = s->q.job->env;
    if (s->q.verified.skipped != NULL && s->format == OQ_FORMAT_QDQ &&
        (oq_qtype_is_4bit(s->q.config.activation_type) ||
         s->q.config.activation_type == OQ_FLOAT8E4M3FN))
        oq_warn(
            env,
            "%s activations: ONNX Runtime 1.31 loads many such models only with graph optimisation "
            "off, and this one was not tried",
            oq_qtype_name(s->q.config.activation_type));
    if (s->q.ranges.method == OQ_CAL_DISTRIBUTION && s->q.config.activation_type != OQ_FLOAT8E4M3FN)
        oq_warn(env,
                "--calibration_method distribution is for float 8; another method suits %s better",
                oq_qtype_name(s->q.config.activation_type));
}

static void warn_of_float_nodes(const oq_static *s) {
    const onq_env *env = s->q.job->env;
    oq_quant_warn_types(&s->q);
    if (s->inner_nodes > 0)
        oq_warn(env,
                "%zu node%s inside If, Loop and Scan stay%s float (--enable_subgraph quantizes "
                "such nodes)",
                s->inner_nodes, OQ_NOUN_S(s->inner_nodes), OQ_VERB_S(s->inner_nodes));
    if (s->q.plan.n_not_run > 0)
        oq_warn(
            env,
            "%zu node%s inside If, Loop and Scan stay%s float because no sample got there%s (give "
            "samples that take every branch)",
            s->q.plan.n_not_run, OQ_NOUN_S(s->q.plan.n_not_run), OQ_VERB_S(s->q.plan.n_not_run),
            s->q.seconds_calibration > 0 ? "" : ", or the cache was made without them");
    if (s->q.plan.n_unknown_type > 0)
        oq_warn(env,
                "%zu tensor%s stay%s float because no type is known (onq preprocess may find it)",
                s->q.plan.n_unknown_type, OQ_NOUN_S(s->q.plan.n_unknown_type),
                OQ_VERB_S(s->q.plan.n_unknown_type));
}

void oq_static_warn(const oq_static *s) {
    assert(s->q.model != NULL);
    const onq_env *env = s->q.job->env;
    if (s->extremes.n_clamped + s->extremes.n_left > 0)
        oq_note(env,
                "--masks %s: %zu ranges that masks stretch were clamped, and nodes around %zu "
                "stay float",
                oq_opt_str(s->q.job->opts, "masks"), s->extremes.n_clamped, s->extremes.n_left);
    if (s->from_cache)
        tell_of_cache(s);
    oq_selection_warn(&s->q);
    warn_of_constants(s);
    if (!oq_opt_flag(s->q.job->opts, "optimize_model"))
        oq_quant_warn_unprepared(s->q.job, &s->q.input, s->q.plan.n_float_constants == 0);
    warn_of_activation_type(s);
    warn_of_float_nodes(s);
}
