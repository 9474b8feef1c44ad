/*
 * api_dynamic.c — `onq dynamic`: integer operators whose activations are quantized as they come
 * (the reference's quantize_dynamic). It needs no samples; those that are there judge the result.
 */
#include "api/options/command.h"
#include "api/options/shared_rows.h"
#include "api/quantizing/quant_config.h"
#include "api/quantizing/quant_input.h"
#include "api/quantizing/quantization.h"
#include "quantize/ort/stamp.h"
#include "quantize/qoperator/qoperator.h"

static const onq_option_info rows[] = {
    OQ_ROW_WEIGHT_TYPE("qint8", OQ_CHOICES(OQ_8BIT_CHOICES),
                       ". The integer operators of ONNX take only 8-bit types."),
    OQ_ROW_PER_CHANNEL("false", " of MatMul, Attention and LSTM"),
    OQ_ROW_REDUCE_RANGE(""),
    OQ_ROW_MATMUL_CONST_B_ONLY("true"),
    OQ_ROW_ENABLE_SUBGRAPH,
    OQ_ROW_KEEP_FLOAT16,
    OQ_ROW_FORCE_QUANTIZE,
    OQ_ROW_WEIGHT_SYMMETRIC,
    OQ_ROW_ACTIVATION_SYMMETRIC("tables of Gather and EmbedLayerNormalization"),
    OQ_ROW_LIFT_CONSTANTS,
    OQ_ROW_SORT_NODES,
    OQ_ROW_DROP_SHAPES,
};
static const oq_opt_group own = OQ_GROUP("Quantization", rows);

static onq_code check_options(oq_quant *q, onq_error *err) {
    OQ_TRY(oq_quant_config(q->job, &q->config, err));
    q->config.activation_type = OQ_UINT8; /* DynamicQuantizeLinear has no other */
    return ONQ_OK;
}

/* Tells the user what was left float. */
static void warn_of_rest(const oq_quant *q) {
    const onq_env *env = q->job->env;
    size_t n_graphs = 0;
    const oq_graph *g = q->model->proto->graph;
    for (size_t i = 0; i < g->node.n; i++)
        for (size_t k = 0; k < g->node.v[i]->attribute.n; k++)
            n_graphs += g->node.v[i]->attribute.v[k]->g != NULL;
    if (n_graphs > 0 && !q->config.enable_subgraph)
        oq_warn(env,
                "%zu graphs inside If, Loop or Scan were not quantized (--enable_subgraph "
                "quantizes them)",
                n_graphs);
    oq_quant_warn_types(q);
    oq_quant_warn_unprepared(q->job, &q->input, false);
}

static onq_code quantize(void *ctx, onq_error *err) {
    oq_quant *q = ctx;
    const oq_qo_job job = {.model = q->model,
                           .run = &q->run,
                           .plan = &q->plan,
                           .decide_only = oq_opt_flag(q->job->opts, "dry_run")};
    return oq_qo_run(&job, err);
}

static onq_code run_steps(oq_quant *q, onq_error *err) {
    OQ_TRY(check_options(q, err));
    OQ_TRY(oq_quant_open(q, false, err));
    OQ_TRY(oq_quant_infer(q, err));
    OQ_TRY(oq_stamp_inferred(q->model, err));
    OQ_TRY(oq_quant_raise(q, OQ_QMODE_INTEGER, err));
    OQ_TRY(oq_quant_report_names(q->job, &q->config, q->model->proto->graph, err));
    OQ_TRY(oq_quant_make(q, err));
    warn_of_rest(q);
    if (oq_quant_decodes(q)) /* measured as the table of nbits_forecast.c */
        oq_buf_adds(&q->job->text,
                    "speed: a decoder of 135 million weights took a third of float's time for the "
                    "prefill, and half of it to decode\n");
    return oq_quant_end(q, err);
}

static onq_code run_dynamic(oq_job *job, onq_error *err) {
    oq_quant q;
    oq_quant_init(&q, job, "dynamic", quantize, &q);
    q.modes = OQ_QMODE_INTEGER;
    const onq_code rc = oq_quant_blame(&q, run_steps(&q, err), err);
    oq_quant_release(&q);
    return rc;
}

const oq_command oq_command_dynamic = {
    .info = {"dynamic", "", "quantize weights; activations are quantized at run time",
             "Dynamic quantization: weights become 8-bit integers now; activations are quantized "
             "at run time (ConvInteger, MatMulInteger, QAttention, DynamicQuantizeLSTM). This is "
             "quantize_dynamic of onnxruntime.quantization. It needs no samples and no runtime; "
             "if both are there, the result is compared with the float model."},
    .required = "input output|dry_run",
    .extra_keys = "DefaultTensorType",
    .groups = {&oq_group_input, &oq_group_output, &own, &oq_group_plan, &oq_group_select,
               &oq_group_data, &oq_group_runtime, &oq_group_extra, &oq_group_verify,
               &oq_group_general},
    .decides = {&own},
    .run = run_dynamic,
};
