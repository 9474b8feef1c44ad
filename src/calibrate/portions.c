/*
 * portions.c — calibration in portions (oq_calibration): one call of the reference's collect_data
 * each.
 */
#include "calibrate/method/method.h"
#include "calibrate/runner.h"

struct oq_calibration {
    oq_cal_job job;
    oq_cal_options options;
    oq_runner *r; /* NULL before the first portion */
    bool broken;
    bool has_ranges;
    oq_ranges ranges; /* MinMax: of all portions so far */
};

onq_code oq_calibration_open(const oq_cal_job *job, oq_calibration **out, onq_error *err) {
    *out = NULL;
    assert(!job->options->bounds_only); /* a later portion could ask for what was not counted */
    OQ_TRY(oq_cal_check(job->options, err));
    oq_calibration *c = oq_calloc(&job->engine->env->alloc, 1, sizeof *c);
    OQ_TRY_ALLOC(c != NULL, err);
    c->job = *job;
    c->options = *job->options;
    c->job.options = &c->options;
    *out = c;
    return ONQ_OK;
}

void oq_calibration_close(oq_calibration *c) {
    if (c == NULL)
        return;
    const onq_allocator *alloc = &c->job.engine->env->alloc;
    oq_runner_free(c->r);
    if (c->has_ranges)
        oq_ranges_release(&c->ranges);
    oq_free(alloc, c, sizeof *c);
}

static onq_code begin_portion(oq_calibration *c, oq_source *source, onq_error *err) {
    c->job.source = source;
    return c->r == NULL ? oq_runner_new(&c->job, NULL, &c->r, err) : oq_runner_next(c->r, err);
}

/* merge_range: the new ranges into the old. */
static onq_code join_ranges(const oq_cal_options *o, oq_ranges *all, const oq_ranges *more,
                            onq_error *err) {
    for (size_t i = 0; i < more->all.n; i++) {
        const oq_range *from = more->all.v[i];
        oq_range *to = oq_ranges_find(all, from->name);
        if (to == NULL || to->lowest.n != from->lowest.n)
            return oq_fail(err, ONQ_E_INVALID,
                           "tensor '%.*s' has other channels in this portion than in those before",
                           OQ_STR(from->name));
        for (size_t k = 0; k < to->lowest.n; k++)
            oq_cal_join(o, to->lowest.type, &to->lowest.v[k], &to->highest.v[k], from->lowest.v[k],
                        from->highest.v[k]);
    }
    return ONQ_OK;
}

static onq_code add_minmax(oq_calibration *c, onq_error *err) {
    oq_ranges more;
    OQ_TRY(oq_runner_finish(c->r, &more, err));
    if (!c->has_ranges) {
        /* Tensors whose values are only moved share the arrays of one range; joined, each needs its
         * own. */
        c->has_ranges = oq_ranges_clone(&c->ranges, more.arena.alloc, &more);
        oq_ranges_release(&more);
        return c->has_ranges ? ONQ_OK : oq_fail_nomem(err);
    }
    const onq_code rc = join_ranges(&c->options, &c->ranges, &more, err);
    oq_ranges_release(&more);
    return rc;
}

onq_code oq_calibration_collect(oq_calibration *c, oq_source *source, onq_error *err) {
    if (c->broken)
        return oq_fail(err, ONQ_E_INVALID,
                       "a portion of samples failed before; begin with a new calibrator");
    OQ_TRY(begin_portion(c, source, err));
    if (oq_runner_is_histogram(c->r)) {
        c->broken = true;
        OQ_TRY(oq_runner_all(c->r, err));
        c->broken = false;
    } else {
        const onq_code rc = oq_runner_all(c->r, err);
        if (rc == ONQ_E_INVALID && c->has_ranges && oq_source_is_empty(source)) {
            oq_error_clear(err);
            return ONQ_OK;
        }
        OQ_TRY(rc);
        OQ_TRY(add_minmax(c, err));
    }
    oq_runner_tell(c->r);
    return ONQ_OK;
}

onq_code oq_calibration_result(oq_calibration *c, oq_ranges *out, onq_error *err) {
    *out = (oq_ranges){0};
    if (c->r == NULL || c->broken || (!oq_runner_is_histogram(c->r) && !c->has_ranges))
        return oq_fail(err, ONQ_E_INVALID, "no data is collected");
    if (oq_runner_is_histogram(c->r))
        return oq_runner_finish(c->r, out, err);
    return oq_ranges_clone(out, &c->job.engine->env->alloc, &c->ranges) ? ONQ_OK
                                                                        : oq_fail_nomem(err);
}
