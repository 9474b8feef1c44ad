/*
 * api_debug.c — `onq debug --float_model F --qdq_model Q [--data S] [-o report.html]`: where the accuracy goes.
 */
#include "api/samples.h"
#include "debug/debug.h"

static const onq_option_info rows[] = {
    OQ_PATH("float_model", 'i', "float input input_model input_model_path", "FILE",
            "The model before quantization."),
    OQ_PATH("qdq_model", 0, "quantized_model quant_model qdq", "FILE",
            "The quantized model: QDQ, integer operators, dynamic or weight-only."),
    OQ_PATH("output", 'o', "report", "FILE", "Write the report, one HTML file that needs no network."),
    OQ_INT("top", 'n', "", "20", "0..1000000", "N", "Rows of the ranking to print; 0 means all."),
    OQ_FLAG("no_kernel_check", 0, "",
            "Do not run the quantized model a second time as the runtime optimises it."),
    OQ_PATH("data_root", 0, "", "DIR",
            "A further folder that external data may lie in; links to it are followed."),
};
static const oq_opt_group own = OQ_GROUP("Models and report", rows);

typedef struct debugging {
    oq_job *job;
    oq_model *truth, *made;
    oq_engine *engine;
    oq_source *truth_source, *made_source;
    oq_debug d;
} debugging;

static onq_code run_models(debugging *g, onq_error *err) {
    oq_job *job = g->job;
    oq_debug_run run = {.kernel = !oq_opt_flag(job->opts, "no_kernel_check")};
    OQ_TRY(oq_job_source(job, g->truth, &g->truth_source, err));
    OQ_TRY(oq_job_source(job, g->made, &g->made_source, err));
    OQ_TRY(oq_job_engine(job, &g->engine, err));
    OQ_TRY(oq_job_session(job, &run.session, err));
    run.engine = g->engine;
    run.truth_source = g->truth_source;
    run.made_source = g->made_source;
    return oq_debug_activations(&g->d, &run, err);
}

static onq_code write_report(debugging *g, onq_error *err) {
    const char *path = oq_opt_str(g->job->opts, "output");
    if (path == NULL)
        return ONQ_OK;
    oq_buf page;
    oq_out out = {0};
    oq_buf_init(&page, &g->job->env->alloc);
    onq_code rc = oq_debug_report(&g->d, &page, err);
    if (rc == ONQ_OK)
        rc = oq_out_open(&out, &g->job->env->alloc, path, err);
    if (rc == ONQ_OK)
        rc = oq_out_write(&out, page.p, page.n, err);
    if (rc == ONQ_OK)
        rc = oq_out_commit(&out, err);
    oq_out_abort(&out);
    oq_buf_release(&page);
    return rc;
}

static onq_code run_steps(debugging *g, onq_error *err) {
    oq_job *job = g->job;
    const onq_options *o = job->opts;
    OQ_TRY(oq_job_open(job, oq_opt_str(o, "float_model"), &g->truth, err));
    OQ_TRY(oq_job_open(job, oq_opt_str(o, "qdq_model"), &g->made, err));
    oq_debug_init(&g->d, job->env, g->truth, g->made);
    g->d.histograms = oq_opt_is_set(o, "output");
    onq_code rc = oq_debug_match(&g->d, err);
    if (rc == ONQ_OK)
        rc = oq_debug_weights(&g->d, err);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "%s", g->made->path);
    if (oq_opt_is_set(o, "data"))
        OQ_TRY(run_models(g, err));
    OQ_TRY(oq_debug_rank(&g->d, err));
    if (g->d.weights.n == 0 && g->d.acts.n == 0)
        oq_warn(job->env, "%s: nothing in it is quantized", g->made->path);
    OQ_TRY(write_report(g, err));
    oq_debug_text(&g->d, (size_t)oq_opt_int(o, "top"), &job->text);
    oq_debug_json(&g->d, &job->json);
    return ONQ_OK;
}

static onq_code run_debug(oq_job *job, onq_error *err) {
    debugging g = {.job = job};
    onq_code rc = run_steps(&g, err);
    if (g.d.env != NULL)
        oq_debug_release(&g.d);
    oq_source_close(g.truth_source);
    oq_source_close(g.made_source);
    oq_engine_close(g.engine);
    oq_model_free(g.truth);
    oq_model_free(g.made);
    return rc;
}

const oq_command oq_command_debug = {
    .info = {"debug", "", "show where a quantized model loses accuracy",
             "Compares a quantized model with the float model it came from: every weight with its dequantized "
             "twin and, with --data, every activation before and after quantization and across the models "
             "(the reference's qdq_loss_debug). What loses most comes first, with the likely reason. Loss "
             "by quantization is told from saturation in the runtime's kernels."},
    .required = "float_model qdq_model",
    .groups = {&own, &oq_group_data, &oq_group_runtime, &oq_group_general},
    .run = run_debug,
};
