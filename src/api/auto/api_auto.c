/*
 * api_auto.c — `onq auto`: looks for the best quantized model by itself.
 *
 * The model is prepared, the samples are divided into those that choose and those that report, the
 * search (tune.h) tries recipes, and what it chooses is written with the commands that make it
 * again.
 */
#include "api/auto/auto_job.h"
#include "api/options/shared_rows.h"
#include "api/samples.h"
#include "base/system/file.h"
#include "base/system/temp.h"
#include "base/text/number_text.h"
#include "engine/ort.h"
#include "onnx/check/check.h"
#include "onnx/graph.h"
#include "onnx/summary/summary.h"
#include "quantize/ort/stamp.h"

#include <math.h>

#define PREFERENCES(ROW)                                                                           \
    ROW("speed", OQ_PREFER_SPEED)                                                                  \
    ROW("size", OQ_PREFER_SIZE)                                                                    \
    ROW("accuracy", OQ_PREFER_ACCURACY)

#define SEARCH_PART 0.97 /* of --time_limit; what is left writes the answer */
#define FLOAT_PART  0.25 /* of it: float's runs over the samples, if these are many */
#define LATEST_PART 0.5  /* if they are few */
#define PLENTY      128  /* samples: one split does */
#define FEW         8    /* samples: halves of them calibrate badly */
#define PARTS       4
#define CHECKED     4 /* samples that the model that is written runs on */

static const onq_option_info rows[] = {
    OQ_ROW_TARGET(
        "What the result must reach; several targets must all be reached. agreement=PERCENT "
        "(the same class as float over the last axis of the first output that holds classes), "
        "sample_agreement=PERCENT (in all rows of a sample), text_agreement=PERCENT (the same "
        "text, for recognisers that are read by CTC), sqnr=DB and cosine=X (of the "
        "worst output), neighbours=PERCENT (embeddings of the first output: the same nearest "
        "neighbour by cosine), iou=PERCENT (masks: the first output above 0.5), "
        "detections=PERCENT (boxes with scores: F1 of the boxes with a score above 0.3, which are "
        "the same if they overlap by half), kl=X and "
        "perplexity_rise=PERCENT (language models), accuracy_drop=PERCENT (with --labels), "
        "metric=X (of --evaluate). Default: agreement=99 if an output holds scores of "
        "classes or one probability, sample_agreement=98 if it holds a sequence of them, "
        "text_agreement=98 if it is "
        "a text, kl=0.1 for a language model, detections=95 for a detector, otherwise sqnr=30."),
    OQ_TEXT("evaluate", 0, "", "", "COMMAND",
            "A command that prints one number for a model, for --target metric=X; larger is "
            "better. {model} in it is replaced by the name of the model."),
    OQ_PATH("eval_data", 0, "", "SOURCE",
            "Samples for the report, which take no part in calibration or in the choice."),
    OQ_ROW_LABELS(", over --eval_data if it is given, otherwise over --data."),
    OQ_ENUM("prefer", 0, "", "speed", OQ_CHOICES(PREFERENCES), "WHAT",
            "What decides among candidates that reach the target and are no slower than float. "
            "For a decoder with a cache, speed is that of one token after a text, and the text at "
            "once may take at most 1.25 times as long as with float. "
            "Times that differ by less than their noise (2 % at most) count as equal; the most "
            "accurate of them is chosen. With size or accuracy, a slower model is written, with a "
            "warning, if all quantized ones are slower."),
    OQ_FLAG("best_effort", 0, "",
            "If no quantized candidate reaches the target, write the most accurate one, with a "
            "warning, instead of the fastest float model."),
    /* Own sense: a target that is not reached. */
    OQ_FLAG("strict", 0, "",
            "Write nothing and fail if no quantized candidate reaches the target."),
    OQ_PATH("improve", 0, "", "FILE",
            "A quantized model to beat: the answer is the most accurate candidate that is no "
            "slower, or this model if there is none."),
    OQ_ROW_TIME_LIMIT("the search"),
    OQ_REAL("effort", 0, "", "30", "0..", "TIMES",
            "The most processor time that the search and its answer may take, as a multiple of "
            "what the float model takes to run once over the samples (if less, 0.2 seconds "
            "count). What would cost more is left out, and the answer names it; 0 means no limit."),
    OQ_LIST("allow", 0, "", "WAY",
            "Kinds of quantization to try: static, dynamic, qoperator (static, with integer "
            "operators), float16 (for parts that stay float: only the weights, or everything), "
            "nbits (only weights, 4 or 8 bits). Default: static, dynamic, and nbits for a "
            "language model."),
    OQ_INT("max_float_units", 0, "", "", "0..", "N",
           "Leave at most N units (a Conv, Gemm or MatMul with its Relu or Clip) float."),
    OQ_PATH("report", 0, "", "FILE",
            "Write an HTML page with the answer, all candidates, and the curve of accuracy against "
            "time, on which you can pick another point."),
    OQ_PATH("recipe", 0, "", "FILE", "Write the commands that make the same bytes."),
    OQ_PATH("resume", 0, "", "FILE",
            "Keep all measurements in this file; if it exists, continue from there."),
    OQ_ROW_MEMORY("2g", "samples and their float outputs; samples that do not fit are left out."),
};
static const oq_opt_group own = OQ_GROUP("Search", rows);

