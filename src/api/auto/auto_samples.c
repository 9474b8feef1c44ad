/*
 * auto_samples.c — the samples of `onq auto`: what float makes of them, those that choose and those
 * that report, and their division into parts that calibrate and parts that judge.
 */
#include "api/auto/auto_job.h"
#include "api/samples.h"

#define FLOAT_PART  0.25 /* of it: float's runs over the samples, if these are many */
#define LATEST_PART 0.5  /* if they are few */
#define PLENTY      128  /* samples: one split does */
#define FEW         8    /* samples: halves of them calibrate badly */
#define PARTS       4

typedef OQ_VEC(oq_recipe_option) sample_options;

static onq_code add_option(oq_arena *a, sample_options *v, const char *name, const char *value,
                           onq_error *err) {
    return value != NULL && OQ_PUSH(a, v, (oq_recipe_option){name, value}) ? ONQ_OK
                                                                           : oq_fail_nomem(err);
}

/* The options of this job that say what the samples are. */
static onq_code find_sample_options(oq_auto *a, onq_error *err) {
    oq_arena *arena = &a->job->arena;
    sample_options v = {0};
    for (size_t i = 0; i < oq_group_data.n; i++) {
        const onq_option_info *row = &oq_group_data.rows[i];
        const oq_opt_value *x = oq_opt_get(a->job->opts, row->name);
        if (strcmp(row->name, "hold_out") == 0 || (!x->is_set && strcmp(row->name, "data") != 0))
            continue;
        const oq_str folder = oq_path_folder(a->tune.float_path);
        const size_t n = row->type == ONQ_OPT_LIST ? x->list.n : 1;
        if (!x->is_set)
            OQ_TRY(add_option(arena, &v, "data", oq_str_cstr(arena, folder), err));
        for (size_t k = 0; x->is_set && k < n; k++)
            OQ_TRY(add_option(arena, &v, row->name, oq_opt_text(arena, x, k), err));
    }
    a->tune.samples = v.v;
    a->tune.n_samples = v.n;
    return ONQ_OK;
}

static onq_code fill(oq_auto *a, const oq_source_options *o, oq_session *flt, oq_trials *out,
                     uint64_t memory, onq_error *err) {
    oq_source *source = NULL;
    OQ_TRY(oq_job_open_source(a->job, o, &source, err));
    onq_code rc = oq_source_measure(source, err);
    if (rc == ONQ_OK)
        rc = oq_trials_fill(out, source, flt, memory, err);
    if (rc == ONQ_OK)
        rc = oq_job_tell_samples(a->job, a->model, source, true, err);
    oq_source_close(source);
    return rc;
}

/* The labels of the samples, which come in their order. */
static onq_code give_labels(oq_auto *a, oq_trials *set, onq_error *err) {
    uint64_t seen = 0, right = 0;
    for (size_t i = 0; i < set->steps.n; i++) {
        oq_trial_step *x = &set->steps.v[i];
        x->labels = a->labels.v + seen;
        if (set->n_outputs == 0)
            return oq_fail(err, ONQ_E_INVALID, "labels need an output");
        OQ_TRY(oq_labels_count(&a->labels, &x->outputs[0], &seen, &right, err));
    }
    return oq_labels_end(&a->labels, seen, err);
}

static onq_code read_labels(oq_auto *a, onq_error *err) {
    const char *path = oq_opt_str(a->job->opts, "labels");
    if (!oq_opt_is_set(a->job->opts, "labels"))
        return ONQ_OK;
    OQ_TRY(oq_labels_read(&a->labels, &a->job->arena, &a->job->env->alloc, path, err));
    if (a->choose.left_out + a->report.left_out > 0)
        return oq_fail(err, ONQ_E_INVALID,
                       "%s: labels need all samples, which do not fit (--memory)", path);
    return give_labels(a, a->eval_data ? &a->report : &a->choose, err);
}

/* Samples of --eval_data, which report and do nothing else. */
static onq_code fill_report(oq_auto *a, const oq_source_options *o, oq_session *flt,
                            uint64_t memory, onq_error *err) {
    oq_source_options eval = *o;
    a->eval_data = oq_opt_is_set(a->job->opts, "eval_data");
    if (!a->eval_data)
        return ONQ_OK;
    eval.spec = oq_opt_str(a->job->opts, "eval_data");
    eval.tape = NULL;
    eval.limit = 0;
    return fill(a, &eval, flt, &a->report, memory, err);
}

