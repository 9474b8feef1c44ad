/*
 * api_dynamic.c — `onq dynamic`: integer operators whose activations are quantized as they come
 * (the reference's quantize_dynamic). No samples, and no runtime unless --verify asks for one.
 */
#include "api/choices.h"
#include "api/command.h"
#include "api/quant_config.h"
#include "api/quant_input.h"
#include "api/quant_result.h"
#include "engine/ort.h"
#include "onnx/check.h"
#include "onnx/tidy.h"
#include "quantize/finish.h"
#include "quantize/opset.h"
#include "quantize/qoperator/qoperator.h"
#include "shape/operands.h"

static const onq_option_info rows[] = {
    OQ_ENUM("weight_type", 0, "", "qint8", OQ_CHOICES(OQ_8BIT_CHOICES), "TYPE",
            "Type of weights; the integer operators of ONNX take 8 bits only."),
    OQ_FLAG("per_channel", 0, "", "Quantize weights of MatMul, Attention and LSTM per channel."),
    OQ_FLAG("reduce_range", 0, "", "Quantize weights with one bit less (7 of 8)."),
    OQ_FLAG_ON("matmul_const_b_only", 0, "", "Quantize MatMul only with a constant second input."),
    OQ_FLAG("enable_subgraph", 0, "", "Quantize the bodies of If, Loop and Scan too."),
    OQ_FLAG_ON("keep_float16", 0, "",
               "Quantize float16 and bfloat16 nodes, with Cast around the integer operators, so "
               "that all tensors keep their types; false leaves such nodes alone."),
    OQ_FLAG("force_quantize_no_input_check", 0, "",
            "Quantize operators that only move numbers even if their input is not quantized."),
    OQ_FLAG("weight_symmetric", 0, "",
            "Ranges of weights are symmetric (by default: when the type is signed)."),
    OQ_FLAG("activation_symmetric", 0, "",
            "Tables of Gather and EmbedLayerNormalization have symmetric ranges."),
    OQ_FLAG("lift_constants", 0, "", "Turn Constant nodes into initializers first."),
    OQ_PATH("plan", 0, "", "FILE", "Write every decision and its reason as JSON."),
    OQ_FLAG("dry_run", 0, "", "Decide everything, write no model."),
};
static const oq_opt_group own = OQ_GROUP("Quantization", rows);

typedef struct run {
    oq_job *job;
    oq_model *m;
    oq_qconfig config;
    oq_overrides overrides;
    oq_plan plan;
    oq_engine *engine;
    oq_quant_input input;
    oq_quant_result result;
} run;

static onq_code check_options(run *r, onq_error *err) {
    const onq_options *o = r->job->opts;
    if (!oq_opt_flag(o, "dry_run") && !oq_opt_is_set(o, "output"))
        return oq_fail(err, ONQ_E_OPTION, "'dynamic' needs --output FILE");
    OQ_TRY(oq_quant_config(r->job, &r->config, err));
    r->config.activation_type = OQ_UINT8; /* DynamicQuantizeLinear has no other */
    return ONQ_OK;
}

static onq_code prepare(run *r, onq_error *err) {
    oq_job *job = r->job;
    oq_shapes *shapes = NULL;
    int64_t target = 0;
    const char *why = NULL;
    OQ_TRY(oq_job_open(job, oq_job_input(job), &r->m, err));
    r->result.model = r->m;
    OQ_TRY(oq_model_check(r->m, err));
    OQ_TRY(oq_operands_check(r->m, err));
    OQ_TRY(oq_quant_look(job, r->m, false, &r->input, err));
    OQ_TRY(oq_quant_measure(&r->result, err));
    if (oq_opt_flag(job->opts, "lift_constants")) {
        size_t n = 0;
        OQ_TRY(oq_model_lift_constants(r->m, &n, err));
        oq_info(job->env, "%zu Constant nodes became initializers", n);
    }
    OQ_TRY(oq_shapes_infer(r->m, NULL, &shapes, err));
    const onq_code rc = oq_shapes_write(shapes, r->m, err);
    oq_shapes_free(shapes);
    OQ_TRY(rc);
    OQ_TRY(oq_quant_set_inferred(r->m, err));
    OQ_TRY(oq_quant_opset_dynamic(r->m, &r->config, &r->overrides, &target, &why, err));
    return oq_quant_raise_opset(r->m, target, why, err);
}

/* What a user would want to know of what was left. */
static void warn_of_rest(const run *r) {
    const onq_env *env = r->job->env;
    size_t n_graphs = 0;
    const oq_graph *g = r->m->proto->graph;
    for (size_t i = 0; i < g->node.n; i++)
        for (size_t k = 0; k < g->node.v[i]->attribute.n; k++)
            n_graphs += g->node.v[i]->attribute.v[k]->g != NULL;
    if (n_graphs > 0 && !r->config.enable_subgraph)
        oq_warn(env,
                "%zu graphs inside If, Loop or Scan were left alone (--enable_subgraph quantizes "
                "them)",
                n_graphs);
    oq_quant_warn_types(&r->result);
    oq_quant_warn_unprepared(r->job, &r->input, false);
}

static onq_code quantize(void *ctx, onq_error *err) {
    run *r = ctx;
    const oq_qoper_job job = {.model = r->m, .config = &r->config, .plan = &r->plan};
    return oq_qoper_run(&job, err);
}

static onq_code run_steps(run *r, onq_error *err) {
    const double begin = oq_seconds();
    OQ_TRY(check_options(r, err));
    OQ_TRY(prepare(r, err));
    OQ_TRY(oq_quant_report_names(r->job, &r->config, r->m->proto->graph, err));
    OQ_TRY(oq_quant_make(&r->result, err));
    warn_of_rest(r);
    return oq_quant_end(&r->result, begin, -1.0, err);
}

static onq_code run_dynamic(oq_job *job, onq_error *err) {
    run r = {.job = job};
    r.result = (oq_quant_result){.job = job,
                                 .plan = &r.plan,
                                 .format = "dynamic",
                                 .engine = &r.engine,
                                 .quantize = quantize,
                                 .ctx = &r,
                                 .config = &r.config,
                                 .modes = OQ_QMODE_INTEGER};
    oq_record_init(&r.result.record, &job->env->alloc);
    oq_qconfig_init(&r.config, &job->arena);
    oq_overrides_init(&r.overrides, &job->arena);
    oq_plan_init(&r.plan, &job->arena);
    const onq_code rc = oq_quant_blame(&r.result, run_steps(&r, err), err);
    oq_engine_close(r.engine);
    oq_model_free(r.m);
    oq_record_release(&r.result.record);
    oq_qconfig_release(&r.config);
    return rc;
}

const oq_command oq_command_dynamic = {
    .info = {"dynamic", "", "quantize weights; activations are quantized as they come",
             "Dynamic quantization: weights become 8-bit integers now, scale and zero point of "
             "activations are computed while the model runs (ConvInteger, MatMulInteger, "
             "QAttention, DynamicQuantizeLSTM). The reference's quantize_dynamic. Needs no samples "
             "and no runtime."},
    .required = "input",
    .extra_keys = "DefaultTensorType",
    .groups = {&oq_group_input, &oq_group_output, &own, &oq_group_select, &oq_group_runtime,
               &oq_group_extra, &oq_group_general},
    .decides = &own,
    .run = run_dynamic,
};
