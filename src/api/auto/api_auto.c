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
#include "onnx/check/check.h"
#include "onnx/graph.h"
#include "quantize/ort/stamp.h"

#define PREFERENCES(ROW)                                                                           \
    ROW("speed", OQ_PREFER_SPEED)                                                                  \
    ROW("size", OQ_PREFER_SIZE)                                                                    \
    ROW("accuracy", OQ_PREFER_ACCURACY)

static const onq_option_info rows[] = {
    OQ_ROW_TARGET(
        "What the result must reach; several targets must all be reached. agreement=PERCENT "
        "(the same class as float over the last axis of the first output), sqnr=DB and "
        "cosine=X (of the worst output), accuracy_drop=PERCENT (with --labels), metric=X (of "
        "--evaluate). Default: agreement=99 if the first output holds scores of classes, "
        "otherwise sqnr=30."),
    OQ_TEXT("evaluate", 0, "", "", "COMMAND",
            "A command that prints one number for a model, for --target metric=X; larger is "
            "better. {model} in it is replaced by the name of the model."),
    OQ_PATH("eval_data", 0, "", "SOURCE",
            "Samples for the report, which take no part in the choice. Default: a fifth of "
            "--data, at least 8 samples if there are 16."),
    OQ_ROW_LABELS(", over --eval_data if it is given, otherwise over --data."),
    OQ_ENUM("prefer", 0, "", "speed", OQ_CHOICES(PREFERENCES), "WHAT",
            "What decides among candidates that reach the target. Those within 5 % of the fastest "
            "or smallest, or within the noise of the measured times, count as equal; the most "
            "accurate of them is chosen."),
    /* Own sense: a target that is not reached. */
    OQ_FLAG("strict", 0, "", "Write nothing and fail if no candidate reaches the target."),
    OQ_ROW_TIME_LIMIT("the search"),
    OQ_LIST("allow", 0, "", "WAY",
            "Kinds of quantization to try: static, dynamic, qoperator (static, with integer "
            "operators), float16 (for parts that stay float: only the weights, or everything), "
            "nbits (only weights, 4 or 8 bits). Default: static, dynamic."),
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

static onq_code read_targets(oq_auto *a, onq_error *err) {
    size_t n = 0;
    const oq_str *list = oq_opt_list(a->job->opts, "target", &n);
    for (size_t i = 0; i < n; i++) {
        oq_target t;
        OQ_TRY(oq_target_read(list[i], &t, err));
        if (t.metric == OQ_METRIC_METRIC && !oq_opt_is_set(a->job->opts, "evaluate"))
            return oq_fail(err, ONQ_E_OPTION, "--target metric=X needs --evaluate COMMAND");
        if (t.metric == OQ_METRIC_ACCURACY_DROP && !oq_opt_is_set(a->job->opts, "labels"))
            return oq_fail(err, ONQ_E_OPTION, "--target accuracy_drop=X needs --labels FILE");
        if (!OQ_PUSH(&a->job->arena, &a->tune.targets.all, t))
            return oq_fail_nomem(err);
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
    OQ_TRY(read_targets(a, err));
    OQ_TRY(read_allowed(a, err));
    t->prefer = OQ_CHOSEN(o, "prefer", oq_prefer, PREFERENCES);
    t->begin = oq_seconds();
    if (oq_opt_real(o, "time_limit") > 0)
        t->deadline = t->begin + oq_opt_real(o, "time_limit");
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

/* The options of this job that say what the samples are, and how many are held out. */
static onq_code find_sample_options(oq_auto *a, uint64_t hold_out, onq_error *err) {
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
    if (hold_out > 1)
        OQ_TRY(add_option(arena, &v, "hold_out",
                          oq_str_format(arena, "%llu", (unsigned long long)hold_out).p, err));
    a->tune.samples = v.v;
    a->tune.n_samples = v.n;
    return ONQ_OK;
}

static onq_code fill(oq_auto *a, const oq_source_options *o, oq_session *truth, oq_trials *out,
                     uint64_t memory, onq_error *err) {
    oq_source *source = NULL;
    OQ_TRY(oq_job_open_source(a->job, o, &source, err));
    onq_code rc = oq_source_measure(source, err);
    if (rc == ONQ_OK)
        rc = oq_trials_fill(out, source, truth, memory, err);
    oq_source_close(source);
    return rc;
}

/* The labels of the samples, which come in the order of all of them. */
static onq_code give_labels(oq_auto *a, oq_trials *const sets[], size_t n_sets, onq_error *err) {
    size_t at[2] = {0};
    uint64_t seen = 0, right = 0;
    for (;;) {
        size_t next = n_sets;
        for (size_t i = 0; i < n_sets; i++)
            if (at[i] < sets[i]->all.n &&
                (next == n_sets ||
                 sets[i]->all.v[at[i]].sample.number < sets[next]->all.v[at[next]].sample.number))
                next = i;
        if (next == n_sets)
            return oq_labels_end(&a->labels, seen, err);
        oq_trial *x = &sets[next]->all.v[at[next]++];
        x->labels = a->labels.v + seen;
        if (sets[next]->n_outputs == 0)
            return oq_fail(err, ONQ_E_INVALID, "labels need an output");
        OQ_TRY(oq_labels_count(&a->labels, &x->outputs[0], &seen, &right, err));
    }
}

static onq_code read_labels(oq_auto *a, bool eval_data, onq_error *err) {
    const char *path = oq_opt_str(a->job->opts, "labels");
    if (!oq_opt_is_set(a->job->opts, "labels"))
        return ONQ_OK;
    OQ_TRY(oq_labels_read(&a->labels, &a->job->arena, &a->job->env->alloc, path, err));
    if (a->choose.left_out + a->report.left_out > 0)
        return oq_fail(err, ONQ_E_INVALID,
                       "%s: labels need all samples, which do not fit (--memory)", path);
    oq_trials *both[] = {&a->choose, &a->report}, *second[] = {&a->report};
    return eval_data ? give_labels(a, second, 1, err)
                     : give_labels(a, both, a->report_is_own ? 2 : 1, err);
}

/* Samples that report: --eval_data, else those held out; else the others must do. */
static onq_code fill_report(oq_auto *a, oq_source_options *o, oq_session *truth, uint64_t memory,
                            uint64_t hold_out, onq_error *err) {
    a->report_is_own = true;
    if (oq_opt_is_set(a->job->opts, "eval_data")) {
        oq_source_options eval = *o;
        eval.spec = oq_opt_str(a->job->opts, "eval_data");
        eval.tape = NULL;
        eval.limit = 0;
        eval.hold_out = 0;
        return fill(a, &eval, truth, &a->report, memory, err);
    }
    a->report_is_own = hold_out > 1;
    if (!a->report_is_own)
        return ONQ_OK;
    o->share = hold_out - 1;
    o->n_shares = hold_out;
    o->hold_out = 0;
    return fill(a, o, truth, &a->report, memory, err);
}

static onq_code fill_sets(oq_auto *a, oq_session *truth, onq_error *err) {
    const uint64_t memory = oq_opt_size(a->job->opts, "memory");
    const bool eval_data = oq_opt_is_set(a->job->opts, "eval_data");
    oq_source_options o;
    oq_source *source = NULL;
    OQ_TRY(oq_job_source_options(a->job, a->model, &o, err));
    if (o.hold_out > 1)
        return oq_fail(err, ONQ_E_OPTION,
                       "--hold_out is for other commands; auto divides the "
                       "samples itself (--eval_data)");
    OQ_TRY(oq_job_open_source(a->job, &o, &source, err));
    const onq_code rc = oq_source_measure(source, err);
    const uint64_t n = oq_source_count(source), hold_out = eval_data ? 0 : oq_hold_out(n);
    oq_source_close(source);
    OQ_TRY(rc);
    OQ_TRY(find_sample_options(a, hold_out, err));
    o.hold_out = hold_out;
    OQ_TRY(fill(a, &o, truth, &a->choose, memory - memory / 4, err));
    OQ_TRY(fill_report(a, &o, truth, memory / 4, hold_out, err));
    if (a->choose.left_out > 0)
        oq_warn(a->job->env,
                "%llu of %llu samples do not fit in --memory and are not used to choose",
                (unsigned long long)a->choose.left_out,
                (unsigned long long)(a->choose.left_out + a->choose.all.n));
    return read_labels(a, eval_data, err);
}

/* Float's outputs on all samples, and what is to be reached on them. */
static onq_code open_samples(oq_auto *a, onq_error *err) {
    const oq_link *links = NULL;
    oq_session *truth = NULL;
    oq_session_options o;
    OQ_TRY(oq_link_find(a->model, &a->job->arena, &links, &a->classes, err));
    oq_trials_init(&a->choose, &a->job->env->alloc, links);
    oq_trials_init(&a->report, &a->job->env->alloc, links);
    OQ_TRY(oq_job_engine(a->job, &a->engine, err));
    OQ_TRY(oq_job_session(a->job, &o, err));
    a->tune.session = o;
    o.model = a->model;
    o.level = OQ_OPT_ALL;
    o.n_threads = OQ_THREADS_RUNTIME;
    OQ_TRY(oq_session_open(a->engine, &o, &truth, err));
    const onq_code rc = fill_sets(a, truth, err);
    oq_session_close(truth);
    return rc;
}

static onq_code default_target(oq_auto *a, onq_error *err) {
    const bool rows_there =
        a->choose.n_outputs > 0 && oq_rows_of(&a->choose.all.v[0].outputs[0]) > 0;
    oq_target t = {OQ_METRIC_SQNR, 30};
    if (a->classes && rows_there)
        t = (oq_target){OQ_METRIC_AGREEMENT, 99};
    for (size_t i = 0; i < a->tune.targets.all.n; i++)
        if (a->tune.targets.all.v[i].metric == OQ_METRIC_AGREEMENT && !rows_there)
            return oq_fail(err, ONQ_E_INVALID,
                           "--target agreement: the first output has no classes along its last "
                           "axis (--target sqnr=DB)");
    return a->tune.targets.all.n > 0 || OQ_PUSH(&a->job->arena, &a->tune.targets.all, t)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

/* ---- the answer ---- */

static onq_code save(oq_auto *a, onq_error *err) {
    const bool external = oq_opt_flag(a->job->opts, "use_external_data_format");
    const oq_save_options options = {.external = external ? OQ_EXTERNAL_ONE : OQ_EXTERNAL_KEEP,
                                     .threshold = OQ_STAMP_APART(1024),
                                     .attributes = true};
    oq_model *m = NULL;
    OQ_TRY(oq_model_open(a->job->env, a->chosen->path, &a->tune.open, &m, err));
    const onq_code rc = oq_job_save(a->job, "output", m, &options, NULL, err);
    oq_model_free(m);
    return rc;
}

static onq_code report(oq_auto *a, onq_error *err) {
    const oq_trials *set = a->report_is_own ? &a->report : &a->choose;
    for (size_t i = 0; i < a->tune.all.n; i++) {
        oq_candidate *c = a->tune.all.v[i];
        if (c->ok && (c == a->chosen || c->on_curve))
            OQ_TRY(oq_tune_report(&a->tune, c, set, err));
    }
    return oq_tune_report(&a->tune, a->tune.truth, set, err);
}

static onq_code refuse(const oq_auto *a, onq_error *err) {
    if (a->chosen->recipe.command == NULL)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "nothing could be quantized: %.400s",
                       a->tune.all.v[a->tune.all.n - 1]->why_not != NULL
                           ? a->tune.all.v[a->tune.all.n - 1]->why_not
                           : "there was no time for it");
    return oq_fail(err, ONQ_E_UNSUPPORTED,
                   "no candidate reaches the target; the most accurate, %s, has %.1f dB (a lower "
                   "--target, or without --strict it is written)",
                   a->chosen->label, a->chosen->score.sqnr);
}

static onq_code answer(oq_auto *a, onq_error *err) {
    const onq_options *o = a->job->opts;
    size_t *order = OQ_NEW_ARRAY(&a->job->arena, size_t, a->tune.all.n + 1);
    if (order == NULL)
        return oq_fail_nomem(err);
    a->chosen = oq_choose(&a->tune.all, &a->tune.targets, a->tune.prefer, &a->reached);
    if (a->chosen == NULL)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "there is no candidate at all");
    if (!a->reached && oq_opt_flag(o, "strict"))
        return refuse(a, err);
    oq_curve(&a->tune.all, order);
    OQ_TRY(report(a, err));
    OQ_TRY(save(a, err));
    if (oq_opt_is_set(o, "recipe"))
        OQ_TRY(oq_auto_write_recipe(a, oq_opt_str(o, "recipe"), err));
    a->seconds = oq_seconds() - a->tune.begin;
    if (oq_opt_is_set(o, "report"))
        OQ_TRY(oq_auto_write_report(a, oq_opt_str(o, "report"), err));
    oq_auto_text(a);
    oq_auto_json(a, &a->job->json);
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
    for (size_t i = 0; i < t->n_samples; i++)
        oq_buf_addf(&job, ", %s %s", t->samples[i].name, t->samples[i].value);
    const onq_code rc = job.failed ? oq_fail_nomem(err)
                                   : oq_state_open(&a->tune.state, a->job->env,
                                                   oq_opt_is_set(a->job->opts, "resume")
                                                       ? oq_opt_str(a->job->opts, "resume")
                                                       : NULL,
                                                   job.p, err);
    oq_buf_release(&job);
    return rc;
}

static onq_code see_inner(void *ctx, oq_graph *g, onq_error *err) {
    oq_auto *a = ctx;
    (void)err;
    a->tune.inner |= g != a->model->proto->graph;
    return ONQ_OK;
}

static onq_code run_steps(oq_auto *a, onq_error *err) {
    oq_tune *t = &a->tune;
    OQ_TRY(read_options(a, err));
    t->float_path = oq_job_input(a->job);
    OQ_TRY(oq_job_open(a->job, t->float_path, &a->model, err));
    OQ_TRY(oq_model_check(a->model, err));
    OQ_TRY(oq_model_size(a->model, &t->float_size, err));
    OQ_TRY(oq_walk_graphs(a->model->proto->graph, see_inner, a, err));
    OQ_TRY(open_samples(a, err));
    OQ_TRY(default_target(a, err));
    OQ_TRY(oq_temp_make(&a->job->arena, &a->folder, err));
    OQ_TRY(oq_auto_write_input(a, err));
    OQ_TRY(oq_auto_prepare(a, err));
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
    oq_auto a = {.job = job, .quiet = *job->env};
    a.quiet.log_fn = NULL;
    oq_channel_memory_init(&a.channels, &job->env->alloc);
    onq_code rc = run_steps(&a, err);
    oq_temp_remove(a.folder);
    oq_state_close(&a.tune.state);
    oq_channel_memory_release(&a.channels);
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
         "quantization, compares each candidate with float on samples and times it on this "
         "machine. It writes the chosen model and shows its figures on held-out samples and the "
         "commands that make it again. The answer may be to leave the model float."},
    .required = "input output",
    .groups = {&oq_group_input, &oq_group_output, &own, &oq_group_data, &oq_group_runtime,
               &oq_group_general, &oq_group_verify_idle},
    .run = run_auto,
};