/* Where samples are few, each part of them judges what the others calibrated; where there are
 * plenty, one half judges what the other calibrated. What is taken in the end is measured again by
 * another division. */
static onq_code divide(oq_auto *a, onq_error *err) {
    const size_t n = a->choose.all.n;
    if (n >= PLENTY) {
        OQ_TRY(oq_trials_divide(&a->choose, 2, 0, &a->folds, err));
        a->again = (oq_division){.folds = a->folds.folds + 1, .n = 1, .apart = true};
        a->folds.n = 1;
    } else {
        OQ_TRY(oq_trials_divide(&a->choose, n < FEW ? PARTS : 2, 0, &a->folds, err));
        OQ_TRY(oq_trials_divide(&a->choose, n < FEW ? PARTS : 2, 1, &a->again, err));
    }
    a->tune.folds = &a->folds;
    a->tune.again = n > 1 ? &a->again : NULL;
    return ONQ_OK;
}

static onq_code fill_sets(oq_auto *a, oq_session *flt, onq_error *err) {
    const uint64_t memory = oq_opt_size(a->job->opts, "memory");
    const bool eval_data = oq_opt_is_set(a->job->opts, "eval_data");
    oq_source_options o;
    OQ_TRY(oq_job_source_options(a->job, a->model, &o, err));
    if (o.hold_out > 1)
        return oq_fail(err, ONQ_E_OPTION,
                       "--hold_out is for other commands; auto divides the "
                       "samples itself (--eval_data)");
    OQ_TRY(find_sample_options(a, err));
    if (a->tune.deadline > 0 && !oq_opt_is_set(a->job->opts, "labels")) {
        a->choose.until = a->tune.begin + FLOAT_PART * (a->tune.deadline - a->tune.begin);
        a->choose.latest = a->tune.begin + LATEST_PART * (a->tune.deadline - a->tune.begin);
    }
    OQ_TRY(fill(a, &o, flt, &a->choose, eval_data ? memory - memory / 4 : memory, err));
    if (a->tune.deadline <= 0 || oq_seconds() + 2 * a->tune.opened < a->tune.deadline)
        OQ_TRY(oq_trials_decode(&a->choose, flt, err));
    OQ_TRY(fill_report(a, &o, flt, memory / 4, err));
    if (a->choose.left_out > 0)
        oq_warn(a->job->env, "%llu of %llu %s do not fit in --memory%s and are not used to choose",
                (unsigned long long)a->choose.left_out,
                (unsigned long long)(a->choose.left_out + a->choose.all.n),
                oq_trials_word(&a->choose), a->choose.until > 0 ? " or --time_limit" : "");
    OQ_TRY(divide(a, err));
    return read_labels(a, err);
}

/* Float's outputs on all samples. */
onq_code oq_auto_open_samples(oq_auto *a, onq_error *err) {
    oq_session *flt = NULL;
    oq_session_options o;
    const oq_walker *walker = NULL;
    OQ_TRY(oq_job_walker(a->job, a->model, &walker, err));
    OQ_TRY(oq_meaning_find(a->model, walker != NULL ? &walker->roles : NULL, &a->job->arena,
                           &a->meaning, err));
    oq_trials_init(&a->choose, &a->job->env->alloc, &a->meaning);
    oq_trials_init(&a->report, &a->job->env->alloc, &a->meaning);
    a->choose.walker = a->report.walker = walker;
    OQ_TRY(oq_job_engine(a->job, &a->engine, err));
    OQ_TRY(oq_job_session(a->job, &o, err));
    a->tune.session = o;
    o.model = a->model;
    o.level = OQ_OPT_ALL;
    o.n_threads = OQ_THREADS_RUNTIME;
    o.no_spinning = true;
    const double begin = oq_seconds();
    OQ_TRY(oq_session_open(a->engine, &o, &flt, err));
    a->tune.opened = oq_seconds() - begin;
    const onq_code rc = fill_sets(a, flt, err);
    oq_session_close(flt);
    return rc;
}
