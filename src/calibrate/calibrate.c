/*
 * calibrate.c — calibration jobs: all samples at once, one share of them, and shares joined.
 */
#include "calibrate/calibrate.h"

#include "calibrate/method/method.h"
#include "calibrate/partial.h"
#include "calibrate/runner.h"

onq_code oq_calibrate(const oq_cal_job *job, oq_ranges *out, onq_error *err) {
    assert(job->model != NULL && job->engine != NULL && job->source != NULL);
    oq_runner *r;
    onq_code rc = ONQ_OK;
    *out = (oq_ranges){0};
    OQ_TRY(oq_runner_new(job, NULL, &r, err));
    OQ_GO(oq_runner_all(r, err));
    oq_runner_close_sessions(r); /* their memory is not needed for what follows */
    oq_runner_tell(r);
    OQ_GO(oq_runner_finish(r, out, err));
done:
    oq_runner_free(r);
    return rc;
}

onq_code oq_calibrate_part(const oq_cal_job *job, const oq_cal_part *part, const char *path,
                           onq_error *err) {
    oq_runner *r;
    OQ_TRY(oq_runner_new(job, part, &r, err));
    const onq_code rc = oq_runner_share(r, path, err);
    oq_runner_tell(r);
    oq_runner_free(r);
    return rc;
}

onq_code oq_calibrate_join(const onq_env *env, const char *const *paths, size_t n, oq_ranges *out,
                           onq_error *err) {
    oq_collector c;
    oq_partial_meta m;
    *out = (oq_ranges){0};
    OQ_TRY(oq_partial_join(&c, &m, env, paths, n, OQ_STAGE_DONE, err));
    onq_code rc = ONQ_OK;
    if (oq_cal_class_of(c.options.method)->histogram)
        rc = oq_collect_end_chunk(&c, err);
    if (rc == ONQ_OK)
        rc = oq_collect_finish(&c, out, err);
    oq_collect_release(&c);
    return rc;
}
