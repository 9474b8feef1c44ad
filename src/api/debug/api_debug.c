/*
 * api_debug.c — `onq debug --float_model F --qdq_model Q [--data S] [-o report.html]`: where the
 * accuracy goes.
 */
#include "api/causes/causes.h"
#include "api/causes/lifted.h"
#include "api/debug/debug_about.h"
#include "api/debug/debug_along.h"
#include "api/options/shared_rows.h"
#include "api/samples.h"
#include "debug/search/search.h"
#include "onnx/check/check.h"
#include "onnx/summary/summary.h"

static const onq_option_info rows[] = {
    OQ_PATH("float_model", 'i', "float input input_model input_model_path", "FILE",
            "The model before quantization."),
    OQ_PATH("qdq_model", 0, "quantized_model quant_model qdq", "FILE",
            "The quantized model: QDQ, integer operators, dynamic or weight-only."),
    OQ_ROW_OUTPUT("report", "FILE", "Write the report as one HTML file that needs no network."),
    OQ_INT("top", 'n', "", "20", "0..1000000", "N", "Rows of the ranking to print; 0 means all."),
    OQ_FLAG("no_kernel_check", 0, "",
            "Do not run the quantized model a second time with the runtime's optimisations."),
    OQ_FLAG("quick", 0, "",
            "Do not look for the cause by making the model again in other ways. By default the "
            "search takes at most ten times the CPU time of bare inference, or 10 seconds of it "
            "where that is more."),
    OQ_FLAG("sensitivity", 0, "",
            "Measure the outputs with one unit at a time quantized, and rank the units by the "
            "result. A unit is a node, or a product with its Relu or Clip (static models; needs "
            "--data)."),
    OQ_LIST("groups", 0, "group_by", "GROUP",
            "With --sensitivity or --bisect: nodes to try together. op_type groups by operator, "
            "block by the name up to its first part with a number; a name or a pattern "
            "(re:^/layer1/) is a group of its own."),
    OQ_FLAG("bisect", 0, "",
            "Find the smallest set of nodes to exclude that reaches --target_sqnr or "
            "--target_agreement."),
    OQ_REAL("target_sqnr", 0, "", "", "-200..400", "DB",
            "With --bisect: SQNR in dB that the outputs must reach."),
    OQ_REAL("target_agreement", 0, "", "", "0..100", "PERCENT",
            "With --bisect: how often the largest output must stay the same, in percent; a value "
            "up to 1 is a fraction."),
    OQ_PATH("overrides", 0, "tensor_quant_overrides", "FILE",
            "Write the result of --bisect, or the worst node or group of --sensitivity, as an "
            "overrides file: 16 bits for the tensors of these nodes."),
    OQ_PATH("exclude_list", 0, "", "FILE",
            "Write the nodes that --bisect found, or those of the worst unit of --sensitivity, one "
            "a line, for --nodes_to_exclude @FILE. Without both, write the nodes that the remedy "
            "against the cause leaves float; its command reads them from the file."),
    /* Own sense: a file that is written. */
    OQ_PATH("node_methods", 0, "", "FILE",
            "Write the same nodes as a JSON file for --node_methods of onq static, which leaves "
            "them float."),
    OQ_ROW_TIME_LIMIT("--sensitivity or --bisect"),
    OQ_ROW_MEMORY("512m", "running several samples at once, beyond that of one run, and, with "
                          "--sensitivity or --bisect, for tensors in the middle of the graph, so "
                          "that the part before them need not run again."),
    OQ_ROW_JOBS,
    OQ_ROW_DATA_ROOT,
};
static const oq_opt_group own = OQ_GROUP("Models and report", rows);

typedef struct debugging {
    oq_job *job;
    oq_model *flt, *quantized;
    oq_engine *engine;
    oq_source *float_source, *quantized_source;
    oq_debug_run run;
    oq_debug d;
    oq_debug_search found;
    oq_lifted lifted; /* what was searched in place of integer operators */
    oq_debug_about about;
    oq_diagnosis diagnosis;
    oq_tally along; /* of models with states */
} debugging;

/* Samples that a search uses unless --limit says otherwise: it runs them once for each node. */
#define SEARCH_SAMPLES 16

