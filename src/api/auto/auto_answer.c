/*
 * auto_answer.c — what `onq auto` takes in the end: the model is calibrated with all samples, run
 * on a few of them, and written with its report and its recipe.
 */
#include "api/auto/auto_job.h"
#include "quantize/ort/stamp.h"

#define CHECKED 4 /* samples that the model that is written runs on */

static onq_code save(oq_auto *a, onq_error *err) {
    const bool external = oq_opt_flag(a->job->opts, "use_external_data_format");
    const oq_save_options options = {.external = external ? OQ_EXTERNAL_ONE : OQ_EXTERNAL_KEEP,
                                     .threshold = OQ_STAMP_APART(1024),
                                     .attributes = true};
    oq_model *m = NULL;
    OQ_TRY(oq_model_open(a->job->env, a->path, &a->tune.open, &m, err));
    /* A candidate that was made is as that version wants it; float as given may not be. */
    onq_code rc = oq_for_runtime_fit(a->job, m, &a->fitted, err);
    if (rc == ONQ_OK)
        rc = oq_job_save(a->job, "output", m, &options, NULL, err);
    oq_model_free(m);
    return rc;
}

/* The model that is written, calibrated with all samples. */
static onq_code make_chosen(oq_auto *a, onq_error *err) {
    oq_candidate *c = a->chosen;
    assert(c != NULL);
    const oq_trials *set = a->eval_data ? &a->report : &a->choose;
    oq_score seen;
    a->finishing = true;
    const bool calibrates = c != a->tune.rival_found && oq_recipe_calibrates(&c->recipe);
    if (!calibrates && c->path != NULL && !a->eval_data) { /* it is there, and was looked at */
        a->path = c->path;
        return ONQ_OK;
    }
    if (calibrates) {
        OQ_TRY(oq_auto_make(a, &c->recipe, NULL, &a->path, &c->size, err));
    } else {
        OQ_TRY(oq_tune_ensure(&a->tune, c, err));
        a->path = c->path;
    }
    OQ_TRY(oq_tune_report(&a->tune, a->path, set, a->eval_data ? SIZE_MAX : CHECKED, &seen, err));
    if (oq_score_is_wrong(&seen))
        return oq_fail(err, ONQ_E_RUNTIME,
                       "%s: calibrated with all samples its outputs have other shapes, or no "
                       "numbers",
                       c->label);
    if (!a->eval_data)
        return ONQ_OK;
    seen.figures[OQ_METRIC_METRIC] = c->score.figures[OQ_METRIC_METRIC];
    c->report = seen;
    return oq_tune_report(&a->tune, NULL, set, SIZE_MAX, &a->tune.flt->report, err);
}

static onq_code refuse(const oq_auto *a, onq_error *err) {
    const oq_candidate *last = a->tune.all.v[a->tune.all.n - 1];
    if (a->nearest == NULL)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "nothing could be quantized: %.400s",
                       last->why_not != NULL ? last->why_not
                       : a->tune.stopped     ? "there was no time for it"
                                             : "nothing in integers is as fast as float");
    return oq_fail(err, ONQ_E_UNSUPPORTED,
                   "no candidate reaches the target; the most accurate, %s, has %.1f dB (a lower "
                   "--target, or without --strict float is written)",
                   a->nearest->label, oq_score_of(&a->nearest->score, OQ_METRIC_SQNR));
}

/* Where too few samples are all that keeps a candidate from the target: how many would do. */
static uint64_t samples_needed(const oq_auto *a) {
    uint64_t least = 0;
    for (size_t i = 0; i < a->tune.all.n; i++) {
        const oq_candidate *c = a->tune.all.v[i];
        if (!c->ok || c->exact || oq_score_is_wrong(&c->score) || !oq_is_no_slower(c, a->tune.flt))
            continue;
        const uint64_t n = oq_samples_needed(&a->tune.targets, &c->score);
        least = n > 0 && (least == 0 || n < least) ? n : least;
    }
    return least;
}

/* Of those no slower than the model to beat the most accurate; the model itself if it is that. */
static void choose_over_rival(oq_auto *a) {
    oq_candidate *best = a->tune.rival_found;
    for (size_t i = 0; i < a->tune.all.n; i++) {
        oq_candidate *c = a->tune.all.v[i];
        if (c->ok && !oq_score_is_wrong(&c->score) && oq_is_no_slower(c, a->tune.rival_found) &&
            oq_is_more_accurate(&a->tune.targets, c, best))
            best = c;
    }
    a->chosen = best;
    a->chosen->report = a->chosen->report.samples > 0 ? a->chosen->report : a->chosen->score;
}

static onq_code choose(oq_auto *a, onq_error *err) {
    const onq_options *o = a->job->opts;
    OQ_TRY(oq_tune_settle(&a->tune, &a->chosen, &a->reached, err));
    if (a->chosen == NULL)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "there is no candidate at all");
    a->nearest = oq_choose_nearest(&a->tune.all, &a->tune.targets);
    if (!a->reached && a->nearest != NULL)
        OQ_TRY(oq_tune_complete(&a->tune, a->nearest, err));
    a->needed = a->reached ? 0 : samples_needed(a);
    if (a->tune.rival_found != NULL)
        choose_over_rival(a);
    else if (!a->reached && oq_opt_flag(o, "strict"))
        return refuse(a, err);
    else if (!a->reached && oq_opt_flag(o, "best_effort") && a->nearest != NULL) {
        a->chosen = a->nearest;
        a->chosen->report = a->chosen->report.samples > 0 ? a->chosen->report : a->chosen->score;
    }
    if (a->tune.flt->report.samples == 0)
        a->tune.flt->report = a->tune.flt->score;
    if (a->tune.prefer == OQ_PREFER_SPEED && a->tune.rival_found == NULL)
        a->cheaper = oq_choose_cheaper(&a->tune.all, &a->tune.targets, a->chosen, &a->lower_target);
    return ONQ_OK;
}

onq_code oq_auto_answer(oq_auto *a, onq_error *err) {
    const onq_options *o = a->job->opts;
    size_t *order = OQ_NEW_ARRAY(&a->job->arena, size_t, a->tune.all.n + 1);
    OQ_TRY_ALLOC(order != NULL, err);
    OQ_TRY(choose(a, err));
    oq_curve(&a->tune.all, &a->tune.targets, order);
    OQ_TRY(make_chosen(a, err));
    OQ_TRY(save(a, err));
    if (oq_opt_is_set(o, "recipe"))
        OQ_TRY(oq_auto_write_recipe(a, oq_opt_str(o, "recipe"), err));
    a->seconds = oq_seconds() - a->tune.begin;
    a->cpu_seconds = oq_tune_cpu(&a->tune);
    a->counted_seconds = oq_tune_spent(&a->tune);
    if (oq_opt_is_set(o, "report"))
        OQ_TRY(oq_auto_write_report(a, oq_opt_str(o, "report"), err));
    oq_auto_text(a);
    oq_for_runtime_tell(a->job, &a->fitted);
    oq_auto_json(a, &a->job->json);
    return ONQ_OK;
}
