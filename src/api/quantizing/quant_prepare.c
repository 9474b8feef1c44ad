/*
 * quant_prepare.c — the beginning of every quantization: a model that is sound, its types known,
 * its opset what the result needs.
 */
#include "api/quantizing/quantization.h"
#include "api/samples.h"
#include "base/env.h"
#include "onnx/tidy.h"
#include "quantize/ort/result_opset.h"
#include "quantize/rules.h"

#include <math.h>

/* What a --target is measured on, unless --check says more or less. */
#define TARGET_SAMPLES 64

void oq_quant_init(oq_quant *q, oq_job *job, const char *format,
                   onq_code (*quantize)(void *ctx, onq_error *err), void *ctx) {
    *q = (oq_quant){.job = job,
                    .format = format,
                    .quantize = quantize,
                    .ctx = ctx,
                    .verified = {.confidence = (double)NAN},
                    .begin = oq_seconds(),
                    .seconds_calibration = -1.0};
    oq_qconfig_init(&q->config, &job->arena);
    oq_qrun_init(&q->run, &q->config);
    q->run.given = job->given;
    oq_overrides_init(&q->overrides, &job->arena);
    oq_plan_init(&q->plan, &job->arena);
    const int64_t check = oq_opt_int(job->opts, "check");
    size_t most = check > 0 ? (size_t)check : 1; /* one also shows whether the result is sound */
    if (oq_opt_is_set(job->opts, "target") && !oq_opt_is_set(job->opts, "check"))
        most = TARGET_SAMPLES;
    oq_record_init(&q->record, &job->env->alloc, most);
}

void oq_quant_release(oq_quant *q) {
    if (q->has_ranges)
        oq_ranges_release(&q->ranges);
    oq_shapes_free(q->shapes);
    oq_engine_close(q->engine);
    oq_model_free(q->model);
    oq_record_release(&q->record);
}

onq_code oq_quant_open(oq_quant *q, bool trained, onq_error *err) {
    assert(q->model == NULL && q->shapes == NULL);
    oq_job *job = q->job;
    size_t n = 0;
    OQ_TRY(oq_gate_read(job, false, &q->targets, err));
    if (q->targets.n > 0 &&
        (oq_opt_flag(job->opts, "no_verify") ||
         (oq_opt_is_set(job->opts, "check") && oq_opt_int(job->opts, "check") == 0)))
        return oq_fail(err, ONQ_E_OPTION,
                       "--target needs the comparison that --no_verify and --check 0 leave out");
    OQ_TRY(oq_job_open_sound(job, oq_job_input(job), &q->model, err));
    OQ_TRY(oq_quant_look(job, q->model, trained, &q->input, err));
    const oq_walker *walker = NULL;
    OQ_TRY(oq_job_walker(job, q->model, &walker, err));
    q->record.roles = walker != NULL ? &walker->roles : NULL;
    OQ_TRY(oq_model_size(q->model, &q->size_before, err));
    oq_record_fit(&q->record, q->size_before);
    q->has_external = q->size_before > q->model->bytes.n;
    if (!oq_opt_has(job->opts, "lift_constants") || !oq_opt_flag(job->opts, "lift_constants"))
        return ONQ_OK;
    OQ_TRY(oq_model_lift_constants(q->model, &n, err));
    oq_info(job->env, "%zu Constant nodes became initializers", n);
    return ONQ_OK;
}

onq_code oq_quant_see_types(oq_quant *q, onq_error *err) {
    assert(q->model != NULL);
    if (q->shapes != NULL && q->typed == q->model->proto)
        return ONQ_OK;
    oq_shapes_free(q->shapes);
    q->shapes = NULL;
    q->typed = q->model->proto;
    return oq_shapes_infer(q->model, NULL, &q->shapes, err);
}

onq_code oq_quant_infer(oq_quant *q, onq_error *err) {
    q->typed = NULL;
    OQ_TRY(oq_quant_see_types(q, err));
    return oq_shapes_write(q->shapes, q->model, err);
}

onq_code oq_quant_raise(oq_quant *q, unsigned mode, onq_error *err) {
    assert(q->shapes != NULL && q->typed == q->model->proto && q->run.config == &q->config);
    int64_t target = 0;
    const char *why = NULL;
    OQ_TRY(mode == OQ_QMODE_INTEGER && !q->config.trained
               ? oq_opset_needed_dynamic(q->model, &q->run, &q->overrides, &target, &why, err)
               : oq_opset_needed(q->model, q->shapes, &q->run, &q->overrides, mode, &target, &why,
                                 err));
    if (target <= oq_model_opset(q->model, OQ_S("")))
        return ONQ_OK;
    OQ_TRY(oq_opset_raise(q->model, target, why, true, err));
    return oq_quant_infer(q, err);
}