static onq_code check_options(const onq_options *o, onq_error *err) {
    const bool bisect = oq_opt_flag(o, "bisect");
    const bool target = oq_opt_is_set(o, "target_sqnr") || oq_opt_is_set(o, "target_agreement");
    if (bisect && !target)
        return oq_fail(err, ONQ_E_OPTION,
                       "--bisect needs --target_sqnr DB or --target_agreement PERCENT");
    if (target && !bisect)
        return oq_fail(err, ONQ_E_OPTION, "--target_sqnr and --target_agreement need --bisect");
    if (oq_opt_is_set(o, "groups") && !bisect && !oq_opt_flag(o, "sensitivity"))
        return oq_fail(err, ONQ_E_OPTION, "--groups needs --sensitivity or --bisect");
    static const char *const need_search[] = {"overrides", "node_methods", "time_limit"};
    for (size_t i = 0; i < OQ_COUNT(need_search); i++)
        if (oq_opt_is_set(o, need_search[i]) && !bisect && !oq_opt_flag(o, "sensitivity"))
            return oq_fail(err, ONQ_E_OPTION, "--%s needs --sensitivity or --bisect",
                           need_search[i]);
    if (oq_opt_is_set(o, "exclude_list") && !bisect && !oq_opt_flag(o, "sensitivity") &&
        (!oq_opt_is_set(o, "data") || oq_opt_flag(o, "quick")))
        return oq_fail(err, ONQ_E_OPTION,
                       "--exclude_list needs --data SOURCE without --quick, or --sensitivity or "
                       "--bisect");
    if ((bisect || oq_opt_flag(o, "sensitivity")) && !oq_opt_is_set(o, "data"))
        return oq_fail(err, ONQ_E_OPTION, "--%s needs --data SOURCE",
                       bisect ? "bisect" : "sensitivity");
    return ONQ_OK;
}

static onq_code write_overrides(const debugging *g, onq_error *err) {
    const char *path = oq_opt_str(g->job->opts, "overrides");
    if (path == NULL)
        return ONQ_OK;
    oq_jw w;
    OQ_SCRATCH_BUF(text, &g->job->env->alloc);
    oq_jw_init(&w, &text, true);
    oq_jw_begin_object(&w, NULL);
    oq_debug_search_overrides(&g->found, &w);
    oq_jw_end_object(&w);
    oq_buf_addc(&text, '\n');
    return oq_job_save_text(g->job, "overrides", &text, err);
}

static onq_code write_list(const debugging *g, onq_error *err) {
    const char *path = oq_opt_str(g->job->opts, "exclude_list");
    if (path == NULL)
        return ONQ_OK;
    OQ_SCRATCH_BUF(text, &g->job->env->alloc);
    oq_debug_search_list(&g->found, &text);
    return oq_job_save_text(g->job, "exclude_list", &text, err);
}

/* The nodes that the remedy leaves float, where nothing was searched. */
static onq_code write_floats(const debugging *g, onq_error *err) {
    if (oq_opt_str(g->job->opts, "exclude_list") == NULL || g->d.search != NULL)
        return ONQ_OK;
    OQ_SCRATCH_BUF(text, &g->job->env->alloc);
    oq_diagnosis_floats(&g->diagnosis, &text);
    if (text.n > 0)
        return oq_job_save_text(g->job, "exclude_list", &text, err);
    oq_warn(g->job->env, "--exclude_list: no remedy leaves nodes float, so no list is written");
    return ONQ_OK;
}

static onq_code write_methods(const debugging *g, onq_error *err) {
    oq_jw w;
    if (oq_opt_str(g->job->opts, "node_methods") == NULL)
        return ONQ_OK;
    OQ_SCRATCH_BUF(text, &g->job->env->alloc);
    oq_jw_init(&w, &text, true);
    oq_jw_begin_object(&w, NULL);
    oq_debug_search_methods(&g->found, &w);
    oq_jw_end_object(&w);
    oq_buf_addc(&text, '\n');
    return oq_job_save_text(g->job, "node_methods", &text, err);
}

