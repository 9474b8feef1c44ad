/*
 * quant_input.c — see quant_input.h.
 */
#include "api/quantizing/quant_input.h"

#include "onnx/operators.h"
#include "onnx/summary/summary.h"
#include "quantize/ort/stamp.h"

static void warn_optimized(const onq_env *env, const oq_summary *s) {
    uint64_t nchwc = 0, fused = 0;
    for (size_t i = 0; i < s->ops.n; i++) {
        const oq_op_count *op = &s->ops.v[i];
        nchwc += oq_str_is(op->domain, "com.microsoft.nchwc") ? op->count : 0;
        if (oq_str_is(op->domain, "com.microsoft") && oq_op_traits_of(op->op_type)->fused)
            fused += op->count;
    }
    if (nchwc > 0)
        oq_warn(env,
                "ONNX Runtime optimised this model for one CPU: %llu nodes of com.microsoft.nchwc "
                "stay float, and little is gained (quantize the model as it was exported)",
                (unsigned long long)nchwc);
    else if (fused > 0)
        oq_warn(env,
                "ONNX Runtime optimised this model past its basic level: %llu nodes such as "
                "FusedConv stay float (quantize the model as it was exported)",
                (unsigned long long)fused);
}

static void warn_quantized(const onq_env *env, const oq_quantized *q, bool trained) {
    const uint64_t pairs = trained ? 0 : q->quantize + q->dequantize;
    const uint64_t operators = q->operators + q->integer + q->weight_only;
    if (pairs + operators == 0)
        return;
    oq_warn(env,
            "the model is quantized already: it has %llu QuantizeLinear and DequantizeLinear and "
            "%llu quantized operators; quantizing it again adds error and gains little (start from "
            "the float model)",
            (unsigned long long)(q->quantize + q->dequantize), (unsigned long long)operators);
}

onq_code oq_quant_look(oq_job *job, oq_model *m, bool trained, oq_quant_input *in, onq_error *err) {
    oq_summary s;
    OQ_TRY(oq_summary_make(&s, &job->arena, m, NULL, err));
    *in = (oq_quant_input){.preprocessed = oq_stamp_is_preprocessed(m),
                           .conv_batchnorm = s.conv_batchnorm};
    /* Who names operators quantizes what is still float. */
    if (!oq_opt_has(job->opts, "op_types_to_quantize") ||
        !oq_opt_is_set(job->opts, "op_types_to_quantize"))
        warn_quantized(job->env, &s.quant, trained);
    warn_optimized(job->env, &s);
    return ONQ_OK;
}

void oq_quant_warn_unprepared(const oq_job *job, const oq_quant_input *in, bool always) {
    if (in->preprocessed)
        return;
    if (in->conv_batchnorm > 0)
        oq_warn(job->env,
                "the model was not preprocessed: %llu BatchNormalization after Conv are computed "
                "by themselves, which costs speed ('onq preprocess' folds them; quantize with "
                "--per_channel then)",
                (unsigned long long)in->conv_batchnorm);
    else if (always)
        oq_warn(job->env,
                "the model was not preprocessed: shapes that are not known and constants that are "
                "not folded can keep nodes float ('onq preprocess' finds and folds them)");
}
