/*
 * static_ranges.c — the ranges of `onq static`: those of the caller, those of a cache, or those
 * that a calibration finds, which then are the cache.
 */
#include "api/commands/cal_options.h"
#include "api/commands/static_job.h"

#include "api/interface/ranges_handle.h"
#include "api/quantizing/quant_refine.h"
#include "api/samples.h"
#include "base/text/near_path.h"
#include "calibrate/calibrate.h"
#include "calibrate/method/method.h"
#include "quantize/choose/reach.h"

/* ---- ranges that are there ---- */

static const char *cache_path(const oq_static *s) {
    const char *path = oq_opt_str(s->q.job->opts, "calibration_cache");
    return path != NULL && path[0] != '\0' ? path : NULL;
}

/* Ranges of the caller. */
static onq_code take_ranges(oq_static *s, onq_error *err) {
    const onq_options *o = s->q.job->opts;
    const oq_ranges *given = oq_ranges_inside(o->ranges);
    if (oq_opt_is_set(o, "calibration_method") && given->method != s->method)
        return oq_fail(err, ONQ_E_CONFIG, "the ranges were made with %s, and %s is asked for",
                       oq_cal_method_name(given->method), oq_cal_method_name(s->method));
    s->method = given->method;
    OQ_TRY_ALLOC(oq_ranges_clone(&s->q.ranges, &s->q.job->env->alloc, given), err);
    s->q.has_ranges = true;
    return ONQ_OK;
}

onq_code oq_static_read_ranges(oq_static *s, onq_error *err) {
    oq_file_info info;
    assert(!s->q.has_ranges);
    const char *path = cache_path(s);
    s->method = oq_cal_method_chosen(s->q.job->opts);
    if (s->q.job->opts->ranges != NULL)
        return take_ranges(s, err);
    if (path == NULL)
        return ONQ_OK;
    if (!oq_os_info_of(path, &info)) {
        return errno == ENOENT
                   ? ONQ_OK
                   : oq_fail_errno(err, ONQ_E_READ, errno, "calibration cache '%s'", path);
    }
    OQ_TRY(oq_ranges_load(&s->q.ranges, s->q.job->env, path, err));
    s->q.has_ranges = true;
    if (s->q.ranges.smooth_quant != s->q.config.smooth_quant) {
        oq_warn(s->q.job->env,
                "the cache '%s' was made with smooth_quant=%s, and this run has smooth_quant=%s: "
                "ranges are computed again, and the cache is replaced",
                path, s->q.ranges.smooth_quant ? "true" : "false",
                s->q.config.smooth_quant ? "true" : "false");
        oq_ranges_release(&s->q.ranges);
        s->q.has_ranges = false;
        return ONQ_OK;
    }
    if (!oq_opt_is_set(s->q.job->opts, "calibration_method"))
        s->method = s->q.ranges.method;
    if (s->q.ranges.method != s->method)
        return oq_fail(
            err, ONQ_E_CONFIG,
            "calibration cache '%s' was made with %s, and %s is asked for (delete it, or leave "
            "--calibration_method out)",
            path, oq_cal_method_name(s->q.ranges.method), oq_cal_method_name(s->method));
    s->from_cache = true;
    return ONQ_OK;
}

/* ---- calibration ---- */

/* The operator types that are calibrated: what the configuration chooses among those of the
 * model. */
static onq_code calibrated_types(oq_static *s, oq_cal_options *o, onq_error *err) {
    oq_strs types = {0};
    OQ_TRY(oq_reach_types(s->q.model, &s->q.run, s->q.modes, &s->q.job->arena, &types, err));
    /* An empty list would mean all operators. */
    if (types.n == 0 && !OQ_PUSH(&s->q.job->arena, &types, OQ_S("(none)")))
        return oq_fail_nomem(err);
    o->op_types = types.v;
    o->n_op_types = types.n;
    o->inner = s->q.config.enable_subgraph;
    return ONQ_OK;
}

/* True if nothing but the ends of the ranges is asked for: a cache holds more, and float 8 takes
 * its scales from deviations. */
static bool needs_bounds_only(const oq_static *s) {
    const bool float8 = s->q.config.activation_type == OQ_FLOAT8E4M3FN || s->q.overrides.all.n > 0;
    return (cache_path(s) == NULL || s->q.job->opts->shared.bounds) &&
           !(s->method == OQ_CAL_DISTRIBUTION && float8);
}