static onq_code search(debugging *g, onq_error *err) {
    const onq_options *o = g->job->opts;
    if (!oq_opt_flag(o, "sensitivity") && !oq_opt_flag(o, "bisect"))
        return ONQ_OK;
    oq_debug_target t = {.bisect = oq_opt_flag(o, "bisect"),
                         .sqnr = NAN,
                         .agreement = NAN,
                         .overrides = oq_opt_str(o, "overrides") != NULL,
                         .memory = oq_opt_size(o, "memory")};
    if (oq_opt_is_set(o, "target_sqnr"))
        t.sqnr = oq_opt_real(o, "target_sqnr");
    if (oq_opt_is_set(o, "target_agreement")) {
        const double p = oq_opt_real(o, "target_agreement");
        t.agreement = p > 1 ? p / 100 : p;
    }
    if (oq_opt_is_set(o, "time_limit"))
        t.seconds = oq_opt_real(o, "time_limit");
    t.groups = oq_opt_list(o, "groups", &t.n_groups);
    t.most_samples = oq_opt_is_set(o, "limit") ? UINT64_MAX : SEARCH_SAMPLES;
    oq_debug *d = &g->d;
    if (oq_lifted_needs(d)) {
        OQ_TRY(oq_lifted_open(&g->lifted, g->job, d, err));
        d = &g->lifted.d;
    }
    OQ_TRY(oq_debug_run_search(d, &g->run, &t, &g->found, err));
    g->d.search = &g->found;
    OQ_TRY(write_list(g, err));
    OQ_TRY(write_methods(g, err));
    return write_overrides(g, err);
}

static onq_code run_models(debugging *g, onq_error *err) {
    oq_job *job = g->job;
    oq_debug_run *run = &g->run;
    run->kernel = !oq_opt_flag(job->opts, "no_kernel_check");
    run->jobs = (unsigned)oq_opt_int(job->opts, "jobs");
    run->memory = oq_opt_size(job->opts, "memory");
    const oq_walker *walker = NULL;
    OQ_TRY(oq_job_walker(job, g->flt, &walker, err));
    run->roles = walker != NULL ? &walker->roles : NULL;
    OQ_TRY(oq_job_source(job, g->flt, &g->float_source, err));
    OQ_TRY(oq_job_source(job, g->quantized, &g->quantized_source, err));
    if (g->d.histograms)
        oq_source_keep_names(g->float_source);
    OQ_TRY(oq_job_engine(job, &g->engine, err));
    OQ_TRY(oq_job_session(job, &run->session, err));
    run->engine = g->engine;
    run->float_source = g->float_source;
    run->quantized_source = g->quantized_source;
    OQ_TRY(oq_debug_activations(&g->d, run, err));
    OQ_TRY(oq_debug_along(job, &g->d, g->engine, &g->along, err));
    return oq_job_tell_samples(job, g->flt, g->float_source, false, err);
}

static onq_code write_report(debugging *g, onq_error *err) {
    const char *path = oq_opt_str(g->job->opts, "output");
    if (path == NULL)
        return ONQ_OK;
    const oq_debug_run *run = g->d.n_samples > 0 ? &g->run : NULL;
    OQ_TRY(oq_debug_describe(g->job, &g->d, run, run != NULL && run->kernel, &g->about, err));
    OQ_TRY(oq_diagnosis_report(&g->diagnosis, &g->job->arena, &g->about, err));
    g->d.about = &g->about;
    OQ_SCRATCH_BUF(page, &g->job->env->alloc);
    OQ_TRY(oq_debug_report(&g->d, &page, err));
    return oq_job_save_text(g->job, "output", &page, err);
}

static onq_code is_quantized(debugging *g, oq_model *m, bool *yes, onq_error *err) {
    oq_summary s;
    OQ_TRY(oq_summary_make(&s, &g->job->arena, m, NULL, err));
    *yes = oq_quantized_any(&s.quant);
    return ONQ_OK;
}

/* Models given the wrong way round. */
static onq_code check_order(debugging *g, onq_error *err) {
    bool flt = false, quantized = false;
    OQ_TRY(is_quantized(g, g->flt, &flt, err));
    OQ_TRY(is_quantized(g, g->quantized, &quantized, err));
    if (flt && !quantized)
        return oq_fail(
            err, ONQ_E_INVALID,
            "%s: is quantized, and %s is not: are --float_model and --qdq_model swapped?",
            g->flt->path, g->quantized->path);
    if (flt)
        oq_warn(g->job->env,
                "%s: the float model is itself quantized; what it has already lost is not measured",
                g->flt->path);
    return ONQ_OK;
}

