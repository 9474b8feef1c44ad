/*
 * static_model.c — the first half of `onq static`: the model is opened and becomes what the
 * quantizer will see. Overrides are checked against it, and a preset adds its own.
 */
#include "api/commands/static_job.h"

#include "api/quantizing/rewriting.h"
#include "api/samples.h"
#include "prepare/channels/smooth.h"
#include "prepare/preprocess.h"
#include "quantize/ort/stamp.h"
#include "quantize/override/encodings.h"
#include "quantize/override/override_check.h"
#include "quantize/override/preset.h"
#include "quantize/rules.h"

/* ---- overrides ---- */

const char *oq_static_overrides_name(const oq_static *s) {
    const char *path = oq_opt_str(s->q.job->opts, "tensor_quant_overrides");
    const char *encodings = oq_opt_str(s->q.job->opts, "encodings");
    return path != NULL        ? oq_overrides_name(path)
           : encodings != NULL ? encodings
                               : "overrides of the preset";
}

onq_code oq_static_blame_overrides(const oq_static *s, onq_code rc, onq_error *err) {
    return rc == ONQ_E_CONFIG && s->q.overrides.all.n > 0 && s->q.run.given == NULL
               ? oq_error_in(err, rc, "%s", oq_static_overrides_name(s))
               : rc;
}

onq_code oq_static_load_overrides(oq_static *s, onq_error *err) {
    assert(s->q.model == NULL && s->q.overrides.all.n == 0);
    const char *path = oq_opt_str(s->q.job->opts, "tensor_quant_overrides");
    return path == NULL || path[0] == '\0'
               ? ONQ_OK
               : oq_overrides_load(&s->q.overrides, &s->q.job->env->alloc, path, err);
}

/* --encodings: parameters of another tool, for tensors that --tensor_quant_overrides does not
 * name. */
static onq_code load_encodings(oq_static *s, onq_error *err) {
    const onq_env *env = s->q.job->env;
    const char *path = oq_opt_str(s->q.job->opts, "encodings");
    oq_encodings_read read;
    if (path == NULL || path[0] == '\0' || s->q.run.given != NULL)
        return ONQ_OK;
    OQ_TRY(oq_encodings_load(&s->q.overrides, s->q.model, path, &read, err));
    if (read.n_gone > 0)
        oq_warn(env, "%s: %zu of its tensors are not in the model; the first is '%.*s'", path,
                read.n_gone, OQ_STR(read.gone));
    if (read.n_blocks > 0 && s->format != OQ_FORMAT_QDQ)
        return oq_fail(err, ONQ_E_CONFIG,
                       "%s: %zu weights are encoded in blocks, which only --quant_format QDQ has",
                       path, read.n_blocks);
    oq_info(env, "%s: parameters of %zu tensors, %zu left to the quantizer", path, read.n,
            read.n_other);
    return ONQ_OK;
}

/* Nodes that an override names to receive a converted tensor, and that the model does not have. */
static onq_code report_receivers(oq_static *s, onq_error *err) {
    oq_pick nodes;
    onq_code rc = ONQ_OK;
    oq_pick_init(&nodes, &s->q.job->arena);
    for (size_t i = 0; i < s->q.overrides.all.n; i++) {
        const oq_override *c = s->q.overrides.all.v[i]->channels.v[0].convert;
        for (size_t k = 0; c != NULL && k < c->recv_nodes.n && rc == ONQ_OK; k++)
            rc = oq_pick_add(&nodes, c->recv_nodes.v[k], err);
    }
    if (rc == ONQ_OK)
        rc = oq_pick_report(&nodes, s->q.job->env, s->q.model->proto->graph,
                            oq_static_overrides_name(s), s->q.config.strict, err);
    return rc;
}

static onq_code check_overrides(oq_static *s, onq_error *err) {
    oq_reach reach;
    if (s->q.overrides.all.n == 0)
        return ONQ_OK;
    OQ_TRY(oq_reach_init(&reach, &s->q.job->arena, s->q.model, s->q.shapes, &s->q.config, err));
    const oq_override_check check = {.reach = &reach,
                                     .activation_type = s->q.config.activation_type,
                                     .weight_type = s->q.config.weight_type};
    const onq_code rc = oq_overrides_check(&s->q.overrides, &check, err);
    return rc == ONQ_OK ? report_receivers(s, err)
                        : oq_error_in(err, rc, "%s", oq_static_overrides_name(s));
}

/* Lists of channels that name no axis get theirs. */
static onq_code find_axes(oq_static *s, onq_error *err) {
    oq_reach reach;
    if (s->q.overrides.all.n == 0)
        return ONQ_OK;
    OQ_TRY(oq_reach_init(&reach, &s->q.job->arena, s->q.model, s->q.shapes, &s->q.config, err));
    oq_overrides_find_axes(&s->q.overrides, &reach);
    return ONQ_OK;
}

