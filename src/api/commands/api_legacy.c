/*
 * api_legacy.c — `onq legacy`: the four modes of the first quantization tool, quantize() with
 * QuantizationMode.
 */
#include "api/options/command.h"
#include "api/options/shared_rows.h"
#include "api/quantizing/quantization.h"
#include "engine/engine.h"
#include "onnx/upgrade/upgrade.h"
#include "quantize/legacy/legacy.h"

/* clang-format off */
#define MODES(ROW)                                       \
    ROW("IntegerOps_Static", OQ_LEGACY_INTEGER_STATIC)   \
    ROW("IntegerOps_Dynamic", OQ_LEGACY_INTEGER_DYNAMIC) \
    ROW("QLinearOps_Static", OQ_LEGACY_QLINEAR_STATIC)   \
    ROW("QLinearOps_Dynamic", OQ_LEGACY_QLINEAR_DYNAMIC)
/* clang-format on */

static const onq_option_info rows[] = {
    OQ_ENUM("quantization_mode", 0, "mode", "IntegerOps_Dynamic", OQ_CHOICES(MODES), "MODE",
            "Integer or QLinear operators, with static or dynamic parameters for their inputs."),
    OQ_ROW_PER_CHANNEL("true", " of Conv"),
    OQ_INT("nbits", 0, "", "8", "", "N", "Bits of quantized values; only 8 is supported."),
    OQ_FLAG("asymmetric_input_types", 0, "",
            "Make weights signed and inputs unsigned; otherwise both are unsigned."),
    OQ_PATH("input_quantization_params", 0, "", "FILE",
            "Static modes: a JSON file {\"tensor\": [zero_point, scale]} for the inputs of Conv "
            "and MatMul."),
    OQ_PATH("output_quantization_params", 0, "", "FILE",
            "QLinear modes: a JSON file of the same form for the outputs of Conv and MatMul."),
    /* Own sense: the integer operators begin at opset 10. */
    OQ_INT("opset", 0, "", "", "10..28", "N", "Raise the opset of the model to N first."),
    OQ_ROW_STRICT,
};
static const oq_opt_group own = OQ_GROUP("Quantization", rows);

typedef struct run {
    oq_quant q;
    oq_legacy_params inputs, outputs;
} run;

static bool is_static(oq_legacy_mode mode) {
    return mode == OQ_LEGACY_INTEGER_STATIC || mode == OQ_LEGACY_QLINEAR_STATIC;
}

static bool is_qlinear(oq_legacy_mode mode) {
    return mode == OQ_LEGACY_QLINEAR_STATIC || mode == OQ_LEGACY_QLINEAR_DYNAMIC;
}

/* A file of parameters, where the mode reads one. */
static const char *file_of(const run *r, const char *name, bool wanted) {
    const onq_options *o = r->q.job->opts;
    const char *path = oq_opt_is_set(o, name) ? oq_opt_str(o, name) : NULL;
    if (path != NULL && !wanted)
        oq_warn(r->q.job->env, "--%s has no effect with --quantization_mode %s", name,
                oq_opt_str(o, "quantization_mode"));
    return wanted && r->q.run.given == NULL ? path : NULL; /* a plan has them */
}

static onq_code check_options(run *r, oq_legacy_mode mode, onq_error *err) {
    const onq_options *o = r->q.job->opts;
    if (oq_opt_int(o, "nbits") != 8)
        return oq_fail(err, ONQ_E_OPTION, "--nbits %lld: these modes have 8 bits only",
                       (long long)oq_opt_int(o, "nbits"));
    if (is_static(mode) && !oq_opt_is_set(o, "input_quantization_params"))
        return oq_fail(err, ONQ_E_OPTION, "the static modes need --input_quantization_params FILE");
    if (is_qlinear(mode) && !oq_opt_is_set(o, "output_quantization_params"))
        return oq_fail(err, ONQ_E_OPTION,
                       "the QLinear modes need --output_quantization_params FILE");
    return ONQ_OK;
}