/* Models that have nothing to do with each other. Inputs and outputs are at the same place in all
 * models, so a match by place alone says nothing. */
static onq_code check_kinship(const debugging *g, onq_error *err) {
    const oq_debug *d = &g->d;
    size_t known = d->weights.n;
    for (size_t i = 0; i < d->acts.n; i++)
        known += d->acts.v[i].flt.p != NULL && !d->acts.v[i].by_place;
    if (known > 0 || d->unmatched.n + d->acts.n == 0)
        return ONQ_OK;
    return oq_fail(
        err, ONQ_E_INVALID,
        "%s: none of its %zu quantized tensors has a counterpart in %s: was it made from another "
        "model?",
        g->quantized->path, d->unmatched.n + d->acts.n, g->flt->path);
}

static onq_code run_steps(debugging *g, onq_error *err) {
    oq_job *job = g->job;
    const onq_options *o = job->opts;
    OQ_TRY(check_options(o, err));
    OQ_TRY(oq_job_open(job, oq_opt_str(o, "float_model"), &g->flt, err));
    OQ_TRY(oq_job_open(job, oq_opt_str(o, "qdq_model"), &g->quantized, err));
    OQ_TRY(oq_model_check(g->flt, err));
    OQ_TRY(oq_model_check(g->quantized, err));
    OQ_TRY(check_order(g, err));
    oq_debug_init(&g->d, job->env, g->flt, g->quantized);
    g->d.histograms = oq_opt_is_set(o, "output");
    onq_code rc = oq_debug_match(&g->d, err);
    if (rc == ONQ_OK)
        rc = oq_debug_weights(&g->d, err);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "%s", g->quantized->path);
    OQ_TRY(check_kinship(g, err));
    if (oq_opt_is_set(o, "data"))
        OQ_TRY(run_models(g, err));
    OQ_TRY(search(g, err));
    OQ_TRY(oq_debug_rank(&g->d, err));
    if (g->d.n_samples > 0 && !oq_opt_flag(o, "quick"))
        OQ_TRY(oq_debug_causes(job, &g->d, &g->run, &g->diagnosis, err));
    OQ_TRY(write_floats(g, err));
    if (g->d.weights.n == 0 && g->d.acts.n == 0)
        oq_warn(job->env, "%s: nothing in it is quantized", g->quantized->path);
    OQ_TRY(write_report(g, err));
    oq_diagnosis_text(&g->diagnosis, &job->text);
    oq_debug_text(&g->d, (size_t)oq_opt_int(o, "top"), &job->text);
    oq_diagnosis_json(&g->diagnosis, &job->json);
    oq_debug_json(&g->d, &job->json);
    if (g->d.search != NULL) {
        oq_debug_search_text(&g->found, (size_t)oq_opt_int(o, "top"), oq_opt_str(o, "exclude_list"),
                             &job->text);
        oq_debug_search_json(&g->found, &job->json);
    }
    return ONQ_OK;
}

static onq_code run_debug(oq_job *job, onq_error *err) {
    debugging g = {.job = job, .run = {.began = oq_cpu_seconds()}};
    onq_code rc = run_steps(&g, err);
    oq_lifted_release(&g.lifted);
    oq_tally_release(&g.along);
    if (g.d.env != NULL)
        oq_debug_release(&g.d);
    oq_source_close(g.float_source);
    oq_source_close(g.quantized_source);
    oq_engine_close(g.engine);
    oq_model_free(g.flt);
    oq_model_free(g.quantized);
    return rc;
}

const oq_command oq_command_debug = {
    .info = {"debug", "", "show where a quantized model loses accuracy",
             "Compares a quantized model with the float model it came from: every weight with its "
             "dequantized twin and, with --data, every activation before and after quantization "
             "and across the models (as qdq_loss_debug of onnxruntime.quantization does). The "
             "tensors that lose most come first, with the likely reason. Loss by quantization is "
             "separated from saturation in the runtime's kernels."},
    .required = "float_model qdq_model",
    .groups = {&own, &oq_group_data, &oq_group_runtime, &oq_group_general, &oq_group_verify_idle},
    .run = run_debug,
};
