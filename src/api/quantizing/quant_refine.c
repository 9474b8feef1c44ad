/*
 * quant_refine.c — see quant_refine.h.
 */
#include "api/quantizing/quant_refine.h"

#include "api/samples.h"
#include "base/env.h"
#include "quantize/refine/refine.h"

#define NOISE 0.2 /* dB that a few samples more or less make */

bool oq_quant_refines(const oq_quant *q) {
    const onq_options *o = q->job->opts;
    return (oq_opt_flag(o, "bias_correction") || oq_opt_flag(o, "learned_rounding")) &&
           !oq_opt_flag(o, "dry_run");
}

static const char *name_of(const oq_refine_job *job) {
    return !job->learn_rounding ? "bias correction"
           : job->correct_bias  ? "learned rounding and bias correction"
                                : "learned rounding";
}

static void tell_biases(const oq_quant *q, const oq_refine_job *job) {
    const onq_env *env = q->job->env;
    if (job->n_no_bias > 0)
        oq_warn(env, "%zu quantized layers have no place for a bias and were not corrected%s",
                job->n_no_bias,
                oq_str_is(oq_str_of(q->format), "qoperator") ? " (--quant_format qdq has one)"
                                                             : "");
    if (job->n_clipped > 0)
        oq_warn(env, "%zu channels need a bias that int32 does not hold; theirs was cut off",
                job->n_clipped);
    if (job->n_layers == 0)
        oq_warn(env, "--bias_correction changed nothing: no layer with a constant weight was "
                     "quantized");
}

static void tell_rounding(const oq_quant *q, const oq_refine_job *job) {
    const onq_env *env = q->job->env;
    oq_info(env, "learned rounding: %zu layers, %zu as they were, computed by %s", job->n_learned,
            job->n_unable, job->linear != NULL ? job->linear : "onq itself (no LAPACK was found)");
    if (job->n_learned == 0)
        oq_warn(env, "--learned_rounding changed nothing: no layer with a weight of its own, of "
                     "integers without blocks, was quantized");
    else if (q->config.per_channel && q->run.doubled.count == 0 &&
             oq_dtype_find((int64_t)q->config.weight_type)->bits == 8)
        oq_note(env,
                "learned rounding of 8-bit weights per channel is as likely to lose as to gain "
                "(it is for weights per tensor, and for 4 bits)");
}

static void tell_gain(const oq_quant *q, const oq_refine_job *job) {
    const onq_env *env = q->job->env;
    if (!job->measured || job->n_layers + job->n_learned == 0)
        return;
    if (job->after < job->before - NOISE)
        oq_warn(env,
                "%s made the outputs worse: %.1f dB before, %.1f dB after, on the %zu "
                "calibration samples (leave it out)",
                name_of(job), job->before, job->after, job->n_compared);
    else
        oq_note(env, "%s: %.1f dB before, %.1f dB after, on the %zu calibration samples",
                name_of(job), job->before, job->after, job->n_compared);
}

static void tell(const oq_quant *q, const oq_refine_job *job, double seconds) {
    const onq_env *env = q->job->env;
    const uint64_t all = oq_source_count(job->source);
    oq_info(env, "%s in %.3f s", name_of(job), seconds);
    if (job->n_samples > 0 && job->n_samples < all)
        oq_note(env, "%s used %zu of %llu samples, for --memory holds no more of them",
                name_of(job), job->n_samples, (unsigned long long)all);
    if (job->correct_bias)
        tell_biases(q, job);
    if (job->learn_rounding)
        tell_rounding(q, job);
    tell_gain(q, job);
}

onq_code oq_quant_refine(oq_quant *q, oq_model_proto *flt, onq_error *err) {
    assert(q->model != NULL && flt != q->model->proto);
    const onq_options *o = q->job->opts;
    const double began = oq_seconds();
    oq_refine_job job = {.model = q->model,
                         .flt = flt,
                         .correct_bias = oq_opt_flag(o, "bias_correction"),
                         .learn_rounding = oq_opt_flag(o, "learned_rounding"),
                         .reduced = q->config.reduce_range,
                         .float_bias = !q->config.quantize_bias,
                         .learned = o->shared.learned,
                         .compare = oq_listens(q->job->env), /* only a message says it */
                         .means = o->shared.means,
                         .numbers = o->shared.numbers,
                         .memory = oq_opt_is_set(o, "memory") ? oq_opt_size(o, "memory")
                                                              : oq_memory_share()};
    if (q->engine == NULL)
        OQ_TRY(oq_job_engine(q->job, &q->engine, err));
    job.engine = q->engine;
    OQ_TRY(oq_job_session(q->job, &job.session, err));
    OQ_TRY(oq_job_source(q->job, q->model, &job.source, err));
    onq_code rc = oq_source_measure(job.source, err);
    if (rc == ONQ_OK)
        rc = oq_refine(&job, err);
    if (rc == ONQ_OK)
        tell(q, &job, oq_seconds() - began);
    oq_source_close(job.source);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", name_of(&job));
}