/* ---- options ---- */

static onq_code check_target(const oq_auto *a, const oq_target *t, onq_error *err) {
    if (t->metric == OQ_METRIC_METRIC && !oq_opt_is_set(a->job->opts, "evaluate"))
        return oq_fail(err, ONQ_E_OPTION, "--target metric=X needs --evaluate COMMAND");
    if (t->metric == OQ_METRIC_ACCURACY_DROP && !oq_opt_is_set(a->job->opts, "labels"))
        return oq_fail(err, ONQ_E_OPTION, "--target accuracy_drop=X needs --labels FILE");
    return ONQ_OK;
}

static onq_code read_targets(oq_auto *a, onq_error *err) {
    size_t n = 0;
    const oq_str *list = oq_opt_list(a->job->opts, "target", &n);
    for (size_t i = 0; i < n; i++) {
        oq_target t;
        OQ_TRY(oq_target_read(list[i], &t, err));
        OQ_TRY(check_target(a, &t, err));
        OQ_TRY_ALLOC(OQ_PUSH(&a->job->arena, &a->tune.targets, t), err);
    }
    return ONQ_OK;
}

static onq_code read_allowed(oq_auto *a, onq_error *err) {
    oq_tune *t = &a->tune;
    const struct {
        const char *word;
        bool *allowed;
    } ways[] = {{"static", &t->allow_static},
                {"dynamic", &t->allow_dynamic},
                {"qoperator", &t->allow_qoperator},
                {"float16", &t->allow_float16},
                {"nbits", &t->allow_nbits}};
    size_t n = 0;
    const oq_str *list = oq_opt_list(a->job->opts, "allow", &n);
    t->allow_static = t->allow_dynamic = n == 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < OQ_COUNT(ways) && !oq_opt_same(list[i], oq_str_of(ways[k].word)))
            k++;
        if (k == OQ_COUNT(ways))
            return oq_fail(
                err, ONQ_E_OPTION,
                "--allow: '%.*s' is not one of static, dynamic, qoperator, float16, nbits",
                OQ_STR(list[i]));
        *ways[k].allowed = true;
    }
    return ONQ_OK;
}

static onq_code read_options(oq_auto *a, onq_error *err) {
    const onq_options *o = a->job->opts;
    const char *evaluate = oq_opt_str(o, "evaluate");
    oq_tune *t = &a->tune;
    if (evaluate != NULL && strstr(evaluate, "{model}") == NULL)
        return oq_fail(err, ONQ_E_OPTION, "--evaluate: '%.200s' has no {model}", evaluate);
    const oq_runtime *runtime = NULL;
    OQ_TRY(oq_for_runtime_read(a->job, &runtime, err));
    OQ_TRY(read_targets(a, err));
    OQ_TRY(read_allowed(a, err));
    t->prefer = OQ_CHOSEN(o, "prefer", oq_prefer, PREFERENCES);
    t->begin = oq_seconds();
    t->effort = oq_opt_real(o, "effort");
    t->takes_nearest = oq_opt_flag(o, "best_effort") || oq_opt_is_set(o, "improve");
    if (oq_opt_real(o, "time_limit") > 0)
        t->deadline = t->begin + SEARCH_PART * oq_opt_real(o, "time_limit");
    if (oq_opt_flag(o, "strict") && oq_opt_flag(o, "best_effort"))
        return oq_fail(err, ONQ_E_OPTION, "--strict and --best_effort cannot be used together");
    t->rival = oq_opt_is_set(o, "improve") ? oq_opt_str(o, "improve") : NULL;
    t->max_float_units =
        oq_opt_is_set(o, "max_float_units") ? (size_t)oq_opt_int(o, "max_float_units") : SIZE_MAX;
    t->n_threads = oq_opt_is_set(o, "threads") ? oq_env_threads(a->job->env) : 1;
    t->open.data_root = oq_opt_str(o, "data_root");
    t->evaluate = evaluate != NULL ? oq_auto_evaluate : NULL;
    return ONQ_OK;
}

