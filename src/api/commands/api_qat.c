/*
 * api_qat.c — `onq qat`: a model trained with fake quantization becomes one of integer operators
 * (quantize_qat of ONNX Runtime 1.8.1), or a clean QDQ model, or one of QLinear operators. No
 * samples, and no runtime unless --verify asks for one.
 */
#include "api/options/command.h"
#include "api/options/shared_rows.h"
#include "api/quantizing/quant_config.h"
#include "api/quantizing/quantization.h"
#include "quantize/qdq/qdq.h"
#include "quantize/qoperator/qoperator.h"
#include "quantize/trained/trained.h"

/* clang-format off */
#define FORMATS(ROW)                           \
    ROW("integer,integerops", OQ_TRAINED_INTEGER)  \
    ROW("qdq", OQ_TRAINED_QDQ)                     \
    ROW("qoperator,qlinear", OQ_TRAINED_QOPERATOR)
/* clang-format on */

static const onq_option_info rows[] = {
    OQ_ROW_QUANT_FORMAT(
        "integer", OQ_CHOICES(FORMATS),
        "Format of the result: integer operators with float between them (integer), QDQ pairs "
        "with integer weights (qdq), or QLinear operators (qoperator)."),
    OQ_ROW_ACTIVATION_TYPE(
        OQ_CHOICES(OQ_8BIT_CHOICES),
        ". Trained parameters of the other type are shifted by 128, which changes no value; in "
        "formats qdq and qoperator this happens only if the option is given."),
    OQ_ROW_WEIGHT_TYPE(
        "quint8", OQ_CHOICES(OQ_8BIT_CHOICES),
        " that have no trained parameters; if this option is given, the type of all weights."),
    OQ_ROW_PER_CHANNEL("false", " that have no trained parameters"),
    OQ_ROW_REDUCE_RANGE(" that have no trained parameters"),
};
static const oq_opt_group own = OQ_GROUP("Quantization", rows);

typedef struct run {
    oq_quant q;
    oq_trained_job qat;
} run;

static onq_code check_options(run *r, onq_error *err) {
    const onq_options *o = r->q.job->opts;
    OQ_TRY(oq_quant_config(r->q.job, &r->q.config, err));
    r->qat.format = OQ_CHOSEN(o, "quant_format", oq_trained_format, FORMATS);
    r->qat.activation_asked = oq_opt_is_set(o, "activation_type");
    r->qat.weight_asked = oq_opt_is_set(o, "weight_type");
    /* What training chose is quantized, whatever its operator. */
    if (r->qat.format == OQ_TRAINED_QDQ && oq_pick_is_empty(&r->q.config.op_types))
        r->q.config.op_types_all = true;
    return ONQ_OK;
}

static onq_code prepare(run *r, onq_error *err) {
    const bool integer = r->qat.format == OQ_TRAINED_INTEGER;
    OQ_TRY(oq_quant_open(&r->q, true, err));
    r->qat.model = r->q.model;
    OQ_TRY(oq_trained_strip(&r->qat, err));
    OQ_TRY(oq_quant_infer(&r->q, err));
    return oq_quant_raise(&r->q, integer ? OQ_QMODE_INTEGER : OQ_QMODE_QDQ, err);
}

static onq_code quantize(void *ctx, onq_error *err) {
    run *r = ctx;
    oq_quant *q = &r->q;
    const bool decide_only = oq_opt_flag(q->job->opts, "dry_run");
    OQ_TRY(oq_quant_see_types(q, err));
    const oq_qo_job qoper = {.model = q->model,
                             .run = &q->run,
                             .overrides = &q->overrides,
                             .ranges = &q->ranges,
                             .plan = &q->plan,
                             .integer = r->qat.format == OQ_TRAINED_INTEGER,
                             .decide_only = decide_only};
    const oq_qdq_job qdq = {.model = q->model,
                            .run = &q->run,
                            .overrides = &q->overrides,
                            .ranges = &q->ranges,
                            .shapes = q->shapes,
                            .plan = &q->plan,
                            .decide_only = decide_only};
    return r->qat.format == OQ_TRAINED_QDQ ? oq_qdq_run(&qdq, err) : oq_qo_run(&qoper, err);
}

static void tell(const run *r) {
    const oq_trained_job *q = &r->qat;
    oq_job *job = r->q.job;
    if (q->n_removed == 0)
        oq_warn(job->env, "the model has no fake quantization that onq recognises, so its "
                          "activations have no trained parameters (onq static and onq dynamic "
                          "quantize such a model)");
    if (q->n_left > 0)
        oq_warn(job->env,
                "%zu QuantizeLinear nodes are not fake quantization with constant 8-bit parameters "
                "and stay as they are",
                q->n_left);
    oq_buf_addf(
        &job->text,
        "trained parameters of %zu activations and %zu weights, from %zu fake quantizations\n",
        q->n_activations, q->n_weights, q->n_removed);
    oq_jw_uint(&job->json, "trained_activations", q->n_activations);
    oq_jw_uint(&job->json, "trained_weights", q->n_weights);
    oq_jw_uint(&job->json, "fake_removed", q->n_removed);
    oq_jw_uint(&job->json, "fake_left", q->n_left);
}

static onq_code run_steps(run *r, onq_error *err) {
    OQ_TRY(check_options(r, err));
    OQ_TRY(prepare(r, err));
    OQ_TRY(oq_quant_report_names(r->q.job, &r->q.config, r->q.model->proto->graph, err));
    OQ_TRY(oq_quant_make(&r->q, err));
    tell(r);
    return oq_quant_end(&r->q, err);
}

static onq_code run_qat(oq_job *job, onq_error *err) {
    run r = {0};
    oq_quant_init(&r.q, job, oq_opt_str(job->opts, "quant_format"), quantize, &r);
    r.q.modes = OQ_QMODE_QDQ | OQ_QMODE_QLINEAR | OQ_QMODE_INTEGER;
    r.q.fixed_ranges = true;
    oq_ranges_init(&r.q.ranges, &job->env->alloc, OQ_CAL_MINMAX);
    r.q.has_ranges = true;
    r.qat.config = &r.q.config;
    r.qat.overrides = &r.q.overrides;
    r.qat.ranges = &r.q.ranges;
    const onq_code rc = oq_quant_blame(&r.q, run_steps(&r, err), err);
    oq_quant_release(&r.q);
    return rc;
}

const oq_command oq_command_qat = {
    .info = {"qat", "", "turn a quantization-aware-trained model into integers",
             "Takes a model with fake quantization as training frameworks export it "
             "(QuantizeLinear and DequantizeLinear around activations and weights, or chains of "
             "Div, Round, Clip and Mul), removes it and uses its scales and zero points for "
             "integer operators. This is quantize_qat of ONNX Runtime 1.8.1, with two more "
             "formats. It needs no samples and no runtime."},
    .required = "input output|dry_run",
    .groups = {&oq_group_input, &oq_group_output, &own, &oq_group_plan, &oq_group_select,
               &oq_group_runtime, &oq_group_verify, &oq_group_general},
    .decides = {&own},
    .run = run_qat,
};