/* ---- steps ---- */

/* Where a preset has another default than the command line, and nothing was said. */
static onq_code apply_preset(oq_static *s, onq_error *err) {
    const onq_options *o = s->q.job->opts;
    const oq_preset preset = {.model = s->q.model,
                              .shapes = s->q.shapes,
                              .config = &s->q.config,
                              .overrides = &s->q.overrides,
                              .add_converts = oq_opt_flag(o, "add_qtype_converts"),
                              .arena = &s->q.job->arena};
    if (s->preset == OQ_PRESET_QDQ) {
        if (!oq_opt_is_set(o, "minimum_real_range"))
            s->q.config.has_min_real_range = false;
        if (!oq_opt_is_set(o, "force_quantize_no_input_check"))
            s->q.config.force_quantize_no_input_check = true;
        return oq_preset_qdq(&preset, err);
    }
    if (!oq_opt_is_set(o, "weight_type"))
        s->q.config.weight_type = OQ_UINT8;
    return oq_preset_qnn(&preset, err);
}

onq_code oq_static_open_engine(oq_static *s, onq_error *err) {
    return s->q.engine != NULL ? ONQ_OK : oq_job_engine(s->q.job, &s->q.engine, err);
}

/* The runtime's basic optimisations first, as older versions of the reference did by themselves. */
static onq_code optimize(oq_static *s, onq_error *err) {
    oq_session_options session = {0};
    const char *near = oq_job_near(s->q.job);
    OQ_TRY_ALLOC(near != NULL, err);
    OQ_TRY(oq_static_open_engine(s, err));
    OQ_TRY(oq_job_session(s->q.job, &session, err));
    return oq_prep_optimize_ort(s->q.engine, &session, near, 0, &s->q.model, err);
}

static onq_code smooth(oq_static *s, onq_error *err) {
    oq_source *source = NULL;
    oq_smooth_job job = {.model = s->q.model,
                         .alpha = s->q.config.smooth_quant_alpha,
                         .folding = s->q.config.smooth_quant_folding};
    OQ_TRY(oq_static_open_engine(s, err));
    job.engine = s->q.engine;
    OQ_TRY(oq_job_session(s->q.job, &job.session, err));
    OQ_TRY(oq_job_source(s->q.job, s->q.model, &source, err));
    job.source = source;
    onq_code rc = oq_smooth(&job, err);
    oq_source_close(source);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "SmoothQuant");
    oq_info(s->q.job->env, "SmoothQuant: %zu tensors, %zu of them folded into the node before",
            job.n_tensors, job.n_folded);
    /* What it put in stays float. */
    for (size_t i = 0; i < job.added.n; i++)
        OQ_TRY_ALLOC(oq_map_put(&s->q.run.added, job.added.v[i], 0), err);
    return ONQ_OK;
}

static onq_code rewrite(oq_static *s, onq_error *err) {
    oq_rewrite_report report;
    OQ_TRY(oq_rewrite(s->q.model, s->rewrite, &report, err));
    oq_jw_begin_array(&s->q.job->json, "rewrites");
    oq_rewriting_tell(s->q.job, &report);
    oq_jw_end_array(&s->q.job->json);
    return ONQ_OK;
}

onq_code oq_static_prepare(oq_static *s, onq_error *err) {
    assert(s->q.model == NULL);
    oq_quant *q = &s->q;
    OQ_TRY(oq_quant_open(q, false, err));
    OQ_TRY(oq_job_name_apart(q->job, q->model, err)); /* the runtime will load it */
    if (oq_opt_flag(q->job->opts, "optimize_model"))
        OQ_TRY(optimize(s, err));
    if (s->rewrite != 0 || q->config.smooth_quant)
        OQ_TRY(oq_quant_keep_float(q, err));
    if (s->rewrite != 0)
        OQ_TRY(rewrite(s, err));
    if (q->config.smooth_quant)
        OQ_TRY(smooth(s, err));
    OQ_TRY(oq_quant_infer(q, err));
    OQ_TRY(oq_stamp_inferred(q->model, err));
    OQ_TRY(find_axes(s, err));
    OQ_TRY(load_encodings(s, err));
    if (s->preset != OQ_PRESET_NONE)
        OQ_TRY(oq_static_blame_overrides(s, apply_preset(s, err), err));
    OQ_TRY(oq_static_check_types(s, err));
    if (q->run.given != NULL)
        OQ_TRY(oq_given_bind_nodes(q->run.given, q->model, err));
    OQ_TRY(oq_quant_raise(q, s->format == OQ_FORMAT_QDQ ? OQ_QMODE_QDQ : OQ_QMODE_QLINEAR, err));
    if (q->run.given != NULL)
        OQ_TRY(oq_given_bind_nodes(q->run.given, q->model, err));
    return check_overrides(s, err);
}