/* ---- samples ---- */

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
static onq_code open_samples(oq_auto *a, onq_error *err) {
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

static onq_code set_targets(oq_auto *a, onq_error *err) {
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

/* ---- the answer ---- */

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

static onq_code answer(oq_auto *a, onq_error *err) {
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
    a->cpu_seconds = oq_tune_spent(&a->tune);
    if (oq_opt_is_set(o, "report"))
        OQ_TRY(oq_auto_write_report(a, oq_opt_str(o, "report"), err));
    oq_auto_text(a);
    oq_for_runtime_tell(a->job, &a->fitted);
    oq_auto_json(a, &a->job->json);
    return ONQ_OK;
}

/* Of all samples and of what float makes of them: of another model it is another one. */
static uint64_t digest(const oq_trials *set) {
    uint64_t sum = 0;
    for (size_t i = 0; i < set->steps.n; i++) {
        const oq_trial_step *x = &set->steps.v[i];
        const oq_sample made = {.inputs = x->outputs, .n_inputs = set->n_outputs};
        sum = sum * UINT64_C(0x9e3779b97f4a7c15) + oq_sample_hash(&x->sample) +
              3 * oq_sample_hash(&made);
    }
    return sum;
}

/* The runtime and its parts change the figures of a candidate, and so do the right answers. */
static onq_code add_options(const oq_auto *a, oq_buf *job, onq_error *err) {
    static const char *const names[] = {"onnxruntime", "provider", "for_runtime"};
    const onq_options *o = a->job->opts;
    size_t n = 0;
    const oq_str *list = oq_opt_list(o, "custom_ops", &n);
    for (size_t i = 0; i < OQ_COUNT(names); i++)
        if (oq_opt_is_set(o, names[i]))
            oq_buf_addf(job, ", %s %s", names[i], oq_opt_str(o, names[i]));
    for (size_t i = 0; i < n; i++)
        oq_buf_addf(job, ", custom_ops %.*s", OQ_STR(list[i]));
    uint64_t sum = 0;
    for (uint64_t i = 0; i < a->labels.n; i++)
        sum = 31 * sum + (uint64_t)a->labels.v[i];
    if (a->labels.v != NULL)
        oq_buf_addf(job, ", labels %016llx", (unsigned long long)sum);
    onq_runtime_info runtime;
    const bool named = oq_opt_is_set(o, "onnxruntime");
    OQ_TRY(oq_ort_query(a->job->env, named ? oq_opt_str(o, "onnxruntime") : NULL, &runtime, err));
    oq_buf_addf(job, ", runtime %s", runtime.version);
    return ONQ_OK;
}

/* What a search must have in common with one that it goes on from. */
static onq_code open_state(oq_auto *a, onq_error *err) {
    const oq_tune *t = &a->tune;
    oq_buf job;
    oq_buf_init(&job, &a->job->env->alloc);
    oq_buf_addf(&job, "%llu bytes, %zu + %zu samples, power %.17g, %u threads, evaluate %s",
                (unsigned long long)t->float_size, a->choose.all.n, a->report.all.n,
                a->choose.signal, t->n_threads,
                oq_opt_is_set(a->job->opts, "evaluate") ? oq_opt_str(a->job->opts, "evaluate")
                                                        : "");
    oq_buf_addf(&job, ", digest %016llx, float units %zu", (unsigned long long)digest(&a->choose),
                t->max_float_units);
    for (size_t i = 0; i < t->targets.n; i++) /* others are not measured */
        oq_buf_addf(&job, ", %s", oq_metric_of(t->targets.v[i].metric)->name);
    for (size_t i = 0; i < t->n_samples; i++)
        oq_buf_addf(&job, ", %s %s", t->samples[i].name, t->samples[i].value);
    onq_code rc = add_options(a, &job, err);
    if (rc == ONQ_OK)
        rc = job.failed ? oq_fail_nomem(err)
                        : oq_state_open(&a->tune.state, a->job->env,
                                        oq_opt_is_set(a->job->opts, "resume")
                                            ? oq_opt_str(a->job->opts, "resume")
                                            : NULL,
                                        job.p, err);
    oq_buf_release(&job);
    return rc;
}

/* Bodies that only move values, as exporters write them around a Squeeze, have nothing to
 * quantize. */
static onq_code see_graph(void *ctx, oq_graph *g, onq_error *err) {
    oq_auto *a = ctx;
    const bool inner = g != a->model->proto->graph;
    (void)err;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        const bool lstm = oq_node_is(n, "LSTM");
        a->tune.has_lstm |= lstm;
        a->tune.inner_lstm |= lstm && inner;
        a->tune.inner |= inner && oq_op_traits_of(n->op_type)->product != OQ_NO_PRODUCT;
    }
    return ONQ_OK;
}

/* The model is float; quantizing what is quantized makes it worse. */
static onq_code check_float(oq_auto *a, onq_error *err) {
    oq_summary s;
    OQ_TRY(oq_summary_make(&s, &a->job->arena, a->model, NULL, err));
    const uint64_t n = s.quant.quantize + s.quant.operators + s.quant.integer;
    if (n > 0)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "the model is quantized already: it has %llu quantized operators and "
                       "QuantizeLinear (give the float model; --improve names a quantized one to "
                       "beat)",
                       (unsigned long long)n);
    if (s.quant.dequantize + s.quant.weight_only > 0)
        oq_warn(a->job->env, "some weights are quantized already: they stay as they are");
    return ONQ_OK;
}

