/*
 * auto_targets.c — what the result of `onq auto` must reach: the targets that were given, or
 * the one that the outputs speak for.
 */
#include "api/auto/auto_job.h"

#include <math.h>

/* Probabilities from 0 to 1, of which some are above one half. */
static onq_code check_masks(const oq_auto *a, onq_error *err) {
    double least = INFINITY, most = -INFINITY;
    for (size_t i = 0; i < a->choose.steps.n; i++) {
        const oq_datum *d = a->choose.n_outputs > 0 ? &a->choose.steps.v[i].outputs[0] : NULL;
        const oq_dtype_info *info = d != NULL ? oq_dtype_find((int64_t)d->dtype) : NULL;
        for (uint64_t k = 0; info != NULL && info->cls == OQ_CLASS_REAL && k < d->count; k++) {
            least = fmin(least, oq_datum_real(d, k));
            most = fmax(most, oq_datum_real(d, k));
        }
    }
    if (!(least >= 0 && most <= 1))
        return oq_fail(err, ONQ_E_INVALID,
                       "--target iou: the first output does not hold probabilities from 0 to 1, "
                       "so it is no mask (--target sqnr=DB)");
    return most > OQ_DECIDED_AT ? ONQ_OK
                                : oq_fail(err, ONQ_E_INVALID,
                                          "--target iou: no number of the first output is above "
                                          "0.5 in these samples (--target sqnr=DB)");
}

/* A target over classes where no output is known to have them: those of the first output. */
static onq_code check_classes(oq_auto *a, oq_metric metric, onq_error *err) {
    oq_meaning *m = &a->meaning;
    const oq_datum *first = a->choose.n_outputs > 0 ? &a->choose.steps.v[0].outputs[0] : NULL;
    if (metric == OQ_METRIC_NEIGHBOURS &&
        (first == NULL || oq_rows_of(first) == 0 || first->rank < 2 || first->rank > 3))
        return oq_fail(
            err, ONQ_E_INVALID,
            "--target neighbours: the first output is not [N, C] or [N, T, C], so it has "
            "no embeddings (--target sqnr=DB)");
    if (metric == OQ_METRIC_DETECTIONS && m->detector == NULL)
        return oq_fail(err, ONQ_E_INVALID,
                       "--target detections: the outputs are not known as boxes with scores, or no "
                       "score is above 0.3 (--target sqnr=DB)");
    if (metric == OQ_METRIC_TEXT_AGREEMENT && !m->is_text)
        return oq_fail(
            err, ONQ_E_INVALID,
            "--target text_agreement: no output is known to hold the rows of a text with "
            "blanks between characters (--target sample_agreement=PERCENT)");
    if (metric == OQ_METRIC_IOU)
        return check_masks(a, err);
    const bool needs = metric == OQ_METRIC_AGREEMENT || metric == OQ_METRIC_SAMPLE_AGREEMENT ||
                       metric == OQ_METRIC_KL || metric == OQ_METRIC_PERPLEXITY_RISE;
    if (!needs)
        return ONQ_OK;
    if (m->classes >= a->choose.n_outputs)
        m->classes = 0;
    const oq_datum *d = a->choose.n_outputs > 0 ? &a->choose.steps.v[0].outputs[m->classes] : NULL;
    const bool numbers = d != NULL && m->why != NULL && d->count > 0 && oq_rows_of(d) == 0;
    if (d == NULL || (oq_rows_of(d) == 0 && (!numbers || metric > OQ_METRIC_SAMPLE_AGREEMENT)))
        return oq_fail(err, ONQ_E_INVALID,
                       "--target %s: the first output has no classes along its last axis "
                       "(--target sqnr=DB)",
                       oq_metric_of(metric)->name);
    if (metric == OQ_METRIC_PERPLEXITY_RISE && !m->language.causal)
        return oq_fail(err, ONQ_E_INVALID,
                       "--target perplexity_rise is for language models that predict the next "
                       "token of input_ids (--target kl=X)");
    if (metric == OQ_METRIC_KL && m->links[m->classes] != OQ_LINK_NONE)
        return oq_fail(err, ONQ_E_INVALID, "--target kl needs logits, not probabilities");
    return ONQ_OK;
}

/* Outputs that are boxes with scores, where a target needs to know of them; numbers that are no
 * classes; or one probability. */
static onq_code look_at_outputs(oq_auto *a, onq_error *err) {
    const oq_trials *set = &a->choose;
    const bool by_default = a->tune.targets.n == 0;
    bool boxes = by_default;
    for (size_t i = 0; i < a->tune.targets.n; i++)
        boxes |= a->tune.targets.v[i].metric == OQ_METRIC_DETECTIONS;
    if (a->meaning.language.is || a->meaning.n != set->n_outputs)
        return ONQ_OK;
    const oq_datum **outputs = OQ_NEW_ARRAY(&a->job->arena, const oq_datum *, set->steps.n + 1);
    OQ_TRY_ALLOC(outputs != NULL, err);
    for (size_t i = 0; i < set->steps.n; i++)
        outputs[i] = set->steps.v[i].outputs;
    if (boxes)
        OQ_TRY(oq_detector_find(&a->job->arena, outputs, set->steps.n, &a->meaning,
                                &a->meaning.detector, err));
    /* Labels say that there are classes. */
    if (by_default && !oq_opt_is_set(a->job->opts, "labels"))
        OQ_TRY(oq_meaning_look(&a->meaning, outputs, set->steps.n, &a->job->arena, err));
    OQ_TRY(oq_meaning_find_parts(&a->meaning, outputs, set->steps.n, &a->job->arena, err));
    oq_meaning_decide(&a->meaning, outputs, set->steps.n);
    return ONQ_OK;
}

/* Classes that are read as texts, likewise. */
static onq_code find_texts(oq_auto *a, onq_error *err) {
    bool needed = a->tune.targets.n == 0;
    for (size_t i = 0; i < a->tune.targets.n; i++)
        needed |= a->tune.targets.v[i].metric == OQ_METRIC_TEXT_AGREEMENT;
    return needed && !a->meaning.language.is && a->meaning.detector == NULL && !a->meaning.decision
               ? oq_trials_find_texts(&a->choose, &a->meaning, err)
               : ONQ_OK;
}

onq_code oq_auto_set_targets(oq_auto *a, onq_error *err) {
    oq_tune *t = &a->tune;
    OQ_TRY(look_at_outputs(a, err));
    OQ_TRY(find_texts(a, err));
    if (t->targets.n == 0) {
        a->by_default =
            oq_meaning_target(&a->meaning, a->choose.steps.v[0].outputs, a->choose.n_outputs,
                              oq_trial_batch(&a->choose.steps.v[0]));
        const oq_target first = {a->by_default.metric, a->by_default.value};
        OQ_TRY_ALLOC(OQ_PUSH(&a->job->arena, &t->targets, first), err);
    }
    for (size_t i = 0; i < t->targets.n; i++) {
        OQ_TRY(check_classes(a, t->targets.v[i].metric, err));
        a->meaning.wanted[t->targets.v[i].metric] = true;
    }
    OQ_TRY(oq_trials_look(&a->choose, err));
    t->language = a->meaning.language.is;
    t->allow_nbits |= t->language && !oq_opt_is_set(a->job->opts, "allow");
    return ONQ_OK;
}
