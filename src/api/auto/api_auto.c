/*
 * api_auto.c — `onq auto`: looks for the best quantized model by itself.
 *
 * The model is prepared, the samples are divided into those that choose and those that report, the
 * search (tune.h) tries recipes, and what it chooses is written with the commands that make it
 * again.
 */
#include "api/auto/auto_job.h"
#include "api/options/shared_rows.h"
#include "base/system/temp.h"
#include "engine/ort.h"
#include "onnx/check/check.h"
#include "onnx/graph.h"
#include "onnx/summary/summary.h"

#define PREFERENCES(ROW)                                                                           \
    ROW("speed", OQ_PREFER_SPEED)                                                                  \
    ROW("size", OQ_PREFER_SIZE)                                                                    \
    ROW("accuracy", OQ_PREFER_ACCURACY)

#define SEARCH_PART 0.97 /* of --time_limit; what is left writes the answer */

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
            "accurate of them is chosen, and float stays float unless a quantized model saves 4 %. "
            "With size or accuracy, a slower model is written, with a "
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

/* ---- what a search may go on from ---- */

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
    OQ_TRY(oq_auto_open_samples(a, err));
    OQ_TRY(oq_auto_set_targets(a, err));
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
    return oq_auto_answer(a, err);
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