static onq_code raise_opset(oq_quant *q, onq_error *err) {
    const int64_t now = oq_model_opset(q->model, OQ_S(""));
    if (oq_opt_is_set(q->job->opts, "opset")) {
        OQ_TRY(oq_quant_infer(q, err));
        OQ_TRY(oq_model_upgrade(q->model, oq_opt_int(q->job->opts, "opset"), err));
        q->typed = NULL; /* the types are those of the nodes before */
    }
    if (oq_model_opset(q->model, OQ_S("")) >= 10)
        return ONQ_OK;
    return oq_fail(
        err, ONQ_E_UNSUPPORTED,
        "the model has opset %lld, and quantized operators need 10 (export it again with a "
        "newer opset, or pass --opset 11)",
        (long long)now);
}

/* Tensors of a file that no quantized node reads or makes. */
static onq_code report_unused(const run *r, const oq_legacy_params *p, onq_error *err) {
    static const char what[] = "is not in the model, or belongs to no quantized Conv or MatMul";
    for (size_t i = 0; i < p->all.n; i++) {
        if (p->all.v[i].used)
            continue;
        if (oq_opt_flag(r->q.job->opts, "strict"))
            return oq_fail(err, ONQ_E_CONFIG, "%s: tensor '%.*s' %s", p->path,
                           OQ_STR(p->all.v[i].name), what);
        oq_warn(r->q.job->env, "%s: tensor '%.*s' %s", p->path, OQ_STR(p->all.v[i].name), what);
    }
    return ONQ_OK;
}

static onq_code quantize(void *ctx, onq_error *err) {
    run *r = ctx;
    const onq_options *o = r->q.job->opts;
    OQ_TRY(oq_quant_see_types(&r->q, err));
    const oq_legacy_job job = {.model = r->q.model,
                               .shapes = r->q.shapes,
                               .mode = OQ_CHOSEN(o, "quantization_mode", oq_legacy_mode, MODES),
                               .per_channel = oq_opt_flag(o, "per_channel"),
                               .signed_weights = oq_opt_flag(o, "asymmetric_input_types"),
                               .inputs = &r->inputs,
                               .outputs = &r->outputs,
                               .given = r->q.run.given,
                               .plan = &r->q.plan,
                               .decide_only = oq_opt_flag(o, "dry_run")};
    return oq_legacy_run(&job, err);
}

static onq_code run_steps(run *r, onq_error *err) {
    const onq_options *o = r->q.job->opts;
    const oq_legacy_mode mode = OQ_CHOSEN(o, "quantization_mode", oq_legacy_mode, MODES);
    OQ_TRY(check_options(r, mode, err));
    const onq_allocator *alloc = &r->q.job->env->alloc;
    OQ_TRY(oq_legacy_read(&r->inputs, &r->q.job->arena, alloc,
                          file_of(r, "input_quantization_params", is_static(mode)), err));
    OQ_TRY(oq_legacy_read(&r->outputs, &r->q.job->arena, alloc,
                          file_of(r, "output_quantization_params", is_qlinear(mode)), err));
    OQ_TRY(oq_quant_open(&r->q, false, err));
    OQ_TRY(raise_opset(&r->q, err));
    r->q.fixed_ranges = mode != OQ_LEGACY_INTEGER_DYNAMIC;
    OQ_TRY(oq_quant_make(&r->q, err));
    OQ_TRY(report_unused(r, &r->inputs, err));
    OQ_TRY(report_unused(r, &r->outputs, err));
    return oq_quant_end(&r->q, err);
}

static onq_code run_legacy(oq_job *job, onq_error *err) {
    run r;
    oq_quant_init(&r.q, job, "legacy", quantize, &r);
    const onq_code rc = oq_quant_blame(&r.q, run_steps(&r, err), err);
    oq_quant_release(&r.q);
    return rc;
}

const oq_command oq_command_legacy = {
    .info =
        {"legacy", "", "quantize in the four modes of the first quantization tool",
         "Conv and MatMul as integer operators (ConvInteger, MatMulInteger) or QLinear operators "
         "(QLinearConv, QLinearMatMul), with input parameters that are given or computed at run "
         "time: quantize() with QuantizationMode, the tool before quantize_static and "
         "quantize_dynamic."},
    .required = "input output|dry_run",
    .groups = {&oq_group_input, &oq_group_output, &own, &oq_group_plan, &oq_group_runtime,
               &oq_group_verify, &oq_group_general},
    .decides = {&own},
    .run = run_legacy,
};
