/*
 * calibrator.c — onq_calibrator: calibration in portions, as create_calibrator, collect_data and
 * compute_data of the reference.
 */
#include "api/commands/cal_options.h"
#include "api/interface/ranges_handle.h"
#include "api/isolate/isolate.h"
#include "api/samples.h"
#include "debug/augment.h"

struct onq_calibrator {
    oq_job job;
    oq_model *model;
    oq_engine *engine;
    oq_cal_options options;
    oq_calibration *run; /* opened by the first portion */
    oq_buf augmented;
};

static onq_code open_model(onq_calibrator *c, onq_error *err) {
    const onq_options *o = c->job.opts;
    if (strcmp(o->command->info.name, "calibrate") != 0 || !oq_opt_is_set(o, "input"))
        return oq_fail(err, ONQ_E_OPTION,
                       "a calibrator needs options of the command 'calibrate' with its input");
    if (oq_opt_is_set(o, "calib_strided_minmax"))
        return oq_fail(err, ONQ_E_OPTION,
                       "calib_strided_minmax divides samples into portions, and a calibrator gets "
                       "them in portions");
    OQ_TRY(oq_cal_options_read(&c->job, &c->options, err));
    return oq_job_open(&c->job, oq_opt_str(o, "input"), &c->model, err);
}

onq_code onq_calibrator_new(onq_env *env, const onq_options *opts, onq_calibrator **out,
                            onq_error *err) {
    *out = NULL;
    OQ_TRY(oq_isolate_refuse(opts, err));
    onq_calibrator *c = oq_calloc(&env->alloc, 1, sizeof *c);
    OQ_TRY_ALLOC(c != NULL, err);
    c->job = (oq_job){.env = env, .opts = opts};
    oq_arena_init(&c->job.arena, &env->alloc);
    oq_buf_init(&c->augmented, &env->alloc);
    const onq_code rc = open_model(c, err);
    if (rc == ONQ_OK)
        *out = c;
    else
        onq_calibrator_free(c);
    return rc;
}

void onq_calibrator_free(onq_calibrator *cal) {
    if (cal == NULL)
        return;
    const onq_allocator *alloc = &cal->job.env->alloc;
    oq_calibration_close(cal->run);
    oq_engine_close(cal->engine);
    oq_model_free(cal->model);
    oq_buf_release(&cal->augmented);
    oq_arena_release(&cal->job.arena);
    oq_free(alloc, cal, sizeof *cal);
}

onq_code onq_calibrator_augmented(onq_calibrator *cal, const void **data, size_t *size,
                                  onq_error *err) {
    oq_model *m = NULL; /* the calibrator runs its own as it is */
    onq_code rc = ONQ_OK;
    *data = NULL;
    *size = 0;
    if (cal->augmented.n == 0) {
        OQ_TRY(oq_job_open(&cal->job, oq_opt_str(cal->job.opts, "input"), &m, err));
        rc = oq_debug_augment_ranges(m, &cal->options, err);
        if (rc == ONQ_OK)
            rc = oq_model_encode(m, &cal->augmented, err);
        oq_model_free(m);
    }
    if (rc != ONQ_OK) {
        cal->augmented.n = 0;
        return rc;
    }
    *data = cal->augmented.p;
    *size = cal->augmented.n;
    return ONQ_OK;
}

/* ---- collecting ---- */

static onq_code begin(onq_calibrator *c, onq_error *err) {
    oq_cal_job job = {.model = c->model, .options = &c->options};
    if (c->run != NULL)
        return ONQ_OK;
    if (c->engine == NULL)
        OQ_TRY(oq_job_engine(&c->job, &c->engine, err));
    job.engine = c->engine;
    OQ_TRY(oq_job_session(&c->job, &job.session, err));
    OQ_TRY(oq_job_walker(&c->job, c->model, &job.walker, err));
    return oq_calibration_open(&job, &c->run, err);
}

static onq_code run_portion(onq_calibrator *c, const onq_reader *reader, onq_error *err) {
    oq_source *source = NULL;
    const oq_walker *walker = NULL;                /* known since the calibration was opened */
    assert(c->run != NULL && c->job.tape == NULL); /* a portion has its own tape */
    onq_code rc = reader != NULL ? oq_job_read(&c->job, reader, err) : ONQ_OK;
    if (rc == ONQ_OK)
        rc = oq_job_raw_source(&c->job, c->model, &source, &walker, err);
    if (rc == ONQ_OK)
        rc = oq_calibration_collect(c->run, source, err);
    oq_source_close(source);
    oq_job_close_steps(&c->job);
    oq_tape_free(c->job.tape);
    c->job.tape = NULL;
    return rc;
}

onq_code onq_calibrator_collect(onq_calibrator *cal, const onq_reader *reader, onq_error *err) {
    onq_env *env = cal->job.env;
    const unsigned threads_before = env->n_threads;
    if (oq_opt_is_set(cal->job.opts, "threads"))
        env->n_threads = (unsigned)oq_opt_int(cal->job.opts, "threads");
    onq_code rc = begin(cal, err);
    if (rc == ONQ_OK)
        rc = run_portion(cal, reader, err);
    env->n_threads = threads_before;
    return rc;
}

onq_code onq_calibrator_compute(onq_calibrator *cal, onq_ranges **out, onq_error *err) {
    oq_ranges r;
    *out = NULL;
    if (cal->run == NULL)
        return oq_fail(err, ONQ_E_INVALID, "no data is collected: there was no portion of samples");
    OQ_TRY(oq_calibration_result(cal->run, &r, err));
    oq_job_tell_steps(&cal->job);
    return oq_ranges_hand_over(cal->job.env, &r, out, err);
}