/* Progress of commands inside; it ends them when there is no time left, or they cost too much. */
static int watch(void *ctx, const char *what, uint64_t done, uint64_t total) {
    oq_auto *a = ctx;
    const onq_env *env = a->job->env;
    if (!a->finishing && (!oq_tune_has_time(&a->tune, 0) || oq_tune_overspends(&a->tune))) {
        a->late = true;
        return 1;
    }
    return env->progress_fn != NULL ? env->progress_fn(env->progress_ctx, what, done, total) : 0;
}

static onq_code run_steps(oq_auto *a, onq_error *err) {
    oq_tune *t = &a->tune;
    OQ_TRY(read_options(a, err));
    t->float_path = oq_job_input(a->job);
    OQ_TRY(oq_job_open(a->job, t->float_path, &a->model, err));
    OQ_TRY(oq_model_check(a->model, err));
    OQ_TRY(check_float(a, err));
    OQ_TRY(oq_model_size(a->model, &t->float_size, err));
    OQ_TRY(oq_walk_graphs(a->model->proto->graph, see_graph, a, err));
    OQ_TRY(open_samples(a, err));
    OQ_TRY(set_targets(a, err));
    OQ_TRY(oq_temp_make(&a->job->arena, &a->folder, err));
    OQ_TRY(oq_auto_write_input(a, err));
    if (t->rival != NULL)
        OQ_TRY(oq_auto_size(a, t->rival, &t->rival_size, err));
    t->env = a->job->env;
    t->model = a->model;
    t->arena = &a->job->arena;
    t->engine = a->engine;
    t->choose = &a->choose;
    t->make = oq_auto_make;
    t->drop = oq_auto_drop;
    t->ctx = a;
    OQ_TRY(open_state(a, err));
    OQ_TRY(oq_tune_search(t, err));
    return answer(a, err);
}

static onq_code run_auto(oq_job *job, onq_error *err) {
    oq_auto a = {.job = job, .quiet = *job->env, .tune = {.spending = {.began = oq_cpu_seconds()}}};
    a.quiet.silent = true;
    a.quiet.progress_fn = watch;
    a.quiet.progress_ctx = &a;
    onq_code rc = run_steps(&a, err);
    oq_tune_end(&a.tune);
    oq_temp_remove(a.folder);
    oq_state_close(&a.tune.state);
    oq_auto_forget(&a);
    oq_trials_release(&a.choose);
    oq_trials_release(&a.report);
    oq_engine_close(a.engine);
    if (a.model != NULL)
        rc = oq_job_blame(job, rc, err);
    oq_model_free(a.model);
    return rc;
}

const oq_command oq_command_auto = {
    .info =
        {"auto", "", "search for the best quantized model",
         "Searches for the fastest quantized model that is as accurate as --target requires. It "
         "prepares the model, tries operator sets, calibration methods, corrections and dynamic "
         "quantization, judges each candidate on samples that did not calibrate it, and times it "
         "on this machine. A target counts as reached when samples that nobody has seen will reach "
         "it with 95 % certainty. The model that is written is calibrated with all samples; the "
         "answer shows its figures and the commands that make it again. Where no quantized model "
         "reaches the target, or none is faster, the model stays float."},
    .required = "input output",
    .groups = {&oq_group_input, &oq_group_output, &own, &oq_group_data, &oq_group_runtime,
               &oq_group_general, &oq_group_verify_idle},
    .run = run_auto,
};