static onq_code calibration_options(oq_static *s, oq_cal_options *c, onq_error *err) {
    const onq_options *o = s->q.job->opts;
    oq_cal_defaults(c, s->method);
    c->symmetric = oq_opt_flag(o, "calib_tensor_range_symmetric");
    if (c->method == OQ_CAL_MSE) {
        c->symmetric = c->symmetric || oq_opt_flag(o, "activation_symmetric");
        c->num_quantized_bins = (uint64_t)1
                                << oq_dtype_find((int64_t)s->q.config.activation_type)->bits;
    }
    oq_cal_options_shared(s->q.job, c);
    c->bounds_only = needs_bounds_only(s);
    if (c->method == OQ_CAL_ENTROPY && c->num_bins <= c->num_quantized_bins)
        oq_warn(s->q.job->env,
                "entropy with %llu bins has one threshold to choose and equals minmax "
                "(--calib_num_bins 2048 gives it a choice)",
                (unsigned long long)c->num_bins);
    OQ_TRY(calibrated_types(s, c, err));
    return oq_cal_check(c, err);
}

/* A cache that is not there may be mistyped, where nothing else gives ranges. */
static onq_code open_samples(oq_static *s, oq_source **out, const oq_walker **walker,
                             onq_error *err) {
    const char *cache = cache_path(s);
    char near[400];
    const onq_code rc = oq_job_raw_source(s->q.job, s->q.model, out, walker, err);
    if (rc == ONQ_OK || cache == NULL || oq_opt_is_set(s->q.job->opts, "data"))
        return rc;
    oq_near_path_text(&s->q.job->arena, cache, near, sizeof near);
    return oq_error_in(err, rc, "the calibration cache '%s' does not exist%s, and cannot be made",
                       cache, near);
}

static onq_code calibrate(oq_static *s, onq_error *err) {
    oq_cal_options options;
    oq_source *source = NULL;
    const double begin = oq_seconds();
    OQ_TRY(calibration_options(s, &options, err));
    OQ_TRY(oq_static_open_engine(s, err));
    oq_cal_job job = {.model = s->q.model,
                      .shapes = s->q.shapes,
                      .engine = s->q.engine,
                      .options = &options,
                      .extents = s->q.job->opts->shared.extents};
    if (!oq_opt_flag(s->q.job->opts, "no_verify"))
        job.first = &s->q.record;
    OQ_TRY(oq_job_session(s->q.job, &job.session, err));
    OQ_TRY(open_samples(s, &source, &job.walker, err));
    job.source = source;
    if (oq_cal_reads_once(&options) && !oq_quant_refines(&s->q))
        oq_source_read_once(source);
    onq_code rc = oq_calibrate(&job, &s->q.ranges, err);
    s->q.has_ranges = rc == ONQ_OK;
    if (rc == ONQ_OK)
        rc = oq_job_tell_samples(s->q.job, s->q.model, source, true, err);
    oq_source_close(source);
    s->q.seconds_calibration = oq_seconds() - begin;
    return rc;
}

/* The reference's histograms do not see nodes inside If, Loop and Scan; if there are no others it
 * fails. */
static onq_code check_histograms(oq_static *s, onq_error *err) {
    bool any = false;
    oq_qconfig outer = s->q.config;
    oq_qrun run = s->q.run;
    if (!outer.as_reference || !oq_cal_class_of(s->method)->histogram || s->q.has_ranges)
        return ONQ_OK;
    outer.enable_subgraph = false;
    run.config = &outer;
    OQ_TRY(oq_reach_has_work(s->q.model, &run, s->q.shapes, s->q.modes, &any, err));
    if (any)
        return ONQ_OK;
    return oq_fail(err, ONQ_E_INVALID,
                   "histogram has not been collected: no operator outside of If, Loop and Scan has "
                   "float tensors (minmax does without)");
}

onq_code oq_static_make_ranges(oq_static *s, onq_error *err) {
    assert(s->q.model != NULL && s->q.shapes != NULL);
    bool any = false;
    if (s->q.run.given != NULL) { /* the plan has the parameters */
        if (s->q.has_ranges)
            oq_ranges_release(&s->q.ranges);
        oq_ranges_init(&s->q.ranges, &s->q.job->env->alloc, s->method);
        s->q.has_ranges = true;
        return ONQ_OK;
    }
    OQ_TRY(check_histograms(s, err));
    OQ_TRY(oq_reach_has_work(s->q.model, &s->q.run, s->q.shapes, s->q.modes, &any, err));
    if (!any) {
        oq_info(s->q.job->env,
                "nothing to quantize: no operator %sthat is asked for has float tensors of known "
                "type",
                s->q.config.enable_subgraph ? "" : "of the main graph ");
        if (!s->q.has_ranges)
            oq_ranges_init(&s->q.ranges, &s->q.job->env->alloc, s->method);
        s->q.has_ranges = true;
        return ONQ_OK;
    }
    if (s->q.has_ranges)
        return ONQ_OK;
    OQ_TRY(calibrate(s, err));
    s->q.ranges.smooth_quant = s->q.config.smooth_quant;
    s->unsaved = true;
    if (cache_path(s) != NULL) {
        OQ_TRY(oq_ranges_save(&s->q.ranges, s->q.job->env, cache_path(s), err));
        s->unsaved = false;
    }
    return ONQ_OK;
}
